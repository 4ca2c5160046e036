# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Door to systemd, on top of the host door. Private: may change at any time.

Only C(systemctl show) is read, never the human-readable output. There is one daemon-reload, and it is guarded:
with the systemd cgroup driver it can take the GPUs away from running containers (nvidia-container-toolkit#48).
"""

from __future__ import annotations

from ._errors import HostError
from ._plan import Step

UNIT_DIR = "/etc/systemd/system"


def is_running(host):
    """Whether systemd is the init of this system (false in a chroot or a plain container)."""
    return host.is_dir("/run/systemd/system")


def show(host, units, properties, pattern=None):
    """Properties of several units in one call: {unit: {property: text}}. A missing unit has LoadState not-found.

    Loaded units that match the pattern come under their own names; systemctl lists them last.
    """
    names = list(units) + ([pattern] if pattern else [])
    if not names:
        return {}
    ran = host.run(["systemctl", "show", "--property=Id", "--property=" + ",".join(properties), "--"] + names)
    if ran.rc != 0:
        raise HostError("ask systemd about", ", ".join(names), ran.err.strip() or "exit status %d" % ran.rc,
                        "Check that systemd runs on this host")
    blocks = [block for block in ran.out.split("\n\n") if block.strip()]
    found = {}
    for position, block in enumerate(blocks):
        pairs = dict(line.partition("=")[::2] for line in block.splitlines())
        found[units[position] if position < len(units) else pairs.get("Id", "")] = pairs
    return found


def drop_in(unit, name):
    """Path of a drop-in of ours."""
    return "%s/%s.d/%s" % (UNIT_DIR, unit, name)


def containers_would_lose_gpus(host):
    """Why a daemon-reload could cut running containers from their GPUs; None when it is safe.

    Containers hold /dev/nvidia* by device rules that a reload re-applies from what systemd knows: devices that
    have no /dev/char link are dropped. Only a container that holds a GPU matters.
    """
    if any(name.startswith("195:") for name in host.listdir("/dev/char")):
        return None
    if not host.exists("/dev/nvidiactl"):
        return None
    for pid in host.listdir("/proc"):
        if not pid.isdigit():
            continue
        cgroup = host.read("/proc/%s/cgroup" % pid) or ""
        if not any(word in cgroup for word in ("docker", "containerd", "kubepods", "libpod", "crio")):
            continue
        for fd in host.listdir("/proc/%s/fd" % pid):
            if (host.readlink("/proc/%s/fd/%s" % (pid, fd)) or "").startswith("/dev/nvidia"):
                return "process %s of a container holds a GPU and /dev/char has no links to the NVIDIA devices" % pid
    return None


def reload_steps(host, reason):
    """(steps, pending): the guarded daemon-reload, or why it has to wait."""
    if not is_running(host):
        return [], None
    danger = containers_would_lose_gpus(host)
    if danger:
        return [], "daemon-reload is due (%s) but %s; run nvidia-ctk system create-dev-char-symlinks --create-all " \
                   "or reload when the node is drained" % (reason, danger)
    return [Step("daemon_reload", "systemd", None, reason)], None


def _systemctl(verb, *options):
    def perform(host, step):
        host.act(["systemctl", "--no-ask-password"] + list(options) + [verb, "--", step.target], timeout=330)
    return perform


# Enabling and masking would reload systemd on their own, past the guard: --no-reload.
# A start may take minutes: the persistence daemon answers when all GPUs are initialised.
PERFORMERS = {
    "daemon_reload": lambda host, step: host.act(["systemctl", "daemon-reload"], timeout=120),
    "enable_unit": _systemctl("enable", "--no-reload"),
    "disable_unit": _systemctl("disable", "--no-reload"),
    "unmask_unit": _systemctl("unmask", "--no-reload"),
    "mask_unit": _systemctl("mask", "--no-reload"),
    "start_unit": _systemctl("start"),
    "stop_unit": _systemctl("stop"),
    "restart_unit": _systemctl("restart"),
}
