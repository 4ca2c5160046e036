# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU and node lists in the two spellings of the kernel: `0-3,8` and comma-separated words of a bit mask."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _dash, last = part.partition("-")
            numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def as_list(numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    parts: list[str] = []
    start = 0
    for position, number in enumerate(ordered):
        if position + 1 == len(ordered) or ordered[position + 1] != number + 1:
            first = ordered[start]
            parts.append(str(first) if first == number else f"{first}-{number}")
            start = position + 1
    return ",".join(parts)


def as_mask(numbers: Iterable[int], width: int) -> str:
    """`width` is the number of possible CPUs (or nodes): the kernel prints leading zeros up to it."""
    value = sum(1 << number for number in set(numbers))
    words = max(1, (width + 31) // 32)
    first_digits = ((width - 1) % 32) // 4 + 1 if width else 8
    digits = [f"{value >> (32 * word) & 0xFFFFFFFF:08x}" for word in reversed(range(words))]
    digits[0] = digits[0][-first_digits:]
    return ",".join(digits)
