# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every module through its main(), as Ansible calls it: arguments in, one JSON document out, and an exit status."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from ansible.module_utils import basic
from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _ansible
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_host import FakeHost

PACKAGE = "ansible_collections.ai_infra.gpu_host.plugins.modules."
NAMES = sorted(path.stem for path in (Path(__file__).resolve().parents[4] / "plugins/modules").glob("[a-z]*.py"))
REQUIRED = {"host_profile": {"knobs": []}}
THP = "/sys/kernel/mm/transparent_hugepage/"


@pytest.fixture
def call(monkeypatch, capsys):
    """Call a module on a fake host; returns its exit status and its answer."""
    def call(name, host, **arguments):
        monkeypatch.setattr(_ansible, "Host", lambda: host)
        given = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", given)
        # How the arguments are written, which ansible-core 2.19 and newer want to be told.
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(PACKAGE + name).main()
        return ended.value.code, json.loads(capsys.readouterr().out)
    return call


def thp_host():
    return FakeHost({THP + "enabled": "always [madvise] never\n", THP + "hpage_pmd_size": "2097152\n"})


@pytest.mark.parametrize("name", NAMES)
def test_option_that_does_not_exist_is_refused_by_name(call, name):
    host = FakeHost()
    code, answer = call(name, host, hugepages_please=True, **REQUIRED.get(name, {}))
    assert code == 1 and answer["failed"] and "hugepages_please" in answer["msg"]
    assert host.writes == []


def test_check_mode_says_what_a_run_then_does(call):
    host = thp_host()
    code, predicted = call("thp_mode", host, enabled="always", _ansible_check_mode=True)
    assert code == 0 and predicted["changed"] and host.writes == []
    assert host.files[THP + "enabled"] == "always [madvise] never\n"
    code, real = call("thp_mode", host, enabled="always")
    assert code == 0 and real["changed"] and real["steps"] == predicted["steps"]
    assert host.files[THP + "enabled"] == "[always] madvise never\n"
    code, again = call("thp_mode", host, enabled="always")
    assert code == 0 and not again["changed"] and again["steps"] == []


def test_error_of_ours_is_a_failure_that_says_what_to_do(call):
    host = thp_host()
    host.read_only = ("/etc",)
    code, answer = call("thp_mode", host, enabled="always")
    assert code == 1 and answer["failed"] and "ead-only" in answer["msg"]
    assert host.files[THP + "enabled"] == "always [madvise] never\n"
