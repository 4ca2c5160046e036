# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What else on the host keeps the limit from reaching a job, as findings. Reads only."""

from __future__ import annotations

from . import docker, lint, machine, pam, slurm, ulimit_lists, units, value
from .lint import finding

LOGINS = ("sshd", "login", "cron", "crond", "systemd-user")


def findings(host, want, after):
    """Every finding of the places asked for, foreign lines first."""
    rows = []
    if "pam" in want.targets:
        rows += limits_findings(host) + login_findings(host)
    for target, name in (("systemd_system", "system.conf"), ("systemd_user", "user.conf")):
        if target in want.targets:
            rows += lint.unit_settings(machine.manager_settings(host, name), "Manager")
    for unit in want.units:
        rows += lint.unit_settings(machine.unit_settings(host, unit), units.section_of(unit))
    if "docker" in want.targets:
        path = machine.docker_flags(host).config
        rows += lint.daemon_json(path, docker.parse(path, host.read(path)))
    rows += docker_unit_findings(want, after) + slurm_findings(host, want, after) + rootless_findings(want, after)
    if host.is_dir("/dev/infiniband"):
        rows += small_findings(after)
    return rows


def limits_findings(host):
    rows = []
    if not host.exists(pam.MAIN) and not host.exists(pam.VENDOR_MAIN):
        rows.append(finding(pam.MAIN, "the file is missing", "pam_limits of some releases then refuses every login",
                            "Create it, empty"))
    listed = {path for path, text in machine.limits_files(host)}
    hidden = ["%s/%s" % (pam.FOLDER, name) for name in host.listdir(pam.FOLDER)]
    for path in sorted(listed | set(hidden)):
        rows += lint.limits_file(path, host.read(path))
    return rows


def login_findings(host):
    """Ways to log in that never ask pam_limits, or ask it about another file."""
    rows = []
    for service, (asks, conf) in machine.stacks(host).items():
        where = "/etc/pam.d/" + service
        if not asks and service in LOGINS:
            rows.append(finding(where, "no session line with pam_limits.so",
                                "logins of this kind get no limit from limits.conf or limits.d",
                                "Add: session required pam_limits.so"))
        elif conf:
            rows.append(finding(where, "pam_limits.so conf=" + conf, "that file is read instead of limits.d",
                                "Drop conf=, or set the limit in that file"))
    uses = machine.sshd_uses_pam(host)
    if uses is not None and not uses[0]:
        rows.append(finding(uses[1], "UsePAM is not yes", "SSH logins get no limit from limits.conf or limits.d",
                            "Set UsePAM yes, or limit ssh.service itself"))
    return rows


def docker_unit_findings(want, after):
    """A limit of docker.service reaches dockerd, not its containers (docker/for-linux#1099)."""
    row = after["units"].get("docker.service")
    if row is None or row["where"] is None or "containerd.service" in after["units"] or "docker" in want.targets:
        return []
    return [finding(row["where"], "LimitMEMLOCK of docker.service", "containers get the limit of containerd instead",
                    "Add the target docker or containerd")]


def slurm_findings(host, want, after):
    """Slurm hands a job the soft limit of the submit host, unless told not to."""
    files = machine.slurm_files(host)
    rows = []
    if files:
        propagated, where = slurm.propagation(files)
        if propagated:
            rows.append(finding(where, "Slurm propagates MEMLOCK", "jobs run with the soft limit of the submit host",
                                "Set PropagateResourceLimitsExcept=MEMLOCK and run scontrol reconfigure"))
    if "slurmd.service" not in after["units"] and machine.unit_fragment(host, "slurmd.service"):
        limits, where = units.winner(machine.unit_settings(host, "slurmd.service"), "Service", units.KEY)
        if limits is None or value.worth(limits.hard) < value.worth(want.limit):
            rows.append(finding(where or "slurmd.service", "the unit has %s" % (
                "the default limit of systemd" if limits is None else value.shown(limits.hard)),
                "no line in limits.d reaches a batch job", "Add slurmd.service to units"))
    return rows


def rootless_findings(want, after):
    """A rootless container can't go beyond the user's own hard limit (nerdctl#1937)."""
    row = after.get("pam", {}).get("any other user")
    if "podman" not in after or row is None or row["hard"] is None or row["hard"] == "unlimited":
        return []
    if value.worth(int(row["hard"])) >= value.worth(want.limit):
        return []
    return [finding(ulimit_lists.PODMAN.ours, "memlock=%d" % want.limit,
                    "rootless containers fail to start with: operation not permitted, as users have a hard limit of %s"
                    % row["hard"], "Raise the limit of the users, with the target pam")]


def small_findings(after):
    rows = []
    for label, row in sorted(after.get("pam", {}).items()):
        rows.append(lint.too_small(label, row["hard_where"] or "limits.conf", number(row["hard"])))
    for unit, row in sorted(after["units"].items()):
        loaded = row["loaded"] or row
        rows.append(lint.too_small(unit, row["where"] or unit, number(loaded["hard"])))
    for name in ("docker", "crio", "podman"):
        if name in after:
            rows.append(lint.too_small("a container of " + name, after[name]["where"] or name, number(after[name]["hard"])))
    return [row for row in rows if row]


def number(text):
    if text is None:
        return None
    return value.UNLIMITED if text == "unlimited" else int(text)


def capability(host, limit):
    """A warning where nobody can raise a limit, whatever the files say."""
    if host.may_raise_limit(value.RLIMIT_MEMLOCK, limit) is not False:
        return []
    return ["nobody may raise a limit here (no CAP_SYS_RESOURCE, as in a container): the files are written, but have no "
            "effect until the host itself gives the limit"]
