# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel of one host: everything it serves, from one boot to the next."""

from __future__ import annotations

import re
from pathlib import Path

from ..board import Board
from . import hardware
from .files import File, Node
from .sysctl import MinFreeKbytes, kernel_tree, vm_tree
from .thp import TransparentHugePages, huge_tlb_tree

SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def boot(board: Board, host: str, command_line: str, boot_id: str) -> dict[str, Node]:
    """The tree of a freshly booted kernel: all values are the boot's own, nothing survives from before."""
    settings = board.data
    lowmem_kb = settings.get("low_memory_mb", board.memory_kb // 1024) * 1024
    cpu_nodes = sum(1 for node in board.nodes if node.cpus)
    # The first node of an x86 machine has the zones DMA and DMA32 besides Normal.
    zones = settings.get("zones", cpu_nodes + (2 if board.page_size == 4096 else 0))
    min_free = MinFreeKbytes(lowmem_kb, board.page_size, zones)

    memory: dict[str, Node] = {"hugepages": huge_tlb_tree(board.page_size), "ksm": {"run": File("0\n")}}
    if board.thp is not None:
        thp = TransparentHugePages(board.page_size, board.thp, command_line, min_free.huge_pages_stored)
        memory["transparent_hugepage"] = thp.tree()
        min_free.huge_pages_stored(thp.pmd_pages_on)

    # A machine of one node boots with balancing off.
    kernel = {"numa_balancing": 1 if len(board.nodes) > 1 else 0, **settings.get("kernel", {})}
    sysctl = {"vm": vm_tree(settings.get("vm", {}), min_free), "kernel": kernel_tree(kernel, boot_id)}
    # vm.nr_hugepages is the pool of the default size.
    default_kb = 2048 if board.page_size == 4096 else board.page_size // 1024 * (board.page_size // 8)
    sysctl["vm"]["nr_hugepages"] = memory["hugepages"][f"hugepages-{default_kb}kB"]["nr_hugepages"]
    roots, bus, classes = hardware.pci_trees(board)
    proc: dict[str, Node] = {
        "cmdline": File(f"{command_line}\n", size=0),
        "swaps": File(settings.get("swaps", SWAPS), size=0),
        "meminfo": File(lambda: _meminfo(board), size=0),
        "driver": {"nvidia": hardware.nvidia_tree(board, host)} if board.gpus else {},
        "sys": sysctl,
    }
    return {
        "proc": proc,
        "sys": {
            "kernel": {"mm": memory},
            "devices": {**roots, "system": {"cpu": hardware.cpu_tree(board), "node": hardware.node_tree(board)}},
            "bus": {"pci": bus},
            "class": classes,
        },
    }


def _meminfo(board: Board) -> str:
    """The real file with the board's memory in it: nearly all of it free, as on a host before its jobs."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    free = board.memory_kb - board.memory_kb // 50
    values = {"MemTotal": board.memory_kb, "MemFree": free, "MemAvailable": free}
    if board.page_size != 4096:
        values["Hugepagesize"] = board.page_size // 1024 * (board.page_size // 8)
    for name, value in values.items():
        text = re.sub(rf"^{name}:.*$", f"{name + ':':<16}{value:8d} kB", text, flags=re.MULTILINE)
    return text
