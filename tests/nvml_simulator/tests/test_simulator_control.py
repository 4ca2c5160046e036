# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvml-simctl and the stand-in for nvidia-smi."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import NOBODY, SOURCE


def test_descriptions_are_refused_with_the_word_that_is_wrong(machine):
    for words, wrong in (
        (["gpu", "board=H999"], "board=H999: bad value"),
        (["gpu", "board=A30", "pci=zz"], "pci=zz: bad value"),
        (["gpu", "board=A30", "cpus=5-2"], "cpus=5-2: bad value"),
        (["gpu", "board=A30", "color=green"], "color=green: a GPU has no such key"),
        (["speed=9"], "speed=9: a machine has no such key"),
        (["gpu", "pci=0000:01:00.0"], "a GPU without a board"),
        (["gpu", "board=A30", "gpu", "board=A30"], "two GPUs with one PCI address"),
    ):
        assert wrong in machine.control("create", *words, check=False)
    # The machine of before is as it was.
    assert len(machine.shown["gpus"]) == 4


def test_a_failed_set_changes_nothing(machine):
    assert "no such GPU" in machine.control("set", "gpu", 0, "persistence=on", "gpu", 9, "persistence=on", check=False)
    assert [gpu["persistence"] for gpu in machine.shown["gpus"]] == [False] * 4


def test_a_description_in_a_file(machine, tmp_path):
    description = tmp_path / "machine"
    description.write_text("driver=535.247.01\ngpu board=B200 pci=0000:1b:00.0\n  cpus=0-3\n", encoding="ascii")
    machine.create("-f", description)
    shown = machine.shown
    assert (shown["driver"], shown["cuda"]) == ("535.247.01", "12.2")
    assert [(gpu["name"], gpu["cpus"]) for gpu in shown["gpus"]] == [("NVIDIA B200", "0-3")]


def test_no_room_for_a_new_machine(machine):
    before = machine.shown
    made = Path(os.environ["NVML_SIMULATOR_STATE"])

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        [machine.binaries / "nvml-simctl", "create", "gpu", "board=A30"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        preexec_fn=small_files,
    )
    assert (done.returncode, "No space left on device" in done.stderr) == (1, True)
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    assert machine.shown == before


def test_every_board_can_be_made(machine):
    boards = [line.split()[0] for line in machine.control("boards").splitlines()]
    words = []
    for number, board in enumerate(boards, 1):
        words += ["gpu", f"board={board}", f"pci={number:x}:0.0"]
    machine.create(*words)
    shown = machine.shown["gpus"]
    assert [gpu["board"] for gpu in shown] == boards
    assert [gpu["board"] for gpu in shown if gpu["mig"] is None] == ["V100-SXM2-32GB", "T4"]


def test_no_machine(machine, monkeypatch):
    monkeypatch.setenv("NVML_SIMULATOR_STATE", "/nonexistent/state")
    assert "/nonexistent/state: No such file or directory" in machine.control("show", check=False)
    assert machine.smi("--gpu-reset", "-i", 0)[0] == 9


@pytest.mark.root
def test_reset(machine):
    machine.control("set", "gpu", 0, "mig_pending=on", "persistence=on", "gpu", 1, "persistence=on")
    code, output = machine.smi("--gpu-reset", "-i", machine.shown["gpus"][0]["uuid"])
    assert (code, output) == (0, "GPU 00000000:1B:00.0 was successfully reset.\nAll done.\n")
    shown = machine.shown["gpus"]
    assert shown[0]["mig"] == {"current": True, "pending": True}
    assert [gpu["persistence"] for gpu in shown] == [False, True, False, False]
    machine.control("process", "add", 1, "pid=5")
    assert machine.smi("--gpu-reset", "-i", 1)[0] == 255
    machine.control("lose", 2)
    code, output = machine.smi("-r", "-i", 2)
    assert (code, "GPU is lost" in output) == (255, True)
    assert machine.smi("--gpu-reset", "-i", 7)[0] == 6


@pytest.mark.root
def test_time_slice(machine):
    assert machine.smi("compute-policy", "-i", "1", "--set-timeslice=3")[0] == 0
    assert machine.smi("compute-policy", "-i", "1", "--list")[1] == "GPU 00000000:43:00.0\n    Time-slice: Long\n"
    assert [gpu["time_slice"] for gpu in machine.shown["gpus"]] == [0, 3, 0, 0]
    assert machine.smi("compute-policy", "--set-timeslice", "4")[0] == 2
    machine.control("reboot")
    assert [gpu["time_slice"] for gpu in machine.shown["gpus"]] == [0, 0, 0, 0]


@pytest.mark.root
def test_smi_needs_root(machine):
    for words in (["--gpu-reset", "-i", "0"], ["compute-policy", "--set-timeslice=1"]):
        done = subprocess.run(
            [machine.binaries / "nvidia-smi", *words],
            user=NOBODY,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert (done.returncode, "Insufficient Permissions" in done.stdout) == (4, True)


def test_smi_knows_nothing_else(machine):
    assert machine.smi("-q")[0] == machine.smi()[0] == machine.smi("compute-policy")[0] == 2


def test_behaviour_document_is_what_the_program_says(machine):
    document = (SOURCE / "BEHAVIOUR.md").read_text(encoding="utf-8")
    table = machine.control("behaviour")
    assert document.endswith(table)
    assumed = machine.control("assumptions").splitlines()[2:]
    assert assumed == [line for line in table.splitlines() if line.startswith("| assumed |")] != []
    rows = table.splitlines()[2:]
    assert {row.split("|")[1].strip() for row in rows} == {"source", "doc", "report", "assumed"}
    # Whoever says that it is known says from where.
    assert not [row for row in rows if re.match(r"\| (source|doc|report) \|.*\|  \|$", row)]


def test_installation(machine, tmp_path):
    subprocess.run(
        ["make", "-s", "-C", SOURCE, f"BUILD={machine.binaries}", "install", f"DESTDIR={tmp_path}"],
        check=True,
        timeout=120,
    )
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    (library,) = (path for path in files if path.endswith("libnvidia-ml.so.1"))
    assert library.startswith("usr/lib/")
    assert files - {library} == {"usr/bin/nvml-simctl", "usr/bin/nvidia-persistenced", "usr/bin/nvidia-smi"}
