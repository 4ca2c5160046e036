# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""make bench: the second run of the training profile beside one ping and beside the same state kept by stock modules.

One simulated host, all three in turn, so that they share whatever the machine does meanwhile; medians of the wall
time of whole ansible processes. Writes build/benchmarks.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests/lab"), str(REPOSITORY / "tests/integration")]

import playbooks  # noqa: E402
from lab import Lab  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="counted runs of each (at least 7)")
    parser.add_argument("--board", default="dgx_a100")
    arguments = parser.parse_args()
    with Lab(owned=True) as lab, tempfile.TemporaryDirectory() as folder:
        host = lab.up(arguments.board, "bench")
        inventory = Path(folder) / "inventory.yml"
        inventory.write_text(lab.inventory({"training_nodes": ["bench"]}))
        commands = {
            "ping": ["adhoc", "gpu_nodes", "-b", "-m", "ansible.builtin.ping"],
            "ours": ["playbook", "site.yml", "-l", "gpu_nodes"],
            "stock": ["playbook", str(REPOSITORY / "benchmarks/stock.yml"), "-l", "gpu_nodes"],
        }
        for name in ("ours", "stock", "ours", "stock", "ping"):  # the first runs change the host; warm up too
            timed(commands[name], inventory)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _round in range(max(7, arguments.runs)):
            for name, command in commands.items():
                times[name].append(timed(command, inventory, must_be_quiet=name != "ping"))
        time.sleep(1.1)
        since = int(time.time())
        timed(commands["ours"], inventory)
        calls = playbooks.module_calls(host, since)
    median = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "second_run": {
            "over_ping": round(median["ours"] / median["ping"], 3),
            "over_stock": round(median["ours"] / median["stock"], 3),
            "module_calls": calls,
        },
        "seconds": {name: {"median": round(median[name], 3), "min": round(min(values), 3), "max": round(max(values), 3),
                           "runs": len(values)} for name, values in times.items()},
        "board": arguments.board,
    }
    path = REPOSITORY / "build/benchmarks.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    second = result["second_run"]
    good = second["over_ping"] <= 3 and second["over_stock"] <= 0.25 and calls <= 4
    print("second run: %.2f pings (at most 3), %.2f of the stock playbook (at most 0.25), %d module calls (at most 4)" % (
        second["over_ping"], second["over_stock"], calls))
    return 0 if good else 1


def timed(command: list[str], inventory: Path, must_be_quiet: bool = False) -> float:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ansible", command[0], "-i", str(inventory), *command[1:]], cwd=playbooks.EXAMPLES,
        env=bench_environment(), capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - started
    if done.returncode != 0 or must_be_quiet and "changed=0 " not in done.stdout:
        raise SystemExit(f"{' '.join(command)} failed or changed something:\n{done.stdout}{done.stderr}")
    return seconds


def bench_environment() -> dict[str, str]:
    """The tests' environment; the stock collections come with the community package in this virtual environment."""
    env = playbooks.environment()
    stock = [path for path in sys.path if (Path(path) / "ansible_collections/ansible/posix").is_dir()]
    env["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join([env["ANSIBLE_COLLECTIONS_PATH"], *stock])
    return env


if __name__ == "__main__":
    sys.exit(main())
