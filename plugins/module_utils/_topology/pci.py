# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a PCI function is, and how near two of them are. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from .lists import parse_hex, parse_int

NVIDIA, AMD = 0x10DE, 0x1002
GPU_CLASSES = (0x0300, 0x0302)
NIC_CLASSES = (0x0200, 0x0207, 0x0C06)  # Ethernet, InfiniBand, and what InfiniBand was filed under before
NVME_CLASS = 0x0108
# Co-processors and processing accelerators of any vendor, and the display class AMD's boards carry.
ACCELERATOR_CLASSES = (0x0B40, 0x1200)
AMD_CLASSES = (0x0302, 0x0380)
HOST_BRIDGE = re.compile(r"^pci[0-9a-f]{4,}:[0-9a-f]{2}$")
ADDRESS = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


class Function(NamedTuple):
    """A PCI function we report. C(path) is its place below /sys/devices; None of a number is a missing file."""

    pci: str
    kind: str
    vendor: Optional[int]
    path: str
    numa_node: Optional[int]
    local_cpus: Optional[frozenset]
    parents: tuple = ()
    names: dict = {}


def base_class(text, config):
    """Class and subclass, from the class file or else the function's configuration bytes."""
    number = parse_hex(text)
    if number is not None:
        return number >> 8
    return (config[11] << 8 | config[10]) if len(config) > 11 else None


def vendor_id(text, config):
    """Vendor, from the vendor file or else the function's configuration bytes."""
    number = parse_hex(text)
    if number is not None:
        return number
    return (config[1] << 8 | config[0]) if len(config) > 1 else None


def is_interesting(kind):
    """Whether a class can be one of those we report: the rest needs no further look."""
    return kind in GPU_CLASSES + NIC_CLASSES + ACCELERATOR_CLASSES + AMD_CLASSES or kind == NVME_CLASS


def kind_of(number, vendor, has_nvidia_driver=False):
    """gpu, accelerator, nic or nvme; None for everything else.

    Trimmed trees have no vendor: there the NVIDIA driver's own directory of the function tells.
    """
    if vendor is None and has_nvidia_driver:
        vendor = NVIDIA
    if number in GPU_CLASSES and vendor == NVIDIA:
        return "gpu"
    if number in ACCELERATOR_CLASSES or number in AMD_CLASSES and vendor == AMD:
        return "accelerator"
    if number in NIC_CLASSES:
        return "nic"
    return "nvme" if number == NVME_CLASS else None


def parents(path):
    """PCI addresses of the bridges above a function, the nearest first."""
    return tuple(reversed([part for part in path.split("/")[:-1] if ADDRESS.match(part)]))


def connection(one, other):
    """(word, bridges shared) of two places below /sys/devices: switch, host_bridge or None."""
    shared = []
    for left, right in zip(one.split("/")[:-1], other.split("/")[:-1]):
        if left != right:
            break
        shared.append(left)
    bridges = [part for part in shared if ADDRESS.match(part)]
    if bridges:
        return "switch", len(bridges)
    return ("host_bridge", 0) if any(HOST_BRIDGE.match(part) for part in shared) else (None, 0)


def driver_fields(text):
    """The C(Key: value) lines of a file of the NVIDIA driver below /proc; tabs or blanks between, as they come."""
    found = {}
    for line in (text or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found[key.strip()] = value.strip()
    return found


def driver_uuid(fields):
    """The UUID in a GPU's information file; question marks stand there until the GPU was initialised once."""
    uuid = fields.get("GPU UUID", "")
    return uuid if uuid.startswith("GPU-") and "?" not in uuid else None


def gpu_memory_node(fields):
    """The node a GPU's memory is, from its numa_status file; None on boards whose memory is no node."""
    node = parse_int(fields.get("Node"))
    return node if node is not None and node >= 0 and fields.get("Status", "online") == "online" else None


def block_devices(controller_entries):
    """Block device names below an NVMe controller; with multipath nvme0c1n2 is the disk nvme0n2."""
    found = set()
    for name in controller_entries:
        match = re.match(r"^(nvme\d+)(?:c\d+)?(n\d+)$", name)
        if match:
            found.add(match.group(1) + match.group(2))
    return sorted(found)
