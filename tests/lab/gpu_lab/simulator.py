# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML simulator as an overlay layer below each host with GPUs, and the commands that make a host's GPU state."""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from .board import Board, gpu_uuid
from .paths import REPOSITORY, HostPaths, cache

SOURCE = REPOSITORY / "tests/nvml_simulator"


def layer() -> Path | None:
    """The installed simulator, built when its sources have changed; None while there are none."""
    if not (SOURCE / "Makefile").is_file():
        return None
    digest = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and "tests" not in path.relative_to(SOURCE).parts and "build" not in path.relative_to(SOURCE).parts:
            digest.update(str(path.relative_to(SOURCE)).encode() + b"\0" + path.read_bytes())
    target = cache() / "simulator" / digest.hexdigest()[:12]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            building = target.parent / f".{target.name}.building"
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            building.chmod(0o755)
            subprocess.run(
                ["make", "-C", SOURCE, "install", f"DESTDIR={building}"], check=True, timeout=300, stdout=subprocess.DEVNULL,
                env={**os.environ, "MAKEFLAGS": ""},
            )
            building.rename(target)
    return target


def commands(paths: HostPaths, board: Board, host: str) -> dict[str, list[list[str]]]:
    """What runs on the host's files before pid 1: at the first boot, and at each later one."""
    return {}
