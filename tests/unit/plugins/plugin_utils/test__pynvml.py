# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side: when the binding goes to a node, and what is said when there is none to bring."""

from __future__ import annotations

import importlib
import posixpath
import types

import pytest

pytest.importorskip("ansible.plugins.action", reason="this ansible-core has module_utils alone, as hosts get it")

ours = importlib.import_module("ansible_collections.ai_infra.gpu_host.plugins.plugin_utils._pynvml")
MISSING = {"failed": True, "msg": "Cannot talk to NVML", "nvml_binding": {"state": "missing"}}
DONE = {"changed": True, "steps": []}


def plugin(monkeypatch, name, answers, source="/controller/pynvml.py", args=None):
    """An action plugin whose node gives these answers, one a call."""
    action = importlib.import_module("ansible_collections.ai_infra.gpu_host.plugins.action." + name).ActionModule
    shell = types.SimpleNamespace(tmpdir=None, join_path=posixpath.join)
    made = action(types.SimpleNamespace(args=dict(args or {}), async_val=0, environment=None, delegate_to=None, check_mode=True),
                  types.SimpleNamespace(_shell=shell), None, None, None, None)
    made.calls, made.sent, made.removed = [], [], []
    answers = [dict(answer) for answer in answers]

    def make_tmp_path(*arguments, **more):
        shell.tmpdir = "/remote/tmp"

    def execute_module(module_args=None, **more):
        made.calls.append(module_args)
        return answers.pop(0)

    monkeypatch.setattr(ours, "binding_on_controller", lambda: source)
    monkeypatch.setattr(ours.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(made, "_make_tmp_path", make_tmp_path)
    monkeypatch.setattr(made, "_execute_module", execute_module)
    monkeypatch.setattr(made, "_transfer_file", lambda here, there: made.sent.append((here, there)) or there)
    monkeypatch.setattr(made, "_fixup_perms2", lambda paths: None)
    monkeypatch.setattr(made, "_remove_tmp_path", made.removed.append)
    return made


NAMES = ["gpu_persistence", "host_profile", "numa_affinity_facts"]


@pytest.mark.parametrize("name", NAMES)
def test_a_node_that_has_it_gets_one_call(monkeypatch, name):
    made = plugin(monkeypatch, name, [DONE], args={"mode": "on"})
    assert made.run(task_vars={}) == DONE
    assert made.calls == [{"mode": "on"}] and made.sent == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("state", ["missing", "too_old"])
def test_a_node_without_gets_it_and_a_second_call(monkeypatch, name, state):
    made = plugin(monkeypatch, name, [dict(MISSING, nvml_binding={"state": state}), DONE], args={"mode": "on"})
    assert made.run(task_vars={}) == DONE
    assert made.sent == [("/controller/pynvml.py", "/remote/tmp/pynvml.py")]
    assert made.calls == [{"mode": "on"}, {"mode": "on", "pynvml_path": "/remote/tmp"}]
    assert made.removed == ["/remote/tmp"]


def test_a_change_of_the_first_call_is_not_forgotten(monkeypatch):
    first = {"changed": True, "nvml_binding": {"state": "missing"}}
    assert plugin(monkeypatch, "host_profile", [first, {"changed": False}]).run(task_vars={})["changed"]


def test_a_binding_that_does_not_help_ends_after_two_calls(monkeypatch):
    made = plugin(monkeypatch, "gpu_persistence", [MISSING, MISSING])
    assert made.run(task_vars={})["failed"] and len(made.calls) == 2


def test_a_path_from_the_user_is_taken_as_it_is(monkeypatch):
    made = plugin(monkeypatch, "gpu_persistence", [MISSING], args={"pynvml_path": "/opt/x"})
    assert made.run(task_vars={})["failed"] and made.sent == []


def test_a_controller_without_it_says_what_to_install_and_where(monkeypatch):
    result = plugin(monkeypatch, "gpu_persistence", [MISSING], source=None).run(task_vars={})
    assert result["failed"] and "nvidia-ml-py" in result["msg"] and "controller" in result["msg"]


def test_facts_are_worth_having_without_it(monkeypatch):
    facts = {"changed": False, "ansible_facts": {}, "nvml_binding": {"state": "missing"}}
    result = plugin(monkeypatch, "numa_affinity_facts", [facts], source=None).run(task_vars={})
    assert not result.get("failed") and "nvidia-ml-py" in result["warnings"][0]


def test_the_controllers_own_copy_is_a_single_file(monkeypatch, tmp_path):
    (tmp_path / "pynvml.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert ours.binding_on_controller() == str(tmp_path / "pynvml.py")
