# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory policy is tried on the running kernel, in a process of its own, and left as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import MEMORY_POLICY_CALLS, Host

KNOWN = os.uname().sysname == "Linux" and os.uname().machine in MEMORY_POLICY_CALLS
# Without the collection's import path a child process can't load the door.
IMPORT = ("from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Host\n"
          "from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import MEMORY_POLICY_CALLS as CALLS\n")

pytestmark = pytest.mark.skipif(not KNOWN, reason="the system call's number is not known here")


def child(program):
    done = subprocess.run([sys.executable, "-c", IMPORT + textwrap.dedent(program)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60, check=False,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))))
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_the_policy_a_process_has_is_left_alone():
    if Host().memory_policy() != (True, None):
        pytest.skip("set_mempolicy is refused here: %s" % Host().memory_policy()[1])
    before, answer, after = child("""
        import ctypes, os
        call = ctypes.CDLL(None).syscall
        get, put = CALLS[os.uname().machine]
        def policy():
            mode, mask = ctypes.c_int(), (ctypes.c_ulong * 64)()
            assert call(get, ctypes.byref(mode), mask, ctypes.c_ulong(4096), None, 0) == 0
            return mode.value, list(mask)
        call(put, 2, (ctypes.c_ulong * 64)(1), ctypes.c_ulong(4096))  # bind to node 0
        print(policy())
        print(Host().memory_policy())
        print(policy())
    """)[:3]
    assert before.startswith("(2, [1,") and answer == "(True, None)" and after == before


def test_a_system_call_filter_is_told_from_a_kernel_without_policies():
    """NUMA-6: the filter Docker puts on containers, in small."""
    for code, words in ((1, "a system call filter forbids it"), (38, "no NUMA memory policies")):
        answer = child("""
            import ctypes, os, struct
            number = CALLS[os.uname().machine][1]
            rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | %d), (0x06, 0, 0, 0x7FFF0000)]
            program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
            libc = ctypes.CDLL(None, use_errno=True)
            filters = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(program)))
            assert libc.prctl(38, 1, 0, 0, 0) == 0
            if libc.prctl(22, 2, filters, 0, 0) != 0:
                print("no filter here")
            else:
                print(Host().memory_policy())
        """ % code)[0]
        if answer == "no filter here":
            pytest.skip("this kernel takes no system call filter")
        assert answer.startswith("(False,") and words in answer


def test_below_a_root_nothing_is_tried(tmp_path):
    assert Host(str(tmp_path)).memory_policy() == (None, None)
