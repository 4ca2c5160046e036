# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tarball in build/dist works where nothing else is: installed offline, documented, its playbooks parse."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = REPOSITORY / "build/venv/bin"
NOT_SHIPPED = ("build/", ".ci/", "tests/output/", ".git/")


def main():
    version = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text())["version"]
    tarball = REPOSITORY / f"build/dist/ai_infra-gpu_host-{version}.tar.gz"
    with tarfile.open(tarball) as packed:
        names = packed.getnames()
    stray = [name for name in names if name.startswith(NOT_SHIPPED) or "__pycache__" in name]
    if stray:
        sys.exit(f"the tarball holds what it should not: {', '.join(stray[:5])}")
    with tempfile.TemporaryDirectory() as folder:
        run(folder, "ansible-galaxy", "collection", "install", str(tarball), "--offline", "-p", folder)
        installed = Path(folder) / "ansible_collections/ai_infra/gpu_host"
        for module in sorted((installed / "plugins/modules").glob("*.py")):
            run(folder, "ansible-doc", f"ai_infra.gpu_host.{module.stem}")
        for role in sorted((installed / "roles").iterdir()):
            run(folder, "ansible-doc", "-t", "role", f"ai_infra.gpu_host.{role.name}")
        for playbook in sorted((installed / "playbooks").glob("*.yml")):
            run(folder, "ansible-playbook", "--syntax-check", f"ai_infra.gpu_host.{playbook.stem}", "-i", "localhost,")
    print(f"{tarball.name}: {len(names)} files; installs offline, documented, playbooks parse")


def run(folder, program, *words):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    done = subprocess.run([str(BIN / program), *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          env=dict(clean, ANSIBLE_COLLECTIONS_PATH=folder, ANSIBLE_HOME=f"{folder}/.ansible"))
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nfailed: {program} {' '.join(words)}")


if __name__ == "__main__":
    main()
