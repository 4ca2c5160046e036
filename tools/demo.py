# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""make demo: three unlike simulated GPU hosts, the literal command over SSH, twice; nothing is left behind.

Without root, /dev/fuse or namespaces it says so in one line and shows the check-mode run on this host instead.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests/lab"), str(REPOSITORY / "tests/integration")]

import playbooks  # noqa: E402
from lab import Lab, LabError, NetworkError, RootError, leaks  # noqa: E402

FLEET = (("hgx_h100", "train-hgx-h100", "training_nodes"), ("dgx_a100", "train-dgx-a100", "training_nodes"),
         ("gh200", "serve-gh200", "inference_nodes"))
THP = "/sys/kernel/mm/transparent_hugepage/"


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reason = why_not()
    if reason:
        print(f"demo: no simulated hosts here ({reason}); showing the check-mode run on this host instead")
        return check_this_host()
    before = leaks.outer_state()
    started = time.monotonic()
    try:
        code = show(started)
    except KeyboardInterrupt:
        print("\ndemo: interrupted")
        code = 130
    except (LabError, NetworkError, RootError) as error:
        print(f"demo: {error}")
        code = 1
    left = leaks.differences(before, leaks.outer_state())
    print("left behind: " + ("; ".join(left) if left else "nothing"))
    return 1 if left and code == 0 else code


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "it needs root"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, text=True,
                           check=False)
    return None if probe.returncode == 0 else f"namespaces are refused: {probe.stderr.strip()}"


def show(started: float) -> int:
    with Lab(owned=True) as lab:
        print("Starting three simulated GPU hosts (the first time, their root file system is built) ...", flush=True)
        hosts = lab.up_all([(board, name, {}) for board, name, group in FLEET])
        groups: dict[str, list[str]] = {"training_nodes": [], "inference_nodes": []}
        for _board, name, group in FLEET:
            groups[group].append(name)
        inventory = lab.inventory(groups)
        before = {host.name: look(host) for host in hosts}
        print("$ ansible-playbook site.yml -l gpu_nodes", flush=True)
        first = playbooks.play("site.yml", inventory, "-l", "gpu_nodes")
        print(recap(first))
        print("$ ansible-playbook site.yml -l gpu_nodes     # again", flush=True)
        second = playbooks.play("site.yml", inventory, "-l", "gpu_nodes")
        print(recap(second))
        after = {host.name: look(host) for host in hosts}
        for board, name, group in FLEET:
            print(table(f"{name} ({lab.host(name).description['title']}; {group})", before[name], after[name]))
    quiet = second.rc == 0 and len(second.changed) == len(FLEET) and set(second.changed.values()) == {0}
    if first.rc != 0 or not quiet:
        print((first if first.rc else second).output)
        return 1
    print(f"second run: changed=0 on {len(FLEET)} hosts; {time.monotonic() - started:.0f} s in all")
    return 0


def recap(played: playbooks.Played) -> str:
    return "\n".join(line for line in played.output.splitlines() if playbooks.RECAP.match(line))


def look(host) -> dict[str, str]:
    """What a person would look at on the host, by hand."""
    modes = re.findall(r'"persistence(?:_mode)?": *"?(\w+)"?', host.run("nvml-simctl", "show").stdout)
    on = sum(mode.lower() in ("true", "1", "on") for mode in modes)
    return {
        "persistence": f"{on} of {len(modes)} GPUs",
        "memlock of a login": host.ssh("sh", "-c", "'ulimit -l'").stdout.strip(),
        "THP enabled": bracketed(host.read(THP + "enabled")),
        "THP defrag": bracketed(host.read(THP + "defrag")),
        "vm.swappiness": host.read("/proc/sys/vm/swappiness").strip(),
        "kernel.numa_balancing": host.read("/proc/sys/kernel/numa_balancing").strip(),
    }


def bracketed(text: str) -> str:
    match = re.search(r"\[([^\]]+)\]", text)
    return match[1] if match else text.strip()


def table(title: str, before: dict[str, str], after: dict[str, str]) -> str:
    rows = [("", "before", "after"), *((key, before[key], after[key]) for key in before)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join([title, *("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)])


def check_this_host() -> int:
    inventory = ("all:\n  children:\n    gpu_nodes:\n      children:\n        training_nodes:\n          hosts:\n"
                 "            localhost:\n              ansible_connection: local\n              ansible_become: false\n"
                 f"              ansible_python_interpreter: {sys.executable}\n")
    played = playbooks.play("site.yml", inventory, "-l", "gpu_nodes", "--check", "--diff")
    print(played.output)
    return played.rc


if __name__ == "__main__":
    sys.exit(main())
