# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One value, many units of measure: a limit is a number of bytes, or C(UNLIMITED). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from .._errors import BadInput

UNLIMITED = -1
RLIMIT_MEMLOCK = 8  # on every architecture NVIDIA drives
# What prlimit and systemd's show print for "no limit".
INFINITY = 18446744073709551615
SMALLEST = 65536
LARGEST = 2 ** 63 - 1
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
SIZE = re.compile(r"^(\d+)\s*([kmgtpe]?)(ib)?$", re.IGNORECASE)
HOW = "Write unlimited, or a size such as 64G or 512M (1024-based), or a number of bytes"


class Limits(NamedTuple):
    """Soft and hard limit; C(None) is not known, or left as it was inherited."""

    soft: int
    hard: int


def parse(text):
    """The limit a user asks for. Raises BadInput."""
    word = str(text).strip().lower()
    if word in ("unlimited", "infinity", "-1"):
        return UNLIMITED

    def refuse(why):
        return BadInput("use as locked memory limit", repr(str(text)), why, HOW)

    if word in ("true", "false", "yes", "no", "on", "off"):
        raise refuse("it is a truth value, so YAML read a bare word as one")
    match = SIZE.match(word)
    if not match:
        if re.match(r"^\d+\s*[kmgtpe]?b$", word):
            raise refuse("a unit ending in B alone is read as 1000 by some and as 1024 by others")
        raise refuse("it is neither a size nor unlimited")
    number, power, binary = match.groups()
    if binary and not power:
        raise refuse("it is neither a size nor unlimited")
    size = int(number) * 1024 ** POWERS[power]
    if size < SMALLEST:
        raise refuse("it is %d bytes, less than the kernel ever gave by default" % size)
    if size > LARGEST:
        raise refuse("it is more than the kernel can count")
    return size


# One renderer for each place

def as_kilobytes(limit):
    """For limits.conf and ulimit -l: kB of 1024 bytes, rounded up so that nobody gets less than asked."""
    return "unlimited" if limit == UNLIMITED else str((limit + 1023) // 1024)


def as_systemd(limit):
    """For unit files and system.conf; systemd knows only the word infinity."""
    return "infinity" if limit == UNLIMITED else str(limit)


def as_runtime(limit):
    """For container runtimes: bytes, -1 for no limit."""
    return int(limit)


def shown(limit):
    """For results and messages."""
    if limit is None:
        return None
    return "unlimited" if limit == UNLIMITED else str(limit)


def worth(limit):
    """A number to compare limits by."""
    return INFINITY if limit == UNLIMITED else limit


# What others wrote

def from_systemd(text):
    """Limits of a LimitMEMLOCK= value as systemd takes it, or None for one it ignores."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 2:
        return None
    limits = [_systemd_size(part) for part in parts]
    if None in limits:
        return None
    soft, hard = limits[0], limits[-1]
    return Limits(soft, hard) if worth(soft) <= worth(hard) else None


def _systemd_size(text):
    """Bytes, with K M G T P E of 1024, fractions and descending sums such as C(1G 512M); None when ignored."""
    if text == "infinity":
        return UNLIMITED
    total, last, rest = 0, 99, text
    while rest:
        match = re.match(r"^\+?(\d+)(\.\d+)?\s*([KMGTPEB]?)\s*", rest)
        if not match:
            return None
        power = POWERS[match.group(3).lower().replace("b", "")]
        if power >= last:
            return None
        last = power
        total += int(float(match.group(1) + (match.group(2) or "")) * 1024 ** power) if match.group(2) else \
            int(match.group(1)) * 1024 ** power
        rest = rest[match.end():]
    return total if text and total < INFINITY else None


def from_show(text):
    """A number of C(systemctl show); None when it says nothing."""
    if text in ("infinity", str(INFINITY)):
        return UNLIMITED
    return int(text) if (text or "").isdigit() else None


def from_proc(text):
    """Limits in a /proc/PID/limits file."""
    for line in (text or "").splitlines():
        if line.startswith("Max locked memory"):
            words = line.split()
            return Limits(*[UNLIMITED if word == "unlimited" else int(word) for word in words[3:5]])
    return None


def proc_text(text, limits):
    """A /proc/PID/limits file as it reads after the limit was set."""
    line = "Max locked memory         %-20s %-20s bytes" % (shown(limits.soft), shown(limits.hard))
    return "".join(line.ljust(len(old.rstrip("\n"))) + "\n" if old.startswith("Max locked memory") else old
                   for old in text.splitlines(True))
