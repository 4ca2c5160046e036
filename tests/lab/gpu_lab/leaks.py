# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outer machine's state: equal before and after, or something has leaked out of a lab host."""

from __future__ import annotations

import contextlib
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
    others = _others(lab)
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
        # What is no setting may end by itself at any time.
        if part in ("sysctl", "transparent hugepage", "mounts"):
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
    """What belongs to other labs, and to programs that run beside us."""

    pids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


def _others(lab: Path | None) -> _Others:
    others = _Others()
    parents = _parents()
    supervisors = set()
    for pid in parents:
        argv = _argv(pid)
        if _SUPERVISOR in argv:
            supervisors.add(pid)
            if lab and not argv[-1].startswith(f"{lab}/"):
                others.pids.add(pid)
                with contextlib.suppress(OSError, ValueError, KeyError):
                    status = json.loads(Path(argv[-1], "status.json").read_text(encoding="utf-8"))
                    others.links.add(status["interface"])
    own = _namespace("self", "mnt")
    beside = {pid for pid in parents if pid not in supervisors and _namespace(pid, "mnt") in (own, None)}
    others.pids |= {pid for pid in parents if _belongs(pid, parents, beside, others.pids)}
    return others


def _belongs(pid: str, parents: dict[str, str], beside: set[str], others: set[str]) -> bool:
    """Whether a living program owns it: what has leaked has lost its parent and hangs on pid 1."""
    while pid not in others:
        pid = parents.get(pid, "1")
        if pid in ("0", "1", str(os.getpid())):
            return False
        if pid in beside:
            return True
    return True


def _parents() -> dict[str, str]:
    parents = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            # The name in the second field can hold anything; the parent follows its closing parenthesis.
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            parents[pid] = text.rpartition(")")[2].split()[1]
    return parents


def _namespace(pid: str, kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None


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
    own = _namespace("self", kind)
    found = set()
    for pid in set(_pids()) - others.pids:
        namespace = _namespace(pid, kind)
        if namespace not in (own, None):
            found.add(f"{namespace} ({os.path.basename(_argv(pid)[0])})")
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
