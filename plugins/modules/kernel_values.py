#!/usr/bin/python

# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_values
short_description: Kernel values (sysctls) now, at boot, and who decides them there
version_added: 1.0.0
description:
  - Sets values below C(/proc/sys) in the running kernel, keeps them in one sysctl.d drop-in of ours and reads them back.
  - Computes for every key which file and line has the last word at boot, over all sysctl.d directories, C(/etc/sysctl.conf)
    where it counts and the active TuneD profile, and names it when it is not ours.
  - Writes only the keys asked for; nobody else's file is re-applied.
extends_documentation_fragment:
  - ai_infra.gpu_host._attributes
  - ai_infra.gpu_host._common
options:
  values:
    description:
      - Keys and values, for instance C(vm.swappiness) and V(0). Both spellings, with dots and with slashes, are accepted.
      - C(vm.min_free_kbytes) is a lower bound, as the kernel raises it by itself.
    type: dict
    default: {}
author:
  - ai_infra contributors (@ai-infra)
seealso:
  - module: ai_infra.gpu_host.host_profile
  - module: ai_infra.gpu_host.thp_mode
notes:
  - With C(vm.swappiness=0) and a memory limit, a job is killed rather than swapped.
  - The drop-in holds the keys of the last run; a key dropped from O(values) leaves it and keeps its runtime value until reboot.
"""

EXAMPLES = r"""
- name: No swapping of anonymous memory, no page migration behind a pinned job
  ai_infra.gpu_host.kernel_values:
    values:
      vm.swappiness: 0
      kernel.numa_balancing: 0
    unsupported: skip

- name: As it was before
  ai_infra.gpu_host.kernel_values:
    state: absent
"""

RETURN = r"""
before:
  description: The state before the run.
  returned: success
  type: dict
  sample: {runtime: {vm.swappiness: "60"}, boot: {vm.swappiness: null}, decided_by: {vm.swappiness: null}}
after:
  description: The state after the run, read back; in check mode the state the run would leave. Same shape as RV(before).
  returned: success
  type: dict
  sample:
    runtime: {vm.swappiness: "0"}
    boot: {vm.swappiness: "0"}
    decided_by: {vm.swappiness: "/etc/sysctl.d/zz-ai-infra-gpu-host.conf:2"}
steps:
  description: The plan, in order. The same in check mode.
  returned: success
  type: list
  elements: dict
  contains:
    action:
      description: What is done.
      type: str
      returned: always
      sample: write_kernel
    target:
      description: On what, a file, a unit or a GPU.
      type: str
      returned: always
      sample: /proc/sys/vm/swappiness
    from:
      description: The value before; empty when there was none.
      type: raw
      returned: always
      sample: "60"
    to:
      description: The value after; empty when it goes.
      type: raw
      returned: always
      sample: "0"
    known:
      description: V(after_apply) when the value can only be known after an earlier step.
      type: str
      returned: when it applies
      sample: after_apply
  sample:
    - action: write_kernel
      target: /proc/sys/vm/swappiness
      from: "60"
      to: "0"
conflicts:
  description: What else decides one of the values, and wins over this module at boot.
  returned: success
  type: list
  elements: dict
  contains:
    where:
      description: File and line, unit, or kernel command line.
      type: str
      returned: always
      sample: /etc/rc.local:3
    value:
      description: The value it sets; empty when it can't be told.
      type: str
      returned: always
      sample: "60"
    wanted:
      description: The value asked for.
      type: str
      returned: always
      sample: "0"
    wins:
      description: Whether it has the last word at boot.
      type: bool
      returned: always
      sample: true
    message:
      description: The same in a sentence.
      type: str
      returned: always
      sample: /etc/rc.local:3 sets the value at boot, after us
  sample: []
restart_required:
  description: Programs that still run with the old value.
  returned: success
  type: list
  elements: str
  sample: []
reload_pending:
  description: Whether a daemon-reload is due that was not safe to do now.
  returned: success
  type: raw
  sample: false
reboot_required:
  description: Whether the setting needs a reboot to take effect.
  returned: success
  type: bool
  sample: false
reboot_reason:
  description: Why a reboot is needed.
  returned: success
  type: str
  sample:
supported:
  description: Whether this host can have the setting.
  returned: success
  type: bool
  sample: true
reason:
  description: Why it can't.
  returned: success
  type: str
  sample:
"""

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import run_module
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import kernel_values


def main():
    run_module(kernel_values)


if __name__ == "__main__":
    main()
