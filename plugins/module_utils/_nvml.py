# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Door to NVML through pynvml (package nvidia-ml-py). Private: may change at any time.

GPUs are typed, every return code is one typed error with its own remedy, and "not supported" is an answer that
the caller can tell from a failure. The binding is the copy this collection installed, else the node's own when
it is new enough; the action plugins bring one to nodes that have neither.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NamedTuple, Optional

from ._errors import NvmlError
from ._gpus import normal_pci
from ._journal import STATE_DIR

BINDING_DIR = STATE_DIR + "/pynvml"
BINDING_FILE = BINDING_DIR + "/pynvml.py"
# The newest calls this collection makes: a wheel without one of them is too old (12.535 was the last without).
NEEDED = (
    "nvmlDeviceGetPersistenceMode", "nvmlDeviceSetPersistenceMode", "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetGpuInstancePossiblePlacements", "nvmlSystemGetConfComputeState", "nvmlDeviceGetNumaNodeId",
)

# NVML return codes (nvml.h) to our words, with what the user can do about each.
KINDS = {
    2: ("invalid_argument", ""),
    3: ("not_supported", ""),
    4: ("no_permission", "Run the task as root (become: true)"),
    6: ("not_found", "Check the GPU's UUID, PCI bus id or index with nvidia-smi -L"),
    9: ("driver_not_loaded", "Load the nvidia kernel module (modprobe nvidia) or install the driver"),
    12: ("library_not_found", "Install the NVIDIA driver's user-space libraries (libnvidia-ml.so.1)"),
    13: ("function_not_found", "The driver is too old for this call: upgrade it"),
    15: ("gpu_is_lost", "The GPU fell off the bus: look for Xid 79 in the kernel log, then power-cycle the host"),
    16: ("reset_required", "The GPU needs a reset before it can be used"),
    18: ("version_mismatch", "Reboot, or unload and reload the nvidia modules when no job runs"),
    19: ("in_use", "Another client holds the GPU"),
    28: ("gpu_not_found", "No GPU answers: check lspci and the kernel log"),
    29: ("invalid_state", ""),
    999: ("unknown", "Look at the kernel log for NVRM and Xid lines"),
}


class Gpu(NamedTuple):
    """A physical GPU. A GPU that can't be asked has an error, and whatever is still known of it."""

    index: int
    uuid: Optional[str]
    pci: Optional[str]
    name: Optional[str]
    error: Optional[NvmlError] = None

    @property
    def label(self):
        return self.uuid or self.pci or "index %d" % self.index


def _load_binding(host):
    """The pynvml module and where it came from. Raises NvmlError of kind binding_missing or binding_too_old."""
    too_old = None
    for source, folder in (("given", host.pynvml_path), ("collection", BINDING_DIR), ("node", None)):
        if source == "given" and not folder or source == "collection" and not host.exists(BINDING_FILE):
            continue
        module = _import_from(folder)
        if module is None:
            continue
        if all(hasattr(module, name) for name in NEEDED):
            return module, source
        too_old = getattr(module, "__file__", "pynvml")
    state = "too_old" if too_old else "missing"
    raise NvmlError(
        "binding_" + state, "talk to", "NVML",
        "the node's pynvml (%s) lacks calls this collection needs" % too_old if too_old
        else "the node's Python has no pynvml",
        "Install nvidia-ml-py on the controller, which brings it along, or on the node",
        nvml_binding={"state": state},
    )


def _import_from(folder):
    """Import pynvml, from one folder alone when it is given; None when it is not there."""
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # check mode must not leave a __pycache__ behind
    if folder:
        sys.path.insert(0, folder)
    sys.modules.pop("pynvml", None)
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None
    finally:
        if folder:
            sys.path.remove(folder)
        sys.dont_write_bytecode = written


def _text(value):
    """Older wheels answer bytes where newer ones answer str."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def load(host):
    """The door with its binding, not started: for plans that only need to know the binding. Raises NvmlError."""
    binding, source = _load_binding(host)
    return Nvml(host, binding, source)


def open_nvml(host):
    """Load the binding and start NVML. Raises NvmlError."""
    nvml = load(host)
    nvml.start()
    return nvml


class Nvml:
    """NVML of this host. Every method raises NvmlError, and nothing else of NVML's own."""

    def __init__(self, host, binding, source):
        self.host = host
        self.binding = binding
        self.source = source
        self._handles = {}

    def planned(self):
        return PlannedNvml(self)

    def start(self):
        try:
            self.binding.nvmlInit()
        except self.binding.NVMLError as err:
            error = self.error(err, "initialise", "NVML")
            if error.kind == "version_mismatch":
                error.why = "the driver's library (%s) and kernel module (%s) are of different versions" % (
                    library_version(self.host) or "unknown", kernel_driver_version(self.host) or "unknown")
            raise error

    def error(self, err, tried, target):
        """An NVMLError as ours. C(err.value) is the code; str(err) of an unknown code would call the library."""
        code = err.value
        kind, remedy = KINDS.get(code, ("code_%d" % code, "Look up NVML return code %d in nvml.h" % code))
        return NvmlError(kind, tried, target, "NVML answers %s (%d)" % (kind.replace("_", " "), code), remedy, code=code)

    def ask(self, gpu, call, *args):
        """Call nvmlDevice<call> for a GPU (None: a call without a device, named in full)."""
        target = gpu.label if gpu is not None else "NVML"
        try:
            if gpu is None:
                return _text(getattr(self.binding, call)(*args))
            return _text(getattr(self.binding, "nvmlDevice" + call)(self._handle(gpu), *args))
        except self.binding.NVMLError as err:
            raise self.error(err, "call %s on" % call, target)
        except AttributeError:
            raise NvmlError("function_not_found", "call %s on" % call, target, "this pynvml does not know the call",
                            "Upgrade nvidia-ml-py", code=13)

    def _handle(self, gpu):
        if gpu.label not in self._handles:
            self._handles[gpu.label] = (
                self.binding.nvmlDeviceGetHandleByUUID(gpu.uuid.encode() if isinstance(gpu.uuid, str) else gpu.uuid)
                if gpu.uuid else self.binding.nvmlDeviceGetHandleByIndex(gpu.index)
            )
        return self._handles[gpu.label]

    def forget_handle(self, gpu):
        """A handle can become invalid: coherent-memory GPUs after persistence went off, any GPU after a mode change."""
        self._handles.pop(gpu.label, None)

    def driver_version(self):
        return self.ask(None, "nvmlSystemGetDriverVersion")

    def cuda_version(self):
        """The driver's CUDA version as text, for instance 12.4 (NVML says 12040)."""
        number = self.ask(None, "nvmlSystemGetCudaDriverVersion_v2")
        return "%d.%d" % (number // 1000, number % 1000 // 10)

    def gpus(self):
        """Every GPU NVML counts, in its order; one that can't be asked hides no other."""
        found = []
        for index in range(self.ask(None, "nvmlDeviceGetCount")):
            uuid = pci = name = error = None
            try:
                handle = self.binding.nvmlDeviceGetHandleByIndex(index)
                pci = normal_pci(_text(self.binding.nvmlDeviceGetPciInfo(handle).busId))
                uuid = _text(self.binding.nvmlDeviceGetUUID(handle))
                name = _text(self.binding.nvmlDeviceGetName(handle))
            except self.binding.NVMLError as err:
                error = self.error(err, "ask", pci or "GPU %d" % index)
            found.append(Gpu(index, uuid, pci, name, error))
            if error is None:
                self._handles[found[-1].label] = handle
        return found

    def persistence(self, gpu):
        return bool(self.ask(gpu, "GetPersistenceMode"))

    def set_persistence(self, gpu, wanted):
        self.ask(gpu, "SetPersistenceMode", 1 if wanted else 0)
        self.forget_handle(gpu)

    def confidential_computing(self):
        """Whether confidential computing is on; False where the driver or the board does not know it."""
        try:
            return bool(self.ask(None, "nvmlSystemGetConfComputeState").ccFeature)
        except NvmlError:
            return False

    def near_nodes(self, gpu):
        """NUMA nodes near a GPU. Several, or all of a host, is how NVML says that it does not know."""
        words = self.ask(gpu, "GetMemoryAffinity", 16, 0)  # 16 words of 64 nodes, scope: node
        return [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]

    def memory_node(self, gpu):
        """The NUMA node that a GPU's memory is; None on boards whose memory is no node."""
        try:
            node = self.ask(gpu, "GetNumaNodeId")
        except NvmlError:
            return None
        return node if isinstance(node, int) and 0 <= node < 1024 else None

    def is_vgpu_guest(self, gpu):
        try:
            return self.ask(gpu, "GetVirtualizationMode") == 2
        except NvmlError:
            return False


class PlannedNvml(Nvml):
    """Reads the real NVML; what would be set is only remembered."""

    def __init__(self, base):
        super().__init__(base.host, base.binding, base.source)
        self.base = base
        self._handles = base._handles
        self._persistence = {}

    def persistence(self, gpu):
        return self._persistence[gpu.label] if gpu.label in self._persistence else self.base.persistence(gpu)

    def set_persistence(self, gpu, wanted):
        self._persistence[gpu.label] = bool(wanted)


def kernel_driver_version(host):
    """The kernel module's version, from /proc; None when the module is not loaded."""
    for word in (host.read("/proc/driver/nvidia/version") or "").split():
        parts = word.split(".")
        if len(parts) >= 2 and all(part.isdigit() for part in parts):
            return word
    return None


def library_version(host):
    """The user-space side's version, from the file name of the library; None when it has no such name."""
    for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"):
        for path in host.glob(folder + "/libnvidia-ml.so.*.*"):
            return path.partition(".so.")[2]
    return None


def binding_steps(host, nvml):
    """The step that keeps a binding the controller sent; none when the node has what it needs."""
    from ._plan import Step

    if nvml.source != "given" or host.read(BINDING_FILE) == host.read(nvml.binding.__file__):
        return []
    return [Step("install_binding", BINDING_FILE, None, "pynvml", detail=nvml.binding.__file__)]


def install_binding(host, step):
    """Performer of install_binding: copy the sent file and compile it, as each import would cost 0.2 s without."""
    if host.is_planned:
        return
    host.make_dir(STATE_DIR)
    host.make_dir(BINDING_DIR)
    host.replace(step.target, host.read(step.detail))
    import py_compile

    try:
        py_compile.compile(step.target, doraise=True)
    except (OSError, py_compile.PyCompileError):
        return


def remove_binding(host, step):
    """Performer of remove_binding: the binding and what Python compiled of it."""
    cache = BINDING_DIR + "/__pycache__"
    for name in host.listdir(cache):
        host.remove(os.path.join(cache, name))
    host.remove_dir(cache)
    host.remove(BINDING_FILE)
    host.remove_dir(BINDING_DIR)
