# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Our winner against the real pam_limits of this machine, on hundreds of made-up directories."""

from __future__ import annotations

import glob
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._memlock import pam
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._memlock.value import Limits, from_proc

sys.path.insert(0, str(Path(__file__).resolve().parent))
import real_pam  # noqa: E402

SEED = 20260
CASES = 300
NAMES = ["limits.conf", "limits.d/10.conf", "limits.d/9.conf", "limits.d/Z.conf", "limits.d/a.conf", "limits.d/zz.conf",
         "limits.d/20-x", "limits.d/.30.conf", "limits.d/_.conf"]
DOMAINS = ["*", "root", "alice", "bob", "@hpc", "@wheel", "%", "%hpc", "0:", ":0", "1000:", "1000:1001", ":1000", "@2000:",
           "@:2000", "@1000:2000", "%:2000", "%1000:", "x:y", "5000:4000", ":", "nobody"]
VALUES = ["64", "128", "4000", "8000", "64G", "4M", "0x40", "unlimited", "INFINITY", "-", "-1", "unlimitted", "+96", "100.5",
          "12 34", "0"]


def account(name):
    uid, gid = real_pam.PASSWD[name]
    member = [(group, number) for group, (number, users) in real_pam.GROUPS.items() if number == gid or name in users]
    return pam.Account(name, name, uid, gid, tuple(group for group, number in member), tuple(number for group, number in member))


def made_up(chance):
    """One /etc/security, with what people get wrong in it."""
    files = {"limits.conf": ""}  # without it pam_limits 1.5 refuses the session
    for name in chance.sample(NAMES, chance.randint(1, 4)):
        lines = []
        for number in range(chance.randint(0, 5)):
            line = "%s%s %s %s %s" % (
                chance.choice(["", "", " ", "\t"]), chance.choice(DOMAINS),
                chance.choice(["soft", "hard", "-", "-", "Hard", "both"]),
                chance.choice(["memlock", "memlock", "memlock", "MemLock", "core"]), chance.choice(VALUES))
            mistake = chance.random()
            if mistake < 0.05:
                line = "%s -" % chance.choice(DOMAINS)
            elif mistake < 0.10:
                line = " ".join(line.split()[:3])
            elif mistake < 0.15:
                line = "#" + line
            elif mistake < 0.20:
                line = line + "# why"
            elif mistake < 0.25 and line[-1].isalnum() and line.split()[3][:1].isdigit():
                line = line + "\r"  # after a word releases differ
            lines.append(line)
        files[name] = "\n".join(lines) + chance.choice(["\n", ""])
    return files


@pytest.mark.skipif(subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
                    reason="no mount namespace without root here")
@pytest.mark.skipif(not glob.glob("/usr/lib/*/security/pam_limits.so") + glob.glob("/lib/*/security/pam_limits.so"),
                    reason="no pam_limits on this machine")
def test_winner_is_what_pam_limits_does(tmp_path):
    """MEM-11, MEM-12: precedence, byte order, ranges, root, suffixes, broken lines."""
    (tmp_path / "cases.json").write_text(json.dumps(made_up_cases()))
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, real_pam.__file__, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    debian = os.path.exists("/etc/debian_version")
    own = Limits(*resource.getrlimit(resource.RLIMIT_MEMLOCK))
    start = from_proc(Path("/proc/1/limits").read_text()) if debian else own
    may_raise = bool(int(_status("CapEff"), 16) >> 24 & 1)
    compare(json.loads(done.stdout), debian, start, own, may_raise)


def made_up_cases():
    chance = random.Random(SEED)
    return [{"files": made_up(chance), "users": sorted(real_pam.PASSWD)} for number in range(CASES)]


def compare(sessions, debian, start, own, may_raise):
    """Hold the limits that sessions got against our winner."""
    decided, wrong = 0, []
    for case, answers in zip(made_up_cases(), sessions):
        main, names = "/etc/security/limits.conf", [name.split("/")[1] for name in case["files"] if "/" in name]
        lines = [line for path in pam.read_order(main, names)
                 for line in pam.parse(path, case["files"].get(path[len("/etc/security/"):]))]
        for user, found in answers.items():
            won = pam.winner(lines, account(user), debian, start)
            decided += won.soft_where is not None
            if found != expected(won.limits, own, may_raise):
                wrong.append({"user": user, "files": case["files"], "real": found, "ours": won})
    assert not wrong, "seed %d: %d differ, the first: %s" % (SEED, len(wrong), json.dumps(wrong[0], indent=1))
    assert decided > CASES


def expected(limits, own, may_raise):
    """What setrlimit leaves: nothing moves when the hard limit would be raised without the right to."""
    if limits.hard is None:
        return list(own)
    too_high = own.hard != -1 and (limits.hard == -1 or limits.hard > own.hard)
    return list(own) if too_high and not may_raise else list(limits)


def _status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split()[1]
    return "0"
