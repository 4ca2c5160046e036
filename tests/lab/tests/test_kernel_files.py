# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated kernel answers as the kernel does. No root, no mounts: the store functions themselves."""

from __future__ import annotations

import errno

import pytest

from gpu_lab.board import Board, names
from gpu_lab.kernel import cpulist, machine
from gpu_lab.kernel.files import File, Link, find

THP = "sys/kernel/mm/transparent_hugepage"


class Kernel:
    def __init__(self, name: str, command_line: str | None = None, **changes: object) -> None:
        board = Board.load(name, changes)
        self.tree = machine.boot(board, "host", command_line or board.command_line, "id")

    def read(self, path: str) -> str:
        return find(self.tree, path).content().decode().rstrip("\n")

    def write(self, path: str, text: str) -> str | None:
        """The name of the error, or None when the kernel takes it."""
        try:
            find(self.tree, path).store(text)
        except OSError as error:
            return errno.errorcode[error.errno]
        return None


@pytest.fixture
def kernel() -> Kernel:
    return Kernel("no_gpu")


@pytest.mark.parametrize("text", ["madvise", "madvise\n"])
def test_a_word_is_taken_and_the_brackets_move(kernel: Kernel, text: str) -> None:
    assert kernel.read(f"{THP}/enabled") == "[always] madvise never"
    assert kernel.write(f"{THP}/enabled", text) is None
    assert kernel.read(f"{THP}/enabled") == "always [madvise] never"


@pytest.mark.parametrize(
    "text", ["Madvise", "madvis", "madvise ", "[madvise]", " madvise", "madvise\n\n", "inherit", "\n"]
)
def test_anything_else_is_refused_and_changes_nothing(kernel: Kernel, text: str) -> None:
    assert kernel.write(f"{THP}/enabled", text) == "EINVAL"
    assert kernel.read(f"{THP}/enabled") == "[always] madvise never"


def test_defrag_reads_in_the_kernels_order(kernel: Kernel) -> None:
    assert kernel.write(f"{THP}/defrag", "defer+madvise\n") is None
    assert kernel.read(f"{THP}/defrag") == "always defer [defer+madvise] madvise never"
    assert kernel.write(f"{THP}/defrag", "defer\n") is None
    assert kernel.read(f"{THP}/defrag") == "always [defer] defer+madvise madvise never"


def test_sizes_have_inherit_and_the_smallest_has_no_enabled(kernel: Kernel) -> None:
    assert kernel.read(f"{THP}/hugepages-2048kB/enabled") == "always [inherit] madvise never"
    assert kernel.read(f"{THP}/hugepages-64kB/enabled") == "always inherit madvise [never]"
    assert kernel.write(f"{THP}/hugepages-64kB/enabled", "inherit\n") is None
    assert "enabled" not in find(kernel.tree, f"{THP}/hugepages-8kB")
    assert kernel.write(f"{THP}/hugepages-8kB/shmem_enabled", "deny") == "EINVAL"
    assert kernel.write(f"{THP}/shmem_enabled", "deny") is None


@pytest.mark.parametrize(
    ("file", "text", "error"),
    [
        ("khugepaged/max_ptes_none", "511", None),
        ("khugepaged/max_ptes_none", "512", "EINVAL"),
        ("khugepaged/max_ptes_none", "-1", "EINVAL"),
        ("khugepaged/pages_to_scan", "0", "EINVAL"),
        ("khugepaged/defrag", "2", "EINVAL"),
        ("khugepaged/scan_sleep_millisecs", "4294967296", "ERANGE"),
        ("use_zero_page", "2", "EINVAL"),
        ("use_zero_page", "0\n", None),
        ("use_zero_page", "yes", "EINVAL"),
    ],
)
def test_numbers_have_their_bounds(kernel: Kernel, file: str, text: str, error: str | None) -> None:
    assert kernel.write(f"{THP}/{file}", text) == error


@pytest.mark.parametrize("file", ["hpage_pmd_size", "khugepaged/full_scans"])
def test_what_the_kernel_only_shows_has_no_store(kernel: Kernel, file: str) -> None:
    assert find(kernel.tree, f"{THP}/{file}").store is None


def test_pages_of_64k_have_other_sizes_and_caps() -> None:
    kernel = Kernel("gb200")
    assert kernel.read(f"{THP}/hpage_pmd_size") == str(512 << 20)
    sizes = [name for name in find(kernel.tree, THP) if name.startswith("hugepages-")]
    assert "hugepages-2048kB" in sizes and "hugepages-16384kB" in sizes and "hugepages-64kB" not in sizes
    assert kernel.write(f"{THP}/khugepaged/max_ptes_none", "8191") is None
    assert kernel.write(f"{THP}/khugepaged/max_ptes_none", "8192") == "EINVAL"
    assert sorted(find(kernel.tree, "sys/kernel/mm/hugepages")) == [
        "hugepages-16777216kB",
        "hugepages-2048kB",
        "hugepages-524288kB",
    ]


def test_switching_huge_pages_raises_min_free_kbytes() -> None:
    """Three zones: 3 x 22528 kB, as measured; a value set too low does not survive the next store."""
    kernel = Kernel("no_gpu", thp={"enabled": "never"}, low_memory_mb=24000)
    low = int(kernel.read("proc/sys/vm/min_free_kbytes"))
    assert low < 67584
    assert kernel.write(f"{THP}/enabled", "madvise\n") is None
    assert kernel.read("proc/sys/vm/min_free_kbytes") == "67584"
    assert kernel.write("proc/sys/vm/min_free_kbytes", "1024\n") is None
    assert kernel.write(f"{THP}/enabled", "always\n") is None
    assert kernel.read("proc/sys/vm/min_free_kbytes") == "67584"
    assert kernel.write("proc/sys/vm/min_free_kbytes", "1048576\n") is None
    assert kernel.write(f"{THP}/enabled", "madvise\n") is None
    assert kernel.read("proc/sys/vm/min_free_kbytes") == "1048576"


@pytest.mark.parametrize(
    ("words", "active"),
    [
        ("", "always"),
        ("transparent_hugepage=never", "never"),
        ("transparent_hugepage=sometimes", "always"),
        ("transparent_hugepage=never transparent_hugepage=madvise", "madvise"),
    ],
)
def test_the_command_line_decides_at_boot(words: str, active: str) -> None:
    kernel = Kernel("no_gpu", f"ro quiet {words}")
    assert f"[{active}]" in kernel.read(f"{THP}/enabled")
    assert kernel.read("proc/cmdline") == f"ro quiet {words}"


@pytest.mark.parametrize(
    ("knob", "text", "error"),
    [
        ("vm/swappiness", "200\n", None),
        ("vm/swappiness", "201\n", "EINVAL"),
        ("vm/swappiness", "ten", "EINVAL"),
        ("vm/swappiness", "-1", "EINVAL"),
        ("vm/overcommit_memory", "3", "EINVAL"),
        ("kernel/numa_balancing", "0", None),
        ("kernel/numa_balancing", "9", "EINVAL"),
        ("kernel/core_pattern", "/tmp/core.%p\n", None),
    ],
)
def test_sysctls_have_their_bounds(kernel: Kernel, knob: str, text: str, error: str | None) -> None:
    before = kernel.read(f"proc/sys/{knob}")
    assert kernel.write(f"proc/sys/{knob}", text) == error
    assert kernel.read(f"proc/sys/{knob}") == (before if error else text.strip())


@pytest.mark.parametrize(("name", "pool"), [("no_gpu", "hugepages-2048kB"), ("gb200", "hugepages-524288kB")])
def test_the_sysctl_and_the_pool_of_the_default_size_are_one(name: str, pool: str) -> None:
    kernel = Kernel(name)
    assert kernel.write("proc/sys/vm/nr_hugepages", "8\n") is None
    assert kernel.read(f"sys/kernel/mm/hugepages/{pool}/nr_hugepages") == "8"


@pytest.mark.parametrize("name", names())
def test_every_link_of_every_board_leads_somewhere(name: str) -> None:
    tree = Kernel(name).tree

    def check(directory: dict, place: tuple[str, ...]) -> int:
        links = 0
        for entry, node in directory.items():
            if isinstance(node, dict):
                links += check(node, (*place, entry))
            elif isinstance(node, Link):
                target = list(place)
                for part in node.target.split("/"):
                    target = target[:-1] if part == ".." else [*target, part]
                find(tree, "/".join(target))
                links += 1
            else:
                assert isinstance(node, File)
        return links

    assert check(tree, ()) > 0


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("hgx_h100", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("dgx_a100", [3, 3, 1, 1, 7, 7, 5, 5]),
        ("gh200", [0]),
        ("gb200", [0, 0, 1, 1]),
        ("vm", [-1, -1]),
    ],
)
def test_gpus_are_on_the_nodes_of_the_real_machine(name: str, nodes: list[int]) -> None:
    assert [gpu.node for gpu in Board.load(name).gpus] == nodes


def test_distances_of_the_gb200_tray() -> None:
    kernel = Kernel("gb200")
    rows = {node: kernel.read(f"sys/devices/system/node/node{node}/distance").split() for node in (0, 2, 18)}
    assert rows[0][:3] + rows[0][18:19] == ["10", "40", "80", "120"]
    assert rows[2][:4] + rows[2][10:11] == ["80", "120", "10", "11", "40"]
    assert rows[18][:3] == ["120", "80", "40"]


@pytest.mark.parametrize(
    ("cpus", "width", "text", "mask"),
    [
        ("0-3,8", 32, "0-3,8", "0000010f"),
        ("0-55,112-167", 224, None, "00000000,000000ff,ffffffff,ffff0000,00000000,00ffffff,ffffffff"),
        ("", 8, "", "00"),
        ("0", 1, "0", "1"),
        ("64-71", 72, "64-71", "ff,00000000,00000000"),
    ],
)
def test_cpu_lists_and_masks(cpus: str, width: int, text: str | None, mask: str) -> None:
    numbers = cpulist.parse(cpus)
    assert cpulist.as_list(numbers) == (cpus if text is None else text)
    assert cpulist.as_mask(numbers, width) == mask
