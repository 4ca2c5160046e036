# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""numa_affinity_facts as a user sees it: a machine in, facts, warnings and hints out."""

from __future__ import annotations

import json
import random
import time

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _sysfs
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
    assert result["warnings"] == [
        "The node of 0000:08:00.0 is unknown (candidates: 0-3). Name it with overrides if you know it"]


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
    assert wide["numactl"] == "--cpunodebind=0-3 --preferred=3"
    assert wide["numactl_strict"] == "--cpunodebind=0-3 --membind=0-3"
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
        known = {"numa_node": node}
        if told != "sysfs":
            known = {"numa_node": -1, "local_cpulist": shape["nodes"][str(node)]}
        return dict({"pci": pci}, **kind, **known)

    amd = name.startswith("amd")
    kind = {"class": "0x120000", "vendor": "0x1002"} if amd else {"class": "0x030200", "vendor": "0x10de"}
    rows = [row(pci, node, kind) for pci, node in shape["devices"].items()]
    rows += [row(pci, node, {"class": "0x020700", "vendor": "0x15b3"}) for pci, node in shape["nics"].items()]
    found = facts(FakeHost(**build({"nodes": {n: {"cpus": cpus} for n, cpus in shape["nodes"].items()}, "pci": rows})))
    devices = found["accelerators" if amd else "gpus"]
    assert places(devices) == {pci: (node, told) for pci, node in shape["devices"].items()}
    assert places(found["nics"]) == {pci: (node, told) for pci, node in shape["nics"].items()}
    assert all(parse_list(one["cpulist"]) == parse_list(shape["nodes"][str(one["node"])]) for one in devices)


# NVML

def two_gpus(nvml=None, **more):
    """Two sockets, a GPU each."""
    board = build({
        "nodes": {"0": {"cpus": "0-3,8-11", "memory_mb": 1000}, "1": {"cpus": "4-7,12-15", "memory_mb": 1000}},
        "packages": {"0": "0-3,8-11", "1": "4-7,12-15"}, "threads": 2, "stride": 8, "pci": [
            dict({"pci": "0000:3b:00.0", "class": "0x030200", "vendor": "0x10de", "numa_node": 0}, **more),
            dict({"pci": "0001:af:00.0", "class": "0x030200", "vendor": "0x10de", "numa_node": 1}, **more)]})
    return FakeHost(files=dict(board["files"], **DRIVER), links=board["links"], nvml=nvml)


def swapped():
    """NVML that counts the GPUs the other way round, as it may."""
    return FakeNvml([Gpu(0, "GPU-b", "0001:af:00.0", "H100"), Gpu(1, "GPU-a", "0000:3b:00.0", "H100")])


def test_nvml_is_joined_by_pci_id_not_by_order():
    """NUMA-7: index and bus order differ, so a job is given the UUID."""
    found = facts(two_gpus(swapped()))
    assert {gpu["pci"]: (gpu["index"], gpu["uuid"], gpu["node"]) for gpu in found["gpus"]} == {
        "0000:3b:00.0": (1, "GPU-a", 0), "0001:af:00.0": (0, "GPU-b", 1)}
    assert found["gpus"][0]["hints"]["environment"] == {"CUDA_VISIBLE_DEVICES": "GPU-a"}
    assert found["hints"]["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [gpu["pci"] for gpu in facts(two_gpus(swapped()), gpus=["0"])["gpus"]] == ["0001:af:00.0"]


@pytest.mark.parametrize("near, expected", [
    ([1], (1, "nvml")), ([0, 1], (None, None)), ([], (None, None)), ([1, 2, 18], (1, "nvml"))])
def test_nvml_answers_where_nothing_else_does(near, expected):
    nvml = FakeNvml([Gpu(0, "GPU-a", "0000:3b:00.0", "H100")], near={"0000:3b:00.0": near})
    found = facts(two_gpus(nvml, numa_node=-1))
    assert places(found["gpus"])["0000:3b:00.0"] == expected
    assert places(found["gpus"])["0001:af:00.0"] == (None, None)  # NVML does not support the question there


@pytest.mark.parametrize("kind", ["binding_missing", "binding_too_old"])
def test_a_missing_binding_is_no_failure_and_can_be_brought(kind):
    state = kind.replace("binding_", "")
    error = NvmlError(kind, "talk to", "NVML", "the node's Python has no pynvml", nvml_binding={"state": state})
    result = run(two_gpus(error))
    assert result["nvml_binding"] == {"state": state}
    assert places(result["ansible_facts"]["gpu_host_topology"]["gpus"]) == {
        "0000:3b:00.0": (0, "sysfs"), "0001:af:00.0": (1, "sysfs")}
    without_driver = two_gpus(error)
    del without_driver.files["/proc/driver/nvidia/version"]
    assert "nvml_binding" not in run(without_driver) and run(without_driver)["warnings"] == []
    assert "nvml_binding" not in run(two_gpus(error), nvml="off")


def test_nvml_that_does_not_answer_is_one_warning():
    error = NvmlError("version_mismatch", "initialise", "NVML", "the driver's library and kernel module differ",
                      "Reboot")
    result = run(two_gpus(error))
    assert result["warnings"] == ["Cannot initialise NVML: the driver's library and kernel module differ. Reboot."]
    assert "nvml_binding" not in result and len(result["ansible_facts"]["gpu_host_topology"]["gpus"]) == 2


def test_a_lost_gpu_hides_no_other():
    lost = NvmlError("gpu_is_lost", "ask", "GPU 1", "NVML answers gpu is lost (15)")
    nvml = FakeNvml([Gpu(0, "GPU-a", "0000:3b:00.0", "H100"), Gpu(1, None, "0001:af:00.0", None, lost)])
    result = run(two_gpus(nvml))
    assert result["warnings"] == ["NVML can not ask 0001:af:00.0"]
    found = result["ansible_facts"]["gpu_host_topology"]["gpus"]
    assert [(gpu["uuid"], gpu["index"], gpu["node"]) for gpu in found] == [("GPU-a", 0, 0), (None, 1, 1)]


def test_the_drivers_files_name_gpus_without_nvml():
    text = "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-%s\nDevice Minor: \t 3\n"
    host = two_gpus(nvml=None,
                    driver={"information": text % "1234", "numa_status": "Node:\t\t -1\nStatus:\t disabled\n"})
    gpu = facts(host, nvml="off")["gpus"][0]
    assert (gpu["uuid"], gpu["name"], gpu["minor"], gpu["memory_node"]) == ("GPU-1234", "NVIDIA H100", 3, None)
    assert gpu["hints"]["slurm_gres"] == "Name=gpu File=/dev/nvidia3 Cores=0-3"
    host = two_gpus(nvml=None, driver={"information": text % "????????-????"})
    assert facts(host, nvml="off")["gpus"][0]["uuid"] is None


# Overrides and expectations

def test_an_override_wins_over_lying_firmware():
    found = facts(two_gpus(swapped()), overrides={"0000:3B:00.0": 1, "GPU-b": "0"})
    assert places(found["gpus"]) == {"0000:3b:00.0": (1, "override"), "0001:af:00.0": (0, "override")}
    assert found["gpus"][0]["numa_node"] == 0 and found["gpus"][0]["cpulist"] == "4-7,12-15"


def test_overrides_of_other_hosts_devices_are_said_once():
    assert run(two_gpus(swapped()), overrides={"0000:99:00.0": 0, "GPU-z": 1})["warnings"] == [
        "overrides names no device of this host: 0000:99:00.0, GPU-z"]


@pytest.mark.parametrize("overrides, words", [
    ({"0000:3b:00.0": 7}, ["node 7", "It has the nodes 0-1"]), ({"0000:3b:00.0": "0-1"}, ["Give one node"]),
    ({"0000:3b:00.0": "N/A"}, ["a node"]), ({"0000:3b:00.0": True}, ["a node"]),
    ({"gpu zero": 0}, ["gpu zero", "UUIDs"]),
    ({1080.0: 0}, ["base 60", "quotes"]),
])
def test_bad_overrides_are_refused(overrides, words):
    with pytest.raises(BadInput) as refused:
        run(two_gpus(swapped()), overrides=overrides)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("expected", [
    {"0000:3b:00.0": 0, "GPU-bbbb": [0, 1], "1": 0, 0: "1"},
    {"cpu_nodes": [0, 1], "mem_nodes": "0-1", "total_nodes": 2, "empty_nodes": [], "gpu_count": 2},
    {"gpus": {"0001:AF:00.0": {"node": 1, "socket": 1, "cpulist": "12-15,4-7", "source": "sysfs"}}},
    {"MIG-GPU-aaaa/1/0": 0},
])
def test_a_host_as_expected(expected):
    nvml = FakeNvml([Gpu(0, "GPU-bbbb", "0001:af:00.0", "H100"), Gpu(1, "GPU-aaaa", "0000:3b:00.0", "H100")])
    result = run(two_gpus(nvml), expected=expected)
    assert "failed" not in result and "mismatches" not in result


def test_every_mismatch_is_named():
    result = run(two_gpus(swapped()), expected={
        "0000:3b:00.0": 1, "GPU-b": {"node": 1, "cpulist": "0-3"}, "0000:99:00.0": 0, "total_nodes": 3,
        "cpu_nodes": [0]})
    assert result["failed"] and result["changed"] is False
    assert result["msg"] == (
        "This host is not as expected. host: cpu_nodes is 0-1, expected 0; host: total_nodes is 2, expected 3; "
        "0000:3b:00.0: node is 0 (from sysfs), expected 1; 0000:99:00.0: no such device on this host; "
        "0001:af:00.0: cpulist is 4-7,12-15, expected 0-3")
    assert len(result["mismatches"]) == 5 and "gpu_host_topology" in result["ansible_facts"]


def test_an_unknown_node_is_a_mismatch_with_its_candidates():
    result = run(two_gpus(swapped(), numa_node=-1), expected={"0000:3b:00.0": 0})
    assert "node is unknown (candidates 0-1), expected 0" in result["msg"]


@pytest.mark.parametrize("expected, words", [
    ({"0000:3b:00.0": {"nodes": 1}}, ["nodes", "no such word"]), ({"total_nodes": "two"}, ["total_nodes"]),
    ({"0000:3b:00.0": None}, ["a node"]), ({"cpu_node": [0]}, ["cpu_node"]), ({"1080.0": 0}, ["quotes"]),
])
def test_bad_expectations_are_refused(expected, words):
    with pytest.raises(BadInput) as refused:
        run(two_gpus(swapped()), expected=expected)
    assert all(word in str(refused.value) for word in words)


def test_expected_looks_at_every_device_whatever_is_returned():
    result = run(two_gpus(swapped()), gpus=["GPU-a"], expected={"GPU-b": 0})
    shown = result["ansible_facts"]["gpu_host_topology"]["gpus"]
    assert result["failed"] and [gpu["uuid"] for gpu in shown] == ["GPU-a"]


# What this process may do

def status(cpus, mems):
    text = "Name:\tpython3\nCpus_allowed:\t3\nCpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n"
    return {"/proc/self/status": text % (cpus, mems)}


def test_one_warning_a_cause_when_affinity_cuts_a_board_off():
    host = FakeHost(**machine("dgx_a100"))
    host.files.update(status("0-1", "0"))
    result = run(host)
    found = result["ansible_facts"]["gpu_host_topology"]
    assert found["allowed_cpulist"] == "0-1" and found["gpus"][0]["usable_cpulist"] == ""
    assert len(result["warnings"]) == 2
    assert "may use none of the CPUs near 0000:07:00.0, 0000:0f:00.0" in result["warnings"][0]
    assert "may not allocate on node 1,3,5,7" in result["warnings"][1]


def test_memory_binding_that_would_fail_is_not_recommended():
    """NUMA-6: membind outside cpuset.mems or behind a system call filter kills the worker at start."""
    host = two_gpus(swapped())
    host.files.update(status("0-15", "0"))
    inside, outside = [gpu["hints"] for gpu in facts(host)["gpus"]]
    assert inside["numactl_strict"] == "--cpunodebind=0 --membind=0"
    assert outside["numactl_strict"] == outside["numactl"] == "--cpunodebind=1"
    assert outside["systemd"] == ["CPUAffinity=4-7,12-15"]

    class Filtered(FakeHost):
        def memory_policy(self):
            return False, "a system call filter forbids it"

    result = run(Filtered(host.files, host.links, nvml=swapped()))
    found = result["ansible_facts"]["gpu_host_topology"]
    assert found["mempolicy_allowed"] is False and found["gpus"][0]["hints"]["numactl"] == "--cpunodebind=0"
    assert "Memory can't be bound to nodes here: a system call filter forbids it" in result["warnings"]


def test_isolated_cpus_are_reported():
    """NUMA-13."""
    host = two_gpus(swapped())
    host.files.update({"/proc/cmdline": "BOOT_IMAGE=/vmlinuz isolcpus=managed_irq,domain,4-7 quiet\n",
                       "/sys/devices/system/cpu/isolated": "4-7\n"})
    result = run(host)
    found = result["ansible_facts"]["gpu_host_topology"]
    assert (found["isolcpus"], found["isolated_cpulist"]) == ("managed_irq,domain,4-7", "4-7")
    assert any("isolcpus=managed_irq,domain,4-7" in text for text in result["warnings"])


def test_check_mode_answers_the_same_and_nothing_is_written():
    host = two_gpus(swapped())
    assert run(host) == run(host, check_mode=True) == run(host.planned())
    assert host.writes == [] and host.acted == []


def test_containers_and_bare_metal_instances():
    host = two_gpus(swapped())
    host.files.update({"/.dockerenv": "", "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                       "/sys/class/dmi/id/product_name": "p5.metal-48xl\n"})
    found = facts(host)
    assert (found["container"], found["virtual_machine"]) == ("docker", None)


# Odd machines

def test_functions_of_others_and_virtual_functions_are_no_gpus():
    """NUMA-2 and NUMA-3 come from reading nvidia-smi's table; here every word is the kernel's, also an odd one."""
    rows = [
        {"pci": "0000:01:00.0", "class": "0x068000", "vendor": "0x10de", "numa_node": 0},   # NVSwitch
        {"pci": "0000:02:00.1", "class": "0x040300", "vendor": "0x10de", "numa_node": 0},   # audio
        {"pci": "0000:03:00.0", "class": "0x060400", "vendor": "0x10de", "numa_node": 0},   # Grace bridge
        {"pci": "0000:04:00.0", "class": "0x030000", "vendor": "0x1a03", "numa_node": 0},   # board management
        {"pci": "0000:05:00.4", "class": "0x030200", "vendor": "0x10de", "numa_node": 0, "names": ["physfn"]},
        {"pci": "0000:06:00.0", "class": "0x030200", "vendor": "0x10de", "numa_node": "N/A", "local_cpulist": "0-1"},
        {"pci": "0000:07:00.0", "class": "garbled", "vendor": "0x10de", "numa_node": 0},
        {"pci": "not an address", "class": "0x030200", "vendor": "0x10de", "numa_node": 0},
    ]
    host = FakeHost(**build({"nodes": {"0": {"cpus": "0-1"}, "1": {"cpus": "2-3"}}, "pci": rows}))
    found = facts(host)
    assert places(found["gpus"]) == {"0000:06:00.0": (0, "local_cpus")}
    assert found["nics"] == found["nvme"] == found["accelerators"] == []


def test_configuration_bytes_stand_in_for_missing_files():
    header = (b"\xde\x10\x30\x23\x06\x05\x10\x00\xa1\x00\x02\x03" + bytes(52)).decode("utf-8", "surrogateescape")
    host = FakeHost(**build({"nodes": {"0": {"cpus": "0-1"}, "1": {"cpus": "2-3"}},
                             "pci": [{"pci": "0000:06:00.0", "numa_node": 1}]}))
    host.files["/sys/bus/pci/devices/0000:06:00.0/config"] = header
    assert places(facts(host)["gpus"]) == {"0000:06:00.0": (1, "sysfs")}


def test_a_parent_bridge_answers_for_a_silent_device():
    rows = [{"pci": "0000:3a:00.0", "class": "0x060400", "vendor": "0x8086", "numa_node": 1, "parents": ["pci0000:3a"]},
            {"pci": "0000:3b:00.0", "class": "0x030200", "vendor": "0x10de", "numa_node": -1, "local_cpulist": "0-3",
             "parents": ["pci0000:3a", "0000:3a:00.0"]}]
    found = facts(FakeHost(**build({"nodes": {"0": {"cpus": "0-1"}, "1": {"cpus": "2-3"}}, "pci": rows})))
    assert places(found["gpus"]) == {"0000:3b:00.0": (1, "parent")}


def test_a_node_that_is_not_there_is_not_believed():
    result = run(two_gpus(swapped(), numa_node=5))
    gpu = result["ansible_facts"]["gpu_host_topology"]["gpus"][0]
    assert (gpu["node"], gpu["ignored_node"]) == (None, 5)
    assert ("The firmware puts 0000:3b:00.0 (node 5), 0001:af:00.0 (node 5) on a node this host does not have"
            in result["warnings"])


def test_a_gpu_on_a_memory_only_node_binds_to_the_nearest_cpus():
    nodes = {"0": {"cpus": "0-1", "memory_mb": 1, "distance": "10 40 80"},
             "1": {"cpus": "2-3", "memory_mb": 1, "distance": "40 10 20"},
             "2": {"memory_mb": 1, "distance": "80 20 10"}}
    row = {"pci": "0000:3b:00.0", "class": "0x030200", "vendor": "0x10de", "numa_node": 2}
    gpu = facts(FakeHost(**build({"nodes": nodes, "pci": [row]})))["gpus"][0]
    assert (gpu["node"], gpu["cpu_node"], gpu["hints"]["numactl"]) == (2, 1, "--cpunodebind=1 --preferred=1")


def test_a_tree_copied_from_another_host(tmp_path):
    """sysfs_root: real files, real links, nothing of this machine."""
    board = machine("dgx_a100")
    for path, text in board["files"].items():
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(text)
    for link, target in board["links"].items():
        (tmp_path / link[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link[1:]).symlink_to("../../../../" + target[1:])
    found = facts(FakeHost(), sysfs_root=str(tmp_path))
    expected = facts(FakeHost(**board))
    assert found["gpus"] == expected["gpus"] and found["nodes"] == expected["nodes"]
    assert found["mempolicy_allowed"] is None and found["page_size"] is None
    with pytest.raises(BadInput, match="no such directory"):
        run(FakeHost(), sysfs_root=str(tmp_path / "nowhere"))


def test_files_are_read_only_as_needed():
    """A DGX has 256 CPUs and a GB200 tray 34 nodes: the second run of a profile has no time for all their files."""

    class Counting(FakeHost):
        reads = 0

        def read(self, path):
            self.reads += 1
            return super().read(path)

    for name, most in (("dgx_a100", 120), ("gb200", 150)):
        host = Counting(**machine(name))
        run(host)
        assert host.reads <= most, name


@pytest.mark.parametrize("siblings", [
    {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 4: "4", 5: "5", 6: "6", 7: "7"},        # two kinds of cores
    {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2", 3: "3,7", 7: "3,7"},            # one thread offline
    {0: "0,7", 7: "0,7", 1: "1,4", 4: "1,4", 2: "2,5", 5: "2,5", 3: "3,6", 6: "3,6"},  # no pattern
])
def test_cores_without_a_pattern_are_read_one_by_one(siblings):
    board = build({"nodes": {"0": {"cpus": ",".join(map(str, siblings))}},
                   "packages": {"0": ",".join(map(str, siblings))}})
    for cpu, text in siblings.items():
        board["files"]["/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu] = text + "\n"
    host = FakeHost(**board)
    expected = []
    for cpu in sorted(siblings):
        if not any(cpu in core for core in expected):
            expected.append(parse_list(siblings[cpu]))
    assert _sysfs.siblings(host, [set(siblings)]) == expected
    assert facts(host)["cores"] == len(expected)


def test_no_machine_makes_it_fail():
    """Seeded fuzzing, two seconds: files of known machines missing, refused or garbled."""
    seed = 4711
    source = random.Random(seed)
    garbage = ["", "\n", "\0", "N/A\n", "-1\n", "0-1\n", "999999\n", "0x\n", "\udcde\udc10", "Node: x\n", "a b c\n",
               5, 13]
    names = sorted(path.stem for path in FACTS.glob("*.json") if path.stem not in ("cloud_shapes", "gb200", "dgx_a100"))
    end, tried = time.monotonic() + 2, 0
    while time.monotonic() < end:
        name = source.choice(names)
        board = machine(name)
        for path in source.sample(sorted(board["files"]), min(len(board["files"]), source.randrange(1, 30))):
            if source.random() < 0.4:
                del board["files"][path]
            else:
                board["files"][path] = source.choice(garbage)
        result = run(FakeHost(**board))
        assert json.loads(json.dumps(result)) == result, (seed, tried, name)
        tried += 1
    assert tried > 20
