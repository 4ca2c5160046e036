# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated GPU hosts for tests: command line, and the names tests import.

from lab import Lab
with Lab() as lab:
    host = lab.up("hgx_h100")
    host.ssh("cat /sys/kernel/mm/transparent_hugepage/enabled")
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_lab import board, leaks, root, snapshot  # noqa: E402
from gpu_lab.board import Board, BoardError  # noqa: E402
from gpu_lab.built import BuildError  # noqa: E402
from gpu_lab.hosts import Host, Lab, LabError  # noqa: E402
from gpu_lab.network import NetworkError  # noqa: E402
from gpu_lab.root import RootError  # noqa: E402

__all__ = [
    "Board",
    "BoardError",
    "BuildError",
    "Host",
    "Lab",
    "LabError",
    "NetworkError",
    "RootError",
    "leaks",
    "snapshot",
]


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return arguments.function(arguments) or 0
    except (BoardError, BuildError, LabError, NetworkError, RootError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab.py", description="Simulated GPU hosts: real systemd, sshd and Python over simulated kernels."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start hosts, side by side")
    up.add_argument(
        "boards", nargs="+", metavar="BOARD[=NAME]", help=f"{', '.join(board.names())}, or the path of a description"
    )
    up.add_argument("--root", default="debian12", choices=sorted(root.ROOTS))
    up.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=JSON",
        help="replace a key of the description, for all of them",
    )
    up.set_defaults(function=_up)

    down = commands.add_parser("down", help="end hosts and remove all that is theirs")
    down.add_argument("names", nargs="*")
    down.add_argument("--all", action="store_true")
    down.set_defaults(function=_down)

    reboot = commands.add_parser("reboot", help="reboot a host and wait for SSH")
    reboot.add_argument("name")
    reboot.set_defaults(function=lambda arguments: Lab().host(arguments.name).reboot())

    commands.add_parser("list", help="hosts and their addresses").set_defaults(function=_list)

    run = commands.add_parser("run", help="run a command inside a host, without SSH")
    run.add_argument("name")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- ARGV")
    run.set_defaults(function=_run)

    ssh = commands.add_parser("ssh", help="a shell or a command over SSH")
    ssh.add_argument("name")
    ssh.add_argument("command", nargs=argparse.REMAINDER, metavar="-- ARGV")
    ssh.set_defaults(function=_ssh)

    inventory = commands.add_parser("inventory", help="print an Ansible inventory")
    inventory.add_argument(
        "--group", action="append", default=[], metavar="GROUP=HOST,HOST", help="a group below gpu_nodes"
    )
    inventory.set_defaults(function=_inventory)

    take = commands.add_parser("snapshot", help="print a host's files and kernel values as JSON")
    take.add_argument("name")
    take.set_defaults(function=lambda arguments: print(json.dumps(Lab().host(arguments.name).snapshot(), indent=1)))

    diff = commands.add_parser("diff", help="compare two snapshots; status 1 when they differ")
    diff.add_argument("before", type=Path)
    diff.add_argument("after", type=Path)
    diff.set_defaults(
        function=lambda arguments: _report(snapshot.differences(*_load(arguments.before, arguments.after)))
    )

    leak = commands.add_parser(
        "leaks", help="record this machine's own state, or compare with a record; status 1 when it differs"
    )
    leak.add_argument("action", choices=("record", "compare"))
    leak.add_argument("file", type=Path)
    leak.set_defaults(function=_leaks)

    roots = commands.add_parser("root", help="root file systems").add_subparsers(required=True, metavar="ACTION")
    build = roots.add_parser("build", help="build what is missing")
    build.add_argument("names", nargs="*", default=[], metavar="NAME")
    build.set_defaults(function=_build)
    return parser


def _up(arguments: argparse.Namespace) -> None:
    changes = {}
    for setting in arguments.set:
        key, _equals, value = setting.partition("=")
        try:
            changes[key] = json.loads(value)
        except ValueError:
            raise LabError(f"--set {setting}: the value has to be JSON; a text stands in double quotes") from None
    wanted = []
    for word in arguments.boards:
        name, _equals, host = word.partition("=")
        wanted.append((name, host or None, changes))
    for host in Lab().up_all(wanted, arguments.root):
        print(f"{host.name} {host.address} {host.board.title}")


def _down(arguments: argparse.Namespace) -> None:
    lab = Lab()
    if arguments.all:
        lab.down_all()
        return
    for name in arguments.names:
        if not (lab.state / name).is_dir():
            raise LabError(f"no host {name}")
    lab.down(*arguments.names)


def _list(arguments: argparse.Namespace) -> None:
    for host in Lab().hosts:
        status = host.status
        state = status.get("state") if host.alive else "dead"
        description = host.description
        limits = "" if description["locked_memory"] == "real" else "  (locked memory limits simulated)"
        print(f"{host.name:20} {status.get('address', '-'):15} {state:10} {description['board']}{limits}")


def _words(command: list[str]) -> list[str]:
    return command[1:] if command[:1] == ["--"] else command


def _run(arguments: argparse.Namespace) -> int:
    return subprocess.run(
        Lab().host(arguments.name).enter(*(_words(arguments.command) or ["bash"])), check=False
    ).returncode


def _ssh(arguments: argparse.Namespace) -> int:
    lab = Lab()
    host = lab.host(arguments.name)
    return subprocess.run(
        ["ssh", *lab.ssh_options, f"root@{host.address}", *_words(arguments.command)], check=False
    ).returncode


def _inventory(arguments: argparse.Namespace) -> None:
    groups = {}
    for entry in arguments.group:
        name, _equals, members = entry.partition("=")
        groups[name] = [member for member in members.split(",") if member]
    print(Lab().inventory(groups), end="")


def _load(*files: Path) -> list[dict]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _report(lines: list[str]) -> int:
    for text in lines:
        print(text)
    return 1 if lines else 0


def _leaks(arguments: argparse.Namespace) -> int:
    if arguments.action == "record":
        arguments.file.write_text(json.dumps(leaks.outer_state(Lab().state), indent=1), encoding="utf-8")
        return 0
    return _report(leaks.differences(*_load(arguments.file), leaks.outer_state(Lab().state)))


def _build(arguments: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise LabError("building a root needs root")
    for name in arguments.names or sorted(root.ROOTS):
        print(root.build(name))


if __name__ == "__main__":
    sys.exit(main())
