# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host's door says about locked memory. Reads only; what it means is decided by the pure files beside it."""

from __future__ import annotations

from .. import _systemd
from . import docker, logins, pam, slurm, ulimit_lists, units, value

PAM_MODULES = ("/usr/lib*/security/pam_limits.so", "/usr/lib/*/security/pam_limits.so",
               "/lib*/security/pam_limits.so", "/lib/*/security/pam_limits.so")
SHOWN = ("LoadState", "MainPID", "DropInPaths", "NeedDaemonReload", units.KEY, units.KEY + "Soft")
USER_MANAGERS = "user@*.service"
TICKS = 100  # USER_HZ, the unit of /proc, whatever the kernel's own rate
# An id that no distribution gives away by itself: an ordinary user, in no group that a file could name.
EXAMPLE_ID = 59999


# PAM

def has_pam_limits(host):
    return any(host.glob(pattern) for pattern in PAM_MODULES)


def os_release(host):
    """The words that name the distribution and its release."""
    text = host.read("/etc/os-release") or host.read("/usr/lib/os-release") or ""
    pairs = dict(line.partition("=")[::2] for line in text.splitlines())
    return {name: word.strip("\"'") for name, word in pairs.items()}


def is_debian(host):
    """Whether pam_limits has Debian's patch that leaves root out of * and @group."""
    release = os_release(host)
    return bool({"debian", "ubuntu"} & set((release.get("ID", "") + " " + release.get("ID_LIKE", "")).split()))


def start_limits(host):
    """What pam_limits begins with where no line speaks: PID 1's limits before PAM 1.7 on Debian, else what was inherited."""
    release = os_release(host)
    newest = {"debian": "12", "ubuntu": "24.04"}.get(release.get("ID"))
    number = release.get("VERSION_ID", "")
    if newest is None or not number[:1].isdigit() or float(".".join(number.split(".")[:2])) > float(newest):
        return None
    return value.from_proc(host.read("/proc/1/limits"))


def limits_files(host):
    """[(path, text)] in the order pam_limits reads them."""
    main = pam.MAIN if host.exists(pam.MAIN) or not host.exists(pam.VENDOR_MAIN) else pam.VENDOR_MAIN
    paths = pam.read_order(main, host.listdir(pam.FOLDER), host.listdir(pam.VENDOR_FOLDER))
    return [(path, host.read(path)) for path in paths]


def limits_lines(host):
    return [line for path, text in limits_files(host) for line in pam.parse(path, text)]


def accounts(host, lines, users):
    """Everybody a line could treat unlike others: root, an ordinary user, the users and groups that lines name."""
    known, groups = passwd(host), group_members(host)

    def named(name):
        uid, gid = known.get(name, (EXAMPLE_ID, EXAMPLE_ID))
        member = [(group, number) for group, (number, names) in groups.items() if name in names or number == gid]
        return pam.Account(name, name, uid, gid, tuple(group for group, number in member),
                           tuple(number for group, number in member))

    found = {"root": named("root")._replace(uid=0, gid=0),
             "any other user": pam.Account("any other user", "", EXAMPLE_ID, EXAMPLE_ID)}
    for name in users:
        found[name] = named(name)
    for line in lines:
        domain = line.words[0]
        if len(line.words) != 2 and "memlock" not in [word.lower() for word in line.words[2:3]]:
            continue
        bounds = pam.id_range(domain)
        if bounds is False or domain in ("*", "root") or domain.startswith("%"):
            continue
        if domain.startswith("@"):
            label = "a member of " + domain
            low = bounds[0] if bounds else EXAMPLE_ID
            found[label] = pam.Account(label, "", EXAMPLE_ID, low, (domain[1:],), (low,))
        elif bounds is None:
            found[domain] = named(domain)
        elif bounds[0] > 0 and bounds != (EXAMPLE_ID, EXAMPLE_ID):
            label = "uid %d" % bounds[0]
            found.setdefault(label, pam.Account(label, "", bounds[0], EXAMPLE_ID))
    return list(found.values())


def passwd(host):
    """{name: (uid, gid)} of the local accounts."""
    rows = [line.split(":") for line in (host.read("/etc/passwd") or "").splitlines()]
    return {row[0]: (int(row[2]), int(row[3])) for row in rows
            if len(row) >= 4 and row[2].isdigit() and row[3].isdigit()}


def group_members(host):
    """{group: (gid, names)} of the local groups."""
    rows = [line.split(":") for line in (host.read("/etc/group") or "").splitlines()]
    return {row[0]: (int(row[2]), row[3].split(",")) for row in rows if len(row) >= 4 and row[2].isdigit()}


def knows_user(host, name):
    """Whether the host knows a user, local or from a directory."""
    return name in passwd(host) or host.run(["getent", "passwd", "--", name]).rc == 0


def stacks(host):
    """{service: (whether it asks pam_limits, its conf=)} of the PAM services this host has."""
    folders = [folder for folder in ("/etc/pam.d", "/usr/lib/pam.d", "/usr/etc/pam.d") if host.is_dir(folder)]

    def read(name):
        paths = [name] if name.startswith("/") else ["%s/%s" % (folder, name) for folder in folders]
        return next((text for text in map(host.read, paths) if text is not None), None)

    return {service: logins.asks_pam_limits(service, read) for service in logins.SERVICES if read(service) is not None}


def sshd_uses_pam(host):
    """(whether sshd asks PAM, where that is said); None on a host without sshd."""
    main = host.read("/etc/ssh/sshd_config")
    if main is None:
        return None
    files = [("/etc/ssh/sshd_config", main)]
    if "sshd_config.d" in main:
        files = [(path, host.read(path)) for path in host.glob("/etc/ssh/sshd_config.d/*.conf")] + files
    return logins.use_pam(files)


# systemd

def has_systemd(host):
    return host.exists("/usr/lib/systemd/systemd") or host.exists("/lib/systemd/systemd")


def unit_fragment(host, unit):
    """Path of the unit file, or of its template; None when the host has no such unit."""
    stem, kind = unit.rsplit(".", 1)
    names = [unit] + (["%s@.%s" % (stem.split("@")[0], kind)] if "@" in stem else [])
    for name in names:
        for folder in units.FOLDERS:
            if host.exists("%s/%s" % (folder, name)):
                return "%s/%s" % (folder, name)
    return None


def unit_settings(host, unit):
    """Every assignment of a unit and its drop-ins, in the order systemd reads them."""
    fragment = unit_fragment(host, unit)
    names = [unit]
    if fragment:
        names += [name for name in [host.realpath(fragment).rsplit("/", 1)[1]] if name not in names and "@" not in name]
    for link in host.glob("/etc/systemd/system/*.service"):
        target = (host.readlink(link) or "").rsplit("/", 1)[-1]
        if target == unit and link.rsplit("/", 1)[1] not in names:
            names.append(link.rsplit("/", 1)[1])
    paths = ["%s/%s" % (folder, name) for folder in units.drop_in_folders(names) for name in host.listdir(folder)]
    files = ([fragment] if fragment else []) + units.effective_files(paths)
    return [row for path in files for row in units.settings(path, host.read(path))]


def manager_settings(host, name):
    """Every assignment of system.conf or user.conf with its drop-ins, in the order systemd reads them."""
    main = next((path for path in ("%s/%s" % (folder, name) for folder in units.MANAGER_FOLDERS) if host.exists(path)),
                None)
    paths = ["%s/%s.d/%s" % (folder, name, entry) for folder in units.MANAGER_FOLDERS
             for entry in host.listdir("%s/%s.d" % (folder, name))]
    files = ([main] if main else []) + units.effective_files(paths)
    return [row for path in files for row in units.settings(path, host.read(path))]


def loaded(host, names, user_managers):
    """What systemd holds of units, templates left out: {unit: {property: text}}. Empty where it does not run.

    C(user_managers): those that run as well.
    """
    if not _systemd.is_running(host):
        return {}
    names = [name for name in names if "@." not in name]
    return _systemd.show(host, names, SHOWN, USER_MANAGERS if user_managers else None)


def loaded_default(host):
    """The default limit the running systemd gives its services; None when it does not run."""
    if not _systemd.is_running(host):
        return None
    ran = host.run(["systemctl", "show", "--property=DefaultLimitMEMLOCK,DefaultLimitMEMLOCKSoft"])
    pairs = dict(line.partition("=")[::2] for line in ran.out.splitlines())
    return value.Limits(value.from_show(pairs.get("DefaultLimitMEMLOCKSoft")),
                        value.from_show(pairs.get("DefaultLimitMEMLOCK")))


def running(host, pid):
    """Limits of a process; None when it is gone."""
    return value.from_proc(host.read("/proc/%d/limits" % pid)) if pid else None


def is_older_than_file(host, pid, path):
    """Whether a process started before the file got its present content."""
    changed = host.changed_at(path)
    stat = (host.read("/proc/%d/stat" % pid) or "").rpartition(")")[2].split()
    boot = [line.split()[1] for line in (host.read("/proc/stat") or "").splitlines() if line.startswith("btime ")]
    if changed is None or len(stat) < 20 or not boot:
        return False
    return int(boot[0]) + int(stat[19]) / float(TICKS) < changed


# Container runtimes and Slurm

def docker_flags(host):
    return docker.flags(unit_settings(host, "docker.service"), host.read)


def ulimit_files(host, runtime):
    """[(path, text)] of a runtime's configuration in the order it is read, ours included."""
    paths = [path for path in runtime.files if host.exists(path)]
    names = [name for name in host.listdir(runtime.folder) if not name.startswith(".")]
    if runtime is ulimit_lists.PODMAN:
        names = [name for name in names if name.endswith(".conf")]
    paths += ["%s/%s" % (runtime.folder, name) for name in sorted(names)]
    return [(path, host.read(path)) for path in paths]


def ulimit_list(host, runtime, without_ours=False):
    """The list that counts; None when no file has one."""
    found = None
    for path, text in ulimit_files(host, runtime):
        if not (without_ours and path == runtime.ours):
            found = ulimit_lists.parse(path, text, runtime.section) or found
    return found


def slurm_files(host):
    """[(path, text)] of slurm.conf and what it includes; empty on a host without Slurm."""
    main = next((path for path in slurm.PATHS if host.exists(path)), None)
    if main is None:
        return []
    text = host.read(main)
    folder = main.rsplit("/", 1)[0]
    included = [name if name.startswith("/") else "%s/%s" % (folder, name) for name in slurm.includes(text)]
    return [(main, text)] + [(path, host.read(path)) for path in included if host.exists(path)]
