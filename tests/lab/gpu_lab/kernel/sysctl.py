# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/proc/sys/vm and /proc/sys/kernel: knobs with the kernel's bounds, and a few facts of the real kernel."""

from __future__ import annotations

import errno
import math
import re
from pathlib import Path

from .files import File, Node, refuse

INT_MAX = 2**31 - 1
ULONG_MAX = 2**64 - 1

# name: (value at boot, least, most)
VM = {
    "admin_reserve_kbytes": (8192, 0, ULONG_MAX),
    "compact_unevictable_allowed": (1, 0, 1),
    "compaction_proactiveness": (20, 0, 100),
    "dirty_background_bytes": (0, 1, ULONG_MAX),
    "dirty_background_ratio": (10, 0, 100),
    "dirty_bytes": (0, 8192, ULONG_MAX),
    "dirty_expire_centisecs": (3000, 0, INT_MAX),
    "dirty_ratio": (20, 0, 100),
    "dirty_writeback_centisecs": (500, 0, INT_MAX),
    "extfrag_threshold": (500, 0, 1000),
    "laptop_mode": (0, 0, INT_MAX),
    "max_map_count": (65530, 0, INT_MAX),
    "min_slab_ratio": (5, 0, 100),
    "min_unmapped_ratio": (1, 0, 100),
    "mmap_min_addr": (65536, 0, ULONG_MAX),
    "nr_overcommit_hugepages": (0, 0, ULONG_MAX),
    "numa_stat": (1, 0, 1),
    "oom_dump_tasks": (1, -INT_MAX, INT_MAX),
    "oom_kill_allocating_task": (0, -INT_MAX, INT_MAX),
    "overcommit_kbytes": (0, 0, ULONG_MAX),
    "overcommit_memory": (0, 0, 2),
    "overcommit_ratio": (50, -INT_MAX, INT_MAX),
    "page-cluster": (3, 0, 31),
    "panic_on_oom": (0, 0, 2),
    "percpu_pagelist_high_fraction": (0, 0, INT_MAX),
    "stat_interval": (1, 0, INT_MAX),
    "swappiness": (60, 0, 200),
    "user_reserve_kbytes": (131072, 0, ULONG_MAX),
    "vfs_cache_pressure": (100, 0, INT_MAX),
    "watermark_boost_factor": (15000, 0, INT_MAX),
    "watermark_scale_factor": (10, 1, 3000),
    "zone_reclaim_mode": (0, 0, INT_MAX),
}
KERNEL = {
    "core_uses_pid": (0, -INT_MAX, INT_MAX),
    "dmesg_restrict": (0, 0, 1),
    "hung_task_timeout_secs": (120, 0, INT_MAX),
    "kptr_restrict": (0, 0, 2),
    "nmi_watchdog": (1, 0, 1),
    "numa_balancing": (1, 0, 4),
    "panic": (0, -INT_MAX, INT_MAX),
    "panic_on_oops": (0, -INT_MAX, INT_MAX),
    "perf_event_paranoid": (2, -1, INT_MAX),
    "pid_max": (4194304, 301, 4194304),
    "randomize_va_space": (2, 0, 2),
    "sched_autogroup_enabled": (1, 0, 1),
    "softlockup_panic": (0, 0, 1),
    "sysrq": (0, 0, INT_MAX),
    "threads-max": (1023456, 1, INT_MAX),
    "unprivileged_bpf_disabled": (2, 0, 2),
    "watchdog": (1, 0, 1),
    "watchdog_thresh": (10, 0, 60),
}
# Facts that belong to the kernel which really runs; programs compare them with what system calls tell.
REAL = (
    "auto_msgmni",
    "cap_last_cap",
    "domainname",
    "hostname",
    "io_uring_disabled",
    "keys/maxkeys",
    "keys/root_maxkeys",
    "msgmax",
    "msgmnb",
    "msgmni",
    "ngroups_max",
    "ns_last_pid",
    "osrelease",
    "ostype",
    "overflowgid",
    "overflowuid",
    "pty/max",
    "pty/nr",
    "random/entropy_avail",
    "random/poolsize",
    "random/uuid",
    "seccomp/actions_avail",
    "sem",
    "shmall",
    "shmmax",
    "shmmni",
    "tainted",
    "version",
)


class Integer:
    """One number as proc_dointvec_minmax() takes it: text after the number is refused, out of bounds is EINVAL."""

    def __init__(self, value: int, low: int, high: int) -> None:
        self.value, self.low, self.high = value, low, high

    def show(self) -> str:
        return f"{self.value}\n"

    def store(self, text: str) -> None:
        match = re.fullmatch(r"\s*(-?(?:0[xX][0-9a-fA-F]+|[0-9]+))\s*\0?", text)
        if not match:
            if not text.strip():
                return
            raise refuse(errno.EINVAL)
        digits = match.group(1)
        value = int(digits, 16) if "x" in digits.lower() else int(digits, 8 if re.match("-?0[0-7]", digits) else 10)
        if not self.low <= value <= self.high:
            raise refuse(errno.EINVAL)
        self.value = value

    def file(self) -> File:
        return File(self.show, self.store, size=0)


class MinFreeKbytes(Integer):
    """vm.min_free_kbytes, which the kernel moves by itself when transparent huge pages are switched."""

    def __init__(self, memory_kb: int, page_size: int, zones: int) -> None:
        self.low_memory_kb = memory_kb
        self.kernel_default = min(max(math.isqrt(memory_kb * 16), 128), 262144)
        # A page block is as large as a PMD; two blocks per zone plus nine for the migrate types.
        block_kb = page_size // 1024 * (page_size // 8)
        self.recommended = min(11 * block_kb * zones, memory_kb // 20)
        self.by_user = -1
        super().__init__(self.kernel_default, 0, INT_MAX)

    def store(self, text: str) -> None:
        super().store(text)
        self.by_user = self.value

    def huge_pages_stored(self, on: bool) -> None:
        if on:
            self.value = max(self.value, self.recommended)
        elif self.kernel_default > self.by_user:
            self.value = self.kernel_default


class Trigger:
    """A write-only knob (drop_caches, compact_memory): the value is checked and nothing happens."""

    def __init__(self, low: int, high: int) -> None:
        self.number = Integer(0, low, high)

    def file(self) -> File:
        return File("", self.number.store, mode=0o200, size=0)


class Words:
    """A text knob such as kernel.core_pattern or kernel.printk."""

    def __init__(self, value: str) -> None:
        self.value = value

    def store(self, text: str) -> None:
        self.value = text.rstrip("\n")

    def file(self) -> File:
        return File(lambda: f"{self.value}\n", self.store, size=0)


def real(path: Path) -> File:
    return File(path.read_bytes, size=0, refuse=errno.EROFS)


def vm_tree(settings: dict[str, int], min_free: MinFreeKbytes) -> dict[str, Node]:
    tree: dict[str, Node] = {
        name: Integer(settings.get(name, value), low, high).file() for name, (value, low, high) in VM.items()
    }
    tree["min_free_kbytes"] = min_free.file()
    tree["compact_memory"] = Trigger(1, 1).file()
    tree["drop_caches"] = Trigger(1, 4).file()
    tree["lowmem_reserve_ratio"] = Words("256\t256\t32\t0\t0").file()
    return tree


def kernel_tree(settings: dict[str, int], boot_id: str) -> dict[str, Node]:
    tree: dict[str, Node] = {
        name: Integer(settings.get(name, value), low, high).file() for name, (value, low, high) in KERNEL.items()
    }
    tree["core_pattern"] = Words("core").file()
    tree["printk"] = Words("4\t4\t1\t7").file()
    for name in REAL:
        path = Path("/proc/sys/kernel", name)
        if path.exists():
            directory, _slash, leaf = name.rpartition("/")
            (tree.setdefault(directory, {}) if directory else tree)[leaf] = real(path)
    tree.setdefault("random", {})["boot_id"] = File(f"{boot_id}\n", size=0)
    return tree
