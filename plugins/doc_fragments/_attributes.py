# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module of this collection can and can't do. Private to the collection: may change at any time."""

from __future__ import annotations


class ModuleDocFragment:
    # Modules that change the host.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and say what it would change, without changing anything.
    support: full
  diff_mode:
    description: Returns what has changed, or in check mode what would change, as before and after.
    support: full
  idempotent:
    description: A second run with the same options, outside of check mode, changes nothing.
    support: full
  platform:
    description: Systems it works on.
    support: full
    platforms: Linux with systemd
  action_group:
    description: Options that several modules share can be set once, with C(module_defaults) for this group.
    support: full
    membership:
      - ai_infra.gpu_host.gpu_host
"""

    # Modules that only look: ai_infra.gpu_host._attributes.facts
    FACTS = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode, with the same result, as it changes nothing.
    support: full
  diff_mode:
    description: Returns what has changed, or in check mode what would change, as before and after.
    support: N/A
    details:
      - It changes nothing.
  facts:
    description: Returns facts that are kept with the host's other facts.
    support: full
  idempotent:
    description: A second run with the same options changes nothing.
    support: full
  platform:
    description: Systems it works on.
    support: full
    platforms: Linux
  action_group:
    description: Options that several modules share can be set once, with C(module_defaults) for this group.
    support: full
    membership:
      - ai_infra.gpu_host.gpu_host
"""
