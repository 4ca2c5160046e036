# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""thp_mode as a user sees it: options in, kernel files, boot files and results out."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils import _journal, _thp
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import (
    BadInput, Conflict, HostError, Unsupported,
)
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._host import Ran
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._knobs import thp_mode
from ansible_collections.ai_infra.gpu_host.tests.unit.fake_host import FakeHost

THP = "/sys/kernel/mm/transparent_hugepage"
DEFRAG = "always defer defer+madvise [madvise] never\n"


def kernel(enabled="always [madvise] never\n", **files):
    """The THP directory of a 6.18 x86_64 kernel, in short."""
    tree = {
        "enabled": enabled, "defrag": DEFRAG, "use_zero_page": "1\n", "hpage_pmd_size": "2097152\n",
        "shmem_enabled": "always within_size advise [never] deny force\n",
        "khugepaged/defrag": "1\n", "khugepaged/max_ptes_none": "511\n", "khugepaged/pages_collapsed": "7\n",
        "hugepages-2048kB/enabled": "always [inherit] madvise never\n",
        "hugepages-64kB/enabled": "always inherit madvise [never]\n",
        "hugepages-64kB/stats/split": "3\n",
        "hugepages-8kB/shmem_enabled": "always inherit within_size advise [never]\n",
    }
    tree.update(files)
    return {"%s/%s" % (THP, name): text for name, text in tree.items() if text is not None}


def options(**given):
    values = {"state": "present", "apply": "both", "unsupported": "fail", "conflicts": "warn", "enabled": None,
              "defrag": None, "shmem_enabled": None, "use_zero_page": None, "khugepaged": None, "sizes": [],
              "large_pmd": "refuse", "provider": "auto", "allow_tuned_switch": False}
    values.update(given)
    return values


def apply(host, check_mode=False, **given):
    return thp_mode.run(host, options(**given), check_mode)


def tuned_host(profile, main_conf="", active="virtual-guest", cmdline="quiet", extra=None):
    files = kernel()
    files.update({"/etc/tuned/active_profile": active + "\n", "/etc/tuned/tuned-main.conf": main_conf,
                  "/usr/lib/tuned/virtual-guest/tuned.conf": profile, "/proc/cmdline": cmdline})
    files.update(extra or {})
    host = FakeHost(files, commands={("systemctl", "is-enabled", "tuned.service"): Ran(0, "enabled\n", "")})

    def switch(argv):
        host.files["/etc/tuned/active_profile"] = argv[2] + "\n"
        return Ran(0, "", "")

    for name in ("ai-infra-gpu-host", "virtual-guest"):
        host.commands[("tuned-adm", "profile", name)] = switch
    return host


def test_sets_runtime_and_boot_and_proves_both():
    host = FakeHost(kernel())
    result = apply(host, enabled="always", defrag="defer+madvise")
    assert host.files[THP + "/enabled"] == "[always] madvise never\n"
    assert host.files[THP + "/defrag"].split() == ["always", "defer", "[defer+madvise]", "madvise", "never"]
    assert "w- %s/enabled - - - - always\\n" % THP in host.files[_thp.TMPFILES]
    assert result["changed"] and result["persisted"]
    assert result["before"]["runtime"]["enabled"] == "madvise"
    assert result["after"]["runtime"]["enabled"] == "always"
    assert result["after"]["boot"] == {"enabled": "always", "defrag": "defer+madvise"}
    assert [step["action"] for step in result["steps"]] == ["write_kernel", "write_kernel", "write_file"]


def test_second_run_changes_nothing():
    host = FakeHost(kernel())
    apply(host, enabled="always", khugepaged={"max_ptes_none": 0, "defrag": None})
    host.writes.clear()
    result = apply(host, enabled="always", khugepaged={"max_ptes_none": 0, "defrag": None})
    assert not result["changed"] and result["steps"] == [] and host.writes == []


def test_check_mode_predicts_the_same_steps_and_writes_nothing():
    """THP-15: reads run in check mode, on a fresh host too."""
    host = FakeHost(kernel())
    files = copy.deepcopy(host.files)
    sizes = [{"size": "64K", "enabled": "inherit", "shmem_enabled": None}]
    predicted = apply(host, check_mode=True, enabled="never", sizes=sizes)
    assert host.files == files and host.writes == [] and host.logged == []
    real = apply(host, enabled="never", sizes=sizes)
    for key in ("steps", "diff", "after", "changed", "persisted"):
        assert predicted[key] == real[key]


def test_absent_puts_back_kernel_and_files_byte_for_byte():
    host = FakeHost(kernel())
    files = copy.deepcopy(host.files)
    apply(host, enabled="always", defrag="never")
    apply(host, enabled="never")
    result = apply(host, state="absent")
    assert host.files == files
    assert result["changed"]
    assert not apply(host, state="absent")["changed"]


def test_absent_restores_the_value_before_the_first_change_of_several():
    host = FakeHost(kernel())
    for value in ("always", "never", "always"):
        apply(host, enabled=value)
    apply(host, state="absent")
    assert host.files[THP + "/enabled"] == "always [madvise] never\n"


def test_absent_leaves_foreign_lines_in_our_file():
    host = FakeHost(kernel())
    apply(host, enabled="always")
    host.files[_thp.TMPFILES] += "d /run/mine 0755 root root -\n"
    apply(host, state="absent")
    assert host.files[_thp.TMPFILES] == "d /run/mine 0755 root root -\n"


def test_absent_without_a_journal_still_removes_our_file():
    host = FakeHost(dict(kernel(), **{_thp.TMPFILES: _thp.tmpfiles_text({"enabled": "always"})}))
    assert apply(host, state="absent")["changed"]
    assert _thp.TMPFILES not in host.files


def test_boot_only_does_not_touch_the_running_kernel():
    host = FakeHost(kernel())
    apply(host, enabled="always", apply="boot")
    assert host.files[THP + "/enabled"] == "always [madvise] never\n"
    assert _thp.TMPFILES in host.files


def test_now_only_writes_no_boot_file():
    """THP-2: what does not survive is said."""
    host = FakeHost(kernel())
    result = apply(host, enabled="always", apply="now")
    assert _thp.TMPFILES not in host.files and result["persisted"] is False


def test_file_right_and_kernel_wrong_and_the_reverse_are_both_seen():
    """THP-1: the kernel is asked, not the file."""
    host = FakeHost(kernel())
    apply(host, enabled="always")
    host.files[THP + "/enabled"] = "always madvise [never]\n"
    assert [s["target"] for s in apply(host, enabled="always")["steps"]] == [THP + "/enabled"]
    del host.files[_thp.TMPFILES]
    assert [s["target"] for s in apply(host, enabled="always")["steps"]] == [_thp.TMPFILES]


@pytest.mark.parametrize("given, needle", [
    ({"defrag": "defer"}, "It offers: always, madvise, never"),
    ({"sizes": [{"size": "huge", "enabled": "always", "shmem_enabled": None}]}, "Write it like 2M"),
    ({"khugepaged": {"max_ptes_none": 512}}, "Use at most 511"),
])
def test_bad_values_fail_before_anything_is_touched(given, needle):
    host = FakeHost(kernel(defrag="always [madvise] never\n"))
    files = copy.deepcopy(host.files)
    with pytest.raises(BadInput, match=needle):
        apply(host, enabled="always", **given)
    assert host.files == files


def test_read_only_sys_fails_before_anything_is_touched():
    """THP-10: the setting belongs to the host."""
    host = FakeHost(kernel(), read_only=["/sys"])
    with pytest.raises(HostError, match="belongs to the host"):
        apply(host, enabled="always")
    assert host.writes == []


def test_full_disk_fails_before_the_kernel_is_touched():
    host = FakeHost(kernel(), full=True)
    with pytest.raises(HostError, match="Free some space"):
        apply(host, enabled="always")
    assert host.files[THP + "/enabled"] == "always [madvise] never\n"


def test_kernel_without_thp():
    """THP-11."""
    with pytest.raises(Unsupported, match="PREEMPT_RT"):
        apply(FakeHost({"/sys/kernel/mm/hugepages/x": ""}), enabled="always")
    result = apply(FakeHost({}), enabled="always", unsupported="skip")
    assert not result["supported"] and not result["changed"] and "no transparent huge pages" in result["reason"]


def test_redhat_6_directory_is_named():
    with pytest.raises(Unsupported, match="RHEL 6"):
        apply(FakeHost({"/sys/kernel/mm/redhat_transparent_hugepage/enabled": "[always] never\n"}), enabled="never")


def test_missing_optional_file():
    host = FakeHost(kernel(shmem_enabled=None))
    with pytest.raises(Unsupported, match="shmem_enabled"):
        apply(host, enabled="never", shmem_enabled="never")
    result = apply(host, enabled="never", shmem_enabled="never", unsupported="skip")
    assert result["changed"] and any("shmem_enabled" in text for text in result["warnings"])


def test_64k_pages_refuse_always_at_the_top():
    big = kernel(**{"hpage_pmd_size": "536870912\n"})
    with pytest.raises(BadInput, match="512 MiB"):
        apply(FakeHost(dict(big)), enabled="always")
    host = FakeHost(dict(big))
    apply(host, enabled="always", large_pmd="use_2m")
    assert host.files[THP + "/hugepages-2048kB/enabled"] == "[always] inherit madvise never\n"
    assert host.files[THP + "/enabled"] == "always [madvise] never\n"
    host = FakeHost(dict(big))
    apply(host, enabled="always", large_pmd="allow")
    assert host.files[THP + "/enabled"] == "[always] madvise never\n"


def test_never_with_shmem_or_sizes_still_on_is_said():
    """THP-12."""
    host = FakeHost(kernel(**{"shmem_enabled": "[always] within_size advise never deny force\n",
                              "hugepages-64kB/enabled": "[always] inherit madvise never\n"}))
    result = apply(host, enabled="never")
    assert any("shmem_enabled is always" in text for text in result["warnings"])
    assert any("hugepages-64kB" in text for text in result["warnings"])
    assert result["after"]["effective"]["shmem"] == "always"


def test_other_unit_is_named_by_file_and_line():
    """THP-5: leftovers of older advice; THP-6, THP-4: a state, not a service start, is compared."""
    unit = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo never > /sys/kernel/mm/transparent_hugepage/enabled'\n"
    path = "/etc/systemd/system/disable-transparent-huge-pages.service"
    host = FakeHost(dict(kernel(), **{path: unit}),
                    links={"/etc/systemd/system/multi-user.target.wants/disable-transparent-huge-pages.service": path})
    result = apply(host, enabled="always")
    assert [row["where"] for row in result["conflicts"]] == [path + ":3"]
    assert result["conflicts"][0]["value"] == "never" and not result["persisted"]
    assert any(path + ":3" in text for text in result["warnings"])
    with pytest.raises(Conflict, match="disable-transparent-huge-pages"):
        apply(host, enabled="always", conflicts="fail")


def test_unit_that_is_not_enabled_or_only_tests_the_file_is_no_conflict():
    unit = "[Unit]\nConditionPathExists=/sys/kernel/mm/transparent_hugepage/enabled\n[Service]\nExecStart=/bin/true\n"
    host = FakeHost(dict(kernel(), **{
        "/usr/lib/systemd/system/a.service": unit,
        "/usr/lib/systemd/system/b.service": "[Service]\nExecStart=/bin/sh -c 'echo never > %s/enabled'\n" % THP}),
        links={"/etc/systemd/system/multi-user.target.wants/a.service": "/usr/lib/systemd/system/a.service"})
    assert apply(host, enabled="always")["conflicts"] == []


@pytest.mark.parametrize("path, text, where", [
    ("/etc/init.d/disable-thp", "#!/bin/sh\necho never > %s/enabled\n" % THP, ":2"),
    ("/etc/rc.local", "echo 'never' >%s/enabled\n" % THP, ":1"),
    ("/etc/sysfs.conf", "# x\nkernel/mm/transparent_hugepage/enabled = never\n", ":2"),
    ("/etc/sysfs.d/thp.conf", "kernel/mm/transparent_hugepage/enabled=never\n", ":1"),
    ("/etc/tmpfiles.d/00-a.conf", "w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n", ":1"),
    ("/usr/lib/tmpfiles.d/zz.conf", "w /sys/kernel/mm/transparent_hugepage/en* - - - - never\\n\n", ":1"),
])
def test_legacy_and_tmpfiles_writers_are_named(path, text, where):
    """THP-7: existing init scripts are reported, never written."""
    host = FakeHost(dict(kernel(), **{path: text}))
    result = apply(host, enabled="always")
    assert [(row["where"], row["value"]) for row in result["conflicts"]] == [(path + where, "never")]
    assert host.files[path] == text


def test_tmpfiles_line_that_sorts_after_ours_loses():
    host = FakeHost(dict(kernel(), **{
        "/etc/tmpfiles.d/thp.conf": "w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n"}))
    result = apply(host, enabled="always")
    assert result["conflicts"] == [] and result["persisted"] and result["after"]["boot"]["enabled"] == "always"
    assert [row["wins"] for row in result["writers"]] == [False]


def test_masked_tmpfiles_file_does_not_count():
    text = "w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n"
    host = FakeHost(dict(kernel(), **{"/usr/lib/tmpfiles.d/00-a.conf": text, "/etc/tmpfiles.d/00-a.conf": ""}))
    assert apply(host, enabled="always")["conflicts"] == []


@pytest.mark.parametrize("cmdline, found", [
    ("transparent_hugepage=never ro quiet", "never"), ("ro transparent_hugepage=madvise transparent_hugepage=never", "never"),
    ("ro xtransparent_hugepage=never", None), ("ro transparent_hugepage", None), ("", None),
])
def test_command_line(cmdline, found):
    """THP-8, THP-14: the first word counts too, the last one decides, whole words only."""
    host = FakeHost(dict(kernel(), **{"/proc/cmdline": cmdline + "\n"}))
    result = apply(host, enabled="always")
    assert [row["value"] for row in result["writers"]] == ([found] if found else [])
    assert result["conflicts"] == []  # tmpfiles.d comes after the command line


def test_tuned_that_sets_thp_is_a_conflict_unless_it_may_be_switched():
    profile = "[main]\nsummary=x\n[vm]\ntransparent_hugepages=never\n"
    result = apply(tuned_host(profile), enabled="always")
    assert result["provider"] == "tmpfiles"
    assert [row["where"] for row in result["conflicts"]] == ["tuned /usr/lib/tuned/virtual-guest/tuned.conf:4"]

    host = tuned_host(profile)
    result = apply(host, enabled="always", allow_tuned_switch=True)
    assert result["provider"] == "tuned" and result["conflicts"] == [] and result["persisted"]
    child = host.files["/etc/tuned/ai-infra-gpu-host/tuned.conf"]
    assert "include=virtual-guest\n" in child and "transparent_hugepages=always\n" in child
    assert ("tuned-adm", "profile", "ai-infra-gpu-host") in host.acted
    assert not apply(host, enabled="always", allow_tuned_switch=True)["changed"]
    host.acted.clear()
    apply(host, state="absent")
    assert host.acted == [("tuned-adm", "profile", "virtual-guest")]
    assert "/etc/tuned/ai-infra-gpu-host/tuned.conf" not in host.files


def test_tuned_chain_is_followed_and_the_command_line_silences_it():
    extra = {"/usr/lib/tuned/base/tuned.conf": "[vm]\ntransparent_hugepage=madvise\n"}
    result = apply(tuned_host("[main]\ninclude=base\n", extra=extra), enabled="always")
    assert [row["value"] for row in result["conflicts"]] == ["madvise"]
    result = apply(tuned_host("[main]\ninclude=base\n", extra=extra, cmdline="ro transparent_hugepage=always"), enabled="always")
    assert result["conflicts"] == []


def test_tuned_that_leaves_thp_alone_is_left_alone():
    result = apply(tuned_host("[sysctl]\nvm.swappiness=30\n"), enabled="always", allow_tuned_switch=True)
    assert result["provider"] == "tmpfiles" and result["persisted"]


def test_tuned_masked_falls_back_to_tmpfiles():
    """THP-13."""
    host = tuned_host("[vm]\ntransparent_hugepages=never\n")
    host.commands[("systemctl", "is-enabled", "tuned.service")] = Ran(1, "masked\n", "")
    assert apply(host, enabled="always")["provider"] == "tmpfiles"
    with pytest.raises(Unsupported, match="tuned is not active"):
        apply(host, enabled="always", provider="tuned")


def test_programs_on_the_gpu_are_named_as_running_with_the_old_value():
    host = FakeHost(dict(kernel(), **{"/proc/4711/comm": "python\n"}), links={"/proc/4711/fd/5": "/dev/nvidia0"})
    assert apply(host, enabled="always")["restart_required"] == ["python (pid 4711)"]


def test_unknown_files_of_a_downstream_kernel_are_tolerated():
    host = FakeHost(kernel(anon_beside_full="0\n"))
    assert apply(host, enabled="always")["after"]["runtime"]["anon_beside_full"] == "0"


def test_journal_has_the_original_and_one_line_a_change_is_logged():
    host = FakeHost(kernel())
    apply(host, enabled="always")
    journal = json.loads(host.files[_journal.journal_path("thp_mode")])
    assert journal["values"] == {THP + "/enabled": "madvise"} and journal["schema"] == 1
    assert host.logged[0] == "thp_mode: write_kernel %s/enabled from madvise to always" % THP
    assert len(host.logged) == 2


def test_damaged_or_newer_journal_is_refused_before_any_change():
    host = FakeHost(dict(kernel(), **{_journal.journal_path("thp_mode"): "{"}))
    with pytest.raises(HostError, match="damaged"):
        apply(host, enabled="always")
    host.files[_journal.journal_path("thp_mode")] = '{"schema": 99}'
    with pytest.raises(HostError, match="newer release"):
        apply(host, enabled="always")
    assert host.files[THP + "/enabled"] == "always [madvise] never\n"
