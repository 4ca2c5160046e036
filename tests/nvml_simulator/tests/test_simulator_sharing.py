# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One state, many processes: locks, deaths, and what the driver loses when nobody holds a GPU."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time

import pynvml
import pytest
from conftest import as_child, code_of


def start(work) -> int:
    """A fork of this process that ends only by itself or a signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_no_call_is_lost_between_processes(machine):
    calls, children = 300, 6

    def work():
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        for _call in range(calls):
            pynvml.nvmlDeviceGetName(gpu)
        pynvml.nvmlShutdown()
        os._exit(0)

    machine.control("inject", "nvmlDeviceGetName", "code=15", f"from={calls * children + 1}")
    started = [start(work) for _child in range(children)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in started] == [0] * children
    assert machine.control("count", "nvmlDeviceGetName") == f"{calls * children}\n"
    assert machine.shown["injections"][0]["calls"] == calls * children
    assert machine.shown["clients"] == []


@pytest.mark.root
def test_sigkill_at_any_moment_leaves_a_whole_state(machine):
    """The child sets both modes of a GPU over and over; it is killed within calls, while it holds the lock or not."""

    def work():
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(1)
        while True:
            for mode in (1, 0):
                pynvml.nvmlDeviceSetPersistenceMode(gpu, mode)

    for round_number in range(40):
        child = start(work)
        time.sleep(0.002 + 0.0007 * round_number)
        end(child)
        shown = machine.shown
        assert [gpu["board"] for gpu in shown["gpus"]] == ["A30", "H100-SXM5-80GB", "T4", "GH200-480GB"]
        assert shown["clients"] == []
    assert machine.shown["calls_logged"] > 40
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 4


def test_the_death_of_a_lock_holder_frees_the_lock(machine):
    ready, told = os.pipe()

    def work():
        with open(os.environ["NVML_SIMULATOR_STATE"], "r+b") as state:
            fcntl.flock(state, fcntl.LOCK_EX)
            os.write(told, b"x")
            time.sleep(60)

    child = start(work)
    try:
        os.read(ready, 1)
        waiting = subprocess.Popen([machine.binaries / "nvml-simctl", "show"], stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.communicate(timeout=0.2)
    finally:
        end(child)
        os.close(ready)
        os.close(told)
    assert waiting.communicate(timeout=5)[0].startswith(b"{")
    assert waiting.returncode == 0


@pytest.mark.root
def test_compute_mode_is_lost_with_the_last_client_unless_persistent(machine):
    def set_mode(persistence):
        def work():
            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(1)
            pynvml.nvmlDeviceSetPersistenceMode(gpu, persistence)
            pynvml.nvmlDeviceSetComputeMode(gpu, 3)
            return pynvml.nvmlDeviceGetComputeMode(gpu)

        return work

    assert as_child(set_mode(0)) == 3
    assert machine.shown["gpus"][1]["compute_mode"] == "default"
    assert as_child(set_mode(1)) == 3
    assert machine.shown["gpus"][1]["compute_mode"] == "exclusive_process"
    machine.control("set", "gpu", 1, "persistence=off")
    assert machine.shown["gpus"][1]["compute_mode"] == "default"


@pytest.mark.root
def test_a_job_holds_the_gpu_and_with_it_the_compute_mode(machine):
    job = start(lambda: time.sleep(60))
    try:
        machine.control("process", "add", 0, f"pid={job}", "follow=on")
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceSetComputeMode(gpu, 2)
        pynvml.nvmlShutdown()
        assert machine.shown["gpus"][0]["compute_mode"] == "prohibited"
    finally:
        end(job)
    shown = machine.shown["gpus"][0]
    assert (shown["processes"], shown["compute_mode"]) == ([], "default")


@pytest.mark.root
def test_persistence_off_makes_the_handles_of_coherent_memory_invalid(nvml):
    ordinary, coherent = nvml.nvmlDeviceGetHandleByIndex(1), nvml.nvmlDeviceGetHandleByIndex(3)
    for gpu in (ordinary, coherent):
        nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
        assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1
        nvml.nvmlDeviceSetPersistenceMode(gpu, 0)
    assert nvml.nvmlDeviceGetPersistenceMode(ordinary) == 0
    assert code_of(nvml.nvmlDeviceGetPersistenceMode, coherent) == 2
    assert nvml.nvmlDeviceGetPersistenceMode(nvml.nvmlDeviceGetHandleByIndex(3)) == 0


def test_a_machine_made_anew_is_seen_by_who_is_connected(nvml, machine):
    assert nvml.nvmlDeviceGetCount() == 4
    machine.create("gpu", "board=B200", "pci=0000:01:00.0")
    assert nvml.nvmlDeviceGetCount() == 1
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA B200"


def test_reboot_keeps_what_is_on_the_board(machine):
    machine.control("set", "gpu", 0, "mig=on", "persistence=on", "gpu", 1, "mig=on", "compute_mode=prohibited")
    machine.control("process", "add", 1, "pid=77")
    machine.control("lose", 2)
    before = [gpu["uuid"] for gpu in machine.shown["gpus"]]
    machine.control("reboot")
    shown = machine.shown["gpus"]
    assert [gpu["uuid"] for gpu in shown] == before
    assert [gpu["state"] for gpu in shown] == ["present"] * 4
    assert [gpu["persistence"] for gpu in shown] == [False] * 4
    # The A30 is an Ampere, the H100 is not.
    assert [gpu["mig"] and gpu["mig"]["current"] for gpu in shown] == [True, False, None, False]
    assert (shown[1]["compute_mode"], shown[1]["processes"]) == ("default", [])


def test_the_module_is_reloaded_when_nobody_holds_a_gpu(machine):
    machine.control("set", "library=580.105.08", *("gpu", 0, "mig=on", "gpu", 1, "mig=on", "persistence=on"))
    machine.control("process", "add", 1, "pid=77")
    assert "in use" in machine.control("unload", check=False)
    machine.control("process", "remove", 1, "pid=77")
    machine.control("unload")
    assert code_of(pynvml.nvmlInit) == 9
    machine.control("load")
    assert code_of(pynvml.nvmlInit) == 0
    assert pynvml.nvmlSystemGetDriverVersion() == "580.105.08"
    shown = machine.shown["gpus"]
    assert [gpu["mig"] and gpu["mig"]["current"] for gpu in shown] == [True, False, None, False]
    assert [gpu["persistence"] for gpu in shown] == [False] * 4


def test_a_boot_loads_the_module_if_there_is_one(machine):
    machine.control("unload")
    machine.control("reboot")
    assert code_of(pynvml.nvmlInit) == 0
    pynvml.nvmlShutdown()
    machine.control("set", "loaded=off")
    machine.control("reboot")
    assert code_of(pynvml.nvmlInit) == 9
    assert "no module" in machine.control("load", check=False)


def test_only_the_first_client_of_a_gpu_without_persistence_waits(machine):
    def seconds(index):
        started = time.monotonic()
        pynvml.nvmlDeviceGetHandleByIndex(index)
        return time.monotonic() - started

    machine.control("set", "init_ms=200", "gpu", 1, "persistence=on")
    pynvml.nvmlInit()
    assert seconds(0) >= 0.2
    assert max(seconds(0), seconds(1)) < 0.1
    assert as_child(lambda: seconds(0) >= 0.1) == 0
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert seconds(0) >= 0.2
