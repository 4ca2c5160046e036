# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia-persistenced on this host, read through the doors: unit files, systemd's view, the running daemon."""

from __future__ import annotations

from typing import NamedTuple, Optional

from . import _persistence, _systemd
from ._errors import HostError
from ._memlock import units
from ._persistence import DROP_IN, OWN_FILE, OWN_UNIT, UNIT, Running, Unit, on_off
from ._plan import Step

PID_FILE = "/run/nvidia-persistenced/nvidia-persistenced.pid"
PROPERTIES = ("LoadState", "ActiveState", "MainPID", "ConditionResult", "ConditionTimestampMonotonic", "DropInPaths",
              "NeedDaemonReload")


class Have(NamedTuple):
    """Everything about the daemon on this host."""

    unit: Unit  # nvidia-persistenced.service as it is
    bare: Unit  # the same without our drop-in, and without a mask
    unmasked: Unit  # the same with our drop-in, and without a mask
    own_unit: Unit
    daemon: Running
    own: Running
    links: dict  # unit name -> whether something at boot pulls it in
    binary: Optional[str]
    systemctl: bool
    lacks_account: Optional[str]
    stray: Optional[str]  # pid of a daemon that no unit of ours knows
    loaded_apart: tuple  # files of ours that systemd has not read, or still has though they went

    @property
    def name(self):
        return OWN_UNIT if self.unit.variant == "absent" and self.own_unit.variant == "own" else UNIT

    @property
    def own_enabled(self):
        return self.links[OWN_UNIT]

    def enabled(self, name):
        return self.links[name] and self.unit_of(name).variant != "masked"

    def enablement(self, name):
        return "static" if name == UNIT and self.bare.variant == "static" else "disabled"

    def state(self, name):
        return self.own if name == OWN_UNIT else self.daemon

    def unit_of(self, name):
        return self.own_unit if name == OWN_UNIT else self.unit


def read(host):
    """The Have of this host."""
    bare = unit_files(host, {DROP_IN: None}, masked=False)
    unit = unit_files(host)
    shown, has_systemctl = {}, host.which("systemctl") is not None
    if has_systemctl and _systemd.is_running(host):
        shown = _systemd.show(host, [UNIT, OWN_UNIT], PROPERTIES)
    daemon, own = (running(host, shown.get(name, {})) for name in (UNIT, OWN_UNIT))
    return Have(
        unit=unit, bare=bare, unmasked=unit_files(host, masked=False), own_unit=own_unit(host), daemon=daemon, own=own,
        links={name: bool(boot_links(host, name)) for name in (UNIT, OWN_UNIT)},
        binary=host.which("nvidia-persistenced"), systemctl=has_systemctl,
        lacks_account=missing_account(host, bare.user),
        stray=None if daemon.active or own.active else stray_daemon(host),
        loaded_apart=loaded_apart(host, daemon, own) if shown else (),
    )


def running(host, shown):
    pid = shown.get("MainPID", "0")
    return _persistence.running(shown, host.read("/proc/%s/cmdline" % pid) if pid not in ("", "0") else None)


def unit_files(host, instead=None, masked=True):
    """nvidia-persistenced.service as its files are, with C(instead) {path: text} in the place of some."""
    found = [path for path in ("%s/%s" % (folder, UNIT) for folder in _persistence.UNIT_DIRS) if host.exists(path)]
    masks = [path for path in found if host.realpath(path) == "/dev/null" or host.read(path) == ""]
    if masked and found and found[0] in masks:
        return Unit("masked", found[0])
    found = [path for path in found if path not in masks]
    if not found:
        return Unit("absent")
    others = {host.realpath(path) for path in found[1:]} - {host.realpath(found[0])}
    shadows = found[0].startswith(("/etc/", "/run/")) and others
    texts = [(found[0], host.read(found[0]))] + drop_ins(host, instead or {})
    return _persistence.describe(found[0], texts, "shadowed" if shadows else "packaged")


def drop_ins(host, instead):
    """[(path, text)] of the unit's drop-ins in the order that systemd reads them."""
    paths = []
    for folder in units.drop_in_folders([UNIT]):
        names = set(host.listdir(folder))
        for path, text in instead.items():
            if path.rsplit("/", 1)[0] == folder:
                (names.discard if text is None else names.add)(path.rsplit("/", 1)[1])
        paths += ["%s/%s" % (folder, name) for name in sorted(names)]
    return [(path, instead[path] if path in instead else host.read(path)) for path in units.effective_files(paths)
            if host.realpath(path) != "/dev/null"]


def own_unit(host):
    text = host.read(OWN_FILE)
    return Unit("absent") if text is None else _persistence.describe(OWN_FILE, [(OWN_FILE, text)], "own")


def boot_links(host, name):
    """The links by which a target pulls a unit in."""
    return [path for folder in _persistence.UNIT_DIRS for kind in ("wants", "requires")
            for path in host.glob("%s/*.%s/%s" % (folder, kind, name))]


def missing_account(host, user):
    """The account a unit wants and the host does not have; numbers and roots are always there."""
    if user in (None, "root") or user.isdigit() or user.startswith(("$", "%")):
        return None
    return user if host.run(["getent", "passwd", user]).rc == 2 else None


def stray_daemon(host):
    """The pid of a daemon somebody started without the unit, from its pid file."""
    pid = (host.read(PID_FILE) or "").strip()
    comm = host.read("/proc/%s/comm" % pid) if pid.isdigit() else None
    return pid if (comm or "").startswith("nvidia-persist") else None


def loaded_apart(host, daemon, own):
    """Our unit files that systemd has to be told about."""
    there, known = host.exists(DROP_IN), DROP_IN in daemon.drop_ins
    found = [DROP_IN] if there is not known or there and daemon.reload_due else []
    return tuple(found + ([OWN_FILE] if own.reload_due and host.exists(OWN_FILE) else []))


def reload_waits(have):
    """The files for which a daemon-reload is still due from an earlier run; None when it is not."""
    return ", ".join(have.loaded_apart) or None


def after_files(host, have, name, steps, pending):
    """The unit as systemd will start it once the file steps are done, or as it has it while a reload waits."""
    if pending:
        return have.unit_of(name)
    instead = {step.target: step.after for step in steps if step.action in ("write_file", "remove_file")}
    if name == OWN_UNIT:
        text = instead.get(OWN_FILE, host.read(OWN_FILE))
        return Unit("absent") if text is None else _persistence.describe(OWN_FILE, [(OWN_FILE, text)], "own")
    return unit_files(host, instead, masked=not any(step.action == "unmask_unit" for step in steps))


def predict(have, steps):
    """What a planned host will be after its steps: what only systemd can tell is told by the plan."""
    links, daemon, own, unit = dict(have.links), have.daemon, have.own, have.unit
    for step in steps:
        if step.action in ("enable_unit", "disable_unit"):
            links[step.target] = step.action == "enable_unit"
        elif step.action in ("start_unit", "restart_unit", "stop_unit"):
            on = step.action != "stop_unit"
            state = (own if step.target == OWN_UNIT else daemon)._replace(active=on, condition=True if on else None)
            own, daemon = (state, daemon) if step.target == OWN_UNIT else (own, state)
        elif step.action == "unmask_unit":
            unit = have.unmasked
        elif step.action == "mask_unit":
            unit = Unit("masked", "/etc/systemd/system/" + UNIT)
    return have._replace(links=links, daemon=daemon, own=own, unit=unit)


def conflicts(host, have, mode):
    """Who else decides on persistence at boot: drop-ins after ours, other units."""
    rows = []

    def add(where, value, wins, message):
        rows.append({"where": where, "value": on_off(value), "wanted": on_off(mode), "wins": wins, "message": message})

    for path in have.unit.drop_ins:
        if path.rsplit("/", 1)[1] > DROP_IN.rsplit("/", 1)[1]:
            for row in units.settings(path, host.read(path)):
                value = _persistence.mode_of(_persistence.split(row.value))
                if (row.section, row.key) == ("Service", "ExecStart") and row.value and value is not mode:
                    add(row.where, value, True, "%s starts the daemon with persistence %s, after us" % (
                        row.where, on_off(value) or "unknown"))
    seen = set()
    for folder in _persistence.UNIT_DIRS:
        for path in host.glob(folder + "/*.service"):
            name, text = path.rsplit("/", 1)[1], host.read(path) or ""
            if name in (UNIT, OWN_UNIT) or name in seen or "nvidia" not in text:
                continue
            seen.add(name)
            at_boot = bool(boot_links(host, name))
            for number, line in enumerate(text.splitlines(), 1):
                what, value = _persistence.foreign_line(line) or (None, None)
                if what and (value is not mode or what == "nvidia-persistenced"):
                    add("%s:%d" % (path, number), value, at_boot and value is not mode,
                        "%s:%d runs %s with persistence %s%s" % (path, number, what, on_off(value),
                                                                 " at boot" if at_boot else ", but not at boot"))
    return rows


def undo_steps(host, have, others, files):
    """state: absent, (steps, why a reload has to wait). Links, units and files as they were.

    A daemon stops only if it runs because of us, and restarts only to get back the flags it had.
    """
    steps, pending = [], None
    recorded = others.get("enable_unit", {})
    for name in (UNIT, OWN_UNIT):
        if have.links[name] and (name == OWN_UNIT or name in recorded):
            steps.append(Step("disable_unit", name, "enabled", recorded.get(name) or "disabled"))
    unmasked = UNIT in others.get("unmask_unit", {}) and have.unit.variant != "masked"
    ours = UNIT in others.get("start_unit", {}) or recorded.get(UNIT) == "disabled" or unmasked
    for name, runs in ((UNIT, have.daemon.active and ours), (OWN_UNIT, have.own.active)):
        if runs:
            steps.append(Step("stop_unit", name, "active", "inactive"))
    steps += files
    if unmasked:
        steps.append(Step("mask_unit", UNIT, None, "masked"))
    changed = [step.target for step in files if step.target != _persistence.PROGRAM]
    if changed or unmasked:
        reload, pending = _systemd.reload_steps(host, ", ".join(changed) or "mask")
        steps += reload
    flags_go = DROP_IN in changed and have.daemon.active and not ours and not pending
    if flags_go and None not in (have.daemon.mode, have.bare.mode) and have.daemon.mode is not have.bare.mode:
        steps.append(Step("restart_unit", UNIT, "persistence " + on_off(have.daemon.mode),
                          "persistence " + on_off(have.bare.mode)))
    return steps, pending


def shown(have, name):
    """The unit in the words of the result."""
    unit, state = have.unit_of(name), have.state(name)
    met = have.unit.variant
    variant = "static" if met == "packaged" and not have.bare.has_install else met
    return {"name": name, "variant": variant, "path": unit.path, "drop_ins": list(unit.drop_ins),
            "exec_start": " ".join(unit.exec_start) or None, "enabled": have.enabled(name), "active": state.active,
            "condition": state.condition}


def effective_command(host, name):
    """What systemd starts, drop-ins included, for an error message."""
    try:
        text = _systemd.show(host, [name], ["ExecStart"])[name].get("ExecStart", "")
    except HostError:
        return "an unknown command"
    return text.partition("argv[]=")[2].partition(" ;")[0] or "an unknown command"


def log_tail(host, name):
    ran = host.run(["journalctl", "--unit", name, "--lines", "15", "--no-pager", "--output", "cat"])
    return " | ".join(line for line in ran.out.splitlines() if line.strip()) or "nothing in the journal"
