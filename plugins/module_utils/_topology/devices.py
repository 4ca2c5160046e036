# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts: every device with its place, its CPUs and its hints. Pure."""

from __future__ import annotations

from typing import NamedTuple, Optional

from . import hints, nodes as numa, pci, resolve
from .lists import format_list

NEAREST = ("switch", "host_bridge", "node", "socket")


class Machine(NamedTuple):
    """What the host has beside its devices. C(None) of an allowed set: the kernel does not say."""

    online: frozenset
    offline: frozenset
    isolated: frozenset
    isolcpus: Optional[str]
    nodes: list
    has_nodes: bool
    sockets: dict
    cores: list
    l3_groups: list
    allowed_cpus: Optional[frozenset]
    allowed_mems: Optional[frozenset]
    cpuset_cpus: Optional[frozenset]
    cpuset_mems: Optional[frozenset]
    policy_allowed: Optional[bool]
    policy_reason: Optional[str]
    page_size: Optional[int]
    virtual_machine: Optional[str]
    container: Optional[str]


class Name(NamedTuple):
    """How a GPU is called, and the node its memory is, where it is one."""

    uuid: Optional[str]
    index: Optional[int]
    name: Optional[str]
    minor: Optional[int]
    memory_node: Optional[int]


def within(cpus, *limits):
    """CPUs inside every limit that is known."""
    for limit in limits:
        cpus = cpus if limit is None else cpus & limit
    return cpus


def usable_cpus(machine, cpus):
    return within(cpus, machine.online, machine.allowed_cpus, machine.cpuset_cpus)


def usable_mems(machine):
    """Nodes with memory that this process may use."""
    return within(frozenset(numa.memory_nodes(machine.nodes)), machine.allowed_mems, machine.cpuset_mems)


def topology(machine, located, names, scope):
    """gpu_host_topology. C(located) is [(pci.Function, resolve.Place)], C(names) is {PCI id: Name} of the GPUs."""
    rows = {"gpu": [], "accelerator": [], "nic": [], "nvme": []}
    for function, place in located:
        fact = device(machine, function, place)
        if function.kind == "gpu":
            fact = gpu(machine, fact, names[function.pci], scope)
        rows[function.kind].append((function, fact))
    for function, fact in rows["gpu"]:
        fact["nearest_nics"] = nearest_nics(function, fact, rows["nic"])
    owned = {names[function.pci].memory_node: function.pci for function, fact in rows["gpu"]}
    return dict(host(machine, owned), gpus=facts_of(rows["gpu"]), accelerators=facts_of(rows["accelerator"]),
                nics=facts_of(rows["nic"]), nvme=facts_of(rows["nvme"]))


def facts_of(rows):
    return [fact for function, fact in rows]


def device(machine, function, place):
    """What holds for a device of any kind."""
    near = resolve.binding_node(place, machine.nodes)
    cpus = node_cpus(machine, near)
    own = numa.sockets_of(machine.sockets, cpus)
    wide = frozenset().union(*(machine.sockets[one] for one in own)) if own else frozenset()
    fact = {
        "pci": function.pci,
        "vendor": None if function.vendor is None else "0x%04x" % function.vendor,
        "node": place.node,
        "source": place.source,
        "cpu_node": near,
        "socket": own[0] if len(own) == 1 else None,
        "cpulist": format_list(cpus),
        "socket_cpulist": format_list(wide),
        "usable_cpulist": format_list(usable_cpus(machine, cpus)),
        "ambiguous": place.ambiguous,
        "candidates": list(place.candidates),
        "numa_node": function.numa_node,
        "ignored_node": place.ignored,
    }
    fact.update(function.names)
    return fact


def node_cpus(machine, node_id):
    """Online CPUs of a node; none for a node that is not known."""
    return frozenset().union(*(node.cpus for node in machine.nodes if node.id == node_id)) & machine.online


def gpu(machine, fact, name, scope):
    """What a GPU has beside: its names, distances, cores and hints."""
    here = next((node for node in machine.nodes if node.id == fact["node"]), None)
    worth = {node.id for node in machine.nodes if node.kind != "empty"}
    cpus, nodes = scope_of(machine, fact, scope)
    cores = numa.core_indexes(machine.cores, cpus)
    mems = usable_mems(machine)
    binding = hints.Binding(
        cpus=cpus, nodes=tuple(nodes), cores=tuple(cores),
        all_with_memory=set(nodes) <= set(numa.memory_nodes(machine.nodes)),
        memory_nodes=tuple(node for node in nodes if node in mems),
        preferred=fact["cpu_node"] if fact["cpu_node"] in mems else None,
        policy_allowed=machine.policy_allowed is not False,
        numa_node_as_socket=not is_whole_sockets(machine, cpus))
    return dict(
        fact, uuid=name.uuid, index=name.index, name=name.name, minor=name.minor, memory_node=name.memory_node,
        distances={str(node): far for node, far in sorted(here.distances.items()) if node in worth} if here else {},
        cores=numa.core_indexes(machine.cores, node_cpus(machine, fact["cpu_node"])),
        hints=dict(hints.binding_hints(binding), slurm_gres=hints.gres_line(name.minor, cores),
                   environment={"CUDA_VISIBLE_DEVICES": name.uuid} if name.uuid else {}) if cpus else None,
    )


def scope_of(machine, fact, scope):
    """(CPUs, nodes) a job of this GPU gets: its node, or every node of the sockets that node is on."""
    cpus = node_cpus(machine, fact["cpu_node"])
    if not cpus or scope == "node":
        return cpus, [fact["cpu_node"]] if cpus else []
    own = numa.sockets_of(machine.sockets, cpus)
    wide = frozenset().union(*(machine.sockets[one] for one in own)) if own else cpus
    return wide, [node.id for node in machine.nodes if node.cpus and node.cpus & machine.online <= wide]


def is_whole_sockets(machine, cpus):
    """Whether CPUs are whole sockets, which Slurm wants of a GPU's cores unless told that nodes are sockets."""
    return all(machine.sockets[one] <= cpus for one in numa.sockets_of(machine.sockets, cpus))


def nearest_nics(function, fact, nics):
    """The NICs that are nearest to a GPU, with what joins them: a switch, a host bridge, the node, the socket."""
    ranked = []
    for other, nic in nics:
        word, depth = pci.connection(function.path, other.path)
        if word is None:
            word = common_place(fact, nic)
        if word is not None:
            ranked.append(((NEAREST.index(word), -depth), word, nic))
    best = min(rank for rank, word, nic in ranked) if ranked else None
    return [{"pci": nic["pci"], "via": word, "net": nic["net"], "rdma": nic["rdma"]}
            for rank, word, nic in ranked if rank == best]


def common_place(one, other):
    if one["node"] is not None and one["node"] == other["node"]:
        return "node"
    return "socket" if one["socket"] is not None and one["socket"] == other["socket"] else None


def host(machine, owned):
    """What holds for the host: nodes, CPUs, what may be used."""
    with_cpus, with_memory = numa.cpu_nodes(machine.nodes), numa.memory_nodes(machine.nodes)
    threads = max((len(core.cpus) for core in machine.cores), default=None)
    return {
        "cpu_nodes": with_cpus,
        "mem_nodes": with_memory,
        "memory_only_nodes": [node.id for node in machine.nodes if node.kind == "memory"],
        "empty_nodes": [node.id for node in machine.nodes if node.kind == "empty"],
        "total_nodes": len(machine.nodes),
        "numa": machine.has_nodes,
        "nodes": [numa.as_fact(node, machine.sockets, owned.get(node.id)) for node in machine.nodes],
        "sockets": [{"id": one, "cpulist": format_list(cpus), "nodes": numa.owners(machine.nodes, cpus)}
                    for one, cpus in sorted(machine.sockets.items())],
        "cores": len(machine.cores),
        "threads_per_core": threads,
        "l3_groups": [format_list(group) for group in machine.l3_groups],
        "online_cpulist": format_list(machine.online),
        "offline_cpulist": format_list(machine.offline),
        "isolated_cpulist": format_list(machine.isolated),
        "isolcpus": machine.isolcpus,
        "allowed_cpulist": text_or_none(machine.allowed_cpus),
        "allowed_mems": text_or_none(machine.allowed_mems),
        "cpuset_cpulist": text_or_none(machine.cpuset_cpus),
        "cpuset_mems": text_or_none(machine.cpuset_mems),
        "mempolicy_allowed": machine.policy_allowed,
        "mempolicy_reason": machine.policy_reason,
        "page_size": machine.page_size,
        "virtual_machine": machine.virtual_machine,
        "container": machine.container,
        "hints": hints.host_hints(with_cpus, len(machine.nodes)),
    }


def text_or_none(numbers):
    return None if numbers is None else format_list(numbers)


def warnings(machine, facts, unused_overrides, nvml_warning):
    """One warning a cause, with every device it hits."""
    devices = facts["gpus"] + facts["accelerators"]
    found = []
    if nvml_warning:
        found.append(nvml_warning)
    twice = numa.overlapping(machine.nodes)
    if twice:
        found.append("The nodes %s claim the same CPUs, a firmware fault: CPUs can't be told apart by node"
                     % format_list(twice))
    unknown = [one["pci"] for one in devices if one["node"] is None]
    if unknown:
        found.append("The node of %s is unknown (candidates: %s). Name it with overrides if you know it"
                     % (", ".join(unknown), format_list(facts["cpu_nodes"]) or "none"))
    wrong = [one for one in devices if one["ignored_node"] is not None]
    if wrong:
        found.append("The firmware puts %s on a node this host does not have" % ", ".join(
            "%s (node %d)" % (one["pci"], one["ignored_node"]) for one in wrong))
    barred = [one["pci"] for one in devices if one["cpulist"] and not one["usable_cpulist"]]
    if barred:
        found.append("This process may use none of the CPUs near %s (it may use %s)" % (
            ", ".join(barred), format_list(usable_cpus(machine, machine.online)) or "none"))
    locked = sorted({one["cpu_node"] for one in facts["gpus"] if one["cpu_node"] in facts["mem_nodes"]}
                    - usable_mems(machine))
    if locked:
        found.append("This process may not allocate on node %s, where GPUs are: binding memory there fails"
                     % format_list(locked))
    if machine.policy_allowed is False and devices:
        found.append("Memory can't be bound to nodes here: %s" % machine.policy_reason)
    if machine.isolcpus is not None:
        found.append("The kernel command line has isolcpus=%s: jobs without an affinity of their own share the CPUs "
                     "that are left" % machine.isolcpus)
    if unused_overrides:
        found.append("overrides names no device of this host: %s" % ", ".join(unused_overrides))
    return found
