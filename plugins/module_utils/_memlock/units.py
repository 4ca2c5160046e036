# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unit files and system.conf as systemd reads them, and what we add to them. Pure.

Of two drop-ins with one name the one in the more important directory counts; of all that count the one that sorts
last by name has the last word. A value systemd can't parse is ignored, and the one before it stays.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .._errors import BadInput
from . import value

NAME = "90-ai-infra-gpu-host-memlock.conf"
UNIT = re.compile(r"^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?\.(service|socket|mount|swap)$")
KEY, DEFAULT_KEY = "LimitMEMLOCK", "DefaultLimitMEMLOCK"
FOLDERS = ("/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient",
           "/run/systemd/generator.early", "/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator",
           "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
           "/run/systemd/generator.late")
MANAGER_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
HEAD = "# Written by ai_infra.gpu_host.memlock_limits; the next run overwrites changes made here.\n"


class Setting(NamedTuple):
    """One assignment: where it stands, its section, key and value."""

    where: str
    section: str
    key: str
    value: str


def check_unit(name):
    """A unit name that can become part of a path. Raises BadInput."""
    if not UNIT.fullmatch(name) or len(name) > 255 or ".." in name:
        raise BadInput("limit the unit", repr(name), "it is no name of a service, socket, mount or swap unit",
                       "Write the whole name, like slurmd.service")
    return name


def section_of(unit):
    return unit.rsplit(".", 1)[1].capitalize()


def unit_text(unit, limit):
    """Our drop-in of a unit."""
    return "%s[%s]\n%s=%s\n" % (HEAD, section_of(unit), KEY, value.as_systemd(limit))


def manager_text(limit):
    """Our drop-in of system.conf or user.conf."""
    return "%s[Manager]\n%s=%s\n" % (HEAD, DEFAULT_KEY, value.as_systemd(limit))


def settings(path, text):
    """Assignments of a unit or configuration file; lines that end in a backslash go on."""
    found, section, number, started, pending = [], "", 0, 0, ""
    for number, line in enumerate((text or "").split("\n"), 1):
        bare = line.strip()
        if pending and bare.startswith(("#", ";")):
            continue  # a comment inside a continued line is left out
        if not pending:
            started = number
            if not bare or bare.startswith(("#", ";")):
                continue
        if line.rstrip("\r").endswith("\\"):
            pending += line.rstrip("\r")[:-1] + " "
            continue
        whole, pending = (pending + line).strip(), ""
        if whole.startswith("[") and whole.endswith("]"):
            section = whole[1:-1]
            continue
        key, mid, text_value = whole.partition("=")
        if mid:
            found.append(Setting("%s:%d" % (path, started), section, key.strip(), text_value.strip()))
    return found


def winner(rows, section, key):
    """(limits, where) of the assignment that counts; (None, None) when there is none."""
    limits, where = None, None
    for row in rows:
        if row.section == section and row.key == key:
            parsed = value.from_systemd(row.value)
            if parsed is not None:
                limits, where = parsed, row.where
    return limits, where


def drop_in_folders(names):
    """Directories systemd looks for drop-ins of a unit in, most important first. C(names) are it and its aliases."""
    folders = []
    for folder in FOLDERS:
        for name in names:
            folders += ["%s/%s.d" % (folder, variant) for variant in variants(name)]
    kind = names[0].rsplit(".", 1)[1]
    folders += ["%s/%s.d" % (folder, kind) for folder in FOLDERS]
    return folders


def variants(name):
    """The names whose drop-ins reach a unit: itself, its template, and every prefix that ends in a dash."""
    stem, kind = name.rsplit(".", 1)
    prefix, at, instance = stem.partition("@")
    found = [name]
    if at and instance:
        found.append("%s@.%s" % (prefix, kind))
    while "-" in prefix.rstrip("-"):
        prefix = prefix.rstrip("-").rsplit("-", 1)[0] + "-"
        found.append("%s.%s" % (prefix, kind))
    return found


def effective_files(paths):
    """Drop-ins that count, in the order they are read. C(paths) come most important directory first."""
    chosen = {}
    for path in paths:
        name = path.rsplit("/", 1)[1]
        if name.endswith(".conf") and not name.startswith("."):
            chosen.setdefault(name, path)
    return [chosen[name] for name in sorted(chosen, key=lambda name: name.encode("utf-8", "surrogateescape"))]


def without_ours(current, ours):
    """A drop-in without our lines; None when nothing but section headers is left."""
    mine = {line for line in ours.splitlines() if not line.startswith("[")}
    left = [line for line in current.splitlines(True) if line.rstrip("\n") not in mine]
    said = [line for line in left if line.strip() and not re.match(r"^\[.*\]$", line.strip())]
    return "".join(left) if said else None
