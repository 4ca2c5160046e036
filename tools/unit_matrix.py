# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unit tests on every Python that hosts may have, with the module_utils of three ansible-core series.

A managed host gets no more of Ansible than that, so a folder with these alone goes before everything else on the
path; it takes no installed ansible-core, and old Pythons can't have one. Two runs at a time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import collection_tree
import environments
import interpreters
from ansible_test import SERIES, Tally

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT = 600  # seconds for one run
CLOSING = re.compile(r"^=* ?(\d.*) in [\d.]+s", re.MULTILINE)


def main():
    here, tally, runs = interpreters.present(), Tally(), []
    for series in SERIES:
        driver = next((version for version in series.drivers if version in here), None)
        for version in series.targets:
            what = "unit tests on Python %s with ansible-core %s" % (version, series.name)
            if driver is None:
                tally.not_run(what, "no Python " + " or ".join(series.drivers) + " to take it from")
            elif version not in here:
                tally.not_run(what, "no such Python here")
            else:
                runs.append((what, version, module_utils(series.name, driver)))
    for version in sorted({version for _what, version, _path in runs}):
        environments.make(version)
    with ThreadPoolExecutor(2) as pool:
        for what, seconds, code, text in pool.map(lambda run: pytest(*run), runs):
            tell(what, seconds, code, text, tally)
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


def module_utils(series, driver):
    """A folder whose only content is ansible.module_utils of this series."""
    folder = REPOSITORY / "build/module_utils" / series
    package = folder / "ansible"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    link = package / "module_utils"
    link.unlink(missing_ok=True)
    link.symlink_to(environments.make(driver) / ("lib/python%s/site-packages/ansible/module_utils" % driver))
    return folder


def pytest(what, version, folder):
    path = os.pathsep.join([str(folder), str(collection_tree.link())])
    started = time.monotonic()
    with subprocess.Popen([str(environments.home(version) / "bin/python"), "-m", "pytest", "-q", "tests/unit"],
                          cwd=REPOSITORY, env=dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1"),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True) as process:
        try:
            text = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0] + "\nstopped after %d s" % LIMIT
    return what, time.monotonic() - started, process.returncode, text


def tell(what, seconds, code, text, tally):
    closing = CLOSING.findall(text)
    words = dict((word, int(number)) for number, word in re.findall(r"(\d+) (\w+)", closing[-1])) if closing else {}
    failed = words.get("failed", 0) + words.get("error", 0) + words.get("errors", 0)
    print("%4.0f s  %s: %s" % (seconds, what, closing[-1] if closing else "no result"), flush=True)
    if code != 0:
        print(text, flush=True)
    tally.passed += words.get("passed", 0)
    tally.skipped += words.get("skipped", 0)
    tally.failed += failed if failed or (code == 0 and words.get("passed")) else 1


if __name__ == "__main__":
    sys.exit(main())
