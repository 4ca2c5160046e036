# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The knob memlock_limits, from one value to every place that decides it. Options and results: ansible-doc memlock_limits."""

from __future__ import annotations

from typing import NamedTuple

from .. import _journal, _systemd
from .._errors import BadInput, Conflict, HostError, Unsupported
from .._memlock import docker, lint, machine, pam, review, ulimit_lists, units, value, view
from .._options import COMMON
from .._plan import Step, carry_out, file_step, outcome

KNOB = "memlock_limits"
TARGETS = ("pam", "systemd_system", "systemd_user", "docker", "containerd", "crio", "podman")
RUNTIMES = {"crio": ulimit_lists.CRIO, "podman": ulimit_lists.PODMAN}
MANAGERS = {"systemd_system": "system.conf", "systemd_user": "user.conf"}

ARGUMENT_SPEC = dict(COMMON, **{
    "value": {"type": "str", "default": "unlimited"},
    "targets": {"type": "list", "elements": "str", "choices": list(TARGETS), "default": ["pam", "systemd_user"]},
    "units": {"type": "list", "elements": "str", "default": []},
    "domains": {"type": "list", "elements": "str", "default": [pam.EVERYBODY]},
    "users": {"type": "list", "elements": "str", "default": []},
    "apply_running": {"type": "bool", "default": False},
})


class Want(NamedTuple):
    """What was asked for, checked, and cut down to what this host has."""

    limit: int
    targets: tuple
    units: tuple
    domains: tuple
    users: tuple
    left_out: tuple = ()


def run(host, params, check_mode):
    """Give every place that decides it the same limit, and say what else decides it."""
    if check_mode:
        host = host.planned()
    want = for_this_host(host, wanted(host, params))
    if params["state"] == "absent":
        return put_back(host, want, params)
    if want.left_out and params["unsupported"] == "fail":
        raise Unsupported("limit locked memory for", ", ".join(row["target"] for row in want.left_out),
                          "; ".join(row["reason"] for row in want.left_out),
                          "Set unsupported: skip to leave these out, or drop them from targets and units")

    before = view.state(host, want)
    steps, conflicts = [], []
    if params["apply"] != "now":
        steps, conflicts = file_steps(host, want)
        if params["conflicts"] == "fail" and conflicts:
            raise Conflict("give locked memory the limit of", value.shown(want.limit), conflicts[0]["message"],
                           "Remove the other setting, or set conflicts: warn", conflicts=conflicts)
        check_docker(host, steps)
    reload, pending = reload_steps(host, steps, before, params)
    steps += reload
    if params["apply"] == "now" or params["apply"] == "both" and params["apply_running"]:
        steps += running_steps(before, want.limit)
    carry_out(host, KNOB, steps, PERFORMERS)
    return result(host, want, before, steps, pending, conflicts)


def put_back(host, want, params):
    """state: absent. Our files and keys go; processes that run keep their limit and are named."""
    want = with_ours(host, want)
    before = view.state(host, want)
    steps = undo(host)
    reload, pending = reload_steps(host, steps, before, params)
    steps += reload
    carry_out(host, KNOB, steps, PERFORMERS, restoring=True)
    return result(host, want, before, steps, pending, [])


def result(host, want, before, steps, pending, conflicts):
    after = view.state(host, want, steps) if steps else before
    findings = review.findings(host, want, after)
    place_left = bool(want.targets or want.units)
    return outcome(
        before, after, steps, conflicts=conflicts, restart_required=view.restart_required(host, after, steps),
        reload_pending=pending or False, supported=place_left,
        reason=None if place_left else "; ".join(row["reason"] for row in want.left_out),
        warnings=[row["message"] for row in conflicts] + lint.summary(findings)
        + ([pending] if pending else []) + review.capability(host, want.limit),
        findings=findings, left_out=[dict(row) for row in want.left_out])


# What is asked for

def wanted(host, params):
    """The parameters, checked before anything is read or touched. Raises BadInput."""
    want = Want(
        value.parse(params["value"]), tuple(dict.fromkeys(params["targets"])),
        tuple(dict.fromkeys(units.check_unit(name) for name in params["units"])),
        tuple(dict.fromkeys(pam.check_domain(domain) for domain in params["domains"])),
        tuple(dict.fromkeys(params["users"])))
    if params["state"] == "present" and not want.targets and not want.units:
        raise BadInput("limit locked memory for", "no place", "targets and units are both empty",
                       "Name at least one, or use state: absent")
    if "pam" in want.targets and not want.domains:
        raise BadInput("write", pam.OURS, "domains is empty", "Leave it out to reach everybody")
    for name in want.users:
        if not pam.USER_NAME.fullmatch(name) or not machine.knows_user(host, name):
            raise BadInput("look up the user", repr(name), "this host knows no such user", "Correct the option users")
    return want


def for_this_host(host, want):
    """Targets and units this host has; the others with the reason why not."""
    reasons = {}
    if not machine.has_pam_limits(host):
        reasons["pam"] = "this host has no pam_limits.so"
    if not machine.has_systemd(host):
        reasons.update({name: "this host has no systemd" for name in MANAGERS})
    reasons["docker"] = docker_reason(host)
    if machine.unit_fragment(host, "containerd.service") is None:
        reasons["containerd"] = "this host has no containerd.service"
    for name in RUNTIMES:
        if host.which(name) is None and machine.unit_fragment(host, name + ".service") is None:
            reasons[name] = "%s is not installed" % name
    reasons.update({unit: unit_reason(host, unit) for unit in want.units})
    left_out = [{"target": name, "reason": reasons[name]} for name in want.targets + want.units if reasons.get(name)]
    here = [name for name in want.units if not reasons[name]]
    targets = tuple(name for name in want.targets if not reasons.get(name))
    if "containerd" in targets and "containerd.service" not in here:
        here.append("containerd.service")
    return want._replace(targets=targets, units=tuple(here), left_out=tuple(left_out))


def unit_reason(host, unit):
    fragment = machine.unit_fragment(host, unit)
    if fragment is None:
        return "this host has no unit %s" % unit
    return "%s is masked" % unit if host.realpath(fragment) == "/dev/null" else None


def docker_reason(host):
    if host.which("dockerd") is None and machine.unit_fragment(host, "docker.service") is None:
        return "Docker is not installed"
    for package in host.glob("/var/lib/dpkg/info/nv-docker*.list") + host.glob("/var/lib/dpkg/info/dgx-docker*.list"):
        return "the package %s owns Docker's configuration here" % package.rsplit("/", 1)[1][:-len(".list")]
    return None


# What to write

def wanted_files(host, want):
    """{path: text} of everything that should be there, and the conflicts with what can't be written at all."""
    files, conflicts = {}, []
    if "pam" in want.targets:
        files[pam.OURS] = pam.text(want.limit, want.domains)
    for target, name in MANAGERS.items():
        if target in want.targets:
            files["/etc/systemd/%s.d/%s" % (name, units.NAME)] = units.manager_text(want.limit)
    for unit in all_units(want):
        files[_systemd.drop_in(unit, units.NAME)] = units.unit_text(unit, want.limit)
    for name, runtime in RUNTIMES.items():
        if name in want.targets:
            others = machine.ulimit_list(host, runtime, without_ours=True)
            files[runtime.ours] = ulimit_lists.text(runtime, want.limit, others.items if others else [])
    if "docker" in want.targets:
        flags = machine.docker_flags(host)
        if flags.ulimits:
            conflicts += docker_flag_conflicts(flags, want.limit)
        else:
            text = host.read(flags.config)
            files[flags.config] = docker.with_limit(flags.config, text, want.limit)
    return files, conflicts


def all_units(want):
    """Units that get a drop-in. A user manager hands on its own hard limit, so it needs one beside user.conf."""
    return tuple(want.units) + (("user@.service",) if "systemd_user" in want.targets else ())


def docker_flag_conflicts(flags, limit):
    """Docker refuses a key that is a flag too, so flags are left to whoever wrote them."""
    limits, where = docker.flag_limits(flags.ulimits)
    if limits == value.Limits(limit, limit):
        return []
    where = where or flags.ulimits[-1][1]
    return [{"where": where, "value": value.shown(limits.hard) if limits else None, "wanted": value.shown(limit),
             "wins": True, "message": "%s gives dockerd the flag %s, and Docker does not start when %s is in its file "
             "too; add memlock=%d:%d to the flags there" % (where, docker.FLAG, docker.SECTION, limit, limit)}]


def file_steps(host, want):
    """(steps, conflicts): files to write, files of ours that are no longer asked for, and who beats them."""
    files, conflicts = wanted_files(host, want)
    steps = []
    for path, text in files.items():
        steps += file_step(host, path, text)
    dropped = undo(host)
    steps += [step for step in dropped if step.target not in files]
    future = host.planned()
    for step in steps:
        future.remove(step.target) if step.after is None else future.replace(step.target, step.after)
    return steps, conflicts + view.conflicts(future, want, all_units(want), MANAGERS, RUNTIMES)


def undo(host):
    """Steps that take back what earlier runs wrote. What a killed run had only prepared goes at once."""
    host.unstage(machine.docker_flags(host).config)
    return _journal.undo(host, KNOB, own_files=own_files(host), without_ours=without_ours)


def own_files(host):
    """Paths only we write, wherever an earlier run put them, or prepared them before it was killed."""
    found = [pam.OURS] + [runtime.ours for runtime in RUNTIMES.values()]
    found += ["/etc/systemd/%s.d/%s" % (name, units.NAME) for name in MANAGERS.values()]
    folders = set(host.glob(_systemd.UNIT_DIR + "/*.d")) | {_systemd.UNIT_DIR + "/user@.service.d"}
    return found + ["%s/%s" % (folder, units.NAME) for folder in sorted(folders)]


def with_ours(host, want):
    """The places asked for and those where an earlier run left something, so that absent reports what it changes."""
    recorded = [path for path, entry in _journal.load(host, KNOB)["files"].items() if entry["ours"] is not None]
    found = set(recorded) | {path for path in own_files(host) if host.exists(path)}
    names = [path.split("/")[-2][:-len(".d")] for path in found if path.startswith(_systemd.UNIT_DIR + "/")]
    places = {pam.OURS: "pam", "/etc/systemd/system.conf.d/" + units.NAME: "systemd_system",
              "/etc/systemd/user.conf.d/" + units.NAME: "systemd_user"}
    places.update({runtime.ours: name for name, runtime in RUNTIMES.items()})
    places.update({path: "docker" for path in found if path.endswith(".json")})
    targets = set(want.targets) | {places[path] for path in found if path in places}
    listed = set(want.units) | {name for name in names if name != "user@.service"}
    return want._replace(targets=tuple(name for name in TARGETS if name in targets), units=tuple(sorted(listed)))


def without_ours(path, current, ours):
    """A file somebody edited, without our part."""
    if path.endswith(".json"):
        return docker.without_limit(path, current, docker.found(docker.parse(path, ours)))
    if path.startswith("/etc/systemd/"):
        return units.without_ours(current, ours)
    return _journal.without_lines(path, current, ours)


def check_docker(host, steps):
    """Let dockerd look at the new file before anything changes; check mode has no file to show it."""
    for step in steps:
        folder = step.target.rsplit("/", 1)[0]
        if not step.target.endswith(".json") or step.after is None or host.is_planned:
            continue
        if host.which("dockerd") is None or not host.is_dir(folder):
            continue
        fault = dockerd_fault(host, step.target, step.after)
        # Releases before 23.0 can't validate, and a dockerd that refuses an empty file too complains of something else.
        if fault and "unknown flag" not in fault and fault != dockerd_fault(host, step.target, "{}"):
            raise HostError("write", step.target, "dockerd --validate refuses it: " + fault,
                            "Correct the file; Docker would not start with it")


def dockerd_fault(host, path, text):
    """What dockerd says against a text as its configuration file; None when it takes it."""
    host.stage(path, text)
    try:
        ran = host.run(["dockerd", "--validate", "--config-file", host.temporary(path)])
    finally:
        host.unstage(path)
    return (ran.err or ran.out).strip() or "exit status %d" % ran.rc if ran.rc else None


# What systemd and the processes have to be told

def reload_steps(host, steps, before, params):
    """(steps, pending): the daemon-reload that unit files and system.conf need; what already is loaded needs none."""
    if params["apply"] == "now" or not _systemd.is_running(host):
        return [], None
    paths = [step.target for step in steps]
    due = {path.split("/")[-2][:-len(".d")] for path in paths
           if path.startswith((_systemd.UNIT_DIR + "/", "/etc/systemd/system.conf.d/"))}
    due |= {unit for unit, row in before["units"].items() if row["reload_due"]}
    due |= {name for target, name in (("systemd_system", "system.conf"), ("systemd_user", "user@.service"))
            if before.get(target, {}).get("reload_due")}
    if not due:
        return [], None
    reason = "drop-ins of " + ", ".join(sorted(due))
    if params["apply"] == "boot":
        return [], "daemon-reload is due (%s), but apply is boot" % reason
    return _systemd.reload_steps(host, reason)


def running_steps(before, limit):
    """prlimit for the daemons that run: what they fork from now on has the limit."""
    rows = [(unit, row["running"]) for unit, row in before["units"].items() if row["running"]]
    rows += list(before["user_managers"].items())
    wanted_text = value.shown(limit)
    return [Step("set_rlimit", unit, "%s:%s" % (row["soft"], row["hard"]), "%s:%s" % (wanted_text, wanted_text),
                 detail=(row["pid"], limit))
            for unit, row in sorted(rows) if (row["soft"], row["hard"]) != (wanted_text, wanted_text)]


def set_rlimit(host, step):
    """Performer of set_rlimit, with the kernel's answer read back."""
    pid, limit = step.detail
    host.set_rlimit(pid, value.RLIMIT_MEMLOCK, limit, limit)
    path = "/proc/%d/limits" % pid
    if host.is_planned:
        host.replace(path, value.proc_text(host.read(path) or "", value.Limits(limit, limit)))
    found = machine.running(host, pid)
    if found != value.Limits(limit, limit):
        raise HostError("set the locked memory limit of", "%s (pid %d)" % (step.target, pid), "it now says %s" % (found,),
                        "Restart the service instead")


PERFORMERS = dict(_systemd.PERFORMERS, set_rlimit=set_rlimit)
