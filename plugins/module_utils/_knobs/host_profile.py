# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several knobs in one round trip: all are planned before the first one changes anything.

Each knob runs on a planned host that already holds what the earlier ones would leave, which is what makes
check mode truthful across knobs. Only when that pass found something to do are they run for real.
"""

from __future__ import annotations

from .. import _ansible
from .._errors import BadInput, GpuHostError
from . import gpu_persistence, kernel_values, memlock_limits, numa_affinity_facts, thp_mode

KNOBS = {
    "gpu_persistence": gpu_persistence,
    "numa_affinity_facts": numa_affinity_facts,
    "memlock_limits": memlock_limits,
    "thp_mode": thp_mode,
    "kernel_values": kernel_values,
}

ARGUMENT_SPEC = {
    "knobs": {"type": "list", "elements": "dict", "required": True},
    "pynvml_path": {"type": "path"},
}


def run(host, params, check_mode):
    """Plan every knob, then apply those of the list in order; a failing knob stops the list."""
    wanted = wanted_knobs(params["knobs"])
    done, error = run_list(host.planned(), wanted)
    if error is not None:
        raise error  # nothing has been touched
    if not check_mode and any(result.get("changed") for name, result in done):
        done, error = run_list(host, wanted)
    return summary(done, error)


def wanted_knobs(entries):
    """[(knob, its parameters)], each checked against the knob's own ARGUMENT_SPEC. Raises BadInput."""
    wanted = []
    for entry in entries:
        names = [name for name in entry if name != "when"]
        if len(names) != 1:
            raise BadInput("use the entry", sorted(entry), "an entry has one knob and its parameters",
                           "Write it like {thp_mode: {enabled: always}}")
        name, given = names[0], entry[names[0]]
        if name not in KNOBS:
            raise BadInput("use the knob", name, "there is no such knob", "There are: " + ", ".join(KNOBS))
        if name in [seen for seen, params in wanted]:
            raise BadInput("use the knob", name, "it is in the list twice", "Give all its parameters in one entry")
        if not isinstance(given or {}, dict):
            raise BadInput("use the parameters of", name, "they are not a mapping",
                           "See ansible-doc ai_infra.gpu_host.%s" % name)
        checked = _ansible.validate(name, KNOBS[name], dict(given or {}))
        if _ansible.is_true("when", entry.get("when", True)):
            wanted.append((name, checked))
    return wanted


def run_list(host, wanted):
    """([(knob, result)], error): up to and including the first knob that fails."""
    done = []
    for name, params in wanted:
        try:
            result = KNOBS[name].run(host, params, check_mode=False)
        except GpuHostError as err:
            err.details.setdefault("knob", name)
            return done, err
        done.append((name, result))
        if result.get("failed"):
            break
    return done, None


def summary(done, error):
    """One result of all: the words of every knob together, and each knob's own under knobs."""
    result = {
        "changed": any(one.get("changed") for name, one in done),
        "knobs": {name: {key: value for key, value in one.items() if key not in ("diff", "ansible_facts")}
                  for name, one in done},
        "steps": [dict(step, knob=name) for name, one in done for step in one.get("steps", [])],
        "diff": [row for name, one in done for row in one.get("diff", [])],
        "conflicts": [dict(row, knob=name) for name, one in done for row in one.get("conflicts", [])],
        "restart_required": sorted({row for name, one in done for row in one.get("restart_required", [])}),
        "reload_pending": any(one.get("reload_pending") for name, one in done),
        "reboot_required": any(one.get("reboot_required") for name, one in done),
        "reboot_reason": "; ".join(one["reboot_reason"] for name, one in done if one.get("reboot_reason")) or None,
        "unsupported": {name: one["reason"] for name, one in done if one.get("supported") is False},
        "warnings": ["%s: %s" % (name, text) for name, one in done for text in one.get("warnings", [])],
        "ansible_facts": {key: value for name, one in done for key, value in one.get("ansible_facts", {}).items()},
    }
    binding = [one["nvml_binding"] for name, one in done if "nvml_binding" in one]
    if binding:
        result["nvml_binding"] = binding[0]
    failed = [(name, one.get("msg", "failed")) for name, one in done if one.get("failed")]
    if error is not None:
        failed.append((error.details["knob"], str(error)))
    if failed:
        result.update(failed=True, failed_knob=failed[0][0], msg="%s: %s" % failed[0])
    return result
