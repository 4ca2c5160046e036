# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words for numactl, systemd and Slurm."""

from __future__ import annotations

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._topology import hints


def binding(**changes):
    given = dict(cpus=frozenset(range(4)), nodes=(1,), all_with_memory=True, memory_nodes=(1,), preferred=1,
                 cores=(0, 1, 2, 3),
                 policy_allowed=True, numa_node_as_socket=False)
    return hints.Binding(**dict(given, **changes))


@pytest.mark.parametrize("changes, soft, strict, unit", [
    ({}, "--cpunodebind=1 --preferred=1", "--cpunodebind=1 --membind=1",
     ["CPUAffinity=0-3", "NUMAPolicy=preferred", "NUMAMask=1"]),
    ({"nodes": (0, 1), "memory_nodes": (0, 1)}, "--cpunodebind=0-1 --preferred=1", "--cpunodebind=0-1 --membind=0-1",
     ["CPUAffinity=0-3", "NUMAPolicy=preferred", "NUMAMask=1"]),
    ({"policy_allowed": False}, "--cpunodebind=1", "--cpunodebind=1", ["CPUAffinity=0-3"]),
    ({"memory_nodes": (), "preferred": None}, "--cpunodebind=1", "--cpunodebind=1", ["CPUAffinity=0-3"]),
    ({"memory_nodes": (), "preferred": None, "all_with_memory": False}, "--physcpubind=0-3", "--physcpubind=0-3",
     ["CPUAffinity=0-3"]),
])
def test_binding(changes, soft, strict, unit):
    found = hints.binding_hints(binding(**changes))
    assert (found["numactl"], found["numactl_strict"], found["systemd"]) == (soft, strict, unit)
    assert found["slurm_cores"] == "0-3"


@pytest.mark.parametrize("minor, cores, line", [
    (3, (48, 49, 50), "Name=gpu File=/dev/nvidia3 Cores=48-50"), (0, (), None), (None, (1,), None)])
def test_gres_line(minor, cores, line):
    assert hints.gres_line(minor, cores) == line


@pytest.mark.parametrize("total, needed", [(2, None), (8, None), (9, 9), (34, 34)])
def test_the_kubelet_is_told_above_eight_nodes(total, needed):
    assert hints.host_hints([0, 1], total)["kubelet_max_allowable_numa_nodes"] == needed


def test_a_host_without_cpu_nodes_has_no_mask():
    assert hints.host_hints([], 1)["numactl_interleave"] is None
