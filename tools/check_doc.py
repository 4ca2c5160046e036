# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-doc shows every module, role and plugin of the collection, and shows it whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
COLLECTION = "ai_infra.gpu_host"
PLUGIN_FOLDERS = {"module": "modules", "filter": "filter", "test": "test", "lookup": "lookup"}


def main():
    passed, failed = 0, []
    for kind, names in expected().items():
        if not names:
            continue
        shown = ask(kind, names)
        for name in names:
            complaints = check(kind, shown.get(name))
            passed += not complaints
            failed.extend(f"{kind} {name}: {text}" for text in complaints)
    print("\n".join(failed))
    print(f"{passed} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


def expected():
    """What the source tree holds: {kind: full names}."""
    found = {}
    for kind, folder in PLUGIN_FOLDERS.items():
        files = [path for suffix in ("py", "yml") for path in (REPOSITORY / "plugins" / folder).glob(f"*.{suffix}")]
        stems = {path.stem for path in files if not path.name.startswith("_") and (kind == "module" or path.suffix == ".yml")}
        found[kind] = sorted(f"{COLLECTION}.{stem}" for stem in stems)
    found["role"] = sorted(f"{COLLECTION}.{path.name}" for path in (REPOSITORY / "roles").iterdir() if path.is_dir())
    return found


def ask(kind, names):
    done = subprocess.run(["ansible-doc", "--type", kind, "--json", *names], check=False, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print(done.stderr, end="", file=sys.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def check(kind, shown):
    if not shown:
        return ["ansible-doc does not show it"]
    if kind == "role":
        return [text for point in shown["entry_points"].values() for text in describe(point, "options")]
    complaints = describe(shown["doc"], "options") + describe({"rows": shown.get("return") or {}, **shown["doc"]}, "rows")
    if not shown.get("examples"):
        complaints.append("no examples")
    if not shown.get("return"):
        complaints.append("no return values")
    return complaints


def describe(entry, key):
    """Descriptions that are missing, in the entry and in its options or return values at every depth."""
    complaints = [] if entry.get("description") and entry.get("short_description", True) else ["no description"]
    complaints += rows(entry.get(key) or {}, "")
    return complaints


def rows(table, where):
    complaints = []
    for name, row in table.items():
        if not row.get("description"):
            complaints.append(f"{where}{name} has no description")
        for inner in ("options", "suboptions", "contains"):
            complaints += rows(row.get(inner) or {}, f"{where}{name}.")
    return complaints


if __name__ == "__main__":
    sys.exit(main())
