# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python 3.13 of the lab's Debian 13 root, for machines that have none of their own.

The root has no pip: packages are unpacked beside it, and both meet in a mount namespace that ends with the command.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import environments

REPOSITORY = Path(__file__).resolve().parent.parent
VERSION = "3.13"
PACKAGES = REPOSITORY / "build/python/3.13-debian13"
# $1 the root, $2 an empty folder, $3 the checkout; the rest is the command.
ENTER = """
set -e
root=$1 here=$2 checkout=$3
shift 3
mount -t tmpfs none "$here"
mkdir "$here/new" "$here/work" "$here/root"
mount -t overlay none -o "lowerdir=$root,upperdir=$here/new,workdir=$here/work" "$here/root"
mkdir -p "$here/root$checkout"
mount --bind "$checkout" "$here/root$checkout"
mount -t proc proc "$here/root/proc"
mount --bind /dev "$here/root/dev"
exec chroot "$here/root" "$@"
"""


def why_not():
    """Why it can't be used here; None when it can."""
    if os.geteuid() != 0:
        return "the Debian 13 root needs root"
    return None if shutil.which("mmdebstrap") else "the Debian 13 root needs mmdebstrap"


def make():
    """The packages of this Python, unpacked for it by pip of another one. Returns where."""
    pins = environments.section(VERSION)
    stamp, wanted = PACKAGES / "lock.sha256", hashlib.sha256("\n".join(pins).encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(PACKAGES, ignore_errors=True)
        environments.install([environments.home(environments.MAIN) / "bin/python"], pins, "--target", PACKAGES,
                             "--python-version", VERSION, "--only-binary=:all:", "--ignore-requires-python")
        stamp.write_text(wanted)
    return PACKAGES


def command(path, *words):
    """The command line that runs Python there, in the checkout, with these folders on its path."""
    sys.path.insert(0, str(REPOSITORY / "tests/lab"))
    from gpu_lab import root

    empty = REPOSITORY / "build/debian13"
    empty.mkdir(parents=True, exist_ok=True)
    settings = ["PYTHONPATH=" + os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE=1", "PATH=/usr/sbin:/usr/bin"]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(root.build("debian13")),
            str(empty), str(REPOSITORY), "env", "-C", str(REPOSITORY), "-i", *settings, "python3", *words]
