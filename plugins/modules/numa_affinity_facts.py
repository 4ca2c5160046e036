#!/usr/bin/python

# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: numa_affinity_facts
short_description: Where GPUs, NICs and NVMe disks are, and how to bind a job near them
version_added: 1.0.0
description:
  - Reads which NUMA node, socket, CPUs and physical cores belong to each GPU, NIC and NVMe disk of a host, and
    returns it as the fact C(gpu_host_topology). It changes nothing.
  - The kernel's files are read first; NVML is joined by PCI bus id and adds the index, and the node where nothing
    else knows it. Without NVML the facts lack little.
  - Every answer says where it comes from. A device whose node nobody knows has none; it is never taken for node 0.
  - Nodes with CPUs, nodes with memory only (GPU memory of Grace and POWER9, CXL) and empty nodes are told apart. Only
    nodes with CPUs are recommended for CPUs.
  - The hints are ready to use for numactl, systemd units, Slurm's gres.conf and the kubelet.
extends_documentation_fragment:
  - ai_infra.gpu_host._attributes.facts
options:
  sysfs_root:
    description:
      - Directory that has C(sys) and C(proc) below it, for instance a copy taken from another host. NVML and what
        depends on the running process are left out then.
    type: path
    default: /
  gpus:
    description:
      - The GPUs to return, V(all) or a list of UUIDs, PCI bus ids and indices. O(expected) always looks at every
        device.
    type: list
    elements: str
    default: [all]
  scope:
    description:
      - What the hints bind to, the GPU's NUMA node or every node of its socket.
    type: str
    choices: [node, socket]
    default: node
  overrides:
    description:
      - Nodes of devices whose firmware does not tell or tells wrong, as a map of PCI bus id, UUID or GPU index to
        node. They win over every other source.
      - Put quotes around PCI bus ids. YAML takes an unquoted C(0000:18:00.0) for a number.
    type: dict
    default: {}
  expected:
    description:
      - What this host has to look like. The module fails and names every mismatch, with what is and what was expected.
      - A map of PCI bus id, UUID or GPU index to a node, to a list of nodes that are as good as each other, or to a
        map of C(node), C(socket), C(cpulist), C(memory_node) and C(source).
      - Beside devices it takes what holds for the host, C(cpu_nodes), C(mem_nodes), C(memory_only_nodes),
        C(empty_nodes), C(total_nodes) and C(gpu_count); and C(gpus), a map of devices.
    type: dict
    default: {}
  nvml:
    description:
      - Whether NVML is asked. V(auto) asks it on hosts that have the NVIDIA driver and goes on without when it does
        not answer.
    type: str
    choices: [auto, "off"]
    default: auto
  pynvml_path:
    description:
      - Directory with a pynvml to use. The controller's side of this module fills it in where the node has none.
    type: path
author:
  - ai_infra contributors (@ai-infra)
seealso:
  - module: ai_infra.gpu_host.host_profile
notes:
  - The order of the sources is O(overrides), C(numa_node) of the device, the only node with CPUs, the device's local
    CPUs unless they are all, the PCI bridges above it, NVML.
  - In a virtual machine the facts are what the guest sees; the host below may be wired in another way.
  - Name GPUs by UUID or PCI bus id. The index of NVML is not the one that C(CUDA_VISIBLE_DEVICES) counts.
"""

EXAMPLES = r"""
- name: Read the topology
  ai_infra.gpu_host.numa_affinity_facts:

- name: Start a server on the CPUs and memory of its GPU
  ansible.builtin.command:
    cmd: "numactl {{ gpu.hints.numactl }} /usr/local/bin/serve"
  environment: "{{ gpu.hints.environment }}"
  vars:
    gpu: "{{ gpu_host_topology.gpus | first }}"
  changed_when: true

- name: Lines for Slurm's gres.conf
  ansible.builtin.copy:
    dest: /etc/slurm/gres.conf
    content: "{{ gpu_host_topology.gpus | map(attribute='hints.slurm_gres') | join('\n') }}\n"
    mode: "0644"

- name: Fail when a board sits in another slot than the fleet's
  ai_infra.gpu_host.numa_affinity_facts:
    expected:
      cpu_nodes: [0, 1]
      gpu_count: 8
      "0000:18:00.0": 0
      "0000:9a:00.0": {node: 1, cpulist: "28-55,84-111"}

- name: Firmware that forgets the node of two boards
  ai_infra.gpu_host.numa_affinity_facts:
    overrides:
      "0000:3b:00.0": 0
      "0000:af:00.0": 1
"""

RETURN = r"""
ansible_facts:
  description: Facts of the host. A value that can't be told is empty or null.
  returned: always
  type: dict
  contains:
    gpu_host_topology:
      description: The topology.
      returned: always
      type: dict
      contains:
        gpus:
          description: NVIDIA GPUs by PCI bus id.
          returned: always
          type: list
          elements: dict
          contains:
            pci:
              description: PCI bus id as in sysfs.
              type: str
              returned: always
              sample: "0000:18:00.0"
            uuid:
              description: UUID, from NVML or else the driver's files.
              type: str
              returned: always
              sample: GPU-6f3f7f4d-0d2c-5b8e-8c6e-3f9f0f0a1b2c
            index:
              description: NVML's index. Information only, it changes when a GPU is lost.
              type: int
              returned: always
              sample: 0
            name:
              description: Product name.
              type: str
              returned: always
              sample: NVIDIA H100 80GB HBM3
            minor:
              description: Number of the device file C(/dev/nvidiaN).
              type: int
              returned: always
              sample: 0
            vendor:
              description: PCI vendor.
              type: str
              returned: always
              sample: "0x10de"
            node:
              description: NUMA node; null when nobody knows it.
              type: int
              returned: always
              sample: 0
            source:
              description: Who says so, one of V(override), V(sysfs), V(single_node), V(local_cpus), V(parent),
                V(nvml), or null.
              type: str
              returned: always
              sample: sysfs
            cpu_node:
              description: The node to bind CPUs to. RV(ansible_facts.gpu_host_topology.gpus[].node), or the nearest
                node with CPUs when that one has none.
              type: int
              returned: always
              sample: 0
            socket:
              description: Physical package of that node; null when the node spans several.
              type: int
              returned: always
              sample: 0
            cpulist:
              description: Online CPUs of the node.
              type: str
              returned: always
              sample: 0-27,56-83
            socket_cpulist:
              description: Online CPUs of the socket.
              type: str
              returned: always
              sample: 0-27,56-83
            usable_cpulist:
              description: Those of the node's CPUs that this process may use, by affinity and control group.
              type: str
              returned: always
              sample: 0-27,56-83
            cores:
              description: Indexes of the node's physical cores, counted by socket, node and CPU as Slurm does.
              type: list
              elements: int
              returned: always
              sample: [0, 1, 2, 3]
            distances:
              description: Firmware distance to each node with CPUs or memory, by node id.
              type: dict
              returned: always
              sample: {"0": 10, "1": 21}
            memory_node:
              description: The node that is this GPU's memory, on boards with coherent memory.
              type: int
              returned: always
              sample:
            ambiguous:
              description: Whether it can be one of several nodes.
              type: bool
              returned: always
              sample: false
            candidates:
              description: Those nodes.
              type: list
              elements: int
              returned: always
              sample: []
            numa_node:
              description: What the device's own C(numa_node) file says.
              type: int
              returned: always
              sample: 0
            ignored_node:
              description: A node the firmware names and the host does not have.
              type: int
              returned: always
              sample:
            nearest_nics:
              description: The NICs nearest to the GPU, and what joins them, V(switch), V(host_bridge), V(node) or
                V(socket).
              type: list
              elements: dict
              returned: always
              sample:
                - pci: "0000:1a:00.0"
                  via: switch
                  net: [ib0]
                  rdma: [mlx5_0]
            hints:
              description: How to bind a job to this GPU; null when its place is unknown. C(numactl) asks for near
                memory and C(numactl_strict) insists; C(systemd) are lines for a unit; C(slurm_cores), C(slurm_gres)
                and C(slurm_parameters) are for gres.conf and slurm.conf.
              type: dict
              returned: always
              sample:
                numactl: --cpunodebind=0 --preferred=0
                numactl_strict: --cpunodebind=0 --membind=0
                systemd: ["CPUAffinity=0-27,56-83", NUMAPolicy=preferred, NUMAMask=0]
                slurm_cores: 0-27
                slurm_gres: Name=gpu File=/dev/nvidia0 Cores=0-27
                slurm_parameters:
                environment: {CUDA_VISIBLE_DEVICES: GPU-6f3f7f4d-0d2c-5b8e-8c6e-3f9f0f0a1b2c}
        nics:
          description: Ethernet and InfiniBand functions, without virtual functions. The keys of a GPU that are not
            about GPUs, and C(net) and C(rdma), the names of their devices.
          returned: always
          type: list
          elements: dict
          sample:
            - pci: "0000:1a:00.0"
              node: 0
              source: sysfs
              net: [ib0]
              rdma: [mlx5_0]
        nvme:
          description: NVMe controllers, with C(controllers) and C(block), the names of their devices.
          returned: always
          type: list
          elements: dict
          sample:
            - pci: "0000:3b:00.0"
              node: 0
              source: sysfs
              controllers: [nvme0]
              block: [nvme0n1]
        accelerators:
          description: Accelerators that are not NVIDIA GPUs.
          returned: always
          type: list
          elements: dict
          sample: []
        nodes:
          description: The NUMA nodes. C(kind) is V(cpu), V(memory) or V(empty); C(gpu) is the GPU whose memory the
            node is.
          returned: always
          type: list
          elements: dict
          sample:
            - id: 0
              kind: cpu
              socket: 0
              cpulist: 0-27,56-83
              memory_kb: 1056375808
              distances: {"0": 10, "1": 21}
              gpu:
        cpu_nodes:
          description: Nodes with CPUs.
          returned: always
          type: list
          elements: int
          sample: [0, 1]
        mem_nodes:
          description: Nodes with memory.
          returned: always
          type: list
          elements: int
          sample: [0, 1]
        memory_only_nodes:
          description: Nodes with memory and no CPUs.
          returned: always
          type: list
          elements: int
          sample: []
        empty_nodes:
          description: Nodes with neither, such as those reserved for GPU instances.
          returned: always
          type: list
          elements: int
          sample: []
        total_nodes:
          description: How many nodes the kernel has online.
          returned: always
          type: int
          sample: 2
        numa:
          description: Whether the kernel tells of nodes at all; without, there is one node of everything.
          returned: always
          type: bool
          sample: true
        sockets:
          description: Physical packages.
          returned: always
          type: list
          elements: dict
          sample:
            - id: 0
              cpulist: 0-27,56-83
              nodes: [0]
        cores:
          description: How many physical cores are online.
          returned: always
          type: int
          sample: 56
        threads_per_core:
          description: Hardware threads of a core.
          returned: always
          type: int
          sample: 2
        l3_groups:
          description: CPUs that share a cache of level 3.
          returned: always
          type: list
          elements: str
          sample: ["0-27,56-83", "28-55,84-111"]
        online_cpulist:
          description: CPUs that are online.
          returned: always
          type: str
          sample: 0-111
        offline_cpulist:
          description: CPUs that are not.
          returned: always
          type: str
          sample: ""
        isolated_cpulist:
          description: CPUs that the kernel's scheduler leaves alone.
          returned: always
          type: str
          sample: ""
        isolcpus:
          description: The kernel argument of this name.
          returned: always
          type: str
          sample:
        allowed_cpulist:
          description: CPUs this process may use.
          returned: always
          type: str
          sample: 0-111
        allowed_mems:
          description: Nodes this process may allocate on.
          returned: always
          type: str
          sample: 0-1
        cpuset_cpulist:
          description: CPUs of the control group this process is in.
          returned: always
          type: str
          sample: 0-111
        cpuset_mems:
          description: Memory nodes of that control group.
          returned: always
          type: str
          sample: 0-1
        mempolicy_allowed:
          description: Whether a process may set its NUMA memory policy here, tried out; null when it can't be tried.
          returned: always
          type: bool
          sample: true
        mempolicy_reason:
          description: Why not.
          returned: always
          type: str
          sample:
        page_size:
          description: Bytes in a base page.
          returned: always
          type: int
          sample: 4096
        virtual_machine:
          description: The hypervisor, by the firmware's names; null on bare metal.
          returned: always
          type: str
          sample:
        container:
          description: The kind of container this is; null outside.
          returned: always
          type: str
          sample:
        hints:
          description: What holds for the host as a whole. C(kubelet_max_allowable_numa_nodes) is set where the
            kubelet's topology manager needs the option of this name.
          returned: always
          type: dict
          sample:
            numactl_interleave: --interleave=0-1
            systemd_numa_mask: 0-1
            kubelet_max_allowable_numa_nodes:
            environment: {CUDA_DEVICE_ORDER: PCI_BUS_ID}
        warnings:
          description: What a person should look at. The same are shown as warnings of the task.
          returned: always
          type: list
          elements: str
          sample: []
mismatches:
  description: Where the host is not as O(expected).
  returned: when it fails for that
  type: list
  elements: dict
  sample:
    - where: "0000:9a:00.0"
      what: node
      expected: "1"
      found: "0"
      source: sysfs
      candidates: []
nvml_binding:
  description: Set when the node's Python has no usable pynvml, for the controller's side of this module.
  returned: when it applies
  type: dict
  sample: {state: missing}
"""

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import run_module
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import numa_affinity_facts


def main():
    run_module(numa_affinity_facts)


if __name__ == "__main__":
    main()
