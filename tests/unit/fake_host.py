# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine in memory with the kernel's manners: bracketed choices move, unknown words get EINVAL.

    host = FakeHost({"/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n"},
                    commands={("systemctl", "is-active", "tuned"): Ran(3, "inactive\n", "")})

Real files of the test machine are never read or written. Writes are counted in C(host.writes).
"""

from __future__ import annotations

import errno
import fnmatch
import os

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import (
    FileInfo, Host, PlannedHost, Ran, as_kernel_shows, os_error,
)


def fail(tried, path, code):
    raise os_error(tried, path, OSError(code, os.strerror(code), path))


class FakeHost(Host):
    """Files, links, devices and commands given as data.

    C(commands) maps an argv tuple, or a function of argv, to what it answers; an unknown command answers 127.
    C(read_only) are path prefixes where writing fails with EROFS. C(full) makes every new file fail with ENOSPC.
    C(nvml) is what C(host.nvml()) returns (or an exception it raises).
    """

    def __init__(self, files=None, links=None, devices=(), commands=None, nvml=None, read_only=(), full=False,
                 affinity=range(4096), may_raise=True):
        super().__init__("/")
        self.files = dict(files or {})
        self.links = dict(links or {})
        self.devices = set(devices)
        self.commands = dict(commands or {})
        self.fake_nvml = nvml
        self.read_only = tuple(read_only)
        self.full = full
        self.cpus = set(affinity)
        self.may_raise = may_raise
        self.modes = {}
        self.folders = set()
        self.writes = []
        self.acted = []
        self.logged = []

    def _resolve(self, path):
        for link, target in self.links.items():
            if path == link or path.startswith(link + "/"):
                return self._resolve(os.path.normpath(os.path.join(os.path.dirname(link), target)) + path[len(link):])
        return path

    def read(self, path):
        text = self.files.get(self._resolve(path))
        if isinstance(text, int):
            fail("read", path, text)
        return text

    def info(self, path):
        path = self._resolve(path)
        return FileInfo(self.modes.get(path, 0o644), 0, 0) if path in self.files else None

    def changed_at(self, path):
        """A file that was written in the test is newer than every process; others as old as the host."""
        path = self._resolve(path)
        if path not in self.files:
            return None
        return float("inf") if any(write[0] == path for write in self.writes) else 0.0

    def exists(self, path):
        return path in self.links or path in self.devices or path in self.files or self.is_dir(path)

    def is_dir(self, path):
        path = self._resolve(path).rstrip("/")
        return path == "" or path in self.folders or any(
            name.startswith(path + "/") for name in list(self.files) + list(self.links) + list(self.devices))

    def is_device(self, path):
        return path in self.devices

    def listdir(self, path):
        path = self._resolve(path).rstrip("/") + "/"
        names = list(self.files) + list(self.links) + list(self.devices) + list(self.folders)
        return sorted({name[len(path):].split("/")[0] for name in names if name.startswith(path)})

    def glob(self, pattern):
        names = set()
        for name in list(self.files) + list(self.links) + list(self.devices) + list(self.folders):
            while name not in ("", "/"):
                names.add(name)
                name = os.path.dirname(name)
        return sorted(n for n in names if n.count("/") == pattern.count("/") and fnmatch.fnmatchcase(n, pattern))

    def readlink(self, path):
        return self.links.get(path)

    def realpath(self, path):
        return self._resolve(path)

    def which(self, name):
        known = any(not callable(argv) and argv[0] == name for argv in self.commands)
        return "/usr/bin/" + name if known else None

    def run(self, argv, timeout=60):
        argv = tuple(argv)
        for key, answer in self.commands.items():
            if key == argv or callable(key) and key(argv):
                return answer(argv) if callable(answer) else answer
        return Ran(127, "", "%s: not found" % argv[0])

    def act(self, argv, timeout=60):
        self.acted.append(tuple(argv))
        return super().act(argv, timeout)

    def affinity(self):
        return self.cpus

    def is_root(self):
        return True

    def page_size(self):
        return 4096

    def memory_policy(self):
        return True, None

    def may_raise_limit(self, resource_id, hard):
        return self.may_raise

    def _check(self, path):
        if any(path.startswith(prefix) for prefix in self.read_only):
            fail("write", path, errno.EROFS)

    def write_kernel(self, path, value):
        path = self._resolve(path)
        self._check(path)
        if path not in self.files:
            fail("write", path, errno.ENOENT)
        old = self.files[path]
        if "[" in old and str(value) not in [word.strip("[]") for word in old.split()]:
            fail("write %r to" % value, path, errno.EINVAL)
        self.files[path] = as_kernel_shows(old, str(value))
        self.writes.append((path, str(value)))

    def set_rlimit(self, pid, resource_id, soft, hard):
        """The kernel's side of prlimit: /proc/PID/limits shows it. Only locked memory is known here."""
        self.writes.append(("prlimit", pid, soft, hard))
        path = "/proc/%d/limits" % pid
        if path in self.files:
            words = ["unlimited" if number == -1 else str(number) for number in (soft, hard)]
            self.files[path] = "".join(
                "Max locked memory         %-20s %-20s bytes     \n" % tuple(words)
                if line.startswith("Max locked memory") else line for line in self.files[path].splitlines(True))

    def stage(self, path, text, mode=0o644):
        self._check(path)
        if self.full:
            fail("write", path, errno.ENOSPC)

    def unstage(self, path):
        return None

    def replace(self, path, text, mode=0o644):
        path = self._resolve(path)
        self.stage(path, text, mode)
        self.modes.setdefault(path, mode)
        self.files[path] = text
        self.writes.append((path, text))

    def remove(self, path):
        self._check(path)
        self.files.pop(path, None)
        self.links.pop(path, None)
        self.writes.append((path, None))

    def make_dir(self, path, mode=0o755):
        self._check(path)
        while path not in ("", "/"):
            self.folders.add(path)
            path = os.path.dirname(path)

    def remove_dir(self, path):
        if path not in self.folders or self.listdir(path):
            return False
        self.folders.discard(path)
        return True

    def check_kernel_writable(self, path):
        self._check(path)

    def check_replaceable(self, path, text):
        self.stage(path, text)

    def log(self, message):
        self.logged.append(message)

    def nvml(self):
        if isinstance(self.fake_nvml, Exception):
            raise self.fake_nvml
        return self.fake_nvml

    def nvml_binding(self):
        return self.nvml()

    def planned(self):
        return PlannedHost(self)
