# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups: each host has one in the unified hierarchy, named after its network link, and sees it as the root."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PREFIX = "gpu-lab-"
REMOVE_S = 5


def outer_mount() -> Path | None:
    """Where this machine has the unified hierarchy mounted, if it has."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _dash, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


def own() -> str:
    """Our place in the unified hierarchy, relative to its root."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        if line.startswith("0::/"):
            return line.removeprefix("0::/")
    raise RuntimeError("this kernel has no unified control group hierarchy (cgroup2)")


def remove(group: Path) -> None:
    """Groups go from the leaves up; the kernel needs a moment after the last process is gone."""
    deadline = time.monotonic() + REMOVE_S
    while group.exists() and time.monotonic() < deadline:
        for directory, _folders, _files in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        if group.exists():
            time.sleep(0.02)


def remove_orphans() -> None:
    """Groups whose host is gone. A link of the same name means that the host still lives."""
    mount_point = outer_mount()
    for group in mount_point.glob(f"{PREFIX}*") if mount_point else ():
        if not Path("/sys/class/net", group.name.removeprefix(PREFIX)).exists():
            remove(group)
