# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The knob thp_mode, from reading the kernel to proving that it took. Options and results: ansible-doc thp_mode."""

from __future__ import annotations

from .. import _journal, _thp, _tmpfiles, _tuned
from .._errors import Conflict, Unsupported
from .._options import COMMON
from .._plan import Step, carry_out, file_step, kernel_step, kernel_value, outcome

KNOB = "thp_mode"
KHUGEPAGED = ("defrag", "pages_to_scan", "scan_sleep_millisecs", "alloc_sleep_millisecs",
              "max_ptes_none", "max_ptes_swap", "max_ptes_shared")
SCRIPTS = ("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/sysfs.conf")

ARGUMENT_SPEC = dict(COMMON, **{
    "enabled": {"type": "str", "choices": ["always", "madvise", "never"]},
    "defrag": {"type": "str", "choices": ["always", "defer", "defer+madvise", "madvise", "never"]},
    "shmem_enabled": {"type": "str", "choices": ["always", "within_size", "advise", "never", "deny", "force"]},
    "use_zero_page": {"type": "bool"},
    "khugepaged": {"type": "dict", "options": {name: {"type": "int"} for name in KHUGEPAGED}},
    "sizes": {"type": "list", "elements": "dict", "default": [], "options": {
        "size": {"type": "str", "required": True},
        "enabled": {"type": "str", "choices": ["always", "inherit", "madvise", "never"]},
        "shmem_enabled": {"type": "str", "choices": ["always", "inherit", "within_size", "advise", "never"]},
    }},
    "large_pmd": {"type": "str", "choices": ["refuse", "use_2m", "allow"], "default": "refuse"},
    "provider": {"type": "str", "choices": ["auto", "tmpfiles", "tuned"], "default": "auto"},
    "allow_tuned_switch": {"type": "bool", "default": False},
})


def run(host, params, check_mode):
    """Bring the host's transparent huge pages to the wanted values, now and at boot."""
    if check_mode:
        host = host.planned()
    have = read_kernel(host)
    if "enabled" not in have:
        return without_thp(host, params)
    tuned = _tuned.read(host)
    if params["state"] == "absent":
        return put_back(host, tuned, have)

    want, missing = _thp.check(_thp.wanted_values(params, have), have, host.page_size())
    if params["unsupported"] == "fail":
        _thp.require_files(missing)
    provider = choose_provider(params, tuned, want)
    before = report(host, have, provider, want)
    writers = other_writers(host, tuned, want)
    conflicts = [row for row in writers if row["wins"] and row["value"] != row["wanted"]]
    if provider == "tuned" and tuned["may_switch"]:
        conflicts = [row for row in conflicts if not row["where"].startswith("tuned ")]
    if params["conflicts"] == "fail" and conflicts:
        raise Conflict("keep transparent huge pages over a reboot on", "this host", conflicts[0]["message"],
                       "Remove the other setting, or set conflicts: warn", conflicts=conflicts)

    steps = []
    if params["apply"] in ("now", "both"):
        for name, value in sorted(want.items()):
            steps += kernel_step(host, "%s/%s" % (_thp.FOLDER, name), value)
    if params["apply"] in ("boot", "both"):
        steps += boot_steps(host, provider, tuned, want)
    restart = gpu_processes(host) if any(step.target.endswith("/enabled") for step in steps) else []
    carry_out(host, KNOB, steps, PERFORMERS)

    have = read_kernel(host)
    return outcome(
        before, report(host, have, provider, want), steps, conflicts=conflicts, restart_required=restart,
        provider=provider, persisted=is_persisted(host, want, conflicts), writers=writers,
        warnings=[row["message"] for row in conflicts] + _thp.leftovers(want, _thp.state(have))
        + ["this kernel has no %s/%s: not set" % (_thp.FOLDER, name) for name in missing],
    )


def read_kernel(host):
    """{file below the THP directory: text} of every file there is, statistics left out."""
    have = {}
    for name in host.listdir(_thp.FOLDER):
        if name == "khugepaged" or _thp.PER_SIZE.match(name):
            for child in host.listdir("%s/%s" % (_thp.FOLDER, name)):
                path = "%s/%s" % (name, child)
                if child != "stats":
                    have[path] = host.read("%s/%s" % (_thp.FOLDER, path))
        else:
            have[name] = host.read("%s/%s" % (_thp.FOLDER, name))
    return {name: text for name, text in have.items() if text is not None}


def report(host, have, provider, want):
    """The state in the result: runtime values, and what boot will set of the values asked for."""
    values = _thp.state(have)
    lines = boot_lines(host)
    boot = {}
    for name in sorted(want):
        line = _tmpfiles.winner("%s/%s" % (_thp.FOLDER, name), lines)
        boot[name] = line.value if line else None
    if provider == "tuned":
        boot.update({name: setting.value for name, setting in _tuned.thp_settings(
            _tuned.read(host)["settings"], _thp.command_line(host.read("/proc/cmdline")) is not None).items()
            if name in want})
    return {"runtime": values, "boot": boot, "effective": _thp.effective(values)}


def without_thp(host, params):
    """A kernel without the directory: an answer for skip, an error for fail; absent has nothing to do."""
    reason = _thp.unsupported_reason(host.is_dir("/sys/kernel/mm/redhat_transparent_hugepage"))
    steps = []
    if params["state"] == "absent":
        steps = _journal.undo(host, KNOB, own_files=[_thp.TMPFILES])
        carry_out(host, KNOB, steps, restoring=True)
    elif params["unsupported"] == "fail":
        raise Unsupported("set", "transparent huge pages", reason, "Set unsupported: skip to leave such hosts alone")
    return outcome({}, {}, steps, supported=False, reason=reason)


def put_back(host, tuned, have):
    """state: absent. Original values, our files gone, the tuned profile as it was."""
    before = report(host, have, "tmpfiles", {})
    steps = []
    previous = _journal.load(host, KNOB)["others"].get("tuned_profile", {}).get("active")
    if previous is not None and tuned["active"] != previous:
        steps.append(Step("tuned_profile", "active", " ".join(tuned["active"]), " ".join(previous), detail=previous))
    steps += _journal.undo(host, KNOB, own_files=[_thp.TMPFILES])
    carry_out(host, KNOB, steps, PERFORMERS, restoring=True)
    return outcome(before, report(host, read_kernel(host), "tmpfiles", {}), steps, provider=None, persisted=False,
                   writers=[])


# Boot

def boot_lines(host):
    """Every tmpfiles.d write line in the order systemd-tmpfiles reads them."""
    paths = [path for folder in _tmpfiles.FOLDERS for path in host.glob(folder + "/*.conf")]
    lines = []
    for path in _tmpfiles.effective_files(paths):
        if host.realpath(path) != "/dev/null":
            lines += _tmpfiles.write_lines(path, host.read(path))
    return lines


def choose_provider(params, tuned, want):
    """tmpfiles.d, unless tuned runs and its profile decides one of the wanted values after it.

    Switching the profile re-applies the whole chain, so it needs the user's word.
    """
    tuned["may_switch"] = params["allow_tuned_switch"]
    if params["provider"] != "auto":
        if params["provider"] == "tuned" and not tuned["running"]:
            raise Unsupported("use the provider", "tuned", "tuned is not active on this host",
                              "Use provider: auto, or enable tuned first")
        return params["provider"]
    if _tuned.OUR_PROFILE in tuned["active"]:
        return "tuned"
    decided = _tuned.thp_settings(tuned["settings"], False)
    return "tuned" if tuned["may_switch"] and any(name in decided for name in want) else "tmpfiles"


def boot_steps(host, provider, tuned, want):
    if provider == "tmpfiles":
        return file_step(host, _thp.TMPFILES, _thp.tmpfiles_text(want)) if want else []
    include = [name for name in tuned["active"] if name != _tuned.OUR_PROFILE]
    if not include:
        include = _tuned.parse("", (tuned["find"](_tuned.OUR_PROFILE) or ("", ""))[1])[0]
    steps = file_step(host, _thp.TMPFILES, None)
    steps += file_step(host, tuned["own"], _tuned.child_text(include, want, _thp.FOLDER))
    if tuned["active"] != [_tuned.OUR_PROFILE]:
        if not tuned["may_switch"]:
            raise Conflict("switch", "tuned to the profile " + _tuned.OUR_PROFILE, "that re-applies its whole profile",
                           "Allow it with allow_tuned_switch: true, or use provider: tmpfiles")
        steps.append(Step("tuned_profile", "active", tuned["active"], [_tuned.OUR_PROFILE],
                          detail=[_tuned.OUR_PROFILE]))
    return steps


def switch_tuned(host, step):
    """Performer of tuned_profile. On a planned host only the file that names the active profile moves."""
    host.act(["tuned-adm", "profile"] + list(step.detail), timeout=120)
    if host.is_planned:
        host.replace(_tuned.ACTIVE, " ".join(step.detail) + "\n")


PERFORMERS = {"tuned_profile": switch_tuned}


def is_persisted(host, want, conflicts):
    """Whether a reboot brings the wanted values back."""
    if conflicts or not want:
        return False
    text = host.read(_thp.TMPFILES)
    tuned = _tuned.read(host)
    decided = _tuned.thp_settings(tuned["settings"], False)
    return all(
        name in decided and decided[name].value == value or text is not None and
        "%s/%s - - - - %s\\n" % (_thp.FOLDER, name, value) in text for name, value in want.items())


# Whatever fights it

def other_writers(host, tuned, want):
    """Everybody else who writes one of the wanted files at boot, and whether they come after us."""
    rows = []

    def add(where, name, value, wins, what):
        if name not in want:
            return
        rows.append({
            "where": where, "value": value, "wanted": want[name], "wins": wins,
            "message": "%s sets transparent_hugepage/%s to %s %s (wanted: %s)" % (
                what, name, value or "an unknown value",
                "at boot, after us" if wins else "at boot, before us", want[name]),
        })

    word = _thp.command_line(host.read("/proc/cmdline"))
    if word is not None:
        add("kernel command line", "enabled", word, False, "the kernel command line")
    lines = boot_lines(host)
    for name in sorted(want):
        path = "%s/%s" % (_thp.FOLDER, name)
        with_ours = [_tmpfiles.Line(_thp.TMPFILES + ":0", path, want[name])] + lines
        order = sorted(with_ours, key=lambda line: line.where.rsplit("/", 1)[1].rsplit(":", 1)[0])
        deciding = _tmpfiles.winner(path, order)
        for line in lines:
            if not line.where.startswith(_thp.TMPFILES) and _tmpfiles.winner(path, [line]):
                add(line.where, name, line.value, line == deciding, line.where)
    for name, setting in _tuned.thp_settings(tuned["settings"], word is not None).items():
        if _tuned.OUR_PROFILE not in setting.where:
            add("tuned " + setting.where, name, setting.value, _tuned.OUR_PROFILE not in tuned["active"],
                "the tuned profile (%s)" % setting.where)
    for where, name, value, active in script_writers(host):
        add(where, name, value, active, where if active else where + " (not enabled)")
    return rows


def script_writers(host):
    """(file:line, THP file, value, whether it runs at boot) of units, rc.local, init scripts, sysfs.conf."""
    found = []
    enabled = {path.rsplit("/", 1)[1] for folder in ("/etc/systemd/system", "/usr/lib/systemd/system", "/run/systemd/system")
               for path in host.glob(folder + "/*.wants/*.service") + host.glob(folder + "/*.requires/*.service")}
    seen = set()
    for folder in ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"):
        for path in host.glob(folder + "/*.service") + host.glob(folder + "/*.service.d/*.conf"):
            unit = path.rsplit("/", 2)[1][:-2] if path.endswith(".conf") else path.rsplit("/", 1)[1]
            if host.realpath(path) in seen:
                continue
            seen.add(host.realpath(path))
            for number, name, value in _thp.script_writers(path, host.read(path)):
                found.append(("%s:%d" % (path, number), name, value, unit in enabled))
    for path in list(SCRIPTS) + host.glob("/etc/sysfs.d/*.conf") + host.glob("/etc/init.d/*"):
        if host.is_dir(path):
            continue
        for number, name, value in _thp.script_writers(path, host.read(path)):
            found.append(("%s:%d" % (path, number), name, value, True))
    return found


def gpu_processes(host):
    """Programs that use a GPU now: they keep the old behaviour for memory they have mapped already."""
    found = []
    for pid in host.listdir("/proc"):
        if pid.isdigit() and any((host.readlink("/proc/%s/fd/%s" % (pid, fd)) or "").startswith("/dev/nvidia")
                                 for fd in host.listdir("/proc/%s/fd" % pid)):
            name = kernel_value(host.read("/proc/%s/comm" % pid)) or "?"
            if name != "nvidia-persiste":
                found.append("%s (pid %s)" % (name, pid))
    return found
