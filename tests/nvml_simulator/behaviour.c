/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "behaviour.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *origin, *what, *evidence;
} rows[] = {
    {"source", "structures and constants", "ctypes declarations of nvidia-ml-py 13.615.71"},
    {"report", "boards: device ids; subsystem ids of A100-SXM4-40GB, H100, H200, B200 and GB200",
     "PCI id list; nvidia-smi and NCCL topology captures; NVIDIA/mig-parted#227; NVIDIA/k8s-test-infra"},
    {"assumed", "boards: the other subsystem ids, memory to the MiB, brands, PCIe links", ""},
    {"source", "process lists: size query with count 0, INSUFFICIENT_SIZE with the number needed", "nvidia-ml-py"},
    {"assumed", "GPUs are counted in the order of their PCI addresses (documented: no order is promised)", ""},
    {"doc", "taking a handle initialises the GPU; a process holds it until nvmlShutdown or its end",
     "NVML reference, nvmlDeviceGetHandleByIndex"},
    {"doc", "compute mode is lost when nobody holds the GPU and persistence is off", "NVIDIA driver persistence page"},
    {"doc", "persistence off on a GPU whose memory is a NUMA node makes its handles invalid",
     "NVML reference, nvmlDeviceSetPersistenceMode"},
    {"assumed", "a void handle answers INVALID_ARGUMENT", ""},
    {"doc", "setting modes needs root: NO_PERMISSION", "NVML reference"},
    {"assumed", "root is effective user 0; capabilities are not looked at", ""},
    {"source", "nvmlDeviceSetPersistenceMode is the legacy flag, apart from the daemon's; get reports either",
     "nvidia-persistenced 595.71.05"},
    {"source", "the daemon ignores GPUs it can't set, and fails when no GPU is usable",
     "nvidia-persistenced 595.71.05"},
    {"source", "SIGTERM of the daemon switches its persistence off on every GPU", "nvidia-persistenced 595.71.05"},
    {"source", "a second daemon fails on the lock of the pid file", "nvidia-persistenced 595.71.05"},
    {"source", "the device list is built once, at the daemon's start", "nvidia-persistenced 595.71.05"},
    {"assumed", "SIGKILL of the daemon ends its persistence, as its device files are closed", ""},
    {"assumed", "any local user may run the daemon; device nodes are taken for ready", ""},
    {"report", "persistence is NOT_SUPPORTED on WSL", "dask/distributed#5343, gpuopenanalytics/pynvml#26"},
    {"assumed", "persistence is NOT_SUPPORTED in a guest with a virtual GPU", ""},
    {"assumed", "of the codes there are, nvmlInit answers 18 when library and kernel module differ in version", ""},
    {"assumed", "a reboot loads the kernel module of the library's version", ""},
    {"source", "the kernel module can't be unloaded while the daemon or another client holds a GPU",
     "NVIDIA/gpu-driver-container 06a208c"},
    {"doc", "the first client of a GPU waits for its initialisation unless persistence is on",
     "NVIDIA driver persistence page"},
    {"assumed", "nvmlShutdown without nvmlInit is UNINITIALIZED; the header also says that it is no error", ""},
    {"doc", "code 9 at nvmlInit without the kernel module", "NVML reference, nvmlInit_v2"},
    {"source", "a function the library lacks is FUNCTION_NOT_FOUND", "nvidia-ml-py"},
    {"assumed", "the driver release in which each function came", ""},
    {"doc", "GPU_IS_LOST from every call on a GPU that fell off the bus", "NVML reference"},
    {"assumed", "taking a handle of a lost GPU is GPU_IS_LOST too, and the others' handles are not", ""},
    {"assumed", "a lost GPU is back after a reboot", ""},
    {"doc", "NumaNodeId is NOT_SUPPORTED unless the GPU is a node", "NVML reference, nvmlDeviceGetNumaNodeId"},
    {"assumed", "a GPU whose node is unknown: CPU affinity is all CPUs, memory affinity NOT_SUPPORTED", ""},
    {"doc", "exclusive compute modes are not available in MIG mode", "NVIDIA MIG user guide"},
    {"assumed", "EXCLUSIVE_THREAD is NOT_SUPPORTED", ""},
    {"doc", "MIG mode outlives a reboot or an unload on Ampere only; a pending mode is active after a reset",
     "NVIDIA MIG user guide"},
    {"source", "field 184, MIG without a reset, is 1 from Hopper on; unknown fields fail one by one", "nvml.h"},
    {"assumed", "field 199, queries independent of the MIG mode, is 1 on every MIG-capable board", ""},
    {"assumed", "MPS clients are in the MPS list alone", ""},
    {"assumed", "memory the driver keeps for itself is 1/128 of the board's", ""},
    {"report", "a reset is refused while another process holds the GPU; the daemon lets go by itself",
     "NVIDIA/gpu-operator#118"},
    {"assumed", "a reset loses the legacy persistence flag and is not blocked by it", ""},
    {"assumed", "a reset does not bring a lost GPU back", ""},
    {"doc", "time slice: 0 to 3, root only, lost at reboot", "NVIDIA MPS documentation"},
};

int show_behaviour(const char *origin)
{
    printf("| origin | behaviour | evidence |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!origin || strcmp(rows[i].origin, origin) == 0)
            printf("| %s | %s | %s |\n", rows[i].origin, rows[i].what, rows[i].evidence);
    return 0;
}
