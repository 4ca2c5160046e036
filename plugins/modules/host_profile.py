#!/usr/bin/python

# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_profile
short_description: Several knobs of a GPU host in one round trip
version_added: 1.0.0
description:
  - Takes an ordered list of knobs with their parameters, checks each against its own module's options, plans them in
    order on the state the earlier ones will leave, applies and reads back.
  - Everything is planned before the first change, so bad input anywhere in the list leaves the host alone, and check
    mode is truthful across knobs.
  - A failing knob stops the list; what was done is reported.
extends_documentation_fragment:
  - ai_infra.gpu_host._attributes
options:
  knobs:
    description:
      - The knobs in the order they are applied. Each entry has one key, the name of a module of this collection
        (C(gpu_persistence), C(numa_affinity_facts), C(memlock_limits), C(thp_mode), C(kernel_values)), and as its value
        that module's options.
      - A second key C(when) with a false value leaves the knob out.
    type: list
    elements: dict
    required: true
  pynvml_path:
    description:
      - Directory with C(pynvml.py) to use on the host. Set by the action plugin when it brings the controller's copy to a
        node that lacks it; there is no need to set it.
    type: path
author:
  - ai_infra contributors (@ai-infra)
seealso:
  - module: ai_infra.gpu_host.gpu_persistence
  - module: ai_infra.gpu_host.numa_affinity_facts
  - module: ai_infra.gpu_host.memlock_limits
  - module: ai_infra.gpu_host.thp_mode
  - module: ai_infra.gpu_host.kernel_values
"""

EXAMPLES = r"""
- name: Two knobs, one call
  ai_infra.gpu_host.host_profile:
    knobs:
      - gpu_persistence:
          mode: "on"
          unsupported: skip
      - thp_mode:
          enabled: always
          defrag: defer+madvise

- name: Both as they were before
  ai_infra.gpu_host.host_profile:
    knobs:
      - thp_mode:
          state: absent
      - gpu_persistence:
          state: absent
"""

RETURN = r"""
knobs:
  description: The result of every knob that ran, in the words of its own module.
  returned: success, or failure of one knob
  type: dict
  sample:
    thp_mode:
      changed: true
      supported: true
steps:
  description: The steps of all knobs in order. The same in check mode.
  returned: success, or failure of one knob
  type: list
  elements: dict
  sample:
    - knob: thp_mode
      action: write_kernel
      target: /sys/kernel/mm/transparent_hugepage/enabled
      from: madvise
      to: always
conflicts:
  description: What else decides one of the values at boot, of all knobs.
  returned: success, or failure of one knob
  type: list
  elements: dict
  sample: []
restart_required:
  description: Units and programs that still run with an old value.
  returned: success, or failure of one knob
  type: list
  elements: str
  sample: [slurmd.service]
reload_pending:
  description: Whether a daemon-reload is due that was not safe to do now.
  returned: success, or failure of one knob
  type: bool
  sample: false
reboot_required:
  description: Whether a setting needs a reboot to take effect.
  returned: success, or failure of one knob
  type: bool
  sample: false
reboot_reason:
  description: Why a reboot is needed.
  returned: success, or failure of one knob
  type: str
  sample:
unsupported:
  description: Knobs this host can't have, with the reason.
  returned: success, or failure of one knob
  type: dict
  sample:
    thp_mode: this kernel has no transparent huge pages
failed_knob:
  description: The knob that failed.
  returned: failure of one knob
  type: str
  sample: gpu_persistence
ansible_facts:
  description: Facts of C(numa_affinity_facts) when it is in the list.
  returned: success
  type: dict
  contains:
    gpu_host_topology:
      description: See M(ai_infra.gpu_host.numa_affinity_facts).
      type: dict
      returned: when it is in the list
      sample: {}
"""

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import run_module
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import host_profile


def main():
    run_module(host_profile)


if __name__ == "__main__":
    main()
