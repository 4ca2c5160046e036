# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs and nvidia-persistenced in memory: the part of NVML and of systemd that gpu_persistence talks to."""

from __future__ import annotations

from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _nvml, _persistence, _persistenced
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import NvmlError
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Ran
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_host import FakeHost

UNIT, OWN = _persistence.UNIT, _persistence.OWN_UNIT
PACKAGED = "/usr/lib/systemd/system/" + UNIT
IN_ETC = "/etc/systemd/system/" + UNIT
WANTED = "/etc/systemd/system/multi-user.target.wants/"
DAEMON = "/usr/bin/nvidia-persistenced"
UPSTREAM = "[Service]\nExecStart=%s --user nvidia-persistenced\n[Install]\nWantedBy=multi-user.target\n" % DAEMON
UBUNTU = ("[Unit]\nStopWhenUnneeded=true\n[Service]\nExecStart=%s --user nvidia-persistenced --no-persistence-mode --verbose\n"
          % DAEMON)


class FakeNvml(_nvml.Nvml):
    """Each GPU has the legacy flag and the daemon's; C(lost) and C(unsupported) are indices."""

    def __init__(self, count=2, lost=(), unsupported=(), refuses=(), memory_nodes=None, confidential=False, source="node"):
        super().__init__(None, None, source)
        self.legacy, self.by_daemon = [False] * count, [False] * count
        self.lost, self.unsupported, self.refuses = set(lost), set(unsupported), set(refuses)
        self.memory_nodes, self.confidential = memory_nodes or {}, confidential

    def gpus(self):
        return [_nvml.Gpu(i, None, None, None, failure("gpu_is_lost", i)) if i in self.lost
                else _nvml.Gpu(i, "GPU-%d" % i, "0000:%02x:00.0" % (i + 1), "H100") for i in range(len(self.legacy))]

    def persistence(self, gpu):
        if gpu.index in self.unsupported:
            raise failure("not_supported", gpu.index)
        return self.legacy[gpu.index] or self.by_daemon[gpu.index]

    def set_persistence(self, gpu, wanted):
        if gpu.index in self.refuses:
            raise failure("no_permission", gpu.index)
        self.legacy[gpu.index] = wanted

    def confidential_computing(self):
        return self.confidential

    def memory_node(self, gpu):
        return self.memory_nodes.get(gpu.index)

    def planned(self):
        return FakePlannedNvml(self)

    @property
    def modes(self):
        return [one or other for one, other in zip(self.legacy, self.by_daemon)]


class FakePlannedNvml(_nvml.PlannedNvml):
    """The planned door on FakeNvml: everything that would ask the binding asks the fake."""

    def gpus(self):
        return self.base.gpus()

    def confidential_computing(self):
        return self.base.confidential_computing()

    def memory_node(self, gpu):
        return self.base.memory_node(gpu)


def failure(kind, index):
    return NvmlError(kind, "ask", "GPU %d" % index, "NVML answers " + kind.replace("_", " "), "")


class FakeSystemd:
    """systemctl on a FakeHost: what it shows, and what its verbs do to links, units and GPUs."""

    def __init__(self, host, nvml, fails=()):
        self.host, self.nvml, self.fails = host, nvml, set(fails)
        self.active, self.tried, self.met, self.loaded = set(), set(), {}, {}
        self.pid = 100
        self.daemon_reload()

    def __call__(self, argv):
        words = [word for word in argv[1:] if not word.startswith("-") or word == "--"]
        if words[0] == "show":
            return Ran(0, "\n".join(self.show(name) for name in words[words.index("--") + 1:]), "")
        if words[0] == "daemon-reload":
            self.daemon_reload()
            return Ran(0, "", "")
        getattr(self, words[0])(words[-1])
        return Ran(1, "", "Job for %s failed." % words[-1]) if words[-1] in self.fails else Ran(0, "", "")

    def files(self, name):
        if name == OWN:
            return _persistenced.own_unit(self.host)
        return _persistenced.unit_files(self.host)

    def daemon_reload(self):
        self.loaded = {name: self.files(name) for name in (UNIT, OWN)}

    def show(self, name):
        rows = {"Id": name, "LoadState": "loaded", "ActiveState": "active" if name in self.active else "inactive",
                "MainPID": str(self.pid) if name in self.active else "0",
                "ConditionResult": "yes" if self.met.get(name) else "no",
                "ConditionTimestampMonotonic": "5" if name in self.tried else "0",
                "DropInPaths": " ".join(self.loaded[name].drop_ins),
                "NeedDaemonReload": "yes" if self.loaded[name] != self.files(name) else "no",
                "ExecStart": "{ path=x ; argv[]=%s ; ignore_errors=no }" % " ".join(self.loaded[name].exec_start)}
        return "".join("%s=%s\n" % row for row in rows.items())

    def enable(self, name):
        self.host.links[WANTED + name] = "/etc/systemd/system/" + name

    def disable(self, name):
        self.host.links.pop(WANTED + name, None)

    def mask(self, name):
        self.host.links["/etc/systemd/system/" + name] = "/dev/null"

    def unmask(self, name):
        self.host.links.pop("/etc/systemd/system/" + name, None)

    def start(self, name):
        self.tried.add(name)
        self.met[name] = True
        if name in self.fails:
            return
        self.active.add(name)
        self.pid += 1
        words = self.loaded[name].exec_start
        self.host.files["/proc/%d/cmdline" % self.pid] = "\0".join(words) + "\0"
        on = _persistence.mode_of(words)
        self.nvml.by_daemon = [on and i not in self.nvml.lost for i in range(len(self.nvml.legacy))]

    def stop(self, name):
        self.active.discard(name)
        self.nvml.by_daemon = [False] * len(self.nvml.legacy)

    def restart(self, name):
        self.stop(name)
        self.start(name)


def machine(text=UPSTREAM, enabled=False, active=False, masked=False, nvml=None, gpus=True, binary=True, fails=(), files=None,
            account=True):
    """A FakeHost with GPUs and the daemon's unit; host.systemd and host.fake_nvml are there to look at."""
    nvml = nvml or FakeNvml()
    paths = dict({"/run/systemd/system/.there": ""}, **(files or {}))
    if text is not None:
        paths[PACKAGED] = text
    if gpus:
        paths["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n"
        for index in range(len(nvml.legacy)):
            paths["/sys/bus/pci/devices/0000:%02x:00.0/vendor" % (index + 1)] = "0x10de\n"
            paths["/sys/bus/pci/devices/0000:%02x:00.0/class" % (index + 1)] = "0x030200\n"
    host = FakeHost(paths, devices=["/dev/nvidia%d" % i for i in range(len(nvml.legacy) if gpus else 0)], nvml=nvml)
    host.systemd = FakeSystemd(host, nvml, fails)
    host.commands = {("systemctl",): Ran(0, "", ""), ("python3",): Ran(0, "", ""),
                     ("getent", "passwd", "nvidia-persistenced"): Ran(0 if account else 2, "", ""),
                     (lambda argv: argv[0].rsplit("/", 1)[-1] == "systemctl"): host.systemd,
                     (lambda argv: argv[0] == "journalctl"): Ran(0, "first line\nFailed to query NVIDIA devices\n", "")}
    if binary:
        host.commands[("nvidia-persistenced",)] = Ran(0, "", "")
    if enabled:
        host.systemd.enable(UNIT)
    if active:
        host.systemd.start(UNIT)
    if masked:
        host.systemd.mask(UNIT)
    host.systemd.daemon_reload()
    host.acted.clear()
    return host
