# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kernel file is: text made when it is read, and a store function that accepts or refuses what is written.

A directory is a dict from name to node; a node is a dict, a File or a Link.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass
class Link:
    target: str


@dataclass
class File:
    """`show` gives the text, a plain string never changes; `store` takes one write() or raises OSError."""

    show: str | bytes | Callable[[], str | bytes]
    store: Callable[[str], None] | None = None
    mode: int | None = None
    size: int = 4096
    # What opening a file without a store answers: sysfs says EACCES, a read-only mount EROFS.
    refuse: int = errno.EACCES

    @property
    def permissions(self) -> int:
        return self.mode if self.mode is not None else (0o644 if self.store else 0o444)

    def content(self) -> bytes:
        value = self.show() if callable(self.show) else self.show
        return value if isinstance(value, bytes) else value.encode()


Node = dict | File | Link


def refuse(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def line(value: object) -> File:
    """A file that never changes and holds one line."""
    return File(f"{value}\n")


def one_word(text: str) -> str:
    """The word as sysfs_streq() compares it: exact, but for one newline at the end."""
    return text[:-1] if text.endswith("\n") else text


def unsigned(text: str, bits: int = 64) -> int:
    """A number as kstrtoul() reads it in base ten."""
    match = re.fullmatch(r"\+?([0-9]+)\n?", text)
    if not match:
        raise refuse(errno.EINVAL)
    value = int(match.group(1))
    if value >= 1 << bits:
        raise refuse(errno.ERANGE)
    return value


class Choice:
    """A file such as `always [madvise] never`."""

    def __init__(self, words: Sequence[str], active: str, changed: Callable[[], None] | None = None) -> None:
        if active not in words:
            raise ValueError(f"{active!r} is not one of {', '.join(words)}")
        self.words, self.active, self.changed = tuple(words), active, changed

    def show(self) -> str:
        return " ".join(f"[{word}]" if word == self.active else word for word in self.words) + "\n"

    def store(self, text: str) -> None:
        word = one_word(text)
        if word not in self.words:
            raise refuse(errno.EINVAL)
        self.active = word
        if self.changed:
            self.changed()

    def file(self) -> File:
        return File(self.show, self.store)


class Number:
    """A file that holds one unsigned number within bounds."""

    def __init__(self, value: int, low: int = 0, high: int = 2**64 - 1, bits: int = 64) -> None:
        self.value, self.low, self.high, self.bits = value, low, high, bits

    def show(self) -> str:
        return f"{self.value}\n"

    def store(self, text: str) -> None:
        value = unsigned(text, self.bits)
        if not self.low <= value <= self.high:
            raise refuse(errno.EINVAL)
        self.value = value

    def file(self) -> File:
        return File(self.show, self.store)


def find(tree: dict, path: str) -> Node:
    node: Node = tree
    for name in path.strip("/").split("/"):
        if not name:
            continue
        if not isinstance(node, dict):
            raise refuse(errno.ENOTDIR)
        if name not in node:
            raise refuse(errno.ENOENT)
        node = node[name]
    return node
