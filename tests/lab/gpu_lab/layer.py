# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files a host has before its first boot, as one overlay layer of its own: name, keys, accounts, units."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

from . import units
from .board import Board

ACCOUNT = "nvidia-persistenced"
_ACCOUNT_ID = 450


def make(layer: Path, board: Board, host: str, root: Path, client_key: str) -> str:
    """Fills the layer and returns the host's public ssh key."""
    write(layer, "/etc/hostname", f"{host}\n")
    write(layer, "/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {host}\n::1 localhost\n")
    write(layer, "/etc/machine-id", f"{uuid.uuid5(uuid.NAMESPACE_DNS, host).hex}\n")
    write(layer, "/root/.ssh/authorized_keys", client_key, mode=0o600)
    for directory in ("root", "root/.ssh"):
        (layer / directory).chmod(0o700)
    key = layer / "etc/ssh/ssh_host_ed25519_key"
    key.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host, "-f", key], check=True, timeout=30)
    if board.gpus:
        _account(layer, root)
        for path, content in units.files(board.unit).items():
            write(layer, path, content)
        for path, target in units.links(board.unit).items():
            link(layer, path, target)
    for path, content in board.files.items():
        if isinstance(content, dict):
            write(layer, path, content["content"], mode=int(content.get("mode", "0644"), 8))
        else:
            write(layer, path, content)
    return key.with_suffix(".pub").read_text(encoding="ascii").strip()


def write(layer: Path, path: str, content: str, mode: int = 0o644) -> None:
    target = layer / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    target.chmod(mode)


def link(layer: Path, path: str, target: str) -> None:
    place = layer / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def _account(layer: Path, root: Path) -> None:
    """What the driver package's adduser call leaves."""
    lines = {
        "etc/passwd": f"{ACCOUNT}:x:{_ACCOUNT_ID}:{_ACCOUNT_ID}:NVIDIA Persistence Daemon:/:/usr/sbin/nologin\n",
        "etc/group": f"{ACCOUNT}:x:{_ACCOUNT_ID}:\n",
        "etc/shadow": f"{ACCOUNT}:!:20000::::::\n",
        "etc/gshadow": f"{ACCOUNT}:!::\n",
    }
    for path, line in lines.items():
        target = layer / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, target)
        owner = (root / path).stat()
        with target.open("a", encoding="ascii") as file:
            file.write(line)
        os.chown(target, owner.st_uid, owner.st_gid)
