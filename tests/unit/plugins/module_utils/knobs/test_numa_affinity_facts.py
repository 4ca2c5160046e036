# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""numa_affinity_facts as a user sees it: a machine in, facts, warnings and hints out."""

from __future__ import annotations

import json

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import BadInput, NvmlError
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import numa_affinity_facts as knob
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._nvml import Gpu
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._topology.lists import parse_list
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_host import FakeHost
from ansible_collections.ai_infra.gpu_host.tests.unit.topologies import FACTS, build, machine

DRIVER = {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Kernel Module  550.90.07  Release Build\n"}


def run(host, check_mode=False, **params):
    given = {name: spec.get("default") for name, spec in knob.ARGUMENT_SPEC.items()}
    return knob.run(host, dict(given, **params), check_mode)


def facts(host, **params):
    return run(host, **params)["ansible_facts"]["gpu_host_topology"]


def places(rows):
    return {row["pci"]: (row["node"], row["source"]) for row in rows}


class FakeNvml:
    """NVML of a few GPUs. C(near) maps PCI ids to the nodes of GetMemoryAffinity."""

    def __init__(self, gpus, near=None, memory=None):
        self.all, self.near, self.memory = gpus, near or {}, memory or {}

    def planned(self):
        return self

    def gpus(self):
        return self.all

    def near_nodes(self, gpu):
        if gpu.pci not in self.near:
            raise NvmlError("not_supported", "call GetMemoryAffinity on", gpu.label, "NVML answers not supported (3)")
        return self.near[gpu.pci]

    def memory_node(self, gpu):
        return self.memory.get(gpu.pci)


# Machines

def test_power9_gpus_are_nodes_and_their_directories_are_nearly_empty():
    found = facts(FakeHost(**machine("power9_v100")))
    assert found["cpu_nodes"] == [0, 8] and found["memory_only_nodes"] == list(range(250, 256))
    assert places(found["gpus"]) == {
        "0004:05:00.0": (0, "local_cpus"), "0004:06:00.0": (0, "local_cpus"), "0006:00:00.0": (0, "local_cpus"),
        "0007:00:00.0": (8, "local_cpus"), "0035:04:00.0": (8, "local_cpus"), "0035:05:00.0": (8, "local_cpus"),
    }
    assert [gpu["memory_node"] for gpu in found["gpus"]] == [255, 254, 253, 252, 251, 250]
    assert [gpu["cpulist"] for gpu in found["gpus"]] == ["0-15"] * 3 + ["88-103"] * 3
    assert found["gpus"][0]["cores"] == [0, 1, 2, 3] and found["gpus"][3]["cores"] == [4, 5, 6, 7]
    assert found["cpuset_cpulist"] == "0-175" and found["cpuset_mems"] == "0,8,250-255"
    assert {node["gpu"] for node in found["nodes"] if node["kind"] == "memory"} == set(places(found["gpus"]))


def test_a_machine_without_pci_data_has_no_gpus_and_no_error():
    result = run(FakeHost(**machine("gb10")))
    found = result["ansible_facts"]["gpu_host_topology"]
    assert found["gpus"] == [] and found["cpu_nodes"] == [0] and found["online_cpulist"] == "0-19"
    assert result["warnings"] == [] and result["changed"] is False


def test_wide_pci_domains_survive_and_one_node_answers_for_minus_one():
    found = facts(FakeHost(**machine("wide_domain")))
    assert places(found["nvme"]) == {"10000:00:04.0": (0, "single_node")}
    assert found["nics"][0]["net"] == ["ens3"] and found["nics"][0]["cpulist"] == "0-1"


def test_a_local_list_of_every_cpu_is_no_evidence():
    """NUMA-1 and NUMA-11: -1 stays unknown on a host with several nodes, and is said once."""
    result = run(FakeHost(**machine("interleaved_unknown")))
    found = result["ansible_facts"]["gpu_host_topology"]
    gpu = found["gpus"][0]
    assert (gpu["node"], gpu["source"], gpu["cpu_node"], gpu["hints"]) == (None, None, None, None)
    assert gpu["ambiguous"] and gpu["candidates"] == [0, 1, 2, 3] and gpu["numa_node"] == -1
    assert places(found["nics"])["0000:43:00.0"] == (2, "sysfs")
    assert found["nics"][1]["rdma"] == ["mlx4_0"] and found["nics"][1]["cpulist"] == "2,6,10,14,18,22,26,30,34,38"
    assert (found["cpuset_cpulist"], found["cpuset_mems"]) == ("3,39", "3")
    assert result["warnings"] == ["The node of 0000:08:00.0 is unknown (candidates: 0-3). Name it with overrides if you know it"]


def test_nodes_filled_in_are_read_as_they_are():
    found = facts(FakeHost(**machine("interleaved_known")))
    assert [(gpu["node"], gpu["source"]) for gpu in found["gpus"]] == [(n, "sysfs") for n in (0, 1, 2, 3, 0, 2)]
    assert found["gpus"][1]["cores"] == list(range(10, 20))  # counted by socket, not by CPU number


def test_bridges_are_not_listed_and_disks_have_their_names():
    found = facts(FakeHost(**machine("bridges_say_nothing")))
    assert places(found["nvme"]) == {"0000:00:02.0": (0, "local_cpus")}
    assert found["nvme"][0]["controllers"] == ["nvme0"] and found["nvme"][0]["block"] == ["nvme0n1", "nvme0n2"]
    assert places(found["accelerators"]) == {"0000:83:00.0": (1, "sysfs")}
    assert found["offline_cpulist"] == "16-127"


def test_devices_need_not_be_spread_over_nodes():
    found = facts(FakeHost(**machine("all_on_one_node")))
    assert [one["node"] for one in found["accelerators"]] == [0] * 8 and found["gpus"] == []


def test_a_control_group_cuts_a_node():
    result = run(FakeHost(**machine("cgroup2_job")))
    found = result["ansible_facts"]["gpu_host_topology"]
    assert [gpu["usable_cpulist"] for gpu in found["gpus"]] == ["0-3", "4-5", ""]
    assert [gpu["cpulist"] for gpu in found["gpus"]] == ["0-3", "4-7", "8-11"]
    assert (found["cpuset_cpulist"], found["cpuset_mems"], found["offline_cpulist"]) == ("0-5", "0-5", "32-47")
    assert result["warnings"] == [
        "This process may use none of the CPUs near 0000:12:00.0 (it may use 0-5)"]


def test_only_nodes_that_exist_count_and_offline_cpus_are_cut():
    found = facts(FakeHost(**machine("offline_first_node")))
    assert found["cpu_nodes"] == [1] and found["total_nodes"] == 1
    gpu = found["gpus"][0]
    assert (gpu["node"], gpu["source"], gpu["cpulist"]) == (1, "single_node", "5,7,9,11,13,15,17,19")
    assert gpu["cores"] == list(range(9, 17))  # the nine cores of socket 0 come first


def test_masks_stand_in_for_lists_and_cpus_can_be_apart_from_memory():
    """NUMA-12 and numactl#165: a node without memory is bound by its CPUs, as numactl refuses its number."""
    found = facts(FakeHost(**machine("memory_apart")))
    assert found["cpu_nodes"] == [0, 1, 2, 3] and found["mem_nodes"] == [5, 6, 7, 8, 9, 10]
    assert found["empty_nodes"] == [4]
    assert found["gpus"][0]["cpulist"] == "2-3"
    assert found["gpus"][0]["hints"]["numactl"] == "--physcpubind=2-3"
    assert found["gpus"][0]["hints"]["systemd"] == ["CPUAffinity=2-3"]


def test_overlapping_nodes_are_named_and_no_place_is_invented():
    result = run(FakeHost(**machine("overlapping")))
    found = result["ansible_facts"]["gpu_host_topology"]
    assert found["gpus"][0]["node"] is None and found["gpus"][0]["candidates"] == list(range(8))
    assert "The nodes 0-7 claim the same CPUs" in result["warnings"][0]
    assert "The nodes 3-5 claim the same CPUs" in run(FakeHost(**machine("partly_overlapping")))["warnings"][0]


def test_allowed_sets_without_any_numa_directory():
    found = facts(FakeHost(**machine("cpuset_only")))
    assert (found["cpuset_cpulist"], found["cpuset_mems"]) == ("1-6,10,12-14", "1-2")
    assert found["numa"] is False and found["cpu_nodes"] == []


def test_a_nul_behind_a_list():
    found = facts(FakeHost(**machine("arm_nul")))
    assert [node["cpulist"] for node in found["nodes"]] == ["0-31", "32-63", "64-95", "96-127"]
    assert [(one["id"], one["nodes"]) for one in found["sockets"]] == [(36, [0, 1]), (8442, [2, 3])]


def test_a_kernel_without_numa_has_one_node_of_everything():
    host = FakeHost(**build({"online": "0-3", "pci": [
        {"pci": "0000:01:00.0", "class": "0x030000", "vendor": "0x10de", "local_cpulist": "0-3"}],
        "files": {"/proc/meminfo": "MemTotal:       16000000 kB\n"}}))
    found = facts(host)
    assert found["numa"] is False and found["nodes"][0]["memory_kb"] == 16000000
    assert places(found["gpus"]) == {"0000:01:00.0": (0, "single_node")}


def test_gh200_counts_cpu_nodes_not_nodes():
    """NUMA-4."""
    found = facts(FakeHost(**machine("gh200")))
    assert found["total_nodes"] == 9 and found["cpu_nodes"] == [0] and found["mem_nodes"] == [0, 1]
    assert found["memory_only_nodes"] == [1] and found["empty_nodes"] == list(range(2, 9))
    gpu = found["gpus"][0]
    assert gpu["node"] == 0 and gpu["memory_node"] == 1 and gpu["distances"] == {"0": 10, "1": 80}
    assert gpu["hints"]["numactl"] == "--cpunodebind=0 --preferred=0"
    assert found["hints"]["numactl_interleave"] == "--interleave=0"  # all would put pages into GPU memory


def test_gb200_tray():
    """NUMA-10 and NUMA-12: 34 nodes, two of them to bind to."""
    found = facts(FakeHost(**machine("gb200")))
    assert found["total_nodes"] == 34 and found["cpu_nodes"] == [0, 1]
    assert found["memory_only_nodes"] == [2, 10, 18, 26] and len(found["empty_nodes"]) == 28
    assert {gpu["pci"]: (gpu["node"], gpu["memory_node"], gpu["cpulist"]) for gpu in found["gpus"]} == {
        "0008:01:00.0": (0, 2, "0-71"), "0009:01:00.0": (0, 10, "0-71"),
        "0018:01:00.0": (1, 18, "72-143"), "0019:01:00.0": (1, 26, "72-143"),
    }
    assert found["gpus"][2]["distances"] == {"0": 40, "1": 10, "2": 120, "10": 120, "18": 80, "26": 80}
    assert found["hints"]["kubelet_max_allowable_numa_nodes"] == 34
    assert found["hints"]["systemd_numa_mask"] == "0-1"


def test_dgx_a100_nodes_are_not_sockets_and_slurm_counts_cores():
    """NUMA-8: logical CPUs 48-63,176-191 are cores 48-63; a part of a socket needs numa_node_as_socket."""
    found = facts(FakeHost(**machine("dgx_a100")))
    assert [gpu["node"] for gpu in found["gpus"]] == [3, 3, 1, 1, 7, 7, 5, 5]
    gpu = found["gpus"][0]
    assert gpu["cpulist"] == "48-63,176-191" and gpu["cores"] == list(range(48, 64))
    assert gpu["socket"] == 0 and gpu["socket_cpulist"] == "0-63,128-191"
    assert gpu["hints"]["slurm_cores"] == "48-63" and gpu["hints"]["slurm_parameters"] == "numa_node_as_socket"
    assert [nic["pci"] for nic in gpu["nearest_nics"]] == ["0000:0c:00.0", "0000:12:00.0"]
    assert gpu["nearest_nics"][0]["via"] == "switch" and gpu["nearest_nics"][0]["rdma"] == ["mlx5_0c"]
    wide = facts(FakeHost(**machine("dgx_a100")), scope="socket")["gpus"][0]["hints"]
    assert wide["numactl"] == "--cpunodebind=0-3 --preferred=3" and wide["numactl_strict"] == "--cpunodebind=0-3 --membind=0-3"
    assert wide["slurm_cores"] == "0-63" and wide["slurm_parameters"] is None


def test_guest_whose_devices_say_minus_one():
    """NUMA-5 and NUMA-9: NVML's 0-1 for every GPU means unknown; one warning for all eight."""
    board = machine("h100_vm")
    addresses = ["0000:%02x:00.0" % (0x61 + number) for number in range(8)]
    gpus = [Gpu(index, "GPU-%d" % index, pci, "H100") for index, pci in enumerate(addresses)]
    host = FakeHost(files=dict(board["files"], **DRIVER), links=board["links"],
                    nvml=FakeNvml(gpus, near={pci: [0, 1] for pci in addresses}))
    result = run(host)
    found = result["ansible_facts"]["gpu_host_topology"]
    assert {gpu["node"] for gpu in found["gpus"]} == {None} and all(gpu["ambiguous"] for gpu in found["gpus"])
    assert found["gpus"][0]["candidates"] == [0, 1] and found["virtual_machine"] == "qemu"
    assert len(result["warnings"]) == 1 and addresses[7] in result["warnings"][0]


@pytest.mark.parametrize("name", sorted(json.loads((FACTS / "cloud_shapes.json").read_text())))
@pytest.mark.parametrize("told", ["sysfs", "local_cpus"])
def test_cloud_shapes(name, told):
    """Node of each GPU and NIC as the providers' own topology files have it, by node number and by local CPUs."""
    shape = json.loads((FACTS / "cloud_shapes.json").read_text())[name]
    if told == "local_cpus" and len(shape["nodes"]) == 1:
        told = "single_node"

    def row(pci, node, kind):
        known = {"numa_node": node} if told == "sysfs" else {"numa_node": -1, "local_cpulist": shape["nodes"][str(node)]}
        return dict({"pci": pci}, **kind, **known)

    kind = {"class": "0x120000", "vendor": "0x1002"} if name.startswith("amd") else {"class": "0x030200", "vendor": "0x10de"}
    rows = [row(pci, node, kind) for pci, node in shape["devices"].items()]
    rows += [row(pci, node, {"class": "0x020700", "vendor": "0x15b3"}) for pci, node in shape["nics"].items()]
    found = facts(FakeHost(**build({"nodes": {n: {"cpus": cpus} for n, cpus in shape["nodes"].items()}, "pci": rows})))
    devices = found["accelerators" if name.startswith("amd") else "gpus"]
    assert places(devices) == {pci: (node, told) for pci, node in shape["devices"].items()}
    assert places(found["nics"]) == {pci: (node, told) for pci, node in shape["nics"].items()}
    assert all(parse_list(one["cpulist"]) == parse_list(shape["nodes"][str(one["node"])]) for one in devices)
