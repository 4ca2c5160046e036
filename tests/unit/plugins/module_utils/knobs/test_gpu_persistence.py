# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_persistence from reading to read-back, on machines in memory. PER-n are cases users reported."""

from __future__ import annotations

import copy
import errno

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _journal
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import validate
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import (
    BadInput, Conflict, HostError, NvmlError, Unsupported,
)
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import gpu_persistence as knob
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._persistence import DROP_IN, OWN_FILE, OWN_UNIT, PROGRAM, UNIT
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_gpus import (
    DAEMON, FakeNvml, IN_ETC, UBUNTU, UPSTREAM, failure, machine,
)


def run(host, check_mode=False, **params):
    return knob.run(host, validate("gpu_persistence", knob, params), check_mode)


def actions(result):
    return [step["action"] for step in result["steps"]]


FORMS = {
    "upstream": {}, "upstream, enabled": {"enabled": True}, "upstream, runs": {"enabled": True, "active": True},
    "ubuntu": {"text": UBUNTU}, "ubuntu, runs": {"text": UBUNTU, "active": True}, "masked": {"masked": True},
    "no unit": {"text": None}, "no daemon": {"text": None, "binary": False}, "no gpu": {"gpus": False},
    "shadowed": {"enabled": True, "active": True, "files": {IN_ETC: UPSTREAM.replace("--user", "--no-persistence-mode --user")}},
}
ASKED = {
    "on": {}, "off": {"mode": "off"}, "restart": {"allow_restart": True}, "uvm": {"uvm": True}, "unmask": {"unmask": True},
    "now": {"apply": "now"}, "boot": {"apply": "boot"}, "nvml": {"method": "nvml"}, "one": {"gpus": ["GPU-1"]},
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("form", FORMS)
def test_predicted_applied_quiet_and_put_back(form, asked):
    """Check mode tells the steps and the state of the real run and touches nothing; a second run has nothing to do."""
    host, params = machine(**copy.deepcopy(FORMS[form])), dict(ASKED[asked], unsupported="skip")
    if asked == "uvm" and form in ("masked", "no daemon"):
        with pytest.raises(Unsupported):
            run(host, uvm=True)
        skipped = run(host, **params)
        assert not skipped["supported"] and "daemon" in skipped["reason"] and host.writes == [] and host.acted == []
        return
    files, links, modes = dict(host.files), dict(host.links), host.fake_nvml.modes
    predicted = run(host, check_mode=True, **params)
    assert (host.files, host.links, host.fake_nvml.modes, host.acted, host.writes) == (files, links, modes, [], [])
    real = run(host, **params)
    for word in ("steps", "after", "gpus", "unit", "survives_reboot", "restart_required", "reload_pending", "supported"):
        assert predicted[word] == real[word], word
    assert not real.get("failed")
    again = run(host, **params)
    assert (again["changed"], again["steps"], again["before"]) == (False, [], real["after"])
    for word in ("gpus", "unit", "survives_reboot", "restart_required", "reload_pending"):
        without = [dict(row, before=None) for row in real[word]] if word == "gpus" else real[word]
        assert ([dict(row, before=None) for row in again[word]] if word == "gpus" else again[word]) == without, word
    predicted = run(host, check_mode=True, state="absent")
    gone = run(host, state="absent")
    assert predicted["steps"] == gone["steps"]
    left = {path for path in set(host.files) | set(files) if host.files.get(path) != files.get(path)}
    assert {path for path in left if not path.startswith("/proc/")} == set() and host.links == links
    assert host.fake_nvml.modes == modes
    assert run(host, state="absent")["steps"] == []


@pytest.mark.parametrize("form", [form for form in FORMS if form != "no gpu"])
def test_on_is_read_back_from_each_gpu_and_survives(form):
    host = machine(**copy.deepcopy(FORMS[form]))
    result = run(host)
    assert host.fake_nvml.modes == [True, True] and [gpu["after"] for gpu in result["gpus"]] == ["on", "on"]
    assert result["survives_reboot"] is True and result["survives_reason"]


def test_static_unit_that_keeps_it_off():
    """PER-2: enabled and active proves nothing; NVML now, a drop-in for boot, the restart only reported."""
    host = machine(text=UBUNTU, active=True)
    result = run(host)
    assert actions(result) == ["write_file", "enable_unit", "daemon_reload", "set_persistence", "set_persistence"]
    assert result["restart_required"] == [UNIT] and result["unit"]["variant"] == "static"
    assert host.fake_nvml.by_daemon == [False, False] and host.fake_nvml.legacy == [True, True]
    assert result["unit"]["exec_start"] == DAEMON + " --user nvidia-persistenced --verbose --persistence-mode"
    assert "StopWhenUnneeded=no" in host.files[DROP_IN] and "WantedBy=" in host.files[DROP_IN]


def test_allowed_restart_lets_the_daemon_do_it():
    host = machine(text=UBUNTU, active=True)
    result = run(host, allow_restart=True)
    assert actions(result)[-1] == "restart_unit" and result["restart_required"] == []
    assert host.fake_nvml.by_daemon == [True, True] and host.fake_nvml.legacy == [False, False]


def test_masked_unit():
    """PER-1: a clear error where the daemon was asked for, NVML otherwise, and the mask only lifted when asked."""
    with pytest.raises(HostError, match="masked.*unmask: true"):
        run(machine(masked=True), method="daemon")
    host = machine(masked=True)
    result = run(host)
    assert host.links[IN_ETC] == "/dev/null" and result["method"] == "nvml"
    assert any("is masked" in text for text in result["warnings"])
    host = machine(masked=True)
    assert actions(run(host, unmask=True)) == ["unmask_unit", "enable_unit", "daemon_reload", "start_unit"]


@pytest.mark.parametrize("form, enables", [({"gpus": False}, True), ({"gpus": False, "enabled": True}, False)])
def test_without_a_gpu_nothing_is_started(form, enables):
    """PER-3, PER-10: no start, no NVML, right changed; the unit is ready for a GPU."""
    host = machine(nvml=None, **form)
    host.fake_nvml = NvmlError("binding_missing", "talk to", "NVML", "not asked for")
    result = run(host)
    assert actions(result) == (["enable_unit"] if enables else []) and result["changed"] is enables
    assert result["supported"] and result["gpus"] == [] and result["unit"]["enabled"]


def test_without_a_gpu_and_without_the_daemon():
    """PER-3."""
    with pytest.raises(Unsupported, match="no NVIDIA GPU"):
        run(machine(text=None, binary=False, gpus=False))
    result = run(machine(text=None, binary=False, gpus=False), unsupported="skip")
    assert (result["supported"], result["changed"]) == (False, False) and "no NVIDIA GPU" in result["reason"]


def test_a_daemon_that_does_not_start():
    """PER-4: the journal's tail and the effective command in the error; NVML does the work."""
    host = machine(enabled=True, fails=[UNIT])
    result = run(host)
    assert result["failed"] and "Failed to query NVIDIA devices" in result["msg"] and DAEMON in result["msg"]
    assert host.fake_nvml.legacy == [True, True] and [gpu["after"] for gpu in result["gpus"]] == ["on", "on"]


def test_no_unit_gets_one_of_ours():
    """PER-5: the daemon where there is one, else NVML at boot."""
    host = machine(text=None)
    result = run(host)
    assert DAEMON + " --verbose --persistence-mode" in host.files[OWN_FILE] and PROGRAM not in host.files
    assert result["unit"]["name"] == OWN_UNIT and result["method"] == "daemon" and actions(result)[-1] == "start_unit"
    host = machine(text=None, binary=False)
    result = run(host)
    assert PROGRAM in host.files[OWN_FILE] and "nvmlDeviceSetPersistenceMode" in host.files[PROGRAM]
    assert result["method"] == "nvml" and result["survives_reboot"]


def test_wsl_says_who_decides():
    host = machine(text=None, binary=False, gpus=False, files={"/dev/dxg": ""})
    assert "Windows" in run(host, unsupported="skip")["reason"]


def test_a_packaged_unit_that_came_later_takes_over():
    host = machine(text=None)
    run(host)
    host.files["/usr/lib/systemd/system/" + UNIT] = UPSTREAM
    host.systemd.daemon_reload()
    result = run(host)
    assert OWN_FILE not in host.files and result["unit"]["name"] == UNIT and result["unit"]["enabled"]
    assert host.fake_nvml.modes == [True, True], "nothing was stopped"
    assert run(host)["steps"] == []


def test_the_time_a_first_client_waits_is_told_before():
    """PER-6: slow container starts come from GPUs that are off; the report before the run names them."""
    host = machine(enabled=True, nvml=FakeNvml(8))
    result = run(host, check_mode=True)
    assert list(result["before"]["gpus"].values()) == ["off"] * 8 and result["changed"]


def test_a_container_without_the_socket_is_warned():
    """PER-7."""
    host = machine(text=None, binary=False, files={"/.dockerenv": ""})
    assert any("container without the daemon's socket" in text for text in run(host)["warnings"])


def test_one_lost_gpu_hides_no_other():
    """PER-8: the others are set, and the failure names the one."""
    host = machine(enabled=True, nvml=FakeNvml(8, lost=[3]))
    result = run(host)
    assert result["failed"] and "0000:04:00.0" in result["msg"] and "gpu is lost" in result["msg"]
    assert host.fake_nvml.modes == [i != 3 for i in range(8)]
    assert [row["error"] is None for row in result["gpus"]] == [i != 3 for i in range(8)]
    again = run(host)
    assert again["failed"] and again["steps"] == []


def test_a_gpu_that_refuses_hides_no_other():
    host = machine(text=UBUNTU, active=True, nvml=FakeNvml(3, refuses=[1]))
    result = run(host)
    assert result["failed"] and host.fake_nvml.modes == [True, False, True] and "no permission" in result["gpus"][1]["error"]


def test_off_is_first_class():
    """PER-9."""
    host = machine(enabled=True, active=True)
    result = run(host, mode="off")
    assert host.fake_nvml.modes == [False, False] and result["survives_reboot"]
    assert "--no-persistence-mode" in host.files[DROP_IN]
    assert run(host, mode="off")["steps"] == []
    run(host)
    assert DROP_IN not in host.files and run(host)["restart_required"] == [UNIT]


@pytest.mark.parametrize("nvml, why", [
    (FakeNvml(memory_nodes={1: 4}), "NUMA node 4"), (FakeNvml(confidential=True), "confidential computing"),
])
def test_off_that_would_lose_more_than_time_needs_force(nvml, why):
    host = machine(enabled=True, active=True, nvml=nvml)
    before = dict(host.files)
    with pytest.raises(Conflict, match=why + ".*force: true"):
        run(host, mode="off")
    assert host.files == before and nvml.modes == [True, True] and host.acted == []
    run(host, mode="off", force=True)
    assert nvml.modes == [False, False]


def test_condition_that_was_not_met_at_boot():
    """The unit stayed down and nobody said so; now the GPUs are there."""
    host = machine(enabled=True)
    host.systemd.tried.add(UNIT)
    assert run(host, check_mode=True, apply="boot")["survives_reboot"] is False
    assert actions(run(host)) == ["start_unit"] and host.fake_nvml.by_daemon == [True, True]


def test_gpus_without_the_mode_are_skipped():
    host = machine(enabled=True, nvml=FakeNvml(unsupported=[0, 1]))
    result = run(host)
    assert not result["supported"] and not result.get("failed") and result["steps"] == []
    host = machine(enabled=True, nvml=FakeNvml(unsupported=[0]))
    result = run(host)
    assert result["supported"] and not result.get("failed") and [row["after"] for row in result["gpus"]] == [None, "on"]


def test_gpus_by_any_name():
    host = machine(enabled=False, nvml=FakeNvml(4))
    run(host, gpus=["GPU-0", "00000000:03:00.0", "3"])
    assert host.fake_nvml.modes == [True, False, True, True]
    assert "0000:01:00.0 0000:03:00.0 0000:04:00.0" in host.files[OWN_FILE]
    with pytest.raises(BadInput, match="daemon sets all GPUs alike"):
        run(machine(), gpus=["1"], method="daemon")
    with pytest.raises(BadInput, match="no such GPU"):
        run(machine(), gpus=["GPU-9"])


def test_reload_waits_for_running_containers():
    """nvidia-container-toolkit#48: a reload would take the GPU from the container, so NVML now and the reload is reported."""
    host = machine(text=UBUNTU, active=True, files={"/proc/900/cgroup": "0::/kubepods/pod1\n"})
    host.devices.add("/dev/nvidiactl")
    host.links["/proc/900/fd/3"] = "/dev/nvidia0"
    host.files["/proc/900/fd/0"] = ""
    result = run(host, allow_restart=True)
    assert "daemon_reload" not in actions(result) and "restart_unit" not in actions(result)
    assert "nvidia-ctk" in result["reload_pending"] and host.fake_nvml.modes == [True, True]
    again = run(host, allow_restart=True)
    assert again["steps"] == [] and "nvidia-ctk" in again["reload_pending"]
    for path in ("/proc/900/fd/0", "/proc/900/cgroup"):
        del host.files[path]
    del host.links["/proc/900/fd/3"]
    assert actions(run(host)) == ["daemon_reload"]


def test_who_decides_after_us_is_named():
    late = "/etc/systemd/system/%s.d/99-site.conf" % UNIT
    other = "/etc/systemd/system/gpu-tune.service"
    host = machine(text=UBUNTU, files={late: "[Service]\nExecStart=\nExecStart=%s --no-persistence-mode\n" % DAEMON,
                                       other: "[Service]\nExecStart=/usr/bin/nvidia-smi -pm 0\n"})
    host.systemd.enable("gpu-tune.service")
    with pytest.raises(Conflict, match="99-site.conf:3"):
        run(host, conflicts="fail")
    result = run(host)
    assert [(row["where"], row["wins"]) for row in result["conflicts"]] == [(late + ":3", True), (other + ":2", True)]
    assert not result["survives_reboot"]


def test_missing_account_fails_before_any_change():
    host = machine(text=UBUNTU, account=False)
    with pytest.raises(HostError, match="account nvidia-persistenced does not exist"):
        run(host)
    assert host.writes == [] and host.acted == []


@pytest.mark.parametrize("version, fits", [("550.40.06", False), ("550.40.07", True), ("535.230.02", False)])
def test_uvm_needs_a_daemon_that_knows_it(version, fits):
    host = machine(enabled=True)
    host.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s\n" % version
    if not fits:
        with pytest.raises(Unsupported, match=version):
            run(host, uvm=True)
    else:
        run(host, uvm=True)
        assert "--uvm-persistence-mode" in host.files[DROP_IN]


@pytest.mark.parametrize("trouble, word", [("read_only", "read-only"), ("full", "space")])
def test_a_file_system_that_takes_nothing_fails_before_any_change(trouble, word):
    host = machine(text=UBUNTU, active=True)
    setattr(host, trouble, ("/etc",) if trouble == "read_only" else True)
    with pytest.raises(HostError) as caught:
        run(host)
    assert word in str(caught.value) and caught.value.details["errno"] in (errno.EROFS, errno.ENOSPC)
    assert host.fake_nvml.modes == [False, False] and host.writes == [] and host.acted == []


@pytest.mark.parametrize("kind", ["binding_missing", "library_not_found", "version_mismatch", "driver_not_loaded"])
def test_nvml_that_does_not_answer_fails_before_any_change(kind):
    host = machine(text=UBUNTU)
    host.fake_nvml = failure(kind, 0)
    with pytest.raises(NvmlError):
        run(host)
    assert host.writes == [] and host.acted == []


def test_a_daemon_outside_of_its_unit_is_left_alone():
    host = machine(enabled=True, files={"/run/nvidia-persistenced/nvidia-persistenced.pid": "77\n",
                                        "/proc/77/comm": "nvidia-persiste\n"})
    result = run(host)
    assert "start_unit" not in actions(result) and host.fake_nvml.legacy == [True, True]
    assert any("pid 77" in text for text in result["warnings"])


def test_the_journal_holds_what_absent_needs():
    host = machine(text=UBUNTU, active=True)
    run(host)
    others = _journal.load(host, "gpu_persistence")["others"]
    assert others["enable_unit"] == {UNIT: "static"} and others["set_persistence"] == {"GPU-0": "off", "GPU-1": "off"}


def test_boot_alone_needs_no_driver():
    """An image build on a machine with GPUs: unit files are written, NVML is not opened, the program's binding is kept."""
    host = machine(enabled=False)
    host.fake_nvml = NvmlError("library_not_found", "initialise", "NVML", "no driver")
    result = run(host, apply="boot")
    assert actions(result) == ["enable_unit"] and result["gpus"] == []
    with pytest.raises(NvmlError):
        run(host, apply="boot", method="nvml")


def test_without_systemd_the_mode_is_set_and_the_reboot_not_promised():
    host = machine(text=None, binary=False)
    host.commands = {}
    result = run(host)
    assert host.fake_nvml.modes == [True, True] and not result["survives_reboot"] and "no systemd" in result["survives_reason"]


def test_absent_leaves_a_reload_that_would_hurt_to_a_later_day():
    host = machine(text=UBUNTU, active=True)
    run(host, allow_restart=True)
    host.devices.add("/dev/nvidiactl")
    host.files.update({"/proc/900/cgroup": "0::/kubepods/pod1\n", "/proc/900/fd/0": ""})
    host.links["/proc/900/fd/3"] = "/dev/nvidia0"
    result = run(host, state="absent")
    assert "restart_unit" not in actions(result) and "nvidia-ctk" in result["reload_pending"]


def test_a_change_by_somebody_else_that_systemd_has_not_read_is_told():
    host = machine(enabled=True, active=True)
    host.files["/usr/lib/systemd/system/" + UNIT] = UPSTREAM.replace("--user", "--verbose --user")
    result = run(host)
    assert result["steps"] == [] and any("daemon-reload" in text for text in result["warnings"])
