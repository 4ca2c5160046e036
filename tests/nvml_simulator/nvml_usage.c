/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* libnvidia-ml.so.1: who uses a device, and how much of it. */
#include <time.h>

#include "boards.h"
#include "call.h"
#include "mig.h"

/* What the driver keeps for itself. */
static unsigned long long reserved(const struct board *board)
{
    return board->memory_mib / 128 << 20;
}

static unsigned long long used(const struct gpu *gpu)
{
    unsigned long long sum = 0;
    for (int i = 0; i < MAX_PROCESSES; i++)
        sum += gpu->processes[i].used ? gpu->processes[i].memory : 0;
    return sum;
}

static unsigned long long at_most(unsigned long long number, unsigned long long limit)
{
    return number < limit ? number : limit;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    DEVICE_CALL(call, device);
    if (!memory)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    const struct board *board = board_find(call.gpu->board);
    memory->total = board->memory_mib << 20;
    memory->used = at_most(reserved(board) + used(call.gpu), memory->total);
    memory->free = memory->total - memory->used;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    DEVICE_CALL(call, device);
    if (!memory)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    if (memory->version != NVML_MEMORY_V2)
        return call_end(&call, NVML_ARGUMENT_VERSION_MISMATCH);
    const struct board *board = board_find(call.gpu->board);
    memory->total = board->memory_mib << 20;
    memory->reserved = reserved(board);
    memory->used = at_most(used(call.gpu), memory->total - memory->reserved);
    memory->free = memory->total - memory->reserved - memory->used;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    DEVICE_CALL(call, device);
    if (!utilization)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    utilization->gpu = call.gpu->utilization_gpu;
    utilization->memory = call.gpu->utilization_memory;
    return call_end(&call, NVML_SUCCESS);
}

/* Processes: `count` is the room there is on the way in, and how many there are on the way out. */
static nvmlReturn_t answer_processes(struct call *call, unsigned int kind, unsigned int *count,
                                     nvmlProcessInfo_t *infos)
{
    unsigned int there = 0;
    if (!count)
        return call_end(call, NVML_INVALID_ARGUMENT);
    for (int i = 0; i < MAX_PROCESSES; i++)
        there += call->gpu->processes[i].used && call->gpu->processes[i].kind == kind;
    unsigned int room = *count;
    *count = there;
    if (room < there)
        return call_end(call, NVML_INSUFFICIENT_SIZE);
    if (there && !infos)
        return call_end(call, NVML_INVALID_ARGUMENT);
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &call->gpu->processes[i];
        if (process->used && process->kind == kind)
            *infos++ = (nvmlProcessInfo_t){process->pid, process->memory, UINT32_MAX, UINT32_MAX};
    }
    return call_end(call, NVML_SUCCESS);
}

/* The second and third form have the same structure. */
#define PROCESSES(name, kind) \
    EXPORT nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) \
    { \
        DEVICE_CALL(call, device); \
        return answer_processes(&call, kind, count, infos); \
    } \
    EXPORT nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) \
    { \
        DEVICE_CALL(call, device); \
        return answer_processes(&call, kind, count, infos); \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    DEVICE_CALL(call, device);
    if (!reasons)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *reasons = call.gpu->clocks_event_reasons;
    return call_end(&call, NVML_SUCCESS);
}

/* The older name of the same. */
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    DEVICE_CALL(call, device);
    if (!reasons)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *reasons = call.gpu->clocks_event_reasons;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    DEVICE_CALL(call, device);
    if (!reasons)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *reasons = 0x1ff;
    return call_end(&call, NVML_SUCCESS);
}

static nvmlReturn_t field(const struct gpu *gpu, nvmlFieldValue_t *value)
{
    const struct board *board = board_find(gpu->board);
    if (!mig_capable(gpu))
        return NVML_NOT_SUPPORTED;
    switch (value->fieldId) {
    case FIELD_RESETLESS_MIG:
        value->value.uiVal = board->architecture >= HOPPER;
        break;
    case FIELD_MIG_MODE_INDEPENDENT_QUERY:
        value->value.uiVal = 1;
        break;
    default:
        return NVML_NOT_SUPPORTED;
    }
    value->valueType = VALUE_UNSIGNED_INT;
    return NVML_SUCCESS;
}

/* Succeeds as a whole; each field says for itself whether there is such a thing. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    DEVICE_CALL(call, device);
    struct timespec now;
    if (count <= 0 || !values)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        values[i].latencyUsec = 0;
        values[i].value.ullVal = 0;
        values[i].nvmlReturn = field(call.gpu, &values[i]);
    }
    return call_end(&call, NVML_SUCCESS);
}
