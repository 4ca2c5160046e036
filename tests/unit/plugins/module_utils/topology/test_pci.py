# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a PCI function is, and how near two are."""

from __future__ import annotations

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._gpus import normal_pci
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._topology import pci


@pytest.mark.parametrize("number, vendor, driver, kind", [
    (0x0300, 0x10DE, False, "gpu"), (0x0302, 0x10DE, False, "gpu"), (0x0300, None, True, "gpu"),
    (0x0300, None, False, None), (0x0300, 0x1A03, False, None), (0x0680, 0x10DE, False, None),
    (0x0403, 0x10DE, False, None),
    (0x0604, 0x10DE, True, None), (0x0380, 0x1002, False, "accelerator"), (0x0380, 0x10DE, False, None),
    (0x1200, 0x1DA3, False, "accelerator"), (0x0300, 0x1002, False, None), (0x0B40, 0x1BCF, False, "accelerator"),
    (0x0200, 0x15B3, False, "nic"), (0x0207, 0x15B3, False, "nic"), (0x0C06, 0x15B3, False, "nic"),
    (0x0108, 0x144D, False, "nvme"),
    (None, None, False, None),
])
def test_kind(number, vendor, driver, kind):
    assert pci.kind_of(number, vendor, driver) == kind
    assert kind is None or pci.is_interesting(number)


@pytest.mark.parametrize("one, other, expected", [
    ("pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:1a:00.0",
     ("switch", 2)),
    ("pci0000:15/0000:15:01.0/0000:18:00.0", "pci0000:15/0000:15:01.0/0000:1a:00.0", ("switch", 1)),
    ("pci0000:15/0000:15:01.0/0000:18:00.0", "pci0000:15/0000:15:03.0/0000:1a:00.0", ("host_bridge", 0)),
    ("pci0000:15/0000:15:01.0/0000:18:00.0", "pci0000:97/0000:97:01.0/0000:9a:00.0", (None, 0)),
    ("platform/a/pci0009:00/0009:00:00.0/0009:01:00.0", "platform/a/pci0008:00/0008:00:00.0/0008:01:00.0", (None, 0)),
    ("0000:18:00.0", "0000:1a:00.0", (None, 0)),
])
def test_connection(one, other, expected):
    assert {pci.connection(*pair) for pair in ((one, other), (other, one))} == {expected}


def test_parents_nearest_first():
    assert pci.parents("pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0") == ("0000:16:00.0", "0000:15:01.0")
    assert pci.parents("0000:18:00.0") == ()


@pytest.mark.parametrize("text, node", [
    ("Node: 255\nStatus: online\nAddress: 40000000000\nSize: 3f0000000\n", 255),
    ("Node:\t\t -1\nStatus:\t\t disabled\n", None),
    ("Node: 2\nStatus: offline\n", None), ("Node: 2\n", 2), ("", None), ("Node: N/A\n", None),
])
def test_gpu_memory_node(text, node):
    assert pci.gpu_memory_node(pci.driver_fields(text)) == node


def test_block_devices():
    assert pci.block_devices(["nvme0n1", "nvme0c3n2", "nvme10n12", "hwmon4", "ng0n1", "device"]) == [
        "nvme0n1", "nvme0n2", "nvme10n12"]


@pytest.mark.parametrize("text, normal", [
    ("00000000:17:00.0", "0000:17:00.0"), ("00000009:01:00.0", "0009:01:00.0"), ("0000:AF:00.0", "0000:af:00.0"),
    ("10000:00:04.0", "10000:00:04.0"), ("00010000:00:04.0", "10000:00:04.0"), ("17:00.0", "0000:17:00.0"),
    ("0035:05:00.0", "0035:05:00.0"), ("N/A", None), ("", None), ("0000:17:00", None), ("1080.0", None),
])
def test_bus_ids_of_nvml_and_sysfs_meet(text, normal):
    assert normal_pci(text) == normal
