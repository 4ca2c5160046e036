# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""default_ulimits of CRI-O and Podman: a list in TOML that the last file which has it replaces as a whole. Pure.

So a drop-in of ours has to carry the limits others have set there, or they would be lost.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import value
from .units import HEAD

KEY = "default_ulimits"
ITEM = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")


class Runtime(NamedTuple):
    """Where a runtime keeps its configuration; files in the order they are read, ours below C(folder)."""

    name: str
    section: str
    files: tuple
    folder: str
    ours: str


CRIO = Runtime("crio", "crio.runtime", ("/etc/crio/crio.conf",), "/etc/crio/crio.conf.d",
               "/etc/crio/crio.conf.d/zz-ai-infra-gpu-host-memlock.conf")
PODMAN = Runtime("podman", "containers", ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf"),
                 "/etc/containers/containers.conf.d",
                 "/etc/containers/containers.conf.d/zz-ai-infra-gpu-host-memlock.conf")


class Found(NamedTuple):
    """A default_ulimits list and the line it starts at."""

    where: str
    items: list


def parse(path, text, section):
    """The list in a file, or None when the file does not have it."""
    inside, found, collecting = "", None, None
    for number, line in enumerate((text or "").splitlines(), 1):
        code = without_comment(line)
        if collecting is not None:
            collecting += code
        else:
            header = re.match(r"^\s*\[([^\[\]]+)\]\s*$", code)
            if header:
                inside = header.group(1).replace(" ", "").replace('"', "")
                continue
            match = re.match(r"^\s*([\w.\"]+)\s*=\s*(\[.*)$", code)
            name = (inside + "." if inside else "") + match.group(1).replace('"', "") if match else ""
            if name != "%s.%s" % (section, KEY):
                continue
            collecting, where = match.group(2), "%s:%d" % (path, number)
        if bare_of_strings(collecting).count("]"):
            found = Found(where, [first or second for first, second in ITEM.findall(collecting)])
            collecting = None
    return found


def without_comment(line):
    """A line up to a # that is in no string."""
    quote = ""
    for position, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote and line[position - 1] != "\\" else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#":
            return line[:position]
    return line


def bare_of_strings(text):
    return ITEM.sub("", text)


def limits_of(items):
    """Limits of memlock in a list of C(name=soft:hard); None when it is not in it, or is no number."""
    found = None
    for item in items:
        match = re.match(r"^memlock=(-?\d+)(?::(-?\d+))?$", item)
        if match:
            soft = int(match.group(1))
            found = value.Limits(soft, int(match.group(2) or soft))
    return found


def text(runtime, limit, others):
    """Our file: the limits of others that this list would hide, then ours."""
    number = value.as_runtime(limit)
    items = [item for item in others if not item.startswith("memlock=")] + ["memlock=%d:%d" % (number, number)]
    lines = [HEAD + "# The list replaces those of earlier files, so it repeats their other limits."]
    lines += ["[%s]" % runtime.section, "%s = [" % KEY]
    lines += ["  %s," % quoted(item) for item in items] + ["]"]
    return "\n".join(lines) + "\n"


def quoted(item):
    return '"%s"' % item if '"' not in item else "'%s'" % item
