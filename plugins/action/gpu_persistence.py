# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.ai_infra.gpu_host.plugins.plugin_utils._pynvml import BringsPynvml


class ActionModule(BringsPynvml):
    """gpu_persistence, with pynvml brought to nodes that lack it."""
