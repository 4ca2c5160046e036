# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""kernel_values as a user sees it, and the boot-time winner against systemd's own programs."""

from __future__ import annotations

import copy
import random
import shutil
import subprocess

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _sysctl, _tmpfiles
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import (
    BadInput, Conflict, HostError, Unsupported,
)
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Host, Ran
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import kernel_values
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_host import FakeHost

SYS = {"/proc/sys/vm/swappiness": "60\n", "/proc/sys/kernel/numa_balancing": "1\n",
       "/proc/sys/vm/min_free_kbytes": "67584\n", "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n"}


def apply(host, values, check_mode=False, **given):
    params = {"state": "present", "apply": "both", "unsupported": "fail", "conflicts": "warn", "values": values}
    params.update(given)
    return kernel_values.run(host, params, check_mode)


def tuned(files, main="", profile="[sysctl]\nvm.swappiness=30\n"):
    files = dict(SYS, **files)
    files.update({"/etc/tuned/active_profile": "virtual-guest", "/etc/tuned/tuned-main.conf": main,
                  "/usr/lib/tuned/virtual-guest/tuned.conf": profile})
    return FakeHost(files, commands={("systemctl", "is-enabled", "tuned.service"): Ran(0, "enabled\n", ""),
                                     ("tuned-adm",): Ran(0, "", "")})


def test_runtime_drop_in_and_second_run():
    """VM-4: file and running kernel are separate questions. VM-3: the second run writes nothing."""
    host = FakeHost(dict(SYS))
    result = apply(host, {"vm.swappiness": 0, "kernel/numa_balancing": "0"})
    assert host.files["/proc/sys/vm/swappiness"] == "0\n"
    assert "vm.swappiness = 0\n" in host.files[_sysctl.DROP_IN]
    assert result["after"]["decided_by"]["vm.swappiness"].startswith(_sysctl.DROP_IN)
    host.writes.clear()
    assert not apply(host, {"vm.swappiness": 0, "kernel/numa_balancing": "0"})["changed"] and host.writes == []
    host.files["/proc/sys/vm/swappiness"] = "1\n"
    assert [step["target"] for step in apply(host, {"vm.swappiness": 0, "kernel.numa_balancing": 0})["steps"]] == [
        "/proc/sys/vm/swappiness"]


def test_check_mode_and_absent():
    host = FakeHost(dict(SYS))
    files = copy.deepcopy(host.files)
    predicted = apply(host, {"vm.swappiness": 0}, check_mode=True)
    assert host.files == files
    assert predicted["steps"] == apply(host, {"vm.swappiness": 0})["steps"]
    apply(host, {}, state="absent")
    assert host.files == files


def test_min_free_kbytes_is_a_floor():
    """THP-9."""
    host = FakeHost(dict(SYS, **{"/proc/sys/vm/min_free_kbytes": "225280\n"}))
    result = apply(host, {"vm.min_free_kbytes": 135168})
    assert host.files["/proc/sys/vm/min_free_kbytes"] == "225280\n"
    assert [step["action"] for step in result["steps"]] == ["write_file"]


def test_white_space_between_numbers_does_not_matter():
    host = FakeHost(dict(SYS))
    assert [s["action"] for s in apply(host, {"net.ipv4.tcp_rmem": "4096 131072  6291456"})["steps"]] == ["write_file"]


@pytest.mark.parametrize("values, needle", [
    ({"vm.swappiness": 201}, "from 0 to 200"), ({"vm.swappiness": "low"}, "from 0 to 200"),
    ({"vm.swappiness": True}, "number or a text"), ({"vm.swappiness": ""}, "empty"),
    ({"vm.swappiness\nkernel.core_pattern": "|x"}, "not a sysctl key"), ({"../../etc/passwd": "x"}, "not a sysctl key"),
    ({"kernel.domainname": "a\nkernel.core_pattern=|/tmp/x"}, "more than one line"), ({"vm swappiness": 1}, "not a sysctl key"),
])
def test_bad_input_fails_before_anything_is_touched(values, needle):
    host = FakeHost(dict(SYS))
    with pytest.raises(BadInput, match=needle):
        apply(host, values)
    assert host.files == SYS


def test_missing_key():
    host = FakeHost({"/proc/sys/vm/swappiness": "60\n"})
    with pytest.raises(Unsupported, match="kernel.numa_balancing"):
        apply(host, {"vm.swappiness": 0, "kernel.numa_balancing": 0})
    result = apply(host, {"vm.swappiness": 0, "kernel.numa_balancing": 0}, unsupported="skip")
    assert result["changed"] and not result["supported"] and "numa_balancing" in result["reason"]
    assert "numa_balancing" not in host.files[_sysctl.DROP_IN]


def test_read_only_proc_fails_clearly():
    """VM-5."""
    host = FakeHost(dict(SYS), read_only=["/proc"])
    with pytest.raises(HostError, match="belongs to the host"):
        apply(host, {"vm.swappiness": 0})
    assert host.writes == []


@pytest.mark.parametrize("path, wins", [
    ("/etc/sysctl.d/zzz-late.conf", True), ("/usr/lib/sysctl.d/zzz.conf", True), ("/etc/sysctl.d/99-x.conf", False),
    ("/etc/sysctl.d/999-x.conf", False), ("/etc/sysctl.conf", False),
])
def test_who_wins_among_files(path, wins):
    """VM-2: sysctl.conf is not read by systemd without a link."""
    host = FakeHost(dict(SYS, **{path: "# c\nvm/swappiness=30\n"}))
    result = apply(host, {"vm.swappiness": 0})
    assert [row["where"] for row in result["conflicts"]] == ([path + ":2"] if wins else [])
    if wins:
        assert result["after"]["boot"]["vm.swappiness"] == "30"
        with pytest.raises(Conflict, match="zzz"):
            apply(host, {"vm.swappiness": 0}, conflicts="fail")


def test_tuned_with_and_without_reapply():
    """VM-1: tuned comes after the files, and reads /etc once more unless told not to."""
    assert apply(tuned({}), {"vm.swappiness": 0})["conflicts"] == []
    result = apply(tuned({}, main="reapply_sysctl = 0\n"), {"vm.swappiness": 0})
    assert [row["where"] for row in result["conflicts"]] == ["tuned /usr/lib/tuned/virtual-guest/tuned.conf:2"]
    result = apply(tuned({"/etc/sysctl.conf": "vm.swappiness=10\n"}), {"vm.swappiness": 0})
    assert [row["where"] for row in result["conflicts"]] == ["/etc/sysctl.conf:1"]


@pytest.mark.parametrize("text, key", [
    ("vm.swappiness", "vm/swappiness"), ("vm/swappiness", "vm/swappiness"),
    ("net.ipv4.conf.eth0/1.rp_filter", "net/ipv4/conf/eth0.1/rp_filter"),
    ("net/ipv4/conf/eth0.1/rp_filter", "net/ipv4/conf/eth0.1/rp_filter"),
])
def test_both_spellings_of_a_key(text, key):
    assert _sysctl.normal_key(text) == key
    assert _sysctl.normal_key(_sysctl.dotted_key(key)) == key


def test_patterns_and_exclusions():
    rows = _sysctl.parse("/etc/sysctl.d/a.conf", "net.ipv4.conf.*.rp_filter=2\n-net.ipv4.conf.eth1.rp_filter\n"
                         "-net.ipv4.conf.eth2.rp_filter = 0\n; c\n# c\nnonsense\n")
    values = [(_sysctl.winner("net/ipv4/conf/%s/rp_filter" % name, rows) or rows[1]).value
              for name in ("eth0", "eth1", "eth2")]
    assert values == ["2", None, "0"]


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd-tmpfiles is not installed")
def test_tmpfiles_winner_agrees_with_systemd_tmpfiles(tmp_path):
    """40 random trees, seed 7: what we call the winner is what the real program leaves in the file."""
    rng = random.Random(7)
    target = "/sys/kernel/mm/transparent_hugepage/enabled"
    for number in range(40):
        root = tmp_path / str(number)
        (root / target.lstrip("/")).parent.mkdir(parents=True)
        (root / target.lstrip("/")).write_text("v---")
        for folder in rng.sample(_tmpfiles.FOLDERS, 3):
            (root / folder.lstrip("/")).mkdir(parents=True)
            for name in rng.sample(["00-a.conf", "10-b.conf", "zz.conf", "9.conf", "x.txt"], 2):
                pattern = rng.choice([target, target, target[:-4] + "*", "/sys/kernel/mm/*/enabled"])
                text = rng.choice(["w %s - - - - %s\n", "w- %s - - - - %s\n", "# w %s - - - - %s\n"])
                (root / folder.lstrip("/") / name).write_text(text % (pattern, "v%03d" % rng.randrange(999)))
        host = Host(str(root))
        paths = [path for folder in _tmpfiles.FOLDERS for path in host.glob(folder + "/*.conf")]
        lines = [line for path in _tmpfiles.effective_files(paths) for line in _tmpfiles.write_lines(path, host.read(path))]
        subprocess.run(["systemd-tmpfiles", "--root=%s" % root, "--create"], check=False, capture_output=True, timeout=20)
        found = _tmpfiles.winner(target, lines)
        assert (root / target.lstrip("/")).read_text() == (found.value if found else "v---"), number
