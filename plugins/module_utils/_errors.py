# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one error family of the collection. Private: may change at any time.

Every message says what was tried, on what, why it failed and what to do.
Low layers raise; only the module's C(main) turns an error into C(fail_json).
"""

from __future__ import annotations


class GpuHostError(Exception):
    """What was tried, on what, why it failed, and what the user can do."""

    def __init__(self, tried, target, why, remedy="", **details):
        super().__init__(tried, target, why, remedy)
        self.tried = tried
        self.target = target
        self.why = why
        self.remedy = remedy
        self.details = details

    def __str__(self):
        text = "Cannot %s %s: %s." % (self.tried, self.target, str(self.why).rstrip("."))
        return "%s %s." % (text, self.remedy.rstrip(".")) if self.remedy else text


class BadInput(GpuHostError):
    """A value from the user that can't be used. Raised before anything is touched."""


class HostError(GpuHostError):
    """The machine refused a read, a write or a command."""


class Conflict(GpuHostError):
    """Something else decides the value and the user asked us to fail on that."""


class Unsupported(GpuHostError):
    """This host can't have the setting; C(why) is the reason reported to the user."""


class NvmlError(GpuHostError):
    """An NVML call failed. C(kind) is one of the words in C(_nvml.KINDS)."""

    def __init__(self, kind, tried, target, why, remedy="", code=None, **details):
        super().__init__(tried, target, why, remedy, **details)
        self.kind = kind
        self.code = code
