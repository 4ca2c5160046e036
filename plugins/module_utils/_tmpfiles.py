# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd-tmpfiles configuration: which line decides what a file holds after boot. Pure.

The order is the reverse of sysctl.d: of two lines for the same path the one in the file that sorts first wins,
later ones are ignored as duplicates. A line whose path is a pattern is another entry, applied in file order.
(systemd 252, checked against systemd-tmpfiles itself by the unit tests.)
"""

from __future__ import annotations

import fnmatch
import os.path
from typing import NamedTuple

FOLDERS = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d")


class Line(NamedTuple):
    """A C(w) line: where it stands, the path or pattern it writes to, the value without its newline."""

    where: str
    pattern: str
    value: str


def effective_files(paths):
    """The files that count, in the order they are read: by name; /etc masks /run masks /usr for the same name."""
    by_name = {}
    for folder in FOLDERS:
        for path in paths:
            if os.path.dirname(path) == folder and path.endswith(".conf"):
                by_name.setdefault(os.path.basename(path), path)
    return [by_name[name] for name in sorted(by_name)]


def write_lines(path, text):
    """The lines of one file that write into files (type w, with any modifier)."""
    found = []
    for number, line in enumerate((text or "").splitlines(), 1):
        fields = line.split(None, 6)
        if len(fields) < 7 or not fields[0].startswith("w") or fields[0].startswith("#"):
            continue
        value = fields[6].strip()
        for escaped in ("\\n", "\\x0a", "\\012"):
            value = value.replace(escaped, "\n")
        found.append(Line("%s:%d" % (path, number), fields[1], value.strip().strip("\"'")))
    return found


def winner(path, lines):
    """The line that decides path, of all lines in reading order; None when none writes it."""
    seen, last = set(), None
    for line in lines:
        if line.pattern in seen:
            continue
        seen.add(line.pattern)
        if line.pattern == path or fnmatch.fnmatchcase(path, line.pattern):
            last = line
    return last
