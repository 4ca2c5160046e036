# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPU and node lists: the kernel's grammar, and whatever else a file may hold."""

from __future__ import annotations

import random
import time

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._topology.lists import (
    LIMIT, format_list, is_list, parse_cpus, parse_hex, parse_int, parse_list, parse_mask,
)


@pytest.mark.parametrize("text, expected", [
    (None, set()), ("", set()), ("\n", set()), ("0\n", {0}), ("0-3,8\n", {0, 1, 2, 3, 8}),
    ("0-31\n\0", set(range(32))), ("0,4,8,12\n", {0, 4, 8, 12}), ("0,8,250-255\n", {0, 8, *range(250, 256)}),
    ("1000-1002", {1000, 1001, 1002}), ("0-7:2/4", {0, 1, 4, 5}), ("0-1 4", {0, 1, 4}), (" 3 , 5 ", {3, 5}),
    ("N/A", set()), ("7-3", set()), ("0-99999999999", set()), ("-1", set()), ("0-3:1/0", {0, 1, 2, 3}),
])
def test_list(text, expected):
    assert parse_list(text) == expected


@pytest.mark.parametrize("text, expected", [
    (None, set()), ("", set()), ("0\n", set()), ("3", {0, 1}), ("ff\n", set(range(8))), ("c0\0", {6, 7}),
    ("0000,00000000,0000000c", {2, 3}), ("0000,00000011,11111111", {0, 4, 8, 12, 16, 20, 24, 28, 32, 36}),
    ("1,0,0,0,0,0,0,0,0", {256}), ("80000000,00000000", {63}), ("xyz", set()), ("1,,2", set()),
    ("ffff,ff000000,ffffffff,ffffffff", {*range(64), *range(88, 112)}),
])
def test_mask(text, expected):
    assert parse_mask(text) == expected


def test_a_missing_list_file_falls_back_to_the_mask_and_an_empty_one_does_not():
    assert parse_cpus(None, "3") == {0, 1}
    assert parse_cpus("\n", "3") == set()


@pytest.mark.parametrize("numbers, text", [
    ([], ""), ([5], "5"), ([3, 1, 2], "1-3"), ([0, 8, *range(250, 256)], "0,8,250-255"), ([0, 1], "0-1"),
])
def test_format(numbers, text):
    assert format_list(numbers) == text
    assert parse_list(text) == set(numbers)


@pytest.mark.parametrize("text, number", [
    ("-1\n", -1), (" 5\0", 5), ("N/A", None), ("0-1", None), ("", None), (None, None), ("0x10", None)])
def test_int(text, number):
    assert parse_int(text) == number


@pytest.mark.parametrize("text, number",
                         [("0x10de\n", 0x10DE), ("030200", 0x30200), ("", None), (None, None), ("GPU", None)])
def test_hex(text, number):
    assert parse_hex(text) == number


@pytest.mark.parametrize("text, answer", [("0-3,8", True), ("5", True), ("", False), ("N/A", False), ("0-1 x", False)])
def test_is_list(text, answer):
    assert is_list(text) is answer


def test_no_text_makes_a_parser_fail():
    """Seeded fuzzing: two seconds of garbled kernel files."""
    seed = 20260
    source = random.Random(seed)
    pieces = ["0", "1", "9", "-", ",", ":", "/", "\n", "\0", " ", "f", "F", "x", "N/A", "99999999999", "0-3",
              "ffffffff", "\udc80"]
    end = time.monotonic() + 2
    tried = 0
    while time.monotonic() < end:
        text = "".join(source.choice(pieces) for _piece in range(source.randrange(24)))
        for parser in (parse_list, parse_mask):
            found = parser(text)
            assert all(0 <= number < LIMIT for number in found), (seed, text)
            assert parse_list(format_list(found)) == found, (seed, text)
        for parser in (parse_int, parse_hex):
            assert parser(text) is None or isinstance(parser(text), int), (seed, text)
        tried += 1
    assert tried > 1000


def test_every_set_survives_a_round_trip():
    source = random.Random(7)
    for _turn in range(300):
        numbers = {source.randrange(600) for _piece in range(source.randrange(80))}
        assert parse_list(format_list(numbers)) == numbers
        value = sum(1 << number for number in numbers)
        words = []
        while value:
            words.insert(0, "%x" % (value & 0xFFFFFFFF))
            value >>= 32
        assert parse_mask(",".join(words)) == numbers
