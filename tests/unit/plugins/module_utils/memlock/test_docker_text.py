# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""daemon.json: one member in and out of hundreds of made-up files, without a foreign byte moved."""

from __future__ import annotations

import json
import random

import pytest
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._memlock import docker
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._memlock.value import Limits

SEED, FILES = 20261, 400
PATH = docker.CONFIG


def made_up(chance, depth=0):
    """A JSON value as people and tools write it."""
    kind = chance.randrange(7 if depth < 3 else 4)
    if kind == 0:
        return chance.choice([True, False, None])
    if kind == 1:
        return chance.choice([0, -1, 64, 1.5, 10 ** 20])
    if kind < 4:
        return chance.choice(["", "10m", 'a "quoted" } brace', "back\\slash", "ö ☃", "{,}"])
    if kind == 4:
        return [made_up(chance, depth + 1) for number in range(chance.randrange(3))]
    return {chance.choice("abcdef") * chance.randint(1, 3): made_up(chance, depth + 1) for number in range(chance.randrange(4))}


def made_up_file(chance):
    data = {"key%d" % number: made_up(chance) for number in range(chance.randrange(4))}
    if chance.random() < 0.5:
        others = {"nofile": {"Name": "nofile", "Hard": 64000, "Soft": 64000}}
        if chance.random() < 0.5:
            others["memlock"] = chance.choice([{"Name": "memlock", "Hard": 64, "Soft": 64}, "broken", {}])
        keys = list(others)
        chance.shuffle(keys)
        data["default-ulimits"] = {key: others[key] for key in keys[:chance.randint(0, 2)]}
    keys = list(data)
    chance.shuffle(keys)
    data = {key: data[key] for key in keys}
    style = chance.choice([{}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}, {"indent": 0}])
    text = json.dumps(data, ensure_ascii=chance.random() < 0.5, **style)
    return data, chance.choice(["", " \n"]) + text + chance.choice(["", "\n", "\r\n"])


def test_only_our_member_moves():
    chance = random.Random(SEED)
    for number in range(FILES):
        data, text = made_up_file(chance)
        limit = chance.choice([-1, 2 ** 36])
        changed = docker.with_limit(PATH, text, limit)
        wanted = json.loads(json.dumps(data))
        wanted.setdefault("default-ulimits", {})["memlock"] = docker.entry(limit)
        assert json.loads(changed) == wanted, (SEED, text)
        assert list(json.loads(changed))[:len(data)] == list(data), (SEED, text)
        assert docker.with_limit(PATH, changed, limit) == changed
        if "memlock" not in data.get("default-ulimits", {}):
            back = docker.without_limit(PATH, changed, Limits(limit, limit))
            kept = {key: value for key, value in data.items() if key != "default-ulimits" or value}
            assert (json.loads(back) if back else {}) == kept, (SEED, text)
            # All that was there before still stands there, in its order and letter by letter.
            rest = iter(changed)
            assert not data or all(letter in rest for letter in text.strip("\r\n ")), (SEED, text)


@pytest.mark.parametrize("text", ["", " \n", "{}", "{ }\n"])
def test_file_with_nothing_in_it(text):
    changed = docker.with_limit(PATH, text, -1)
    assert json.loads(changed) == {"default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}}
    assert docker.without_limit(PATH, changed) is None


def test_value_that_somebody_changed_since_is_theirs():
    changed = docker.with_limit(PATH, '{"a": 1}', -1).replace('"Hard": -1', '"Hard": 64').replace('"Soft": -1', '"Soft": 64')
    assert docker.without_limit(PATH, changed, Limits(-1, -1)) == changed
