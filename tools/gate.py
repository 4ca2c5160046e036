# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the checks of this repository, one stage after another: gate.py STAGE..., or all of them with `gate.py all`.

A failing stage doesn't hide the later ones. The last line sums up every check and test as "N passed, N failed,
N skipped"; what could not be run here (an interpreter that is missing) is named, and counted as skipped.
Every stage's output is kept in build/gate/.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import collection_tree

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = REPOSITORY / "build/venv/bin"
LOGS = REPOSITORY / "build/gate"
PYTEST = ["python", "-m", "pytest", "-q"]
MINUTE = 60


@dataclass(frozen=True)
class Stage:
    name: str
    title: str
    commands: list[list[str]]
    limit: int = 5 * MINUTE  # seconds for each command
    root: bool = False  # can't do anything useful without


STAGES = [
    Stage("lint", "Linters", [
        ["ansible-lint", "--offline", "--profile", "production", "--strict"],
        ["yamllint", "--strict", "."],
        ["ruff", "check", "--quiet", "--no-cache"],
        ["antsibull-docs", "lint-collection-docs", ".", "--plugin-docs", "--validate-collection-refs", "self",
         "--check-extra-docs-refs"],
        ["antsibull-changelog", "lint"],
        ["reuse", "lint", "--lines"],
    ]),
    Stage("doc", "Documentation of every module, role and plugin", [["python", "tools/check_doc.py"]]),
    Stage("units", "Unit tests", [[*PYTEST, "tests/unit"]]),
    Stage("simulator", "NVML simulator under the real binding", [[*PYTEST, "tests/nvml_simulator"]]),
    Stage("matrix", "Unit tests on every Python, with every ansible-core", [["python", "tools/unit_matrix.py"]],
          20 * MINUTE),
    Stage("sanity", "ansible-test", [["python", "tools/ansible_test.py"]], 20 * MINUTE),
    Stage("lab", "Simulated GPU hosts", [[*PYTEST, "tests/lab"]], 10 * MINUTE),
    Stage("integration", "The collection on simulated GPU hosts", [[*PYTEST, "tests/integration"]], 20 * MINUTE),
    Stage("release", "The tarball, installed offline", [
        ["ansible-galaxy", "collection", "build", "--force", "--output-path", "build/dist"],
        ["python", "tools/release_check.py"],
    ]),
    Stage("molecule", "molecule", [["molecule", "test", "--all", "--report"]], 10 * MINUTE, root=True),
]

OUTCOME = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)\b")
# "3 passed, 1 skipped in 0.12s" of pytest, with or without its frame of equals signs, and our own closing lines.
CLOSING = re.compile(r"^(?:=+ )?(?:\d+ [a-z]+, )*\d+ (?:passed|failed|errors?|skipped)\b(?:, \d+ [a-z]+)*(?: in .*)?$")
SCENARIO = re.compile(r"^(\S+)\s+: actions=\d+ .*\bfailed=(\d+)$")  # molecule's own report
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Ran:
    """How a stage ended."""

    stage: Stage
    seconds: float = 0
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 0, "failed": 0, "skipped": 0})
    not_run: list[str] = field(default_factory=list)


def main() -> int:
    names = sys.argv[1:]
    known = [stage.name for stage in STAGES]
    unknown = set(names) - {*known, "all"}
    if not names or unknown:
        sys.exit(f"usage: gate.py all | STAGE...; the stages are {', '.join(known)}")
    ran = [run(stage) for stage in STAGES if "all" in names or stage.name in names]
    report(ran)
    return 1 if any(one.counts["failed"] for one in ran) else 0


def run(stage: Stage) -> Ran:
    ran, started = Ran(stage), time.monotonic()
    print(f"\n=== {stage.title} ({stage.name}) ===", flush=True)
    if stage.root and os.geteuid() != 0:
        ran.not_run.append(f"not run: {stage.name} (needs root)")
        ran.counts["skipped"] = 1
        return ran
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(LOGS / f"{stage.name}.log", "w", encoding="utf-8") as log:
        for command in stage.commands:
            print("$ " + " ".join(command), flush=True)
            code, lines = call(command, stage.limit, log)
            count(ran, code, lines)
    ran.seconds = time.monotonic() - started
    return ran


def call(command: list[str], limit: int, log) -> tuple[int, list[str]]:
    """Run a command, show and keep what it says. After the limit it is asked to stop, then made to."""
    lines, late = [], threading.Event()
    with subprocess.Popen([BIN / command[0], *command[1:]], cwd=REPOSITORY, env=environment(), text=True,
                          errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        clock = threading.Timer(limit, lambda: (late.set(), stop(process)))
        clock.start()
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                log.write(line)
                lines.append(COLOUR.sub("", line.rstrip("\n")))
        except BaseException:
            stop(process)
            raise
        finally:
            clock.cancel()
    if late.is_set():
        print(f"stopped after {limit} s", flush=True)
    return 1 if late.is_set() else process.returncode, lines


def stop(process: subprocess.Popen) -> None:
    """What the command has started goes with it; it gets time to clean up first."""
    for number, grace in ((signal.SIGINT, 20), (signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(grace)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def count(ran: Ran, code: int, lines: list[str]) -> None:
    """Tests as the command counted them; a command that counts nothing is one check."""
    found = {"passed": 0, "failed": 0, "skipped": 0}
    closing = [line for line in lines if CLOSING.match(line)]
    for number, word in OUTCOME.findall(closing[-1]) if closing else ():
        found[{"xfailed": "skipped", "skipped": "skipped", "passed": "passed"}.get(word, "failed")] += int(number)
    scenarios = [match for match in map(SCENARIO.match, lines) if match]
    if scenarios:
        bad = {match[1] for match in scenarios if int(match[2])}
        found["failed"], found["passed"] = len(bad), len({match[1] for match in scenarios} - bad)
    elif not closing:
        found["failed" if code else "passed"] = 1
    if code and not found["failed"]:
        found["failed"] = 1
    for word, number in found.items():
        ran.counts[word] += number
    ran.not_run.extend(line for line in lines if line.startswith("not run: "))


def environment() -> dict[str, str]:
    tree = str(collection_tree.link())
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
    return dict(
        clean, PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", PYTHONPATH=tree, PYTHONDONTWRITEBYTECODE="1",
        ANSIBLE_COLLECTIONS_PATH=tree, ANSIBLE_NOCOWS="1", ANSIBLE_LOCALHOST_WARNING="0", NO_COLOR="1",
    )


def report(ran: list[Ran]) -> None:
    total = {word: sum(one.counts[word] for one in ran) for word in ("passed", "failed", "skipped")}
    print("\n=== Summary ===")
    for one in ran:
        counts = ", ".join(f"{number} {word}" for word, number in one.counts.items() if number)
        print(f"{one.stage.name:12} {one.seconds:5.0f} s  {counts or 'nothing ran'}")
    for line in dict.fromkeys(line for one in ran for line in one.not_run):
        print(line)
    print(f"{sum(one.seconds for one in ran):.0f} s in all")
    print(", ".join(f"{number} {word}" for word, number in total.items()), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
