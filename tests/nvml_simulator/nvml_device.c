/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* libnvidia-ml.so.1: what a device answers, and the little that can be set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "boards.h"
#include "call.h"
#include "format.h"
#include "mig.h"

static nvmlReturn_t answer_number(struct call *call, unsigned int *place, unsigned int number)
{
    if (!place)
        return call_end(call, NVML_INVALID_ARGUMENT);
    *place = number;
    return call_end(call, NVML_SUCCESS);
}

static const struct board *board_of(const struct call *call)
{
    return board_find(call->gpu->board);
}

/* Identity */

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    DEVICE_CALL(call, device);
    return answer_text(&call, name, length, board_of(&call)->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    DEVICE_CALL(call, device);
    return answer_text(&call, uuid, length, call.gpu->uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    DEVICE_CALL(call, device);
    return answer_text(&call, serial, length, call.gpu->serial);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    DEVICE_CALL(call, device);
    if (!info)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    const struct gpu *gpu = call.gpu;
    *info = (nvmlPciInfo_t){
        .domain = gpu->domain,
        .bus = gpu->bus,
        .device = gpu->device,
        .pciDeviceId = board_of(&call)->pci_device,
        .pciSubSystemId = board_of(&call)->pci_subsystem,
    };
    /* The old field has room for four digits of domain. */
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.%X", gpu->domain & 0xffff, gpu->bus & 0xff,
             gpu->device & 0x1f, gpu->function & 7);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.%X", gpu->domain, gpu->bus, gpu->device, gpu->function);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    DEVICE_CALL(call, device);
    unsigned int number = 0;
    while (gpu_by_index(call.machine, number) != call.index)
        number++;
    return answer_number(&call, index, number);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, minor, call.gpu->minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, brand, board_of(&call)->brand);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, architecture, board_of(&call)->architecture);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    DEVICE_CALL(call, device);
    if (!major || !minor)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *major = board_of(&call)->major;
    *minor = board_of(&call)->minor;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, mode, call.gpu->virtualization);
}

/* Modes */

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
    DEVICE_CALL(call, device);
    if (!persistence_known(call.gpu))
        return call_end(&call, NVML_NOT_SUPPORTED);
    return answer_number(&call, mode, persistent(call.gpu));
}

/* The legacy flag: what the daemon holds stays as it is. */
EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    DEVICE_CALL(call, device);
    if (!persistence_known(call.gpu))
        return call_end(&call, NVML_NOT_SUPPORTED);
    if (mode > 1)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    if (geteuid() != 0)
        return call_end(&call, NVML_NO_PERMISSION);
    bool before = persistent(call.gpu);
    call.gpu->persistence_legacy = mode;
    persistence_changed(call.gpu, before);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, mode, call.gpu->compute_mode);
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    DEVICE_CALL(call, device);
    if (mode > COMPUTE_EXCLUSIVE_PROCESS)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    if (geteuid() != 0)
        return call_end(&call, NVML_NO_PERMISSION);
    if (mode == COMPUTE_EXCLUSIVE_THREAD || (mode == COMPUTE_EXCLUSIVE_PROCESS && call.gpu->mig.current))
        return call_end(&call, NVML_NOT_SUPPORTED);
    call.gpu->compute_mode = mode;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    DEVICE_CALL(call, device);
    if (!current || !pending)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *current = call.gpu->ecc_current;
    *pending = call.gpu->ecc_pending;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    DEVICE_CALL(call, device);
    if (!mig_capable(call.gpu))
        return call_end(&call, NVML_NOT_SUPPORTED);
    if (!current || !pending)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *current = call.gpu->mig.current;
    *pending = call.gpu->mig.pending;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, is, 0);
}

/* Place */

static nvmlReturn_t answer_mask(struct call *call, unsigned int size, unsigned long *place, const uint64_t *mask)
{
    if (!place || size == 0)
        return call_end(call, NVML_INVALID_ARGUMENT);
    for (unsigned int i = size; i < MASK_WORDS; i++)
        if (mask[i])
            return call_end(call, NVML_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < size; i++)
        place[i] = i < MASK_WORDS ? mask[i] : 0;
    return call_end(call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int size, unsigned long *cpus,
                                                        unsigned int scope)
{
    DEVICE_CALL(call, device);
    if (scope > SCOPE_SOCKET)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    return answer_mask(&call, size, cpus, scope == SCOPE_NODE ? call.gpu->cpus : call.gpu->socket_cpus);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size, unsigned long *cpus)
{
    DEVICE_CALL(call, device);
    return answer_mask(&call, size, cpus, call.gpu->cpus);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes,
                                                unsigned int scope)
{
    DEVICE_CALL(call, device);
    if (scope > SCOPE_SOCKET)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    const uint64_t *mask = scope == SCOPE_NODE ? call.gpu->nodes : call.gpu->socket_nodes;
    if (empty_mask(mask))
        return call_end(&call, NVML_NOT_SUPPORTED);
    return answer_mask(&call, size, nodes, mask);
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    DEVICE_CALL(call, device);
    if (call.gpu->memory_node < 0)
        return call_end(&call, NVML_NOT_SUPPORTED);
    return answer_number(&call, node, (unsigned int)call.gpu->memory_node);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, generation, board_of(&call)->pcie_generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, generation, board_of(&call)->pcie_generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, width, board_of(&call)->pcie_width);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    DEVICE_CALL(call, device);
    return answer_number(&call, width, board_of(&call)->pcie_width);
}
