# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lab and Host: what tests and the command line use."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import groups, layer, locked_memory, network, paths, root, simulator, snapshot
from .board import Board
from .boot import DROPPED_CAPABILITIES, PATH
from .inventory import render
from .paths import HostPaths
from .supervisor import REBOOT, STOP

START_S = 60
STOP_S = 30
USER = "root"


class LabError(Exception):
    pass


@dataclass(frozen=True)
class Host:
    """A host of the lab, running or not. All state is in its directory, so any process can make one of these."""

    paths: HostPaths
    ssh_options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.paths.directory.name

    @property
    def description(self) -> dict:
        return _read_json(self.paths.description)

    @property
    def status(self) -> dict:
        return _read_json(self.paths.status)

    @property
    def board(self) -> Board:
        description = self.description
        return Board(description["board"], description["data"])

    @property
    def address(self) -> str:
        return self._told("address")

    @property
    def boot_id(self) -> str:
        return self._told("boot_id")

    @property
    def init(self) -> int:
        """The pid of its pid 1 as seen from outside."""
        return self._told("init")

    @property
    def alive(self) -> bool:
        """Whether its supervisor runs: it holds the lock as long as it lives."""
        try:
            with self.paths.lock.open(encoding="ascii") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
        except FileNotFoundError:
            pass
        return False

    def ssh(
        self, *argv: str, check: bool = True, timeout: float = 60, text: str | None = None
    ) -> subprocess.CompletedProcess:
        """Runs a command (one string, or words for the remote shell) over SSH."""
        command = ["ssh", *self.ssh_options, f"{USER}@{self.address}", "--", *argv]
        return _finish(
            subprocess.run(command, capture_output=True, text=True, input=text, timeout=timeout, check=False), check
        )

    def enter(self, *argv: str) -> list[str]:
        """The command that runs `argv` inside the host's namespaces, without SSH."""
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
        # As bounded as the host's own processes are.
        bounds = ",".join(f"-{name}" for name in DROPPED_CAPABILITIES)
        environment = ("env", "-i", f"PATH={PATH}", "LANG=C.UTF-8", "HOME=/root", "TERM=dumb")
        return [
            "nsenter",
            f"--target={self.init}",
            *namespaces,
            "setpriv",
            f"--bounding-set={bounds}",
            *environment,
            *argv,
        ]

    def run(
        self, *argv: str, check: bool = True, timeout: float = 60, text: str | None = None
    ) -> subprocess.CompletedProcess:
        return _finish(
            subprocess.run(self.enter(*argv), capture_output=True, text=True, input=text, timeout=timeout, check=False),
            check,
        )

    def read(self, path: str) -> str:
        return self.run("cat", "--", path).stdout

    def write(self, path: str, text: str) -> None:
        """One write of the whole text, as a program or another administrator would."""
        self.run("dd", "status=none", "bs=1M", "conv=notrunc", f"of={path}", text=text)

    def kernel_writes(self) -> list[dict]:
        """Every write to a simulated kernel file since the host was made: path, value, outer pid, program, errno."""
        try:
            return [json.loads(line) for line in self.paths.kernel_log.read_text(encoding="utf-8").splitlines()]
        except FileNotFoundError:
            return []

    def set_command_line(self, text: str) -> None:
        """The kernel command line from the next boot on."""
        description = self.description
        description["command_line"] = text
        _write_json(self.paths.description, description)

    def reboot(self) -> None:
        """An orderly reboot, asked for from outside; returns when SSH answers again."""
        boots = self._told("boots")
        self._signal(REBOOT)
        self.wait(boots=boots + 1)

    def wait(self, boots: int = 1, timeout: float = START_S) -> None:
        """Until the host has booted that often and SSH answers."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = self.status
            if status.get("state") in ("failed", "stopped") or (
                status and not self.alive and status.get("state") != "starting"
            ):
                raise LabError(f"{self.name}: {status.get('error', 'stopped')}\n{self.log_tail()}")
            if status.get("state") == "running" and status["boots"] >= boots and _answers(status["address"]):
                return
            time.sleep(0.05)
        raise LabError(f"{self.name} did not answer within {timeout:.0f} s\n{self.log_tail()}")

    def log_tail(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.paths.log.read_text(encoding="utf-8", errors="replace")[-3000:]
        return ""

    def snapshot(self) -> dict:
        return snapshot.take(Path(f"/proc/{self.init}/root"))

    def _told(self, key: str) -> Any:
        """What its supervisor has said of it."""
        if not self.paths.description.exists():
            raise LabError(f"no host {self.name}")
        value = self.status.get(key)
        if not value or not self.alive:
            raise LabError(f"{self.name} is not running")
        return value

    def _signal(self, number: int) -> bool:
        """False while a supervisor that has just been started has not told its pid."""
        pid = self.status.get("supervisor")
        if not pid or not self.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def _stop(self) -> None:
        """Ends the host's processes and waits for them; after a kill there may be only leftovers to take away."""
        told = False
        deadline = time.monotonic() + STOP_S
        while self.alive:
            told = told or self._signal(STOP)
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
                deadline += STOP_S
            time.sleep(0.02)
        status = self.status
        interface, number = status.get("interface"), status.get("interface_index")
        if interface and network.index(interface) in (number, None):
            network.disconnect(interface)
            mount_point = groups.outer_mount()
            if mount_point:
                groups.remove(mount_point / f"{groups.PREFIX}{interface}")


class Lab:
    """The hosts below one state directory.

    As a context manager, or with owned=True, its hosts end with this process, whatever ends it.
    """

    def __init__(self, state: Path | None = None, owned: bool = False) -> None:
        self.state = (state or paths.state()).absolute()
        self._owned = owned
        self._started: list[str] = []

    def __enter__(self) -> Lab:
        self._owned = True
        atexit.register(self.close)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        atexit.unregister(self.close)

    def close(self) -> None:
        """Takes down what this object has started."""
        self.down(*self._started)

    @property
    def hosts(self) -> list[Host]:
        return [self.host(path.parent.name) for path in sorted(self.state.glob("*/host.json"))]

    def host(self, name: str) -> Host:
        return Host(HostPaths(self.state / name), self.ssh_options)

    @property
    def key(self) -> Path:
        return self.state / "ssh/id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.state / "ssh/known_hosts"

    @property
    def control_directory(self) -> Path:
        """For the control sockets of Ansible's ssh, whose paths have to be short; Ansible makes it."""
        return Path("/run/gpu-host-lab") / hashlib.sha256(str(self.state).encode()).hexdigest()[:8]

    @property
    def ssh_options(self) -> tuple[str, ...]:
        return (
            "-i",
            str(self.key),
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=10",
            "-o",
            f"UserKnownHostsFile={self.known_hosts}",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "LogLevel=ERROR",
        )

    def up(self, board: str, name: str | None = None, root: str = "debian12", **changes: object) -> Host:
        """Starts a host of that board. `changes` replace keys of its description: unit, files, command_line, thp ..."""
        return self.up_all([(board, name, changes)], root)[0]

    def up_all(self, wanted: Iterable[tuple[str, str | None, dict]], root_name: str = "debian12") -> list[Host]:
        """Starts hosts side by side; when one fails or the user interrupts, those begun here are taken down again."""
        if os.geteuid() != 0:
            raise LabError("the lab needs root: it makes namespaces, mounts and network links")
        if importlib.util.find_spec("mfusepy") is None:
            raise LabError("the lab needs the Python package mfusepy, which serves the simulated kernel files")
        network.check_free()
        with _umask(0o022):
            return self._up_all(wanted, root_name)

    def _up_all(self, wanted: Iterable[tuple[str, str | None, dict]], root_name: str) -> list[Host]:
        base = root.build(root_name)
        shared = (locked_memory.layer(), simulator.layer())
        before = len(self._started)
        try:
            with self._locked():
                self._make_key()
                hosts = [self._begin(Board.load(board, changes), name, base, shared) for board, name, changes in wanted]
            for host in hosts:
                host.wait()
            self._write_known_hosts()
        except BaseException:
            self.down(*self._started[before:])
            raise
        return hosts

    def down(self, *names: str) -> None:
        """Ends hosts and removes all that is theirs."""
        hosts = [self.host(name) for name in names if (self.state / name).is_dir()]
        for host in hosts:
            host._signal(STOP)
        for host in hosts:
            # Again, for one that was too young to be told.
            host._stop()
            shutil.rmtree(host.paths.directory, ignore_errors=True)
            if host.name in self._started:
                self._started.remove(host.name)
        self._write_known_hosts()
        if not self.hosts:
            self._close_connections()

    def down_all(self) -> None:
        """Every host of this state directory, broken and half-made ones too."""
        self.down(*(path.name for path in self.state.glob("*") if path.is_dir() and path.name != "ssh"))
        groups.remove_orphans()
        self._close_connections()
        shutil.rmtree(self.state, ignore_errors=True)

    def inventory(self, groups: dict[str, Sequence[str]] | None = None) -> str:
        """An Ansible inventory in YAML: all hosts in gpu_nodes, and in the groups named."""
        hosts = {
            host.name: {"ansible_host": host.address, "gpu_lab_board": host.description["board"]}
            for host in self.hosts
            if host.alive
        }
        common = {
            "ansible_user": USER,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": " ".join(
                ("-o IdentitiesOnly=yes", f"-o UserKnownHostsFile={self.known_hosts}", "-o StrictHostKeyChecking=yes")
            ),
            "ansible_control_path_dir": str(self.control_directory),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        return render(hosts, common, groups or {})

    def _begin(self, board: Board, name: str | None, base: Path, shared: tuple[Path | None, Path]) -> Host:
        name = name or board.name.replace("_", "-")
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) or name == "ssh":
            raise LabError(f"{name!r} can't be a host's name: letters, digits and dashes")
        host = self.host(name)
        if host.alive:
            raise LabError(f"{name} is already up; take it down first")
        shutil.rmtree(host.paths.directory, ignore_errors=True)
        for path in (host.paths.layer, host.paths.upper, host.paths.work):
            path.mkdir(parents=True)
        client_key = self.key.with_suffix(".pub").read_text(encoding="ascii")
        host_key = layer.make(host.paths.layer, board, name, base, client_key)
        limits, simulation = shared
        simulation = simulation if board.gpus else None
        description = {
            "name": name,
            "board": board.name,
            "title": board.title,
            "data": board.data,
            "host_key": host_key,
            "lower": [str(path) for path in (host.paths.layer, limits, simulation, base) if path],
            "locked_memory": "simulated" if limits else "real",
            "gpu_state": simulator.commands(board, name) if simulation else {},
            "owner": os.getpid() if self._owned else None,
        }
        _write_json(host.paths.description, description)
        _write_json(host.paths.status, {"state": "starting"})
        self._started.append(name)
        environment = {**os.environ, "PYTHONPATH": str(paths.LAB)}
        with host.paths.log.open("w", encoding="utf-8") as log, host.paths.lock.open("w", encoding="ascii") as lock:
            # Handed over locked: from here on the host counts as alive until the last of its processes is gone.
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.Popen(
                [sys.executable, "-m", "gpu_lab.supervisor", str(host.paths.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd="/",
                pass_fds=[lock.fileno()],
            )
        return host

    def _make_key(self) -> None:
        if self.key.exists():
            return
        self.key.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpu-lab", "-f", self.key], check=True, timeout=30
        )

    def _write_known_hosts(self) -> None:
        if not self.known_hosts.parent.is_dir():
            return
        with self._locked():
            entries = []
            for host in self.hosts:
                if "address" in host.status:
                    entries.append(f"{host.address} {' '.join(host.description['host_key'].split()[:2])}\n")
            temporary = self.known_hosts.with_suffix(".new")
            temporary.write_text("".join(entries), encoding="ascii")
            temporary.replace(self.known_hosts)

    def _close_connections(self) -> None:
        """ssh masters that a test run has left waiting for the next command."""
        if not self.control_directory.is_dir():
            return
        for path in self.control_directory.iterdir():
            subprocess.run(
                ["ssh", "-O", "exit", "-o", f"ControlPath={path}", "lab"], capture_output=True, check=False, timeout=10
            )
        shutil.rmtree(self.control_directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.control_directory.parent.rmdir()

    @contextlib.contextmanager
    def _locked(self):
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / ".lock").open("w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def _umask(mask: int):
    """The files of a host have the modes they need, whatever the user prefers."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _finish(done: subprocess.CompletedProcess, check: bool) -> subprocess.CompletedProcess:
    if check and done.returncode:
        raise LabError(f"{' '.join(map(str, done.args))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _write_json(path: Path, value: dict) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value, indent=1), encoding="utf-8")
    temporary.replace(path)
