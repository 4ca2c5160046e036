# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few system calls that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    _check(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind and kind.encode(),
            ctypes.c_ulong(flags),
            options and options.encode(),
        ),
        f"mount {source} on {target}",
    )


def bind(source: str, target: str, read_only: bool = False) -> None:
    mount(source, target, None, MS_BIND)
    if read_only:
        mount(source, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def pivot_root(new_root: str) -> None:
    """Makes `new_root` the root and lets go of everything mounted outside it."""
    os.chdir(new_root)
    _check(_libc.syscall(ctypes.c_long(_PIVOT_ROOT[platform.machine()]), b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when its parent is gone, however that ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def drop_capabilities(numbers: Iterable[int]) -> None:
    for number in numbers:
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)
