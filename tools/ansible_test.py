# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-test sanity and units with three ansible-core series, on a copy of the checkout.

Its exit status proves nothing: it is 0 too when it found nothing to test. So every check here is one that its log
shows to have run. GPU_HOST_FULL=1 runs all sanity tests with every series.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import collection_tree
import environments
import interpreters

GET_PIP = Path(__file__).resolve().parent / "get_pip.py"
FULL = bool(os.environ.get("GPU_HOST_FULL"))


class Series(NamedTuple):
    """An ansible-core series: the environments that hold it (the first that can be made), what it tests module code on."""

    name: str
    environments: tuple
    targets: tuple
    all_sanity: bool
    units: tuple  # Pythons for units, beside the one of its environment; tools/unit_matrix.py runs those of modules on all


SERIES = (
    Series("2.19", ("3.11",), ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13"), True, ("3.8",)),
    Series("2.17", ("3.10", "3.11-core2.17"), ("3.8", "3.9", "3.10", "3.11", "3.12"), FULL, ("3.8",)),
    Series("2.21", ("3.12", "3.13"), ("3.9", "3.10", "3.11", "3.12", "3.13"), FULL, ()),
)
PER_PYTHON = ("compile", "import")
STARTED = re.compile(r'^Running sanity test "([\w-]+)"(?: on Python (\d\.\d+))?$', re.MULTILINE)
FAILED = re.compile(r"^FATAL: .*failed\.(?: See error output above for details\.)?\n((?:[\w-]+.*\n)+)", re.MULTILINE)
UNITS = re.compile(r"(?:(\d+) failed, )?(\d+) passed(?:, (\d+) skipped)?.* in [\d.]+s")


def environment_of(series, here):
    """The name of the first environment that has its Python here."""
    return next((name for name in series.environments if environments.python_of(name) in here), None)


def no_python(series):
    return "no Python " + " or ".join(map(environments.python_of, series.environments))


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, what, good):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        if not good:
            print("FAILED: " + what, flush=True)

    def not_run(self, what, why):
        self.skipped += 1
        print("not run: %s (%s)" % (what, why), flush=True)


def main():
    here, tally = interpreters.present(), Tally()
    place = collection_tree.copy() / collection_tree.NAME
    for series in SERIES:
        name = environment_of(series, here)
        if name is None:
            tally.not_run("ansible-test of ansible-core " + series.name, no_python(series) + " here")
        else:
            run_series(series, name, here, place, tally)
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


def run_series(series, name, here, place, tally):
    home = environments.make(name)
    bring_pip(home, environments.python_of(name))
    with_units = sorted({*series.units, environments.python_of(name)})
    for version in series.targets:
        if version not in here:
            for test in (*PER_PYTHON, *(["units"] if version in with_units else [])):
                tally.not_run("%s on Python %s with ansible-core %s" % (test, version, series.name), "no such Python here")
    words = [] if series.all_sanity else [word for test in PER_PYTHON for word in ("--test", test)]
    sanity(series, [version for version in series.targets if version in here], call(home, here, place, "sanity", *words),
           tally)
    for version in with_units:
        if version in here:
            units(series, version, call(home, here, place, "units", "--python", version), tally)


def call(home, here, place, kind, *words):
    """Run ansible-test; returns its exit status and what it said."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    folders = [home / "bin", *(program.parent for program in here.values())]
    others = [folder for folder in os.environ["PATH"].split(os.pathsep) if "/shims" not in folder]
    where = ["--venv"] if kind == "units" else ["--local"]
    command = [str(home / "bin/ansible-test"), kind, *where, "--color", "no", *words]
    started = time.monotonic()
    done = subprocess.run(command, cwd=place, env=dict(clean, PATH=os.pathsep.join(map(str, folders + others))),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, check=False)
    print("%4.0f s  %s" % (time.monotonic() - started, " ".join(command[1:])), flush=True)
    if done.returncode != 0:
        print(complaints(done.stdout), flush=True)
    return done.returncode, done.stdout


def complaints(text):
    """What a person needs of a failed run: not the package installer's chatter."""
    quiet = ("WARNING: Location", "Looking in", "Collecting", "  Downloading", "  Using cached", "Installing collected",
             "Successfully installed", "Requirement already", "     ")
    return "\n".join(line for line in text.splitlines() if not line.startswith(quiet))


def sanity(series, versions, ended, tally):
    code, text = ended
    started = set(STARTED.findall(text))
    wanted = {(test, version) for test in PER_PYTHON for version in versions}
    if series.all_sanity:
        wanted |= {("validate-modules", ""), ("pylint", ""), ("ansible-doc", ""), ("pep8", ""), ("yamllint", "")}
    failed = {line for block in FAILED.findall(text) for line in block.splitlines()}
    for test, version in sorted(started | wanted):
        name = test + (" --python " + version if version else "")
        good = (test, version) in started and name not in failed and test not in failed
        tally.check("sanity %s with ansible-core %s" % (name, series.name), good)
    if code != 0 and not failed:
        tally.check("sanity with ansible-core %s: exit status %d" % (series.name, code), False)


def units(series, version, ended, tally):
    code, text = ended
    counts = [[int(number or 0) for number in match] for match in UNITS.findall(text)]
    failed, passed, skipped = (sum(column) for column in zip(*counts)) if counts else (0, 0, 0)
    tally.passed, tally.failed, tally.skipped = tally.passed + passed, tally.failed + failed, tally.skipped + skipped
    print("        units on Python %s with ansible-core %s: %d passed, %d failed" % (version, series.name, passed, failed))
    if not passed or (code != 0 and not failed):
        tally.check("units on Python %s with ansible-core %s: exit status %d" % (version, series.name, code), False)


def bring_pip(home, python):
    """Our stand-in for get-pip.py, under each name that this ansible-test looks for in its cache."""
    pins = home / ("lib/python%s/site-packages/ansible_test/_internal/python_requirements.py" % python)
    cache = Path.home() / ".ansible/test/cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in set(re.findall(r"pip='([\d.]+)'", pins.read_text())):
        (cache / ("get_pip_%s.py" % version.replace(".", "_"))).write_text(GET_PIP.read_text())


if __name__ == "__main__":
    sys.exit(main())
