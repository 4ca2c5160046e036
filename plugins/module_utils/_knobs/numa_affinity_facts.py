# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where GPUs, NICs and disks are: nodes, CPUs, cores, and what to tell launchers and schedulers. Changes nothing."""

from __future__ import annotations

from typing import NamedTuple

from .. import _gpus, _nvml, _sysfs
from .._errors import BadInput, NvmlError
from .._host import Host
from .._topology import devices, expected, nodes as numa, pci, resolve
from .._topology.lists import format_list, parse_int

ARGUMENT_SPEC = {
    "sysfs_root": {"type": "path", "default": "/"},
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "scope": {"type": "str", "choices": ["node", "socket"], "default": "node"},
    "overrides": {"type": "dict", "default": {}},
    "expected": {"type": "dict", "default": {}},
    "nvml": {"type": "str", "choices": ["auto", "off"], "default": "auto"},
    "pynvml_path": {"type": "path"},
}


class NvmlGpu(NamedTuple):
    """What NVML adds to a GPU of the PCI bus."""

    index: int
    uuid: str
    name: str
    near_nodes: list
    memory_node: int


def run(host, params, check_mode):
    """Read the host, find out where each device is, and compare that with what was expected."""
    expectation = expected.wanted(params["expected"])
    overrides = wanted_overrides(params["overrides"])
    host = host_below(host, params["sysfs_root"])
    machine = read_machine(host)
    functions = _sysfs.functions(host, {node.id for node in machine.nodes})
    nvml, trouble = read_nvml(host, functions) if params["nvml"] == "auto" else ({}, NvmlTrouble())
    names = name_gpus(host, functions, nvml)

    by_pci, unused = match_overrides(overrides, functions, names, machine)
    located = [(function, locate(host, function, machine, by_pci, nvml)) for function in functions]
    facts = devices.topology(machine, located, names, params["scope"])
    rows = expected.mismatches(expectation, facts)
    facts["gpus"] = chosen_gpus(facts["gpus"], params["gpus"])
    warnings = devices.warnings(machine, facts, unused, trouble.warning)
    facts["warnings"] = warnings

    result = {"changed": False, "ansible_facts": {"gpu_host_topology": facts}, "warnings": warnings}
    if trouble.binding:
        result["nvml_binding"] = trouble.binding
    if rows:
        result.update(failed=True, msg=expected.message(rows), mismatches=rows)
    return result


def host_below(host, root):
    """The host itself, or a tree that was copied from one. Raises BadInput."""
    if root.rstrip("/") in ("", host.root):
        return host
    below = Host(root)
    if not below.is_dir("/"):
        raise BadInput("read the tree below", root, "there is no such directory",
                       "Give sysfs_root a directory that has sys and proc below it")
    return below


def wanted_overrides(given):
    """{device name: node}, checked. Raises BadInput."""
    checked = {}
    for key, value in given.items():
        ids = expected.node_ids(value, "overrides")
        if len(ids) != 1:
            raise BadInput("place the device", key, "overrides has %r as its node" % (value,), "Give one node")
        checked[expected.device_key(key, "overrides")] = ids[0]
    return checked


def read_machine(host):
    """CPUs, nodes, sockets, cores and what this process may use, as one record."""
    online = _sysfs.online_cpus(host)
    found, has_nodes = _sysfs.nodes(host, online)
    sockets = _sysfs.sockets(host, online)
    cpus, mems = _sysfs.allowed(host)
    cpuset_cpus, cpuset_mems = _sysfs.cpuset(host)
    policy, why_not = host.memory_policy()
    siblings = _sysfs.siblings(host, numa.core_groups(found, sockets, online))
    return devices.Machine(
        online=online,
        offline=_sysfs.cpu_list(host, "offline") or frozenset(),
        isolated=_sysfs.cpu_list(host, "isolated") or frozenset(),
        isolcpus=_sysfs.isolcpus(host),
        nodes=found,
        has_nodes=has_nodes,
        sockets=sockets,
        cores=numa.cores(siblings, sockets, found),
        l3_groups=_sysfs.l3_groups(host, online),
        allowed_cpus=cpus,
        allowed_mems=mems,
        cpuset_cpus=cpuset_cpus,
        cpuset_mems=cpuset_mems,
        policy_allowed=policy,
        policy_reason=why_not,
        page_size=None if host.root else host.page_size(),
        virtual_machine=_sysfs.virtual_machine(host),
        container=_sysfs.container(host),
    )


class NvmlTrouble(NamedTuple):
    """Why NVML is not part of the answer: a warning worth showing, or a binding the action plugin can bring."""

    warning: str = None
    binding: dict = None


def read_nvml(host, functions):
    """({PCI id: NvmlGpu}, NvmlTrouble). NVML comes second: without it only indices and a few names are missing."""
    if host.root or _nvml.kernel_driver_version(host) is None or not any(one.kind == "gpu" for one in functions):
        return {}, NvmlTrouble()
    try:
        door = host.nvml()
        answers = door.gpus()
    except NvmlError as err:
        return {}, NvmlTrouble(str(err), err.details.get("nvml_binding"))
    known = {function.pci: function for function in functions}
    found = {}
    for gpu in answers:
        if gpu.pci is not None:
            node = known[gpu.pci].numa_node if gpu.pci in known else None
            unplaced = gpu.error is None and (node is None or node < 0)
            found[gpu.pci] = NvmlGpu(gpu.index, gpu.uuid, gpu.name, near_nodes(door, gpu) if unplaced else [],
                                     door.memory_node(gpu) if gpu.error is None else None)
    lost = [gpu.label for gpu in answers if gpu.error is not None]
    return found, NvmlTrouble("NVML can not ask %s" % ", ".join(lost) if lost else None)


def near_nodes(door, gpu):
    try:
        return door.near_nodes(gpu)
    except NvmlError:
        return []


def name_gpus(host, functions, nvml):
    """{PCI id: devices.Name} of the GPUs, from NVML and the driver's files, each filling the other's gaps."""
    names = {}
    for function in functions:
        if function.kind == "gpu":
            information, status = _sysfs.driver_gpu(host, function.pci)
            said = nvml.get(function.pci, NvmlGpu(None, None, None, [], None))
            memory = pci.gpu_memory_node(status) if status else said.memory_node
            names[function.pci] = devices.Name(
                said.uuid or pci.driver_uuid(information), said.index, said.name or information.get("Model"),
                parse_int(information.get("Device Minor")), memory)
    return names


def match_overrides(overrides, functions, names, machine):
    """({PCI id: node}, names that are no device here). Raises BadInput for a node the host does not have."""
    known = {node.id for node in machine.nodes}
    found, unused = {}, []
    for key, node in sorted(overrides.items()):
        matching = [function.pci for function in functions if key == function.pci or function.pci in names
                    and key in (names[function.pci].uuid, str(names[function.pci].index))]
        if not matching:
            unused.append(key)
        elif node not in known:
            raise BadInput("place the device", key, "overrides says node %d, which this host does not have" % node,
                           "It has the nodes " + format_list(known))
        found.update((address, node) for address in matching)
    return found, unused


def locate(host, function, machine, overrides, nvml):
    """The Place of a function; the bridges above it are read only when it does not say itself."""
    known = {node.id for node in machine.nodes}
    parents = []
    if function.numa_node not in known and function.pci not in overrides and len(numa.cpu_nodes(machine.nodes)) > 1:
        parents = [pci.Function(address, "bridge", None, "", *_sysfs.locality(host, address, known))
                   for address in function.parents]
    said = nvml[function.pci].near_nodes if function.pci in nvml else None
    return resolve.resolve(function, machine.nodes, machine.online, overrides.get(function.pci), parents, said)


class Shown(NamedTuple):
    """A GPU fact as the GPU selection takes it."""

    uuid: str
    pci: str
    index: int
    fact: dict


def chosen_gpus(facts, wanted):
    """The facts of the GPUs the user named. Raises BadInput."""
    shown = [Shown(fact["uuid"], fact["pci"], fact["index"], fact) for fact in facts]
    return [one.fact for one in _gpus.select(shown, [expected.device_key(name, "gpus") if name != "all" else name
                                                     for name in wanted])]
