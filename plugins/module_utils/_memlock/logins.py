# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which ways to log in ask pam_limits at all. Pure."""

from __future__ import annotations

import re

SERVICES = ("sshd", "login", "su", "su-l", "runuser", "cron", "crond", "systemd-user", "slurm", "sudo", "gdm-password")
MODULE = re.compile(r"^-?session\s+(\[[^\]]*\]|\S+)\s+\S*pam_limits\.so\b(.*)$")
INCLUDE = re.compile(r"^(?:@include\s+(\S+)|-?session\s+(?:include|substack)\s+(\S+))")


def asks_pam_limits(service, read):
    """(whether the service's stack has pam_limits, the file its conf= names). C(read(name)) gives a stack's text."""
    seen = set()

    def visit(name):
        if name in seen or len(seen) > 50:
            return None
        seen.add(name)
        for line in (read(name) or "").replace("\\\n", " ").splitlines():
            code = line.partition("#")[0].strip()
            match = MODULE.match(code)
            if match:
                conf = re.search(r"\bconf=(\S+)", match.group(2))
                return True, conf.group(1) if conf else None
            match = INCLUDE.match(code)
            if match:
                found = visit(match.group(1) or match.group(2))
                if found:
                    return found
        return None

    return visit(service) or (False, None)


def use_pam(files):
    """(whether sshd asks PAM, where that is said). C(files) are (path, text) in reading order; the first word counts.

    Without a word sshd does not ask.
    """
    for path, text in files:
        for number, line in enumerate((text or "").splitlines(), 1):
            words = re.split(r"[\s=]+", line.strip().lower(), maxsplit=2)
            if words[0] == "match":
                break
            if words[0] == "usepam" and len(words) > 1:
                return words[1].strip('"') == "yes", "%s:%d" % (path, number)
    return False, files[0][0] if files else None
