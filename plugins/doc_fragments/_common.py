# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that every changing module shares (ARGUMENT_SPEC: module_utils/_options.py). Private to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description:
      - V(present) brings the host to the wanted values.
      - V(absent) removes exactly what this module wrote and puts kernel values back to what they were before its first
        change. A file that somebody edited since keeps their part.
    type: str
    choices: [present, absent]
    default: present
  apply:
    description:
      - Which layers to bring to the wanted state, the running system, what the next boot reads, or both.
      - V(boot) suits image builds in a chroot, as it leaves the running kernel alone.
    type: str
    choices: [now, boot, both]
    default: both
  unsupported:
    description:
      - What to do when this host can't have the setting. V(fail) fails before any change, V(skip) reports
        RV(ignore:supported=false) with the reason.
    type: str
    choices: [fail, skip]
    default: fail
  conflicts:
    description:
      - What to do when something else will decide the value at boot. V(warn) names it, V(fail) fails before any change.
    type: str
    choices: [warn, fail]
    default: warn
"""
