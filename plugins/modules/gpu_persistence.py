#!/usr/bin/python

# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_persistence
short_description: Persistence mode of NVIDIA GPUs now and at boot, proven on each GPU
version_added: 1.0.0
description:
  - Keeps GPUs initialised while no program uses them, by C(nvidia-persistenced) where the host has it and by NVML for
    what is left, and reads the mode back from each GPU.
  - An enabled and active daemon proves nothing, as some distributions start it with C(--no-persistence-mode) from a unit
    that can't be enabled. So the effective command line is read, and a drop-in changes only the flag.
  - A host whose driver came without a unit gets one of this collection, which runs the daemon or, without a daemon, sets
    the mode through NVML at boot. Neither needs Ansible.
  - Without a GPU nothing is started; the unit is prepared for the day one is there.
  - One lost GPU hides no other. The others are set, and the module fails at the end.
extends_documentation_fragment:
  - ai_infra.gpu_host._attributes
  - ai_infra.gpu_host._common
options:
  mode:
    description:
      - Persistence mode. With V(off) the driver initialises a GPU anew for every first client.
    type: str
    choices: ["on", "off"]
    default: "on"
  gpus:
    description:
      - V(all), or GPUs by UUID, PCI bus id or index, mixed freely. Put quotes around PCI bus ids.
      - Some GPUs only means NVML, as the daemon sets all alike. An index is refused while NVML counts other GPUs than the
        PCI bus.
    type: list
    elements: str
    default: [all]
  method:
    description:
      - V(daemon) uses C(nvidia-persistenced) alone, V(nvml) leaves it alone, V(auto) takes the daemon first and NVML for
        the GPUs it did not set.
    type: str
    choices: [auto, daemon, nvml]
    default: auto
  uvm:
    description:
      - Whether the daemon keeps the UVM driver persistent as well (driver 550.40.07 and newer). The unit's own choice stays
        when this is left out.
    type: bool
  unmask:
    description:
      - Whether a masked unit may be unmasked. Otherwise V(auto) of O(method) goes through NVML, and V(daemon) fails.
    type: bool
    default: false
  force:
    description:
      - Switch off also where that loses more than time, on GPUs whose memory is a NUMA node of the host and under
        confidential computing.
    type: bool
    default: false
  allow_restart:
    description:
      - Whether a daemon that runs with other flags may be restarted. Persistence is off on every GPU for a moment then.
        Otherwise NVML sets the mode now, the drop-in does so from the next boot on, and RV(restart_required) names the
        unit.
      - To reach O(mode=off) a daemon that keeps it on is restarted or stopped without asking.
    type: bool
    default: false
  pynvml_path:
    description:
      - Directory with C(pynvml.py) to use on the host. Set by the action plugin when it brings the controller's copy to a
        node that lacks it; there is no need to set it.
    type: path
author:
  - ai_infra contributors (@ai-infra)
requirements:
  - nvidia-ml-py (Python package) on the controller, or on the host
seealso:
  - module: ai_infra.gpu_host.host_profile
notes:
  - The node's own C(pynvml) is used when it knows every call this collection makes. Otherwise the controller's is copied
    to C(/var/lib/ai_infra.gpu_host), and in check mode only to Ansible's temporary directory.
  - In a container without the daemon's socket the mode can read off though the host has it on.
"""

EXAMPLES = r"""
- name: Persistence on, now and after every boot
  ai_infra.gpu_host.gpu_persistence:
    mode: "on"

- name: Restart a daemon that runs with the wrong flag, on a drained node
  ai_infra.gpu_host.gpu_persistence:
    allow_restart: true

- name: Two GPUs only, through NVML
  ai_infra.gpu_host.gpu_persistence:
    gpus:
      - GPU-243a270e-099d-57b7-89a7-140c0194e470
      - "0000:43:00.0"

- name: Prepare an image, in which no GPU is
  ai_infra.gpu_host.gpu_persistence:
    apply: boot
    unsupported: skip

- name: Persistence off
  ai_infra.gpu_host.gpu_persistence:
    mode: "off"

- name: As it was before
  ai_infra.gpu_host.gpu_persistence:
    state: absent
"""

RETURN = r"""
before:
  description: The mode of each GPU and the unit before the run.
  returned: success, or failure of some GPUs
  type: dict
  sample:
    gpus: {GPU-243a270e-099d-57b7-89a7-140c0194e470: "off"}
    unit: {name: nvidia-persistenced.service, enabled: false, active: true, persistence: "off"}
after:
  description: The same after the run, read back; in check mode the state the run would leave.
  returned: success, or failure of some GPUs
  type: dict
  sample:
    gpus: {GPU-243a270e-099d-57b7-89a7-140c0194e470: "on"}
    unit: {name: nvidia-persistenced.service, enabled: true, active: true, persistence: "on"}
steps:
  description: The plan, in order. The same in check mode.
  returned: success, or failure of some GPUs
  type: list
  elements: dict
  contains:
    action:
      description: What is done.
      type: str
      returned: always
      sample: set_persistence
    target:
      description: On what, a file, a unit or a GPU.
      type: str
      returned: always
      sample: GPU-243a270e-099d-57b7-89a7-140c0194e470
    from:
      description: The value before; empty when there was none.
      type: raw
      returned: always
      sample: "off"
    to:
      description: The value after; empty when it goes.
      type: raw
      returned: always
      sample: "on"
    known:
      description: V(after_apply) when only an earlier step showed that it was needed.
      type: str
      returned: when it applies
      sample: after_apply
  sample:
    - action: set_persistence
      target: GPU-243a270e-099d-57b7-89a7-140c0194e470
      from: "off"
      to: "on"
gpus:
  description: Every chosen GPU.
  returned: success, or failure of some GPUs
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID; empty when the GPU can't be asked.
      type: str
      returned: always
      sample: GPU-243a270e-099d-57b7-89a7-140c0194e470
    pci:
      description: PCI bus id.
      type: str
      returned: always
      sample: "0000:1b:00.0"
    index:
      description: Index in NVML.
      type: int
      returned: always
      sample: 0
    before:
      description: Mode before the run; empty when it can't be told.
      type: str
      returned: always
      sample: "off"
    after:
      description: Mode after the run, read back.
      type: str
      returned: always
      sample: "on"
    supported:
      description: Whether the GPU has a persistence mode here (not so on WSL and for some virtual GPUs).
      type: bool
      returned: always
      sample: true
    error:
      description: Why the GPU could not be asked or set.
      type: str
      returned: always
      sample:
  sample:
    - uuid: GPU-243a270e-099d-57b7-89a7-140c0194e470
      pci: "0000:1b:00.0"
      index: 0
      before: "off"
      after: "on"
      supported: true
      error: null
unit:
  description: The unit that keeps the mode at boot, after the run.
  returned: success, or failure of some GPUs
  type: dict
  contains:
    name:
      description: Its name, C(nvidia-persistenced.service) or C(ai-infra-gpu-host-persistence.service).
      type: str
      returned: always
      sample: nvidia-persistenced.service
    variant:
      description: The form of C(nvidia-persistenced.service) on this host, V(packaged), V(static) without an C([Install])
        section, V(shadowed) by a file in C(/etc), V(masked), or V(absent), also when RV(unit.name) is a unit of ours.
      type: str
      returned: always
      sample: static
    path:
      description: Its file.
      type: str
      returned: always
      sample: /usr/lib/systemd/system/nvidia-persistenced.service
    drop_ins:
      description: Its drop-ins, in the order in which they are read.
      type: list
      elements: str
      returned: always
      sample: [/etc/systemd/system/nvidia-persistenced.service.d/90-ai-infra-gpu-host.conf]
    exec_start:
      description: The command that these files come to.
      type: str
      returned: always
      sample: /usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose --persistence-mode
    enabled:
      description: Whether boot starts it.
      type: bool
      returned: always
      sample: true
    active:
      description: Whether it runs.
      type: bool
      returned: always
      sample: true
    condition:
      description: Whether its condition was met at the last start; empty when it was never tried.
      type: bool
      returned: always
      sample: true
  sample:
    name: nvidia-persistenced.service
    variant: packaged
    path: /usr/lib/systemd/system/nvidia-persistenced.service
    drop_ins: []
    exec_start: /usr/bin/nvidia-persistenced --user nvidia-persistenced
    enabled: true
    active: true
    condition: true
method:
  description: What keeps the mode, V(daemon) or V(nvml).
  returned: success, or failure of some GPUs
  type: str
  sample: daemon
driver_version:
  description: Version of the loaded driver.
  returned: success, or failure of some GPUs
  type: str
  sample: 580.95.05
survives_reboot:
  description: Whether a reboot brings the mode back.
  returned: success, or failure of some GPUs
  type: bool
  sample: true
survives_reason:
  description: Why.
  returned: success, or failure of some GPUs
  type: str
  sample: nvidia-persistenced.service starts with persistence on
conflicts:
  description: Who else decides on persistence at boot, drop-ins after ours and other units.
  returned: success, or failure of some GPUs
  type: list
  elements: dict
  contains:
    where:
      description: File and line.
      type: str
      returned: always
      sample: /etc/systemd/system/gpu-tune.service:3
    value:
      description: The mode it sets; empty when it can't be told.
      type: str
      returned: always
      sample: "off"
    wanted:
      description: The mode asked for.
      type: str
      returned: always
      sample: "on"
    wins:
      description: Whether it has the last word at boot.
      type: bool
      returned: always
      sample: true
    message:
      description: The same in a sentence.
      type: str
      returned: always
      sample: /etc/systemd/system/gpu-tune.service:3 runs nvidia-smi with persistence off at boot
  sample: []
restart_required:
  description: Units that still run with other flags.
  returned: success, or failure of some GPUs
  type: list
  elements: str
  sample: [nvidia-persistenced.service]
reload_pending:
  description: Why a daemon-reload is due that was not safe to do now, else V(false).
  returned: success, or failure of some GPUs
  type: raw
  sample: false
reboot_required:
  description: Whether the setting needs a reboot to take effect.
  returned: success, or failure of some GPUs
  type: bool
  sample: false
reboot_reason:
  description: Why a reboot is needed.
  returned: success, or failure of some GPUs
  type: str
  sample:
supported:
  description: Whether this host can have the setting.
  returned: success, or failure of some GPUs
  type: bool
  sample: true
reason:
  description: Why it can't.
  returned: success, or failure of some GPUs
  type: str
  sample:
nvml_binding:
  description: What the node lacks to talk to NVML, C(state) being V(missing) or V(too_old).
  returned: when the controller has none to bring
  type: dict
  sample:
    state: missing
"""

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import run_module
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import gpu_persistence


def main():
    run_module(gpu_persistence)


if __name__ == "__main__":
    main()
