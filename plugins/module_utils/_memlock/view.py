# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit each place will give, who decides it by file and line, and what processes have now. Reads only."""

from __future__ import annotations

from .. import _systemd
from . import docker, machine, pam, ulimit_lists, units, value
from .value import Limits

NOTHING = Limits(None, None)
USER_MANAGER = "user@.service"


def row(limits, where):
    limits = limits or NOTHING
    return {"soft": value.shown(limits.soft), "hard": value.shown(limits.hard), "where": where}


def state(host, want, steps=()):
    """The state in the result. After steps on a planned host, what systemd will hold is worked out from its files."""
    guess = host.is_planned and "daemon_reload" in [step.action for step in steps]
    services = [name + ".service" for name in ("docker", "crio") if name in want.targets]
    names = sorted(set(want.units) | set(services))
    shown = machine.loaded(host, names, "systemd_user" in want.targets)
    found = {"units": {unit: unit_state(host, unit, shown.get(unit), guess) for unit in want.units},
             "user_managers": {}}
    if "pam" in want.targets:
        found["pam"] = pam_state(host, want.users)
    if "systemd_system" in want.targets:
        found["systemd_system"] = system_state(host, guess)
    if "systemd_user" in want.targets:
        found["systemd_user"] = dict(
            row(*manager_winner(host, "user.conf")),
            manager=row(*units.winner(machine.unit_settings(host, USER_MANAGER), "Service", units.KEY)))
        managers, ours = sorted(set(shown) - set(names)), _systemd.drop_in(USER_MANAGER, units.NAME)
        found["systemd_user"]["reload_due"] = not guess and any(has_missed(host, ours, shown[unit]) for unit in managers)
        for unit in managers:
            pid = main_pid(shown[unit])
            limits = machine.running(host, pid)
            if limits:
                found["user_managers"][unit] = dict(pid=pid, **running_row(limits))
    if "docker" in want.targets:
        found["docker"] = dict(docker_row(host), pid=main_pid(shown.get("docker.service")))
    for runtime in (ulimit_lists.CRIO, ulimit_lists.PODMAN):
        if runtime.name in want.targets:
            listed = machine.ulimit_list(host, runtime)
            limits = ulimit_lists.limits_of(listed.items) if listed else None
            found[runtime.name] = row(limits, listed.where if limits else None)
    if "crio" in want.targets:
        found["crio"]["pid"] = main_pid(shown.get("crio.service"))
    return found


def has_missed(host, drop_in, shown):
    """Whether systemd has not seen yet that our drop-in of a loaded unit came or went."""
    return host.exists(drop_in) != (drop_in in shown.get("DropInPaths", "").split())


def running_row(limits):
    return {"soft": value.shown(limits.soft), "hard": value.shown(limits.hard)}


def main_pid(shown):
    pid = (shown or {}).get("MainPID", "0")
    return int(pid) if pid.isdigit() and pid != "0" else None


def unit_state(host, unit, shown, guess):
    """A unit: what its files say, what systemd has loaded, and what its main process runs with."""
    limits, where = units.winner(machine.unit_settings(host, unit), units.section_of(unit), units.KEY)
    found = dict(row(limits, where), loaded=None, running=None, reload_due=False)
    if shown is None or shown.get("LoadState") != "loaded":
        return found
    loaded = Limits(value.from_show(shown.get(units.KEY + "Soft")), value.from_show(shown.get(units.KEY)))
    if guess:
        loaded = limits or machine.loaded_default(host) or loaded
    else:
        edited = shown.get("NeedDaemonReload") == "yes" and limits is not None and loaded != limits
        ours = _systemd.drop_in(unit, units.NAME)
        found["reload_due"] = has_missed(host, ours, shown) or edited and host.exists(ours)
    found["loaded"] = running_row(loaded)
    pid = main_pid(shown)
    running = machine.running(host, pid)
    if running:
        found["running"] = dict(pid=pid, **running_row(running))
    return found


def pam_state(host, users):
    """Every kind of account with the limits a new login gets, and the deciding lines."""
    lines = machine.limits_lines(host)
    debian = machine.is_debian(host)
    start = machine.start_limits(host)
    found = {}
    for account in machine.accounts(host, lines, users):
        won = pam.winner(lines, account, debian, start or NOTHING)
        found[account.label] = {
            "soft": value.shown(won.limits.soft), "hard": value.shown(won.limits.hard),
            "soft_where": won.soft_where, "hard_where": won.hard_where}
    return found


def manager_winner(host, name):
    return units.winner(machine.manager_settings(host, name), "Manager", units.DEFAULT_KEY)


def system_state(host, guess):
    """The default of system services: by file, and what the running systemd gives."""
    limits, where = manager_winner(host, "system.conf")
    loaded = limits if guess and limits else machine.loaded_default(host)
    ours = host.exists("/etc/systemd/system.conf.d/" + units.NAME)
    return dict(row(limits, where), loaded=running_row(loaded) if loaded else None,
                reload_due=bool(ours and loaded and limits and loaded != limits))


def docker_row(host):
    flags = machine.docker_flags(host)
    if flags.ulimits:
        return row(*docker.flag_limits(flags.ulimits))
    limits = docker.found(docker.parse(flags.config, host.read(flags.config)))
    return row(limits, flags.config if limits else None)


# Who beats us

def conflicts(host, want, limited_units, managers, runtimes):
    """What will decide instead of us, judged on the files as they will be."""
    wanted, rows = Limits(want.limit, want.limit), []

    def check(what, limits, where):
        if limits is not None and limits != wanted:
            number = limits.hard if limits.hard != want.limit else limits.soft
            rows.append({
                "where": where, "value": value.shown(number), "wanted": value.shown(want.limit), "wins": True,
                "message": "%s decides the locked memory of %s: %s (wanted: %s)" % (
                    where, what, value.shown(number), value.shown(want.limit))})

    if "pam" in want.targets:
        rows += pam_conflicts(host, want)
    for target, name in managers.items():
        if target in want.targets:
            check("every service" if target == "systemd_system" else "user services", *manager_winner(host, name))
    for unit in limited_units:
        check(unit, *units.winner(machine.unit_settings(host, unit), units.section_of(unit), units.KEY))
    for name, runtime in runtimes.items():
        if name in want.targets:
            listed = machine.ulimit_list(host, runtime)
            if listed and not listed.where.startswith(runtime.ours + ":"):
                limits = ulimit_lists.limits_of(listed.items)
                check("containers of " + name, limits or NOTHING, listed.where)
    return rows


def pam_conflicts(host, want):
    """Lines that beat ours for somebody ours are about."""
    lines, debian = machine.limits_lines(host), machine.is_debian(host)
    ours = [line for line in lines if line.where.startswith(pam.OURS + ":")]
    rows, seen = [], set()
    for account in machine.accounts(host, lines, want.users):
        if all(pam.rank(line.words[0], account, debian) is None for line in ours):
            continue
        won = pam.winner(lines, account, debian)
        for kind, number, where in (("hard", won.limits.hard, won.hard_where), ("soft", won.limits.soft, won.soft_where)):
            # A soft limit of ours that is cut to somebody's hard one shows up as their hard limit.
            if number == want.limit or where in seen or where and where.startswith(pam.OURS + ":"):
                continue
            seen.add(where)
            rows.append({
                "where": where, "value": value.shown(number), "wanted": value.shown(want.limit), "wins": True,
                "message": "%s decides the locked memory of %s: %s (wanted: %s)" % (
                    where, account.label, "no limit is set at all" if number is None else value.shown(number),
                    value.shown(want.limit))})
    return rows


# Who still runs with something else

def restart_required(host, after, steps):
    """Units whose processes have another limit than a start would give them now."""
    found, touched = [], [step.target for step in steps]
    for unit, found_row in after["units"].items():
        running = found_row["running"]
        boot = found_row if found_row["hard"] is not None else found_row["loaded"]
        if running and boot and (running["soft"], running["hard"]) != (boot["soft"], boot["hard"]):
            found.append(unit)
    for unit, found_row in after["user_managers"].items():
        wanted = (after["systemd_user"]["manager"]["soft"], after["systemd_user"]["manager"]["hard"])
        if wanted[1] is not None and (found_row["soft"], found_row["hard"]) != wanted:
            found.append(unit)
    for name, path in (("docker", machine.docker_flags(host).config if "docker" in after else None),
                       ("crio", ulimit_lists.CRIO.ours)):
        pid = after.get(name, {}).get("pid")
        if pid and (path in touched or machine.is_older_than_file(host, pid, path)):
            found.append(name + ".service")
    return sorted(set(found))
