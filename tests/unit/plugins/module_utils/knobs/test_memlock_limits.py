# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""memlock_limits as a user sees it. MEM numbers are the reported cases the test stands for."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import BadInput, Conflict, HostError, Unsupported
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Ran
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import memlock_limits
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._memlock import pam, ulimit_lists, units
from ansible_collections.ai_infra.gpu_host.tests.unit.plugins.module_utils.memlock.fake_systemd import (
    EIGHT_MIB, PROC, debian,
)

DAEMON_JSON = "/etc/docker/daemon.json"


def drop_in(unit):
    return "/etc/systemd/system/%s.d/%s" % (unit, units.NAME)


def apply(host, check_mode=False, **given):
    params = {name: option.get("default") for name, option in memlock_limits.ARGUMENT_SPEC.items()}
    params.update(targets=["pam"])
    params.update(given)
    return memlock_limits.run(host, params, check_mode)


def effects(result):
    return {row["where"]: row["effect"] for row in result["findings"]}


def targets_of(result):
    return [step["target"] for step in result["steps"]]


# The whole life of a setting

def test_every_place_in_its_own_unit_then_quiet_then_gone():
    host = debian({"/usr/bin/podman": ""}, units=["slurmd.service", "containerd.service", "docker.service", "crio.service"],
                  pids={"slurmd.service": 50, "containerd.service": 60, "docker.service": 70, "user@1000.service": 80},
                  commands={("podman",): Ran(0, "", "")})
    before = copy.deepcopy(host.files)
    wanted = {"value": "1000000000", "targets": list(memlock_limits.TARGETS), "units": ["slurmd.service"]}
    predicted = apply(host, check_mode=True, **wanted)
    assert host.files == before and host.writes == []
    real = apply(host, **wanted)
    assert predicted["steps"] == real["steps"] and predicted["after"] == real["after"]
    assert predicted["restart_required"] == real["restart_required"] == [
        "containerd.service", "docker.service", "slurmd.service", "user@1000.service"]
    assert host.files[pam.OURS].endswith("\n0: - memlock 976563\n")  # kB, rounded up
    assert host.files[drop_in("slurmd.service")].endswith("[Service]\nLimitMEMLOCK=1000000000\n")
    assert host.files[drop_in("containerd.service")].endswith("LimitMEMLOCK=1000000000\n")
    assert json.loads(host.files[DAEMON_JSON]) == {
        "default-ulimits": {"memlock": {"Name": "memlock", "Hard": 1000000000, "Soft": 1000000000}}}
    for runtime in (ulimit_lists.CRIO, ulimit_lists.PODMAN):
        assert '"memlock=1000000000:1000000000"' in host.files[runtime.ours]
    assert [argv for argv in host.acted if "daemon-reload" in argv] == [("systemctl", "daemon-reload")]

    writes = len(host.writes)
    second = apply(host, **wanted)
    assert not second["changed"] and len(host.writes) == writes and second["restart_required"] == real["restart_required"]

    predicted = apply(host, check_mode=True, state="absent")
    gone = apply(host, state="absent")
    assert gone["steps"] == predicted["steps"] and gone["changed"] and host.files == before
    assert not apply(host, state="absent")["changed"]


def test_unlimited_has_a_word_or_a_number_of_its_own_everywhere():
    host = debian(units=["docker.service"], commands={("podman",): Ran(0, "", "")})
    apply(host, targets=["pam", "systemd_system", "systemd_user", "docker", "podman"])
    assert host.files[pam.OURS].endswith("0: - memlock unlimited\n")
    assert host.files["/etc/systemd/system.conf.d/" + units.NAME].endswith("[Manager]\nDefaultLimitMEMLOCK=infinity\n")
    assert host.files["/etc/systemd/user.conf.d/" + units.NAME].endswith("[Manager]\nDefaultLimitMEMLOCK=infinity\n")
    assert json.loads(host.files[DAEMON_JSON])["default-ulimits"]["memlock"]["Hard"] == -1
    assert '"memlock=-1:-1"' in host.files[ulimit_lists.PODMAN.ours]


def test_absent_says_who_still_has_the_limit():
    """Also for places that are not named again."""
    pids = {"docker.service": 70, "crio.service": 71, "slurmd.service": 50}
    host = debian(units=list(pids), pids=pids)
    apply(host, targets=["docker", "crio"], units=["slurmd.service"], apply_running=True)
    result = apply(host, state="absent")
    assert result["restart_required"] == ["crio.service", "docker.service", "slurmd.service"]
    assert result["before"]["docker"]["hard"] == "unlimited" and result["after"]["docker"]["hard"] is None


def test_image_build_without_a_running_systemd():
    host = debian({"/run/systemd/system/.keep": None}, units=["slurmd.service"])
    host.commands.clear()
    result = apply(host, targets=["pam", "systemd_system", "systemd_user"], units=["slurmd.service"])
    assert {step["action"] for step in result["steps"]} == {"write_file"} and result["reload_pending"] is False
    assert result["after"]["units"]["slurmd.service"]["hard"] == "unlimited"


def test_place_no_longer_asked_for_is_given_back():
    original = '{"live-restore": true}\n'
    host = debian({DAEMON_JSON: original}, units=["slurmd.service", "docker.service"])
    apply(host, targets=["pam", "docker"], units=["slurmd.service"])
    result = apply(host, targets=["pam"])
    assert sorted(targets_of(result)) == [DAEMON_JSON, drop_in("slurmd.service"), "systemd"]
    assert host.files[DAEMON_JSON] == original and drop_in("slurmd.service") not in host.files
    assert not apply(host, targets=["pam"])["changed"]


def test_our_file_that_somebody_edited_keeps_their_part():
    host = debian({DAEMON_JSON: '{\n  "log-level": "warn"\n}\n'}, units=["slurmd.service", "docker.service"])
    apply(host, targets=["pam", "docker"], units=["slurmd.service"])
    host.files[drop_in("slurmd.service")] += "LimitNOFILE=1048576\n"
    host.files[pam.OURS] += "alice - nofile 65536\n"
    host.files[DAEMON_JSON] = host.files[DAEMON_JSON].replace('"warn"', '"info"')
    apply(host, state="absent")
    assert host.files[drop_in("slurmd.service")] == "[Service]\nLimitNOFILE=1048576\n"
    assert host.files[pam.OURS] == "alice - nofile 65536\n"
    assert host.files[DAEMON_JSON] == '{\n  "log-level": "info"\n}\n'


# Which layers

def test_boot_writes_files_only_and_now_writes_none():
    host = debian(units=["slurmd.service"], pids={"slurmd.service": 50})
    result = apply(host, units=["slurmd.service"], apply="boot", apply_running=True)
    assert targets_of(result) == [pam.OURS, drop_in("slurmd.service")] and host.acted == []
    assert "daemon-reload" in result["reload_pending"]
    assert [step["action"] for step in apply(host, units=["slurmd.service"])["steps"]] == ["daemon_reload"]

    host = debian(units=["slurmd.service"], pids={"slurmd.service": 50})
    result = apply(host, units=["slurmd.service"], apply="now")
    assert [(step["action"], step["target"], step["to"]) for step in result["steps"]] == [
        ("set_rlimit", "slurmd.service", "unlimited:unlimited")]
    assert host.files["/proc/50/limits"].split("locked memory")[1].split()[:2] == ["unlimited", "unlimited"]


def test_apply_running_reaches_daemons_and_user_managers():
    host = debian(units=["slurmd.service"], pids={"slurmd.service": 50, "user@1000.service": 80})
    wanted = {"targets": ["pam", "systemd_user"], "units": ["slurmd.service"], "apply_running": True}
    predicted = apply(host, check_mode=True, **wanted)
    result = apply(host, **wanted)
    assert predicted["after"] == result["after"] and predicted["steps"] == result["steps"]
    assert {write[:2] for write in host.writes if write[0] == "prlimit"} == {("prlimit", 50), ("prlimit", 80)}
    assert result["restart_required"] == [] and not apply(host, **wanted)["changed"]


def test_kernel_that_does_not_take_the_limit_is_told():
    host = debian(units=["slurmd.service"], pids={"slurmd.service": 50})
    host.set_rlimit = lambda *given: None
    with pytest.raises(HostError, match="it now says"):
        apply(host, units=["slurmd.service"], apply="now")


def test_reload_waits_while_it_would_take_gpus_from_containers():
    """CTR-3."""
    host = debian({"/proc/99/cgroup": "0::/system.slice/docker-1.scope\n"}, units=["slurmd.service"],
                  devices=["/dev/nvidiactl"], links={"/proc/99/fd/3": "/dev/nvidia0"})
    result = apply(host, units=["slurmd.service"])
    assert host.acted == [] and "create-dev-char-symlinks" in result["reload_pending"]
    assert any("create-dev-char-symlinks" in text for text in result["warnings"])


@pytest.mark.parametrize("wanted", [{"units": ["slurmd.service"]}, {"targets": ["systemd_user"]}])
def test_reload_that_waited_is_done_by_the_next_run_that_may(wanted):
    """CTR-3: also for drop-ins that went."""
    host = debian(units=["slurmd.service"], pids={"user@1000.service": 80}, devices=["/dev/nvidiactl"],
                  links={"/proc/99/fd/3": "/dev/nvidia0"})
    for state in ("present", "absent"):
        host.files["/proc/99/cgroup"] = "0::/system.slice/docker-1.scope\n"
        first, second = apply(host, state=state, **wanted), apply(host, state=state, **wanted)
        assert first["changed"] and first["reload_pending"] and not second["changed"] and second["reload_pending"]
        del host.files["/proc/99/cgroup"]
        assert [step["action"] for step in apply(host, check_mode=True, state=state, **wanted)["steps"]] == ["daemon_reload"]
        assert [step["action"] for step in apply(host, state=state, **wanted)["steps"]] == ["daemon_reload"]
        assert apply(host, state=state, **wanted)["steps"] == []


# Where jobs come from

def test_slurm_jobs():
    """MEM-1: no limits.d line reaches slurmd.service, and the submit host's soft limit is propagated."""
    slurm_conf = "ClusterName=c\n# PropagateResourceLimitsExcept=MEMLOCK\n"
    host = debian({"/etc/slurm/slurm.conf": slurm_conf}, units=["slurmd.service"], pids={"slurmd.service": 50})
    result = apply(host)
    assert "submit host" in effects(result)["/etc/slurm/slurm.conf"]
    assert "no line in limits.d" in effects(result)["slurmd.service"]
    host.files["/etc/slurm/slurm.conf"] = slurm_conf + "include limits.inc\n"
    host.files["/etc/slurm/limits.inc"] = "propagateresourcelimitsexcept=NOFILE,MemLock\n"
    result = apply(host, units=["slurmd.service"])
    assert result["findings"] == [] and result["restart_required"] == ["slurmd.service"]
    host.files["/proc/50/limits"] = PROC % ("unlimited", "unlimited")
    assert apply(host, units=["slurmd.service"])["restart_required"] == []


@pytest.mark.parametrize("line, where", [
    ("PropagateResourceLimits=ALL", 2), ("PropagateResourceLimits=CORE,MEMLOCK", 2),
    ("PropagateResourceLimitsExcept=NOFILE", 2), ("PropagateResourceLimits=NONE", None), ("PropagateResourceLimits=CORE", None),
    ("PropagateResourceLimitsExcept=ALL", None),
])
def test_slurm_propagation_words(line, where):
    """MEM-1."""
    host = debian({"/etc/slurm/slurm.conf": "# a\n%s\n" % line})
    wheres = [row["where"] for row in apply(host)["findings"]]
    assert wheres == (["/etc/slurm/slurm.conf:%d" % where] if where else [])


def test_small_limit_beside_rdma_devices():
    """MEM-2: 64 kB are shown, with the line that gives them."""
    host = debian({"/etc/security/limits.d/zzz.conf": "0: - memlock 64\n"}, devices=["/dev/infiniband/uverbs0"])
    found = [row for row in apply(host)["findings"] if row["where"] == "/etc/security/limits.d/zzz.conf:1"]
    assert "65536 bytes" in found[0]["text"] and "512 MiB" in found[0]["effect"]
    assert any("64 MiB" not in text and "RDMA" in text for text in apply(host)["warnings"])
    host = debian({"/etc/security/limits.d/zzz.conf": "0: - memlock 64\n"})
    assert apply(host)["findings"] == []


def test_limit_of_docker_service_does_not_reach_containers():
    """MEM-3."""
    host = debian(units=["docker.service", "containerd.service"])
    result = apply(host, targets=[], units=["docker.service"])
    assert "limit of containerd" in effects(result)[drop_in("docker.service") + ":3"]
    assert apply(host, targets=["containerd"], units=["docker.service"])["findings"] == []


def test_pods_get_what_containerd_has():
    """MEM-5: the running containerd has 8 MiB until it restarts."""
    host = debian(units=["containerd.service"], pids={"containerd.service": 60})
    result = apply(host, targets=["containerd"])
    row = result["after"]["units"]["containerd.service"]
    assert row["loaded"]["hard"] == "unlimited" and row["running"] == {"pid": 60, "soft": EIGHT_MIB, "hard": EIGHT_MIB}
    assert result["restart_required"] == ["containerd.service"]
    assert not [argv for argv in host.acted if "restart" in argv]


@pytest.mark.parametrize("text, remedy", [
    ("unlimited", "infinity"), ("-1", "infinity"), ("64GB", "64G"), ("", "infinity"), ("128:64", "at most")])
def test_unit_value_systemd_ignores(text, remedy):
    """MEM-6."""
    path = "/etc/systemd/system/slurmd.service.d/override.conf"
    host = debian({path: "[Service]\nLimitMEMLOCK=%s\n" % text}, units=["slurmd.service"])
    result = apply(host, targets=[], units=["slurmd.service"])
    found = [row for row in result["findings"] if row["where"] == path + ":2"]
    assert "keeps the one before" in found[0]["effect"] and remedy in found[0]["remedy"]
    assert result["conflicts"] == []


def test_unit_value_in_the_wrong_section_or_file():
    path = "/etc/systemd/system/slurmd.service.d/override.conf"
    host = debian({path: "[Unit]\nLimitMEMLOCK=infinity\n[Service]\nDefaultLimitMEMLOCK=infinity\n"}, units=["slurmd.service"])
    assert sorted(effects(apply(host, targets=[], units=["slurmd.service"]))) == [path + ":2", path + ":4"]


@pytest.mark.parametrize("text, said", [("", []), (None, ["/etc/security/limits.conf"])])
def test_empty_or_missing_limits_file(text, said):
    """MEM-7: both are fine for us; pam_limits 1.5.2 refuses the session where the file is missing."""
    host = debian({"/etc/security/limits.conf": text})
    result = apply(host)
    assert result["after"]["pam"]["root"]["hard"] == "unlimited" and list(effects(result)) == said


def test_user_services_have_a_file_of_their_own():
    """MEM-8: system.conf says nothing to user managers. MEM-9: their own hard limit is what counts."""
    host = debian({"/etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=infinity\n"}, pids={"user@1000.service": 80})
    host.files["/proc/80/limits"] = PROC % ("67108864", "67108864")
    result = apply(host, targets=["systemd_user"])
    assert result["before"]["systemd_user"]["hard"] is None
    assert result["after"]["systemd_user"]["where"] == "/etc/systemd/user.conf.d/%s:3" % units.NAME
    assert result["after"]["systemd_user"]["manager"]["hard"] == "unlimited"
    assert result["after"]["user_managers"]["user@1000.service"]["hard"] == "67108864"
    assert result["restart_required"] == ["user@1000.service"]


def test_limit_of_pid_1_is_no_default():
    """MEM-9: PID 1 has more than the services it starts."""
    host = debian(units=["slurmd.service"])
    result = apply(host, targets=["systemd_system"], units=["slurmd.service"], check_mode=True)
    assert result["before"]["systemd_system"]["loaded"]["hard"] == EIGHT_MIB


def test_rootless_containers_stay_below_the_users_own_limit():
    """MEM-10."""
    host = debian({"/etc/security/limits.d/50.conf": "* hard memlock 64000\n"}, commands={("podman",): Ran(0, "", "")})
    result = apply(host, targets=["pam", "podman"], domains=["root"])
    assert "operation not permitted" in effects(result)[ulimit_lists.PODMAN.ours]
    assert apply(host, targets=["pam", "podman"])["findings"] == []


def test_winner_of_another_role_is_named():
    """MEM-12: a hardening role's line for root has our rank; before us it loses, after us it wins."""
    host = debian({"/etc/security/limits.d/10.hardcore.conf": "* hard core 0\nroot hard memlock 64\n"})
    assert apply(host)["conflicts"] == []
    host = debian({"/etc/security/limits.d/zzz.conf": "# x\nroot hard memlock 64\nalice -\n@hpc - memlock 1\n"})
    result = apply(host)
    assert {row["where"]: row["value"] for row in result["conflicts"]} == {
        "/etc/security/limits.d/zzz.conf:2": "65536", "/etc/security/limits.d/zzz.conf:3": None}
    assert result["after"]["pam"]["root"] == {
        "soft": "65536", "hard": "65536", "soft_where": pam.OURS + ":2", "hard_where": "/etc/security/limits.d/zzz.conf:2"}
    assert result["after"]["pam"]["a member of @hpc"]["hard"] == "unlimited"
    files = copy.deepcopy(host.files)
    with pytest.raises(Conflict, match="zzz.conf:2 decides the locked memory of root: 65536"):
        apply(host, value="64G", conflicts="fail")
    assert host.files == files


def test_root_is_left_out_of_a_star_on_debian_only():
    """MEM-11."""
    releases = {"ID=debian\nVERSION_ID=\"12\"\n": "unlimited", "ID=debian\nVERSION_ID=\"13\"\n": None,
                "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n": "unlimited", "ID=pop\nID_LIKE=\"ubuntu debian\"\n": None,
                "ID=rocky\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n": "65536"}
    for release, hard in releases.items():
        host = debian({"/etc/os-release": release, "/etc/security/limits.d/a.conf": "* - memlock 64\n"})
        result = apply(host, check_mode=True)
        assert result["before"]["pam"]["root"]["hard"] == hard
        assert result["before"]["pam"]["any other user"]["hard"] == "65536"
        assert result["after"]["pam"]["root"]["hard"] == "unlimited"


# Broken lines of others

@pytest.mark.parametrize("line, effect, remedy", [
    ("* - memlock 64G", "read as 64 kB", "67108864"), ("* - memlock 4M", "read as 4 kB", "4096"),
    ("* - memlock 0x40", "read as 0 kB", "decimal"), ("* - memlock unlimted", "dropped", "unlimited"),
    ("* memlock unlimited", "no four words", "* - memlock"), ("* both memlock 64", "type is unknown", "soft, hard"),
    ("%hpc - memlock 64", "number of logins", "@hpc"), ("5:x - memlock 64", "range", "1000:"),
    ("* - memlock 64 G", "64 alone", "67108864"), ("* - memlock unlimited please", "dropped", "nothing after"),
])
def test_broken_limits_line(line, effect, remedy):
    """MEM-11."""
    host = debian({"/etc/security/limits.d/rdma.conf": "# ours\n%s\n" % line})
    found = [row for row in apply(host)["findings"] if row["where"] == "/etc/security/limits.d/rdma.conf:2"]
    assert len(found) == 1 and effect in found[0]["effect"] and remedy in found[0]["remedy"]
    assert any("rdma.conf:2" in text for text in apply(host)["warnings"])


def test_broken_limits_files():
    """MEM-11: files nobody reads, Windows line ends, a soft limit over the hard one; other items are not our business."""
    folder = "/etc/security/limits.d/"
    host = debian({folder + "rdma": "* - memlock 1\n", folder + "crlf.conf": "root - memlock 70000\r\n",
                   folder + "pair.conf": "* soft memlock 128\n* hard memlock 64\n", folder + "files.conf": "* - nofile 64G\n"})
    found = effects(apply(host))
    assert set(found) == {folder + "rdma", folder + "crlf.conf", folder + "pair.conf:1"}
    assert "does not read" in found[folder + "rdma"] and "cut to the hard" in found[folder + "pair.conf:1"]


def test_byte_order_of_files():
    """MEM-11: 9.conf comes after 10.conf."""
    host = debian({"/etc/security/limits.d/9.conf": "* - memlock 9\n", "/etc/security/limits.d/10.conf": "* - memlock 10\n"})
    row = apply(host, check_mode=True)["before"]["pam"]["any other user"]
    assert (row["hard"], row["hard_where"]) == ("9216", "/etc/security/limits.d/9.conf:1")


def test_ways_to_log_in_that_never_ask():
    host = debian({"/etc/pam.d/login": "session required pam_unix.so\n", "/etc/ssh/sshd_config": "Port 22\n",
                   "/etc/pam.d/sshd": "session required pam_limits.so conf=/etc/security/ssh.conf\n"})
    found = effects(apply(host))
    assert set(found) == {"/etc/pam.d/login", "/etc/pam.d/sshd", "/etc/ssh/sshd_config"}
    assert "instead of limits.d" in found["/etc/pam.d/sshd"]


def test_system_without_the_right_to_raise_limits():
    assert any("CAP_SYS_RESOURCE" in text for text in apply(debian(may_raise=False))["warnings"])
    assert apply(debian())["warnings"] == []


def test_many_findings_make_one_warning():
    host = debian({"/etc/security/limits.d/a.conf": "alice - memlock 64G\nbob - memlock lots\n@hpc - memlock 1M\n"})
    result = apply(host)
    assert len(result["findings"]) == 3 and len(result["warnings"]) == 1
    assert "a.conf:1" in result["warnings"][0] and "2 more" in result["warnings"][0]


# Docker's own file

def test_docker_file_keeps_its_text():
    text = ('{\n\t"log-opts": {"max-size": "10m", "max-file": "3"},\n\t"default-ulimits": {\n\t\t"nofile": {"Name": "nofile", '
            '"Hard": 1e6, "Soft": 64000}\n\t},\n\t"data-root": "/srv/d\\u00f6cker"\n}\n')
    host = debian({DAEMON_JSON: text}, units=["docker.service"])
    apply(host, targets=["docker"])
    added = ',\n\t\t"memlock": {\n\t\t\t"Name": "memlock",\n\t\t\t"Hard": -1,\n\t\t\t"Soft": -1\n\t\t}'
    assert host.files[DAEMON_JSON] == text.replace("64000}", "64000}" + added)
    apply(host, state="absent")
    assert host.files[DAEMON_JSON] == text


@pytest.mark.parametrize("text, needle", [
    ('{\n  "debug": true,\n}\n', DAEMON_JSON + ":[23]"), ("[]", "object"), ('{"default-ulimits": "memlock=-1"}', "no object"),
])
def test_docker_file_that_is_broken_is_refused(text, needle):
    host = debian({DAEMON_JSON: text}, units=["docker.service"])
    files = copy.deepcopy(host.files)
    with pytest.raises(HostError, match=needle):
        apply(host, targets=["pam", "docker"])
    assert host.files == files


@pytest.mark.parametrize("text, name, effect", [
    ('{"default-ulimit": ["memlock=-1"]}', "default-ulimit", "plural"),
    ('{"default-ulimits": {"core": "0"}}', "default-ulimits.core", "does not start"),
    ('{"default-ulimits": {"core": {"Name": "core", "Hard": 1e6, "Soft": 0}}}', "default-ulimits.core", "whole numbers"),
    ('{"default-ulimits": {"core": {"Hard": 1, "Soft": 0}}}', "default-ulimits.core", "no Name"),
    ('{"default-ulimits": {"core": {"Name": "core", "Hard": 1, "Soft": -1}}}', "default-ulimits.core", "over Hard"),
])
def test_docker_entries_that_do_not_do_what_they_say(text, name, effect):
    """Effects as seen with dockerd 26.1 --validate."""
    host = debian({DAEMON_JSON: text}, units=["docker.service"])
    found = apply(host, targets=["docker"])["findings"]
    assert [row["text"] for row in found] == [name] and effect in found[0]["effect"]


@pytest.mark.parametrize("text", [
    '{"default-ulimits": {"memlock": {"name": "memlock", "hard": -1, "soft": -1}}}', 'null', '{"default-ulimits": null}'])
def test_docker_file_in_forms_docker_takes(text):
    host = debian({DAEMON_JSON: text}, units=["docker.service"])
    apply(host, targets=["docker"])
    memlock = json.loads(host.files[DAEMON_JSON])["default-ulimits"]["memlock"]
    assert {key.lower(): memlock[key] for key in memlock} == {"name": "memlock", "hard": -1, "soft": -1}
    assert not apply(host, targets=["docker"])["changed"]


@pytest.mark.parametrize("start, where", [
    ("ExecStart=/usr/bin/dockerd -H fd:// --default-ulimit nofile=1024:2048", "/etc/systemd/system/docker.service.d/a.conf:3"),
    ("Environment=\"OPTIONS=--default-ulimit=nofile=1024\"\nExecStart=/usr/bin/dockerd $OPTIONS",
     "/etc/systemd/system/docker.service.d/a.conf:3"),
    ("EnvironmentFile=-/etc/sysconfig/docker\nExecStart=/usr/bin/dockerd \\\n  $OPTIONS", "/etc/sysconfig/docker:2"),
])
def test_docker_flag_and_file_do_not_go_together(start, where):
    host = debian({"/etc/systemd/system/docker.service.d/a.conf": "[Service]\nExecStart=\n%s\n" % start,
                   "/etc/sysconfig/docker": "# flags\nOPTIONS='--default-ulimit nofile=1024:4096'\n"}, units=["docker.service"])
    result = apply(host, targets=["docker"])
    assert DAEMON_JSON not in host.files and [row["where"] for row in result["conflicts"]] == [where]
    with pytest.raises(Conflict, match="does not start"):
        apply(host, targets=["docker"], conflicts="fail")


def test_docker_flags_that_say_the_same_and_another_file():
    start = "ExecStart=\nExecStart=/usr/bin/dockerd --config-file=/srv/docker.json"
    host = debian({"/etc/systemd/system/docker.service.d/a.conf": "[Service]\n%s\n" % start}, units=["docker.service"])
    apply(host, targets=["docker"])
    assert "/srv/docker.json" in host.files and DAEMON_JSON not in host.files
    host.files["/etc/systemd/system/docker.service.d/a.conf"] += (
        "ExecStart=\nExecStart=/usr/bin/dockerd --default-ulimit memlock=-1:-1\n")
    result = apply(host, targets=["docker"])
    assert result["conflicts"] == [] and "/srv/docker.json" not in host.files
    assert result["after"]["docker"]["hard"] == "unlimited" and result["after"]["docker"]["where"].endswith("a.conf:5")


@pytest.mark.parametrize("refuses, words, refused", [
    (["{}", "x"], "unknown flag: --validate", False), (["{}", "x"], "userland-proxy-path is not set", False),
    (["x"], "the following directives don't match any configuration option: x", True), ([], "", False),
])
def test_dockerd_itself_looks_at_the_file_first(refuses, words, refused):
    """A release that can't validate, or complains of something else whatever the file says, stops nothing."""
    staged = []

    def dockerd(argv):
        return Ran(1, "", words) if any(text in staged[-1] for text in refuses) else Ran(0, "", "")
    host = debian({DAEMON_JSON: '{"x": 1}'}, units=["docker.service"], commands={
        ("dockerd",): Ran(0, "", ""), (lambda argv: argv[:2] == ("dockerd", "--validate")): dockerd})
    host.stage = lambda path, text, mode=0o644: staged.append(text)
    files = copy.deepcopy(host.files)
    if refused:
        with pytest.raises(HostError, match="don't match any configuration option"):
            apply(host, targets=["pam", "docker"])
        assert host.files == files
    else:
        assert apply(host, targets=["docker"])["changed"]


def test_packages_of_the_maker_own_dockers_configuration():
    """CTR-2."""
    host = debian({"/var/lib/dpkg/info/nv-docker-options.list": ""}, units=["docker.service"])
    result = apply(host, targets=["pam", "docker"], unsupported="skip")
    assert DAEMON_JSON not in host.files and "nv-docker-options" in result["left_out"][0]["reason"]


# CRI-O and Podman

def test_list_of_others_is_repeated_not_lost():
    crio = "[crio.runtime]\ndefault_ulimits = [ # why\n  \"nofile=1024:2048\", 'core=0:0',\n  \"memlock=1:1\"\n]\n"
    host = debian({"/etc/crio/crio.conf": "[crio]\n", "/etc/crio/crio.conf.d/10-site.conf": crio}, units=["crio.service"])
    result = apply(host, targets=["crio"])
    assert result["before"]["crio"] == {"soft": "1", "hard": "1", "where": "/etc/crio/crio.conf.d/10-site.conf:2", "pid": None}
    assert ulimit_lists.parse("", host.files[ulimit_lists.CRIO.ours], "crio.runtime").items == [
        "nofile=1024:2048", "core=0:0", "memlock=-1:-1"]
    assert not apply(host, targets=["crio"])["changed"]
    host.files["/etc/crio/crio.conf.d/zzz"] = "[crio.runtime]\ndefault_ulimits = []\n"
    assert [row["where"] for row in apply(host, targets=["crio"])["conflicts"]] == ["/etc/crio/crio.conf.d/zzz:2"]


# What this host has, and what was asked

def test_what_the_host_does_not_have():
    host = debian({"/etc/systemd/system/kubelet.service": ""}, links={"/etc/systemd/system/kubelet.service": "/dev/null"})
    wanted = {"targets": ["pam", "docker", "containerd", "crio", "podman"], "units": ["slurmd.service", "kubelet.service"]}
    files = copy.deepcopy(host.files)
    with pytest.raises(Unsupported, match="no unit slurmd.service"):
        apply(host, **wanted)
    assert host.files == files
    result = apply(host, unsupported="skip", **wanted)
    assert [row["target"] for row in result["left_out"]] == wanted["targets"][1:] + wanted["units"]
    assert "masked" in result["left_out"][-1]["reason"] and result["supported"]
    assert targets_of(result) == [pam.OURS]


def test_host_with_none_of_the_places():
    host = debian({"/usr/lib/x86_64-linux-gnu/security/pam_limits.so": None, "/usr/lib/systemd/systemd": None})
    result = apply(host, targets=["pam", "systemd_system", "systemd_user"], unsupported="skip")
    assert not result["supported"] and not result["changed"] and "pam_limits.so" in result["reason"]


def test_unit_that_comes_later_is_written_by_the_next_run():
    host = debian()
    apply(host, units=["slurmd.service"], unsupported="skip")
    host.files["/usr/lib/systemd/system/slurmd.service"] = "[Service]\n"
    assert drop_in("slurmd.service") in targets_of(apply(host, units=["slurmd.service"], unsupported="skip"))


@pytest.mark.parametrize("given, needle", [
    ({"value": "True"}, "truth value"), ({"value": "64GB"}, "1000"), ({"value": "64"}, "less than"),
    ({"value": "lots"}, "neither"),
    ({"value": "-2"}, "neither"), ({"value": "9E"}, "more than"), ({"value": "0x40"}, "neither"), ({"value": "64iB"}, "neither"),
    ({"units": ["slurmd"]}, "like slurmd.service"), ({"units": ["../../x.service"]}, "no name"),
    ({"units": ["a b.service"]}, "no name"), ({"units": ["x.service\n"]}, "no name"), ({"units": ["x.slice"]}, "no name"),
    ({"domains": ["a b"]}, "range of ids"), ({"domains": ["x\ny"]}, "range of ids"), ({"domains": ["x\n"]}, "range of ids"),
    ({"users": ["alice\n"]}, "no such user"), ({"domains": ["%hpc"]}, "range of ids"),
    ({"domains": []}, "domains is empty"), ({"users": ["nobody-here"]}, "no such user"), ({"users": ["-x"]}, "no such user"),
    ({"targets": [], "units": []}, "both empty"),
])
def test_bad_input_changes_nothing(given, needle):
    host = debian(units=["x.service"])
    files = copy.deepcopy(host.files)
    with pytest.raises(BadInput, match=needle):
        apply(host, **given)
    assert host.files == files and host.writes == []


@pytest.mark.parametrize("given, needle", [({"read_only": ["/etc"]}, "read-only"), ({"full": True}, "space")])
def test_host_that_can_not_be_written(given, needle):
    host = debian(units=["slurmd.service"], **given)
    files = copy.deepcopy(host.files)
    with pytest.raises(HostError, match="(?i)" + needle):
        apply(host, units=["slurmd.service"])
    assert host.files == files


@pytest.mark.parametrize("value, kilobytes", [
    ("64G", "67108864"), ("64GiB", "67108864"), ("512M", "524288"), ("Infinity", "unlimited"), ("-1", "unlimited"),
    ("1048577", "1025"), ("64 g", "67108864"),
])
def test_ways_to_write_a_value(value, kilobytes):
    host = debian()
    apply(host, value=value)
    assert host.files[pam.OURS].endswith("0: - memlock %s\n" % kilobytes)


def test_named_domains_and_users():
    host = debian()
    result = apply(host, domains=["@hpc", "root"], users=["alice"])
    assert host.files[pam.OURS].endswith("@hpc - memlock unlimited\nroot - memlock unlimited\n")
    accounts = result["after"]["pam"]
    assert accounts["alice"]["hard_where"] == pam.OURS + ":2" and accounts["root"]["hard_where"] == pam.OURS + ":3"
    assert accounts["any other user"]["hard_where"] is None
