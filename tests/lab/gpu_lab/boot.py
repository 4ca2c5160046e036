# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One boot of a host: assembles its view of the machine in a mount namespace of its own and starts systemd in it."""

from __future__ import annotations

import os
import signal
import stat
import traceback
from pathlib import Path

from . import groups, locked_memory, syscalls
from .board import Board
from .paths import HostPaths

INIT = "/lib/systemd/systemd"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How the leader tells its supervisor what became of pid 1.
REBOOT, HALT, DIED = 10, 11, 12

# What would let a host reach the outer kernel.
DROPPED_CAPABILITIES = {
    "sys_module": 16,
    "sys_rawio": 17,
    "sys_time": 25,
    "mknod": 27,
    "audit_control": 30,
    "mac_override": 32,
    "mac_admin": 33,
    "syslog": 34,
    "wake_alarm": 35,
}
_CHARACTER_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_REAL_CLASSES = ("bdi", "mem", "misc", "net")
_REAL_SYSTEM = ("clockevents", "clocksource")
_MASKED = ("sysrq-trigger", "kcore", "timer_list", "latency_stats", "keys")
_READ_ONLY = ("acpi", "bus", "fs", "irq", "mtrr", "scsi", "tty")


def start(board: Board, paths: HostPaths, lower: list[str], cgroup: Path) -> tuple[int, int]:
    """Starts the host; the pids of its leader (our child) and of its pid 1, both as we see them."""
    reader, writer = os.pipe()
    supervisor = os.getpid()
    leader = os.fork()
    if leader:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            answer = pipe.read()
        if not answer.isdigit():
            os.waitpid(leader, 0)
            raise RuntimeError(f"host did not start: {answer or 'no pid 1'}")
        return leader, int(answer)
    try:
        os.close(reader)
        _lead(board, paths, lower, cgroup, supervisor, writer)
    except BaseException:
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(DIED)


def _lead(board: Board, paths: HostPaths, lower: list[str], cgroup: Path, supervisor: int, writer: int) -> None:
    """The parent of pid 1: waits for it and passes on how it ended."""
    syscalls.die_with_parent(supervisor)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    outside = paths.cgroup / groups.own()
    (cgroup / "cgroup.procs").write_text("0", encoding="ascii")
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWCGROUP | syscalls.CLONE_NEWPID)
    ready, told = os.pipe()
    leader = os.getpid()
    init = os.fork()
    if init == 0:
        os.close(ready)
        os.close(writer)
        try:
            _become_init(board, paths, lower, leader, told)
        except BaseException:
            os.write(told, traceback.format_exc().encode())
        finally:
            os._exit(DIED)
    os.close(told)
    # Back out, so that pid 1 is alone in the group that is the root to it.
    (outside / "cgroup.procs").write_text("0", encoding="ascii")
    with os.fdopen(ready) as pipe:
        fault = pipe.read()
    os.write(writer, (fault or str(init)).encode())
    os.close(writer)
    _pid, status = os.waitpid(init, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    # reboot(2) in a pid namespace ends pid 1 by one of two signals.
    os._exit({signal.SIGHUP: REBOOT, signal.SIGINT: HALT}.get(ended_by, DIED))


def run_in_root(paths: HostPaths, lower: list[str], argv: list[str]) -> None:
    """Runs a program on the host's files before its first process exists."""
    child = os.fork()
    if child:
        _pid, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError(f"{' '.join(argv)}: exit status {os.waitstatus_to_exitcode(status)}")
        return
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        _overlay(paths, lower)
        os.chroot(paths.root)
        os.chdir("/")
        os.execve(argv[0], argv, {"PATH": PATH})
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _overlay(paths: HostPaths, lower: list[str]) -> None:
    options = f"lowerdir={':'.join(lower)},upperdir={paths.upper},workdir={paths.work}"
    syscalls.mount("lab", str(paths.root), "overlay", 0, options)


def _become_init(board: Board, paths: HostPaths, lower: list[str], leader: int, told: int) -> None:
    # The leader is outside this pid namespace, where its pid reads 0.
    syscalls.die_with_parent(0)
    assemble(board, paths, lower)
    syscalls.pivot_root(str(paths.root))
    syscalls.drop_capabilities(DROPPED_CAPABILITIES.values())
    os.umask(0o022)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.set_inheritable(told, False)
    os.closerange(told + 1, 256)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.execve(INIT, [INIT], {"container": "lab", "PATH": PATH})


def assemble(board: Board, paths: HostPaths, lower: list[str]) -> None:
    """Mounts the host's file systems. Runs as pid 1 of the host, so that proc shows the right processes."""
    root = str(paths.root)
    _overlay(paths, lower)
    _dev(board, f"{root}/dev")
    syscalls.mount("tmpfs", f"{root}/run", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=256m")
    table = Path(root + locked_memory.TABLE)
    table.touch()
    table.chmod(0o666)
    _sys(paths, f"{root}/sys")
    _proc(paths, f"{root}/proc")


def _dev(board: Board, dev: str) -> None:
    syscalls.mount("tmpfs", dev, "tmpfs", syscalls.MS_NOSUID, "mode=755,size=16m")
    for name, numbers in _CHARACTER_DEVICES.items():
        _character_device(f"{dev}/{name}", *numbers)
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}")
    syscalls.mount(
        "devpts",
        f"{dev}/pts",
        "devpts",
        syscalls.MS_NOSUID | syscalls.MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=620,gid=5",
    )
    syscalls.mount("tmpfs", f"{dev}/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=1777")
    for name, target in {
        "ptmx": "pts/ptmx",
        "fd": "/proc/self/fd",
        "stdin": "/proc/self/fd/0",
        "stdout": "/proc/self/fd/1",
        "stderr": "/proc/self/fd/2",
    }.items():
        os.symlink(target, f"{dev}/{name}")
    # The nodes are there to be seen; opening one reaches /dev/null.
    gpus = len(board.gpus)
    names = [f"nvidia{index}" for index in range(gpus)] + (
        ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] if gpus else []
    )
    adapters = len(board.of_kind("infiniband"))
    if adapters:
        os.mkdir(f"{dev}/infiniband")
        names += ["infiniband/rdma_cm", *(f"infiniband/uverbs{index}" for index in range(adapters))]
    for name in names:
        _character_device(f"{dev}/{name}", *_CHARACTER_DEVICES["null"])


def _character_device(path: str, major: int, minor: int) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.chmod(path, 0o666)


def _sys(paths: HostPaths, target: str) -> None:
    kernel = paths.kernel / "sys"
    real = paths.sysfs
    flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("sysfs", target, "sysfs", flags)
    syscalls.mount(
        "cgroup2", f"{target}/fs/cgroup", "cgroup2", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    )

    # Directories whose entries are partly simulated: only what is named here exists in them.
    simulated = sorted(entry.name for entry in (kernel / "class").iterdir())
    roots = sorted(entry.name for entry in (kernel / "devices").iterdir() if entry.name != "system")
    _mixed(
        f"{target}/devices",
        {f"system/{name}": real / "devices/system" / name for name in _REAL_SYSTEM}
        | {"virtual": real / "devices/virtual"}
        | {f"system/{name}": kernel / "devices/system" / name for name in ("cpu", "node")}
        | {name: kernel / "devices" / name for name in roots},
    )
    _mixed(
        f"{target}/class",
        {name: real / "class" / name for name in _REAL_CLASSES} | {name: kernel / "class" / name for name in simulated},
    )
    _mixed(f"{target}/bus", {"pci": kernel / "bus/pci"})
    for name in ("block", "firmware", "dev"):
        _mixed(f"{target}/{name}", {})
    syscalls.bind(str(kernel / "kernel/mm"), f"{target}/kernel/mm")


def _mixed(target: str, entries: dict[str, Path]) -> None:
    """An empty read-only directory over `target`, with `entries` bound into it."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("tmpfs", target, "tmpfs", flags, "mode=755,size=1m")
    for name, source in entries.items():
        if source.is_dir():
            os.makedirs(f"{target}/{name}")
            syscalls.bind(str(source), f"{target}/{name}")
    syscalls.mount("tmpfs", target, None, flags | syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY)


def _proc(paths: HostPaths, target: str) -> None:
    kernel = paths.kernel / "proc"
    syscalls.mount("proc", target, "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    # The outer kernel's values can be reached through /proc/sys from any pid namespace; only net is the host's own.
    syscalls.bind(f"{target}/sys/net", str(paths.scratch))
    syscalls.bind(f"{target}/sys", f"{target}/sys", read_only=True)
    syscalls.bind(str(paths.scratch), f"{target}/sys/net")
    for name in ("vm", "kernel"):
        syscalls.bind(str(kernel / "sys" / name), f"{target}/sys/{name}")
    for name in ("cmdline", "swaps", "meminfo", "driver"):
        syscalls.bind(str(kernel / name), f"{target}/{name}")
    for name in _READ_ONLY:
        if os.path.exists(f"{target}/{name}"):
            syscalls.bind(f"{target}/{name}", f"{target}/{name}", read_only=True)
    for name in _MASKED:
        if os.path.exists(f"{target}/{name}"):
            syscalls.bind(f"{paths.root}/dev/null", f"{target}/{name}")
