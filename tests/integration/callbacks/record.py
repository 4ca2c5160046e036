# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Callback that writes every task result of a play to a file, one JSON object a line (GPU_HOST_RECORD)."""

from __future__ import annotations

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: aggregate
short_description: Task results as JSON lines
description: For tests; writes to the file named by the environment variable GPU_HOST_RECORD.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record"
    CALLBACK_NEEDS_ENABLED = True

    def _write(self, status, result):
        row = {"host": result._host.get_name(), "task": result._task.get_name(), "action": result._task.action,
               "status": status, "result": result._result}
        with open(os.environ["GPU_HOST_RECORD"], "a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, default=str) + "\n")

    def v2_runner_on_ok(self, result):
        self._write("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._write("failed", result)

    def v2_runner_on_unreachable(self, result):
        self._write("unreachable", result)
