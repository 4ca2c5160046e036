# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: one lab for the whole run, with the hosts that most tests share."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def missing() -> str | None:
    """Why no host can be started here."""
    if os.geteuid() != 0:
        return "lab hosts need root"
    if not os.path.exists("/dev/fuse"):
        return "lab hosts need /dev/fuse"
    if importlib.util.find_spec("mfusepy") is None:
        return "lab hosts need the Python package mfusepy"
    if shutil.which("mmdebstrap") is None:
        return "lab hosts need the packages of tests/lab/packages.txt"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if reason and item.get_closest_marker("lab"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lab: starts lab hosts, so it needs root")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory):
    from lab import Lab

    with Lab(tmp_path_factory.mktemp("lab") / "state") as started:
        yield started
    started.down_all()


@pytest.fixture(scope="session")
def fleet(lab):
    """Unlike hosts, started side by side."""
    boards = ("hgx_h100", "gb200", "no_gpu", "no_thp")
    return {host.board.name: host for host in lab.up_all([(board, None, {}) for board in boards])}


@pytest.fixture
def hgx(fleet):
    return fleet["hgx_h100"]
