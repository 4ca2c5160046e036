# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""limits.conf as pam_limits reads it: whose line wins, and by what right. Pure.

A line of the user beats one of a group, that one the default; of the same rank the later line wins. Files come in
byte order after limits.conf. A range of user ids ranks as the user. Lines for C(%) are about logins alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .._errors import BadInput
from .value import UNLIMITED, Limits, as_kilobytes

MAIN = "/etc/security/limits.conf"
FOLDER = "/etc/security/limits.d"
OURS = FOLDER + "/zz-ai-infra-gpu-host-memlock.conf"
# openSUSE keeps the vendor's files apart; a file of the same name under /etc replaces them.
VENDOR_MAIN, VENDOR_FOLDER = "/usr/etc/security/limits.conf", "/usr/etc/security/limits.d"
EVERYBODY = "0:"
USER, GROUP, DEFAULT, NOTHING = range(4)
DOMAIN = re.compile(r"^(\*|@?[A-Za-z_][A-Za-z0-9_.-]*\$?|@?\d+:\d*|@?:\d+)$")
USER_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?$")
RANGE = re.compile(r"^(\d*):(\d*)$")
INHERITED = Limits(None, None)


class Line(NamedTuple):
    """One line of a limits file, without its comment. pam_limits looks at the first four words."""

    where: str
    words: list


class Account(NamedTuple):
    """Somebody who logs in. C(label) names him in the result; C(name) may be empty for an example."""

    label: str
    name: str
    uid: int
    gid: int
    groups: tuple = ()
    gids: tuple = ()


class Found(NamedTuple):
    """What pam_limits will set for an account, and the lines that decide; C(None) is inherited."""

    limits: Limits
    soft_where: str
    hard_where: str


def check_domain(text):
    """A domain a user may ask for, as limits.conf writes it. Raises BadInput."""
    if not DOMAIN.fullmatch(text):
        raise BadInput("write a limit for", repr(text), "it is no user, @group, * or range of ids",
                       "Write it like alice, @gpu, 1000: or 0: (everybody, root included)")
    return text


def text(limit, domains):
    """Our file. One line for ids from 0 up reaches everybody, root included, on every distribution."""
    lines = ["# Written by ai_infra.gpu_host.memlock_limits; the next run overwrites changes made here. Unit: kB."]
    lines += ["%s - memlock %s" % (domain, as_kilobytes(limit)) for domain in domains]
    return "\n".join(lines) + "\n"


def read_order(main, names, vendor_names=()):
    """Paths in the order pam_limits reads them. C(main) is the first limits.conf that exists."""
    chosen = {name: VENDOR_FOLDER for name in vendor_names}
    chosen.update({name: FOLDER for name in names})
    files = [name for name in chosen if name.endswith(".conf") and not name.startswith(".")]
    by_bytes = sorted(files, key=lambda name: name.encode("utf-8", "surrogateescape"))
    return [main] + ["%s/%s" % (chosen[name], name) for name in by_bytes]


def parse(path, content):
    """Lines that say something. C(#) starts a comment anywhere; white space is what C says it is."""
    lines = []
    for number, raw in enumerate((content or "").split("\n"), 1):
        words = re.split(r"[ \t\n\v\f\r]+", raw.partition("#")[0].strip(" \t\n\v\f\r"))
        if words != [""]:
            lines.append(Line("%s:%d" % (path, number), words))
    return lines


def kilobytes(word):
    """Bytes in a value as strtoull reads it: the digits in front count, the rest is ignored; None without digits."""
    word = word.lower()
    if word in ("unlimited", "infinity", "-1", "-"):
        return UNLIMITED
    match = re.match(r"^([+-]?)(\d+)", word)
    if not match:
        return None
    number = min(int(match.group(2)), 2 ** 64 - 1)
    if match.group(1) == "-":
        number = -number % 2 ** 64
    return UNLIMITED if number >= (2 ** 64 - 1) // 1024 else number * 1024


def id_range(domain):
    """(lowest, highest) of a range of ids, C(None) for no range, C(False) for a broken one.

    C(:7) is 7 alone, not up to 7; C(7:) has no upper end.
    """
    body = domain[1:] if domain[0] in "@%" else domain
    if ":" not in domain:
        return None
    match = RANGE.fullmatch(body)
    if not match or body == ":":
        return False
    low, high = match.groups()
    if not low:
        return int(high), int(high)
    return int(low), int(high) if high else None


def rank(domain, account, is_debian):
    """By what right a line with this domain reaches the account; None when it doesn't."""
    if domain == account.name:
        return USER
    bounds = id_range(domain)
    # Debian's pam_limits leaves root out of everything but lines for root by name or id.
    skips_root = is_debian and account.uid == 0
    if domain.startswith("@"):
        if skips_root or not _in_group(domain[1:], bounds, account):
            return None
        return GROUP
    if domain.startswith("%"):
        return None
    if bounds is None:
        return DEFAULT if domain == "*" and not skips_root else None
    low, high = bounds
    return USER if account.uid >= low and (high is None or account.uid <= high) else None


def _in_group(name, bounds, account):
    if bounds is None:
        return name in account.groups
    low, high = bounds
    if low == high:
        return low in account.gids or low == account.gid
    return account.gid >= low and (high is None or account.gid <= high)


def winner(lines, account, is_debian, start=INHERITED):
    """What pam_limits sets for an account. C(start) is what it begins with where no line speaks."""
    soft, hard = start
    ranks = {"soft": NOTHING, "hard": NOTHING}
    wheres = {"soft": None, "hard": None}
    for line in lines:
        words = line.words
        if id_range(words[0]) is False:
            continue
        if len(words) == 2 and words[1].startswith("-"):
            if _is_exempt(words[0], account):
                return Found(Limits(None, None), line.where, line.where)
            continue
        if len(words) < 4 or words[2].lower() != "memlock":
            continue
        right = rank(words[0], account, is_debian)
        value = kilobytes(words[3])
        kind = words[1].lower()
        if right is None or value is None or kind not in ("soft", "hard", "-"):
            continue
        if kind in ("soft", "-"):
            if ranks["soft"] < right:
                continue  # pam_limits leaves here, also before the hard half of a "-" line
            soft, ranks["soft"], wheres["soft"] = value, right, line.where
        if kind in ("hard", "-") and ranks["hard"] >= right:
            hard, ranks["hard"], wheres["hard"] = value, right, line.where
    if None not in (soft, hard) and hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
        soft = hard
    return Found(Limits(soft, hard), wheres["soft"], wheres["hard"])


def _is_exempt(domain, account):
    """Whether a C(NAME -) line, which ends all limits, is about the account."""
    if domain == account.name:
        return True
    bounds = id_range(domain)
    if domain.startswith("@"):
        return _in_group(domain[1:], bounds, account)
    if bounds:
        low, high = bounds
        return account.uid >= low and (high is None or account.uid <= high)
    return False
