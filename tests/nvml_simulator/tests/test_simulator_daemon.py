# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for nvidia-persistenced, in namespaces of its own so that /run of this machine stays as it is."""

from __future__ import annotations

import os
import subprocess
import time

import pynvml
import pytest
from conftest import code_of

pytestmark = pytest.mark.root
RUN_DIR = "/run/nvidia-persistenced"


class Box:
    """A mount and pid namespace with an empty /run; everything in it ends with its first process."""

    def __init__(self, binaries):
        self.binaries = binaries
        script = "mount -t tmpfs none /run && echo ready && exec sleep 300"
        self.outer = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.outer.stdout.readline() != "ready\n":
            self.close()
            pytest.skip("no mount and pid namespaces here")
        with open(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children", encoding="ascii") as children:
            self.init = int(children.read().split()[0])

    def run(self, *argv):
        return subprocess.run(
            ["nsenter", "--mount", "--pid", f"--target={self.init}", *map(str, argv)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )

    def daemon(self, *options):
        return self.run(self.binaries / "nvidia-persistenced", *options)

    def read(self, path):
        return self.run("cat", path).stdout

    def pid(self):
        return int(self.read(f"{RUN_DIR}/nvidia-persistenced.pid"))

    def files(self):
        return self.run("ls", RUN_DIR).stdout.split()

    def end_daemon(self, signal="TERM"):
        pid = self.pid()
        self.run("kill", f"-{signal}", pid)
        deadline = time.monotonic() + 5
        while self.run("kill", "-0", pid).returncode == 0 and "State:\tZ" not in self.read(f"/proc/{pid}/status"):
            assert time.monotonic() < deadline, "the daemon did not end"
            time.sleep(0.01)

    def close(self):
        self.outer.kill()
        self.outer.wait(10)
        self.outer.stdout.close()


@pytest.fixture
def box(binaries):
    made = Box(binaries)
    yield made
    made.close()


def modes(machine, key="persistence"):
    return [gpu[key] for gpu in machine.shown["gpus"]]


def test_start_sets_every_gpu_before_it_returns_and_stop_clears_them(machine, box):
    assert box.daemon("--verbose").returncode == 0
    assert modes(machine) == modes(machine, "persistence_daemon") == [True] * 4
    assert modes(machine, "persistence_legacy") == modes(machine, "uvm_persistence") == [False] * 4
    assert sorted(box.files()) == ["nvidia-persistenced.pid", "socket"]
    box.end_daemon()
    assert modes(machine) == [False] * 4
    assert box.files() == []


def test_the_flags(machine, box):
    assert box.daemon("--no-persistence-mode").returncode == 0
    assert modes(machine) == [False] * 4
    box.end_daemon()
    assert box.daemon("--no-persistence-mode", "--persistence-mode", "--uvm-persistence-mode").returncode == 0
    assert modes(machine) == modes(machine, "uvm_persistence") == [True] * 4
    box.end_daemon()
    assert box.daemon("--version").stdout == "nvidia-persistenced:  version 580.95.05\n"
    assert "--no-uvm-persistence-mode" in box.daemon("--help").stdout
    assert box.daemon("--nonsense").returncode == 1
    assert box.files() == []


def test_the_start_takes_as_long_as_the_gpus_take(machine, box):
    machine.control("set", "init_ms=100")
    started = time.monotonic()
    assert box.daemon().returncode == 0
    assert time.monotonic() - started >= 0.4


def test_a_second_daemon_fails_and_harms_nothing(machine, box):
    assert box.daemon().returncode == 0
    second = box.daemon()
    assert second.returncode == 1
    assert "lock PID file" in second.stderr
    assert modes(machine) == [True] * 4


def test_privileges_are_dropped_and_the_state_is_still_written(machine, box):
    assert box.daemon("--user", "nobody").returncode == 0
    uids = [line.split()[1:] for line in box.read(f"/proc/{box.pid()}/status").splitlines() if line.startswith("Uid:")]
    assert set(uids[0]) == {"65534"}
    assert modes(machine) == [True] * 4
    box.end_daemon()
    assert modes(machine) == [False] * 4


def test_an_unknown_user_or_group(machine, box):
    for option in ("--user", "--group"):
        done = box.daemon(f"{option}=nobody-of-that-name")
        assert done.returncode == 1
        assert "nobody-of-that-name" in done.stderr
    assert box.files() == []


def test_what_fails_on_one_gpu_is_ignored(machine, box):
    machine.control("lose", 0)
    machine.control("set", "gpu", 1, "persistence_supported=off")
    machine.control("inject", "persistenced", "code=999", "gpu=2")
    assert box.daemon().returncode == 0
    assert modes(machine) == [False, False, False, True]


@pytest.mark.parametrize(
    "words",
    [
        ["loaded=off"],
        ["library=580.105.08"],
        [word for gpu in ("0000:43:00.0", "0000:1b:00.0", "0000:65:00.0", "10009:01:00.0")
         for word in ("gpu", gpu, "state=absent")],
    ],
)
def test_without_a_usable_gpu_the_start_fails(machine, box, words):
    machine.control("set", *words)
    done = box.daemon()
    assert done.returncode == 1
    assert "Failed to query NVIDIA devices" in done.stderr
    assert box.files() == []


def test_daemon_and_legacy_flag_are_two(nvml, machine, box):
    assert box.daemon().returncode == 0
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetPersistenceMode(gpu, 0)
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1
    nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
    box.end_daemon()
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1
    assert modes(machine) == [True, False, False, False]


def test_a_killed_daemon_takes_its_persistence_with_it(machine, box):
    assert box.daemon().returncode == 0
    box.end_daemon("KILL")
    assert modes(machine) == [False] * 4
    assert box.daemon().returncode == 0
    assert modes(machine) == [True] * 4


def test_the_end_of_the_daemon_makes_handles_of_coherent_memory_invalid(nvml, box):
    assert box.daemon().returncode == 0
    ordinary, coherent = nvml.nvmlDeviceGetHandleByIndex(1), nvml.nvmlDeviceGetHandleByIndex(3)
    box.end_daemon()
    assert code_of(nvml.nvmlDeviceGetName, ordinary) == 0
    assert code_of(pynvml.nvmlDeviceGetName, coherent) == 2


def test_a_reset_is_blocked_by_clients_but_not_by_the_daemon(machine, box):
    assert box.daemon().returncode == 0
    pynvml.nvmlInit()
    pynvml.nvmlDeviceGetHandleByIndex(1)
    code, output = machine.smi("--gpu-reset", "-i", 1)
    assert (code, "In use by another client" in output) == (255, True)
    assert machine.smi("--gpu-reset", "-i", 0)[0] == 0
    pynvml.nvmlShutdown()
    assert machine.smi("--gpu-reset", "-i", 1)[0] == 0
    assert modes(machine) == [True] * 4
    assert os.listdir("/run").count("nvidia-persistenced") == 0
