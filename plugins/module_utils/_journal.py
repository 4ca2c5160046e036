# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal of originals: what was there before our first change. Private: may change at any time.

One root-owned JSON file a knob, written before the change it covers. A kernel value is recorded once, by the
first change. A file is recorded with its original text and the text we put there; C(state=absent) puts it back
byte for byte only while it still is our text, otherwise only our lines go.
"""

from __future__ import annotations

import json
import os.path

from ._errors import HostError

SCHEMA = 1
STATE_DIR = "/var/lib/ai_infra.gpu_host"
FOLDER = STATE_DIR + "/journal"
SECTIONS = ("values", "files", "folders", "others")


def journal_path(knob):
    return "%s/%s.json" % (FOLDER, knob)


def load(host, knob):
    """The journal of a knob; an empty one when there is none. Every section is present."""
    text = host.read(journal_path(knob))
    journal = {"schema": SCHEMA, "values": {}, "files": {}, "folders": [], "others": {}}
    if text is None:
        return journal
    try:
        found = json.loads(text)
        if found["schema"] > SCHEMA:
            raise HostError("read", journal_path(knob), "it was written by a newer release of this collection",
                            "Upgrade the collection on the controller")
        for section in SECTIONS:
            journal[section] = found.get(section, journal[section])
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise HostError("read", journal_path(knob), "it is damaged (%s)" % err,
                        "Restore it from a backup, or move it away and lose the recorded originals")
    return journal


def save(host, knob, journal):
    host.make_dir(STATE_DIR)
    host.make_dir(FOLDER, 0o700)
    host.replace(journal_path(knob), json.dumps(journal, indent=1, sort_keys=True) + "\n", 0o600)


def record(host, knob, steps):
    """Add the originals of what these steps are about to change; what is recorded already stays."""
    journal = load(host, knob)
    for step in steps:
        if step.action == "write_kernel":
            journal["values"].setdefault(step.target, step.before)
        elif step.action in ("write_file", "remove_file"):
            _record_file(host, journal, step)
        else:
            journal["others"].setdefault(step.action, {}).setdefault(step.target, step.before)
    if journal != load(host, knob):
        save(host, knob, journal)


def _record_file(host, journal, step):
    entry = journal["files"].get(step.target)
    if entry is None:
        info = host.info(step.target)
        entry = journal["files"][step.target] = {
            "original": step.before, "mode": info.mode if info else None, "edited": False,
        }
        folder = os.path.dirname(host.realpath(step.target))
        while folder not in ("/", "") and not host.is_dir(folder):
            if folder not in journal["folders"]:
                journal["folders"].append(folder)
            folder = os.path.dirname(folder)
    elif step.before not in (entry["ours"], entry["original"]):
        entry["edited"] = True  # somebody changed the file after us: their lines must outlive ours
    entry["ours"] = step.after


def undo(host, knob, own_files=(), without_ours=None):
    """Steps that put back what the journal holds: kernel values first, then files.

    C(own_files) are paths only we write: they go even when the journal was lost.
    C(without_ours(path, current, ours)) takes only our part out of a file somebody edited; lines by default.
    """
    from ._plan import Step, file_step, kernel_step

    journal = load(host, knob)
    for path in list(own_files) + list(journal["files"]) + [journal_path(knob)]:
        host.unstage(path)  # what a killed run left
    steps = []
    for path, original in sorted(journal["values"].items()):
        steps += kernel_step(host, path, original)
    for path, entry in sorted(journal["files"].items()):
        current = host.read(path)
        if current is None and entry["original"] is None:
            continue
        if current == entry["ours"] and not entry["edited"]:
            target = entry["original"]
        elif current is None:
            continue  # somebody removed the file: not ours to bring back
        else:
            target = (without_ours or without_lines)(path, current, entry["ours"] or "")
        for step in file_step(host, path, target):
            steps.append(Step(*step[:5], detail=entry["mode"] or 0o644) if step.action == "write_file" else step)
    for path in own_files:
        if path not in journal["files"]:
            steps += file_step(host, path, None)
    return steps


def without_lines(path, current, ours):
    """A text without our lines; None when nothing of anybody else is left."""
    mine = set(ours.splitlines())
    left = [line for line in current.splitlines(True) if line.rstrip("\n") not in mine]
    return "".join(left) if "".join(left).strip() else None


def forget(host, knob):
    """Drop a knob's journal and the directories made for it, while they are empty."""
    journal = load(host, knob)
    for folder in sorted(journal["folders"], key=len, reverse=True):
        host.remove_dir(folder)
    if host.exists(journal_path(knob)):
        host.remove(journal_path(knob))
    host.remove_dir(FOLDER)
    host.remove_dir(STATE_DIR)
