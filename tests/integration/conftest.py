# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lab hosts for the integration tests; skipped, with the reason, where a lab can't run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))


def why_no_lab() -> str | None:
    """The reason a lab can't run here; None when it can."""
    if os.geteuid() != 0:
        return "the lab needs root"
    if not os.path.exists("/dev/fuse"):
        return "the lab needs /dev/fuse"
    return None


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab of this test module; everything of it goes at the end, whatever happened."""
    reason = why_no_lab()
    if reason:
        pytest.skip(reason)
    from lab import Lab

    with Lab(tmp_path_factory.mktemp("lab"), owned=True) as running:
        yield running
