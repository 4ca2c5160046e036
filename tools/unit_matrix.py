# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unit tests on every Python that hosts may have, with the module_utils of three ansible-core series.

A managed host gets no more of Ansible than that, so a folder with these alone goes before everything else on the
path; it takes no installed ansible-core, and old Pythons can't have one. Where there is no Python 3.13, that of the
lab's Debian 13 root does. Two runs at a time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import collection_tree
import debian13
import environments
import interpreters
from ansible_test import SERIES, Tally, environment_of, no_python

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT = 600  # seconds for one run
CLOSING = re.compile(r"^=* ?(\d.*) in [\d.]+s", re.MULTILINE)
# What runs on the controller needs all of Ansible: tools/ansible_test.py tests it with every series.
PYTEST = ("-m", "pytest", "-q", "tests/unit", "--ignore=tests/unit/plugins/action", "--ignore=tests/unit/plugins/plugin_utils")


def main():
    here, tally, runs = interpreters.present(), Tally(), []
    stand_in = debian13.VERSION not in here and not debian13.why_not()
    usable = {*here, debian13.VERSION} if stand_in else set(here)
    for series in SERIES:
        name = environment_of(series, usable)
        for version in series.targets:
            what = "unit tests on Python %s with ansible-core %s" % (version, series.name)
            if name is None:
                tally.not_run(what, no_python(series) + " to take it from")
            elif version not in usable:
                tally.not_run(what, "no such Python here")
            else:
                folders = [module_utils(series.name, packages(name, here)), collection_tree.link()]
                runs.append((what, command(version, here, folders), folders))
    with ThreadPoolExecutor(2) as pool:
        for what, seconds, code, text in pool.map(lambda run: pytest(*run), runs):
            tell(what, seconds, code, text, tally)
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


def packages(name, here):
    """The folder with the packages of an environment."""
    if environments.python_of(name) not in here:
        return debian13.make()
    return environments.make(name) / ("lib/python%s/site-packages" % environments.python_of(name))


def module_utils(series, site):
    """A folder whose only content is ansible.module_utils of this series."""
    folder = REPOSITORY / "build/module_utils" / series
    package = folder / "ansible"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    link = package / "module_utils"
    link.unlink(missing_ok=True)
    link.symlink_to(site / "ansible/module_utils")
    return folder


def command(version, here, folders):
    if version in here:
        return [str(environments.make(version) / "bin/python"), *PYTEST]
    return debian13.command([*folders, debian13.make()], *PYTEST)


def pytest(what, words, folders):
    path = os.pathsep.join(map(str, folders))
    started = time.monotonic()
    with subprocess.Popen(words, cwd=REPOSITORY, env=dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1"),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True) as process:
        try:
            text = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0] + "\nstopped after %d s" % LIMIT
    return what, time.monotonic() - started, process.returncode, text


def tell(what, seconds, code, text, tally):
    closing = CLOSING.findall(text)
    words = dict((word, int(number)) for number, word in re.findall(r"(\d+) (\w+)", closing[-1])) if closing else {}
    failed = words.get("failed", 0) + words.get("error", 0) + words.get("errors", 0)
    print("%4.0f s  %s: %s" % (seconds, what, closing[-1] if closing else "no result"), flush=True)
    if code != 0:
        print(text, flush=True)
    tally.passed += words.get("passed", 0)
    tally.skipped += words.get("skipped", 0)
    tally.failed += failed if failed or (code == 0 and words.get("passed")) else 1


if __name__ == "__main__":
    sys.exit(main())
