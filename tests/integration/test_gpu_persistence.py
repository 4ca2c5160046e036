# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_persistence on lab hosts: real systemd, the real pynvml, the daemon's unit in every form it is met."""

from __future__ import annotations

import json

import pytest
from playbooks import play

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
        "up": "packaged", "static": "static", "rpm": "packaged", "masked": "own", "shadow": "shadowed", "none": "own",
        "bare": "own", "empty": "packaged"}
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
