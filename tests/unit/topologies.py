# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small sysfs and procfs trees of known machines, built from the facts in fixtures/topologies.

    host = FakeHost(**machine("power9_v100"))

A fact file has C(nodes) ({id: {cpus, memory_mb, distance}}), C(packages) ({id: CPUs}), C(threads) (hardware threads
of a core, next to each other or, with C(stride), that far apart), C(pci) (rows of functions) and C(files) (whatever
else the machine has). C(quirks) names what its kernel does otherwise: C(mask_only) has no list files, C(nul) puts a NUL
behind each list, C(no_meminfo) has no memory figures.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._topology.lists import format_list, parse_list

FACTS = Path(__file__).parent / "fixtures" / "topologies"
NODES, CPUS, PCI = "/sys/devices/system/node", "/sys/devices/system/cpu", "/sys/bus/pci/devices"


def machine(name, **changes):
    """C(files) and C(links) of a machine for FakeHost. C(changes) replace facts of the same name."""
    facts = dict(json.loads((FACTS / (name + ".json")).read_text()), **changes)
    return build(facts)


def build(facts):
    quirks = facts.get("quirks", [])
    files = dict(facts.get("files", {}))
    add_nodes(files, facts, quirks)
    add_cpus(files, facts)
    return {"files": files, "links": add_functions(files, facts)}


def mask(cpus):
    value, words = sum(1 << cpu for cpu in cpus), []
    while value or not words:
        words.insert(0, "%08x" % (value & 0xFFFFFFFF))
        value >>= 32
    return ",".join(words)


def add_nodes(files, facts, quirks):
    end = "\n\0" if "nul" in quirks else "\n"
    nodes = facts.get("nodes", {})
    if nodes:
        files.setdefault(NODES + "/online", format_list(map(int, nodes)) + end)
    for number, node in nodes.items():
        folder = "%s/node%s/" % (NODES, number)
        cpus = parse_list(node.get("cpus", ""))
        files[folder + "cpumap"] = mask(cpus) + end
        if "mask_only" not in quirks:
            files[folder + "cpulist"] = format_list(cpus) + end
        if "no_meminfo" not in quirks:
            files[folder + "meminfo"] = "Node %s MemTotal:  %d kB\nNode %s MemFree:  1 kB\n" % (
                number, node.get("memory_mb", 0) * 1024, number)
        if "distance" in node:
            files[folder + "distance"] = node["distance"] + "\n"


def add_cpus(files, facts):
    online = facts.get("online") or format_list(
        set().union(*(parse_list(node.get("cpus", "")) for node in facts.get("nodes", {}).values())))
    files.setdefault(CPUS + "/online", online + "\n")
    files.setdefault(CPUS + "/offline", facts.get("offline", "") + "\n")
    threads = facts.get("threads", 1)
    for package, text in facts.get("packages", {}).items():
        own = sorted(parse_list(text))
        stride = facts.get("stride") or 1
        for place, cpu in enumerate(own):
            if facts.get("stride"):
                siblings = [other for other in own if (other - cpu) % stride == 0]
            else:
                first = place // threads * threads
                siblings = own[first:first + threads]
            folder = "%s/cpu%d/topology/" % (CPUS, cpu)
            files[folder + "physical_package_id"] = "%s\n" % package
            files[folder + "core_siblings_list"] = text + "\n"
            files[folder + "thread_siblings_list"] = format_list(siblings) + "\n"


def add_functions(files, facts):
    """One row a function: pci, class, and what else of vendor, numa_node, local_cpulist, local_cpus, parents, names."""
    links = {}
    for row in facts.get("pci", []):
        parents = row.get("parents", [])
        folder = PCI + "/" + row["pci"]
        if parents:
            real = "/sys/devices/" + "/".join(parents + [row["pci"]])
            links[folder] = real
            folder = real
        for name in ("class", "vendor", "numa_node", "local_cpulist", "local_cpus"):
            if name in row:
                files["%s/%s" % (folder, name)] = "%s\n" % row[name]
        for name in row.get("names", []):
            files["%s/%s/uevent" % (folder, name)] = "\n"
        for name, text in row.get("driver", {}).items():
            files["/proc/driver/nvidia/gpus/%s/%s" % (row["pci"], name)] = text
    return links
