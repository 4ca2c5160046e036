# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pure part of gpu_persistence: unit files in, flags and files out."""

from __future__ import annotations

import ast

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _persistence as pure

DAEMON = "/usr/bin/nvidia-persistenced"
PATH = "/usr/lib/systemd/system/nvidia-persistenced.service"
UBUNTU = """[Unit]
Description=NVIDIA Persistence Daemon
StopWhenUnneeded=true

[Service]
Type=forking
ExecStart=%s --user nvidia-persistenced --no-persistence-mode --verbose
""" % DAEMON
UPSTREAM = "[Service]\nExecStart=%s --user nvidia-persistenced\n[Install]\nWantedBy=multi-user.target\n" % DAEMON


def unit(text, *drop_ins):
    return pure.describe(PATH, [(PATH, text)] + [("/etc/systemd/system/x.d/%d.conf" % n, t) for n, t in enumerate(drop_ins)])


@pytest.mark.parametrize("command, mode, uvm", [
    ("", True, False),
    ("--no-persistence-mode", False, False),
    ("--no-persistence-mode --persistence-mode", True, False),
    ("--persistence-mode --no-persistence-mode", False, False),
    ("--uvm-persistence-mode", True, True),
    ("$OPTIONS", None, None),
    ("$OPTIONS --no-persistence-mode", False, None),
    ("--verbose --user=root", True, False),
])
def test_flags_say_what_the_daemon_will_do(command, mode, uvm):
    found = unit("[Service]\nExecStart=%s %s\n" % (DAEMON, command))
    assert (found.mode, found.uvm) == (mode, uvm)


def test_forms_of_the_unit():
    ubuntu, upstream = unit(UBUNTU), unit(UPSTREAM)
    assert (ubuntu.variant, ubuntu.mode, ubuntu.has_install, ubuntu.stop_when_unneeded) == ("static", False, False, True)
    assert (upstream.variant, upstream.mode, upstream.user) == ("packaged", True, "nvidia-persistenced")


@pytest.mark.parametrize("line, user", [
    ("ExecStart=%s -u bob" % DAEMON, "bob"), ("ExecStart=%s --user=bob" % DAEMON, "bob"),
    ("User=bob\nExecStart=%s" % DAEMON, "bob"), ("ExecStart=-%s" % DAEMON, None),
])
def test_account_of_the_daemon(line, user):
    found = unit("[Service]\n%s\n" % line)
    assert found.user == user and found.exec_start[0] == DAEMON


def test_a_drop_in_changes_the_flag_and_nothing_else():
    text = pure.drop_in_text(unit(UBUNTU), True, None)
    after = unit(UBUNTU, text)
    assert "ExecStart=\nExecStart=" in text, "systemd runs both commands unless the first is taken back"
    assert (after.mode, after.has_install, after.stop_when_unneeded) == (True, True, False)
    assert after.exec_start == (DAEMON, "--user", "nvidia-persistenced", "--verbose", "--persistence-mode")


@pytest.mark.parametrize("mode, uvm", [(True, True), (True, False), (False, None), (False, True)])
def test_a_drop_in_reaches_what_was_asked(mode, uvm):
    for text in (UBUNTU, UPSTREAM):
        wanted = pure.drop_in_text(unit(text), mode, uvm)
        after = unit(text, wanted) if wanted else unit(text)
        assert after.mode is mode and (uvm is None or after.uvm is uvm)


def test_no_drop_in_where_the_package_is_right():
    assert pure.drop_in_text(unit(UPSTREAM), True, None) is None
    assert pure.drop_in_text(unit(UPSTREAM), True, False) is None
    assert pure.drop_in_text(unit(UBUNTU), False, None) is None


def test_words_with_blanks_and_quotes_survive():
    odd = unit('[Service]\nExecStart=%s --user "a b" \'c"d\' --no-persistence-mode\n[Install]\nWantedBy=x.target\n' % DAEMON)
    after = unit(UPSTREAM, pure.drop_in_text(odd, True, None))
    assert after.exec_start == (DAEMON, "--user", "a b", 'c"d', "--persistence-mode")


def test_a_unit_that_was_never_tried_has_no_condition():
    """systemd says ConditionResult=no of a unit it never started."""
    shown = {"ActiveState": "inactive", "ConditionResult": "no", "ConditionTimestampMonotonic": "0"}
    assert pure.running(shown, None).condition is None
    assert pure.running(dict(shown, ConditionTimestampMonotonic="7"), None).condition is False


def test_a_running_daemon_is_known_by_its_own_command_line():
    shown = {"ActiveState": "active", "MainPID": "34"}
    assert pure.running(shown, DAEMON + "\0--no-persistence-mode\0").mode is False
    assert pure.running(shown, DAEMON + "\0--verbose\0").mode is True
    assert pure.running(shown, None).mode is None


@pytest.mark.parametrize("mode, kind, text, enabled, condition, survives", [
    (True, "daemon", UPSTREAM, True, True, True),
    (True, "daemon", UPSTREAM, True, False, False),  # condition-skipped
    (True, "daemon", UPSTREAM, False, None, False),
    (True, "daemon", UBUNTU, True, True, False),  # enabled and active proves nothing
    (False, "daemon", UBUNTU, True, True, True),
    (False, "daemon", UPSTREAM, True, True, False),
    (False, "daemon", UPSTREAM, False, None, True),
    (True, "oneshot", UPSTREAM, True, None, True),
    (True, "no_systemd", UPSTREAM, True, None, False),
])
def test_whether_a_reboot_brings_the_mode_back(mode, kind, text, enabled, condition, survives):
    found, reason = pure.survival(mode, kind, unit(text), enabled, condition)
    assert found is survives and reason


@pytest.mark.parametrize("line, found", [
    ("ExecStart=/usr/bin/nvidia-smi -pm 0", ("nvidia-smi", False)),
    ("ExecStartPre=/bin/sh -c 'nvidia-smi -i 0 -pm 1'", ("nvidia-smi", True)),
    ("ExecStart=/usr/bin/nvidia-smi --persistence-mode=DISABLED", ("nvidia-smi", False)),
    ("ExecStart=/usr/bin/nvidia-persistenced --user root", ("nvidia-persistenced", True)),
    ("ExecStart=/usr/bin/nvidia-smi -q", None),
    ("Description=runs nvidia-smi -pm 0", None),
    ("ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced", None),
])
def test_other_units_that_decide_on_persistence(line, found):
    assert pure.foreign_line(line) == found


def test_own_units_wait_for_the_nodes_and_come_before_who_reads_them():
    for text in (pure.own_daemon_unit(DAEMON, None), pure.own_oneshot_unit("/usr/bin/python3", ["0000:1b:00.0"])):
        assert "ConditionPathExistsGlob=/dev/nvidia[0-9]*\n" in text
        assert "Before=" in text and "kubelet.service" in text and "WantedBy=multi-user.target\n" in text
    assert "RemainAfterExit=yes\n" in text and text.count("0000:1b:00.0") == 1


def test_the_boot_program_is_python_and_needs_nothing_of_ansible():
    program = pure.boot_program("/var/lib/x")
    compile(program, "program", "exec")
    names = {alias.name for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"sys", "pynvml"}


@pytest.mark.parametrize("text, numbers", [("550.40.07", (550, 40, 7)), ("580.95.05", (580, 95, 5)), (None, None),
                                           ("580.beta", None)])
def test_versions_compare_as_numbers(text, numbers):
    assert pure.version(text) == numbers
