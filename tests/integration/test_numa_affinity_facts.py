# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""numa_affinity_facts over SSH on every board, against the board's own description."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playbooks import play

FOLDER = Path(__file__).parent.parent / "lab" / "boards"


def board_facts(name):
    """A board's description, on top of the one it extends."""
    facts = json.loads((FOLDER / (name + ".json")).read_text())
    return dict(board_facts(facts.pop("extends")), **facts) if "extends" in facts else facts


BOARDS = {path.stem: board_facts(path.stem) for path in sorted(FOLDER.glob("*.json"))}
GPU_WORDS = ("A100", "A30", "H100", "H20", "GH200", "GB200", "B200", "RTX")
PLAY = """
- hosts: gpu_nodes
  gather_facts: false
  tasks:
    - ai_infra.gpu_host.numa_affinity_facts: {}
"""


def numbers(text):
    """The set of a list such as 0-3,8: on purpose not the parser under test."""
    found = set()
    for part in filter(None, str(text).split(",")):
        first, dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def described(board):
    """What the description says: nodes with CPUs and memory, node of each GPU, GPU memory nodes in order."""
    nodes = {number: node for node in board["nodes"] for number in numbers(node["id"])}
    gpus = {address: group.get("node") for group in board.get("pci", [])
            for address, model in group["devices"].items() if model.startswith(GPU_WORDS)}
    return {
        "total_nodes": len(nodes),
        "cpus": {number: numbers(node["cpus"]) for number, node in nodes.items() if node.get("cpus")},
        "mem_nodes": sorted(number for number, node in nodes.items() if node.get("memory_mb")),
        "gpus": gpus,
        "gpu_memory": sorted(number for number, node in nodes.items() if "gpu" in node and node.get("memory_mb")),
    }


@pytest.fixture(scope="module")
def fleet(lab):
    lab.up_all([(board, board.replace("_", "-"), {}) for board in BOARDS])
    yield lab
    lab.down(*(board.replace("_", "-") for board in BOARDS))


@pytest.fixture(scope="module")
def played(fleet, tmp_path_factory):
    """One play over the whole fleet: {board: result}, and what it left on the hosts."""
    before = {board: fleet.host(board.replace("_", "-")).snapshot() for board in ("hgx_h100", "gb200")}
    playbook = tmp_path_factory.mktemp("plays") / "facts.yml"
    playbook.write_text(PLAY)
    inventory = fleet.inventory({"training_nodes": [board.replace("_", "-") for board in BOARDS]})
    done = play(playbook, inventory)
    assert done.rc == 0, done.output
    assert set(done.changed.values()) == {0}
    checked = play(playbook, inventory, "--check")
    return before, {board: (done.result(board.replace("_", "-"), "numa_affinity_facts"),
                            checked.result(board.replace("_", "-"), "numa_affinity_facts")) for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS)
def test_facts_are_the_boards(played, board):
    found = played[1][board][0]["ansible_facts"]["gpu_host_topology"]
    expected = described(BOARDS[board])
    assert found["total_nodes"] == expected["total_nodes"]
    assert {node["id"]: numbers(node["cpulist"]) for node in found["nodes"] if node["cpulist"]} == expected["cpus"]
    assert found["cpu_nodes"] == sorted(expected["cpus"]) and found["mem_nodes"] == expected["mem_nodes"]
    assert sorted(gpu["pci"] for gpu in found["gpus"]) == sorted(expected["gpus"])
    only = sorted(expected["cpus"])[0] if len(expected["cpus"]) == 1 else None
    for gpu in found["gpus"]:
        node = expected["gpus"][gpu["pci"]]
        if node is None or node < 0:
            assert (gpu["node"], gpu["source"]) == ((only, "single_node") if only is not None else (None, None))
        else:
            assert (gpu["node"], gpu["source"]) == (node, "sysfs")
            assert numbers(gpu["cpulist"]) == expected["cpus"][node]
    memory = sorted(gpu["memory_node"] for gpu in found["gpus"] if gpu["memory_node"] is not None)
    assert memory == expected["gpu_memory"]


@pytest.mark.parametrize("board", BOARDS)
def test_every_gpu_has_its_names(played, board):
    gpus = played[1][board][0]["ansible_facts"]["gpu_host_topology"]["gpus"]
    assert all(gpu["uuid"].startswith("GPU-") and gpu["name"] for gpu in gpus)
    assert len({gpu["uuid"] for gpu in gpus}) == len(gpus)
    assert sorted(gpu["minor"] for gpu in gpus) == list(range(len(gpus)))


@pytest.mark.parametrize("board", BOARDS)
def test_check_mode_returns_the_same(played, board):
    real, checked = played[1][board]
    assert real["ansible_facts"] == checked["ansible_facts"]


@pytest.mark.parametrize("board", ["hgx_h100", "gb200"])
def test_nothing_is_left_on_the_host(fleet, played, board):
    from lab import snapshot

    assert snapshot.differences(played[0][board], fleet.host(board.replace("_", "-")).snapshot()) == []


def test_one_warning_a_cause(played):
    for board, (real, checked) in played[1].items():
        warnings = real.get("warnings", [])
        assert len(warnings) == len(set(warnings)) <= 4, board
        gpus = real["ansible_facts"]["gpu_host_topology"]["gpus"]
        unknown = [gpu["pci"] for gpu in gpus if gpu["node"] is None]
        named = [text for text in warnings if "is unknown" in text]
        assert len(named) == bool(unknown) and all(address in text for text in named for address in unknown)


def test_a_host_that_is_wired_otherwise_is_named(fleet, tmp_path):
    playbook = tmp_path / "expected.yml"
    playbook.write_text("""
- hosts: gpu_nodes
  gather_facts: false
  roles:
    - role: ai_infra.gpu_host.numa_affinity_facts
      numa_affinity_facts_expected: {"0000:1b:00.0": 1, "0000:43:00.0": 0, cpu_nodes: [0, 1], gpu_count: 7}
""")
    done = play(playbook, fleet.inventory({"training_nodes": ["hgx-h100"]}), "-l", "hgx-h100")
    assert done.failed == {"hgx-h100": 1}
    result = done.result("hgx-h100", "numa_affinity_facts")
    assert [(row["where"], row["what"], row["expected"], row["found"]) for row in result["mismatches"]] == [
        ("host", "gpu_count", "7", "8"), ("0000:1b:00.0", "node", "1", "0")]
    assert "0000:1b:00.0: node is 0 (from sysfs), expected 1" in done.output


@pytest.mark.parametrize("board", ["hgx_h100", "dgx_a100", "gh200", "gb200", "vm_one_node"])
def test_hints_are_what_the_real_programs_take(fleet, played, board):
    """numactl and systemd of the host itself accept every GPU's words. The machine below has fewer CPUs, so only
    GPUs that have some of those can run."""
    host = fleet.host(board.replace("_", "-"))
    found = played[1][board][0]["ansible_facts"]["gpu_host_topology"]
    runnable = 0
    for gpu in found["gpus"]:
        if not gpu["usable_cpulist"]:
            continue
        runnable += 1
        properties = [f"--property={line}" for line in gpu["hints"]["systemd"]]
        for words in (gpu["hints"]["numactl"], gpu["hints"]["numactl_strict"]):
            done = host.run("numactl", *words.split(), "true", check=False)
            assert done.returncode == 0, (words, done.stderr)
        done = host.run("systemd-run", "--quiet", "--wait", "--collect", *properties, "/bin/true", check=False)
        assert done.returncode == 0, (properties, done.stderr)
    assert runnable or board == "dgx_a100"  # node 0 of a DGX A100 has no GPU
