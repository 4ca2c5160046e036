# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outer machine's state: equal before and after, or something has leaked out of a lab host."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import groups

# Counters and clocks of any running kernel.
_VOLATILE_SYSCTLS = re.compile(
    r"(fs\.(dentry-state|file-nr|inode-nr|inode-state|aio-nr|quota\..*)"
    r"|kernel\.(ns_last_pid|pty\.nr|random\..*|hung_task_detect_count|sched_domain\..*|perf_event_max_sample_rate)"
    r"|net\.netfilter\.nf_conntrack_count|sunrpc\..*|net\.ipv[46]\.(conf|neigh)\.ghl\d+\..*)$"
)
_SUPERVISOR = "gpu_lab.supervisor"
_LAB_PROGRAMS = ("/lib/systemd/systemd", "mmdebstrap")


def outer_state(lab: Path | None = None) -> dict[str, list[str]]:
    """`lab` is the state directory of the lab in question: hosts of other labs that run beside it are left out."""
    others = _other_labs(lab)
    return {
        "sysctl": _sysctls(),
        "transparent hugepage": _huge_pages(),
        "mounts": sorted(re.sub(r"^\d+ \d+ \d+:\d+ ", "", line) for line in _lines("/proc/self/mountinfo")),
        "network links": sorted(set(_links()) - others.links),
        "network namespaces": _namespaces("net", others),
        "mount namespaces": _namespaces("mnt", others),
        "control groups": sorted(set(_groups()) - {f"{groups.PREFIX}{name}" for name in others.links}),
        "processes": _processes(others),
    }


def differences(before: dict, after: dict) -> list[str]:
    lines = []
    for part in before:
        old, new = set(before[part]), set(after.get(part, []))
        lines += [f"{part}: gone: {entry}" for entry in sorted(old - new)]
        lines += [f"{part}: new: {entry}" for entry in sorted(new - old)]
    return lines


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


def _sysctls() -> list[str]:
    done = subprocess.run(["sysctl", "-a"], capture_output=True, text=True, check=False, errors="replace")
    return sorted(line for line in done.stdout.splitlines() if not _VOLATILE_SYSCTLS.match(line.partition(" ")[0]))


def _huge_pages() -> list[str]:
    found = []
    for path in sorted(Path("/sys/kernel/mm/transparent_hugepage").rglob("*")):
        if path.is_file() and "stats" not in path.parts and path.name not in ("full_scans", "pages_collapsed"):
            found.append(f"{path}: {path.read_text(encoding='ascii').strip()}")
    return found


@dataclass
class _Others:
    """What belongs to other labs."""

    pids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


def _other_labs(lab: Path | None) -> _Others:
    others = _Others()
    if lab is None:
        return others
    parents = {}
    for pid in _pids():
        argv = _argv(pid)
        if _SUPERVISOR in argv and not argv[-1].startswith(f"{lab}/"):
            others.pids.add(pid)
            try:
                others.links.add(json.loads(Path(argv[-1], "status.json").read_text(encoding="utf-8"))["interface"])
            except (OSError, ValueError, KeyError):
                continue
        try:
            # The name in the second field can hold anything; the parent follows its closing parenthesis.
            parents[pid] = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in others.pids} - others.pids
        others.pids |= children
        grown = bool(children)
    return others


def _links() -> list[str]:
    return [name for name in os.listdir("/sys/class/net") if name.startswith("ghl")]


def _argv(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return [""]


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _namespaces(kind: str, others: _Others) -> list[str]:
    """Namespaces other than our own that live processes are in, by the program that is in them."""
    own = os.readlink(f"/proc/self/ns/{kind}")
    found = set()
    for pid in set(_pids()) - others.pids:
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/{kind}")
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        if namespace != own:
            found.add(f"{namespace} ({name})")
    named = Path("/run/netns")
    if kind == "net" and named.is_dir():
        found.update(f"named {path.name}" for path in named.iterdir())
    return sorted(found)


def _groups() -> list[str]:
    mount_point = groups.outer_mount()
    return [path.name for path in mount_point.glob(f"{groups.PREFIX}*")] if mount_point else []


def _processes(others: _Others) -> list[str]:
    """Programs that only a lab runs here."""
    found = []
    for pid in set(_pids()) - others.pids:
        argv = _argv(pid)
        if _SUPERVISOR in argv or argv[0] in _LAB_PROGRAMS:
            found.append(f"{pid} {' '.join(argv)}")
    return sorted(found)
