# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing stays behind, whatever ends a lab: `down`, Ctrl-C at any moment, SIGKILL of the owner or of a supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

LAB = Path(__file__).resolve().parent.parent / "lab.py"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def command(state: Path, *argv: str) -> subprocess.Popen:
    environment = {**os.environ, "GPU_HOST_LAB": str(state)}
    return subprocess.Popen(
        [sys.executable, str(LAB), *argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def leaked(state: Path, before: dict, patience: float = 10) -> list[str]:
    """What differs; the kernel takes namespaces apart a moment after their last process."""
    from lab import leaks

    deadline = time.monotonic() + patience
    while (found := leaks.differences(before, leaks.outer_state(state))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@pytest.fixture
def before(state: Path) -> dict:
    from gpu_lab import root, simulator
    from lab import leaks

    root.build("debian12")
    simulator.layer()
    return leaks.outer_state(state)


def test_the_comparison_sees_a_running_host(state: Path, before: dict) -> None:
    """Or the tests below would prove nothing."""
    from lab import Lab

    with Lab(state) as lab:
        lab.up("no_gpu")
        seen = " ".join(leaked(state, before, patience=0))
        for part in ("network links", "network namespaces", "mount namespaces", "control groups", "processes"):
            assert f"{part}: new:" in seen
    assert leaked(state, before) == []


def test_down_leaves_nothing(state: Path, before: dict) -> None:
    up = command(state, "up", "vm", "no_gpu")
    assert up.wait(60) == 0, up.stdout.read()
    assert command(state, "reboot", "vm").wait(60) == 0
    assert command(state, "down", "--all").wait(60) == 0
    assert leaked(state, before) == []
    assert not state.exists()


@pytest.mark.parametrize("delay", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(state: Path, before: dict, delay: float, number: int) -> None:
    up = command(state, "up", "vm", "no_gpu", "gh200")
    time.sleep(delay)
    up.send_signal(number)
    interrupted = up.wait(60) != 0
    if not interrupted:
        assert command(state, "down", "--all").wait(60) == 0
    assert leaked(state, before) == []
    assert list(state.glob("*/host.json")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_build_leaves_no_half_root(
    state: Path, before: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    build = command(state, "root", "build", "debian12")
    roots = tmp_path / "cache/gpu_host/roots"
    deadline = time.monotonic() + 30
    # While packages are being installed.
    while not list(roots.glob(".*.building/usr/bin/dpkg")) and time.monotonic() < deadline:
        time.sleep(0.1)
    build.send_signal(number)
    build.wait(30)
    assert leaked(state, before) == []
    assert list(roots.glob("debian12-*")) == []


def test_hosts_end_with_the_program_that_made_them(state: Path, before: dict) -> None:
    program = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(LAB.parent)!r})
from lab import Lab
with Lab(Path({str(state)!r})) as lab:
    lab.up("no_gpu")
    print("up", flush=True)
    time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "up\n"
    owner.kill()
    owner.wait()
    assert leaked(state, before) == []


def test_a_killed_supervisor_takes_its_host_with_it(state: Path, before: dict) -> None:
    from lab import Lab

    lab = Lab(state)
    host = lab.up("no_gpu")
    os.kill(host.status["supervisor"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while host.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not host.alive
    lab.down_all()
    assert leaked(state, before) == []
