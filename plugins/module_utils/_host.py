# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Door to the machine: files, kernel files, commands. Private: may change at any time.

Only this file and the other doors touch the host. Two ways to write, never mixed up: a kernel file is written
in place, whole value plus newline; a configuration file is replaced atomically, keeping mode, owner and
SELinux context. C(Host.planned()) is the same door with every write kept in memory: check mode runs on it.
"""

from __future__ import annotations

import errno
import glob as _glob
import os
import shutil
import stat as _stat
import subprocess
import syslog
from typing import NamedTuple

from ._errors import HostError

TEMPORARY = ".%s.ai_infra_gpu_host.tmp"
LOCALE = {"LANG": "C", "LC_ALL": "C", "LANGUAGE": "C"}
REMEDIES = {
    errno.EROFS: "The file system is read-only: in a container the setting belongs to the host; "
    "on an image-based system make it writable first",
    errno.EACCES: "Run the task as root (become: true)",
    errno.EPERM: "Run the task as root (become: true); in a container the setting belongs to the host",
    errno.ENOSPC: "Free some space on this file system and run again",
    errno.EDQUOT: "Free some space on this file system and run again",
    errno.EINVAL: "The kernel refuses this value",
    errno.ENOENT: "Check that the path exists on this host",
}


class Ran(NamedTuple):
    """How a command ended."""

    rc: int
    out: str
    err: str


class FileInfo(NamedTuple):
    """What the atomic replace keeps: permission bits, owner, group."""

    mode: int
    uid: int
    gid: int


def os_error(tried, path, err):
    """Turn an OSError into our family, with the remedy for its errno."""
    return HostError(tried, path, err.strerror or str(err), REMEDIES.get(err.errno, ""), errno=err.errno)


class Host:
    """The real machine, or a tree below C(root) that looks like one."""

    is_planned = False

    def __init__(self, root="/"):
        self.root = root.rstrip("/")
        self._nvml = None
        self.pynvml_path = None

    def planned(self):
        """Return a door that reads this host and only pretends to change it."""
        return PlannedHost(self)

    # Reading

    def _at(self, path):
        return self.root + path

    def read(self, path):
        """Text of a file, or None when there is none. Undecodable bytes survive a round trip."""
        try:
            with open(self._at(path), "rb") as handle:
                return handle.read().decode("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as err:
            # A sysfs attribute can exist and refuse the read with "no such device": nothing to know there.
            if err.errno in (errno.ENODEV, errno.ENXIO, errno.ESRCH):
                return None
            raise os_error("read", path, err)

    def info(self, path):
        """Mode, owner and group of a file, or None when there is none."""
        try:
            found = os.stat(self._at(path))
        except OSError:
            return None
        return FileInfo(_stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)

    def changed_at(self, path):
        """When a file got its content, in seconds since 1970; None when there is none."""
        try:
            return os.stat(self._at(path)).st_mtime
        except OSError:
            return None

    def exists(self, path):
        return os.path.lexists(self._at(path))

    def is_dir(self, path):
        return os.path.isdir(self._at(path))

    def is_device(self, path):
        """Whether path is a character device node."""
        try:
            return _stat.S_ISCHR(os.stat(self._at(path)).st_mode)
        except OSError:
            return False

    def listdir(self, path):
        """Sorted names in a directory; empty when there is none."""
        try:
            return sorted(os.listdir(self._at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as err:
            if err.errno in (errno.ESRCH, errno.EACCES):
                return []
            raise os_error("list", path, err)

    def glob(self, pattern):
        """Sorted paths that match a shell pattern."""
        return sorted(found[len(self.root):] for found in _glob.glob(self._at(pattern)))

    def readlink(self, path):
        """Where a symbolic link points, or None when path is no link."""
        try:
            return os.readlink(self._at(path))
        except OSError:
            return None

    def realpath(self, path):
        """The path behind symbolic links, as this host sees it."""
        real = os.path.realpath(self._at(path))
        return real[len(self.root):] if self.root and real.startswith(self.root) else real

    def which(self, name):
        """Full path of a program, or None."""
        return shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")

    def run(self, argv, timeout=60):
        """Run a command that only reads. A missing program answers 127, as a shell would."""
        program = self.which(argv[0]) if "/" not in argv[0] else argv[0]
        if program is None:
            return Ran(127, "", "%s: not found" % argv[0])
        try:
            done = subprocess.run(
                [program] + list(argv[1:]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=dict(os.environ, **LOCALE), timeout=timeout, check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError("run", " ".join(argv), "no answer within %d s" % timeout,
                            "Look at the command on the host by hand")
        except OSError as err:
            return Ran(126, "", err.strerror or str(err))
        return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    def affinity(self):
        """CPUs this process may run on."""
        return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set()

    def is_root(self):
        return os.geteuid() == 0

    def page_size(self):
        """Bytes in a base page of the running kernel."""
        return os.sysconf("SC_PAGE_SIZE")

    def memory_policy(self):
        """(whether a process here may set its NUMA memory policy, why not): container runtimes often forbid it.

        None below a root of its own. The kernel is asked by doing it: this process gets "allocate locally", then
        back what it had.
        """
        return (None, None) if self.root else try_memory_policy()

    def may_raise_limit(self, resource_id, hard):
        """Whether processes here may have this hard limit; -1 is unlimited. Most containers may not.

        None below a root of its own. The kernel is asked by doing it to this process, which then gets back what it had.
        """
        if self.root:
            return None
        import resource  # Linux only, and needed nowhere else

        had = resource.getrlimit(resource_id)
        if had[1] == resource.RLIM_INFINITY or -1 < hard <= had[1]:
            return True
        try:
            resource.setrlimit(resource_id, (had[0], hard))
        except (OSError, ValueError):
            return False
        resource.setrlimit(resource_id, had)
        return True

    # Changing

    def act(self, argv, timeout=60):
        """Run a command that changes the host; the planned door only pretends. Raises when it fails."""
        ran = self.run(argv, timeout)
        if ran.rc != 0:
            raise HostError("run", " ".join(argv), (ran.err or ran.out).strip() or "exit status %d" % ran.rc,
                            "Run the command on the host by hand to see more", rc=ran.rc)
        return ran

    def write_kernel(self, path, value):
        """Write a kernel file in place: the whole value and a newline in one write.

        The newline matters: kernels before f42f25526502 match THP words by prefix without it.
        """
        try:
            handle = os.open(self._at(path), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(handle, ("%s\n" % value).encode())
            finally:
                os.close(handle)
        except OSError as err:
            error = os_error("write %r to" % str(value), path, err)
            if err.errno == errno.EINVAL:
                error.remedy = "The kernel refuses this value; the file now holds %r" % (self.read(path) or "").strip()
            raise error

    def set_rlimit(self, pid, resource_id, soft, hard):
        """Set a resource limit of a running process (prlimit); -1 is unlimited."""
        import resource  # Linux only, and needed nowhere else

        try:
            resource.prlimit(pid, resource_id, (soft, hard))
        except (OSError, ValueError) as err:
            raise HostError("set a resource limit of", "process %d" % pid, str(err), "Run the task as root")

    def temporary(self, path):
        """Where the new content of path is prepared; deterministic, so a killed run leaves nothing for ever."""
        folder, name = os.path.split(path)
        return os.path.join(folder, TEMPORARY % name)

    def stage(self, path, text, mode=0o644):
        """Write the new content beside path and bring it to disk. Nothing of the host has changed yet."""
        temporary = self._at(self.temporary(path))
        old = self.info(path)
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                data = text.encode("utf-8", "surrogateescape")
                while data:
                    data = data[os.write(handle, data):]
                os.fchmod(handle, old.mode if old else mode)
                if old and (old.uid, old.gid) != (os.geteuid(), os.getegid()):
                    os.fchown(handle, old.uid, old.gid)
                self._keep_selinux(path, handle)
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as err:
            self.unstage(path)
            raise os_error("write", path, err)

    def _keep_selinux(self, path, handle):
        """Give the new file the old one's SELinux context; a new file takes its directory's default."""
        try:
            os.setxattr(handle, "security.selinux", os.getxattr(self._at(path), "security.selinux"))
        except (OSError, AttributeError):
            return

    def unstage(self, path):
        """Drop prepared content, also what an earlier, killed run left beside path or, before its directory
        existed, further up."""
        folder, name = os.path.split(path)
        while True:
            try:
                os.unlink(self._at(os.path.join(folder, TEMPORARY % name)))
            except OSError:
                pass
            if folder in ("/", ""):
                return
            folder = os.path.dirname(folder)

    def replace(self, path, text, mode=0o644):
        """Replace a configuration file atomically, through a link when path is one; missing directories are made."""
        path = self.realpath(path)
        folder = os.path.dirname(path)
        self.make_dir(folder)
        is_new = not self.exists(path)
        self.stage(path, text, mode)
        try:
            os.rename(self._at(self.temporary(path)), self._at(path))
            self._sync_dir(folder)
        except OSError as err:
            self.unstage(path)
            raise os_error("replace", path, err)
        if is_new and not self.root and self.exists("/sys/fs/selinux/enforce") and self.which("restorecon"):
            self.run(["restorecon", path])

    def _sync_dir(self, path):
        handle = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path):
        """Remove a file or link; one that is gone already is fine."""
        self.unstage(path)
        try:
            os.unlink(self._at(path))
            self._sync_dir(os.path.dirname(path))
        except FileNotFoundError:
            return
        except OSError as err:
            raise os_error("remove", path, err)

    def make_dir(self, path, mode=0o755):
        """Make a directory and its parents, with exactly this mode whatever the umask."""
        if self.is_dir(path):
            return
        self.make_dir(os.path.dirname(path), mode)
        try:
            os.mkdir(self._at(path), mode)
            os.chmod(self._at(path), mode)
        except FileExistsError:
            return
        except OSError as err:
            raise os_error("make the directory", path, err)

    def remove_dir(self, path):
        """Remove a directory only when it is empty; says whether it went."""
        try:
            os.rmdir(self._at(path))
        except OSError:
            return False
        return True

    def check_kernel_writable(self, path):
        """Fail before any change when a kernel file can't be written."""
        if not os.access(self._at(path), os.W_OK):
            try:
                os.close(os.open(self._at(path), os.O_WRONLY | os.O_CLOEXEC))
            except OSError as err:
                raise os_error("write", path, err)

    def check_replaceable(self, path, text):
        """Fail before any change when a file could not be written: try it beside the target, then clean up."""
        path = self.realpath(path)
        folder = os.path.dirname(path)
        while not self.is_dir(folder):
            folder = os.path.dirname(folder)
        trial = os.path.join(folder, os.path.basename(path))
        try:
            self.stage(trial, text)
        except HostError as err:
            err.target = path
            raise
        finally:
            self.unstage(trial)

    def log(self, message):
        """One line in the system journal."""
        syslog.openlog("ai_infra.gpu_host", 0, syslog.LOG_USER)
        syslog.syslog(syslog.LOG_NOTICE, message.replace("\n", "\\n")[:900])

    # GPUs

    def nvml(self):
        """The NVML door, opened once. Raises NvmlError."""
        if self._nvml is None:
            from ._nvml import open_nvml

            self._nvml = open_nvml(self)
        return self._nvml

    def nvml_binding(self):
        """The NVML door with its binding, not started; it works where no driver is loaded. Raises NvmlError."""
        from ._nvml import load

        return load(self)


class PlannedHost(Host):
    """Reads through to a host; every change stays in memory and is seen by later reads."""

    is_planned = True

    def __init__(self, base):
        super().__init__(base.root)
        self.base = base
        self.pynvml_path = base.pynvml_path
        self._files = {}  # path -> text, or None once removed
        self._infos = {}

    def read(self, path):
        return self._files[path] if path in self._files else self.base.read(path)

    def info(self, path):
        if path in self._files:
            return None if self._files[path] is None else self._infos[path]
        return self.base.info(path)

    def changed_at(self, path):
        if path in self._files:
            return None if self._files[path] is None else float("inf")
        return self.base.changed_at(path)

    def exists(self, path):
        return self._files[path] is not None if path in self._files else self.base.exists(path)

    def is_dir(self, path):
        below = path.rstrip("/") + "/"
        if any(text is not None and name.startswith(below) for name, text in self._files.items()):
            return True
        return self.base.is_dir(path)

    def is_device(self, path):
        return self.base.is_device(path)

    def listdir(self, path):
        names = set(self.base.listdir(path))
        below = path.rstrip("/") + "/"
        for name, text in self._files.items():
            if name.startswith(below):
                child = name[len(below):].split("/")[0]
                if text is not None:
                    names.add(child)
                elif "/" not in name[len(below):]:
                    names.discard(child)
        return sorted(names)

    def glob(self, pattern):
        import fnmatch

        found = {path for path in self.base.glob(pattern) if self._files.get(path, "") is not None}
        depth = pattern.count("/")
        found.update(
            path for path, text in self._files.items()
            if text is not None and path.count("/") == depth and fnmatch.fnmatchcase(path, pattern)
        )
        return sorted(found)

    def readlink(self, path):
        return None if path in self._files else self.base.readlink(path)

    def realpath(self, path):
        return path if path in self._files else self.base.realpath(path)

    def which(self, name):
        return self.base.which(name)

    def run(self, argv, timeout=60):
        return self.base.run(argv, timeout)

    def affinity(self):
        return self.base.affinity()

    def is_root(self):
        return self.base.is_root()

    def page_size(self):
        return self.base.page_size()

    def memory_policy(self):
        return self.base.memory_policy()

    def may_raise_limit(self, resource_id, hard):
        return self.base.may_raise_limit(resource_id, hard)

    def act(self, argv, timeout=60):
        return Ran(0, "", "")

    def write_kernel(self, path, value):
        self._files[path] = as_kernel_shows(self.read(path) or "", str(value))

    def set_rlimit(self, pid, resource_id, soft, hard):
        return None

    def replace(self, path, text, mode=0o644):
        path = self.realpath(path)
        self._infos[path] = self.info(path) or FileInfo(mode, 0, 0)
        self._files[path] = text

    def remove(self, path):
        self._files[path] = None

    def make_dir(self, path, mode=0o755):
        return None

    def remove_dir(self, path):
        return not self.listdir(path)

    def stage(self, path, text, mode=0o644):
        return None

    def unstage(self, path):
        return None

    def check_kernel_writable(self, path):
        self.base.check_kernel_writable(path)

    def check_replaceable(self, path, text):
        return None

    def log(self, message):
        return None

    def nvml(self):
        if self._nvml is None:
            self._nvml = self.base.nvml().planned()
        return self._nvml

    def nvml_binding(self):
        return self.base.nvml_binding()


def as_kernel_shows(old, value):
    """What a kernel file reads after C(value) was written: the bracketed word moves, a number is replaced."""
    words = old.split()
    if any(word.startswith("[") and word.endswith("]") for word in words):
        bare = [word.strip("[]") for word in words]
        return " ".join("[%s]" % word if word == value else word for word in bare) + "\n"
    return value + "\n"


# (get_mempolicy, set_mempolicy) by machine; C libraries wrap neither.
MEMORY_POLICY_CALLS = {
    "x86_64": (239, 238), "aarch64": (236, 237), "riscv64": (236, 237), "loongarch64": (236, 237),
    "ppc64le": (260, 261), "s390x": (269, 270),
}
MPOL_PREFERRED = 1  # with no node: allocate where the thread runs, as by default
MOST_NODES = 4096


def try_memory_policy():
    """Set the memory policy of this process to what it nearly always is, and put back what it was."""
    import ctypes

    machine = os.uname().machine
    if machine not in MEMORY_POLICY_CALLS:
        return None, "the system call's number is not known on %s" % machine
    get_call, set_call = MEMORY_POLICY_CALLS[machine]
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    mode, mask = ctypes.c_int(0), (ctypes.c_ulong * (MOST_NODES // 64))()
    long = ctypes.c_ulong
    if call(long(get_call), ctypes.byref(mode), mask, long(MOST_NODES), None, long(0)) != 0:
        mode.value = 0  # the default policy; a filter may forbid asking as well
    if call(long(set_call), long(MPOL_PREFERRED), None, long(0)) != 0:
        code = ctypes.get_errno()
        why = {errno.EPERM: "a system call filter forbids it, as container runtimes do by default",
               errno.ENOSYS: "this kernel has no NUMA memory policies"}
        return False, why.get(code, os.strerror(code))
    given = any(mask)
    call(long(set_call), long(mode.value), mask if given else None, long(MOST_NODES if given else 0))
    return True, None
