# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes, sockets and cores."""

from __future__ import annotations

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._topology import nodes as numa


def node(number, cpus=(), memory=1, distances=None):
    return numa.Node(number, frozenset(cpus), memory, distances or {})


@pytest.mark.parametrize("text, memory", [
    ("Node 0 MemTotal:       263856 kB\nNode 0 MemFree: 5 kB\n", 263856), ("MemTotal: 16 kB\n", 16),
    ("Node 4 MemTotal: 0 kB", 0),
    ("", None), (None, None), ("MemTotal:", None), ("Node 0 MemTotal: x kB", None),
])
def test_memory(text, memory):
    assert numa.memory_kb(text) == memory


@pytest.mark.parametrize("row, ids, expected", [
    ("10 21\n", [0, 1], {0: 10, 1: 21}), ("10 40\n", [0, 8], {0: 10, 8: 40}), ("10 21 30", [0, 1], {}), ("", [0], {}),
    ("10 x", [0, 1], {}), (None, [], {}),
])
def test_distances_go_by_the_nodes_that_exist(row, ids, expected):
    assert numa.distances(row, ids) == expected


def test_kinds_of_nodes():
    assert [node(0, {1}, 0).kind, node(1, (), 5).kind, node(2, (), 0).kind, node(3, (), None).kind] == [
        "cpu", "memory", "empty", "empty"]


def test_nearest_wants_a_figure_and_leaves_ties_open():
    rows = [node(0, {0}), node(1, {1}), node(2, (), 1, {0: 40, 1: 20, 2: 10}), node(3, (), 1, {0: 20, 1: 20})]
    assert numa.nearest(rows, 2, [0, 1]) == [1]
    assert numa.nearest(rows, 3, [0, 1]) == [0, 1]
    assert numa.nearest(rows, 0, [0, 1]) == [] == numa.nearest(rows, 9, [0, 1])


def test_cores_are_counted_by_socket_then_node_then_cpu():
    """As Slurm and hwloc do; CPU numbers that alternate between sockets do not mix their cores."""
    sockets = {0: frozenset({0, 2, 4, 6}), 1: frozenset({1, 3, 5, 7})}
    rows = [node(0, {0, 2, 4, 6}), node(1, {1, 3, 5, 7})]
    found = numa.cores([{0, 4}, {1, 5}, {2, 6}, {3, 7}], sockets, rows)
    assert [core.cpus for core in found] == [(0, 4), (2, 6), (1, 5), (3, 7)]
    assert numa.core_indexes(found, frozenset({5, 3})) == [2, 3]


def test_cores_where_nodes_interleave_within_a_socket():
    rows = [node(0, {0, 2}), node(1, {1, 3})]
    found = numa.cores([{0}, {1}, {2}, {3}], {0: frozenset(range(4))}, rows)
    assert [core.cpus for core in found] == [(0,), (2,), (1,), (3,)]


def test_core_groups_do_not_cross_sockets():
    online = frozenset(range(8))
    two = [node(0, {0, 1, 4, 5}), node(1, {2, 3, 6, 7})]
    assert numa.core_groups(two, {0: frozenset({0, 1, 4, 5}), 1: frozenset({2, 3, 6, 7})}, online) == [
        {0, 1, 4, 5}, {2, 3, 6, 7}]
    assert numa.core_groups([node(0, online)], {0: frozenset(range(4)), 1: frozenset(range(4, 8))},
                            online) == [set(online)]
    assert numa.core_groups(two + [node(2, {0})], {}, online) == [set(online)]
    assert numa.core_groups([], {}, frozenset({3})) == [{3}]
