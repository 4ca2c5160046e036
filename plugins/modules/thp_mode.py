#!/usr/bin/python

# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: thp_mode
short_description: Transparent huge pages now, at boot, and whatever fights them
version_added: 1.0.0
description:
  - Sets the files below C(/sys/kernel/mm/transparent_hugepage) in the running kernel, keeps them over a reboot and reads
    them back.
  - Names every other writer that will win at boot, by file and line. The kernel command line, tmpfiles.d, the active
    TuneD profile with what it includes, systemd units, sysfs.conf, rc.local and init scripts are looked at.
  - V(always) helps copy-heavy training hosts and can hurt under memory pressure; V(never) also switches off what
    frameworks ask for with C(madvise); V(madvise) hurts none of them.
extends_documentation_fragment:
  - ai_infra.gpu_host._attributes
  - ai_infra.gpu_host._common
options:
  enabled:
    description:
      - Top-level switch for anonymous memory.
    type: str
    choices: [always, madvise, never]
  defrag:
    description:
      - How hard the kernel works for a huge page at fault time. A value this kernel does not offer fails with the list of
        those it does (V(defer) came with Linux 4.6, V(defer+madvise) with 4.11).
    type: str
    choices: [always, defer, defer+madvise, madvise, never]
  shmem_enabled:
    description:
      - Huge pages for shared memory, a switch of its own that O(enabled=never) does not touch.
    type: str
    choices: [always, within_size, advise, never, deny, force]
  use_zero_page:
    description:
      - Whether a read fault may map a huge zero page.
    type: bool
  khugepaged:
    description:
      - Values of the background thread. Those not named stay as they are.
    type: dict
    suboptions:
      defrag:
        description: Whether khugepaged may compact memory, 0 or 1.
        type: int
      pages_to_scan:
        description: Pages to scan in each pass.
        type: int
      scan_sleep_millisecs:
        description: Pause between passes, in milliseconds.
        type: int
      alloc_sleep_millisecs:
        description: Pause after a failed allocation, in milliseconds.
        type: int
      max_ptes_none:
        description: Unmapped base pages a huge page may bring in; at most the base pages of a huge page minus one.
        type: int
      max_ptes_swap:
        description: Swapped-out base pages a huge page may bring in.
        type: int
      max_ptes_shared:
        description: Shared base pages a huge page may hold.
        type: int
  sizes:
    description:
      - Switches of single huge page sizes (multi-size THP, Linux 6.8 and newer).
    type: list
    elements: dict
    default: []
    suboptions:
      size:
        description: The size, for instance V(64K), V(2M) or V(2048kB).
        type: str
        required: true
      enabled:
        description: The switch for anonymous memory of this size.
        type: str
        choices: [always, inherit, madvise, never]
      shmem_enabled:
        description: The switch for shared memory of this size (Linux 6.11 and newer).
        type: str
        choices: [always, inherit, within_size, advise, never]
  large_pmd:
    description:
      - What O(enabled=always) means on a kernel whose top-level huge page is larger than 2 MiB, such as arm64 with 64K
        pages, where it is 512 MiB.
      - V(refuse) fails, V(use_2m) sets the 2 MiB size to V(always) and the top level to V(madvise), V(allow) insists.
    type: str
    choices: [refuse, use_2m, allow]
    default: refuse
  provider:
    description:
      - What keeps the values over a reboot.
      - V(tmpfiles) writes a tmpfiles.d file that sorts first. V(tuned) puts a profile of ours on top of the active one.
      - V(auto) is V(tmpfiles), unless TuneD is active, its profile sets one of the wanted values and
        O(allow_tuned_switch=true).
    type: str
    choices: [auto, tmpfiles, tuned]
    default: auto
  allow_tuned_switch:
    description:
      - Whether TuneD's active profile may be switched to ours. That re-applies the whole profile, so it is off by default.
    type: bool
    default: false
author:
  - ai_infra contributors (@ai-infra)
seealso:
  - module: ai_infra.gpu_host.host_profile
  - module: ai_infra.gpu_host.kernel_values
notes:
  - Values govern future page faults. Programs that run already keep the old behaviour for memory they have mapped.
  - Every write to C(enabled) makes the kernel raise C(vm.min_free_kbytes) when it is lower than it recommends.
"""

EXAMPLES = r"""
- name: Huge pages for a training host
  ai_infra.gpu_host.thp_mode:
    enabled: always
    defrag: defer+madvise
    large_pmd: use_2m

- name: No huge pages, and fail when anything else would bring them back at boot
  ai_infra.gpu_host.thp_mode:
    enabled: never
    shmem_enabled: never
    conflicts: fail

- name: Only 64 KiB pages for programs that ask
  ai_infra.gpu_host.thp_mode:
    sizes:
      - size: 64K
        enabled: madvise

- name: As it was before
  ai_infra.gpu_host.thp_mode:
    state: absent
"""

RETURN = r"""
before:
  description: The state before the run.
  returned: success
  type: dict
  sample: {runtime: {enabled: madvise}, boot: {enabled: null}, effective: {anonymous: madvise, active_sizes: [], shmem: "off"}}
after:
  description: The state after the run, read back; in check mode the state the run would leave. Same shape as RV(before).
  returned: success
  type: dict
  sample: {runtime: {enabled: always}, boot: {enabled: always}, effective: {anonymous: always, active_sizes: [], shmem: "off"}}
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
      sample: /sys/kernel/mm/transparent_hugepage/enabled
    from:
      description: The value before; empty when there was none.
      type: raw
      returned: always
      sample: madvise
    to:
      description: The value after; empty when it goes.
      type: raw
      returned: always
      sample: always
    known:
      description: V(after_apply) when the value can only be known after an earlier step.
      type: str
      returned: when it applies
      sample: after_apply
  sample:
    - action: write_kernel
      target: /sys/kernel/mm/transparent_hugepage/enabled
      from: madvise
      to: always
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
      sample: madvise
    wanted:
      description: The value asked for.
      type: str
      returned: always
      sample: always
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
provider:
  description: What keeps the values over a reboot.
  returned: success
  type: str
  sample: tmpfiles
persisted:
  description: Whether a reboot brings the wanted values back.
  returned: success
  type: bool
  sample: true
writers:
  description: Every other writer found, also those that lose. Same keys as RV(conflicts).
  returned: success
  type: list
  elements: dict
  sample:
    - where: kernel command line
      value: never
      wanted: always
      wins: false
      message: the kernel command line sets transparent_hugepage/enabled to never at boot, before us (wanted always)
"""

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import run_module
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import thp_mode


def main():
    run_module(thp_mode)


if __name__ == "__main__":
    main()
