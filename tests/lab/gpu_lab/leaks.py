# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outer machine's state: equal before and after, or something has leaked out of a lab host."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

# Counters and clocks of any running kernel.
_VOLATILE_SYSCTLS = re.compile(
    r"(fs\.(dentry-state|file-nr|inode-nr|inode-state|aio-nr|quota\..*)"
    r"|kernel\.(ns_last_pid|pty\.nr|random\..*|hung_task_detect_count|sched_domain\..*|perf_event_max_sample_rate)"
    r"|net\.netfilter\.nf_conntrack_count|sunrpc\..*|net\.ipv[46]\.(conf|neigh)\.ghl\d+\..*)$"
)
_LAB_PROGRAMS = ("gpu_lab.supervisor", "/lib/systemd/systemd", "mmdebstrap")


def outer_state() -> dict[str, list[str]]:
    return {
        "sysctl": _sysctls(),
        "transparent hugepage": _huge_pages(),
        "mounts": sorted(re.sub(r"^\d+ \d+ \d+:\d+ ", "", line) for line in _lines("/proc/self/mountinfo")),
        "network links": sorted(name for name in os.listdir("/sys/class/net") if name.startswith("ghl")),
        "network namespaces": _namespaces("net"),
        "mount namespaces": _namespaces("mnt"),
        "control groups": _groups(),
        "processes": _processes(),
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


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _namespaces(kind: str) -> list[str]:
    """Namespaces other than our own that live processes are in, by the program that is in them."""
    own = os.readlink(f"/proc/self/ns/{kind}")
    found = set()
    for pid in _pids():
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
    for line in _lines("/proc/self/mountinfo"):
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            return sorted(path.name for path in Path(fields.split()[4]).glob("gpu-lab-*"))
    return []


def _processes() -> list[str]:
    """Programs of the lab, or with a state directory of it on their command line."""
    found = []
    for pid in _pids():
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        text = " ".join(argv).strip()
        if any(program in text for program in _LAB_PROGRAMS) or ("ssh" in argv[0] and "gpu-host-lab" in text):
            found.append(f"{pid} {text}")
    return sorted(found)
