# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans as data, and the one place that carries them out. Private: may change at any time.

A knob's pure functions make a list of C(Step). C(carry_out) checks that every step can be done, records the
originals, does the steps in order, reads kernel files back and writes one journal line a change. On a planned
host the same call only pretends, which is all that check mode is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _journal
from ._errors import HostError

AFTER_APPLY = "after_apply"


class Step(NamedTuple):
    """One change. C(detail) is what the performer needs besides the target, and is not shown."""

    action: str
    target: str
    before: Any
    after: Any
    known: str = ""
    detail: Any = None


def kernel_value(text):
    """What a kernel file says: the word in brackets where there is a choice, else the stripped text."""
    if text is None:
        return None
    for word in text.split():
        if word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    return " ".join(text.split())


def kernel_step(host, path, wanted):
    """The step that brings a kernel file to a value; none when it is there already or the file is missing."""
    current = kernel_value(host.read(path))
    if current is None or current == str(wanted):
        return []
    return [Step("write_kernel", path, current, str(wanted))]


def file_step(host, path, text, mode=0o644):
    """The step that brings a configuration file to a text; C(None) is no file. None when it is there already."""
    current = host.read(path)
    if current == text:
        return []
    if text is None:
        return [Step("remove_file", path, current, None)]
    return [Step("write_file", path, current, text, detail=mode)]


def _write_kernel(host, step):
    host.write_kernel(step.target, step.after)
    found = kernel_value(host.read(step.target))
    if found != step.after:
        raise HostError(
            "set", step.target, "the kernel took %r and now says %r" % (step.after, found),
            "Read the kernel's documentation of this file for the values it accepts",
        )


def _write_file(host, step):
    host.replace(step.target, step.after, step.detail or 0o644)


def _remove_file(host, step):
    host.remove(step.target)


PERFORMERS = {"write_kernel": _write_kernel, "write_file": _write_file, "remove_file": _remove_file}


def preflight(host, steps):
    """Fail before the first change when a step could not be done: read-only or full file system, no permission."""
    for step in steps:
        if step.action == "write_kernel":
            host.check_kernel_writable(step.target)
        elif step.action in ("write_file", "remove_file"):
            host.check_replaceable(step.target, step.after or "")


def carry_out(host, knob, steps, performers=None, restoring=False):
    """Do the steps of a knob. C(performers) adds actions: {action: function(host, step)}."""
    known = dict(PERFORMERS, **(performers or {}))
    if steps:
        preflight(host, steps)
        if not restoring:
            _journal.record(host, knob, steps)
        for step in steps:
            known[step.action](host, step)
            host.log("%s: %s %s from %s to %s" % (
                knob, step.action, step.target, brief(step.before), brief(step.after)))
    if restoring:
        _journal.forget(host, knob)


def brief(value):
    """A value for one journal line: texts of whole files by their size only."""
    if isinstance(value, str) and "\n" in value:
        return "%d bytes" % len(value.encode("utf-8", "surrogateescape"))
    return "nothing" if value is None else str(value)


def shown(step):
    """A step in the words of the result."""
    row = {"action": step.action, "target": step.target, "from": step.before, "to": step.after}
    if step.known:
        row["known"] = step.known
    return row


def diff(steps):
    """Ansible's before/after, one entry a step."""
    rows = []
    for step in steps:
        header = step.target if step.action in ("write_file", "remove_file") else "%s %s" % (step.action, step.target)
        rows.append({
            "before_header": header, "before": _lines(step.before),
            "after_header": header, "after": _lines(step.after),
        })
    return rows


def _lines(value):
    if value is None:
        return ""
    text = str(value)
    return text if text.endswith("\n") else text + "\n"


def outcome(before, after, steps, conflicts=(), restart_required=(), reload_pending=False,
            reboot_reason=None, supported=True, reason=None, warnings=(), **more):
    """The result every changing module returns, in the same words everywhere."""
    result = {
        "changed": bool(steps),
        "before": before,
        "after": after,
        "diff": diff(steps),
        "steps": [shown(step) for step in steps],
        "conflicts": list(conflicts),
        "restart_required": list(restart_required),
        "reload_pending": reload_pending,
        "reboot_required": reboot_reason is not None,
        "reboot_reason": reboot_reason,
        "supported": supported,
        "reason": reason,
        "warnings": list(warnings),
    }
    result.update(more)
    return result
