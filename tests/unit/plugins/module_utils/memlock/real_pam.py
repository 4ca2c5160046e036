# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real pam_limits on made-up limits files: sessions in a mount namespace of their own.

Run by the tests as C(unshare --mount python3 real_pam.py FOLDER); reads FOLDER/cases.json, a list of
{"files": {path below /etc/security: text}, "users": [names]}, and prints the limits each session got.
The files of the machine are covered in this namespace only, and it ends with the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import sys

PASSWD = {"root": (0, 0), "alice": (1000, 1000), "bob": (1001, 2000), "carol": (5000, 5000)}
GROUPS = {"root": (0, ()), "alice": (1000, ()), "hpc": (2000, ("alice",)), "carol": (5000, ()), "wheel": (10, ("root",))}
SERVICE = "memlock-test"


def cover(folder):
    """Put our own /etc/security, /etc/pam.d and account files over the machine's, for this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    texts = {
        "passwd": "".join("%s:x:%d:%d::/:/bin/sh\n" % (name, *ids) for name, ids in PASSWD.items()),
        "group": "".join("%s:x:%d:%s\n" % (name, gid, ",".join(users)) for name, (gid, users) in GROUPS.items()),
        "nsswitch.conf": "passwd: files\ngroup: files\n",
        "pam.d/" + SERVICE: "auth required pam_permit.so\naccount required pam_permit.so\n"
                            "session required pam_limits.so\n",
    }
    for name, text in texts.items():
        path = os.path.join(folder, "etc", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(text)
    os.makedirs(folder + "/etc/security", exist_ok=True)
    for name in ("passwd", "group", "nsswitch.conf", "pam.d", "security"):
        source, target = os.path.join(folder, "etc", name).encode(), ("/etc/" + name).encode()
        if libc.mount(source, target, None, 4096, None) != 0:  # MS_BIND
            sys.exit("bind mount of %s: %s" % (name, os.strerror(ctypes.get_errno())))


def session(user):
    """The limits a session of the user gets, in a child, as a session can't be undone."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        pam = ctypes.CDLL("libpam.so.0")
        handle, talk = ctypes.c_void_p(), (ctypes.c_void_p * 2)()
        status = pam.pam_start(SERVICE.encode(), user.encode(), ctypes.byref(talk), ctypes.byref(handle))
        status = status or pam.pam_open_session(handle, 0)
        answer = json.dumps([status] + list(resource.getrlimit(resource.RLIMIT_MEMLOCK)))
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(child, 0)
    if answer[0] != 0:
        raise RuntimeError("pam_open_session of %s: status %d" % (user, answer[0]))
    return answer[1:]


def main(folder):
    with open(folder + "/cases.json", encoding="utf-8") as handle:
        cases = json.load(handle)
    cover(folder)
    answers = []
    for case in cases:
        for name in os.listdir("/etc/security"):
            path = "/etc/security/" + name
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for name, text in case["files"].items():
            path = "/etc/security/" + name
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="") as handle:
                handle.write(text)
        try:
            answers.append({user: session(user) for user in case["users"]})
        except RuntimeError as err:
            sys.exit("%s in %s" % (err, json.dumps(case["files"])))
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
