# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator built once, a machine for each test, and the real pynvml loaded on top of it in this process."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pynvml = pytest.importorskip("pynvml")

SOURCE = Path(__file__).resolve().parent.parent
NOBODY = 65534


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "root: needs root")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def place():
    """A directory that other users can reach, as tests drop to them."""
    directory = Path(tempfile.mkdtemp(prefix="nvml-simulator-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def binaries(place: Path) -> Path:
    if shutil.which("make") is None or shutil.which("gcc") is None:
        pytest.skip("the simulator needs make and gcc")
    build = place / "build"
    done = subprocess.run(
        ["make", "-C", SOURCE, f"BUILD={build}"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # pynvml opens the library by its soname, which finds the one that is loaded already.
    ctypes.CDLL(str(build / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    return build


class Machine:
    def __init__(self, binaries: Path) -> None:
        self.binaries = binaries

    def control(self, *words: object, check: bool = True) -> str:
        done = subprocess.run(
            [self.binaries / "nvml-simctl", *map(str, words)], capture_output=True, text=True, check=False, timeout=20
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout if check else done.stderr

    def smi(self, *words: object) -> tuple[int, str]:
        done = subprocess.run(
            [self.binaries / "nvidia-smi", *map(str, words)], capture_output=True, text=True, check=False, timeout=20
        )
        return done.returncode, done.stdout

    def create(self, *words: object) -> None:
        self.control("create", *words)

    @property
    def shown(self) -> dict:
        return json.loads(self.control("show"))

    def log(self, *words: str) -> list[dict]:
        return [json.loads(line) for line in self.control("log", *words).splitlines()]


@pytest.fixture
def machine(binaries: Path, place: Path, monkeypatch: pytest.MonkeyPatch):
    """Four GPUs of as many generations, NVML not initialised."""
    state = place / "state" / "state"
    monkeypatch.setenv("NVML_SIMULATOR_STATE", str(state))
    made = Machine(binaries)
    made.create(
        "driver=580.95.05",
        *("gpu", "board=H100-SXM5-80GB", "pci=0000:43:00.0", "cpus=0-55,112-167", "nodes=0"),
        *("gpu", "board=A30", "pci=0000:1b:00.0", "cpus=56-111,168-223", "socket_cpus=0-223", "nodes=1"),
        *("gpu", "board=GH200-480GB", "pci=10009:01:00.0", "cpus=0-71", "nodes=0", "memory_node=1"),
        *("gpu", "board=T4", "pci=0000:65:00.0", "uuid=GPU-of-our-own"),
    )
    yield made
    # Whatever a test left initialised.
    while True:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            break
    shutil.rmtree(state.parent, ignore_errors=True)


@pytest.fixture
def nvml(machine: Machine):
    pynvml.nvmlInit()
    return pynvml


def code_of(function, *arguments) -> int:
    """The NVML return code of a call: 0 when it works."""
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return 0


def as_child(work) -> int:
    """What `work` returns, run in a fork of this process: 0 to 255."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        except BaseException as error:
            print(error, file=sys.stderr)
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
