# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia-persistenced: what its unit really does, and the files that make it keep persistence. Pure.

Distributions ship the same daemon with opposite flags (Ubuntu has --no-persistence-mode in a static unit), so
the effective ExecStart is read, and nothing is assumed from the distribution's name.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple, Optional

from ._journal import STATE_DIR
from ._memlock import units

UNIT = "nvidia-persistenced.service"
OWN_UNIT = "ai-infra-gpu-host-persistence.service"
DROP_IN = "/etc/systemd/system/%s.d/90-ai-infra-gpu-host.conf" % UNIT
OWN_FILE = "/etc/systemd/system/" + OWN_UNIT
PROGRAM = STATE_DIR + "/set_persistence.py"
UNIT_DIRS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
             "/lib/systemd/system")
HEADER = "# Written by ai_infra.gpu_host.gpu_persistence; the next run overwrites changes made here.\n"
PLAIN_WORD = re.compile(r"^[A-Za-z0-9_@+=:,./-]+$")
UVM_SINCE = (550, 40, 7)
READERS = "slurmd.service kubelet.service docker.service containerd.service"


class Unit(NamedTuple):
    """A unit as its files describe it, fragment and drop-ins together."""

    variant: str  # absent, masked, static, packaged, shadowed, own
    path: Optional[str] = None
    drop_ins: tuple = ()
    exec_start: tuple = ()  # the effective command line
    mode: Optional[bool] = None  # persistence the flags ask for; None when a variable decides
    uvm: Optional[bool] = None
    user: Optional[str] = None
    has_install: bool = False
    stop_when_unneeded: bool = False


class Running(NamedTuple):
    """A unit as systemd and the running daemon show it."""

    active: bool = False
    condition: Optional[bool] = None  # of its last start; None when it was never tried
    mode: Optional[bool] = None  # what the running daemon was told
    uvm: Optional[bool] = None
    drop_ins: tuple = ()  # those that systemd has loaded
    reload_due: bool = False


def flag(words, name, default):
    """The last of --name and --no-name on a command line; None when a variable could hide one."""
    found = default
    for word in words:
        if word == "--" + name:
            found = True
        elif word == "--no-" + name:
            found = False
        elif word.startswith("$") and found is default:
            found = None
    return found


def mode_of(words):
    return flag(words, "persistence-mode", True)


def uvm_of(words):
    return flag(words, "uvm-persistence-mode", False)


def describe(path, texts, variant="packaged"):
    """The Unit that a fragment and its drop-ins [(path, text)] make; the first is the fragment."""
    command, user, unneeded, installs = (), None, False, False
    for name, text in texts:
        for row in units.settings(name, text):
            if (row.section, row.key) == ("Service", "ExecStart"):
                command = tuple(split(row.value)) if row.value else ()
            elif (row.section, row.key) == ("Service", "User"):
                user = row.value or None
            elif (row.section, row.key) == ("Unit", "StopWhenUnneeded"):
                unneeded = row.value.lower() in ("yes", "true", "on", "1", "y", "t")
            elif row.section == "Install" and row.key in ("WantedBy", "RequiredBy", "UpheldBy"):
                installs = bool(row.value)
    user = account(command) or user
    if variant == "packaged" and not installs:
        variant = "static"
    return Unit(variant, path, tuple(name for name, text in texts[1:]), command, mode_of(command), uvm_of(command), user,
                installs, unneeded)


def account(command):
    """The account named by --user, in each way to write it; None when none is."""
    for number, word in enumerate(command):
        if word in ("--user", "-u") and number + 1 < len(command):
            return command[number + 1]
        if word.startswith("--user="):
            return word[len("--user="):]
    return None


def split(command):
    """The words of an ExecStart, without the marks that systemd takes before the path."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [words[0].lstrip("-@:+!")] + words[1:] if words else []


def running(shown, cmdline):
    """Running from C(systemctl show) and the daemon's own command line (/proc/PID/cmdline)."""
    active = shown.get("ActiveState") in ("active", "activating", "reloading")
    words = [word for word in (cmdline or "").split("\0") if word]
    tried = shown.get("ConditionTimestampMonotonic", "0") not in ("0", "")
    return Running(
        active=active,
        condition=shown.get("ConditionResult") == "yes" if tried else None,
        mode=mode_of(words) if active and words else None,
        uvm=uvm_of(words) if active and words else None,
        drop_ins=tuple(shown.get("DropInPaths", "").split()),
        reload_due=shown.get("NeedDaemonReload") == "yes",
    )


def version(text):
    """A driver version as numbers, to compare; None when it is none."""
    parts = (text or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) and text else None


# Files

def unit_word(word):
    """A word of a command line as a unit file takes it; variables and specifiers of the original stay what they are."""
    if PLAIN_WORD.match(word) or word.startswith("$") or "%" in word and not re.search(r"[\s\"'\\]", word):
        return word
    return '"%s"' % word.replace("\\", "\\\\").replace('"', '\\"')


def flags(mode, uvm):
    words = ["--persistence-mode" if mode else "--no-persistence-mode"]
    if uvm is not None:
        words.append("--uvm-persistence-mode" if uvm else "--no-uvm-persistence-mode")
    return words


def wanted_command(unit, mode, uvm):
    """The unit's own command with the flags that were asked for, all else as it is."""
    words = [word for word in unit.exec_start
             if word not in ("--persistence-mode", "--no-persistence-mode")
             and (uvm is None or word not in ("--uvm-persistence-mode", "--no-uvm-persistence-mode"))]
    return words + flags(mode, uvm)


def drop_in_text(packaged, mode, uvm):
    """Our drop-in, given the unit without it; None when the unit does what is asked by itself."""
    flags_right = packaged.mode is mode and (uvm is None or packaged.uvm is uvm)
    needs_install = mode and not packaged.has_install
    unneeded = mode and packaged.stop_when_unneeded
    if flags_right and not needs_install and not unneeded:
        return None
    parts = []
    if unneeded:
        parts.append("[Unit]\nStopWhenUnneeded=no\n")
    if not flags_right:
        parts.append("[Service]\nExecStart=\nExecStart=%s\n" % " ".join(
            unit_word(word) for word in wanted_command(packaged, mode, uvm)))
    if needs_install:
        parts.append("[Install]\nWantedBy=multi-user.target\n")
    return HEADER + "\n".join(parts)


def own_daemon_unit(binary, uvm):
    """A unit of ours for a host that has the daemon and no unit (.run installer); steps aside for a packaged one."""
    return HEADER + """[Unit]
Description=NVIDIA persistence daemon (no unit came with the driver)
ConditionPathExistsGlob=/dev/nvidia[0-9]*
ConditionPathExists=!/usr/lib/systemd/system/%(unit)s
ConditionPathExists=!/etc/systemd/system/%(unit)s
After=systemd-modules-load.service systemd-udev-settle.service
Before=nvidia-fabricmanager.service %(readers)s

[Service]
Type=forking
TimeoutStartSec=300
ExecStart=%(binary)s --verbose %(flags)s
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
""" % {"unit": UNIT, "binary": binary, "flags": " ".join(flags(True, uvm)), "readers": READERS}


def own_oneshot_unit(python, gpus):
    """A unit of ours that sets persistence through NVML at boot. C(gpus) are UUIDs and PCI bus ids; none is all."""
    return HEADER + """[Unit]
Description=Set GPU persistence mode through NVML
ConditionPathExistsGlob=/dev/nvidia[0-9]*
After=systemd-modules-load.service systemd-udev-settle.service %(unit)s
Before=%(readers)s

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=300
ExecStart=%(command)s

[Install]
WantedBy=multi-user.target
""" % {"unit": UNIT, "readers": READERS, "command": " ".join([python, "-B", PROGRAM] + list(gpus))}


def boot_program(binding_dir):
    """What the oneshot unit runs: python3 and pynvml, nothing of Ansible. A GPU that fails hides no other."""
    return HEADER + '''"""Set persistence mode on all GPUs, or on those given by UUID or PCI bus id. Version 1."""
import sys

sys.path.insert(0, "%s")
import pynvml


def handles(names):
    if not names:
        for index in range(pynvml.nvmlDeviceGetCount()):
            yield "GPU %%d" %% index, pynvml.nvmlDeviceGetHandleByIndex, index
    for name in names:
        by_uuid = name.startswith("GPU-")
        yield name, pynvml.nvmlDeviceGetHandleByUUID if by_uuid else pynvml.nvmlDeviceGetHandleByPciBusId, name.encode()


pynvml.nvmlInit()
failed = 0
for name, find, key in handles(sys.argv[1:]):
    try:
        pynvml.nvmlDeviceSetPersistenceMode(find(key), 1)
    except pynvml.NVMLError_NotSupported:
        print("%%s: not supported" %% name)
    except pynvml.NVMLError as error:
        print("%%s: NVML error %%s" %% (name, error.value), file=sys.stderr)
        failed = 1
sys.exit(failed)
''' % binding_dir


# Answers

def survival(mode, kind, unit, enabled, condition):
    """(whether a reboot brings the mode back, why). C(kind) is daemon, own_daemon, oneshot or none."""
    if kind == "no_systemd":
        return not mode, "there is no systemd here that would set it at boot"
    if kind in ("own_daemon", "oneshot"):
        if enabled:
            return True, "%s sets it at boot" % OWN_UNIT
        return False, "%s is not enabled" % OWN_UNIT
    if unit.variant in ("absent", "masked"):
        what = "no unit sets it at boot" if unit.variant == "absent" else UNIT + " is masked"
        return (False, what) if mode else (True, "off is what a reboot gives: " + what)
    if unit.mode is None:
        return False, "the flags of %s come from a variable and can't be read" % UNIT
    if unit.mode is not mode:
        if not mode and not enabled and unit.variant != "static":
            return True, "%s is not started at boot" % UNIT
        return False, "%s starts with persistence %s" % (UNIT, on_off(unit.mode))
    if mode and not enabled:
        return False, UNIT + " is not enabled"
    if mode and condition is False:
        return False, "the condition of %s was not met at its last start; order it after what makes /dev/nvidia*" % UNIT
    return True, "%s starts with persistence %s" % (UNIT, on_off(mode))


def on_off(mode):
    return None if mode is None else "on" if mode else "off"


PM_OFF = re.compile(r"nvidia-smi\b.*(?:\s-pm[\s=]*|--persistence-mode[\s=])(0|1|DISABLED|ENABLED)\b", re.IGNORECASE)


def foreign_line(line):
    """What a unit's line does to persistence: (what, mode), or None. Another unit, not nvidia-persistenced's own."""
    code = line.strip()
    if not code.startswith("Exec"):
        return None
    found = PM_OFF.search(code)
    if found:
        return "nvidia-smi", found.group(1).lower() in ("1", "enabled")
    words = split(code.partition("=")[2])
    if any(word.rsplit("/", 1)[-1] == "nvidia-persistenced" for word in words) and code.startswith("ExecStart="):
        return "nvidia-persistenced", mode_of(words)
    return None
