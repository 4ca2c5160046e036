# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Door to the hardware's shape in /sys and /proc, on top of the host door. Private: may change at any time.

Every file may be missing or odd; what can't be told is None or empty. Hosts have hundreds of CPUs and PCI functions,
so a file is read only when something depends on it.
"""

from __future__ import annotations

import os.path
import re

from ._errors import HostError
from ._gpus import normal_pci
from ._topology import lists, nodes as numa, pci

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
PCI = "/sys/bus/pci/devices"
DRIVER_GPUS = "/proc/driver/nvidia/gpus"
HYPERVISORS = (  # (sys_vendor or product_name contains, what it is)
    ("KVM", "kvm"), ("QEMU", "qemu"), ("VMware", "vmware"), ("Amazon EC2", "amazon"), ("Google Compute", "google"),
    ("Virtual Machine", "microsoft"), ("OpenStack", "openstack"), ("Xen", "xen"), ("VirtualBox", "virtualbox"),
    ("Alibaba Cloud ECS", "alibaba"), ("Bochs", "bochs"), ("Parallels", "parallels"),
)


def read(host, path):
    """The text of a file, None also when the kernel refuses to say: facts are never worth a failure."""
    try:
        return host.read(path)
    except HostError:
        return None


def cpu_list(host, name):
    """One of the lists in the CPU directory, None when the kernel has no such file."""
    text = read(host, "%s/%s" % (CPUS, name))
    return None if text is None else frozenset(lists.parse_list(text))


def online_cpus(host):
    online = cpu_list(host, "online")
    if online:
        return online
    numbers = (re.match(r"^cpu(\d+)$", name) for name in host.listdir(CPUS))
    return frozenset(int(match.group(1)) for match in numbers if match)


def nodes(host, online):
    """(nodes, whether the kernel tells of any). Without NUMA there is one node of everything."""
    ids = sorted(int(name[4:]) for name in host.listdir(NODES) if re.match(r"^node\d+$", name))
    if not ids:
        text = read(host, "/proc/meminfo")
        return [numa.Node(0, online, numa.memory_kb(text), {})], False
    found = []
    for number in ids:
        folder = "%s/node%d/" % (NODES, number)
        cpulist = read(host, folder + "cpulist")
        cpus = lists.parse_cpus(cpulist, read(host, folder + "cpumap") if cpulist is None else None)
        found.append(numa.Node(number, frozenset(cpus), numa.memory_kb(read(host, folder + "meminfo")),
                               numa.distances(read(host, folder + "distance"), ids)))
    return found, True


def topology_file(host, cpu, name):
    return read(host, "%s/cpu%d/topology/%s" % (CPUS, cpu, name))


def sockets(host, online):
    """{socket id: CPUs}: two reads a socket where the kernel lists its CPUs."""
    found, rest = {}, set(online)
    while rest:
        cpu = min(rest)
        number = lists.parse_int(topology_file(host, cpu, "physical_package_id"))
        listed = topology_file(host, cpu, "package_cpus_list") or topology_file(host, cpu, "core_siblings_list")
        own = {cpu} | lists.parse_list(listed) & online
        if number is not None and number >= 0:
            found[number] = found.get(number, frozenset()) | own
        rest -= own
    return found


def siblings(host, groups):
    """The hardware threads of each core. C(groups) are sets of CPUs that no core crosses, such as the nodes.

    Kernels number the threads of a group either next to each other or a fixed distance apart. Two cores of a group
    show which; the rest is read one by one only where that does not fit the group's CPUs exactly.
    """
    groups = [set(group) for group in groups if group]
    if lists.clean(read(host, CPUS + "/smt/active")) == "0":
        return [{cpu} for group in groups for cpu in sorted(group)]
    return [core for group in groups for core in regular_cores(host, group) or every_core(host, group)]


def core_of(host, cpu, group):
    text = topology_file(host, cpu, "thread_siblings_list")
    mask = topology_file(host, cpu, "thread_siblings") if text is None else None
    return {cpu} | lists.parse_cpus(text, mask) & group


def regular_cores(host, group):
    """The cores of a group that repeats the pattern of its first core to its last CPU; None when it does not."""
    offsets = [cpu - min(group) for cpu in sorted(core_of(host, min(group), group))]
    found, rest = [], set(group)
    while rest:
        core = {min(rest) + offset for offset in offsets}
        if not core <= rest:
            return None
        found.append(core)
        rest -= core
    return found if core_of(host, max(group), group) == found[-1] else None


def every_core(host, group):
    found, rest = [], set(group)
    while rest:
        core = core_of(host, min(rest), rest)
        found.append(core)
        rest -= core
    return found


def l3_groups(host, online):
    """CPUs that share a cache of level 3; empty where there is none."""
    if not online:
        return []
    folder = "%s/cpu%d/cache/" % (CPUS, min(online))
    index = next((name for name in ("index3", "index2", "index4")
                  if lists.parse_int(read(host, folder + name + "/level")) == 3), None)
    if index is None:
        return []
    found, rest = [], set(online)
    while rest:
        folder = "%s/cpu%d/cache/%s/" % (CPUS, min(rest), index)
        text = read(host, folder + "shared_cpu_list")
        mask = read(host, folder + "shared_cpu_map") if text is None else None
        own = {min(rest)} | lists.parse_cpus(text, mask) & rest
        found.append(own)
        rest -= own
    return found


# PCI functions

def locality(host, address, known_nodes):
    """(numa_node, local CPUs) of a function. The CPUs are read only when the node says nothing."""
    folder = "%s/%s/" % (PCI, address)
    node = lists.parse_int(read(host, folder + "numa_node"))
    if node in known_nodes:
        return node, None
    text = read(host, folder + "local_cpulist")
    mask = read(host, folder + "local_cpus") if text is None else None
    return node, frozenset(lists.parse_cpus(text, mask))


def functions(host, known_nodes):
    """GPUs, accelerators, NICs and NVMe controllers. Virtual functions have the place of their physical one."""
    driver = {normal_pci(name): name for name in host.listdir(DRIVER_GPUS)}
    addresses = {normal_pci(name): name for name in host.listdir(PCI)}
    found = []
    for address in sorted(set(filter(None, list(addresses) + list(driver)))):
        name = addresses.get(address, address)
        folder = "%s/%s/" % (PCI, name)
        kind, vendor = "gpu", pci.NVIDIA
        if address in addresses:
            kind, vendor = identify(host, folder, address in driver)
        entries = host.listdir(folder) if kind else []
        if kind is None or "physfn" in entries:
            continue
        node, local = locality(host, name, known_nodes)
        path = device_path(host, name)
        found.append(pci.Function(address, kind, vendor, path, node, local, pci.parents(path),
                                  device_names(host, folder, kind, entries)))
    return found


def device_path(host, name):
    """The place of a function below /sys/devices; its name alone where the tree has no links."""
    target = os.path.normpath(os.path.join(PCI, host.readlink("%s/%s" % (PCI, name)) or name))
    return target[len("/sys/devices/"):] if target.startswith("/sys/devices/") else name


def identify(host, folder, has_driver):
    """(kind, vendor) of a function; kind None when it is nothing we report."""
    text = read(host, folder + "class")
    config = b"" if text is not None else config_bytes(host, folder)
    number = pci.base_class(text, config)
    if not pci.is_interesting(number):
        return None, None
    text = read(host, folder + "vendor")
    config = b"" if text is not None else config or config_bytes(host, folder)
    vendor = pci.vendor_id(text, config)
    return pci.kind_of(number, vendor, has_driver), vendor


def config_bytes(host, folder):
    return (read(host, folder + "config") or "").encode("utf-8", "surrogateescape")


def device_names(host, folder, kind, entries):
    """The names programs use: network and RDMA devices of a NIC, controllers and disks of an NVMe function."""
    def below(name):
        return host.listdir(folder + name) if name in entries else []

    if kind == "nic":
        virtio = [one for name in entries if name.startswith("virtio") for one in host.listdir(folder + name + "/net")]
        return {"net": below("net") + virtio, "rdma": below("infiniband")}
    if kind == "nvme":
        controllers = below("nvme")
        disks = [name for one in controllers for name in host.listdir("%snvme/%s" % (folder, one))]
        return {"controllers": controllers, "block": pci.block_devices(disks)}
    return {}


def driver_gpu(host, address):
    """(information, numa_status) of a GPU as the NVIDIA driver shows them; empty where it does not."""
    for name in host.listdir(DRIVER_GPUS):
        if normal_pci(name) == address:
            folder = "%s/%s/" % (DRIVER_GPUS, name)
            return (pci.driver_fields(read(host, folder + "information")),
                    pci.driver_fields(read(host, folder + "numa_status")))
    return {}, {}


# What this process may use

def allowed(host):
    """(CPUs, memory nodes) this process may use, by the kernel's own account; None where it gives none."""
    fields = pci.driver_fields(read(host, "/proc/self/status"))
    return tuple(frozenset(lists.parse_list(fields[name])) if name in fields else None
                 for name in ("Cpus_allowed_list", "Mems_allowed_list"))


def cpuset(host):
    """(CPUs, memory nodes) of the control group this process is in; None where there is none."""
    text = read(host, "/proc/self/mounts") or read(host, "/proc/mounts") or ""
    mounts = [line.split() for line in text.splitlines()]
    own = lists.clean(read(host, "/proc/self/cpuset")) or "/"
    groups = [line.split(":", 2) for line in (read(host, "/proc/self/cgroup") or "").splitlines()]
    unified = next((parts[2] for parts in groups if len(parts) == 3 and parts[0] == "0" and not parts[1]), own)
    for words in (words for words in mounts if len(words) >= 4):
        if words[2] == "cgroup2":
            path, names = unified, ("cpuset.cpus.effective", "cpuset.mems.effective")
        elif words[2] == "cpuset" or "noprefix" in words[3].split(",") and "cpuset" in words[3].split(","):
            path, names = own, ("cpus", "mems")
        elif words[2] == "cgroup" and "cpuset" in words[3].split(","):
            path, names = own, ("cpuset.cpus", "cpuset.mems")
        else:
            continue
        found = control_files(host, words[1].rstrip("/"), path, names)
        if found is not None:
            return found
    return None, None


def control_files(host, mount, path, names):
    """The two lists of a control group, or of the nearest one above it that has them."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    while True:
        texts = [read(host, "/".join([mount] + parts + [name])) for name in names]
        if None not in texts:
            return tuple(frozenset(lists.parse_list(text)) for text in texts)
        if not parts:
            return None
        parts.pop()


# What kind of machine this is

def virtual_machine(host):
    """The kind of hypervisor this kernel runs on, by the firmware's names; None on bare metal."""
    product = lists.clean(read(host, "/sys/class/dmi/id/product_name"))
    if ".metal" in product:
        return None
    names = "%s %s" % (lists.clean(read(host, "/sys/class/dmi/id/sys_vendor")), product)
    for word, kind in HYPERVISORS:
        if word in names:
            return kind
    return lists.clean(read(host, "/sys/hypervisor/type")) or None


def container(host):
    """The kind of container this is, by the marks that runtimes leave; None outside."""
    if host.exists("/run/systemd/container"):
        return lists.clean(read(host, "/run/systemd/container")) or "container"
    if host.exists("/.dockerenv"):
        return "docker"
    return "podman" if host.exists("/run/.containerenv") else None


def isolcpus(host):
    """The isolcpus argument of the kernel command line, None without one."""
    for word in lists.clean(read(host, "/proc/cmdline")).split():
        if word.startswith("isolcpus="):
            return word[len("isolcpus="):]
    return None
