# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tree keeps the rules of the house, and each rule catches what it is there for."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from ansible_collections.ai_infra.gpu_host.tests.unit import conventions as rules

ROOT = Path(__file__).resolve().parent.parent.parent
PLUGINS = ROOT / "plugins"
NO_SOURCE = {"build", "output", ".git", ".cache", ".ansible", "collections", "__pycache__"}


def sources(folder, pattern="*.py"):
    """Files of ours; `__init__.py` is empty by another rule."""
    return sorted(path for path in (ROOT / folder).rglob(pattern)
                  if path.is_file() and path.name != "__init__.py" and not NO_SOURCE & set(path.relative_to(ROOT).parts))


def complaints(paths, rule):
    """Everything a rule says of these files, with the name of the file before it."""
    return ["%s %s" % (path.relative_to(ROOT), text) for path in paths for text in rule(path.read_text(encoding="utf-8"))]


MODULE_UTILS, MODULES, ROLES = sources("plugins/module_utils"), sources("plugins/modules"), sorted(ROOT.glob("roles/*"))
DOORS = [path for path in MODULE_UTILS if path.name in rules.DOORS]
PURE = [path for path in MODULE_UTILS if path.name not in rules.DOORS]


def test_there_is_something_to_hold_to_the_rules():
    assert DOORS and PURE and MODULES and ROLES


def test_only_doors_touch_the_machine():
    assert complaints(PURE + MODULES, rules.touches_machine) == []


def test_only_one_door_knows_the_nvml_binding():
    others = [path for path in MODULE_UTILS + MODULES if path.name != "_nvml.py"]
    assert complaints(others, lambda source: rules.imports_of(source, "pynvml")) == []


def test_only_the_adapter_knows_ansible():
    others = [path for path in MODULE_UTILS if path.name != rules.ADAPTER]
    assert complaints(others, lambda source: rules.imports_of(source, "ansible")) == []


def test_only_main_and_the_adapter_end_a_module():
    others = [path for path in MODULE_UTILS if path.name != rules.ADAPTER]
    assert complaints(others, rules.ends_module) == []
    assert complaints(MODULES, lambda source: rules.ends_module(source, allowed=("main",))) == []


def test_no_asserts_in_what_users_run():
    assert complaints(sources("plugins"), rules.asserts) == []


def test_module_code_is_as_old_as_the_oldest_python_on_hosts():
    assert complaints(MODULE_UTILS + MODULES, rules.too_new) == []


def test_every_source_has_the_licence_header():
    assert complaints(sources("."), rules.header) == []
    assert complaints(sources("tests", "*.[ch]"), lambda source: [] if rules.HEADER[2][2:] in source else ["no SPDX line"]) == []


def test_package_files_are_empty():
    assert [path for path in PLUGINS.rglob("__init__.py") if path.stat().st_size] == []


def test_what_hosts_get_knows_nothing_of_tests():
    texts = sources("plugins") + sources("roles", "*.yml") + sources("playbooks", "*.yml")
    assert complaints(texts, rules.test_words) == []


def test_no_file_names_the_checkout_it_was_written_in():
    texts = [path for path in sources(".", "*") if path.suffix in {".py", ".yml", ".md", ".json", ".c", ".h", ".sh", ".toml"}]
    assert [path for path in texts if str(ROOT) in path.read_text(encoding="utf-8")] == []


def test_every_module_is_in_the_action_group():
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())
    there = {path.stem for path in MODULES}
    assert there <= set(runtime["action_groups"]["gpu_host"])


@pytest.fixture(params=MODULES, ids=lambda path: path.stem)
def module(request):
    """A module's file and its documentation, doc fragments merged in."""
    path = request.param
    found = {name: yaml.safe_load(text) for name, text in rules.constants(path.read_text()).items()
             if name in ("DOCUMENTATION", "EXAMPLES", "RETURN")}
    document = found.get("DOCUMENTATION") or {}
    for name in document.get("extends_documentation_fragment") or []:
        file, constant = (name.split(".")[2:] + ["documentation"])[:2]
        fragment = yaml.safe_load(rules.constants((PLUGINS / "doc_fragments" / (file + ".py")).read_text())[constant.upper()])
        for key in ("options", "attributes"):
            own = document.setdefault(key, {})
            for part, row in (fragment.get(key) or {}).items():
                own[part] = dict(row, **own.get(part) or {})
    return path, found


def test_every_module_is_documented(module):
    path, found = module
    assert set(found) == {"DOCUMENTATION", "EXAMPLES", "RETURN"}
    document = found["DOCUMENTATION"]
    assert document["module"] == path.stem
    assert {"check_mode", "diff_mode", "idempotent", "platform", "action_group"} <= set(document["attributes"])
    assert any("ai_infra.gpu_host." + path.stem in task for task in found["EXAMPLES"])
    assert [task for task in found["EXAMPLES"] if not task.get("name")] == []
    assert rules.missing_samples(found["RETURN"]) == []


def test_options_are_what_the_documentation_says(module):
    path, found = module
    knob = importlib.import_module("ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs." + path.stem)
    assert rules.options_differ(knob.ARGUMENT_SPEC, found["DOCUMENTATION"]["options"]) == []


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_role_defaults_are_what_the_specification_says(role):
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert rules.defaults_differ(defaults or {}, spec) == []
    assert [name for name in spec if not name.startswith(role.name + "_")] == []


@pytest.mark.parametrize("rule, good, bad", [
    (rules.touches_machine, "import re, fnmatch", "import os"),
    (rules.touches_machine, "import os.path\nos.path.join('a', 'b')", "import os.path\nos.path.exists('a')"),
    (rules.touches_machine, "import os.path\nos.path.basename(a)", "import os.path\nos.listdir('a')"),
    (rules.touches_machine, "host.read(a)", "open(a)"),
    (rules.touches_machine, "from ._plan import Step", "from subprocess import run"),
    (rules.touches_machine, "host.run(a)", "def f():\n    import socket"),
    (lambda source: rules.imports_of(source, "pynvml"), "from . import _nvml", "import pynvml"),
    (lambda source: rules.imports_of(source, "ansible"), "from ._ansible import a", "from ansible.module_utils import basic"),
    (rules.ends_module, "module.warn('a')", "module.fail_json(msg='a')"),
    (lambda source: rules.ends_module(source, ("main",)), "def main():\n    m.exit_json()", "def run():\n    m.exit_json()"),
    (rules.asserts, "raise ValueError", "assert a"),
    (rules.too_new, "def f(a: list[int] | None) -> dict[str, int]: ...", "a = list[int]"),
    (rules.too_new, "a[:1]", "a.removeprefix('b')"),
    (rules.too_new, "if a: pass", "match a:\n    case 1: pass"),
    (rules.header, "#!/usr/bin/python\n\n" + "\n".join(rules.HEADER), "import re"),
    (rules.test_words, "# a real GPU", "# the simulator says no"),
])
def test_rule_catches_what_it_is_there_for(rule, good, bad):
    assert rule(good) == []
    assert rule(bad) != []


def test_rules_of_documentation_catch_what_they_are_there_for():
    assert rules.missing_samples({"a": {"description": "A", "sample": None}}) == []
    assert rules.missing_samples({"a": {"description": "A", "contains": {"b": {"description": "B"}}}}) == ["a.b has no sample"]
    spec = {"a": {"type": "int", "default": 1}}
    assert rules.options_differ(spec, {"a": {"type": "int", "default": 1, "description": "A"}}) == []
    assert len(rules.options_differ(spec, {"a": {"type": "int", "default": 2}})) == 1
    assert len(rules.options_differ(spec, {})) == 1
    assert len(rules.options_differ({"a": {"options": spec}}, {"a": {"suboptions": {}}})) == 1


@pytest.mark.parametrize("written, value", [
    ("madvise", "madvise"), (0, 0), ("{{ gpu_host_a | default('on') }}", "on"), ("{{ gpu_host_a | default(true) }}", True),
    ("{{ gpu_host_a\n  | default(['x', 'y']) }}", ["x", "y"]),
    ("{{ gpu_host_a | default('b' if c == 'd' else 'e') }}", "e"),
])
def test_default_of_a_role_without_fleet_wide_variables(written, value):
    assert rules.default_of(written) == value
    option = {"r_a": {"type": "raw", "description": "A", "default": value}}
    assert rules.defaults_differ({"r_a": written}, option) == []
    assert rules.defaults_differ({"r_a": "something else"}, option) != []
    assert rules.defaults_differ({"r_a": written, "r_b": 1}, option) != []
