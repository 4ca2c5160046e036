# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The knob gpu_persistence: the daemon where there is one, NVML for the rest, and each GPU read back.

Options and results: ansible-doc gpu_persistence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _gpus, _journal, _nvml, _persistence, _persistenced, _sysfs, _systemd
from .._errors import BadInput, Conflict, HostError, NvmlError, Unsupported
from .._options import COMMON
from .._persistence import OWN_FILE, OWN_UNIT, PROGRAM, UNIT, on_off
from .._plan import AFTER_APPLY, Step, carry_out, file_step, outcome
from .._topology.pci import driver_uuid

KNOB = "gpu_persistence"
OWN_FILES = [_persistence.DROP_IN, OWN_FILE, PROGRAM]

ARGUMENT_SPEC = dict(COMMON, **{
    "mode": {"type": "str", "choices": ["on", "off"], "default": "on"},
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "method": {"type": "str", "choices": ["auto", "daemon", "nvml"], "default": "auto"},
    "uvm": {"type": "bool"},
    "unmask": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "allow_restart": {"type": "bool", "default": False},
    "pynvml_path": {"type": "path"},
})


class Row(NamedTuple):
    """A GPU, its persistence (None: it can't be told), and why it can't have it or can't be asked."""

    gpu: Any
    mode: Any = None
    supported: bool = True
    error: Any = None


class Want(NamedTuple):
    """What was asked for, and by which means this host gets it."""

    mode: bool
    uvm: Any
    kind: str  # daemon, own_daemon, oneshot, none, no_systemd
    now: bool
    boot: bool
    params: dict


def run(host, params, check_mode):
    """Bring the GPUs to the wanted mode, now and at boot."""
    if check_mode:
        host = host.planned()
    if params["state"] == "absent":
        return put_back(host)
    there = gpus_are_there(host)
    have = _persistenced.read(host)
    try:
        want = choose(host, params, have, there)
    except Unsupported as err:
        if params["unsupported"] == "fail":
            raise
        return skipped(have, err.why)
    nvml = open_nvml(host, want) if there else None
    rows = read_gpus(host, nvml, params["gpus"]) if nvml else []
    conflicts = _persistenced.conflicts(host, have, want.mode) if want.boot else []
    winners = [row["message"] for row in conflicts if row["wins"]]
    if params["conflicts"] == "fail" and winners:
        raise Conflict("keep persistence over a reboot on", "this host", winners[0],
                       "Remove the other setting, or set conflicts: warn", conflicts=conflicts)

    boot, pending = boot_steps(host, have, want, nvml, rows)
    daemon, restart_required = daemon_steps(host, have, want, rows, boot, pending)
    steps = boot + daemon + set_steps(want, rows, daemon)
    if steps:
        refuse_off(nvml, rows, want)
    work = Work(host, nvml, rows, want.mode)
    carry_out(host, KNOB, steps, work.performers())
    after = read_gpus(host, nvml, params["gpus"]) if nvml and steps else rows
    late = [step._replace(known=AFTER_APPLY) for step in set_steps(want, without(after, work.errors), [])]
    if late and daemon and not host.is_planned:  # what the daemon did not do
        carry_out(host, KNOB, late, work.performers())
        steps, after = steps + late, read_gpus(host, nvml, params["gpus"])
    return answer(host, have, want, rows, after, steps, work, conflicts, restart_required, pending)


# What is there

def gpus_are_there(host):
    """An NVIDIA GPU on the PCI bus, or the device nodes of one. Where neither is, NVML is never opened."""
    return bool(host.glob("/dev/nvidia[0-9]*") or pci_gpus(host))


def pci_gpus(host):
    """PCI addresses of NVIDIA's GPUs, without those that a virtual machine has and without virtual functions."""
    found = []
    for function in host.listdir("/sys/bus/pci/devices"):
        folder = "/sys/bus/pci/devices/%s/" % function
        if (host.read(folder + "vendor") or "").strip() != "0x10de" or host.exists(folder + "physfn"):
            continue
        driver = (host.readlink(folder + "driver") or "").rsplit("/", 1)[-1]
        if (host.read(folder + "class") or "").startswith("0x03") and driver not in ("vfio-pci", "pci-stub"):
            found.append(_gpus.normal_pci(function))
    return found


def choose(host, params, have, there):
    """The Want. Raises before any change, Unsupported when this host has neither a GPU nor the daemon."""
    mode, uvm, method = params["mode"] == "on", params["uvm"], params["method"]
    subset = [str(name).strip() for name in params["gpus"]] != ["all"]
    if subset and method == "daemon":
        raise BadInput("use method", "daemon", "the daemon sets all GPUs alike and gpus names some",
                       "Use method: auto or nvml, or gpus: all")
    variant = have.unit.variant
    if variant == "masked" and params["unmask"] and not subset and method != "nvml":
        variant = "unmasked"
    if not have.systemctl:
        kind = "no_systemd"
    elif subset or method == "nvml":
        kind = "oneshot" if mode else "none"
    elif variant not in ("absent", "masked"):
        kind = "daemon"
    elif method == "daemon" and variant == "masked":
        raise HostError("use", UNIT, "it is masked (%s)" % have.unit.path, "Set unmask: true, or method: auto or nvml")
    elif method == "daemon" and have.binary is None:
        raise Unsupported("use", "nvidia-persistenced", "this host does not have it",
                          "Install it with the driver, or use method: auto")
    else:
        kind = "none" if not mode else "oneshot" if variant == "masked" or have.binary is None else "own_daemon"
    if not there and kind in ("oneshot", "none", "no_systemd"):
        raise Unsupported("set persistence on", "this host", "WSL shares the GPU of Windows, which decides on persistence"
                          if host.exists("/dev/dxg") else "this host has no NVIDIA GPU and no usable nvidia-persistenced",
                          "Set unsupported: skip to leave such hosts alone")
    if uvm and kind not in ("daemon", "own_daemon"):
        raise Unsupported("use", "uvm", "only the daemon can keep it, and it is not used here",
                          "Leave uvm out, or install nvidia-persistenced")
    driver = _nvml.kernel_driver_version(host)
    if uvm and driver and (_persistence.version(driver) or _persistence.UVM_SINCE) < _persistence.UVM_SINCE:
        raise Unsupported("use", "uvm", "the driver is %s, and its daemon does not know the flag" % driver,
                          "Upgrade the driver to 550.40.07 or newer")
    if mode and kind == "daemon" and have.lacks_account:
        raise HostError("use", UNIT, "its account %s does not exist" % have.lacks_account,
                        "Create the account, as the driver's package would have done")
    return Want(mode, uvm, kind, params["apply"] in ("now", "both"), params["apply"] in ("boot", "both"), params)


def skipped(have, reason):
    """The answer of a host that can't have what was asked for, and was not touched."""
    state = report([], have, have.name)
    return outcome(state, state, [], supported=False, reason=reason, gpus=[], unit=_persistenced.shown(have, have.name),
                   method=None, driver_version=None, survives_reboot=False, survives_reason=reason)


def open_nvml(host, want):
    """NVML; None for a boot layer that needs no more than unit files. Raises NvmlError."""
    if want.now or want.params["gpus"] != ["all"]:
        return host.nvml()
    if want.mode:
        return None
    try:
        return host.nvml()  # only to know whether off is safe here
    except NvmlError:
        return None


def read_gpus(host, nvml, wanted):
    """A Row for every chosen GPU; one that can't be asked, or that NVML does not count, hides no other."""
    on_bus = pci_gpus(host)
    gpus = name_lost(host, nvml.gpus(), on_bus)
    rows = []
    for gpu in _gpus.select(gpus, wanted, len(on_bus) if on_bus else None):
        if gpu.error is not None:
            rows.append(Row(gpu, error=str(gpu.error)))
            continue
        try:
            rows.append(Row(gpu, nvml.persistence(gpu)))
        except NvmlError as err:
            rows.append(Row(gpu, supported=err.kind != "not_supported",
                            error="this GPU's driver has no persistence mode" if err.kind == "not_supported" else str(err)))
    if [str(name) for name in wanted] == ["all"] and len(on_bus) > len(gpus):
        for pci in on_bus:
            if pci not in [gpu.pci for gpu in gpus]:
                rows.append(Row(_nvml.Gpu(None, None, pci, None), error="NVML does not count the GPU at %s: look for "
                                "Xid 79 in the kernel log" % pci))
    return rows


def name_lost(host, gpus, on_bus):
    """NVML counts in the order of the PCI bus, so a GPU it can't ask is known by its place, when all others fit."""
    if len(gpus) != len(on_bus) or any(gpu.pci not in (None, pci) for gpu, pci in zip(gpus, on_bus)):
        return gpus
    return [gpu._replace(pci=pci, uuid=gpu.uuid or driver_uuid(_sysfs.driver_gpu(host, pci)[0]))
            for gpu, pci in zip(gpus, on_bus)]


def without(rows, errors):
    return [row for row in rows if row.gpu.label not in errors]


def refuse_off(nvml, rows, want):
    """Off loses more than time on some boards: their memory as a NUMA node, or the keys of confidential computing."""
    if want.mode or want.params["force"] or nvml is None:
        return
    if nvml.confidential_computing():
        raise Conflict("switch persistence off on", "this host", "confidential computing is on, and its keys would be lost",
                       "Set force: true if no guest or job needs them")
    for row in rows:
        if row.error is None and nvml.memory_node(row.gpu) is not None:
            raise Conflict("switch persistence off on", row.gpu.label,
                           "its memory is NUMA node %d of this host, which would go" % nvml.memory_node(row.gpu),
                           "Set force: true if no job runs")


# The plan

def boot_steps(host, have, want, nvml, rows):
    """(steps, why a daemon-reload has to wait): files, enablement, reload."""
    if nvml is None and want.boot and want.kind == "oneshot":
        nvml = host.nvml_binding()  # the program that boot runs needs it
    steps = _nvml.binding_steps(host, nvml) if nvml else []
    if not want.boot or want.kind == "no_systemd":
        waits = _persistenced.reload_waits(have)
        return steps, "daemon-reload is due (%s), but apply is now" % waits if waits else None
    if want.kind == "daemon" and have.unit.variant == "masked":
        steps.append(Step("unmask_unit", UNIT, "masked", None))
    drop_in, own, program = wanted_files(host, have, want, rows)
    if own is None and have.own_enabled:
        steps.append(Step("disable_unit", OWN_UNIT, "enabled", "disabled"))
    if own is None and not want.mode and have.own.active:
        steps.append(Step("stop_unit", OWN_UNIT, "active", "inactive"))
    files = (file_step(host, PROGRAM, program) + file_step(host, _persistence.DROP_IN, drop_in)
             + file_step(host, OWN_FILE, own))
    steps += files
    name = UNIT if want.kind == "daemon" else OWN_UNIT
    if want.mode and not have.enabled(name):
        steps.append(Step("enable_unit", name, have.enablement(name), "enabled"))
    changed = [step.target for step in files if step.target != PROGRAM] + [
        step.target for step in steps if step.action == "unmask_unit"]
    reason = ", ".join(changed) or _persistenced.reload_waits(have)
    if not reason:
        return steps, None
    if not want.now:
        return steps, "daemon-reload is due (%s), but apply is boot" % reason
    reload, pending = _systemd.reload_steps(host, reason)
    return steps + reload, pending


def wanted_files(host, have, want, rows):
    """Texts of our drop-in, our unit and its program; None is no file."""
    if want.kind == "daemon":
        starts = have.enabled(UNIT) or have.bare.variant == "static" or have.daemon.active or have.unit.drop_ins
        return _persistence.drop_in_text(have.bare, want.mode, want.uvm) if want.mode or starts else None, None, None
    if want.kind == "own_daemon":
        return None, _persistence.own_daemon_unit(have.binary, want.uvm), None
    if want.kind == "none":
        return None, None, None
    some = [] if want.params["gpus"] == ["all"] else sorted(row.gpu.pci for row in rows if row.gpu.pci)
    python = host.which("python3") or "/usr/bin/python3"
    return None, _persistence.own_oneshot_unit(python, some), _persistence.boot_program(_nvml.BINDING_DIR)


def daemon_steps(host, have, want, rows, boot, pending):
    """(steps, restart_required): start, restart or stop of the daemon, only when needed and when a GPU is there."""
    if not want.now or not rows or not _systemd.is_running(host) or want.kind not in ("daemon", "own_daemon"):
        return [], []
    name = UNIT if want.kind == "daemon" else OWN_UNIT
    state = have.state(name)
    will_be = _persistenced.after_files(host, have, name, boot, pending)
    differs = [row for row in rows if row.error is None and row.mode is not want.mode]
    if not want.mode:
        if not state.active or state.mode is False:
            return [], []
        return [Step("restart_unit" if will_be.mode is False else "stop_unit", name, "persistence on", "persistence off")], []
    flags_right = will_be.mode is True and (want.uvm is None or will_be.uvm is want.uvm)
    if state.active:
        running_right = state.mode is not False and (want.uvm is None or state.uvm in (None, want.uvm))
        if running_right:
            return [], []
        if not want.params["allow_restart"] or not flags_right or pending:
            return [], [name]
        return [Step("restart_unit", name, "persistence %s" % (on_off(state.mode) or "unknown"), "persistence on")], []
    if flags_right and not pending and not have.stray and (differs or want.uvm):
        return [Step("start_unit", name, "inactive", "active")], []
    return [], []


def set_steps(want, rows, daemon):
    """What NVML has to set: GPUs that the daemon will not bring there."""
    if not want.now or want.params["method"] == "daemon" or any(
            step.action in ("start_unit", "restart_unit", "stop_unit") for step in daemon):
        return []
    return [Step("set_persistence", row.gpu.label, on_off(row.mode), on_off(want.mode), detail=row.gpu)
            for row in rows if row.error is None and row.mode is not want.mode]


# Doing it

class Work:
    """Performers that go on after a GPU or the daemon failed, and remember why."""

    def __init__(self, host, nvml, rows, mode):
        self.host, self.nvml, self.rows, self.mode = host, nvml, rows, mode
        self.errors = {}

    def performers(self):
        found = dict(_systemd.PERFORMERS, install_binding=_nvml.install_binding, remove_binding=_nvml.remove_binding,
                     set_persistence=self.set_persistence)
        found.update({action: self.daemon(found[action]) for action in ("start_unit", "restart_unit", "stop_unit")})
        return found

    def set_persistence(self, host, step):
        try:
            self.nvml.set_persistence(step.detail, step.after == "on")
        except NvmlError as err:
            self.errors[step.target] = str(err)

    def daemon(self, perform):
        def act(host, step):
            try:
                perform(host, step)
            except HostError as err:
                self.errors[step.target] = "%s It runs %s and says: %s" % (
                    err, _persistenced.effective_command(host, step.target), _persistenced.log_tail(host, step.target))
                return
            for row in self.rows:
                if self.nvml and row.error is None:
                    if host.is_planned:  # a planned daemon does as it is told
                        self.nvml.set_persistence(row.gpu, self.mode and step.action != "stop_unit")
                    self.nvml.forget_handle(row.gpu)
        return act


# The answer

def report(rows, have, name):
    """The state as before and after show it."""
    return {
        "gpus": {row.gpu.label: on_off(row.mode) for row in rows},
        "unit": {"name": name, "enabled": have.enabled(name), "active": have.state(name).active,
                 "persistence": on_off(have.unit_of(name).mode)},
    }


def answer(host, have, want, rows, after, steps, work, conflicts, restart_required, pending):
    """The result, with every GPU's own answer, and failed when one of them could not be brought there."""
    now = read_again(host, have, steps)
    name = OWN_UNIT if want.kind in ("own_daemon", "oneshot") else UNIT
    kind = want.kind if want.kind != "none" else "daemon"
    survives, why = _persistence.survival(want.mode, kind, now.unit, now.enabled(name), now.daemon.condition)
    winners = [row["message"] for row in conflicts if row["wins"]]
    if survives and winners:
        survives, why = False, winners[0]
    gpus = [gpu_result(row, was, want, work.errors, restart_required) for row, was in zip(after, rows)]
    failed = [row for row in gpus if row["error"] and row["supported"]]
    troubles = ["%s: %s" % (name_of(row), row["error"]) for row in failed] + [
        text for target, text in sorted(work.errors.items()) if target in (UNIT, OWN_UNIT)]
    unsupported = bool(gpus) and not any(row["supported"] for row in gpus)
    result = outcome(
        report(rows, have, name), report(after, now, name), steps, conflicts=conflicts,
        restart_required=restart_required, reload_pending=pending or False,
        supported=not unsupported, reason=gpus[0]["error"] if unsupported else None,
        warnings=warnings(host, have, want, conflicts, rows), gpus=gpus, unit=_persistenced.shown(now, name),
        method={"daemon": "daemon", "own_daemon": "daemon"}.get(want.kind, "nvml"),
        driver_version=_nvml.kernel_driver_version(host), survives_reboot=survives, survives_reason=why,
    )
    if troubles:
        result.update(failed=True, msg="Persistence is not %s everywhere; everything else was done. %s" % (
            on_off(want.mode), " ".join(troubles)))
    return result


def read_again(host, have, steps):
    """The daemon after the steps; on a planned host what only systemd can tell is predicted."""
    if not steps:
        return have
    now = _persistenced.read(host)
    return _persistenced.predict(now, steps) if host.is_planned else now


def name_of(row):
    return " ".join(str(row[key]) for key in ("uuid", "pci") if row[key]) or "GPU %s" % row["index"]


def gpu_result(row, was, want, errors, restart_required):
    error = row.error or errors.get(row.gpu.label)
    if error is None and want.now and row.mode is not want.mode and not restart_required:
        error = "it is still %s after the run%s" % (
            on_off(row.mode), "; the daemon holds it on, use method: auto for all GPUs" if row.mode else "")
    return {"uuid": row.gpu.uuid, "pci": row.gpu.pci, "index": row.gpu.index, "before": on_off(was.mode),
            "after": on_off(row.mode), "supported": row.supported, "error": error}


def warnings(host, have, want, conflicts, rows):
    """What a person should know and no field says."""
    found = [row["message"] for row in conflicts]
    if have.unit.variant == "masked" and want.mode and want.kind == "oneshot":
        found.append("%s is masked (%s): persistence is set through NVML; unmask: true would use the daemon" % (
            UNIT, have.unit.path))
    if have.unit.variant == "shadowed":
        found.append("%s shadows the unit of the driver's package" % have.unit.path)
    if have.daemon.reload_due and not have.loaded_apart:
        found.append("%s was changed and systemd has not read that: run systemctl daemon-reload" % UNIT)
    if have.stray:
        found.append("nvidia-persistenced runs outside of %s (pid %s), so it was not started" % (UNIT, have.stray))
    if rows and _sysfs.container(host) and not host.exists("/run/nvidia-persistenced/socket") and not have.daemon.active \
            and not have.own.active:
        found.append("this is a container without the daemon's socket: the mode can read off though the host has it on; "
                     "run this on the host")
    return found


# state: absent

def put_back(host):
    """Our files gone, units as they were, and each GPU's mode as it was before the first run."""
    others = _journal.load(host, KNOB)["others"]
    have = _persistenced.read(host)
    originals = others.get("set_persistence", {})
    rows = []
    if originals and gpus_are_there(host):
        rows = read_gpus(host, host.nvml(), ["all"])
    steps, pending = _persistenced.undo_steps(host, have, others, _journal.undo(host, KNOB, own_files=OWN_FILES))
    for row in rows:
        first = originals.get(row.gpu.label)
        if row.error is None and first is not None and on_off(row.mode) != first:
            steps.append(Step("set_persistence", row.gpu.label, on_off(row.mode), first, detail=row.gpu))
    if "install_binding" in others and host.exists(_nvml.BINDING_FILE):
        steps.append(Step("remove_binding", _nvml.BINDING_FILE, "pynvml", None))
    work = Work(host, host.nvml() if rows else None, rows, False)
    carry_out(host, KNOB, steps, work.performers(), restoring=True)
    after = read_gpus(host, host.nvml(), ["all"]) if rows else []
    now = read_again(host, have, steps)
    result = outcome(
        report(rows, have, have.name), report(after, now, now.name), steps, reload_pending=pending or False, gpus=[
            {"uuid": row.gpu.uuid, "pci": row.gpu.pci, "index": row.gpu.index, "before": on_off(was.mode),
             "after": on_off(row.mode), "supported": row.supported, "error": row.error or work.errors.get(row.gpu.label)}
            for row, was in zip(after, rows)],
        unit=_persistenced.shown(now, now.name), method=None, driver_version=_nvml.kernel_driver_version(host),
        survives_reboot=False, survives_reason="nothing of ours sets persistence at boot")
    if work.errors:
        result.update(failed=True, msg="Not everything could be put back. " + " ".join(work.errors.values()))
    return result
