#!/usr/bin/python

# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memlock_limits
short_description: One limit of locked memory in every place that decides it
version_added: 1.0.0
description:
  - Gives logins, user services, system services and containers one limit of locked memory (RLIMIT_MEMLOCK), in each place
    in its own unit of measure and in a file of its own, and names by file and line whatever beats it.
  - The limit matters for RDMA (C(ibv_reg_mr), so UCX, and NCCL over InfiniBand, RoCE or EFA), C(mlock), io_uring and
    eBPF. It does not govern C(cudaHostAlloc), as the NVIDIA driver pins memory without asking for it.
  - Which place counts depends on how a job comes to the host. Nothing in limits.conf reaches a systemd service, so
    a Slurm job needs C(slurmd.service) in O(units), and a container the targets of its runtime.
extends_documentation_fragment:
  - ai_infra.gpu_host._attributes
  - ai_infra.gpu_host._common
options:
  value:
    description:
      - The limit, V(unlimited) (also V(infinity) or V(-1)), a size such as V(64G) or V(512MiB) with units of 1024, or a
        number of bytes.
      - V(64GB) is refused, as it can be read in two ways, and so is a truth value.
    type: str
    default: unlimited
  targets:
    description:
      - The places that get the limit.
      - V(pam) writes a limits.d file for logins by SSH, console, su and cron.
      - V(systemd_user) writes a drop-in for C(user.conf) and one for C(user@.service), whose own hard limit no user
        service can exceed. It is for tmux, screen and user services.
      - V(systemd_system) sets the default of every system service in C(system.conf). O(units) is the narrower way.
      - V(docker) merges C(default-ulimits.memlock) into Docker's own configuration file and leaves everything else in it
        as it is.
      - V(containerd) is C(containerd.service), whose limit pods and Docker containers inherit.
      - V(crio) and V(podman) write a drop-in with C(default_ulimits) that repeats the other limits set there, because
        such a list replaces the one before.
      - The default reaches whoever logs in and leaves services and runtimes alone.
    type: list
    elements: str
    choices: [pam, systemd_system, systemd_user, docker, containerd, crio, podman]
    default: [pam, systemd_user]
  units:
    description:
      - Systemd units that get a C(LimitMEMLOCK=) drop-in, by their whole name. K3s and RKE2 run containerd inside
        C(k3s.service) or C(rke2-agent.service).
      - A unit this host does not have, or has masked, counts as not supported and gets no file. With O(unsupported=skip)
        it is reported in RV(left_out), so one list fits a whole fleet, and the run after its installation writes it.
    type: list
    elements: str
    default: []
  domains:
    description:
      - Whom the target V(pam) is about, in the words of limits.conf.
      - The default V(0:), every user id from 0 up, is the one line that reaches everybody including root on every
        distribution, with the rank of a line for the user. On Debian and Ubuntu C(*) and C(@group) leave root out.
    type: list
    elements: str
    default: ['0:']
  users:
    description:
      - More users whose effective limit to report. Root, an ordinary user and everybody named in a limits file are reported
        anyway.
    type: list
    elements: str
    default: []
  apply_running:
    description:
      - Also raise or lower the limit of the daemons that run now, the main processes of O(units) and user managers, for
        what they start from now on. It lasts until they restart.
    type: bool
    default: false
  apply:
    description:
      - V(boot) writes files only, V(both) also reloads systemd, V(now) writes no file and gives the running daemons the limit
        as O(apply_running) does.
author:
  - ai_infra contributors (@ai-infra)
seealso:
  - module: ai_infra.gpu_host.host_profile
notes:
  - No service is ever restarted. Who still runs with another limit is in RV(restart_required).
  - Files of this module whose place is no longer in O(targets) or O(units) are removed.
  - On hosts where the DGX packages own Docker's configuration the target V(docker) counts as not supported.
  - O(state=absent) leaves the limits of running processes as they are.
  - The capability IPC_LOCK does not help a container whose process is not root (nvidia-container-toolkit#2037).
"""

EXAMPLES = r"""
- name: Unlimited for logins, user services, Slurm jobs and containers
  ai_infra.gpu_host.memlock_limits:
    targets: [pam, systemd_user, docker, containerd]
    units: [slurmd.service]
    unsupported: skip

- name: A size instead, at once for what slurmd starts next
  ai_infra.gpu_host.memlock_limits:
    value: 64G
    units: [slurmd.service]
    apply_running: true

- name: Only for one group and for root, and fail when another file beats it
  ai_infra.gpu_host.memlock_limits:
    targets: [pam]
    domains: ['@gpu', root]
    users: [alice]
    conflicts: fail

- name: As it was before
  ai_infra.gpu_host.memlock_limits:
    state: absent
"""

RETURN = r"""
before:
  description:
    - The limits before the run, by place, as V(unlimited) or bytes, with the file and line that decide. Empty values are
      inherited or not known.
  returned: success
  type: dict
  sample:
    pam:
      root: {soft: "8388608", hard: "8388608", soft_where: null, hard_where: null}
    units:
      slurmd.service:
        soft: null
        hard: null
        where: null
        loaded: {soft: "8388608", hard: "8388608"}
        running: {pid: 812, soft: "8388608", hard: "8388608"}
        reload_due: false
    user_managers: {}
after:
  description: The limits after the run, read back; in check mode those the run would leave. Same shape as RV(before).
  returned: success
  type: dict
  sample:
    pam:
      root:
        soft: unlimited
        hard: unlimited
        soft_where: /etc/security/limits.d/zz-ai-infra-gpu-host-memlock.conf:2
        hard_where: /etc/security/limits.d/zz-ai-infra-gpu-host-memlock.conf:2
    units:
      slurmd.service:
        soft: unlimited
        hard: unlimited
        where: /etc/systemd/system/slurmd.service.d/90-ai-infra-gpu-host-memlock.conf:3
        loaded: {soft: unlimited, hard: unlimited}
        running: {pid: 812, soft: "8388608", hard: "8388608"}
        reload_due: false
    user_managers: {}
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
      sample: write_file
    target:
      description: On what, a file or a unit.
      type: str
      returned: always
      sample: /etc/security/limits.d/zz-ai-infra-gpu-host-memlock.conf
    from:
      description: The value before; empty when there was none.
      type: raw
      returned: always
      sample:
    to:
      description: The value after; empty when it goes.
      type: raw
      returned: always
      sample: "0: - memlock unlimited"
    known:
      description: V(after_apply) when the value can only be known after an earlier step.
      type: str
      returned: when it applies
      sample: after_apply
  sample:
    - action: set_rlimit
      target: slurmd.service
      from: "8388608:8388608"
      to: unlimited:unlimited
conflicts:
  description: What else decides a limit and beats this module.
  returned: success
  type: list
  elements: dict
  contains:
    where:
      description: File and line.
      type: str
      returned: always
      sample: /etc/security/limits.d/zzz-site.conf:4
    value:
      description: The limit it sets; empty when it sets none.
      type: str
      returned: always
      sample: "65536"
    wanted:
      description: The limit asked for.
      type: str
      returned: always
      sample: unlimited
    wins:
      description: Whether it has the last word. Always true here.
      type: bool
      returned: always
      sample: true
    message:
      description: The same in a sentence.
      type: str
      returned: always
      sample: "/etc/security/limits.d/zzz-site.conf:4 decides the locked memory of alice: 65536 (wanted: unlimited)"
  sample: []
findings:
  description: Lines of others that do not do what they say, and whatever else keeps the limit from a job. One warning sums
    them up.
  returned: success
  type: list
  elements: dict
  contains:
    where:
      description: File and line.
      type: str
      returned: always
      sample: /etc/security/limits.d/rdma.conf:1
    text:
      description: What stands there.
      type: str
      returned: always
      sample: "* - memlock 64G"
    effect:
      description: What it does.
      type: str
      returned: always
      sample: the value is read as 64 kB, what follows the digits is ignored
    remedy:
      description: What to write instead.
      type: str
      returned: always
      sample: "The unit is kB and can't be named: write 67108864"
  sample: []
left_out:
  description: Targets and units this host does not have.
  returned: success
  type: list
  elements: dict
  contains:
    target:
      description: The target or unit.
      type: str
      returned: always
      sample: slurmd.service
    reason:
      description: Why it is left out.
      type: str
      returned: always
      sample: this host has no unit slurmd.service
  sample: []
restart_required:
  description: Units whose processes run with another limit than a start would give them now. They stay listed until restarted.
  returned: success
  type: list
  elements: str
  sample: [slurmd.service]
reload_pending:
  description: What systemd still has to be told and why it was not done now; V(false) when there is nothing.
  returned: success
  type: raw
  sample: false
reboot_required:
  description: Whether the setting needs a reboot to take effect. Never, here.
  returned: success
  type: bool
  sample: false
reboot_reason:
  description: Why a reboot is needed.
  returned: success
  type: str
  sample:
supported:
  description: Whether this host has any of the places asked for.
  returned: success
  type: bool
  sample: true
reason:
  description: Why it has none.
  returned: success
  type: str
  sample:
"""

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._ansible import run_module
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import memlock_limits


def main():
    run_module(memlock_limits)


if __name__ == "__main__":
    main()
