# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""This checkout as ansible_collections/ai_infra/gpu_host, which is where every tool wants it. Prints the tree's path.

link   a link to the checkout, for ANSIBLE_COLLECTIONS_PATH and PYTHONPATH; in build/tree
copy   a copy for ansible-test alone, which follows links and, inside a repository, would list that repository's files
       and silently test nothing; in the user's cache directory, and kept, since it holds ansible-test's environments
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
NAME = Path("ansible_collections/ai_infra/gpu_host")
KEPT = "tests/output"  # ansible-test's own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("link", "copy"))
    print(link() if parser.parse_args().kind == "link" else copy())


def link() -> Path:
    tree = REPOSITORY / "build/tree"
    place = tree / NAME
    place.parent.mkdir(parents=True, exist_ok=True)
    if not (place.is_symlink() and place.resolve() == REPOSITORY):
        place.unlink(missing_ok=True)
        place.symlink_to(REPOSITORY)
    return tree


def copy() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tree = cache / "gpu_host/trees" / hashlib.sha256(str(REPOSITORY).encode()).hexdigest()[:12]
    place = tree / NAME
    wanted = set(files())
    for old in sorted(present(place) - wanted):
        (place / old).unlink()
    for name in sorted(wanted):
        bring(REPOSITORY / name, place / name)
    prune(place)
    return tree


def files() -> list[str]:
    """Files of the checkout that git tracks or would track. A tracked file that is gone from the disk is gone."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"],
                            cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout.decode()
    return [name for name in listed.split("\0") if name and os.path.lexists(REPOSITORY / name)]


def present(place: Path) -> set[str]:
    found = set()
    for folder, folders, names in os.walk(place):
        here = os.path.relpath(folder, place)
        folders[:] = [name for name in folders if os.path.normpath(f"{here}/{name}") != KEPT]
        found.update(os.path.normpath(f"{here}/{name}") for name in names)
    return found


def bring(source: Path, target: Path) -> None:
    """Copy what differs, times and modes included, so that ansible-test's caches stay warm."""
    have, want = (path.lstat() if os.path.lexists(path) else None for path in (target, source))
    if have and (have.st_mtime_ns, have.st_size, have.st_mode) == (want.st_mtime_ns, want.st_size, want.st_mode):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def prune(place: Path) -> None:
    for folder, _folders, _names in os.walk(place, topdown=False):
        if KEPT not in os.path.relpath(folder, place) and not os.listdir(folder):
            os.rmdir(folder)


if __name__ == "__main__":
    main()
