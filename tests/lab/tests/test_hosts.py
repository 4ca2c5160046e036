# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lab hosts behave as machines do: SSH, kernel files, boot, reboot; what a user of a real host would see."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

THP = "/sys/kernel/mm/transparent_hugepage"
ANSIBLE = shutil.which("ansible", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def ansible(lab, *argv: str) -> subprocess.CompletedProcess:
    if not ANSIBLE:
        pytest.skip("ansible is not installed beside this Python")
    inventory = lab.state / "inventory.yml"
    inventory.write_text(lab.inventory(), encoding="utf-8")
    return subprocess.run([ANSIBLE, "-i", inventory, *argv], capture_output=True, text=True, timeout=120, check=False)


def test_three_hosts_start_in_seconds(lab) -> None:
    """At most eight for three of them on two cores; what is built once is built before the clock starts."""
    from gpu_lab import root, simulator

    root.build("debian12")
    simulator.layer()
    begin = time.monotonic()
    hosts = lab.up_all([("vm", f"quick{number}", {}) for number in range(3)])
    assert time.monotonic() - begin < 8
    lab.down(*(host.name for host in hosts))


@pytest.mark.parametrize("root", ["debian12", "debian13"])
def test_every_board_comes_up_healthy(lab, root: str) -> None:
    from gpu_lab.board import names

    hosts = lab.up_all([(name, f"every-{name.replace('_', '-')}", {}) for name in names()], root)
    states = {
        host.board.name: host.ssh("systemctl is-system-running --wait", check=False).stdout.strip() for host in hosts
    }
    lab.down(*(host.name for host in hosts))
    assert states == dict.fromkeys(names(), "running")


def test_ansible_reaches_every_host(lab, fleet) -> None:
    done = ansible(lab, "gpu_nodes", "-m", "ansible.builtin.ping")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"pong"') == len(lab.hosts)


def test_a_host_is_a_whole_system(hgx) -> None:
    assert hgx.ssh("hostname").stdout.strip() == "hgx-h100"
    assert hgx.ssh("systemctl is-system-running", check=False).stdout.strip() == "running"
    assert hgx.ssh("ps -p 1 -o comm=").stdout.strip() == "systemd"
    assert hgx.ssh("ls -d /dev/nvidia[0-9]* | wc -l").stdout.strip() == "8"
    assert hgx.ssh("getent passwd nvidia-persistenced", check=False).returncode == 0


def test_kernel_files_answer_over_ssh(hgx) -> None:
    assert hgx.read(f"{THP}/enabled") == "always [madvise] never\n"
    hgx.write(f"{THP}/enabled", "never\n")
    assert hgx.read(f"{THP}/enabled") == "always madvise [never]\n"
    refused = hgx.ssh(f"echo sometimes > {THP}/enabled", check=False)
    assert refused.returncode != 0 and "Invalid argument" in refused.stderr
    read_only = hgx.ssh(f"echo 1 > {THP}/hpage_pmd_size", check=False)
    assert read_only.returncode != 0 and "Permission denied" in read_only.stderr
    hgx.write(f"{THP}/enabled", "madvise\n")
    last = [entry for entry in hgx.kernel_writes() if entry["path"] == f"{THP}/enabled"][-3:]
    assert [(entry["value"], entry["errno"]) for entry in last] == [
        ("never\n", None),
        ("sometimes\n", "EINVAL"),
        ("madvise\n", None),
    ]


def test_the_outer_kernel_is_out_of_reach(hgx) -> None:
    for path in ("/proc/sys/fs/file-max", "/proc/sysrq-trigger", "/sys/kernel/profiling", "/proc/sys/kernel/ostype"):
        outer = Path(path).read_bytes() if path.startswith("/proc/sys/") else None
        hgx.run("sh", "-c", f"test ! -e {path} || echo 1 > {path}", check=False)
        assert outer is None or Path(path).read_bytes() == outer
    assert hgx.run("sh", "-c", "echo 1 > /proc/sys/fs/file-max", check=False).returncode != 0
    assert hgx.run("mknod", "/root/disk", "b", "8", "0", check=False).returncode != 0
    assert hgx.ssh("mknod /root/disk b 8 0", check=False).returncode != 0
    outer = Path("/proc/sys/vm/swappiness").read_text(encoding="ascii")
    hgx.ssh("sysctl -w vm.swappiness=7")
    assert Path("/proc/sys/vm/swappiness").read_text(encoding="ascii") == outer
    assert hgx.read("/proc/sys/vm/swappiness") == "7\n"


def test_boot_files_are_applied_and_nothing_else_survives(hgx) -> None:
    """sysctl.d and tmpfiles.d by the host's own systemd; values set by hand are gone after the reboot."""
    hgx.write("/etc/sysctl.d/50-test.conf", "vm.swappiness = 3\nkernel.numa_balancing = 0\n")
    hgx.write("/etc/tmpfiles.d/50-test.conf", f"w- {THP}/enabled - - - - always\n")
    hgx.ssh("echo 42 > /proc/sys/vm/zone_reclaim_mode")
    before = hgx.boot_id
    hgx.reboot()
    assert hgx.read("/proc/sys/kernel/random/boot_id").strip() == hgx.boot_id != before
    hgx.ssh("systemctl is-system-running --wait", check=False)
    assert hgx.read("/proc/sys/vm/swappiness") == "3\n"
    assert hgx.read("/proc/sys/kernel/numa_balancing") == "0\n"
    assert hgx.read("/proc/sys/vm/zone_reclaim_mode") == "0\n"
    assert hgx.read(f"{THP}/enabled") == "[always] madvise never\n"
    hgx.ssh("rm /etc/sysctl.d/50-test.conf /etc/tmpfiles.d/50-test.conf")
    hgx.reboot()
    assert hgx.read("/proc/sys/vm/swappiness") == "60\n"


def test_the_kernel_command_line_counts_from_the_next_boot(hgx) -> None:
    own = hgx.read("/proc/cmdline").strip()
    hgx.set_command_line(f"{own} transparent_hugepage=never")
    assert "[madvise]" in hgx.read(f"{THP}/enabled")
    hgx.reboot()
    assert "[never]" in hgx.read(f"{THP}/enabled")
    assert hgx.read("/proc/cmdline").endswith("transparent_hugepage=never\n")
    hgx.set_command_line(own)
    hgx.reboot()


def test_ansible_reboots_a_host(lab, hgx) -> None:
    before = hgx.boot_id
    done = ansible(lab, hgx.name, "-m", "ansible.builtin.reboot", "-a", "reboot_timeout=60")
    assert done.returncode == 0 and '"rebooted": true' in done.stdout, done.stdout + done.stderr
    assert hgx.boot_id != before


def test_a_host_that_is_switched_off_stays_off_until_it_is_started(lab) -> None:
    host = lab.up("no_gpu", "off")
    host.run("systemctl", "poweroff", check=False)
    deadline = time.monotonic() + 20
    while host.status["state"] != "halted" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert host.status["state"] == "halted"
    host.reboot()
    assert host.ssh("true").returncode == 0
    lab.down("off")


def locked_memory(host, process: str) -> list[str]:
    """Soft and hard limit as the host's own /proc shows them."""
    text = host.ssh(f"cat /proc/{process}/limits").stdout
    return re.search(r"^Max locked memory +(\S+) +(\S+)", text, re.MULTILINE).group(1, 2)


def test_a_unit_gets_its_limit_after_daemon_reload(hgx) -> None:
    """Where this machine's root may not raise a limit, locked_memory.c stands in for the kernel."""
    pid = "$(systemctl show -p MainPID --value probe)"
    hgx.write("/etc/systemd/system/probe.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    hgx.ssh("systemctl daemon-reload && systemctl start probe")
    assert locked_memory(hgx, pid) == ("8388608", "8388608")
    hgx.ssh("mkdir /etc/systemd/system/probe.service.d && touch -d '1 hour' /etc/systemd/system/probe.service")
    hgx.write("/etc/systemd/system/probe.service.d/limit.conf", "[Service]\nLimitMEMLOCK=1M:infinity\n")
    assert hgx.ssh("systemctl show -p NeedDaemonReload --value probe").stdout.strip() == "yes"
    assert locked_memory(hgx, pid) == ("8388608", "8388608")
    hgx.ssh("systemctl daemon-reload && systemctl restart probe")
    assert locked_memory(hgx, pid) == ("1048576", "unlimited")
    assert hgx.ssh(f"prlimit --pid {pid} --memlock=65536:131072; true").stderr == ""
    assert locked_memory(hgx, pid) == ("65536", "131072")
    hgx.ssh("systemctl stop probe && rm -r /etc/systemd/system/probe.service /etc/systemd/system/probe.service.d")


@pytest.mark.parametrize("line", ["root - memlock unlimited", "root hard memlock unlimited\nroot soft memlock 65536"])
def test_a_login_gets_the_limits_of_pam(hgx, line: str) -> None:
    hgx.write("/etc/security/limits.d/50-test.conf", f"{line}\n")
    soft = "unlimited" if " - " in line else "65536"
    assert hgx.ssh("ulimit -Sl; ulimit -Hl").stdout.split() == [soft, "unlimited"]
    assert locked_memory(hgx, "self") == (soft if soft == "unlimited" else str(int(soft) * 1024), "unlimited")
    hgx.ssh("rm /etc/security/limits.d/50-test.conf")


def test_a_user_other_than_root_may_not_raise_a_limit(hgx) -> None:
    script = "ulimit -Sl 4096 && ulimit -Sl && ulimit -Hl 6000 && ulimit -Hl unlimited"
    done = hgx.ssh(f"setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '{script}'", check=False)
    assert done.stdout.strip() == "4096" and done.returncode != 0 and "permitted" in done.stderr


def gpus(host) -> list[dict]:
    return json.loads(host.run("nvml-simctl", "show").stdout)["gpus"]


def test_driver_and_nvml_tell_of_the_same_gpus(hgx) -> None:
    found = gpus(hgx)
    assert len(found) == 8
    for number, gpu in enumerate(found):
        information = hgx.read(f"/proc/driver/nvidia/gpus/{gpu['pci']}/information")
        assert f"GPU UUID: \t {gpu['uuid']}\n" in information
        assert f"Device Minor: \t {number}\n" in information
        assert hgx.read(f"/sys/bus/pci/devices/{gpu['pci']}/local_cpulist").strip() == gpu["cpus"]
    assert "libnvidia-ml.so.1" in hgx.ssh("ldconfig -p").stdout


def test_a_reboot_loses_volatile_gpu_state_and_keeps_the_gpus(hgx) -> None:
    before = gpus(hgx)
    hgx.run("nvml-simctl", "set", "gpu", "0", "persistence=on")
    assert gpus(hgx)[0]["persistence"] is True
    hgx.reboot()
    after = gpus(hgx)
    assert after[0]["persistence"] is False
    assert [gpu["uuid"] for gpu in after] == [gpu["uuid"] for gpu in before]


UNITS = {
    # unit: (what systemd says of it, whether the GPUs' persistence is on)
    "upstream": ("loaded enabled active", True),
    "ubuntu": ("loaded static active", False),
    "rpm": ("loaded enabled active", True),
    "masked": ("masked masked inactive", False),
    "shadowed": ("loaded enabled active", False),
    "none": ("not-found  inactive", False),
}


@pytest.fixture(scope="module")
def variants(lab):
    started = lab.up_all([("no_thp", f"unit-{unit}", {"unit": unit}) for unit in UNITS])
    yield {host.name.removeprefix("unit-"): host for host in started}
    lab.down(*(host.name for host in started))


@pytest.mark.parametrize("unit", UNITS)
def test_each_form_of_the_persistence_unit(variants, unit: str) -> None:
    host = variants[unit]
    host.ssh("systemctl is-system-running --wait", check=False)
    shown = host.ssh("systemctl show nvidia-persistenced -p LoadState,UnitFileState,ActiveState").stdout
    values = dict(line.split("=", 1) for line in shown.splitlines())
    state, persistent = UNITS[unit]
    assert f"{values['LoadState']} {values['UnitFileState']} {values['ActiveState']}" == state
    assert {gpu["persistence"] for gpu in gpus(host)} == {persistent}
    fragment = host.ssh("systemctl show nvidia-persistenced -p FragmentPath --value").stdout
    assert fragment.startswith("/etc/") == (unit in ("shadowed", "masked"))


def test_a_condition_that_fails_at_boot_leaves_the_unit_down(variants) -> None:
    host = variants["rpm"]
    host.ssh("systemctl stop nvidia-persistenced && rm /dev/nvidia[0-9]* && systemctl start nvidia-persistenced")
    shown = host.ssh("systemctl show nvidia-persistenced -p ConditionResult,ActiveState").stdout.split()
    assert sorted(shown) == ["ActiveState=inactive", "ConditionResult=no"]


def test_a_host_without_a_gpu_has_no_trace_of_one(fleet) -> None:
    host = fleet["no_gpu"]
    assert host.ssh("ls -d /dev/nvidia* /proc/driver/nvidia", check=False).stdout == ""
    assert "10de" not in host.ssh("lspci -n").stdout
    assert host.ssh("systemctl cat nvidia-persistenced", check=False).returncode != 0
    assert "libnvidia-ml" not in host.ssh("ldconfig -p").stdout


def test_a_kernel_without_huge_pages_has_no_directory(fleet) -> None:
    host = fleet["no_thp"]
    assert host.ssh(f"ls {THP}", check=False).returncode != 0
    assert host.ssh("ls /sys/kernel/mm").stdout.split() == ["hugepages", "ksm"]


def test_the_gb200_tray_shows_its_34_nodes(fleet) -> None:
    host = fleet["gb200"]
    assert "available: 34 nodes (0-33)" in host.ssh("numactl -H").stdout
    assert host.ssh("lspci -D -d 10de: -n").stdout.count(" 0302: ") == 4
    assert host.ssh("cat /sys/bus/pci/devices/0018:01:00.0/local_cpulist").stdout.strip() == "72-143"
    assert "Node:\t\t 18\n" in host.read("/proc/driver/nvidia/gpus/0018:01:00.0/numa_status")


def test_debian_13(lab) -> None:
    host = lab.up("gh200", "trixie", root="debian13")
    assert host.ssh("python3 --version").stdout.startswith("Python 3.13")
    assert host.ssh("systemctl is-system-running --wait", check=False).stdout.strip() == "running"
    before = host.boot_id
    host.reboot()
    assert host.boot_id != before
    lab.down("trixie")


def test_files_of_the_description_are_there_before_the_first_boot(lab) -> None:
    files = {
        "/etc/sysctl.d/90-site.conf": "vm.swappiness = 11\n",
        "/usr/local/bin/hello": {"content": "#!/bin/sh\necho hello\n", "mode": "0755"},
    }
    host = lab.up("no_gpu", "files", files=files)
    assert host.ssh("hello").stdout == "hello\n"
    assert host.read("/proc/sys/vm/swappiness") == "11\n"
    lab.down("files")


def test_a_snapshot_sees_what_changed_and_only_that(fleet) -> None:
    from lab import snapshot

    host = fleet["no_gpu"]
    before = host.snapshot()
    host.ssh("true")
    assert snapshot.differences(before, host.snapshot()) == []
    host.ssh("touch /etc/new && chmod 600 /etc/hostname && echo 1 > /proc/sys/vm/swappiness")
    changed = [line.partition(":")[0] for line in snapshot.differences(before, host.snapshot())]
    assert changed == ["/etc/hostname", "/etc/new", "/proc/sys/vm/swappiness"]
    host.ssh("rm /etc/new && chmod 644 /etc/hostname && echo 60 > /proc/sys/vm/swappiness")
    assert snapshot.differences(before, host.snapshot()) == []
    assert json.loads(json.dumps(before)) == before
