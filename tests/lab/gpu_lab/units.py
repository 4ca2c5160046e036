# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which nvidia-persistenced.service is met on real hosts."""

from __future__ import annotations

DAEMON = "/usr/bin/nvidia-persistenced"
_UNIT = "nvidia-persistenced.service"
_PACKAGED = f"/usr/lib/systemd/system/{_UNIT}"
_WANTED = f"/etc/systemd/system/multi-user.target.wants/{_UNIT}"

_UPSTREAM = f"""[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart={DAEMON} --user nvidia-persistenced
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""

# No [Install]: the package leaves the start to udev, and keeps persistence off.
_UBUNTU = f"""[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart={DAEMON} --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
_UBUNTU_RULES = """# Start and stop the daemon with the driver.
ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", TAG+="systemd", ENV{SYSTEMD_WANTS}="nvidia-persistenced.service"
"""
# udev does not run in a lab host: this target stands for the device unit that would want the daemon.
_DEVICE_TARGET = "nvidia-devices.target"
_DEVICE = """[Unit]
Description=Stand-in for the udev device unit of the NVIDIA driver
Wants=nvidia-persistenced.service
"""

_RPM = f"""[Unit]
Description=NVIDIA Persistence Daemon
ConditionPathExistsGlob=/dev/nvidia[0-9]*

[Service]
Type=forking
PIDFile=/var/run/nvidia-persistenced/nvidia-persistenced.pid
Restart=always
User=nvidia-persistenced
Group=nvidia-persistenced
RuntimeDirectory=nvidia-persistenced
ExecStart={DAEMON} --verbose

[Install]
WantedBy=multi-user.target
"""

# An administrator's own unit with the packaged name.
_OWN = f"""[Unit]
Description=Site persistence daemon

[Service]
Type=forking
ExecStart={DAEMON} --user root --no-persistence-mode
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""


def files(variant: str) -> dict[str, str]:
    """Path -> content."""
    if variant == "none":
        return {}
    if variant == "ubuntu":
        return {
            _PACKAGED: _UBUNTU,
            "/usr/lib/udev/rules.d/71-nvidia.rules": _UBUNTU_RULES,
            f"/usr/lib/systemd/system/{_DEVICE_TARGET}": _DEVICE,
        }
    if variant == "rpm":
        return {_PACKAGED: _RPM}
    if variant == "shadowed":
        return {_PACKAGED: _UPSTREAM, f"/etc/systemd/system/{_UNIT}": _OWN}
    return {_PACKAGED: _UPSTREAM}


def links(variant: str) -> dict[str, str]:
    """Path -> target."""
    return {
        "upstream": {_WANTED: _PACKAGED},
        "rpm": {_WANTED: _PACKAGED},
        "shadowed": {_WANTED: f"/etc/systemd/system/{_UNIT}"},
        "masked": {f"/etc/systemd/system/{_UNIT}": "/dev/null"},
        "ubuntu": {f"/usr/lib/systemd/system/multi-user.target.wants/{_DEVICE_TARGET}": f"../{_DEVICE_TARGET}"},
    }.get(variant, {})
