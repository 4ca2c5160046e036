# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML simulator as an overlay layer below each host with GPUs, and the commands that make a host's GPU state."""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import built
from .board import Board, Function, Node, gpu_uuid
from .kernel import cpulist
from .paths import REPOSITORY

SOURCE = REPOSITORY / "tests/nvml_simulator"
CONTROL = "/usr/bin/nvml-simctl"


def layer() -> Path:
    """The installed simulator."""
    left_out = {"build", "tests", "__pycache__", ".pytest_cache"}
    sources = [
        path for path in SOURCE.rglob("*") if path.is_file() and not left_out & set(path.relative_to(SOURCE).parts)
    ]
    return built.layer("simulator", sources, _build)


def _build(target: Path) -> None:
    # Objects go elsewhere than those of somebody who works on the simulator in the same checkout.
    with tempfile.TemporaryDirectory() as objects:
        built.run("make", "-C", SOURCE, "install", f"DESTDIR={target}", f"BUILD={objects}")


def commands(board: Board, host: str) -> dict[str, list[list[str]]]:
    """What runs on the host's files before pid 1: at the first boot, and at each later one."""
    create = [CONTROL, "create", f"driver={board.driver}"]
    for gpu in board.gpus:
        create += ["gpu", *_words(board, host, gpu)]
    # As the driver's package does after installing its libraries.
    return {"create": [["/sbin/ldconfig"], create], "reboot": [[CONTROL, "reboot"]]}


def _words(board: Board, host: str, gpu: Function) -> list[str]:
    near = [node for node in board.nodes if node.id == gpu.node]
    # A driver that knows no node of the GPU answers with all CPUs and all nodes.
    cpu_nodes = near or [node for node in board.nodes if node.cpus]
    sockets = {node.socket for node in cpu_nodes}
    socket_nodes = [node for node in board.nodes if node.socket in sockets and node.cpus]
    # Seen on GB200: the empty nodes beside the CPU's own count as near, the GPUs' memory doesn't.
    empty = [node for node in board.nodes if node.socket in sockets and not node.cpus and not node.memory_mb]
    reported = empty if board.data.get("empty_nodes_are_near") else []
    words = {
        "board": board.model_name(gpu),
        "pci": str(gpu.address),
        "uuid": gpu_uuid(host, gpu.address),
        "cpus": _cpus(cpu_nodes),
        "socket_cpus": _cpus(socket_nodes),
        "nodes": _ids([*cpu_nodes, *reported]),
        "socket_nodes": _ids([*socket_nodes, *reported]),
        "memory_node": "none" if gpu.memory_node is None else str(gpu.memory_node),
        "virtualization": board.data.get("virtualization", "none"),
    }
    return [f"{key}={value}" for key, value in words.items()]


def _cpus(nodes: list[Node]) -> str:
    return cpulist.as_list(cpu for node in nodes for cpu in node.cpus)


def _ids(nodes: list[Node]) -> str:
    return cpulist.as_list(node.id for node in nodes)
