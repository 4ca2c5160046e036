# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Transparent huge pages: kernel files, wanted values, other writers. Pure.

Everything is keyed by the path below /sys/kernel/mm/transparent_hugepage, for instance C(enabled) or
C(hugepages-2048kB/enabled). Files differ between kernels, so they are enumerated, never assumed.
"""

from __future__ import annotations

import re

from ._errors import BadInput, Unsupported
from ._plan import kernel_value

FOLDER = "/sys/kernel/mm/transparent_hugepage"
TMPFILES = "/etc/tmpfiles.d/00-ai-infra-gpu-host-thp.conf"
WORDS = ("enabled", "defrag", "shmem_enabled")
PER_SIZE = re.compile(r"^hugepages-(\d+)kB$")
SIZE = re.compile(r"^(\d+)\s*(k|m|g)?i?b?$", re.IGNORECASE)
PMD_2M = 2 * 1024 * 1024


def choices(text):
    """The words a kernel file offers; empty when it is a number or a single bare word."""
    words = (text or "").split()
    if not any(word.startswith("[") for word in words):
        return []
    return [word.strip("[]") for word in words]


def size_folder(text):
    """The per-size directory for C(2M), C(2048kB) or C(64K). Raises BadInput."""
    match = SIZE.match(str(text).strip())
    if not match:
        raise BadInput("use the huge page size", repr(text), "it is not a size", "Write it like 2M, 64K or 2048kB")
    kib = int(match.group(1)) * {"": 0, "k": 1, "m": 1024, "g": 1048576}[(match.group(2) or "").lower()]
    if not kib:
        kib = int(match.group(1)) // 1024  # plain bytes
    return "hugepages-%dkB" % kib


def wanted_values(params, have):
    """{file: value} from the module's options. On kernels whose huge page is over 2 MiB, C(always) at the top
    level is refused or moved to the 2 MiB size, as one page would be hundreds of MiB."""
    want = {}
    for name in WORDS:
        if params.get(name) is not None:
            want[name] = params[name]
    if params.get("use_zero_page") is not None:
        want["use_zero_page"] = "1" if params["use_zero_page"] else "0"
    for name, value in sorted((params.get("khugepaged") or {}).items()):
        if value is not None:
            want["khugepaged/" + name] = str(int(value))
    for entry in params.get("sizes") or []:
        for name in ("enabled", "shmem_enabled"):
            if entry.get(name) is not None:
                want["%s/%s" % (size_folder(entry["size"]), name)] = entry[name]
    pmd = int(have.get("hpage_pmd_size", "0").strip() or 0)
    if want.get("enabled") == "always" and pmd > PMD_2M:
        if params["large_pmd"] == "use_2m":
            want["enabled"] = "madvise"
            want.setdefault("hugepages-2048kB/enabled", "always")
        elif params["large_pmd"] == "refuse":
            raise BadInput(
                "set", FOLDER + "/enabled to always", "a huge page of this kernel is %d MiB" % (pmd // 1048576),
                "Set the 2 MiB size instead (large_pmd: use_2m), or insist with large_pmd: allow")
    return want


def check(want, have, page_size):
    """(usable, missing): the values this kernel can take, and the files it lacks. Raises BadInput for a bad value."""
    usable, missing = {}, []
    for name, value in want.items():
        if name not in have:
            missing.append(name)
            continue
        offered = choices(have[name])
        if offered and value not in offered:
            raise BadInput("set", "%s/%s to %s" % (FOLDER, name, value), "this kernel does not offer it",
                           "It offers: " + ", ".join(offered))
        usable[name] = value
    pmd = int(have.get("hpage_pmd_size", "0").strip() or 0)
    limit = pmd // page_size - 1
    for name in ("max_ptes_none", "max_ptes_swap", "max_ptes_shared"):
        value = usable.get("khugepaged/" + name)
        if value is not None and pmd and int(value) > limit:
            raise BadInput("set", "%s/khugepaged/%s to %s" % (FOLDER, name, value),
                           "a huge page has %d pages here" % (limit + 1), "Use at most %d" % limit)
    return usable, missing


def state(have):
    """What the kernel does now, file by file; counters and statistics left out."""
    return {name: kernel_value(text) for name, text in sorted(have.items()) if "/stats/" not in name}


def effective(values):
    """What the values together mean: top level, sizes and shmem are separate switches (sos#3945)."""
    sizes = {name.split("/")[0]: value for name, value in values.items()
             if PER_SIZE.match(name.split("/")[0]) and name.endswith("/enabled")}
    active = sorted(name for name, value in sizes.items() if value in ("always", "madvise")
                    or value == "inherit" and values.get("enabled") != "never")
    return {
        "anonymous": "off" if not active and values.get("enabled") == "never" else values.get("enabled"),
        "active_sizes": active,
        "shmem": "off" if values.get("shmem_enabled", "never") in ("never", "deny") else values["shmem_enabled"],
    }


def leftovers(want, values):
    """Warnings for switches that stay on although C(never) was asked at the top level."""
    if want.get("enabled") != "never":
        return []
    warnings = []
    on = [name for name in effective(dict(values, enabled="never"))["active_sizes"]
          if name + "/enabled" not in want]
    if on:
        warnings.append("enabled is never, but these sizes have their own switch and stay on: %s. "
                        "Set them with the option sizes" % ", ".join(on))
    if "shmem_enabled" not in want and effective(values)["shmem"] != "off":
        warnings.append("enabled is never, but shmem_enabled is %s, so shared memory still uses huge pages. "
                        "Set it with the option shmem_enabled" % values["shmem_enabled"])
    return warnings


def tmpfiles_text(want):
    """Our tmpfiles.d file. The dash: a read-only /sys must not fail the boot unit. The newline: see _host.py."""
    lines = ["# Written by ai_infra.gpu_host.thp_mode; the next run overwrites changes made here."]
    lines += ["w- %s/%s - - - - %s\\n" % (FOLDER, name, value) for name, value in sorted(want.items())]
    return "\n".join(lines) + "\n"


def command_line(text):
    """The last transparent_hugepage= on a kernel command line, whole words only; None when there is none."""
    found = None
    for word in (text or "").split():
        name, mid, value = word.partition("=")
        if name == "transparent_hugepage" and mid:
            found = value
    return found


def script_writers(path, text):
    """[(line number, file, value or None)] where a unit, rc.local, init script or sysfs.conf writes a THP file."""
    rows = []
    for number, line in enumerate((text or "").splitlines(), 1):
        code = line.strip()
        if code.startswith(("#", ";")) or "kernel/mm/transparent_hugepage/" not in code:
            continue
        for match in re.finditer(r"kernel/mm/transparent_hugepage/([\w./-]+)", code):
            name = match.group(1)
            if is_test(code[:match.start()]):
                continue
            rows.append((number, name, written_value(code)))
    return rows


def is_test(before):
    """Whether the path is only tested or read: test -f, [ -d ..., cat, Condition lines."""
    return bool(re.search(r"(\btest\s+-\w|\[\[?\s+-\w|\bcat|\bgrep\b.*|^Condition\w+=|^ReadWritePaths=)\s*\S*$",
                          before.rstrip() + " " if before.endswith(" ") else before))


def written_value(code):
    """The word a line writes: echo never > file, file = never, or a bare choice on the line."""
    match = re.search(r"\b(?:echo|printf)\s+(?:-\w+\s+)?[\"']?([a-z+_0-9]+)", code)
    if not match:
        match = re.search(r"=\s*[\"']?([a-z+_0-9]+)[\"']?\s*$", code)
    return match.group(1) if match else None


def unsupported_reason(is_old_redhat):
    if is_old_redhat:
        return "this kernel has only the redhat_transparent_hugepage directory of RHEL 6, which is not supported"
    return "this kernel has no transparent huge pages (built without them, as every PREEMPT_RT kernel is)"


def require_files(missing):
    if missing:
        raise Unsupported("set", ", ".join("%s/%s" % (FOLDER, name) for name in missing),
                          "this kernel has no such file", "Drop the option, or set unsupported: skip")
