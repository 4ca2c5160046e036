# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Board descriptions: small JSON files that say what a simulated machine is made of."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .kernel import cpulist

BOARDS = Path(__file__).resolve().parent.parent / "boards"
UNITS = ("upstream", "ubuntu", "rpm", "masked", "shadowed", "none")


class BoardError(Exception):
    pass


@dataclass(frozen=True)
class Model:
    """What a PCI function says of itself."""

    kind: str
    vendor: int
    device: int
    class_code: int
    subsystem: tuple[int, int] = (0, 0)
    title: str = ""


# Ids as in the public PCI id list; subsystem ids of NVIDIA boards from public reports.
MODELS = {
    "A100-SXM4-80GB": Model("gpu", 0x10DE, 0x20B2, 0x030200, (0x10DE, 0x1463), "NVIDIA A100-SXM4-80GB"),
    "A100-SXM4-40GB": Model("gpu", 0x10DE, 0x20B0, 0x030200, (0x10DE, 0x134F), "NVIDIA A100-SXM4-40GB"),
    "A30": Model("gpu", 0x10DE, 0x20B7, 0x030200, (0x10DE, 0x1532), "NVIDIA A30"),
    "H100-SXM5-80GB": Model("gpu", 0x10DE, 0x2330, 0x030200, (0x10DE, 0x16C1), "NVIDIA H100 80GB HBM3"),
    "H100-NVL": Model("gpu", 0x10DE, 0x2321, 0x030200, (0x10DE, 0x1839), "NVIDIA H100 NVL"),
    "H20": Model("gpu", 0x10DE, 0x2329, 0x030200, (0x10DE, 0x198B), "NVIDIA H20"),
    "H200-SXM5-141GB": Model("gpu", 0x10DE, 0x2335, 0x030200, (0x10DE, 0x18BE), "NVIDIA H200"),
    "GH200-480GB": Model("gpu", 0x10DE, 0x2342, 0x030200, (0x10DE, 0x16EB), "NVIDIA GH200 480GB"),
    "B200": Model("gpu", 0x10DE, 0x2901, 0x030200, (0x10DE, 0x1999), "NVIDIA B200"),
    "GB200": Model("gpu", 0x10DE, 0x2941, 0x030200, (0x10DE, 0x2046), "NVIDIA GB200"),
    "RTX-PRO-6000": Model(
        "gpu", 0x10DE, 0x2BB5, 0x030200, (0x10DE, 0x204E), "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    ),
    "NVSwitch2": Model("nvswitch", 0x10DE, 0x1AF1, 0x068000),
    "NVSwitch3": Model("nvswitch", 0x10DE, 0x22A3, 0x068000),
    "HDA": Model("audio", 0x10DE, 0x22E8, 0x040300),
    "ConnectX-6": Model("infiniband", 0x15B3, 0x101B, 0x020700),
    "ConnectX-7": Model("infiniband", 0x15B3, 0x1021, 0x020700),
    "ConnectX-7-Ethernet": Model("infiniband", 0x15B3, 0x1021, 0x020000),
    "BlueField-3": Model("infiniband", 0x15B3, 0xA2DC, 0x020000),
    "X710": Model("ethernet", 0x8086, 0x1572, 0x020000),
    "virtio-net": Model("ethernet", 0x1AF4, 0x1041, 0x020000),
    "PM1743": Model("nvme", 0x144D, 0xA825, 0x010802),
    "Intel-root-port": Model("bridge", 0x8086, 0x352A, 0x060400),
    "AMD-root-port": Model("bridge", 0x1022, 0x1483, 0x060400),
    "Grace-root-port": Model("bridge", 0x10DE, 0x22B1, 0x060400),
    "PEX-switch": Model("bridge", 0x1000, 0xC030, 0x060400),
}


@dataclass(frozen=True, order=True)
class Address:
    """A PCI address, printed as sysfs does: at least four digits of domain, lower case."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Address:
        domain, bus, rest = text.split(":")
        device, function = rest.split(".")
        return cls(int(domain, 16), int(bus, 16), int(device, 16), int(function, 16))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@dataclass
class Function:
    """One PCI function of the machine, with the bridges above it."""

    address: Address
    model: Model
    node: int
    parents: tuple[Address, ...] = ()
    # Bus numbers behind a bridge: first and last.
    behind: tuple[int, int] | None = None
    # The node that this GPU's own memory is, on machines where it is one.
    memory_node: int | None = None

    @property
    def path(self) -> str:
        """Where it lies below /sys/devices."""
        top = self.parents[0] if self.parents else self.address
        return "/".join([f"pci{top.domain:04x}:{top.bus:02x}", *map(str, self.parents), str(self.address)])


@dataclass
class Node:
    """A NUMA node: CPU-bearing, memory-only or empty."""

    id: int
    cpus: list[int] = field(default_factory=list)
    memory_mb: int = 0
    socket: int = 0
    # Set where the node is (part of) a GPU's memory: that GPU's place in the list of GPUs.
    gpu: int | None = None


@dataclass
class Board:
    name: str
    data: dict

    @classmethod
    def load(cls, name: str, changes: dict | None = None) -> Board:
        """A board of ours by its name, or any description by its path. `changes` replaces top-level keys."""
        data = _read(name)
        data.update(changes or {})
        board = cls(Path(name).stem, data)
        if board.unit not in UNITS:
            raise BoardError(f"board {board.name}: unit {board.unit!r} is not one of {', '.join(UNITS)}")
        return board

    @property
    def title(self) -> str:
        return self.data.get("title", self.name)

    @property
    def page_size(self) -> int:
        return self.data.get("page_size", 4096)

    @property
    def command_line(self) -> str:
        return self.data.get("command_line", "BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 ro")

    @property
    def thp(self) -> dict | None:
        """What the kernel was built with; None is a kernel without transparent huge pages."""
        return self.data.get("thp", {})

    @property
    def unit(self) -> str:
        """Which variant of nvidia-persistenced.service is installed."""
        return self.data.get("unit", "none")

    @property
    def files(self) -> dict[str, str | dict]:
        """Files present before the first boot: path -> text, or {content, mode}."""
        return self.data.get("files", {})

    @property
    def driver(self) -> str:
        return self.data.get("driver", "580.95.05")

    @cached_property
    def nodes(self) -> list[Node]:
        nodes = []
        for entry in self.data["nodes"]:
            for number in cpulist.parse(str(entry["id"])):
                nodes.append(
                    Node(
                        number,
                        cpulist.parse(entry.get("cpus", "")),
                        entry.get("memory_mb", 0),
                        entry.get("socket", 0),
                        entry.get("gpu"),
                    )
                )
        return sorted(nodes, key=lambda node: node.id)

    @cached_property
    def cpus(self) -> list[int]:
        return sorted(cpu for node in self.nodes for cpu in node.cpus)

    @property
    def memory_kb(self) -> int:
        return 1024 * sum(node.memory_mb for node in self.nodes)

    def distance(self, one: Node, other: Node) -> int:
        rules = {"near": 12, "far": 21, **self.data.get("distances", {})}
        if one.id == other.id:
            return 10
        near = one.socket == other.socket
        if one.gpu is None and other.gpu is None:
            return rules["near" if near else "far"]
        if one.gpu is None or other.gpu is None:
            return rules["gpu_near" if near else "gpu_far"]
        return rules["gpu_own" if one.gpu == other.gpu else "gpu_other"]

    @cached_property
    def functions(self) -> list[Function]:
        """All PCI functions, bridges included, in the order of their addresses."""
        functions: list[Function] = []
        for group in self.data.get("pci", []):
            functions.extend(_group(group, MODELS[self.data.get("root_port", "Intel-root-port")]))
        functions.sort(key=lambda function: function.address)
        own_nodes = {node.gpu: node.id for node in reversed(self.nodes) if node.gpu is not None}
        for index, gpu in enumerate(function for function in functions if function.model.kind == "gpu"):
            gpu.memory_node = own_nodes.get(index)
        return functions

    def of_kind(self, kind: str) -> list[Function]:
        return [function for function in self.functions if function.model.kind == kind]

    @property
    def gpus(self) -> list[Function]:
        return self.of_kind("gpu")

    def model_name(self, function: Function) -> str:
        return next(name for name, model in MODELS.items() if model is function.model)


def gpu_uuid(host: str, address: Address) -> str:
    """The same host has the same GPUs each time it is made."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{host}/{address}')}"


def names() -> list[str]:
    return sorted(path.stem for path in BOARDS.glob("*.json"))


def _read(name: str) -> dict:
    path = Path(name) if name.endswith(".json") else BOARDS / f"{name}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BoardError(
            f"no board {name!r}; there are {', '.join(names())}, or give the path of a .json file"
        ) from None
    except ValueError as error:
        raise BoardError(f"{path}: {error}") from error
    base = data.pop("extends", None)
    return {**_read(base), **data} if base else data


def _group(group: dict, root_port: Model) -> list[Function]:
    """Functions of one group: on the root bus itself, behind a root port, or behind a root port and a switch."""
    node = group.get("node", -1)
    devices = [(Address.parse(address), MODELS[model]) for address, model in group["devices"].items()]
    if "root" not in group:
        return [Function(address, model, node) for address, model in devices]
    root = Address.parse(group["root"])
    last = max(address.bus for address, _device in devices)
    if not group.get("switch"):
        bus = min(address.bus for address, _device in devices)
        port = Function(root, root_port, node, behind=(bus, last))
        return [port, *(Function(address, model, node, (root,)) for address, model in devices)]
    upstream = Address(root.domain, root.bus + 1, 0, 0)
    functions = [
        Function(root, root_port, node, behind=(root.bus + 1, last)),
        Function(upstream, MODELS["PEX-switch"], node, (root,), behind=(root.bus + 2, last)),
    ]
    for slot, bus in enumerate(sorted({address.bus for address, _device in devices})):
        downstream = Address(root.domain, root.bus + 2, slot, 0)
        above = (root, upstream, downstream)
        functions.append(Function(downstream, MODELS["PEX-switch"], node, above[:2], behind=(bus, bus)))
        functions.extend(Function(address, model, node, above) for address, model in devices if address.bus == bus)
    return functions
