# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Naming GPUs: PCI bus ids in one spelling, and the user's choice matched to what is there. Pure.

NVML prints 00000000:65:00.0 in upper case, sysfs 0000:65:00.0 in lower case, wider above domain ffff.
The parts are parsed as integers; strings are never sliced.
"""

from __future__ import annotations

import re

from ._errors import BadInput

PCI = re.compile(r"^(?:([0-9a-fA-F]+):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])$")
YAML_NUMBER = re.compile(r"^[0-9]+\.[0-9]+$")


def refuse_number(name, option):
    """Tell a user whose PCI bus id became a number on its way here. Raises BadInput."""
    if YAML_NUMBER.match(str(name)):
        raise BadInput("use the name", name, "%s has a number where a device should be: YAML takes an unquoted "
                       "0000:18:00.0 for a number to base 60" % option, "Put quotes around PCI bus ids")


def normal_pci(text):
    """A PCI bus id as sysfs writes it, or None when the text is none."""
    match = PCI.match((text or "").strip())
    if not match:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return "%04x:%02x:%02x.%x" % (domain, bus, device, function)


def select(gpus, wanted, pci_count=None):
    """The GPUs a user named: C(all), or a list of UUIDs, PCI bus ids and indices, mixed as they like.

    C(gpus) have uuid, pci and index. An index is refused while NVML and PCI count differently: a lost GPU
    shifts the numbers and the wrong board would be touched.
    """
    names = [str(name).strip() for name in (wanted if isinstance(wanted, (list, tuple)) else [wanted])]
    if names == ["all"]:
        return list(gpus)
    if "all" in names or not names:
        raise BadInput("use the option", "gpus", "it is %r" % (wanted,), "Give either all, or a list of GPUs")
    chosen = []
    for name in names:
        refuse_number(name, "gpus")
        if name.isdigit() and pci_count is not None and pci_count != len(gpus):
            raise BadInput(
                "use the index", name, "NVML counts %d GPUs and the PCI bus %d, so indices have shifted"
                % (len(gpus), pci_count), "Name GPUs by UUID or PCI bus id")
        found = [gpu for gpu in gpus if name in (gpu.uuid, str(gpu.index)) or (gpu.pci and normal_pci(name) == gpu.pci)]
        if not found:
            raise BadInput("find the GPU", name, "this host has no such GPU", "It has " + (", ".join(
                "%s (%s, index %s)" % (gpu.uuid, gpu.pci, gpu.index) for gpu in gpus) or "none"))
        chosen += [gpu for gpu in found if gpu not in chosen]
    return chosen
