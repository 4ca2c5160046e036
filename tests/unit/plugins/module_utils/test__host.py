# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The door to files, against real files in a directory that stands for the root."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import HostError
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Host, as_kernel_shows


@pytest.fixture
def host(tmp_path):
    (tmp_path / "etc").mkdir()
    return Host(str(tmp_path))


def names(tmp_path):
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())


def test_replace_keeps_mode_and_leaves_no_temporary_file(host, tmp_path):
    path = tmp_path / "etc/a.conf"
    path.write_text("old\n")
    path.chmod(0o640)
    host.replace("/etc/a.conf", "new\n")
    assert path.read_text() == "new\n" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == ["etc/a.conf"]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_new_files_and_directories_do_not_depend_on_the_umask(host, tmp_path, umask):
    old = os.umask(umask)
    try:
        host.replace("/etc/x.d/y/a.conf", "new\n")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "etc/x.d/y/a.conf").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "etc/x.d/y").stat().st_mode) == 0o755


def test_replace_writes_through_a_link_and_keeps_the_link(host, tmp_path):
    (tmp_path / "etc/real.conf").write_text("old\n")
    (tmp_path / "etc/link.conf").symlink_to("real.conf")
    host.replace("/etc/link.conf", "new\n")
    assert (tmp_path / "etc/link.conf").is_symlink() and (tmp_path / "etc/real.conf").read_text() == "new\n"


def test_a_planted_link_in_place_of_the_temporary_file_is_not_followed(host, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (tmp_path / host.temporary("/etc/a.conf").lstrip("/")).symlink_to(victim)
    with pytest.raises(HostError):
        host.replace("/etc/a.conf", "new\n")
    assert victim.read_text() == "precious\n"


def test_trial_leaves_nothing_and_removes_what_a_killed_run_left(host, tmp_path):
    (tmp_path / host.temporary("/etc/a.conf").lstrip("/")).write_text("half")
    host.check_replaceable("/etc/a.conf", "text")
    assert names(tmp_path) == []
    host.check_replaceable("/etc/missing.d/b.conf", "text")
    assert sorted(os.listdir(tmp_path / "etc")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_says_become(host, tmp_path):
    (tmp_path / "etc").chmod(0o555)
    with pytest.raises(HostError, match="become: true"):
        host.replace("/etc/a.conf", "x")


def test_undecodable_bytes_survive_a_round_trip(host, tmp_path):
    (tmp_path / "etc/latin1").write_bytes(b"caf\xe9\r\n")
    host.replace("/etc/copy", host.read("/etc/latin1"))
    assert (tmp_path / "etc/copy").read_bytes() == b"caf\xe9\r\n"


def test_missing_things_are_answers_not_errors(host):
    assert host.read("/etc/none") is None and host.read("/etc/none/deeper") is None
    assert host.listdir("/none") == [] and host.info("/none") is None and host.readlink("/none") is None
    host.remove("/etc/none")
    assert host.remove_dir("/none") is False
    assert host.run(["no-such-program-here"]).rc == 127


def test_remove_dir_keeps_a_directory_with_content(host, tmp_path):
    host.replace("/etc/x.d/a", "1")
    assert host.remove_dir("/etc/x.d") is False
    host.remove("/etc/x.d/a")
    assert host.remove_dir("/etc/x.d") is True and not (tmp_path / "etc/x.d").exists()


def test_commands_speak_english_get_no_input_and_are_bounded(host):
    assert host.run(["sh", "-c", "echo $LC_ALL; cat"]).out == "C\n"
    with pytest.raises(HostError, match="no answer within"):
        host.run(["sleep", "5"], timeout=1)


def test_a_failing_change_says_what_the_command_said(host):
    with pytest.raises(HostError, match="boom"):
        host.act(["sh", "-c", "echo boom >&2; exit 3"])


def test_planned_host_sees_its_own_writes_and_the_real_one_nothing(host, tmp_path):
    (tmp_path / "etc/a.d").mkdir()
    (tmp_path / "etc/a.d/1.conf").write_text("one")
    (tmp_path / "etc/k").write_text("always [madvise] never\n")
    planned = host.planned()
    planned.replace("/etc/a.d/2.conf", "two")
    planned.replace("/etc/new.d/3.conf", "three")
    planned.remove("/etc/a.d/1.conf")
    planned.write_kernel("/etc/k", "never")
    assert planned.listdir("/etc/a.d") == ["2.conf"] and planned.glob("/etc/a.d/*.conf") == ["/etc/a.d/2.conf"]
    assert planned.listdir("/etc") == ["a.d", "k", "new.d"] and planned.is_dir("/etc/new.d")
    assert planned.read("/etc/k") == "always madvise [never]\n" and planned.read("/etc/a.d/1.conf") is None
    assert planned.exists("/etc/new.d/3.conf") and planned.info("/etc/new.d/3.conf").mode == 0o644
    assert names(tmp_path) == ["etc/a.d/1.conf", "etc/k"]


@pytest.mark.parametrize("old, value, shown", [
    ("always [madvise] never\n", "always", "[always] madvise never\n"), ("60\n", "0", "0\n"), ("", "1", "1\n"),
])
def test_how_a_kernel_file_reads_after_a_write(old, value, shown):
    assert as_kernel_shows(old, value) == shown


def test_right_to_raise_a_limit_is_tried_and_given_back(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    soft = before[0] if before[0] != -1 else 1 << 20
    child = (
        "import resource, sys; from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Host\n"
        "resource.setrlimit(8, (4096, %d)); host = Host()\n"
        "print(host.may_raise_limit(8, 4096), host.may_raise_limit(8, -1), resource.getrlimit(8))\n" % soft)
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True, timeout=30,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    may = bool(int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16) >> 24 & 1)
    assert done.stdout.split(maxsplit=2) == ["True", str(may), "(4096, %d)\n" % soft]
    assert Host(str(tmp_path)).may_raise_limit(8, -1) is None
