# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TuneD's configuration: the active profile with everything it includes. Pure, but for read(), which asks the door.

A profile's own value beats the one of a profile it includes; of several active profiles the last one wins.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAIN_CONF = "/etc/tuned/tuned-main.conf"
ACTIVE = "/etc/tuned/active_profile"
# TuneD 2.23 moved the profiles one level down; tuned-main.conf says which directories count, the last one first.
DEFAULT_DIRS = ("/usr/lib/tuned", "/usr/lib/tuned/profiles", "/etc/tuned", "/etc/tuned/profiles")
OUR_PROFILE = "ai-infra-gpu-host"
SECTION = re.compile(r"^\[([^\]]+)\]\s*$")


class Setting(NamedTuple):
    """A value in a profile: where it stands, its section's plug-in type, key and value."""

    where: str
    plugin: str
    key: str
    value: str


def profile_dirs(main_conf):
    """Directories searched for profiles, most important first."""
    for line in (main_conf or "").splitlines():
        name, mid, value = line.partition("=")
        if name.strip() == "profile_dirs" and mid:
            dirs = [part.strip().rstrip("/") for part in value.split(",") if part.strip()]
            return list(reversed(dirs))
    return list(reversed(DEFAULT_DIRS))


def own_profile_dir(main_conf):
    """Where a profile of ours belongs: the most important directory below /etc."""
    for folder in profile_dirs(main_conf):
        if folder.startswith("/etc/"):
            # Without profile_dirs both layouts are searched; the older one is understood by every release.
            return folder if "profile_dirs" in (main_conf or "") else "/etc/tuned"
    return "/etc/tuned"


def parse(path, text):
    """(includes, settings) of one tuned.conf."""
    section, includes, types, rows = "", [], {}, []
    for number, line in enumerate((text or "").splitlines(), 1):
        code = line.strip()
        if not code or code.startswith(("#", ";")):
            continue
        match = SECTION.match(code)
        if match:
            section = match.group(1).strip()
            continue
        key, mid, value = (part.strip() for part in code.partition("="))
        if not mid:
            continue
        if section == "main" and key == "include":
            includes = [name for name in re.split(r"[,;\s]+", value) if name]
        elif key == "type":
            types[section] = value
        else:
            rows.append((number, section, key, value))
    return includes, [Setting("%s:%d" % (path, number), types.get(section, section), key, value)
                      for number, section, key, value in rows]


def chain(profiles, find):
    """Settings of the active profiles, least important first. C(find(name)) gives (path, text) or None."""
    settings, seen = [], set()

    def visit(name):
        if name in seen:
            return
        seen.add(name)
        found = find(name)
        if found is None:
            return
        includes, own = parse(*found)
        for included in includes:
            visit(included)
        settings.extend(own)

    for name in profiles:
        visit(name)
    return settings


def thp_settings(settings, on_command_line):
    """{file below the THP directory: Setting} the profile sets.

    TuneD drops its own C(enabled) when the command line names transparent_hugepage= (plug-in vm).
    """
    names = {"transparent_hugepages": "enabled", "transparent_hugepage": "enabled",
             "transparent_hugepage.defrag": "defrag"}
    found = {}
    for setting in settings:
        if setting.plugin == "vm" and setting.key in names:
            if names[setting.key] != "enabled" or not on_command_line:
                found[names[setting.key]] = setting
        elif setting.plugin == "sysfs" and "/transparent_hugepage/" in setting.key:
            found[setting.key.split("/transparent_hugepage/", 1)[1]] = setting
    return found


def sysctl_settings(settings):
    """{key: Setting} the profile sets."""
    return {setting.key: setting for setting in settings if setting.plugin == "sysctl"}


def child_text(include, thp, folder):
    """A profile of ours on top of the active one."""
    lines = ["# Written by ai_infra.gpu_host; the next run overwrites changes made here.", "[main]",
             "summary=GPU host settings on top of %s" % " ".join(include), "include=%s" % ",".join(include)]
    named = {"enabled": "transparent_hugepages", "defrag": "transparent_hugepage.defrag"}
    vm = [(named[name], value) for name, value in sorted(thp.items()) if name in named]
    other = [("%s/%s" % (folder, name), value) for name, value in sorted(thp.items()) if name not in named]
    for section, rows in (("vm", vm), ("sysfs", other)):
        if rows:
            lines += ["", "[%s]" % section] + ["%s=%s" % row for row in rows]
    return "\n".join(lines) + "\n"


def read(host):
    """TuneD as it will act at boot: active profiles, their settings, and whether it runs at all."""
    main = host.read(MAIN_CONF)
    active = (host.read(ACTIVE) or "").split()
    running = bool(active) and host.which("tuned-adm") is not None and host.run(
        ["systemctl", "is-enabled", "tuned.service"]).out.strip() == "enabled"

    def find(name):
        for folder in profile_dirs(main):
            path = "%s/%s/tuned.conf" % (folder, name)
            text = host.read(path)
            if text is not None:
                return path, text
        return None

    return {
        "active": active, "running": running, "find": find, "may_switch": False,
        "settings": chain(active, find) if running else [],
        "own": "%s/%s/tuned.conf" % (own_profile_dir(main), OUR_PROFILE),
    }
