# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML says of nodes, as the door hands it on."""

from __future__ import annotations

import pytest

from ansible_collections.ai_infra.gpu_host.plugins.module_utils._errors import NvmlError
from ansible_collections.ai_infra.gpu_host.plugins.module_utils._nvml import Gpu, Nvml

GPU = Gpu(0, "GPU-a", "0000:3b:00.0", "H100")


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


class Binding:
    """The calls of pynvml that are asked here; an int is the error NVML returns."""

    NVMLError = NVMLError

    def __init__(self, words=3, node=3):
        self.words, self.node = words, node

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetMemoryAffinity(self, handle, size, scope):
        if isinstance(self.words, int):
            raise NVMLError(self.words)
        assert scope == 0
        return (self.words + [0] * size)[:size]

    def nvmlDeviceGetNumaNodeId(self, handle):
        if isinstance(self.node, int) and self.node == 3:
            raise NVMLError(3)
        return self.node


@pytest.mark.parametrize("words, nodes", [
    ([1], [0]), ([0b10], [1]), ([0b11], [0, 1]), ([0], []), ([1 << 63, 1], [63, 64]), ([0, 0, 0, 1 << 58], [250])])
def test_bits_are_nodes(words, nodes):
    assert Nvml(None, Binding(words), "node").near_nodes(GPU) == nodes


def test_not_supported_is_an_error_of_ours_for_affinity_and_no_node_for_memory():
    door = Nvml(None, Binding(), "node")
    with pytest.raises(NvmlError) as refused:
        door.near_nodes(GPU)
    assert refused.value.kind == "not_supported"
    assert door.memory_node(GPU) is None


@pytest.mark.parametrize("answer, node", [(2, 2), (-1, None), (0xFFFFFFFF, None), (None, None), (0, 0)])
def test_memory_node(answer, node):
    assert Nvml(None, Binding(node=answer), "node").memory_node(GPU) == node
