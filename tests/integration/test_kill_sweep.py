# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIGKILL at every write, rename, fsync, mkdir and unlink of a knob, swept until the knob ends by itself.

strace kills the real program at the n-th such call. The host is a directory tree, so that thousands of runs cost
nothing; what happens at a kill is decided by the same code and the same system calls as on a real root.
After every kill: each file is as before or as after, never in between; the next run converges to the same tree as
an undisturbed one; and C(state=absent) gives back the tree from before, byte for byte.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

RUNNER = """
import json, sys
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Host
import importlib
knob = importlib.import_module(
    "ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs." + sys.argv[2])
knob.run(Host(sys.argv[1]), json.loads(sys.argv[3]), False)
"""
COMMON = {"state": "present", "apply": "both", "unsupported": "skip", "conflicts": "warn"}
THP = dict(COMMON, enabled="always", defrag="defer+madvise", shmem_enabled=None, use_zero_page=None, khugepaged=None,
           sizes=[], large_pmd="refuse", provider="auto", allow_tuned_switch=False)
KERNEL = dict(COMMON, values={"vm.swappiness": 0, "kernel.numa_balancing": 0})
MEMLOCK = None  # filled in from the knob's own defaults
CALLS = ("write", "rename", "fsync", "mkdir", "unlink")

TREE = {
    "sys/kernel/mm/transparent_hugepage/enabled": "madvise\n", "sys/kernel/mm/transparent_hugepage/defrag": "madvise\n",
    "sys/kernel/mm/transparent_hugepage/hpage_pmd_size": "2097152\n",
    "proc/sys/vm/swappiness": "60\n", "proc/sys/kernel/numa_balancing": "1\n", "proc/self/cgroup": "0::/\n",
    "etc/os-release": "ID=debian\nVERSION_ID=12\n", "etc/security/limits.conf": "# none\n",
    "etc/security/limits.d/.keep": "", "etc/systemd/system/.keep": "", "etc/systemd/user.conf": "[Manager]\n",
    "etc/docker/daemon.json": '{\n  "log-level": "warn"\n}\n', "var/lib/dpkg/status": "", "usr/lib/systemd/systemd": "",
    "usr/lib/systemd/system/slurmd.service": "[Service]\nExecStart=/usr/sbin/slurmd\n",
    "usr/lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
    "usr/lib/x86_64-linux-gnu/security/pam_limits.so": "",
}

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


def defaults(knob, **given):
    """A knob's parameters as Ansible would fill them in."""
    import importlib

    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

    module = importlib.import_module("ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs." + knob)
    checked = ArgumentSpecValidator(module.ARGUMENT_SPEC).validate(given)
    assert not checked.error_messages
    return checked.validated_parameters


def make_tree(root):
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def snapshot(root):
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    folders = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}
    return files, folders


def run_knob(root, knob, params, strace=()):
    argv = list(strace) + [sys.executable, "-c", RUNNER, str(root), knob, json.dumps(params)]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def kill_at(call, number):
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call,
            "-e", "inject=%s:signal=KILL:when=%d" % (call, number)]


def is_temporary(name):
    return name.endswith(".ai_infra_gpu_host.tmp") and os.path.basename(name).startswith(".")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("knob, params", [
    ("thp_mode", THP), ("kernel_values", KERNEL), ("memlock_limits", MEMLOCK),
])
def test_kill_everywhere(tmp_path, knob, params, call):
    params = params or defaults(knob, unsupported="skip", value="64G", targets=["pam", "systemd_user", "docker"],
                                units=["slurmd.service"])
    reference = tmp_path / "reference"
    make_tree(reference)
    before = snapshot(reference)
    done = run_knob(reference, knob, params)
    assert done.returncode == 0, done.stderr
    after = snapshot(reference)
    assert after != before
    killed = 0
    for number in range(1, 400):
        root = tmp_path / str(number)
        make_tree(root)
        ran = run_knob(root, knob, params, kill_at(call, number))
        if ran.returncode == 0:
            break
        assert ran.returncode in (-9, 137), ran.stderr
        killed += 1
        files, folders = snapshot(root)
        for name, data in files.items():
            if is_temporary(name) or name.startswith("var/lib/ai_infra.gpu_host"):
                continue
            if name.startswith(("proc/", "sys/")):
                continue  # a plain file stands for a kernel file here, which takes a write whole or not at all
            assert data in (before[0].get(name), after[0].get(name)), "%s is half-written" % name
        if number % 2:  # both ways on: forward, and back
            again = run_knob(root, knob, params)
            assert again.returncode == 0, again.stderr
            assert snapshot(root)[0] == after[0], "the run after kill %d did not converge" % number
        back = run_knob(root, knob, dict(params, state="absent"))
        assert back.returncode == 0, back.stderr
        assert snapshot(root) == before, "absent after kill %d left something" % number
        shutil.rmtree(root)
    else:
        pytest.fail("the sweep did not reach the end")
    assert killed >= 1
    print("%s: killed at each of %d %s calls" % (knob, killed, call))
