# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""memlock_limits on lab hosts: real systemd, real PAM, real logins."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from playbooks import play

SEED = 20262
SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n"
OURS = "90-ai-infra-gpu-host-memlock.conf"


def memlock(lab, folder, host, *arguments, **params):
    """Run the module once on a host."""
    book = folder / "memlock.yml"
    book.write_text(json.dumps([{"hosts": host, "gather_facts": False, "become": True, "tasks": [
        {"name": "Limit locked memory", "ai_infra.gpu_host.memlock_limits": dict({"unsupported": "skip"}, **params)}]}]))
    done = play(book, lab.inventory(), *arguments)
    assert done.rc == 0, done.output
    return done.result(host, "memlock_limits")


def limits_of(host, unit):
    pid = host.run("systemctl", "show", "--value", "-p", "MainPID", unit).stdout.strip()
    line = [line for line in host.read("/proc/%s/limits" % pid).splitlines() if "locked memory" in line][0]
    return line.split()[3:5]


def login(host, user):
    """The limit in a session that PAM opened for the user."""
    return host.run("su", "-", user, "-s", "/bin/bash", "-c", "ulimit -Sl; ulimit -Hl").stdout.split()


@pytest.mark.parametrize("root", ["debian12", "debian13"])
def test_life_of_a_limit(lab, tmp_path, root):
    host = lab.up("hgx_h100", "limit-" + root, root=root)
    host.run("useradd", "--create-home", "alice")
    for unit in ("slurmd", "containerd", "docker"):
        host.write("/etc/systemd/system/%s.service" % unit, SLEEP + "[Install]\nWantedBy=multi-user.target\n")
        host.run("systemctl", "enable", "--now", unit)
    host.run("mkdir", "-p", "/etc/docker")
    host.write("/etc/docker/daemon.json", '{\n  "log-driver": "journald"\n}\n')
    host.write("/etc/security/limits.d/10-site.conf", "* - memlock 64G\nroot hard memlock 128\n")
    before = host.snapshot()
    assert login(host, "alice") == ["64", "64"] and login(host, "root")[1] == "128"
    assert limits_of(host, "slurmd.service")[0] == "8388608"

    wanted = {"value": "64G", "targets": ["pam", "systemd_system", "systemd_user", "docker", "containerd"],
              "units": ["slurmd.service", "kubelet.service"]}
    predicted = memlock(lab, tmp_path, host.name, "--check", "--diff", **wanted)
    assert changes(before, host) == []
    real = memlock(lab, tmp_path, host.name, **wanted)
    for word in ("steps", "after", "restart_required", "conflicts", "findings", "left_out"):
        assert predicted[word] == real[word], word
    assert real["restart_required"] == ["containerd.service", "docker.service", "slurmd.service"]
    assert [row["target"] for row in real["left_out"]] == ["kubelet.service"]
    assert [(row["where"], row["effect"][:21]) for row in real["findings"]] == [
        ("/etc/security/limits.d/10-site.conf:1", "the value is read as ")]

    assert login(host, "alice") == login(host, "root") == ["67108864", "67108864"]
    assert host.ssh("ulimit", "-l").stdout.strip() == "67108864"
    assert limits_of(host, "slurmd.service")[0] == "8388608", "nobody restarts a daemon"
    second = memlock(lab, tmp_path, host.name, **wanted)
    assert not second["changed"] and second["restart_required"] == real["restart_required"]

    running = memlock(lab, tmp_path, host.name, apply_running=True, **wanted)
    assert [step["action"] for step in running["steps"]] == ["set_rlimit"] * 2
    assert limits_of(host, "slurmd.service") == ["68719476736"] * 2 == limits_of(host, "containerd.service")
    host.run("systemctl", "restart", "docker.service")
    assert memlock(lab, tmp_path, host.name, **wanted)["restart_required"] == []

    host.reboot()
    assert limits_of(host, "slurmd.service") == limits_of(host, "containerd.service") == ["68719476736"] * 2
    assert limits_of(host, "docker.service") == ["68719476736"] * 2, "the default of system.conf"
    assert login(host, "alice") == login(host, "root") == ["67108864", "67108864"]
    after_boot = memlock(lab, tmp_path, host.name, **wanted)
    assert not after_boot["changed"] and after_boot["restart_required"] == []

    predicted = memlock(lab, tmp_path, host.name, "--check", state="absent")
    gone = memlock(lab, tmp_path, host.name, state="absent")
    assert predicted["steps"] == gone["steps"] and changes(before, host) == []
    assert login(host, "alice") == ["64", "64"]
    assert not memlock(lab, tmp_path, host.name, state="absent")["changed"]
    lab.down(host.name)


def changes(before, host):
    from lab import snapshot

    return snapshot.differences(before, host.snapshot())


@pytest.mark.parametrize("root", ["debian12", "debian13"])
def test_winner_is_what_systemd_loads(lab, tmp_path, root):
    """Made-up drop-ins in every directory and under every name systemd looks at, values it ignores among them."""
    host = lab.up("no_gpu", "winner-" + root, root=root)
    chance = random.Random(SEED)
    folders = ["/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"]
    values = ["infinity", "1048576", "1M", "2G:3G", "1.5G", "64 K", "1G 512M", "0", "unlimited", "-1", "64GB", "",
              "3M:2M", "5 M:6M",
              "18446744073709551615", "0x100000", "infinity:1M", "1M:infinity", "1b", "+5", "1m"]
    files, names = {}, []
    for number in range(60):
        prefix = "test-%s-%d" % (chance.choice("ab"), number)
        unit = "%s@x.service" % prefix if chance.random() < 0.2 else prefix + ".service"
        names.append(unit)
        template = unit.replace("@x", "@")
        files["%s/%s" % (chance.choice(folders), chance.choice([unit, template]))] = SLEEP + "LimitMEMLOCK=%s\n" % (
            chance.choice(values))
        places = [unit, template, "test-.service", "%s-.service" % prefix.rsplit("-", 1)[0], "service"]
        for count in range(chance.randint(0, 4)):
            name = chance.choice(["10-a.conf", "9-a.conf", "Z.conf", "zz.conf", "20", ".5.conf"])
            text = chance.choice(["[Service]\n"] * 5 + ["[Unit]\n", "# [Service]\n", "[Service]\n# \\\n"])
            for _line in range(chance.randint(1, 2)):
                text += "%sLimitMEMLOCK%s%s\n" % (
                    chance.choice(["", "", "", "#", ";"]), chance.choice(["=", " = ", "=\\\n"]), chance.choice(values))
            place = chance.choice(places[:2] * 6 + places[2:])
            files["%s/%s.d/%s" % (chance.choice(folders), place, name)] = text
    for path, text in files.items():
        host.run("mkdir", "-p", path.rsplit("/", 1)[0])
        host.write(path, text)
    host.run("systemctl", "daemon-reload")
    units = memlock(lab, tmp_path, host.name, "--check", targets=[], units=names)["before"]["units"]
    assert sorted(units) == sorted(names)
    wrong = {}
    for unit, row in units.items():
        ours = {"soft": row["soft"] or "8388608", "hard": row["hard"] or "8388608"}
        if row["loaded"] != ours:
            wrong[unit] = (row, {path: text for path, text in files.items() if unit.split("-")[2].split(".")[0] in path})
    assert not wrong, json.dumps([SEED, wrong], indent=1)
    assert sum(row["where"] is not None for row in units.values()) > 20
    lab.down(host.name)


@pytest.mark.parametrize("root", ["debian12", "debian13"])
def test_winner_is_what_pam_limits_does(lab, root):
    """The made-up directories of the unit test once more, where limits can be raised and for each release of PAM."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit/plugins/module_utils/memlock"))
    import real_pam
    import test_pam_real
    from ansible_collections.ai_infra.gpu_host.plugins.module_utils._memlock.value import Limits, from_proc

    host = lab.up("no_gpu", "pam-" + root, root=root)
    host.run("mkdir", "/run/memlock")
    host.write("/run/memlock/cases.json", json.dumps(test_pam_real.made_up_cases()))
    host.write("/run/memlock/real_pam.py", Path(real_pam.__file__).read_text())
    done = host.run("unshare", "--mount", "--propagation", "private", "python3", "/run/memlock/real_pam.py", "/run/memlock")
    # Debian's patch that starts from PID 1's limits went with PAM 1.7.
    start = from_proc(host.read("/proc/1/limits" if root == "debian12" else "/proc/self/limits"))
    own = host.run("python3", "-c", "import resource; print(*resource.getrlimit(resource.RLIMIT_MEMLOCK))").stdout
    test_pam_real.compare(json.loads(done.stdout), True, start, Limits(*map(int, own.split())), True)
    lab.down(host.name)
