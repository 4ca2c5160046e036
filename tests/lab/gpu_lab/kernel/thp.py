# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/kernel/mm: transparent huge pages with the kernel's own rules for what is accepted, and HugeTLB sizes."""

from __future__ import annotations

from collections.abc import Callable

from .files import Choice, File, Node, Number, line

ENABLED = ("always", "madvise", "never")
DEFRAG = ("always", "defer", "defer+madvise", "madvise", "never")
SHMEM = ("always", "within_size", "advise", "never", "deny", "force")
SIZE_ENABLED = ("always", "inherit", "madvise", "never")
SIZE_SHMEM = ("always", "inherit", "within_size", "advise", "never")
STATS = (
    "anon_fault_alloc",
    "anon_fault_fallback",
    "anon_fault_fallback_charge",
    "nr_anon",
    "nr_anon_partially_mapped",
    "shmem_alloc",
    "shmem_fallback",
    "shmem_fallback_charge",
    "split",
    "split_deferred",
    "split_failed",
    "swpin",
    "swpin_fallback",
    "swpin_fallback_charge",
    "swpout",
    "swpout_fallback",
    "zswpout",
)


def from_command_line(command_line: str, default: str) -> str:
    """The last valid `transparent_hugepage=` decides; the kernel ignores one it can't parse."""
    for word in command_line.split():
        key, _equals, value = word.partition("=")
        if key == "transparent_hugepage" and value in ENABLED:
            default = value
    return default


class TransparentHugePages:
    def __init__(self, page_size: int, settings: dict, command_line: str, stored: Callable[[bool], None]) -> None:
        """`stored` is told after every store to an `enabled` file whether PMD-sized pages are on."""
        self.page_kb = page_size // 1024
        # A PMD maps one page full of eight-byte entries.
        self.pages_per_pmd = page_size // 8
        self.pmd_kb = self.page_kb * self.pages_per_pmd
        self._stored = stored
        self.enabled = Choice(
            ENABLED, from_command_line(command_line, settings.get("enabled", "madvise")), self._changed
        )
        self.defrag = Choice(DEFRAG, settings.get("defrag", "madvise"))
        self.shmem = Choice(SHMEM, settings.get("shmem_enabled", "never"))
        # Order-1 pages exist for shared memory only, so the smallest size has no `enabled`.
        orders = range(1, self.pages_per_pmd.bit_length())
        self.sizes = (
            {
                self.page_kb << order: (
                    Choice(SIZE_ENABLED, self._size_default(order), self._changed) if order > 1 else None,
                    Choice(SIZE_SHMEM, self._size_default(order)),
                )
                for order in orders
            }
            if settings.get("per_size", True)
            else {}
        )

    def _size_default(self, order: int) -> str:
        return "inherit" if self.page_kb << order == self.pmd_kb else "never"

    @property
    def pmd_pages_on(self) -> bool:
        own = self.sizes[self.pmd_kb][0].active if self.sizes else "inherit"
        return own in ("always", "madvise") or (own == "inherit" and self.enabled.active != "never")

    def _changed(self) -> None:
        self._stored(self.pmd_pages_on)

    def tree(self) -> dict[str, Node]:
        most = self.pages_per_pmd - 1
        tree: dict[str, Node] = {
            "enabled": self.enabled.file(),
            "defrag": self.defrag.file(),
            "shmem_enabled": self.shmem.file(),
            "use_zero_page": Number(1, high=1).file(),
            "shrink_underused": Number(1, high=1).file(),
            "hpage_pmd_size": line(self.pmd_kb * 1024),
            "khugepaged": {
                "defrag": Number(1, high=1).file(),
                "pages_to_scan": Number(self.pages_per_pmd * 8, low=1, bits=32).file(),
                "scan_sleep_millisecs": Number(10000, bits=32).file(),
                "alloc_sleep_millisecs": Number(60000, bits=32).file(),
                "max_ptes_none": Number(most, high=most).file(),
                "max_ptes_swap": Number(self.pages_per_pmd // 8, high=most).file(),
                "max_ptes_shared": Number(self.pages_per_pmd // 2, high=most).file(),
                "pages_collapsed": line(0),
                "full_scans": line(0),
            },
        }
        for size, (enabled, shmem) in self.sizes.items():
            directory: dict[str, Node] = {"shmem_enabled": shmem.file(), "stats": {name: line(0) for name in STATS}}
            if enabled:
                directory["enabled"] = enabled.file()
            tree[f"hugepages-{size}kB"] = directory
        return tree


def huge_tlb_tree(page_size: int) -> dict[str, Node]:
    """Pools of the sizes the page size allows, all empty."""
    sizes = (2048, 1048576) if page_size == 4096 else (2048, 524288, 16777216)
    tree: dict[str, Node] = {}
    for size in sizes:
        pages = Number(0)
        tree[f"hugepages-{size}kB"] = {
            "nr_hugepages": pages.file(),
            "nr_hugepages_mempolicy": pages.file(),
            "nr_overcommit_hugepages": Number(0).file(),
            "free_hugepages": File(pages.show),
            "resv_hugepages": line(0),
            "surplus_hugepages": line(0),
        }
    return tree
