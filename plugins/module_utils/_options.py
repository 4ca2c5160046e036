# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options every changing knob shares. Documented once, in the doc fragment C(common). Pure data."""

from __future__ import annotations

COMMON = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "apply": {"type": "str", "choices": ["now", "boot", "both"], "default": "both"},
    "unsupported": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "conflicts": {"type": "str", "choices": ["warn", "fail"], "default": "warn"},
}
