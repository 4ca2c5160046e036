# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A veth pair per host: the lab's own private range, one four-address block each."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

PREFIX = "ghl"


class NetworkError(Exception):
    pass


@dataclass(frozen=True)
class Link:
    name: str
    address: str
    index: int


def lab_network() -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(os.environ.get("GPU_HOST_LAB_NETWORK", "10.213.0.0/16"))


def check_free() -> None:
    """Refuses a range that this machine already has a route into, its own links aside."""
    routes = json.loads(_run("ip", "-json", "-4", "route", "show", "table", "all") or "[]")
    ours = lab_network()
    for route in routes:
        destination = route["dst"]
        if destination == "default" or route.get("dev", "").startswith(PREFIX):
            continue
        if ours.overlaps(ipaddress.ip_network(destination, strict=False)):
            raise NetworkError(
                f"the lab's addresses {ours} overlap with the route to {destination} on {route.get('dev')}; "
                f"set GPU_HOST_LAB_NETWORK to a free private range"
            )


@contextlib.contextmanager
def outside() -> Iterator[int]:
    """A handle on the network namespace we are in, for use after leaving it."""
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def connect(outer: int) -> Link:
    """Links our (new) network namespace to the outer one. The pair goes when the namespace goes."""
    blocks = lab_network().subnets(new_prefix=30)
    for number, block in enumerate(blocks):
        name = f"{PREFIX}{number}"
        try:
            _run(
                "ip",
                "link",
                "add",
                name,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                str(os.getpid()),
                outer=outer,
            )
        except NetworkError as error:
            if "File exists" in str(error):
                continue
            raise
        gateway, address = block[1], block[2]
        _run("ip", "address", "add", f"{gateway}/30", "dev", name, outer=outer)
        _run("ip", "link", "set", name, "up", outer=outer)
        number_outside = int(json.loads(_run("ip", "-json", "link", "show", name, outer=outer))[0]["ifindex"])
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "address", "add", f"{address}/30", "dev", "eth0")
        _run("ip", "link", "set", "eth0", "up")
        _run("ip", "route", "add", "default", "via", str(gateway))
        return Link(name, str(address), number_outside)
    raise NetworkError(f"no free address block in {lab_network()}")


def index(name: str) -> int | None:
    """The kernel's number of a link, which tells it from a later one of the same name."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def disconnect(name: str) -> None:
    """Takes away what a killed supervisor may have left."""
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False, timeout=20)


def _run(*argv: str, outer: int | None = None) -> str:
    command = list(argv) if outer is None else ["nsenter", f"--net=/proc/self/fd/{outer}", *argv]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=20, pass_fds=() if outer is None else (outer,)
    )
    if done.returncode:
        raise NetworkError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
