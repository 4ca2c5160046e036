# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves a simulated kernel as a FUSE file system and keeps a log of what was written to it."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mfusepy

from .files import File, Link, Node, find, refuse

# Outside the directories that are bound into the host: writing a command line and a boot id here boots the kernel anew.
CONTROL = ".boot"


class KernelFiles(mfusepy.Operations):
    use_ns = True

    def __init__(self, boot: Callable[[str, str], dict[str, Node]], log: Path) -> None:
        self._boot = boot
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._tree: dict[str, Node] = {CONTROL: File("", self._restart)}
        self._open: dict[int, tuple[File, bytes]] = {}
        self._next_handle = 0
        self._born = time.time_ns()

    def _restart(self, text: str) -> None:
        order = json.loads(text)
        tree = self._boot(order["command_line"], order["boot_id"])
        self._tree = {**tree, CONTROL: self._tree[CONTROL]}

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = find(self._tree, path)
        times = {"st_atime": self._born, "st_mtime": self._born, "st_ctime": self._born}
        if isinstance(node, dict):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2, "st_size": 0, **times}
        if isinstance(node, Link):
            return {"st_mode": stat.S_IFLNK | 0o777, "st_nlink": 1, "st_size": len(node.target), **times}
        return {"st_mode": stat.S_IFREG | node.permissions, "st_nlink": 1, "st_size": node.size, **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        node = find(self._tree, path)
        if not isinstance(node, dict):
            raise refuse(errno.ENOTDIR)
        return [".", "..", *node]

    def readlink(self, path: str) -> str:
        node = find(self._tree, path)
        if not isinstance(node, Link):
            raise refuse(errno.EINVAL)
        return node.target

    def open(self, path: str, flags: int) -> int:
        node = self._file(path)
        if flags & os.O_ACCMODE != os.O_RDONLY and not node.store:
            raise refuse(node.refuse)
        # The text is made once per open: a reader in small steps sees one state.
        content = node.content() if flags & os.O_ACCMODE != os.O_WRONLY else b""
        self._next_handle += 1
        self._open[self._next_handle] = (node, content)
        return self._next_handle

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        node, content = self._open[fh]
        # A program that seeks back to read again gets the present value.
        if offset == 0:
            content = node.content()
            self._open[fh] = (node, content)
        return content[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        node, _mode = self._open[fh]
        refused = 0
        try:
            node.store(data.decode("utf-8", "surrogateescape"))
        except OSError as error:
            refused = error.errno
            raise
        finally:
            self._record(path, data, refused)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Shells open with O_TRUNC; the kernel ignores that on its own files."""
        node = self._file(path)
        if not node.store:
            raise refuse(node.refuse)
        return 0

    def release(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_namemax": 255}

    def _file(self, path: str) -> File:
        node = find(self._tree, path)
        if isinstance(node, dict):
            raise refuse(errno.EISDIR)
        if not isinstance(node, File):
            raise refuse(errno.ELOOP)
        return node

    def _record(self, path: str, data: bytes, refused: int) -> None:
        if path == f"/{CONTROL}":
            return
        pid = mfusepy.fuse_get_context()[2]
        try:
            program = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        except OSError:
            program = ""
        entry = {
            "time": round(time.time(), 3),
            "path": path,
            "value": data.decode("utf-8", "backslashreplace"),
            "pid": pid,
            "program": program,
            "errno": errno.errorcode.get(refused, refused) if refused else None,
        }
        self._log.write(json.dumps(entry) + "\n")


def serve(files: KernelFiles, mount_point: str) -> None:
    """Returns when the file system is unmounted."""
    mfusepy.FUSE(
        files,
        mount_point,
        foreground=True,
        nothreads=True,
        direct_io=True,
        allow_other=True,
        default_permissions=True,
        nonempty=True,
        fsname="kernel",
        subtype="lab",
        attr_timeout=5,
        entry_timeout=5,
    )
