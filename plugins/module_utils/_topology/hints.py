# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a launcher, a unit or a scheduler has to be told to keep a job near its GPU. Pure.

Only nodes with CPUs are named for CPUs, and only nodes with memory that may be used are named for memory.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from .lists import format_list

KUBELET_LIMIT = 8  # nodes the kubelet's topology manager takes without its option


class Binding(NamedTuple):
    """Where a job belongs: CPUs, the nodes that are whole in them, nodes for memory, core indexes as Slurm counts."""

    cpus: frozenset
    nodes: tuple
    all_with_memory: bool
    memory_nodes: tuple
    preferred: Optional[int]
    cores: tuple
    policy_allowed: bool
    numa_node_as_socket: bool


def binding_hints(binding):
    """numactl arguments, unit lines and gres.conf words of a binding."""
    return {
        "numactl": " ".join(cpu_arguments(binding) + memory_arguments(binding, strict=False)),
        "numactl_strict": " ".join(cpu_arguments(binding) + memory_arguments(binding, strict=True)),
        "systemd": unit_lines(binding),
        "slurm_cores": format_list(binding.cores),
        "slurm_parameters": "numa_node_as_socket" if binding.numa_node_as_socket else None,
    }


def cpu_arguments(binding):
    """numactl refuses -N for a node without memory, so the CPUs are named there."""
    if binding.all_with_memory:
        return ["--cpunodebind=" + format_list(binding.nodes)]
    return ["--physcpubind=" + format_list(binding.cpus)]


def memory_arguments(binding, strict):
    if not binding.policy_allowed or not binding.memory_nodes:
        return []
    if strict:
        return ["--membind=" + format_list(binding.memory_nodes)]
    return ["--preferred=%d" % binding.preferred] if binding.preferred is not None else []


def unit_lines(binding):
    """Lines for the [Service] section of a unit."""
    lines = ["CPUAffinity=" + format_list(binding.cpus)]
    if binding.preferred is not None and binding.policy_allowed:
        lines += ["NUMAPolicy=preferred", "NUMAMask=%d" % binding.preferred]
    return lines


def gres_line(minor, cores):
    """A line for gres.conf; None without the device file's number."""
    if minor is None or not cores:
        return None
    return "Name=gpu File=/dev/nvidia%d Cores=%s" % (minor, format_list(cores))


def host_hints(cpu_nodes, total_nodes):
    """What holds for the host as a whole."""
    nodes = format_list(cpu_nodes)
    return {
        # --interleave=all would put pages into GPU memory where that is a node.
        "numactl_interleave": "--interleave=" + nodes if nodes else None,
        "systemd_numa_mask": nodes or None,
        "kubelet_max_allowable_numa_nodes": total_nodes if total_nodes > KUBELET_LIMIT else None,
        # CUDA's own default order is by speed, so index 0 of CUDA, of NVML and of the PCI bus can be three GPUs.
        "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    }
