# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Overlay layers that are compiled once and shared by hosts, cached by the hash of their sources."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from .paths import cache


class BuildError(Exception):
    pass


def layer(kind: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """The layer made of these sources, built now if it isn't there; `build` fills an empty directory."""
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    target = cache() / kind / digest.hexdigest()[:12]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            building = target.parent / f".{target.name}.building"
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir(mode=0o755)
            build(building)
            building.rename(target)
    return target


def run(*argv: str | Path) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, argv))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
