# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes, sockets and cores of a host. Pure.

Nodes with CPUs and nodes with memory are different sets, ids are sparse, and a node is not a socket: nothing here
counts on more than what the kernel says of each node.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from .lists import clean, format_list, parse_int


class Node(NamedTuple):
    """A NUMA node. C(distances) maps node ids to the firmware's figures; empty where the kernel gives none."""

    id: int
    cpus: frozenset
    memory_kb: Optional[int]
    distances: dict

    @property
    def kind(self):
        if self.cpus:
            return "cpu"
        return "memory" if self.memory_kb else "empty"


class Core(NamedTuple):
    """A physical core: its hardware threads, and the socket and node that have it."""

    socket: Optional[int]
    node: Optional[int]
    cpus: tuple


def memory_kb(meminfo):
    """MemTotal of a node's meminfo, None when it does not say."""
    for line in clean(meminfo).splitlines():
        words = line.split()
        if "MemTotal:" in words:
            return parse_int(words[words.index("MemTotal:") + 1]) if words[-1] != "MemTotal:" else None
    return None


def distances(row, ids):
    """A node's distance file as {node id: distance}; the file has one figure per online node, in their order."""
    figures = [parse_int(word) for word in clean(row).split()]
    if len(figures) != len(ids) or None in figures:
        return {}
    return dict(zip(sorted(ids), figures))


def cpu_nodes(nodes):
    return [node.id for node in nodes if node.cpus]


def memory_nodes(nodes):
    return [node.id for node in nodes if node.memory_kb]


def owners(nodes, cpus):
    """Ids of the nodes that own any of these CPUs."""
    return [node.id for node in nodes if node.cpus & cpus]


def overlapping(nodes):
    """Ids of nodes that claim the same CPUs, which only faulty firmware does."""
    seen, twice = set(), set()
    for node in nodes:
        twice |= seen & node.cpus
        seen |= node.cpus
    return owners(nodes, twice) if twice else []


def nearest(nodes, node_id, candidates):
    """The candidates with the least distance from a node; none where the kernel gives no distances."""
    here = next((node for node in nodes if node.id == node_id), None)
    known = {other: here.distances[other] for other in candidates if other in here.distances} if here else {}
    return [other for other in candidates if known.get(other) == min(known.values())] if known else []


def sockets_of(sockets, cpus):
    """Ids of the sockets that have any of these CPUs. C(sockets) is {id: CPUs}."""
    return sorted(socket for socket, own in sockets.items() if own & cpus)


def core_groups(nodes, sockets, online):
    """Sets of online CPUs that no core crosses: nodes and sockets where they are apart, else all CPUs together."""
    groups, rest = [], set(online)
    for part in [node.cpus for node in nodes] + list(sockets.values()):
        own = part & rest
        if own:
            groups.append(own)
            rest -= own
    if overlapping(nodes) or any(len(sockets_of(sockets, group)) > 1 for group in groups):
        return [set(online)]
    return groups + ([rest] if rest else [])


def cores(siblings, sockets, nodes):
    """The online cores in the order in which schedulers count them: by socket, within it by node, within that by CPU.

    C(siblings) is a list of sets, the hardware threads of each core.
    """
    socket_of = {cpu: socket for socket, own in sockets.items() for cpu in own}
    node_of = {}
    for node in nodes:
        for cpu in node.cpus:
            node_of.setdefault(cpu, node.id)
    found = [Core(socket_of.get(min(own)), node_of.get(min(own)), tuple(sorted(own))) for own in siblings if own]
    first = {}  # the lowest CPU of a socket or node is its place in the order
    for core in found:
        for group in (("socket", core.socket), ("node", core.node)):
            first[group] = min(core.cpus[0], first.get(group, core.cpus[0]))
    return sorted(found, key=lambda core: (first["socket", core.socket], first["node", core.node], core.cpus))


def core_indexes(all_cores, cpus):
    """Indexes of the cores that have any of these CPUs."""
    return [index for index, core in enumerate(all_cores) if cpus & set(core.cpus)]


def as_fact(node, sockets, gpu=None):
    """A node in the words of the result."""
    own = sockets_of(sockets, node.cpus)
    return {
        "id": node.id,
        "kind": node.kind,
        "socket": own[0] if len(own) == 1 else None,
        "cpulist": format_list(node.cpus),
        "memory_kb": node.memory_kb,
        "distances": {str(other): figure for other, figure in sorted(node.distances.items())},
        "gpu": gpu,
    }
