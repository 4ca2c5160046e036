# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On which node a PCI function is, and who says so. Pure.

An unknown place stays unknown: turning -1 into node 0 is how whole hosts end up bound to one socket.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from .nodes import cpu_nodes, nearest, owners


class Place(NamedTuple):
    """A node and the source of that answer. Without one, C(candidates) are the nodes it can still be."""

    node: Optional[int]
    source: Optional[str]
    candidates: tuple = ()
    ignored: Optional[int] = None  # a node the device names and the host does not have

    @property
    def ambiguous(self):
        return self.node is None and len(self.candidates) > 1


def resolve(function, nodes, online, override=None, parents=(), nvml=None):
    """The Place of a function.

    The user's override wins, as it exists for firmware that lies. Then the device's own numa_node, the only node
    with CPUs, its list of local CPUs, the bridges above it, and what NVML says (C(nvml): node ids, or None).
    """
    known = {node.id for node in nodes}
    with_cpus = cpu_nodes(nodes)
    wrong = function.numa_node
    ignored = wrong if wrong is not None and wrong >= 0 and wrong not in known else None
    if override is not None:
        return Place(override, "override", ignored=ignored)
    if function.numa_node in known:
        return Place(function.numa_node, "sysfs")
    if len(with_cpus) == 1:
        return Place(with_cpus[0], "single_node", ignored=ignored)
    candidates = local_nodes(function, nodes, online)
    if len(candidates) == 1:
        return Place(candidates[0], "local_cpus", ignored=ignored)
    for parent in parents:
        above = [parent.numa_node] if parent.numa_node in known else local_nodes(parent, nodes, online)
        if len(above) == 1:
            return Place(above[0], "parent", ignored=ignored)
    said = [node for node in with_cpus if node in (nvml or ())]
    if len(said) == 1:
        return Place(said[0], "nvml", ignored=ignored)
    return Place(None, None, tuple(candidates or said or with_cpus), ignored)


def local_nodes(function, nodes, online):
    """Nodes that own a function's local CPUs. A list of every CPU is what the kernel says when it does not know."""
    local = function.local_cpus
    if not local or local >= online:
        return []
    return owners(nodes, local)


def binding_node(place, nodes):
    """The node to bind CPUs to: the place itself when it has CPUs, else the nearest that has; None when undecided."""
    with_cpus = cpu_nodes(nodes)
    if place.node is None or place.node in with_cpus:
        return place.node
    near = nearest(nodes, place.node, with_cpus)
    return near[0] if len(near) == 1 else None
