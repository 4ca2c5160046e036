# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root file systems of the hosts: built once from the mirror apt uses here, cached by the hash of the recipe."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .paths import cache

ROOTS = {"debian12": "bookworm", "debian13": "trixie"}
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "iproute2",
    "udev",
    "procps",
    "libpam-modules",
    "numactl",
    "pciutils",
    "kmod",
)
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*")
_FINISH = """
rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/lib/systemd/random-seed
rm -rf "$1"/var/cache/apt/* "$1"/var/cache/debconf/*-old "$1"/var/lib/apt/lists/* "$1"/var/log/*.log "$1"/var/log/apt
: > "$1"/etc/machine-id
"""
_VERSION = 1
BUILD_S = 900


class RootError(Exception):
    pass


def path(name: str) -> Path:
    """Where the root is, or will be."""
    if name not in ROOTS:
        raise RootError(f"no root {name!r}; there are {', '.join(ROOTS)}")
    recipe = json.dumps([_VERSION, ROOTS[name], PACKAGES, _LEFT_OUT, _FINISH])
    return cache() / "roots" / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def build(name: str) -> Path:
    """The root, built now if it isn't there. A killed build leaves nothing that is taken for a root."""
    root = path(name)
    if root.is_dir():
        return root
    if not shutil.which("mmdebstrap"):
        packages = (Path(__file__).parent.parent / "packages.txt").read_text(encoding="ascii").split()
        raise RootError(f"mmdebstrap is missing; apt-get install {' '.join(packages)}")
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f".{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.is_dir():
            return root
        remove_leftovers(name)
        building = root.parent / f".{root.name}.building"
        print(f"building root {name}", file=sys.stderr)
        _bootstrap(ROOTS[name], building)
        building.rename(root)
    return root


def _bootstrap(suite: str, target: Path) -> None:
    # In namespaces of its own that end with this process: so do its mounts and processes, whatever happens.
    argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += [f"--aptopt={option}" for option in _apt_options()]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    argv += [f"--customize-hook={_FINISH}", suite, str(target), *_mirrors(suite)]
    temporary = target.with_suffix(".tmp")
    temporary.mkdir()
    # The sandbox account of apt has to get in.
    temporary.chmod(0o1777)
    try:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BUILD_S, env=environment)
    except subprocess.TimeoutExpired:
        raise RootError(f"mmdebstrap {suite} took longer than {BUILD_S} s") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if done.returncode:
        raise RootError(f"mmdebstrap {suite} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def _apt_options() -> list[str]:
    """How this machine's apt reaches its mirror: proxies, validity checks, time-outs."""
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    wanted = re.compile(r"Acquire::(http|https|Retries|Check-Valid-Until|Check-Date)\b.* \"[^\"]+\";")
    return [line for line in done.stdout.splitlines() if wanted.match(line)] + ['Acquire::Languages "none";']


def _mirrors(suite: str) -> list[str]:
    """The sources this machine installs from, with its own release replaced by `suite`."""
    own = _own_release()
    sources = []
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if file.suffix == ".sources":
            sources += _deb822(file.read_text(encoding="utf-8"))
        elif file.suffix == ".list" and file.is_file():
            sources += _one_line(file.read_text(encoding="utf-8"))
    mirrors = []
    for uri, name in sources:
        if name == own or name.startswith(f"{own}-"):
            line = f"deb {uri} {suite}{name.removeprefix(own)} main"
            if line not in mirrors:
                mirrors.append(line)
    if not mirrors:
        raise RootError(
            f"no apt source for {own} found under /etc/apt: the root is built from the mirror apt uses here"
        )
    return mirrors


def _own_release() -> str:
    match = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise RootError("/etc/os-release names no VERSION_CODENAME")
    return match.group(1)


def _deb822(text: str) -> list[tuple[str, str]]:
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        plain = "\n".join(line for line in paragraph.splitlines() if not line.startswith("#"))
        fields = {
            key.lower(): value.split()
            for key, value in re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", plain, re.MULTILINE)
        }
        if "deb" in fields.get("types", []) and "no" not in fields.get("enabled", []):
            found += [(uri, suite) for uri in fields.get("uris", []) for suite in fields.get("suites", [])]
    return found


def _one_line(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)", text, re.MULTILINE)


def remove_leftovers(name: str) -> None:
    """What killed builds of this root left behind. Only for the holder of its lock."""
    for ending in ("building", "tmp"):
        for leftover in (cache() / "roots").glob(f".{name}-*.{ending}"):
            shutil.rmtree(leftover, ignore_errors=True)
