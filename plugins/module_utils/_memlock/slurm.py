# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether Slurm gives a job the limit of the node, or drags along the one of the submit host. Pure."""

from __future__ import annotations

import re

PATHS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/var/spool/slurmd/conf-cache/slurm.conf",
         "/etc/slurm-llnl/slurm.conf", "/opt/slurm/etc/slurm.conf", "/usr/local/etc/slurm.conf")
WORD = re.compile(r"^\s*(PropagateResourceLimits(?:Except)?)\s*=\s*\"?([^\s#\"]+)", re.IGNORECASE)
INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE)


def includes(text):
    """Files a slurm.conf includes, as written there."""
    return [match.group(1) for match in map(INCLUDE.match, (text or "").splitlines()) if match]


def propagation(files):
    """(whether MEMLOCK is propagated, where that is said). C(files) are (path, text) in reading order.

    Without a word about it Slurm propagates all limits.
    """
    propagated, where = True, files[0][0] if files else None
    for path, text in files:
        for number, line in enumerate((text or "").splitlines(), 1):
            match = WORD.match(line)
            if match:
                names = {name.strip().upper() for name in match.group(2).split(",")}
                named = bool(names & {"MEMLOCK", "ALL"})
                propagated = not named if match.group(1).lower().endswith("except") else named
                where = "%s:%d" % (path, number)
    return propagated, where
