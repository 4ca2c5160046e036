# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Virtual environments with locked versions, by their names in pyproject.toml.

environments.py make 3.11   makes or updates it (build/venv for 3.11, else build/python/<name>) and prints its path
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
HEAD = "# Exact versions of the development tools, by environment. Made by `make lock` from pyproject.toml.\n"


def main():
    if sys.argv[1] == "lock":
        lock()
    else:
        print(make(sys.argv[2]))


def home(name):
    return REPOSITORY / ("build/venv" if name == MAIN else "build/python/" + name)


def python_of(name):
    """The Python version of an environment: that of 3.11-core2.17 is 3.11."""
    return name.split("-")[0]


def make(name):
    """The environment, up to date with the lock. Nothing is done when it is so already."""
    place = home(name)
    stamp = place / "lock.sha256"
    wanted = hashlib.sha256("\n".join(section(name)).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted and (place / "bin/python").exists():
        return place
    base = interpreters.find(python_of(name))
    if not base:
        sys.exit("no Python %s with venv and ensurepip here" % python_of(name))
    shutil.rmtree(place, ignore_errors=True)
    run([base, "-m", "venv", place])
    install([place / "bin/python"], section(name))
    stamp.write_text(wanted)
    return place


def install(python, pins, *options):
    """Exactly these versions, with nothing else that they may ask for: the lock is complete."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(pins))
        listed.flush()
        run([*python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *options,
             "-r", listed.name])


def section(name):
    """The pins of an environment."""
    parts = LOCK.read_text().split("\n[%s]\n" % name)
    return [line for line in parts[1].split("\n[")[0].splitlines() if line] if len(parts) > 1 else []


def lock():
    import tomllib

    named = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["gpu_host"]["environments"]
    parts = [HEAD]
    for name, tools in named.items():
        base = interpreters.find(python_of(name))
        if not base:
            print("Python %s is not here: the section %s stays as it was" % (python_of(name), name))
        pins = resolve(base, tools) if base else section(name)
        parts.append("\n[%s]\n%s\n" % (name, "\n".join(pins)))
    LOCK.write_text("".join(parts))


def resolve(base, tools):
    with tempfile.TemporaryDirectory() as folder:
        run([base, "-m", "venv", folder])
        pip = [Path(folder) / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*pip, "install", "--upgrade", "pip"])
        report = Path(folder) / "report.json"
        run([*pip, "install", "--dry-run", "--ignore-installed", "--report", report, *tools])
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return sorted("%s==%s" % (item["name"].lower().replace("_", "-"), item["version"]) for item in found)


def run(command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    if done.returncode != 0:
        sys.exit("%s\nfailed with status %d: %s" % (done.stdout, done.returncode, " ".join(map(str, command))))


if __name__ == "__main__":
    main()
