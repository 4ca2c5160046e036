# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real Python interpreters of this machine, by minor version: interpreters.py 3.11 prints the path of one.

pyenv's shims are passed over: the shim of a version that isn't active exists, and fails when it is run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SUPPORTED = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def main():
    version = sys.argv[1]
    found = find(version)
    if not found:
        sys.exit("no Python %s with venv and ensurepip found on PATH, in /usr/bin or below pyenv" % version)
    print(found)


def find(version):
    """Path of a python of this minor version that can make virtual environments; None when there is none."""
    for folder in folders(version):
        program = Path(folder) / ("python" + version)
        if program.exists() and works(program, version):
            return program
    return None


def folders(version):
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    # pyenv is where its shims are, also when HOME is another one.
    pyenvs = [folder.parent for folder in on_path if folder.name == "shims"]
    pyenvs += [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")]
    versions = {path for pyenv in pyenvs for path in pyenv.glob("versions/%s.*/bin" % version)
                if re.search(r"\.\d+$", path.parent.name)}
    newest_first = sorted(versions, key=lambda path: -int(path.parent.name.rsplit(".", 1)[1]))
    # An active virtual environment on PATH is somebody's own: not the base for ours.
    others = [folder for folder in on_path if folder.name != "shims" and not (folder.parent / "pyvenv.cfg").exists()]
    return [*newest_first, *others, "/usr/local/bin", "/usr/bin"]


def works(program, version):
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([str(program), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, universal_newlines=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def present():
    """{minor version: interpreter} of the supported versions that are here."""
    found = ((version, find(version)) for version in SUPPORTED)
    return {version: program for version, program in found if program}


if __name__ == "__main__":
    main()
