# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPU and node lists as the kernel writes them. Pure; a text that is none is an empty set, never an error."""

from __future__ import annotations

import re

# Far above any kernel's CPU or node number: keeps a garbled range from filling the memory.
LIMIT = 1 << 16
RANGE = re.compile(r"^([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9})/([0-9]{1,9}))?)?$")
WORD = re.compile(r"^[0-9a-fA-F]+$")


def clean(text):
    """The text of a kernel file without the newline, and the NUL that some kernels put behind it."""
    return (text or "").replace("\0", "").strip()


def parse_list(text):
    """The set of a list such as C(0-3,8), in the kernel's full grammar: C(0-31:2/8) is 2 of every 8."""
    found = set()
    for part in re.split(r"[\s,]+", clean(text)):
        match = RANGE.match(part)
        if not match:
            continue
        first, last, used, group = (int(number) if number else None for number in match.groups())
        last = min(first if last is None else last, LIMIT - 1)
        if group:
            found.update(number for number in range(first, last + 1) if (number - first) % group < used)
        else:
            found.update(range(first, last + 1))
    return found


def is_list(text):
    """Whether a text is a list, and not something else with numbers in it."""
    parts = re.split(r"\s*,\s*", clean(text))
    return all(RANGE.match(part) for part in parts)


def parse_mask(text):
    """The set of a mask: comma-separated 32-bit hex words, the high one first, each as short as it likes."""
    words = clean(text).split(",")
    if not all(WORD.match(word.strip()) for word in words) or len(words) * 32 > LIMIT:
        return set()
    value = 0
    for word in words:
        value = value << 32 | int(word, 16)
    return {bit for bit, digit in enumerate(reversed(bin(value)[2:])) if digit == "1" and bit < LIMIT}


def parse_cpus(cpulist, cpumap):
    """The set of a pair of files that say the same: the list, or the mask where the kernel has no list file."""
    return parse_list(cpulist) if cpulist is not None else parse_mask(cpumap)


def format_list(numbers):
    """A set as the kernel lists it: C(0-3,8)."""
    runs = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join("%d" % first if first == last else "%d-%d" % (first, last) for first, last in runs)


def parse_int(text):
    """The number of a kernel file, also with a sign; None when it is none."""
    try:
        return int(clean(text), 10)
    except ValueError:
        return None


def parse_hex(text):
    """The number of a file such as C(vendor) or C(class); None when it is none."""
    try:
        return int(clean(text), 16)
    except ValueError:
        return None
