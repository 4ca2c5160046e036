# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host looks like, as data that can be compared: its files by hash, its kernel files by value."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

FILES = ("etc", "usr", "opt", "var/lib")
KERNEL = ("sys/kernel/mm", "proc/sys/vm", "proc/sys/kernel", "proc/cmdline", "proc/swaps")
# What changes by itself on every Linux host.
VOLATILE = (
    "var/lib/systemd/random-seed",
    "var/lib/systemd/timers",
    "var/lib/systemd/catalog",
    "etc/.pwd.lock",
    "proc/sys/kernel/random",
    "proc/sys/kernel/ns_last_pid",
    "proc/sys/kernel/pty/nr",
)


def take(root: Path) -> dict[str, dict[str, str]]:
    return {
        "files": {path: _describe(root, path) for path in _walk(root, FILES)},
        "kernel": {path: _value(root / path) for path in _walk(root, KERNEL)},
    }


def differences(before: dict, after: dict) -> list[str]:
    lines = []
    for part in ("files", "kernel"):
        old, new = before[part], after[part]
        for path in sorted(old.keys() | new.keys()):
            if old.get(path) != new.get(path):
                lines.append(f"/{path}: {old.get(path, 'absent')} -> {new.get(path, 'absent')}")
    return lines


def _walk(root: Path, tops: tuple[str, ...]):
    for top in tops:
        place = root / top
        if not place.is_dir():
            if place.exists():
                yield top
            continue
        yield top
        for directory, names, files in os.walk(place):
            relative = os.path.relpath(directory, root)
            names[:] = sorted(name for name in names if f"{relative}/{name}" not in VOLATILE)
            for name in sorted([*names, *files]):
                if f"{relative}/{name}" not in VOLATILE:
                    yield f"{relative}/{name}"


def _describe(root: Path, path: str) -> str:
    place = root / path
    state = place.lstat()
    owner = f"{stat.filemode(state.st_mode)} {state.st_uid}:{state.st_gid}"
    if stat.S_ISREG(state.st_mode):
        return f"{owner} {hashlib.blake2b(place.read_bytes(), digest_size=16).hexdigest()}"
    if stat.S_ISLNK(state.st_mode):
        return f"{owner} {os.readlink(place)}"
    return owner


def _value(place: Path) -> str:
    if place.is_dir():
        return "directory"
    try:
        return place.read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except OSError as error:
        return f"({error.strerror})"
