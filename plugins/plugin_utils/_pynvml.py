# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the modules that talk to NVML: brings the binding to nodes that have none. Private.

The module says that its binding is missing or too old, before it has changed anything. Then the controller's own
pynvml.py goes into Ansible's temporary directory on the node and the module is called once more. A node that has
what it needs gets one call.
"""

from __future__ import annotations

import importlib.util
import sys

from ansible.plugins.action import ActionBase

REMEDY = ("Install nvidia-ml-py for the Python that runs Ansible on the controller (%s), or on the node. The package "
          "pynvml on PyPI is another project.")


def binding_on_controller():
    """Path of the controller's pynvml.py, or None."""
    spec = importlib.util.find_spec("pynvml")
    return spec.origin if spec is not None and spec.origin and spec.origin.endswith("pynvml.py") else None


class BringsPynvml(ActionBase):
    """An action plugin that runs its module, and once more with the controller's pynvml.py where that is asked for."""

    _requires_connection = True
    _supports_check_mode = True
    _supports_async = False
    # Whether a node without the binding is worth a failure: facts have other sources.
    needs_binding = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        try:
            return self._run_module(task_vars or {})
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _run_module(self, task_vars):
        arguments = dict(self._task.args)
        first = self._call(arguments, task_vars)
        state = (first.get("nvml_binding") or {}).get("state")
        if state not in ("missing", "too_old") or arguments.get("pynvml_path"):
            return first
        source = binding_on_controller()
        if source is None:
            return self._without_binding(first, state)
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        folder = self._connection._shell.tmpdir
        path = self._transfer_file(source, self._connection._shell.join_path(folder, "pynvml.py"))
        self._fixup_perms2((folder, path))
        second = self._call(dict(arguments, pynvml_path=folder), task_vars)
        second["changed"] = bool(first.get("changed") or second.get("changed"))
        return second

    def _call(self, arguments, task_vars):
        return self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=self._task.async_val)

    def _without_binding(self, first, state):
        why = "the node's pynvml is %s and the controller has none to bring. %s" % (
            state.replace("_", " "), REMEDY % sys.executable)
        if first.get("failed") or self.needs_binding:
            first.update(failed=True, msg="Cannot talk to NVML: %s" % why)
        else:
            first.setdefault("warnings", []).append("NVML was left out: %s" % why)
        return first
