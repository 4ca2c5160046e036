# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lab keeps its things."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
REPOSITORY = LAB.parent.parent


def cache() -> Path:
    """Root file systems and other things that are built once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu_host"


def state() -> Path:
    """The lab's hosts: one directory each."""
    chosen = os.environ.get("GPU_HOST_LAB")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) / "gpu_host" if base else REPOSITORY / "build") / "lab"


@dataclass(frozen=True)
class HostPaths:
    directory: Path

    @property
    def description(self) -> Path:
        return self.directory / "host.json"

    @property
    def status(self) -> Path:
        return self.directory / "status.json"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def log(self) -> Path:
        return self.directory / "supervisor.log"

    @property
    def kernel_log(self) -> Path:
        return self.directory / "kernel-writes.jsonl"

    @property
    def layer(self) -> Path:
        """What belongs to this host from the start: keys, name, units, files of its description."""
        return self.directory / "layer"

    @property
    def upper(self) -> Path:
        """What the host has written since."""
        return self.directory / "upper"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    # Mount points, empty for everybody outside the host's namespaces.
    @property
    def root(self) -> Path:
        return self.directory / "mnt/root"

    @property
    def kernel(self) -> Path:
        return self.directory / "mnt/kernel"

    @property
    def sysfs(self) -> Path:
        return self.directory / "mnt/sysfs"

    @property
    def cgroup(self) -> Path:
        return self.directory / "mnt/cgroup"

    @property
    def scratch(self) -> Path:
        return self.directory / "mnt/scratch"
