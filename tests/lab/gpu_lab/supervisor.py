# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that is a host's power supply: serves its kernel files, boots it, boots it again, and cleans up after it.

Everything hangs on this process: the host's processes die with it, and with them every mount and interface.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import uuid
from pathlib import Path

from . import boot, groups, network, syscalls
from .board import Board
from .kernel import machine
from .paths import HostPaths

# Events: the two signals that ask for something, and two that happen.
STOP, REBOOT = signal.SIGTERM, signal.SIGHUP
ENDED, TIMEOUT = -1, -2
SHUTDOWN_S = 20
# systemd's own signal for an orderly reboot.
_SYSTEMD_REBOOT = signal.SIGRTMIN + 5


class Supervisor:
    def __init__(self, directory: Path) -> None:
        self.paths = HostPaths(directory)
        self.description = json.loads(self.paths.description.read_text(encoding="utf-8"))
        self.name: str = self.description["name"]
        self.board = Board(self.description["board"], self.description["data"])
        self.status: dict = {"supervisor": os.getpid(), "state": "starting", "boots": 0}
        self.link: network.Link | None = None
        self.kernel_server = 0
        self.wakeups, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        signal.set_wakeup_fd(self._wake)
        for number in (STOP, REBOOT, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._tell()
        try:
            self._prepare()
            while self._one_boot():
                pass
            self._tell(state="stopped")
        finally:
            self._clean_up()

    def _tell(self, **changes: object) -> None:
        self.status.update(changes)
        temporary = self.paths.status.with_suffix(".new")
        temporary.write_text(json.dumps(self.status, indent=1), encoding="utf-8")
        temporary.replace(self.paths.status)

    def _prepare(self) -> None:
        with network.outside() as outer:
            syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWNET)
            syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
            socket.sethostname(self.name)
            self.link = network.connect(outer)
        self._tell(address=self.link.address, interface=self.link.name, interface_index=self.link.index)
        for path in (self.paths.root, self.paths.kernel, self.paths.sysfs, self.paths.cgroup, self.paths.scratch):
            path.mkdir(parents=True, exist_ok=True)
        syscalls.mount("sysfs", str(self.paths.sysfs), "sysfs", syscalls.MS_RDONLY)
        syscalls.mount("cgroup2", str(self.paths.cgroup), "cgroup2")
        self._serve_kernel()

    def _serve_kernel(self) -> None:
        parent = os.getpid()
        self.kernel_server = os.fork()
        if self.kernel_server:
            return
        try:
            syscalls.die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            for number in (STOP, REBOOT, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            from .kernel import server

            files = server.KernelFiles(
                lambda command_line, boot_id: machine.boot(self.board, self.name, command_line, boot_id),
                self.paths.kernel_log,
            )
            server.serve(files, str(self.paths.kernel))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _boot_kernel(self) -> str:
        boot_id = str(uuid.uuid4())
        control = self.paths.kernel / ".boot"
        deadline = time.monotonic() + 10
        while not control.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the kernel files were not served within 10 s")
            time.sleep(0.01)
        control.write_text(json.dumps({"command_line": self._command_line(), "boot_id": boot_id}), encoding="utf-8")
        return boot_id

    def _command_line(self) -> str:
        """As the description says at this moment: a test may change it between two boots."""
        description = json.loads(self.paths.description.read_text(encoding="utf-8"))
        return description.get("command_line") or self.board.command_line

    def _one_boot(self) -> bool:
        """Boots, waits for the end of it, and says whether to boot again."""
        started = time.monotonic()
        boot_id = self._boot_kernel()
        self._gpu_state()
        with self._control_group() as group:
            leader, init = boot.start(self.board, self.paths, self.description["lower"], group)
            self._tell(state="running", init=init, boot_id=boot_id, boots=self.status["boots"] + 1)
            outcome, asked = self._wait(leader, init)
        self._tell(init=None)
        if asked == STOP:
            return False
        if outcome == boot.REBOOT or asked == REBOOT:
            self._tell(state="rebooting")
            return True
        if outcome == boot.HALT:
            self._tell(state="halted")
            return self._event(None) == REBOOT
        raise RuntimeError(f"pid 1 ended by itself after {time.monotonic() - started:.1f} s")

    def _gpu_state(self) -> None:
        """GPU state is made at the first boot; a reboot loses what the boards lose."""
        for argv in self.description.get("gpu_state", {}).get("create" if self.status["boots"] == 0 else "reboot", []):
            boot.run_in_root(self.paths, self.description["lower"], argv)

    @contextlib.contextmanager
    def _control_group(self):
        group = self.paths.cgroup / f"{groups.PREFIX}{self.link.name}"
        groups.remove(group)
        group.mkdir()
        try:
            yield group
        finally:
            groups.remove(group)

    def _wait(self, leader: int, init: int) -> tuple[int, int | None]:
        """How the host ended, and what we had asked of it."""
        asked: int | None = None
        descriptor = os.pidfd_open(leader)
        try:
            while (event := self._event(descriptor, SHUTDOWN_S if asked == REBOOT else None)) != ENDED:
                if event == TIMEOUT:
                    # The orderly way took too long.
                    os.kill(init, signal.SIGKILL)
                else:
                    asked = event
                    os.kill(init, _SYSTEMD_REBOOT if event == REBOOT else signal.SIGKILL)
        finally:
            os.close(descriptor)
        _pid, status = os.waitpid(leader, 0)
        return os.waitstatus_to_exitcode(status), asked

    def _event(self, leader: int | None, timeout: float | None = None) -> int:
        """Waits for the next thing to happen: STOP, REBOOT, ENDED or TIMEOUT."""
        owner = self._owner()
        watched = [self.wakeups, *(descriptor for descriptor in (leader, owner) if descriptor is not None)]
        try:
            ready = select.select(watched, [], [], timeout)[0]
            if not ready:
                return TIMEOUT
            if leader in ready:
                return ENDED
            if owner in ready:
                return STOP
            return REBOOT if REBOOT in os.read(self.wakeups, 1) else STOP
        finally:
            if owner is not None:
                os.close(owner)

    def _owner(self) -> int | None:
        """A lab made by a program ends with that program; one made on the command line stays until `down`."""
        owner = self.description.get("owner")
        if not owner:
            return None
        try:
            return os.pidfd_open(owner)
        except ProcessLookupError:
            os.kill(os.getpid(), STOP)
            return None

    def _clean_up(self) -> None:
        if self.kernel_server:
            os.kill(self.kernel_server, signal.SIGKILL)
            os.waitpid(self.kernel_server, 0)
        if self.link:
            groups.remove(self.paths.cgroup / f"{groups.PREFIX}{self.link.name}")


def main() -> int:
    # The lock on the host's directory came with us as an open file; it ends with the last process that holds it.
    supervisor = Supervisor(Path(sys.argv[1]))
    try:
        supervisor.run()
    except Exception as error:
        traceback.print_exc()
        supervisor._tell(state="failed", error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
