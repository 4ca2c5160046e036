# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Virtual environments with locked versions, one for each Python.

environments.py make 3.11   makes or updates it (build/venv for 3.11, else build/python/<version>) and prints its path
environments.py lock        resolves the tools named in pyproject.toml anew, for every Python here
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import interpreters

REPOSITORY = Path(__file__).resolve().parent.parent
LOCK = REPOSITORY / "requirements.lock"
MAIN = "3.11"
HEAD = "# Exact versions of the development tools, by Python version. Made by `make lock` from pyproject.toml.\n"


def main():
    if sys.argv[1] == "lock":
        lock()
    else:
        print(make(sys.argv[2]))


def home(version):
    return REPOSITORY / ("build/venv" if version == MAIN else "build/python/" + version)


def make(version):
    """The environment of a Python, up to date with the lock. Nothing is done when it is so already."""
    place = home(version)
    stamp = place / "lock.sha256"
    wanted = hashlib.sha256("".join(section(version)).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted and (place / "bin/python").exists():
        return place
    base = interpreters.find(version)
    if not base:
        sys.exit("no Python %s here" % version)
    shutil.rmtree(place, ignore_errors=True)
    run([base, "-m", "venv", place])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.writelines(section(version))
        listed.flush()
        run([place / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "-r", listed.name])
    stamp.write_text(wanted)
    return place


def section(version):
    """The lines of the lock that are for this Python."""
    marker = '; python_version == "%s"' % version
    return [line for line in LOCK.read_text().splitlines(keepends=True) if line.rstrip().endswith(marker)]


def lock():
    import tomllib

    named = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["gpu_host"]["environments"]
    parts = [HEAD]
    for version, tools in named.items():
        base = interpreters.find(version)
        if base:
            rows = resolve(base, tools)
            parts.append("".join('%s==%s; python_version == "%s"\n' % (*row, version) for row in rows))
        else:
            print("Python %s is not here: its section stays as it was" % version)
            parts.append("".join(section(version)))
    LOCK.write_text("\n".join(parts))


def resolve(base, tools):
    with tempfile.TemporaryDirectory() as folder:
        run([base, "-m", "venv", folder])
        pip = [Path(folder) / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*pip, "install", "--upgrade", "pip"])
        report = Path(folder) / "report.json"
        run([*pip, "install", "--dry-run", "--ignore-installed", "--report", report, *tools])
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return sorted((item["name"].lower().replace("_", "-"), item["version"]) for item in found)


def run(command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    if done.returncode != 0:
        sys.exit("%s\nfailed with status %d: %s" % (done.stdout, done.returncode, " ".join(map(str, command))))


if __name__ == "__main__":
    main()
