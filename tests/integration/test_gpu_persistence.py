# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_persistence on lab hosts: real systemd, the real pynvml, the daemon's unit in every form it is met."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import tarfile
import time

import pytest
from playbooks import REPOSITORY, module_calls, play

UNIT = "nvidia-persistenced.service"
OWN = "ai-infra-gpu-host-persistence.service"
DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/90-ai-infra-gpu-host.conf"
DAEMON = "/usr/bin/nvidia-persistenced"
PACKAGED = "[Service]\nType=forking\nExecStart=%s --user nvidia-persistenced\n[Install]\nWantedBy=multi-user.target\n" % DAEMON
VARIANTS = {"up": "upstream", "static": "ubuntu", "rpm": "rpm", "masked": "masked", "shadow": "shadowed", "none": "none"}


def persistence(lab, folder, hosts, *arguments, ok=True, **params):
    """Run the module once on every host: {host: result}."""
    book = folder / "persistence.yml"
    book.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "become": True, "tasks": [
        {"name": "Set persistence", "ai_infra.gpu_host.gpu_persistence": dict({"mode": "on"}, **params)}]}]))
    done = play(book, lab.inventory(), *arguments)
    assert (done.rc == 0) is ok, done.output
    return {host: done.result(host, "gpu_persistence") for host in hosts}


def gpus(host):
    return json.loads(host.run("nvml-simctl", "show").stdout)["gpus"]


def modes(host):
    return [gpu["persistence"] for gpu in gpus(host)]


def differences(before, host):
    from lab import snapshot

    return snapshot.differences(before, host.snapshot())


def actions(result):
    return [step["action"] for step in result["steps"] if step["action"] not in ("install_binding", "remove_binding")]


@pytest.mark.parametrize("root", ["debian12", "debian13"])
def test_life_of_the_mode_with_every_form_of_the_unit(lab, tmp_path, root):
    names = {"%s-%s" % (word, root[-2:]): unit for word, unit in VARIANTS.items()}
    bare, empty = "bare-" + root[-2:], "empty-" + root[-2:]
    lab.up_all([("hgx_h100", name, {"unit": unit}) for name, unit in names.items()]
               + [("hgx_h100", bare, {"unit": "none"}), ("no_gpu", empty, {})], root_name=root)
    hosts = {name: lab.host(name) for name in [*names, bare, empty]}
    hosts[bare].run("rm", DAEMON)
    hosts[empty].run("useradd", "--system", "nvidia-persistenced")
    hosts[empty].write("/usr/lib/systemd/system/" + UNIT, PACKAGED)
    before = {name: host.snapshot() for name, host in hosts.items()}
    first_modes = {name: modes(host) for name, host in hosts.items() if name != empty}

    predicted = persistence(lab, tmp_path, list(hosts), "--check", "--diff")
    for name, host in hosts.items():
        assert differences(before[name], host) == [], "check mode wrote on " + name
    real = persistence(lab, tmp_path, list(hosts))
    second = persistence(lab, tmp_path, list(hosts))
    for name, host in hosts.items():
        for word in ("steps", "after", "gpus", "unit", "restart_required", "survives_reboot"):
            assert predicted[name][word] == real[name][word], (name, word)
        assert second[name]["steps"] == [] and not second[name]["changed"], name
        assert real[name]["survives_reboot"], (name, real[name]["survives_reason"])
        if name != empty:
            assert modes(host) == [True] * 8, name
    found = {name.split("-")[0]: result for name, result in real.items()}
    assert {name: result["unit"]["variant"] for name, result in found.items()} == {
        "up": "packaged", "static": "static", "rpm": "packaged", "masked": "masked", "shadow": "shadowed", "none": "absent",
        "bare": "absent", "empty": "packaged"}
    assert actions(found["up"]) == actions(found["rpm"]) == []  # they keep persistence on by themselves
    assert found["static"]["restart_required"] == found["shadow"]["restart_required"] == [UNIT]
    assert "start_unit" in actions(found["none"]) and found["masked"]["method"] == "nvml"
    assert actions(found["empty"]) == ["enable_unit"], "never started without a GPU (PER-3, PER-10)"

    for host in hosts.values():
        host.reboot()
    for name, host in hosts.items():
        if name != empty:
            assert modes(host) == [True] * 8, name
    for name, result in persistence(lab, tmp_path, list(hosts)).items():
        assert not result["changed"] and result["restart_required"] == [], name

    predicted = persistence(lab, tmp_path, list(hosts), "--check", state="absent")
    gone = persistence(lab, tmp_path, list(hosts), state="absent")
    for name, host in hosts.items():
        assert predicted[name]["steps"] == gone[name]["steps"], name
        assert differences(before[name], host) == [], "absent left something on " + name
        if name != empty:
            assert modes(host) == first_modes[name], name
    assert not any(result["changed"] for result in persistence(lab, tmp_path, list(hosts), state="absent").values())
    lab.down(*hosts)


def test_a_restart_is_never_done_unasked(lab, tmp_path):
    """SIGTERM of the daemon cuts persistence on every GPU, so the running daemon stays until somebody allows it."""
    host = lab.up("hgx_h100", "restart")
    pid = host.run("systemctl", "show", "--value", "-p", "MainPID", UNIT).stdout
    result = persistence(lab, tmp_path, ["restart"])["restart"]
    assert result["restart_required"] == [UNIT] and "restart_unit" not in actions(result)
    assert host.run("systemctl", "show", "--value", "-p", "MainPID", UNIT).stdout == pid
    assert [(gpu["persistence_legacy"], gpu["persistence_daemon"]) for gpu in gpus(host)] == [(True, False)] * 8

    predicted = persistence(lab, tmp_path, ["restart"], "--check", allow_restart=True)["restart"]
    allowed = persistence(lab, tmp_path, ["restart"], allow_restart=True)["restart"]
    assert actions(predicted) == actions(allowed) == ["restart_unit"] and allowed["restart_required"] == []
    assert [gpu["persistence_daemon"] for gpu in gpus(host)] == [True] * 8
    assert not persistence(lab, tmp_path, ["restart"], allow_restart=True)["restart"]["changed"]

    off = persistence(lab, tmp_path, ["restart"], mode="off")["restart"]  # PER-9
    assert modes(host) == [False] * 8 and off["survives_reboot"]
    assert not persistence(lab, tmp_path, ["restart"], mode="off")["restart"]["changed"]
    host.reboot()
    assert modes(host) == [False] * 8
    assert not persistence(lab, tmp_path, ["restart"], mode="off")["restart"]["changed"]
    lab.down("restart")


def test_one_lost_gpu_hides_no_other(lab, tmp_path):
    """PER-8, and GPUs that the daemon could not set."""
    host = lab.up("hgx_h100", "lost", unit="rpm")
    host.run("systemctl", "stop", UNIT)
    host.run("nvml-simctl", "lose", "3")
    host.run("nvml-simctl", "inject", "persistenced", "code=999", "gpu=5")
    result = persistence(lab, tmp_path, ["lost"], ok=False)["lost"]
    assert [gpu["after"] for gpu in result["gpus"]] == ["on"] * 3 + [None] + ["on"] * 4
    assert [bool(gpu["error"]) for gpu in result["gpus"]] == [False] * 3 + [True] + [False] * 4
    assert "gpu is lost" in result["msg"] and "0000:61:00.0" in result["msg"]
    late = [step for step in result["steps"] if step.get("known") == "after_apply"]
    assert [step["target"] for step in late] == [result["gpus"][5]["uuid"]]
    again = persistence(lab, tmp_path, ["lost"], ok=False)["lost"]
    assert again["steps"] == [] and not again["changed"] and again["gpus"][3]["error"]
    lab.down("lost")


def test_a_daemon_that_does_not_start_says_why(lab, tmp_path):
    """PER-4: the journal's last lines and the command that was run, and NVML does what the daemon could not."""
    host = lab.up("hgx_h100", "broken", unit="upstream")
    host.run("systemctl", "stop", UNIT)
    host.run("mkdir", "/etc/systemd/system/%s.d" % UNIT)
    host.write("/etc/systemd/system/%s.d/10-site.conf" % UNIT,
               "[Service]\nExecStart=\nExecStart=%s --user nvidia-persistenced --no-such-flag\n" % DAEMON)
    host.run("systemctl", "daemon-reload")
    result = persistence(lab, tmp_path, ["broken"], ok=False)["broken"]
    assert "--no-such-flag" in result["msg"] and "unrecognized option" in result["msg"]
    assert modes(host) == [True] * 8
    lab.down("broken")


def test_unmasked_when_asked_and_masked_again_by_absent(lab, tmp_path):
    """PER-1."""
    host = lab.up("hgx_h100", "mask", unit="masked")
    before = host.snapshot()
    refused = persistence(lab, tmp_path, ["mask"], ok=False, method="daemon")["mask"]
    assert "masked" in refused["msg"] and "unmask: true" in refused["msg"] and differences(before, host) == []
    predicted = persistence(lab, tmp_path, ["mask"], "--check", unmask=True)["mask"]
    real = persistence(lab, tmp_path, ["mask"], unmask=True)["mask"]
    for word in ("steps", "after", "unit"):
        assert predicted[word] == real[word], word
    assert actions(real) == ["unmask_unit", "enable_unit", "daemon_reload", "start_unit"]
    assert [gpu["persistence_daemon"] for gpu in gpus(host)] == [True] * 8
    assert not persistence(lab, tmp_path, ["mask"], unmask=True)["mask"]["changed"]
    persistence(lab, tmp_path, ["mask"], state="absent")
    assert differences(before, host) == [] and modes(host) == [False] * 8
    lab.down("mask")


def test_coherent_memory_and_confidential_computing_keep_persistence(lab, tmp_path):
    host, other = lab.up("gh200", "coherent"), lab.up("hgx_h100", "secret", unit="upstream")
    other.run("nvml-simctl", "set", "confidential_computing=on")
    for one in (host, other):
        before = one.snapshot()
        result = persistence(lab, tmp_path, [one.name], ok=False, mode="off")[one.name]
        assert "force: true" in result["msg"] and differences(before, one) == [] and all(modes(one))
    assert not any(modes(host)) or persistence(lab, tmp_path, ["coherent"], mode="off", force=True) and not any(modes(host))
    lab.down("coherent", "secret")


def test_some_gpus_only(lab, tmp_path):
    host = lab.up("hgx_h100", "some")
    uuids = [gpu["uuid"] for gpu in gpus(host)]
    wanted = [uuids[1], "0000:9D:00.0", "6"]
    result = persistence(lab, tmp_path, ["some"], gpus=wanted)["some"]
    assert modes(host) == [False, True, False, False, True, False, True, False]
    assert result["method"] == "nvml" and [gpu["index"] for gpu in result["gpus"]] == [1, 4, 6]
    assert not persistence(lab, tmp_path, ["some"], gpus=wanted)["some"]["changed"]
    host.reboot()
    assert modes(host) == [False, True, False, False, True, False, True, False]
    lab.down("some")


def test_not_supported_is_an_answer(lab, tmp_path):
    host = lab.up("vm", "virtual")
    for index in range(len(gpus(host))):
        host.run("nvml-simctl", "set", "gpu", str(index), "virtualization=vgpu")
    result = persistence(lab, tmp_path, ["virtual"])["virtual"]
    assert not result["supported"] and "no persistence mode" in result["reason"]
    assert {gpu["supported"] for gpu in result["gpus"]} == {False}
    lab.down("virtual")


RUNNER = """
import json, sys
sys.path[:0] = ["/run/sweep"]
sys.dont_write_bytecode = True
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Host
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import gpu_persistence as knob
host = Host()
host.pynvml_path = "/run/sweep"
params = {name: option.get("default") for name, option in knob.ARGUMENT_SPEC.items()}
result = knob.run(host, dict(params, **json.loads(sys.argv[1])), False)
print(json.dumps([result["changed"], result.get("msg")]))
"""


def carry(host):
    """The knob and the binding in a place that a snapshot does not look at."""
    import pynvml

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(REPOSITORY / "plugins/module_utils", "ansible_collections/ai_infra/gpu_host/plugins/module_utils")
        archive.add(pynvml.__file__, "pynvml.py")
        program = tarfile.TarInfo("run.py")
        program.size = len(RUNNER)
        archive.addfile(program, io.BytesIO(RUNNER.encode()))
    host.run("mkdir", "-p", "/run/sweep")
    host.run("sh", "-c", "base64 -d | tar -C /run/sweep -xz --no-same-owner", text=base64.b64encode(packed.getvalue()).decode())


def files(host):
    listing = ("find /etc/systemd /var/lib/ai_infra.gpu_host -not -type d -exec sha256sum {} + ; "
               "find /etc/systemd /var/lib -type d")
    return sorted(host.run("sh", "-c", listing, check=False).stdout.splitlines())


def half_written(host):
    """Files of ours that are empty or not whole: each ends with a newline, and JSON reads."""
    text = host.run("sh", "-c", "for f in /etc/systemd/system/nvidia-persistenced.service.d/*.conf /var/lib/ai_infra.gpu_host/"
                                "journal/*.json; do [ -e $f ] && tail -c1 $f | od -An -c && echo $f; done; true").stdout
    return [line for line in text.splitlines() if line.strip() and not line.startswith("/") and line.strip() != "\\n"]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("call", ["write", "rename", "fsync", "mkdir", "unlink"])
def test_killed_at_every_call(lab, call):
    """Also the programs it calls are killed. The next run converges, and absent still finds everything."""
    host = lab.host("kill") if "kill" in [one.name for one in lab.hosts] else lab.up("vm", "kill", unit="ubuntu")
    carry(host)
    before = files(host)

    def knob(*strace, **params):
        return subprocess.run([*strace, *host.enter("python3", "/run/sweep/run.py", json.dumps(params))], timeout=60,
                              capture_output=True, text=True, check=False)

    for number in range(1, 100):
        ran = knob("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e",
                   "inject=%s:signal=KILL:when=%d" % (call, number))
        assert half_written(host) == []
        again = knob()
        assert again.returncode == 0, again.stderr
        assert json.loads(knob().stdout) == [False, None] and all(modes(host)), number
        back = knob(state="absent")
        assert back.returncode == 0, back.stderr
        assert files(host) == before and not any(modes(host)), number
        if ran.returncode == 0:
            break
    assert ran.returncode == 0 and number > 1


def test_the_binding_goes_only_where_it_is_needed(lab, tmp_path):
    """One call where the node has a binding; where it has none or an old one, the controller's, beside the node's own."""
    import pynvml

    lab.up_all([("vm", "has", {}), ("vm", "lacks", {}), ("vm", "outdated", {})])
    names = ["has", "lacks", "outdated"]
    hosts = {name: lab.host(name) for name in names}
    own = "/usr/lib/python3/dist-packages/pynvml.py"
    with open(pynvml.__file__, encoding="utf-8") as binding:
        hosts["has"].write(own, binding.read())
    hosts["outdated"].write(own, "class NVMLError(Exception):\n    pass\n")
    calls = {}
    for turn in ("first", "second"):
        since = {name: int(host.run("date", "+%s").stdout) + 1 for name, host in hosts.items()}
        time.sleep(1.1)
        results = persistence(lab, tmp_path, names)
        calls[turn] = {name: module_calls(host, since[name]) for name, host in hosts.items()}
        kept = {name: "install_binding" in [step["action"] for step in result["steps"]] for name, result in results.items()}
        assert kept == {name: turn == "first" and name != "has" for name in names}
    assert calls == {"first": {"has": 1, "lacks": 2, "outdated": 2}, "second": {"has": 1, "lacks": 1, "outdated": 1}}
    assert hosts["outdated"].read(own).startswith("class NVMLError")
    lab.down(*names)


def test_a_start_that_systemd_skips_is_no_success(lab, tmp_path):
    """systemctl start of a unit whose condition is not met returns 0 and starts nothing."""
    host = lab.up("vm", "skipped", unit="upstream")
    host.run("systemctl", "stop", UNIT)
    host.run("mkdir", "/etc/systemd/system/%s.d" % UNIT)
    host.write("/etc/systemd/system/%s.d/10-site.conf" % UNIT, "[Unit]\nConditionPathExists=/nowhere\n")
    host.run("systemctl", "daemon-reload")
    result = persistence(lab, tmp_path, ["skipped"])["skipped"]
    assert all(modes(host)) and result["unit"]["active"] is False and result["unit"]["condition"] is False
    assert not result["survives_reboot"] and "condition" in result["survives_reason"]
    assert {step.get("known") for step in result["steps"] if step["action"] == "set_persistence"} == {"after_apply"}
    assert not persistence(lab, tmp_path, ["skipped"])["skipped"]["changed"]
    lab.down("skipped")
