# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparing a host with what it should be. Pure."""

from __future__ import annotations

import re

from .._errors import BadInput
from .._gpus import normal_pci, refuse_number
from .lists import format_list, is_list, parse_list

HOST_WORDS = ("cpu_nodes", "mem_nodes", "empty_nodes", "memory_only_nodes", "total_nodes", "gpu_count")
DEVICE_WORDS = ("node", "socket", "cpulist", "memory_node", "source")
OLD_MIG = re.compile(r"^MIG-(GPU-[0-9a-fA-F-]+)/[0-9]+/[0-9]+$")


def device_key(key, option):
    """A name of a device as given: PCI bus id in sysfs form, UUID, or index. Raises BadInput."""
    text = str(key).strip()
    refuse_number(text, option)
    migrated = OLD_MIG.match(text)
    if migrated:
        return migrated.group(1)  # an instance is where its GPU is
    if normal_pci(text) or text.isdigit() or re.match(r"^(GPU|MIG)-", text):
        return normal_pci(text) or text
    raise BadInput("use the name", text, "%s takes PCI bus ids, UUIDs and GPU indices" % option,
                   "Look at gpu_host_topology for the names of this host's devices")


def find(devices, key):
    """The device of this name, or None."""
    for device in devices:
        if key == device["pci"] or device.get("uuid") and key == device["uuid"] or key == str(device.get("index")):
            return device
    return None


def node_ids(value, option):
    """A node, a list of them, or a node list as text, as a sorted list of ids. Raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, (int, str, list, tuple)):
        raise BadInput("use the nodes", value, "%s takes a node, a list of nodes or a text such as 0-1" % option)
    parts = value if isinstance(value, (list, tuple)) else [value]
    if not all(is_list(str(part)) for part in parts):
        raise BadInput("use the nodes", value, "%s takes a node, a list of nodes or a text such as 0-1" % option)
    return sorted(set().union(*(parse_list(str(part)) for part in parts)) if parts else set())


def wanted(expected):
    """The expectation, checked: ({host word: value}, {device name: {word: value}}). Raises BadInput."""
    host, devices = {}, {}
    for key, value in expected.items():
        if key == "gpus" and isinstance(value, dict):
            devices.update({device_key(name, "expected"): device_wish(wish) for name, wish in value.items()})
        elif key in ("total_nodes", "gpu_count"):
            if isinstance(value, bool) or not str(value).isdigit():
                raise BadInput("use", key, "it is %r" % (value,), "Give a number")
            host[key] = int(value)
        elif key in HOST_WORDS:
            host[key] = node_ids(value, "expected")
        else:
            devices[device_key(key, "expected")] = device_wish(value)
    return host, devices


def device_wish(value):
    """What is expected of one device. A bare node or several mean C(node); several are as good as each other."""
    if not isinstance(value, dict):
        return {"node": node_ids(value, "expected")}
    unknown = sorted(str(word) for word in value if word not in DEVICE_WORDS)
    if unknown:
        raise BadInput("expect", ", ".join(unknown), "a device has no such word",
                       "There are: " + ", ".join(DEVICE_WORDS))
    wish = dict(value)
    for word in ("node", "socket", "memory_node"):
        if word in wish:
            wish[word] = node_ids(wish[word], "expected")
    return wish


def mismatches(expectation, facts):
    """Every difference as {where, what, expected, found}."""
    host, devices = expectation
    rows = []
    for word, value in sorted(host.items()):
        found = len(facts["gpus"]) if word == "gpu_count" else facts[word]
        if found != value:
            rows.append(row("host", word, shown(value), shown(found)))
    every = facts["gpus"] + facts["accelerators"] + facts["nics"] + facts["nvme"]
    for key, wish in sorted(devices.items()):
        device = find(every, key)
        if device is None:
            rows.append(row(key, "device", "present", "absent"))
            continue
        for word, value in sorted(wish.items()):
            found = device.get(word)
            if word == "cpulist":
                fits = parse_list(str(value)) == parse_list(found)
            else:
                fits = found in value if isinstance(value, list) else found == value
            if not fits:
                rows.append(row(device["pci"] or key, word, shown(value), shown(found), device))
    return rows


def row(where, what, expected, found, device=None):
    more = {"source": device["source"], "candidates": device["candidates"]} if device and what == "node" else {}
    return dict({"where": where, "what": what, "expected": expected, "found": found}, **more)


def shown(value):
    if isinstance(value, list):
        return format_list(value) or "none"
    return "unknown" if value is None else str(value)


def message(rows):
    """All mismatches in one text."""
    parts = []
    for one in rows:
        if one["what"] == "device":
            parts.append("%s: no such device on this host" % one["where"])
            continue
        said = " (%s)" % ("from " + one["source"] if one["source"] else "candidates " + shown(one["candidates"])) \
            if "source" in one else ""
        parts.append("%s: %s is %s%s, expected %s" % (one["where"], one["what"], one["found"], said, one["expected"]))
    return "This host is not as expected. " + "; ".join(parts)
