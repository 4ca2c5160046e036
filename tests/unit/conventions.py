# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of the house as functions: source text in, complaints out. test_conventions.py holds the tree to them."""

from __future__ import annotations

import ast
import re

DOORS = ("_host.py", "_nvml.py", "_smi.py", "_systemd.py")
ADAPTER = "_ansible.py"
# Modules of the standard library that reach the machine. What only computes (fnmatch, shlex, struct ...) is free.
MACHINE = frozenset("""
    asyncio ctypes fcntl fileinput ftplib glob grp http io logging mmap multiprocessing os pathlib platform pty pwd
    resource select shutil signal socket spwd ssl stat subprocess syslog tempfile termios threading urllib
""".split())
# Functions of os.path that look at nothing but their arguments.
TEXT_ONLY = frozenset("basename commonpath dirname isabs join normpath relpath split splitext sep".split())
BUILTINS = frozenset("open input exec eval compile __import__ breakpoint print".split())
# REUSE-IgnoreStart
HEADER = (
    "# Copyright (c) 2026 ai_infra.gpu_host contributors",
    "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)",
    "# SPDX-License-Identifier: GPL-3.0-or-later",
)
# REUSE-IgnoreEnd
# A word of the tests' world has no place in what runs on hosts.
TEST_WORLD = re.compile(r"simulat|\bnvml-simctl\b|\bgpu_lab\b|\bfake_?host\b|\bmolecule\b|\bpytest\b", re.IGNORECASE)


def imports(source):
    """[(line, full dotted name)] of what a source imports from outside its own package."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append((node.lineno, node.module))
    return found


def touches_machine(source):
    """What reaches past the doors."""
    found = []
    for line, name in imports(source):
        if name == "os.path":
            continue
        if name.split(".")[0] in MACHINE:
            found.append("line %d imports %s" % (line, name))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            found.append("line %d calls %s()" % (node.lineno, node.func.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr != "path":
                found.append("line %d uses os.%s" % (node.lineno, node.attr))
        if isinstance(node, ast.Attribute) and ast.dump(node.value) == ast.dump(ast.parse("os.path").body[0].value):
            if node.attr not in TEXT_ONLY:
                found.append("line %d uses os.path.%s" % (node.lineno, node.attr))
    return found


def imports_of(source, package):
    return ["line %d imports %s" % (line, name) for line, name in imports(source) if name.split(".")[0] == package]


def ends_module(source, allowed=()):
    """Calls of exit_json and fail_json outside the functions that may."""
    tree, found = ast.parse(source), []
    free = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in allowed]
    inside = {id(call) for function in free for call in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and id(node) not in inside:
            if node.func.attr in ("exit_json", "fail_json"):
                found.append("line %d calls %s" % (node.lineno, node.func.attr))
    return found


def asserts(source):
    return ["line %d asserts" % node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]


def too_new(source):
    """What Python 3.8 can't compile or, outside of annotations, can't evaluate."""
    try:
        tree = ast.parse(source, feature_version=(3, 8))
    except SyntaxError as err:
        return ["line %s: %s" % (err.lineno, err.msg)]
    # With `from __future__ import annotations` these are text, and may be as new as they like.
    annotations = {id(part) for node in ast.walk(tree) for field in ("annotation", "returns")
                   for part in ast.walk(getattr(node, field, None) or ast.Pass())}
    found = []
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.Attribute) and node.attr in ("removeprefix", "removesuffix", "bit_count", "pairwise"):
            found.append("line %d uses %s" % (node.lineno, node.attr))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if node.value.id in ("list", "dict", "set", "tuple", "frozenset", "type"):
                found.append("line %d subscripts %s" % (node.lineno, node.value.id))
        if isinstance(node, ast.keyword) and node.arg in ("slots", "kw_only"):
            found.append("line %d uses %s=" % (getattr(node.value, "lineno", 0), node.arg))
    return found


def header(source):
    lines = [line for line in source.splitlines()[:6] if line and not line.startswith("#!")]
    return [] if tuple(lines[:3]) == HEADER else ["the first lines are not the licence header"]


def test_words(source):
    return ["line %d: %s" % (number, line.strip()) for number, line in enumerate(source.splitlines(), 1)
            if TEST_WORLD.search(line)]


def constants(source):
    """Text constants of a module's top level or of its classes: DOCUMENTATION, EXAMPLES, RETURN and the like."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    return found


def missing_samples(rows, where=""):
    """Return values without a sample, at the top or within; a value made of documented ones needs none of its own."""
    found = []
    for name, row in (rows or {}).items():
        if not row.get("description"):
            found.append("%s%s has no description" % (where, name))
        if "sample" not in row and not row.get("contains"):
            found.append("%s%s has no sample" % (where, name))
        found.extend(missing_samples(row.get("contains"), where + name + "."))
    return found


def options_differ(spec, documented, where=""):
    """Where an ARGUMENT_SPEC and the documented options disagree."""
    found = ["%s%s is only in %s" % (where, name, "the specification" if name in spec else "the documentation")
             for name in sorted(set(spec) ^ set(documented))]
    for name in sorted(set(spec) & set(documented)):
        code, text = spec[name], documented[name]
        for key, unset in (("type", "str"), ("elements", None), ("choices", None), ("default", None), ("required", False)):
            if code.get(key, unset) != text.get(key, unset):
                found.append("%s%s: %s is %r in the specification and %r in the documentation"
                             % (where, name, key, code.get(key, unset), text.get(key, unset)))
        found.extend(options_differ(code.get("options") or {}, text.get("suboptions") or text.get("options") or {},
                                    where + name + "."))
    return found


FLEET = re.compile(r"^\{\{\s*gpu_host_\w+\s*\|\s*default\((?P<value>.*)\)\s*\}\}$", re.DOTALL)
EITHER = re.compile(r"^.*\sif\s.*\selse\s(?P<value>.*)$", re.DOTALL)


def default_of(value):
    """What a role default comes to when no fleet-wide variable is set: "{{ gpu_host_x | default(1) }}" is 1."""
    match = FLEET.match(value) if isinstance(value, str) else None
    if not match:
        return value
    text = match.group("value")
    either = EITHER.match(text)
    text = (either.group("value") if either else text).strip()
    return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text, text))


def defaults_differ(defaults, spec):
    """Where defaults/main.yml and meta/argument_specs.yml of a role disagree."""
    found = ["%s has no argument specification" % name for name in sorted(set(defaults) - set(spec))]
    for name, option in sorted(spec.items()):
        if "default" in option and name not in defaults:
            found.append("%s has a default in the specification alone" % name)
        elif name in defaults and default_of(defaults[name]) != option.get("default"):
            found.append("%s is %r by default and %r in the specification"
                         % (name, default_of(defaults[name]), option.get("default")))
        if not option.get("description") or not option.get("type"):
            found.append("%s has no description or no type" % name)
    return found
