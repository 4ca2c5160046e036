# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The knob kernel_values: sysctls now, in one drop-in, and who decides them at boot."""

from __future__ import annotations

from .. import _journal, _sysctl, _tuned
from .._errors import Conflict, Unsupported
from .._options import COMMON
from .._plan import carry_out, file_step, kernel_step, kernel_value, outcome

KNOB = "kernel_values"
SYSCTL_CONF = "/etc/sysctl.conf"

ARGUMENT_SPEC = dict(COMMON, values={"type": "dict", "default": {}})


def run(host, params, check_mode):
    """Bring kernel values to what was asked, at runtime and at boot."""
    if check_mode:
        host = host.planned()
    want = _sysctl.wanted_values(params["values"])
    if params["state"] == "absent":
        return put_back(host, want)
    missing = sorted(key for key in want if host.read(proc(key)) is None)
    if missing and params["unsupported"] == "fail":
        raise Unsupported("set", ", ".join(map(_sysctl.dotted_key, missing)), "this kernel has no such value",
                          "Drop the key, or set unsupported: skip")
    want = {key: value for key, value in want.items() if key not in missing}
    before = report(host, want)
    conflicts = boot_conflicts(host, want)
    if params["conflicts"] == "fail" and conflicts:
        raise Conflict("keep kernel values over a reboot on", "this host", conflicts[0]["message"],
                       "Remove the other setting, or set conflicts: warn", conflicts=conflicts)

    steps = []
    if params["apply"] in ("now", "both"):
        for key, value in sorted(want.items()):
            if not _sysctl.satisfied(key, kernel_value(host.read(proc(key))), value):
                steps += kernel_step(host, proc(key), value)
    if params["apply"] in ("boot", "both") and want:
        steps += file_step(host, _sysctl.DROP_IN, _sysctl.drop_in_text(want))
    carry_out(host, KNOB, steps)

    return outcome(
        before, report(host, want), steps, conflicts=conflicts,
        supported=not missing, reason="no such kernel value here: %s" % ", ".join(map(_sysctl.dotted_key, missing))
        if missing else None,
        warnings=[row["message"] for row in conflicts]
        + ["this kernel has no %s: not set" % _sysctl.dotted_key(key) for key in missing],
    )


def proc(key):
    return "/proc/sys/" + key


def report(host, want):
    """Runtime and boot value of every key asked for, with the file and line that decides it at boot."""
    assignments = all_assignments(host)
    boot, decided_by = {}, {}
    for key in want:
        row = _sysctl.winner(key, assignments)
        boot[_sysctl.dotted_key(key)] = row.value if row else None
        decided_by[_sysctl.dotted_key(key)] = row.where if row else None
    runtime = {_sysctl.dotted_key(key): kernel_value(host.read(proc(key))) for key in want}
    return {"runtime": runtime, "boot": boot, "decided_by": decided_by}


def all_assignments(host):
    """Every assignment systemd-sysctl makes at boot, in its order."""
    paths = [path for folder in _sysctl.FOLDERS for path in host.glob(folder + "/*.conf")]
    rows = []
    for path in _sysctl.effective_files(paths):
        if host.realpath(path) != "/dev/null":
            rows += _sysctl.parse(path, host.read(path))
    return rows


def boot_conflicts(host, want):
    """Whoever will have the last word at boot instead of our drop-in."""
    others = [row for row in all_assignments(host) if not row.where.startswith(_sysctl.DROP_IN + ":")]
    name = _sysctl.DROP_IN.rsplit("/", 1)[1]
    before = [row for row in others if row.where.rsplit("/", 1)[1].rsplit(":", 1)[0] < name]
    later = [row for row in others if row not in before]
    tuned = _tuned.read(host)
    reapplies = "reapply_sysctl=0" not in (host.read(_tuned.MAIN_CONF) or "").replace(" ", "")
    from_tuned = _tuned.sysctl_settings(tuned["settings"])
    sysctl_conf = _sysctl.parse(SYSCTL_CONF, host.read(SYSCTL_CONF))
    rows = []
    for key, value in sorted(want.items()):
        ours = _sysctl.Assignment(_sysctl.DROP_IN + ":0", key, value)
        last = _sysctl.winner(key, before + [ours] + later)
        deciders = [] if last is None or last.where == ours.where else [(last.where, last.value)]
        setting = {_sysctl.normal_key(name): found for name, found in from_tuned.items()}.get(key)
        if setting and not reapplies:
            deciders.append(("tuned " + setting.where, setting.value))
        conf = _sysctl.winner(key, sysctl_conf)
        if conf and tuned["running"] and reapplies:
            deciders.append((conf.where, conf.value))
        for where, other in deciders:
            if not _sysctl.satisfied(key, other, value):
                rows.append({
                    "where": where, "value": other, "wanted": value, "wins": True,
                    "message": "%s sets %s to %s at boot, after our drop-in (wanted: %s)" % (
                        where, _sysctl.dotted_key(key), other, value)})
    return rows


def put_back(host, want):
    """state: absent. Recorded originals, and our drop-in gone."""
    before = report(host, want)
    steps = _journal.undo(host, KNOB, own_files=[_sysctl.DROP_IN])
    carry_out(host, KNOB, steps, restoring=True)
    return outcome(before, report(host, want), steps)
