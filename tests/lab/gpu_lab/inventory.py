# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An Ansible inventory in YAML, written without a YAML library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def render(
    hosts: Mapping[str, Mapping[str, str]], common: Mapping[str, str], groups: Mapping[str, Sequence[str]]
) -> str:
    lines = ["---", "all:", "  children:", "    gpu_nodes:", "      hosts:" if hosts else "      hosts: {}"]
    for name, variables in hosts.items():
        lines.append(f"        {name}:")
        lines += [f"          {key}: {json.dumps(value)}" for key, value in variables.items()]
    lines.append("      vars:")
    lines += [f"        {key}: {json.dumps(value)}" for key, value in common.items()]
    if groups:
        lines.append("      children:")
    for group, members in groups.items():
        lines += [f"        {group}:", "          hosts:" if members else "          hosts: {}"]
        lines += [f"            {name}: {{}}" for name in members]
    return "\n".join(lines) + "\n"
