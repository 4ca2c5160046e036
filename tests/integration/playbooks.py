# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run real ansible-playbook against lab hosts over SSH and hand back what a user would see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXAMPLES = REPOSITORY / "examples"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass
class Played:
    """How a play ended: exit status, output, counts by host, and every task's result."""

    rc: int
    output: str
    rows: list = field(default_factory=list)

    @property
    def changed(self) -> dict[str, int]:
        return {match[1]: int(match[3]) for match in RECAP.finditer(self.output)}

    @property
    def failed(self) -> dict[str, int]:
        return {match[1]: int(match[4]) + int(match[5]) for match in RECAP.finditer(self.output)}

    def results(self, host: str, action: str = "host_profile") -> list[dict]:
        return [row["result"] for row in self.rows if row["host"] == host and row["action"].endswith(action)]

    def result(self, host: str, action: str = "host_profile") -> dict:
        found = self.results(host, action)
        assert len(found) == 1, f"{len(found)} results of {action} on {host}\n{self.output}"
        return found[0]


def environment() -> dict[str, str]:
    """The settings of examples/ansible.cfg, with this checkout as the collection."""
    tree = REPOSITORY / "build/tree"
    link = tree / "ansible_collections/ai_infra/gpu_host"
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(REPOSITORY)
    return dict(
        os.environ, ANSIBLE_CONFIG=str(EXAMPLES / "ansible.cfg"), ANSIBLE_COLLECTIONS_PATH=str(tree),
        ANSIBLE_NOCOLOR="1", ANSIBLE_FORCE_COLOR="0", ANSIBLE_LOCALHOST_WARNING="0", ANSIBLE_NOCOWS="1",
        PYTHONDONTWRITEBYTECODE="1",
        PATH=str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"],
    )


def play(playbook: str | Path, inventory: str, *arguments: str, timeout: float = 300) -> Played:
    """Run a playbook (a path, relative to examples/) with an inventory: its text, or the path of its file."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(inventory) if "\n" not in inventory else Path(folder) / "inventory.yml"
        if not hosts.exists():
            hosts.write_text(inventory)
        record = Path(folder) / "record.jsonl"
        record.touch()
        env = dict(environment(), GPU_HOST_RECORD=str(record), ANSIBLE_CALLBACK_PLUGINS=str(Path(__file__).parent / "callbacks"),
                   ANSIBLE_CALLBACKS_ENABLED="record")
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", str(playbook), "-i", str(hosts), *arguments],
            cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )
        rows = [json.loads(line) for line in record.read_text().splitlines()]
    return Played(done.returncode, done.stdout + done.stderr, rows)


def module_calls(host, since: int) -> int:
    """Modules that ran on a lab host, as each announces itself in the host's system journal."""
    done = host.run("journalctl", "--no-pager", "-o", "cat", f"--since=@{since}")
    return sum("Invoked with" in line for line in done.stdout.splitlines())
