# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which NVML refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest
from conftest import NOBODY, SOURCE, as_child, code_of


def test_without_a_machine_no_driver_is_loaded(machine):
    Path(os.environ["NVML_SIMULATOR_STATE"]).unlink()
    assert code_of(pynvml.nvmlInit) == 9


def test_without_the_kernel_module(machine):
    machine.control("set", "loaded=off")
    assert code_of(pynvml.nvmlInit) == 9


def test_foreign_state_is_no_crash(machine):
    Path(os.environ["NVML_SIMULATOR_STATE"]).write_text("something else", encoding="ascii")
    assert code_of(pynvml.nvmlInit) == 999
    assert "create it anew" in machine.control("show", check=False)


def test_library_and_kernel_module_of_different_versions_until_the_reboot(machine):
    machine.control("set", "library=580.105.08")
    assert code_of(pynvml.nvmlInit) == 18
    machine.control("reboot")
    assert code_of(pynvml.nvmlInit) == 0
    assert pynvml.nvmlSystemGetDriverVersion() == "580.105.08"


def test_before_init_and_after_shutdown(machine):
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetName(gpu) == "NVIDIA A30"
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetName, gpu) == 1
    assert code_of(pynvml.nvmlShutdown) == 1


@pytest.mark.parametrize(
    ("driver", "missing"),
    [
        ("580.95.05", set()),
        ("535.247.01", {"nvmlDeviceGetNumaNodeId"}),
        ("470.256.02", {"nvmlDeviceGetNumaNodeId", "nvmlSystemGetConfComputeState", "nvmlDeviceGetMemoryInfo_v2"}),
    ],
)
def test_an_older_driver_lacks_functions(machine, driver, missing):
    machine.control("set", f"driver={driver}")
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(3)
    calls = {
        "nvmlDeviceGetNumaNodeId": lambda: pynvml.nvmlDeviceGetNumaNodeId(gpu),
        "nvmlSystemGetConfComputeState": pynvml.nvmlSystemGetConfComputeState,
        "nvmlDeviceGetMemoryInfo_v2": lambda: pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2),
        "nvmlDeviceGetPersistenceMode": lambda: pynvml.nvmlDeviceGetPersistenceMode(gpu),
    }
    assert {name for name, call in calls.items() if code_of(call) == 13} == missing


def test_a_lost_gpu_hides_no_other(nvml, machine):
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(4)]
    machine.control("lose", 1)
    assert nvml.nvmlDeviceGetCount() == 4
    assert [code_of(nvml.nvmlDeviceGetPersistenceMode, gpu) for gpu in gpus] == [0, 15, 0, 0]
    assert [code_of(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(4)] == [0, 15, 0, 0]
    machine.control("restore", 1)
    assert nvml.nvmlDeviceGetName(gpus[1]) == "NVIDIA H100 80GB HBM3"


def test_an_absent_gpu_shifts_the_indices(nvml, machine):
    gone = nvml.nvmlDeviceGetHandleByIndex(1)
    machine.control("set", "gpu", "0000:43:00.0", "state=absent")
    assert nvml.nvmlDeviceGetCount() == 3
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(1)) == "Tesla T4"
    assert code_of(nvml.nvmlDeviceGetName, gone) == 15
    assert code_of(nvml.nvmlDeviceGetHandleByPciBusId, b"0000:43:00.0") == 6
    machine.control("restore", "0000:43:00.0")
    assert nvml.nvmlDeviceGetCount() == 4


def test_unknown_names_and_handles(nvml):
    assert code_of(nvml.nvmlDeviceGetHandleByIndex, 4) == 2
    assert code_of(nvml.nvmlDeviceGetHandleByUUID, b"GPU-none") == 6
    assert code_of(nvml.nvmlDeviceGetHandleByPciBusId, b"0000:99:00.0") == 6
    assert code_of(nvml.nvmlDeviceGetHandleByPciBusId, b"nonsense") == 2
    assert code_of(nvml.nvmlDeviceGetName, nvml.c_nvmlDevice_t()) == 2


@pytest.mark.parametrize("word", ["persistence_supported=off", "virtualization=vgpu"])
def test_persistence_where_there_is_none(nvml, machine, word):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    machine.control("set", "gpu", 0, word)
    assert code_of(nvml.nvmlDeviceGetPersistenceMode, gpu) == 3
    assert code_of(nvml.nvmlDeviceSetPersistenceMode, gpu, 1) == 3


@pytest.mark.root
def test_only_root_sets_modes(nvml, machine):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)

    def as_nobody(call, *arguments):
        def work():
            os.setuid(NOBODY)
            return code_of(call, gpu, *arguments)

        return as_child(work)

    assert as_nobody(nvml.nvmlDeviceSetPersistenceMode, 1) == 4
    assert as_nobody(nvml.nvmlDeviceSetComputeMode, 3) == 4
    assert as_nobody(nvml.nvmlDeviceGetPersistenceMode) == 0
    assert machine.shown["gpus"][0]["persistence"] is False


@pytest.mark.root
def test_bad_modes(nvml, machine):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert code_of(nvml.nvmlDeviceSetPersistenceMode, gpu, 2) == 2
    assert code_of(nvml.nvmlDeviceSetComputeMode, gpu, 4) == 2
    machine.control("set", "gpu", 0, "mig=on")
    assert code_of(nvml.nvmlDeviceSetComputeMode, gpu, 3) == 3


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 9, 13, 15, 16, 17, 18, 19, 28, 29, 999, 4321])
def test_any_code_from_any_call(nvml, machine, code):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    machine.control("inject", "nvmlDeviceGetName", f"code={code}")
    assert code_of(nvml.nvmlDeviceGetName, gpu) == code
    assert nvml.nvmlErrorString(code)
    machine.control("inject", "clear")
    assert nvml.nvmlDeviceGetName(gpu) == "NVIDIA A30"


def test_injection_once_always_and_from_the_nth_call(nvml, machine):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)

    def codes(count):
        return [code_of(nvml.nvmlDeviceGetName, gpu) for _turn in range(count)]

    machine.control("inject", "nvmlDeviceGetName", "code=15", "times=1")
    assert codes(3) == [15, 0, 0]
    machine.control("inject", "clear")
    machine.control("inject", "nvmlDeviceGetName", "code=15", "from=3")
    assert codes(5) == [0, 0, 15, 15, 15]
    machine.control("inject", "clear")
    machine.control("inject", "nvmlDeviceGetName", "code=15", "from=2", "times=2")
    assert codes(5) == [0, 15, 15, 0, 0]
    assert machine.shown["injections"] == [
        dict(call="nvmlDeviceGetName", code=15, gpu=None, delay_ms=0, times=2, calls=5, hits=2, **{"from": 2})
    ]


def test_injection_on_one_gpu_every_call_and_any_version(nvml, machine):
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(4)]
    machine.control("inject", "nvmlDeviceGetPciInfo", "code=999", "gpu=0000:43:00.0")
    assert [code_of(nvml.nvmlDeviceGetPciInfo, gpu) for gpu in gpus] == [0, 999, 0, 0]
    machine.control("inject", "clear")
    machine.control("inject", "nvmlDeviceGetHandleByIndex", "code=16", "gpu=2")
    assert [code_of(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(4)] == [0, 0, 16, 0]
    machine.control("inject", "clear")
    # A name that is only the beginning of another is not that other.
    machine.control("inject", "nvmlDeviceGetCpuAffinity", "code=4")
    assert code_of(nvml.nvmlDeviceGetCpuAffinityWithinScope, gpus[0], 16, 0) == 0
    machine.control("inject", "*", "code=17")
    assert code_of(nvml.nvmlDeviceGetCount) == code_of(nvml.nvmlDeviceGetName, gpus[0]) == 17


def test_a_late_answer_delays_no_other_client(nvml, machine):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    machine.control("inject", "nvmlDeviceGetName", "delay_ms=400", "times=1")
    machine.control("inject", "nvmlDeviceGetName", "code=10", "from=2", "times=1")
    child = os.fork()
    if child == 0:
        os._exit(code_of(nvml.nvmlDeviceGetName, gpu))
    deadline = time.monotonic() + 5
    while machine.shown["injections"][0]["hits"] == 0:
        assert time.monotonic() < deadline
    started = time.monotonic()
    assert code_of(nvml.nvmlDeviceGetName, gpu) == 10
    assert nvml.nvmlDeviceGetName(gpu) == "NVIDIA A30"
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the late answer came before the others'"
    assert time.monotonic() - started < 0.3
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_injection_into_init(machine):
    machine.control("inject", "nvmlInit", "code=999", "times=1")
    assert code_of(pynvml.nvmlInit) == 999
    assert code_of(pynvml.nvmlInit) == 0


def test_every_call_is_logged(nvml, machine):
    machine.control("log", "clear")
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    nvml.nvmlDeviceGetPersistenceMode(gpu)
    code_of(nvml.nvmlDeviceGetHandleByIndex, 9)
    assert [(line["call"], line["gpu"], line["code"], line["pid"]) for line in machine.log()] == [
        ("nvmlDeviceGetHandleByIndex_v2", 1, 0, os.getpid()),
        ("nvmlDeviceGetPersistenceMode", 1, 0, os.getpid()),
        ("nvmlDeviceGetHandleByIndex_v2", None, 2, os.getpid()),
    ]
    assert machine.control("count", "nvmlDeviceGetPersistenceMode") == "1\n"
    assert machine.control("count") == "3\n"
    assert machine.control("count", "nvmlDeviceGetHandleByIndex") == "2\n"


def test_a_log_that_forgot_calls_is_no_answer(nvml, machine):
    for _turn in range(8193):
        nvml.nvmlSystemGetDriverVersion()
    assert "forgotten" in machine.control("count", "nvmlSystemGetDriverVersion", check=False)
    assert "forgotten" in machine.control("log", check=False)
    machine.control("log", "clear")
    nvml.nvmlSystemGetDriverVersion()
    assert machine.control("count", "nvmlSystemGetDriverVersion") == "1\n"


def test_the_library_of_an_older_release_has_no_such_symbols(machine, place):
    """As above, but found by the loader: pynvml looks the symbol up and there is none."""
    old = place / "build/libnvidia-ml-470.so"
    subprocess.run(["make", "-s", "-C", SOURCE, f"BUILD={place / 'build'}", old], check=True, timeout=120)
    machine.control("set", "driver=470.256.02")
    machine.control("log", "clear")
    script = (
        "import ctypes, pynvml\n"
        f"ctypes.CDLL({str(old)!r}, mode=ctypes.RTLD_GLOBAL)\n"
        "pynvml.nvmlInit()\n"
        "gpu = pynvml.nvmlDeviceGetHandleByIndex(3)\n"
        "print(pynvml.nvmlDeviceGetPersistenceMode(gpu))\n"
        "for call, *of in (pynvml.nvmlDeviceGetNumaNodeId, gpu), (pynvml.nvmlSystemGetConfComputeState,):\n"
        "    try:\n"
        "        call(*of)\n"
        "    except pynvml.NVMLError_FunctionNotFound:\n"
        "        print('missing')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.split() == ["0", "missing", "missing"]
    assert [line["call"] for line in machine.log() if line["code"]] == []
