# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The promise of the collection, on every board: predict, apply, stay, survive a reboot, go without a trace."""

from __future__ import annotations

import time

import pytest
from playbooks import module_calls, play

BOARDS = {  # board: profile group
    "hgx_h100": "training_nodes", "dgx_a100": "training_nodes", "gh200": "training_nodes", "gb200": "inference_nodes",
    "rtx_pro_6000": "inference_nodes", "vm": "inference_nodes", "no_gpu": "training_nodes", "no_thp": "training_nodes",
}
THP = "/sys/kernel/mm/transparent_hugepage"


def groups_of(names: dict[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {"training_nodes": [], "inference_nodes": []}
    for name, group in names.items():
        groups[group].append(name)
    return groups


def site(lab, names, *arguments):
    return play("site.yml", lab.inventory(groups_of(names)), "-l", "gpu_nodes", *arguments)


def without_known(steps):
    """Steps that can be compared: what is only known after an earlier step is left out of the values."""
    return [{key: value for key, value in step.items() if "known" not in step or key in ("action", "target", "knob")}
            for step in steps]


@pytest.mark.parametrize("root", ["debian12", "debian13"])
def test_every_board_from_prediction_to_trace_free(lab, root):
    """One fleet of all boards, as operators have it: the whole life of a profile."""
    wanted = BOARDS if root == "debian12" else {name: BOARDS[name] for name in ("hgx_h100", "gb200", "no_gpu")}
    names = {f"{board.replace('_', '-')}-{root[-2:]}": (board, group) for board, group in wanted.items()}
    groups = {name: group for name, (board, group) in names.items()}
    lab.up_all([(board, name, {}) for name, (board, group) in names.items()], root_name=root)
    hosts = {name: lab.host(name) for name in names}
    before = {name: host.snapshot() for name, host in hosts.items()}

    predicted = site(lab, groups, "--check", "--diff")
    assert predicted.rc == 0, predicted.output
    for name, host in hosts.items():
        assert lab_differences(before[name], host.snapshot()) == [], f"check mode wrote on {name}"

    real = site(lab, groups)
    assert real.rc == 0, real.output
    for name in hosts:
        expected, found = predicted.result(name), real.result(name)
        assert without_known(expected["steps"]) == without_known(found["steps"]), name
        assert found["changed"] and expected["changed"]

    second_run_is_quiet(lab, groups, hosts)
    for name, host in hosts.items():
        in_effect(host, names[name][0], groups[name])
        host.reboot()
    for name, host in hosts.items():
        in_effect(host, names[name][0], groups[name])
    second_run_is_quiet(lab, groups, hosts)

    absent = site(lab, groups, "-e", "gpu_host_state=absent")
    assert absent.rc == 0, absent.output
    for name, host in hosts.items():
        assert lab_differences(before[name], host.snapshot()) == [], f"absent left something on {name}"
    again = site(lab, groups, "-e", "gpu_host_state=absent")
    assert set(again.changed.values()) == {0}, again.output
    lab.down(*names)


def lab_differences(before, after):
    from lab import snapshot

    return snapshot.differences(before, after)


def second_run_is_quiet(lab, groups, hosts):
    """changed=0 everywhere, and at most 4 module calls a host."""
    time.sleep(1.1)
    since = int(time.time())
    second = site(lab, groups)
    assert second.rc == 0 and set(second.changed.values()) == {0}, second.output
    assert sorted(second.changed) == sorted(hosts)
    for name, host in hosts.items():
        assert 1 <= module_calls(host, since) <= 4, name


def in_effect(host, board, group):
    """What a person would look at on the host, without Ansible."""
    training = group == "training_nodes"
    assert host.read("/proc/sys/vm/swappiness").strip() == "0"
    if board != "no_thp":
        enabled = host.read(THP + "/enabled")
        if board in ("gb200",) and training:
            assert "[always]" in host.read(THP + "/hugepages-2048kB/enabled")
        else:
            assert ("[always]" if training else "[never]") in enabled
    # A real login: sshd, PAM and the limit a job would inherit.
    assert host.ssh("sh", "-c", "'ulimit -l'").stdout.strip() == "unlimited"
    if board not in ("no_gpu",):
        state = host.run("nvml-simctl", "show").stdout
        assert '"persistence": false' not in state and '"persistence": 0' not in state


def test_host_in_both_groups_or_in_none_is_named_and_refused(lab):
    lab.up_all([("no_gpu", "both", {}), ("no_gpu", "neither", {}), ("no_gpu", "fine", {})])
    inventory = lab.inventory({"training_nodes": ["both", "fine"], "inference_nodes": ["both"]})
    result = play("site.yml", inventory, "-l", "gpu_nodes")
    assert result.rc != 0
    assert result.failed == {"both": 1, "neither": 1, "fine": 0}
    assert "both has to be in exactly one of the groups training_nodes and inference_nodes" in result.output
    assert "training_nodes and inference_nodes" in result.output and "is in neither" in result.output
    assert result.results("both") == [] and result.results("neither") == []
    lab.down("both", "neither", "fine")


LEVELS = ["all", "group", "host", "play", "extra"]


@pytest.mark.parametrize("level", LEVELS)
def test_variables_reach_the_host_from_every_place(lab, tmp_path, level):
    """Built-in default < fleet-wide gpu_host_x < profile training_host_x, wherever they are set."""
    if "vars" not in [host.name for host in lab.hosts]:
        lab.up("no_gpu", "vars")
    inventory = lab.inventory({"training_nodes": ["vars"]})
    (tmp_path / "inventory.yml").write_text(inventory)
    settings = {"gpu_host_swappiness": 7, "training_host_swappiness": 5, "gpu_host_numa_balancing": 1}
    text = "".join(f"{key}: {value}\n" for key, value in settings.items())
    playbook, arguments = "site.yml", []
    if level == "extra":
        for key, value in settings.items():
            arguments += ["-e", f"{key}={value}"]
    elif level == "play":
        playbook = tmp_path / "play.yml"
        playbook.write_text(
            "- hosts: gpu_nodes\n  become: true\n  gather_facts: false\n  vars:\n" + "".join(
                f"    {line}\n" for line in text.splitlines()) + "  roles:\n    - ai_infra.gpu_host.training_host\n")
    else:
        folder = tmp_path / ("host_vars" if level == "host" else "group_vars")
        folder.mkdir()
        (folder / {"all": "all.yml", "group": "training_nodes.yml", "host": "vars.yml"}[level]).write_text(text)
    result = play(playbook, str(tmp_path / "inventory.yml"), "-l", "gpu_nodes", "--check", *arguments)
    assert result.rc == 0, result.output
    after = result.result("vars")["knobs"]["kernel_values"]["after"]["runtime"]
    assert after == {"vm.swappiness": "5", "kernel.numa_balancing": "1"}
