# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A systemd for FakeHost: it holds what it read at its last reload, as the real one does.

Units have one file and drop-ins below /etc; the last LimitMEMLOCK it can parse counts. C(pids) says what runs.
"""

from __future__ import annotations

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Ran
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_host import FakeHost

EIGHT_MIB = "8388608"
PROC = "Limit                     Soft Limit           Hard Limit           Units     \n" \
       "Max processes             7684                 7684                 processes \n" \
       "Max locked memory         %-20s %-20s bytes     \n"


class FakeSystemd:
    """Answers systemctl show and takes daemon-reload."""

    def __init__(self, host, pids):
        self.host, self.pids = host, pids
        self.reload()

    def reload(self):
        self.loaded = {path.rsplit("/", 1)[1]: self._read(path.rsplit("/", 1)[1]) for path in self.host.files
                       if path.startswith("/usr/lib/systemd/system/")}
        self.default = self._last(["/etc/systemd/system.conf"] + self._below("/etc/systemd/system.conf.d/"), "Default")

    def _below(self, folder):
        return sorted(path for path in self.host.files if path.startswith(folder) and path.endswith(".conf"))

    def _last(self, paths, prefix=""):
        limit = None
        for path in paths:
            for line in (self.host.files.get(path) or "").splitlines():
                name, mid, text = line.partition("=")
                if name == prefix + "LimitMEMLOCK" and (text == "infinity" or text.isdigit()):
                    limit = text
        return limit

    def _read(self, unit):
        drop_ins = self._below("/etc/systemd/system/%s.d/" % unit)
        return self._last(["/usr/lib/systemd/system/" + unit] + drop_ins), drop_ins

    def __call__(self, argv):
        if argv[1] == "daemon-reload":
            self.reload()
            return Ran(0, "", "")
        if argv[1] != "show":
            return Ran(1, "", "unknown verb %s" % argv[1])
        if "--" not in argv:
            limit = self.default or EIGHT_MIB
            return Ran(0, "DefaultLimitMEMLOCK=%s\nDefaultLimitMEMLOCKSoft=%s\n" % (limit, limit), "")
        names = argv[argv.index("--") + 1:]
        if names[-1] == "user@*.service":
            names = names[:-1] + tuple(unit for unit in self.pids if unit.startswith("user@"))
        return Ran(0, "\n".join(self._block(unit) for unit in names), "")

    def _block(self, unit):
        source = "user@.service" if unit.startswith("user@") else unit
        limit, drop_ins = self.loaded.get(source, (None, []))
        limit = limit or self.default or EIGHT_MIB
        stale = source in self.loaded and self._read(source) != self.loaded[source]
        return "Id=%s\nLoadState=%s\nMainPID=%d\nDropInPaths=%s\nNeedDaemonReload=%s\nLimitMEMLOCK=%s\nLimitMEMLOCKSoft=%s\n" % (
            unit, "loaded" if source in self.loaded else "not-found", self.pids.get(unit, 0),
            " ".join(drop_ins), "yes" if stale else "no", limit, limit)


def debian(files=None, units=(), pids=None, **given):
    """A Debian host with PAM, sshd, systemd and the given units; every process has 8 MiB."""
    pids = dict(pids or {})
    texts = {
        "/etc/os-release": "ID=debian\nVERSION_ID=\"12\"\n",
        "/usr/lib/x86_64-linux-gnu/security/pam_limits.so": "",
        "/etc/security/limits.conf": "# nothing here\n",
        "/etc/passwd": "root:x:0:0::/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/bash\n",
        "/etc/group": "root:x:0:\nalice:x:1000:\nhpc:x:2000:alice\n",
        "/etc/pam.d/sshd": "@include common-session\nsession required pam_limits.so\n",
        "/etc/pam.d/login": "session    required   pam_limits.so\n",
        "/etc/pam.d/common-session": "session required pam_unix.so\n",
        "/etc/ssh/sshd_config": "UsePAM yes\n",
        "/usr/lib/systemd/systemd": "", "/usr/lib/systemd/system/user@.service": "[Service]\nExecStart=systemd\n",
        "/run/systemd/system/.keep": "", "/proc/1/limits": PROC % ("unlimited", "unlimited"),
        "/proc/stat": "btime 1700000000\n",
    }
    for unit in units:
        texts["/usr/lib/systemd/system/" + unit] = "[Service]\nExecStart=/usr/sbin/%s\n" % unit.split(".")[0]
    for unit, pid in pids.items():
        texts["/proc/%d/limits" % pid] = PROC % (EIGHT_MIB, EIGHT_MIB)
        texts["/proc/%d/stat" % pid] = "%d (a (b) c) %s" % (pid, " ".join(["S"] + ["0"] * 18 + ["4200", "0"]))
    texts.update(files or {})
    texts = {path: text for path, text in texts.items() if text is not None}
    commands = given.pop("commands", {})
    host = FakeHost(texts, commands=commands, **given)
    systemd = FakeSystemd(host, pids)
    host.commands[lambda argv: argv[0] == "systemctl"] = systemd
    return host
