# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's NVML door with the real pynvml: typed GPUs, one error for each code, bindings by where they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pynvml
import pytest

door = pytest.importorskip(
    "ansible_collections.ai_infra.gpu_host.plugins.module_utils._nvml", reason="the collection is not on the path")
errors = pytest.importorskip("ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors")
hosts = pytest.importorskip("ansible_collections.ai_infra.gpu_host.plugins.module_utils._host")


@pytest.fixture
def host(machine, monkeypatch):
    """A host whose NVML is the machine's; the binding this process had comes back."""
    before = sys.modules.get("pynvml")
    made = hosts.Host()
    yield made
    if made._nvml is not None:
        made._nvml.binding.nvmlShutdown()
    if before is not None:
        sys.modules["pynvml"] = before


def refused(call, *arguments):
    with pytest.raises(errors.NvmlError) as caught:
        call(*arguments)
    return caught.value


def test_gpus_have_all_three_names(host):
    gpus = host.nvml().gpus()
    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    assert [gpu.pci for gpu in gpus] == ["0000:1b:00.0", "0000:43:00.0", "0000:65:00.0", "10009:01:00.0"]
    assert all(gpu.uuid.startswith("GPU-") and gpu.name and gpu.error is None for gpu in gpus)
    assert host.nvml().driver_version() == "580.95.05" and host.nvml().cuda_version().count(".") == 1


@pytest.mark.root
def test_persistence_is_set_read_back_and_kept_by_name(host, machine):
    nvml = host.nvml()
    for gpu in nvml.gpus():
        assert nvml.persistence(gpu) is False
        nvml.set_persistence(gpu, True)
        assert nvml.persistence(gpu) is True
    for gpu in nvml.gpus():  # on the GPU with coherent memory the old handle is invalid after this
        nvml.set_persistence(gpu, False)
        assert nvml.persistence(gpu) is False
    assert [gpu["persistence"] for gpu in machine.shown["gpus"]] == [False] * 4


@pytest.mark.root
def test_a_planned_door_sets_nothing(host, machine):
    planned = host.planned().nvml()
    gpu = planned.gpus()[0]
    planned.set_persistence(gpu, True)
    assert planned.persistence(gpu) is True and host.nvml().persistence(gpu) is False
    assert not any(gpu["persistence"] for gpu in machine.shown["gpus"])
    assert [call for call in machine.log() if "Set" in str(call)] == []


def test_a_lost_gpu_hides_no_other(host, machine):
    machine.control("lose", "0")
    lost = [gpu for gpu in host.nvml().gpus() if gpu.error]
    assert len(lost) == 1 and lost[0].error.kind == "gpu_is_lost" and "Xid 79" in str(lost[0].error)
    others = [gpu for gpu in host.nvml().gpus() if not gpu.error]
    assert [host.nvml().persistence(gpu) for gpu in others] == [False] * 3


@pytest.mark.parametrize("code, kind", [(number, kind) for number, (kind, remedy) in door.KINDS.items() if number != 12])
def test_each_code_is_one_kind(host, machine, code, kind):
    nvml = host.nvml()
    machine.control("inject", "nvmlDeviceGetPersistenceMode", f"code={code}", "times=1")
    error = refused(nvml.persistence, nvml.gpus()[0])
    assert (error.kind, error.code) == (kind, code) and str(code) in str(error)


def test_a_code_nobody_knows_is_still_an_error_of_ours(host, machine):
    nvml = host.nvml()
    machine.control("inject", "nvmlDeviceGetPersistenceMode", "code=77", "times=1")
    assert refused(nvml.persistence, nvml.gpus()[0]).kind == "code_77"


def test_driver_and_library_of_different_versions(host, machine, tmp_path):
    machine.control("set", "library=580.105.08")
    error = refused(host.nvml)
    assert error.kind == "version_mismatch" and "Reboot" in str(error)


def test_no_driver(host, machine):
    machine.control("set", "loaded=off")
    error = refused(host.nvml)
    assert error.kind == "driver_not_loaded" and "modprobe nvidia" in str(error)


def test_confidential_computing_and_coherent_memory(host, machine):
    nvml = host.nvml()
    assert nvml.confidential_computing() is False
    machine.control("set", "confidential_computing=on")
    assert nvml.confidential_computing() is True
    assert [nvml.memory_node(gpu) for gpu in nvml.gpus()] == [None, None, None, 1]


def copy_of_binding(folder: Path, text: str | None = None) -> str:
    folder.mkdir(parents=True)
    (folder / "pynvml.py").write_text(Path(pynvml.__file__).read_text() if text is None else text)
    return str(folder)


def test_a_given_binding_comes_first_and_leaves_no_trace(host, tmp_path):
    host.pynvml_path = copy_of_binding(tmp_path / "given")
    assert host.nvml().source == "given" and host.nvml().binding.__file__.startswith(str(tmp_path))
    assert [path.name for path in (tmp_path / "given").iterdir()] == ["pynvml.py"]
    assert str(tmp_path / "given") not in sys.path


def test_an_old_binding_is_passed_over_and_named_when_there_is_no_other(host, tmp_path, monkeypatch):
    old = copy_of_binding(tmp_path / "old", "class NVMLError(Exception):\n    pass\n")
    host.pynvml_path = old
    assert host.nvml().source == "node"
    other = hosts.Host()
    monkeypatch.setattr(sys, "path", [old])
    error = refused(other.nvml)
    assert error.kind == "binding_too_old" and error.details["nvml_binding"] == {"state": "too_old"} and old in str(error)


def test_a_missing_binding_is_asked_for(machine, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    error = refused(hosts.Host().nvml)
    assert error.kind == "binding_missing" and error.details["nvml_binding"] == {"state": "missing"}
