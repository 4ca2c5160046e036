# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs, NUMA nodes and PCI functions as sysfs shows them, and the NVIDIA driver's directory in /proc."""

from __future__ import annotations

import struct

from ..board import Board, Function, gpu_uuid
from . import cpulist
from .files import File, Link, Node, line


def cpu_tree(board: Board) -> dict[str, Node]:
    """/sys/devices/system/cpu."""
    width = max(board.cpus) + 1
    every = cpulist.as_list(board.cpus)
    tree: dict[str, Node] = {
        "online": line(every),
        "possible": line(every),
        "present": line(every),
        "offline": File("\n"),
        "isolated": File("\n"),
        "kernel_max": line(8191),
    }
    threads = board.data.get("threads_per_core", 1)
    cores_per_l3 = board.data.get("cores_per_l3")
    for socket in sorted({node.socket for node in board.nodes if node.cpus}):
        nodes = [node for node in board.nodes if node.socket == socket and node.cpus]
        package = [cpu for node in nodes for cpu in node.cpus]
        core = 0
        for node in nodes:
            cores = len(node.cpus) // threads
            siblings = [node.cpus[first::cores] for first in range(cores)]
            per_l3 = cores_per_l3 or cores
            for place, own in enumerate(siblings):
                first = place // per_l3 * per_l3
                shared = [cpu for group in siblings[first : first + per_l3] for cpu in group]
                for cpu in own:
                    tree[f"cpu{cpu}"] = {
                        "topology": _topology(core, socket, own, package, width),
                        "cache": _caches(own, shared, width),
                        f"node{node.id}": Link(f"../../node/node{node.id}"),
                    }
                core += 1
    return tree


def _topology(core: int, socket: int, own: list[int], package: list[int], width: int) -> dict[str, Node]:
    tree: dict[str, Node] = {"core_id": line(core), "physical_package_id": line(socket), "die_id": line(0)}
    sets = {"thread_siblings": own, "core_cpus": own, "core_siblings": package, "package_cpus": package}
    for name, cpus in sets.items():
        tree[name] = line(cpulist.as_mask(cpus, width))
        tree[f"{name}_list"] = line(cpulist.as_list(cpus))
    return tree


def _caches(own: list[int], shared: list[int], width: int) -> dict[str, Node]:
    levels = ((1, "Data", own), (1, "Instruction", own), (2, "Unified", own), (3, "Unified", shared))
    return {
        f"index{index}": {
            "level": line(level),
            "type": line(kind),
            "shared_cpu_list": line(cpulist.as_list(cpus)),
            "shared_cpu_map": line(cpulist.as_mask(cpus, width)),
        }
        for index, (level, kind, cpus) in enumerate(levels)
    }


def node_tree(board: Board) -> dict[str, Node]:
    """/sys/devices/system/node."""
    width = max(board.cpus) + 1
    every = cpulist.as_list(node.id for node in board.nodes)
    with_memory = cpulist.as_list(node.id for node in board.nodes if node.memory_mb)
    tree: dict[str, Node] = {
        "online": line(every),
        "possible": line(every),
        "has_cpu": line(cpulist.as_list(node.id for node in board.nodes if node.cpus)),
        "has_memory": line(with_memory),
        "has_normal_memory": line(with_memory),
        "has_generic_initiator": File("\n"),
    }
    for node in board.nodes:
        total = node.memory_mb * 1024
        tree[f"node{node.id}"] = {
            "cpulist": line(cpulist.as_list(node.cpus)),
            "cpumap": line(cpulist.as_mask(node.cpus, width)),
            "distance": line(" ".join(str(board.distance(node, other)) for other in board.nodes)),
            "meminfo": File(
                f"Node {node.id} MemTotal:       {total:8d} kB\n"
                f"Node {node.id} MemFree:        {total - total // 50:8d} kB\n"
                f"Node {node.id} MemUsed:        {total // 50:8d} kB\n"
            ),
            **{f"cpu{cpu}": Link(f"../../cpu/cpu{cpu}") for cpu in node.cpus},
        }
    return tree


def pci_trees(board: Board) -> tuple[dict[str, Node], dict[str, Node], dict[str, Node]]:
    """Three directories: the roots below /sys/devices, /sys/bus/pci, and the classes the devices give rise to."""
    roots: dict[str, Node] = {}
    devices: dict[str, Node] = {}
    classes: dict[str, Node] = {}
    counters: dict[str, int] = {}
    for function in board.functions:
        directory = roots
        for part in function.path.split("/"):
            directory = directory.setdefault(part, {})
        directory.update(_function(board, function))
        devices[str(function.address)] = Link(f"../../../devices/{function.path}")
        for kind, prefix in (("infiniband", "mlx5_"), ("nvme", "nvme")):
            if function.model.kind == kind:
                name = f"{prefix}{counters.setdefault(kind, 0)}"
                counters[kind] += 1
                directory[kind] = {name: _class_device(kind, function)}
                classes.setdefault(kind, {})[name] = Link(f"../../devices/{function.path}/{kind}/{name}")
    return roots, {"devices": devices}, classes


def _class_device(kind: str, function: Function) -> dict[str, Node]:
    tree: dict[str, Node] = {"device": Link(f"../../../{function.address}")}
    if kind == "infiniband":
        fabric = "InfiniBand" if function.model.class_code == 0x020700 else "Ethernet"
        tree["node_type"] = line("1: CA")
        tree["ports"] = {
            "1": {"link_layer": line(fabric), "state": line("4: ACTIVE"), "rate": line("400 Gb/sec (4X NDR)")}
        }
    else:
        tree["model"] = line("SAMSUNG MZWLO3T8HCLS-00A07")
        tree["numa_node"] = line(function.node)
    return tree


def _function(board: Board, function: Function) -> dict[str, Node]:
    model = function.model
    local = next((node.cpus for node in board.nodes if node.id == function.node), board.cpus)
    return {
        "vendor": line(f"0x{model.vendor:04x}"),
        "device": line(f"0x{model.device:04x}"),
        "class": line(f"0x{model.class_code:06x}"),
        "subsystem_vendor": line(f"0x{model.subsystem[0]:04x}"),
        "subsystem_device": line(f"0x{model.subsystem[1]:04x}"),
        "revision": line("0xa1"),
        "irq": line(0),
        "enable": line(1),
        "numa_node": line(function.node),
        "local_cpulist": line(cpulist.as_list(local)),
        "local_cpus": line(cpulist.as_mask(local, max(board.cpus) + 1)),
        "resource": File("0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13),
        "config": File(_config(function), size=256),
        "modalias": line(
            f"pci:v{model.vendor:08X}d{model.device:08X}sv{model.subsystem[0]:08X}sd{model.subsystem[1]:08X}"
            f"bc{model.class_code >> 16:02X}sc{model.class_code >> 8 & 0xFF:02X}i{model.class_code & 0xFF:02X}"
        ),
    }


def _config(function: Function) -> bytes:
    """The first 64 bytes of configuration space, padded to 256."""
    model = function.model
    header = struct.pack("<HHHHB", model.vendor, model.device, 0x0406, 0, 0xA1) + model.class_code.to_bytes(3, "little")
    if function.behind:
        buses = bytes([function.address.bus, *function.behind])
        header = header.ljust(14, b"\0") + b"\x01"
        header = header.ljust(24, b"\0") + buses
    else:
        header = header.ljust(44, b"\0") + struct.pack("<HH", *model.subsystem)
    return header.ljust(256, b"\0")


def nvidia_tree(board: Board, host: str) -> dict[str, Node]:
    """/proc/driver/nvidia."""
    gpus: dict[str, Node] = {}
    for minor, gpu in enumerate(board.gpus):
        directory: dict[str, Node] = {
            "information": File(
                f"Model: \t\t {gpu.model.title}\n"
                f"IRQ:   \t\t 0\n"
                f"GPU UUID: \t {gpu_uuid(host, gpu.address)}\n"
                f"Video BIOS: \t ??.??.??.??.??\n"
                f"Bus Type: \t PCIe\n"
                f"DMA Size: \t 52 bits\n"
                f"DMA Mask: \t 0xfffffffffffff\n"
                f"Bus Location: \t {gpu.address}\n"
                f"Device Minor: \t {minor}\n"
                f"GPU Firmware: \t {board.driver}\n"
                f"GPU Excluded:\t No\n",
                size=0,
            ),
            "numa_status": File("Node:\t\t -1\nStatus:\t\t disabled\n", size=0),
        }
        if gpu.memory_node is not None:
            size = next(node.memory_mb for node in board.nodes if node.id == gpu.memory_node) << 20
            directory["numa_status"] = File(
                f"Node:\t\t {gpu.memory_node}\nStatus:\t\t online\n"
                f"Address:\t {(minor + 1) << 44:x}\nSize:\t\t {size:x}\n",
                size=0,
            )
        gpus[str(gpu.address)] = directory
    return {
        "version": File(
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {board.driver}  Release Build\n"
            f"GCC version:  gcc 12\n",
            size=0,
        ),
        "gpus": gpus,
        "params": File("ModifyDeviceFiles: 1\nDeviceFileMode: 438\n", size=0),
    }
