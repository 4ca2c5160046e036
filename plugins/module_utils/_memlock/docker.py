# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One member of Docker's daemon.json, changed without touching the rest of the text. Pure.

The file belongs to its owner: order, indent, numbers as they were written all stay. So the text is not parsed and
printed again; the place of our member is found and only that is replaced, added or cut.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

from .._errors import HostError
from . import value

CONFIG = "/etc/docker/daemon.json"
SECTION, MEMBER, FLAG = "default-ulimits", "memlock", "--default-ulimit"
SPACE = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder()


class Member(NamedTuple):
    """A member of a JSON object: its key, and where key and value stand in the text."""

    key: str
    start: int
    value_start: int
    end: int


def parse(path, text):
    """The file as data. A blank or missing file is an empty object. Raises HostError with the line of a fault."""
    if not (text or "").strip():
        return {}
    try:
        data = json.loads(text)
    except ValueError as err:
        line = getattr(err, "lineno", 1)
        raise HostError("read", "%s:%d" % (path, line), "it is not JSON (%s)" % err,
                        "Correct that line; Docker would not start with it either")
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise HostError("read", path, "it holds no object", "Docker expects an object in braces there")
    if not isinstance(data.get(SECTION) or {}, dict):
        raise HostError("add %s to" % MEMBER, "%s of %s" % (SECTION, path), "it is no object",
                        "Write it like {%s: {\"memlock\": {\"Name\": \"memlock\", \"Hard\": -1, \"Soft\": -1}}}" %
                        json.dumps(SECTION))
    return data


def entry(limit):
    number = value.as_runtime(limit)
    return {"Name": MEMBER, "Hard": number, "Soft": number}


def found(data):
    """Limits the file gives every container; None when it says nothing that Docker could use."""
    row = (data.get(SECTION) or {}).get(MEMBER)
    if not isinstance(row, dict):
        return None
    row = {name.lower(): row[name] for name in row}  # Docker takes these names in any case
    numbers = [row.get(name) for name in ("soft", "hard")]
    if row.get("name") != MEMBER or any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        return None
    return value.Limits(*numbers)


def with_limit(path, text, limit):
    """The text with our member in it; the same text when it is there already."""
    data = parse(path, text)
    if found(data) == value.Limits(limit, limit):
        return text
    if not data:
        return json.dumps({SECTION: {MEMBER: entry(limit)}}, indent=4) + "\n"
    top = members(text, text.index("{"))
    unit = indent_of(text, top)
    section = last(top, SECTION)
    if section is None:
        return insert(text, text.index("{"), top, SECTION, {MEMBER: entry(limit)}, unit, 1)
    if data[SECTION] is None:
        return text[:section.value_start] + rendered({MEMBER: entry(limit)}, unit, 1) + text[section.end:]
    inner = members(text, section.value_start)
    member = last(inner, MEMBER)
    if member is None:
        return insert(text, section.value_start, inner, MEMBER, entry(limit), unit, 2)
    return text[:member.value_start] + rendered(entry(limit), unit, 2) + text[member.end:]


def without_limit(path, text, limits=None):
    """The text without our member, None when nothing else is in the file. C(limits): only while it has that value."""
    data = parse(path, text)
    if limits is not None and found(data) != limits or MEMBER not in (data.get(SECTION) or {}):
        return text
    top = members(text, text.index("{"))
    section = last(top, SECTION)
    if len(data[SECTION]) > 1:
        inner = members(text, section.value_start)
        return cut(text, section.value_start, inner, last(inner, MEMBER))
    if len(data) > 1:
        return cut(text, text.index("{"), top, section)
    return None


# Places in the text

def members(text, start):
    """Members of the object that opens at start."""
    found_members, at = [], skip(text, start + 1)
    while text[at] != "}":
        key, after = DECODER.raw_decode(text, at)
        value_start = skip(text, skip(text, after) + 1)
        value_end = DECODER.raw_decode(text, value_start)[1]
        found_members.append(Member(key, at, value_start, value_end))
        at = skip(text, value_end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found_members


def skip(text, at):
    return SPACE.match(text, at).end()


def last(rows, key):
    """Of two members with one name the last one counts."""
    return ([row for row in rows if row.key == key] or [None])[-1]


def indent_of(text, rows):
    """The indent of the file; None when it is written in one line."""
    line = text[:rows[0].start].rsplit("\n", 1)
    return line[1] if len(line) == 2 and not line[1].strip() else None


def rendered(data, unit, depth):
    """A value in the style of the file."""
    if unit is None:
        return json.dumps(data)
    lines = json.dumps(data, indent=unit or 4).split("\n")
    return ("\n" + (unit or "") * depth).join(lines)


def insert(text, opening, rows, key, data, unit, depth):
    """Add a member after the last one of the object that opens at C(opening)."""
    body = "%s: %s" % (json.dumps(key), rendered(data, unit, depth))
    glue = " " if unit is None else "\n" + (unit or "") * depth
    if rows:
        return text[:rows[-1].end] + "," + glue + body + text[rows[-1].end:]
    closing = skip(text, opening + 1)
    end = "" if unit is None else "\n" + (unit or "") * (depth - 1)
    return text[:opening + 1] + (glue if unit is not None else "") + body + end + text[closing:]


def cut(text, opening, rows, row):
    """Take a member out, with the comma that held it."""
    position = rows.index(row)
    if position + 1 < len(rows):
        return text[:row.start] + text[rows[position + 1].start:]
    if position:
        return text[:rows[position - 1].end] + text[row.end:]
    return text[:opening + 1] + text[skip(text, row.end):]


# The command line of the daemon

class Flags(NamedTuple):
    """What dockerd's command line says: other configuration file, and default ulimits with where they stand."""

    config: str
    ulimits: list


def flags(rows, environment_files):
    """Flags of the effective ExecStart, variables filled in. C(environment_files(path)) gives a file's text."""
    command, where, variables = "", "", {}
    for row in rows:
        if row.section != "Service":
            continue
        if row.key == "ExecStart":
            command, where = row.value, row.where
        elif row.key == "Environment":
            for word in words_of(row.value):
                name, mid, content = word.partition("=")
                variables[name] = (content, row.where)
        elif row.key == "EnvironmentFile":
            path = row.value.lstrip("-")
            for number, line in enumerate((environment_files(path) or "").splitlines(), 1):
                name, mid, content = line.strip().partition("=")
                if mid and not name.startswith(("#", ";")):
                    variables[name.strip()] = (content.strip().strip("\"'"), "%s:%d" % (path, number))
    words = []
    for word in words_of(command):
        match = re.match(r"^\$\{?(\w+)\}?$", word)
        if match:
            content, origin = variables.get(match.group(1), ("", where))
            words += [(part, origin) for part in words_of(content)]
        else:
            words.append((word, where))
    config, ulimits = CONFIG, []
    for position, (word, origin) in enumerate(words):
        name, mid, argument = word.partition("=")
        if not mid and position + 1 < len(words):
            argument = words[position + 1][0]
        if name == "--config-file" and argument.startswith("/"):
            config = argument
        elif name == FLAG:
            ulimits.append((argument, origin))
    return Flags(config, ulimits)


def words_of(text):
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def flag_limits(ulimits):
    """(limits, where) of memlock on the command line; (None, None) when it is not there."""
    for argument, where in reversed(ulimits):
        match = re.match(r"^memlock=(-?\d+)(?::(-?\d+))?$", argument)
        if match:
            soft = int(match.group(1))
            return value.Limits(soft, int(match.group(2) or soft)), where
    return None, None
