# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RLIMIT_MEMLOCK on machines whose root may not raise it: simulated by a preloaded library, see locked_memory.c."""

from __future__ import annotations

from pathlib import Path

from . import built
from .paths import LAB

TABLE = "/run/gpu-lab-locked-memory"
_SOURCE = LAB / "locked_memory/locked_memory.c"
_LIBRARY = "/usr/lib/gpu-lab/locked_memory.so"
_CAP_SYS_RESOURCE = 24


def raising_allowed() -> bool:
    """Whether root on this machine can raise a hard limit, as root on a real host can."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def layer() -> Path | None:
    """None where the real limits do."""
    return None if raising_allowed() else built.layer("locked-memory", [_SOURCE], _build)


def _build(directory: Path) -> None:
    library = directory / _LIBRARY.lstrip("/")
    library.parent.mkdir(parents=True)
    built.run("cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", library, _SOURCE)
    preload = directory / "etc/ld.so.preload"
    preload.parent.mkdir()
    preload.write_text(f"{_LIBRARY}\n", encoding="ascii")
