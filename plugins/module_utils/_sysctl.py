# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""sysctl configuration: which file and line decides a key after boot. Pure.

systemd-sysctl reads the *.conf of all directories sorted by file name, the last assignment wins, and a key
assigned by its own name is never touched by a pattern. /etc/sysctl.conf counts only through a link in
sysctl.d. TuneD comes later, and with reapply_sysctl reads /run, /etc and sysctl.conf once more.
"""

from __future__ import annotations

import fnmatch
import os.path
import re
from typing import NamedTuple, Optional

from ._errors import BadInput

DROP_IN = "/etc/sysctl.d/zz-ai-infra-gpu-host.conf"
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
KEY = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.:@/-]*$")
# The kernel's own ranges, so that a wrong number fails before anything is touched.
RANGES = {
    "vm/swappiness": (0, 200), "kernel/numa_balancing": (0, 2), "vm/zone_reclaim_mode": (0, 7),
    "vm/min_free_kbytes": (1, 2 ** 31 - 1), "vm/overcommit_memory": (0, 2), "vm/compaction_proactiveness": (0, 100),
}
# The kernel raises these by itself (khugepaged, memory hotplug), so what is asked is a lower bound.
FLOORS = ("vm/min_free_kbytes",)


class Assignment(NamedTuple):
    """A key or pattern (with slashes) and its value; None takes the key out of patterns."""

    where: str
    key: str
    value: Optional[str]


def normal_key(text):
    """A key as its path below /proc/sys: the first separator seen tells which of the two spellings it is."""
    text = text.strip()
    dot, slash = text.find("."), text.find("/")
    if dot == -1 or (slash != -1 and slash < dot):
        return text
    return text.translate(str.maketrans("./", "/."))


def dotted_key(key):
    """The path as people write it; a dot inside a component (an interface eth0.1) becomes a slash, as in sysctl.d."""
    return key.translate(str.maketrans("./", "/."))


def normal_value(value):
    return " ".join(str(value).split())


def wanted_values(values):
    """{key as a path: value} from the user's mapping. Raises BadInput."""
    want = {}
    for name, value in values.items():
        key = normal_key(str(name))
        if not KEY.match(key) or ".." in key.split("/") or "//" in key or key.endswith("/"):
            raise BadInput("use the kernel value", repr(name), "it is not a sysctl key",
                           "Write it like vm.swappiness")
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise BadInput("set", "%s to %r" % (name, value), "a kernel value is a number or a text",
                           "Quote the value, for instance '0'")
        text = normal_value(value)
        if not text or "\n" in str(value).strip() or not text.isprintable():
            raise BadInput("set", "%s to %r" % (name, value), "the value is empty or has more than one line",
                           "Give one line")
        if key in RANGES:
            low, high = RANGES[key]
            if not re.match(r"^-?\d+$", text) or not low <= int(text) <= high:
                raise BadInput("set", "%s to %s" % (name, text), "the kernel takes a number from %d to %d" % (low, high),
                               "Correct the value")
        want[key] = text
    return want


def satisfied(key, current, wanted):
    """Whether the running value is what was asked, or above it where that is a floor."""
    if current is None:
        return False
    if key in FLOORS and current.isdigit() and wanted.isdigit():
        return int(current) >= int(wanted)
    return normal_value(current) == wanted


def drop_in_text(want):
    lines = ["# Written by ai_infra.gpu_host.kernel_values; the next run overwrites changes made here."]
    lines += ["%s = %s" % (dotted_key(key), value) for key, value in sorted(want.items())]
    return "\n".join(lines) + "\n"


def effective_files(paths):
    """The files systemd-sysctl reads, in order: by name; /etc masks /run masks /usr for the same name."""
    by_name = {}
    for folder in FOLDERS:
        for path in paths:
            if os.path.dirname(path) == folder and path.endswith(".conf"):
                by_name.setdefault(os.path.basename(path), path)
    return [by_name[name] for name in sorted(by_name)]


def parse(path, text):
    """Assignments of one file."""
    found = []
    for number, line in enumerate((text or "").splitlines(), 1):
        code = line.strip()
        if not code or code[0] in "#;":
            continue
        name, mid, value = code.partition("=")
        name = name.strip()
        if name.startswith("-"):  # "-key = value" ignores errors; "-key" alone takes it out of patterns
            name = name[1:].strip()
        elif not mid:
            continue
        found.append(Assignment("%s:%d" % (path, number), normal_key(name), normal_value(value) if mid else None))
    return found


def winner(key, assignments):
    """The assignment that decides a key, of all in reading order; None when none sets it."""
    named = [row for row in assignments if row.key == key]
    if named:
        return named[-1] if named[-1].value is not None else None
    matching = [row for row in assignments
                if row.value is not None and any(sign in row.key for sign in "*?[") and matches(key, row.key)]
    return matching[-1] if matching else None


def matches(key, pattern):
    """Shell pattern by component: a star does not cross a slash."""
    parts, patterns = key.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))
