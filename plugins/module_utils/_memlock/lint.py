# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others wrote that does not do what it says: where it stands, its effect, the remedy. Pure."""

from __future__ import annotations

import re

from . import docker, pam, value
from .units import DEFAULT_KEY, KEY

RDMA_FLOOR = 512 * 1024 ** 2


def finding(where, text, effect, remedy):
    return {"where": where, "text": text, "effect": effect, "remedy": remedy}


def sentence(row):
    """A finding as a warning."""
    return "%s: %s: %s. %s." % (row["where"], row["text"], row["effect"], row["remedy"])


def summary(rows):
    """All findings as one warning: the first in full, how many more there are."""
    if not rows:
        return []
    more = " (%d more in findings)" % (len(rows) - 1) if len(rows) > 1 else ""
    return [sentence(rows[0]) + more]


# limits.conf

def limits_file(path, content):
    """Lines about locked memory in one limits file."""
    rows = []
    lines = [line for line in pam.parse(path, content) if "memlock" in [word.lower() for word in line.words[1:3]]]
    if not lines:
        return []
    name = path.rsplit("/", 1)[1]
    if path != pam.MAIN and (not name.endswith(".conf") or name.startswith(".")):
        return [finding(path, "the name does not end in .conf, or starts with a dot", "pam_limits does not read the file",
                        "Rename or remove it")]
    if "\r\n" in content:
        rows.append(finding(path, "lines end in CR LF",
                            "since PAM 1.7 a line whose value is a word, such as unlimited, is dropped",
                            "Convert it with sed -i 's/\\r$//'"))
    for line in lines:
        fault = limits_line(line.words)
        if fault:
            rows.append(finding(line.where, " ".join(line.words), *fault))
    return rows + soft_over_hard(lines)


def limits_line(words):
    """(effect, remedy) of a line that is not what it seems; None for a sound one."""
    if len(words) < 4 or words[2].lower() != "memlock":
        return "the line is dropped, as it has no four words", "Write it like %s - memlock unlimited" % words[0]
    domain, kind, item, text = words[:4]
    if kind.lower() not in ("soft", "hard", "-"):
        return "the line is dropped, as its type is unknown", "The second word is soft, hard or -"
    if pam.id_range(domain) is False:
        return "the line is dropped, as its range of ids is broken", "Write it like 1000: or 1000:2000"
    if domain.startswith("%"):
        return "the line does nothing, as % is about the number of logins", "Write @%s" % (domain[1:] or "GROUP")
    limit = pam.kilobytes(text)
    if limit is None:
        return "the line is dropped, as its value is neither a number nor unlimited", "Write unlimited, or a number of kB"
    if limit != value.UNLIMITED and not re.match(r"^\+?\d+$", text):
        return "the value is read as %d kB, what follows the digits is ignored" % (limit // 1024), hint(text)
    if len(words) > 4:
        effect = "the value is read as %s alone, what follows is ignored" % text
        if limit == value.UNLIMITED:
            return effect + "; since PAM 1.7 the line is dropped", "Write nothing after the value"
        return effect, hint("".join(words[3:]))
    return None


def hint(text):
    """The number of kB that was probably meant."""
    match = re.match(r"^(\d+)\s*([kmgt])", text, re.IGNORECASE)
    if not match:
        return "Write a decimal number of kB, without a unit"
    size = int(match.group(1)) * 1024 ** value.POWERS[match.group(2).lower()]
    return "The unit is kB and can't be named: write %d" % (size // 1024)


def soft_over_hard(lines):
    """Pairs of one domain whose soft limit is over the hard one."""
    last = {}
    for line in lines:
        if len(line.words) >= 4 and pam.kilobytes(line.words[3]) is not None:
            for kind in ("soft", "hard"):
                if line.words[1].lower() in (kind, "-"):
                    last.setdefault(line.words[0], {})[kind] = (pam.kilobytes(line.words[3]), line)
    rows = []
    for domain, pair in last.items():
        if len(pair) == 2 and value.worth(pair["soft"][0]) > value.worth(pair["hard"][0]):
            line = pair["soft"][1]
            rows.append(finding(line.where, " ".join(line.words),
                                "the soft limit is cut to the hard one of %s" % pair["hard"][1].where,
                                "Raise the hard limit, or write one line with -"))
    return rows


# systemd

def unit_settings(rows, section):
    """Values of a unit or manager file that systemd ignores."""
    found = []
    wanted = DEFAULT_KEY if section == "Manager" else KEY
    for row in rows:
        if row.key not in (KEY, DEFAULT_KEY):
            continue
        text = "%s=%s" % (row.key, row.value)
        if row.key != wanted or row.section != section:
            found.append(finding(row.where, text, "systemd ignores it in the section [%s] of this file" % row.section,
                                 "Write %s= in [%s]" % (wanted, section)))
        elif value.from_systemd(row.value) is None:
            found.append(finding(row.where, text, "systemd can't parse the value and keeps the one before it",
                                 systemd_remedy(row.value)))
    return found


def systemd_remedy(text):
    if text.lower() in ("unlimited", "-1", "-", "infinity"):
        return "Write infinity"
    match = re.match(r"^(\d+)\s*([kmgtpe])i?b$", text, re.IGNORECASE)
    if match:
        return "Write %s%s" % (match.group(1), match.group(2).upper())
    if ":" in text:
        return "Write soft:hard with the soft limit at most the hard one"
    return "Write infinity, a number of bytes, or one with K, M, G or T"


# Docker

def daemon_json(path, data):
    """Ulimits that Docker refuses, ignores, or trips over when it starts a container."""
    rows = []
    if "default-ulimit" in data:
        rows.append(finding(path, "default-ulimit", "dockerd ignores it, the key of the file is the plural",
                            "Write %s" % docker.SECTION))
    for name, entry in (data.get(docker.SECTION) or {}).items():
        effect = ulimit_fault(entry)
        if effect:
            rows.append(finding(path, "%s.%s" % (docker.SECTION, name), effect,
                                "Write it like {\"Name\": \"%s\", \"Hard\": -1, \"Soft\": -1}" % name))
    return rows


def ulimit_fault(entry):
    """What is wrong with one entry of default-ulimits; None for a sound one."""
    if not isinstance(entry, dict):
        return None if entry is None else "dockerd does not start, it wants an object"
    entry = {key.lower(): entry[key] for key in entry}
    soft, hard = entry.get("soft", 0), entry.get("hard", 0)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in (soft, hard)):
        return "dockerd does not start, Hard and Soft have to be whole numbers"
    if not entry.get("name"):
        return "no container starts, as the entry has no Name"
    return "no container starts, as Soft is over Hard" if value.worth(soft) > value.worth(hard) else None


def too_small(label, where, limit):
    """A limit RDMA libraries give up at; C(None) when it is enough."""
    if limit is None or value.worth(limit) >= RDMA_FLOOR:
        return None
    return finding(where, "%s has %s bytes of locked memory" % (label, value.shown(limit)),
                   "this host has RDMA devices, and UCX and NCCL leave RDMA alone below 512 MiB",
                   "Raise it, best to unlimited")
