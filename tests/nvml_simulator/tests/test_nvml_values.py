# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as the real pynvml reads them."""

from __future__ import annotations

import ctypes
import os
import re

import pytest
from conftest import SOURCE, code_of


def cpus(words) -> set[int]:
    return {64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1}


@pytest.fixture
def gpus(nvml):
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def test_structures_are_as_large_as_the_binding_declares(nvml):
    """The header's own assertions hold for the C side; here they are held against the ctypes side."""
    sizes = dict(re.findall(r"_Static_assert\(sizeof\((\w+)\) == (\d+)", (SOURCE / "nvml_abi.h").read_text()))
    classes = {
        "nvmlPciInfo_t": nvml.nvmlPciInfo_t,
        "nvmlMemory_t": nvml.c_nvmlMemory_t,
        "nvmlMemory_v2_t": nvml.c_nvmlMemory_v2_t,
        "nvmlUtilization_t": nvml.c_nvmlUtilization_t,
        "nvmlProcessInfo_t": nvml.c_nvmlProcessInfo_v3_t,
        "nvmlConfComputeSystemState_t": nvml.c_nvmlConfComputeSystemState_t,
        "nvmlFieldValue_t": nvml.c_nvmlFieldValue_t,
    }
    assert {name: int(size) for name, size in sizes.items()} == {
        name: ctypes.sizeof(structure) for name, structure in classes.items()
    }
    assert nvml.nvmlMemory_v2 == ctypes.sizeof(nvml.c_nvmlMemory_v2_t) | 2 << 24


def test_versions(nvml):
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert nvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == nvml.nvmlSystemGetCudaDriverVersion() == 13000


def test_gpus_are_counted_in_the_order_of_their_addresses(nvml, gpus):
    assert [nvml.nvmlDeviceGetName(gpu) for gpu in gpus] == [
        "NVIDIA A30",
        "NVIDIA H100 80GB HBM3",
        "Tesla T4",
        "NVIDIA GH200 480GB",
    ]
    assert [nvml.nvmlDeviceGetIndex(gpu) for gpu in gpus] == [0, 1, 2, 3]
    assert [nvml.nvmlDeviceGetMinorNumber(gpu) for gpu in gpus] == [0, 1, 2, 3]


def test_pci_info(nvml, gpus):
    info = nvml.nvmlDeviceGetPciInfo(gpus[1])
    assert (info.busId, info.busIdLegacy) == ("00000000:43:00.0", "0000:43:00.0")
    assert (info.domain, info.bus, info.device) == (0, 0x43, 0)
    assert info.pciDeviceId == 0x233010DE
    # A domain that doesn't fit the old field.
    wide = nvml.nvmlDeviceGetPciInfo(gpus[3])
    assert (wide.busId, wide.domain) == ("00010009:01:00.0", 0x10009)


def test_one_gpu_by_each_of_its_names(nvml, gpus):
    assert nvml.nvmlDeviceGetUUID(gpus[2]) == "GPU-of-our-own"
    assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(b"GPU-of-our-own")) == 2
    for name in (b"0000:65:00.0", b"00000000:65:00.0", b"65:00.0", b"0:65:0.0"):
        assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(name)) == 2
    assert len({nvml.nvmlDeviceGetUUID(gpu) for gpu in gpus}) == 4
    assert len({nvml.nvmlDeviceGetSerial(gpu) for gpu in gpus}) == 4


def test_generations(nvml, gpus):
    assert [nvml.nvmlDeviceGetCudaComputeCapability(gpu) for gpu in gpus] == [(8, 0), (9, 0), (7, 5), (9, 0)]
    assert [nvml.nvmlDeviceGetArchitecture(gpu) for gpu in gpus] == [
        nvml.NVML_DEVICE_ARCH_AMPERE,
        nvml.NVML_DEVICE_ARCH_HOPPER,
        nvml.NVML_DEVICE_ARCH_TURING,
        nvml.NVML_DEVICE_ARCH_HOPPER,
    ]
    assert nvml.nvmlDeviceGetBrand(gpus[0]) == nvml.NVML_BRAND_NVIDIA
    assert nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpus[1]) == nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpus[1]) == 5
    assert nvml.nvmlDeviceGetMaxPcieLinkWidth(gpus[1]) == nvml.nvmlDeviceGetCurrPcieLinkWidth(gpus[1]) == 16


def test_memory_in_both_forms(nvml, gpus, machine):
    total = 24576 << 20
    machine.control("process", "add", 0, "pid=4242", "memory=1000")
    old, new = nvml.nvmlDeviceGetMemoryInfo(gpus[0]), nvml.nvmlDeviceGetMemoryInfo(gpus[0], nvml.nvmlMemory_v2)
    assert old.total == new.total == total == old.used + old.free == new.used + new.free + new.reserved
    assert new.used == 1000 << 20 == old.used - new.reserved
    assert code_of(nvml.nvmlDeviceGetMemoryInfo, gpus[0], 0x01000028) == 25


def test_affinity(nvml, gpus):
    first, second = set(range(0, 56)) | set(range(112, 168)), set(range(56, 112)) | set(range(168, 224))
    assert cpus(nvml.nvmlDeviceGetCpuAffinity(gpus[1], 16)) == first
    assert cpus(nvml.nvmlDeviceGetCpuAffinityWithinScope(gpus[0], 4, nvml.NVML_AFFINITY_SCOPE_NODE)) == second
    within_socket = nvml.nvmlDeviceGetCpuAffinityWithinScope(gpus[0], 4, nvml.NVML_AFFINITY_SCOPE_SOCKET)
    assert cpus(within_socket) == set(range(224))
    assert cpus(nvml.nvmlDeviceGetMemoryAffinity(gpus[0], 1, nvml.NVML_AFFINITY_SCOPE_NODE)) == {1}
    assert code_of(nvml.nvmlDeviceGetMemoryAffinity, gpus[2], 1, 0) == 3
    assert code_of(nvml.nvmlDeviceGetCpuAffinity, gpus[1], 1) == 7
    assert nvml.nvmlDeviceGetNumaNodeId(gpus[3]) == 1
    assert code_of(nvml.nvmlDeviceGetNumaNodeId, gpus[0]) == 3


def test_processes_of_each_kind(nvml, gpus, machine):
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpus[1]) == []
    machine.control("process", "add", 1, "pid=10", "memory=2048", "name=train.py")
    machine.control("process", "add", 1, "pid=11")
    machine.control("process", "add", 1, "pid=12", "kind=graphics")
    machine.control("process", "add", 1, "pid=13", "kind=mps")
    found = nvml.nvmlDeviceGetComputeRunningProcesses(gpus[1])
    assert [(one.pid, one.usedGpuMemory) for one in found] == [(10, 2048 << 20), (11, 1024 << 20)]
    assert found[0].gpuInstanceId == 0xFFFFFFFF
    assert [one.pid for one in nvml.nvmlDeviceGetGraphicsRunningProcesses(gpus[1])] == [12]
    assert [one.pid for one in nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpus[1])] == [13]
    assert nvml.nvmlSystemGetProcessName(10) == "train.py"
    machine.control("process", "remove", 1, "pid=10")
    assert [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(gpus[1])] == [11]
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpus[0]) == []


def test_fields_fail_one_by_one(nvml, gpus):
    for gpu, resetless in ((gpus[0], 0), (gpus[1], 1)):
        values = nvml.nvmlDeviceGetFieldValues(gpu, [184, 199, 7])
        assert [value.nvmlReturn for value in values] == [0, 0, 3]
        assert values[0].value.uiVal == resetless
        assert values[0].valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert [value.nvmlReturn for value in nvml.nvmlDeviceGetFieldValues(gpus[2], [184, 199])] == [3, 3]


def test_mig_mode_and_what_else_is_asked(nvml, gpus, machine):
    machine.control("set", "gpu", 0, "mig_pending=on", "ecc=off", "utilization=37", "clocks_event_reasons=0x4")
    assert nvml.nvmlDeviceGetMigMode(gpus[0]) == [0, 1]
    assert nvml.nvmlDeviceGetMigMode(gpus[1]) == [0, 0]
    assert code_of(nvml.nvmlDeviceGetMigMode, gpus[2]) == 3
    assert nvml.nvmlDeviceGetEccMode(gpus[0]) == [0, 0]
    assert nvml.nvmlDeviceGetEccMode(gpus[1]) == [1, 1]
    assert nvml.nvmlDeviceGetUtilizationRates(gpus[0]).gpu == 37
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpus[0]) == 4
    assert nvml.nvmlDeviceGetVirtualizationMode(gpus[0]) == 0


def test_confidential_computing(nvml, machine):
    assert nvml.nvmlSystemGetConfComputeState().ccFeature == 0
    machine.control("set", "confidential_computing=on")
    assert nvml.nvmlSystemGetConfComputeState().ccFeature == 1


@pytest.mark.root
def test_persistence_and_compute_mode_are_set(nvml, gpus, machine):
    nvml.nvmlDeviceSetPersistenceMode(gpus[1], 1)
    nvml.nvmlDeviceSetComputeMode(gpus[1], nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    assert [nvml.nvmlDeviceGetPersistenceMode(gpu) for gpu in gpus] == [0, 1, 0, 0]
    assert nvml.nvmlDeviceGetComputeMode(gpus[1]) == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    shown = machine.shown["gpus"][1]
    assert (shown["persistence"], shown["persistence_daemon"], shown["compute_mode"]) == (
        True,
        False,
        "exclusive_process",
    )


def test_clients_are_shown_with_what_they_hold(nvml, gpus, machine):
    assert machine.shown["clients"] == [{"pid": os.getpid(), "daemon": False, "gpus": "0-3"}]
    nvml.nvmlShutdown()
    assert machine.shown["clients"] == []
