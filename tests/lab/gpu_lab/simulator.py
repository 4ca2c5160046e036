# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML simulator as an overlay layer below each host with GPUs, and the commands that make a host's GPU state."""

from __future__ import annotations

from pathlib import Path

from . import built
from .board import Board
from .paths import REPOSITORY

SOURCE = REPOSITORY / "tests/nvml_simulator"


def layer() -> Path | None:
    """The installed simulator; None while there is none."""
    if not (SOURCE / "README.md").is_file():
        return None
    left_out = {"build", "tests", "__pycache__"}
    sources = [
        path for path in SOURCE.rglob("*") if path.is_file() and not left_out & set(path.relative_to(SOURCE).parts)
    ]
    return built.layer(
        "simulator", sources, lambda target: built.run("make", "-C", SOURCE, "install", f"DESTDIR={target}")
    )


def commands(board: Board, host: str) -> dict[str, list[list[str]]]:
    """What runs on the host's files before pid 1: at the first boot, and at each later one."""
    return {}
