/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* libnvidia-ml.so.1: start and end, the system, and how a device is found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards.h"
#include "call.h"
#include "format.h"

static nvmlReturn_t initialise(void)
{
    struct call call;
    if (!call_begin_init(&call, "nvmlInit"))
        return call_end(&call, call.code);
    if (!call.machine->loaded)
        return call_end(&call, NVML_DRIVER_NOT_LOADED);
    if (strcmp(call.machine->driver, call.machine->library) != 0)
        return call_end(&call, NVML_LIB_RM_VERSION_MISMATCH);
    if (!client_joined() && client_join(call.machine, false) != 0)
        return call_end(&call, NVML_OPERATING_SYSTEM);
    initialised++;
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return initialise();
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return initialise();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return initialise();
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    struct call call;
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    if (--initialised == 0) {
        client_leave(call.machine);
        settle(call.machine);
    }
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    struct call call;
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    return answer_text(&call, version, length, call.machine->driver);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    struct call call;
    char text[64];
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    snprintf(text, sizeof text, "%u.%s", cuda_version(call.machine) / 1000, call.machine->library);
    return answer_text(&call, version, length, text);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct call call;
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    if (!version)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *version = (int)cuda_version(call.machine);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    struct call call;
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    for (unsigned int i = 0; i < call.machine->gpu_count; i++)
        for (int p = 0; p < MAX_PROCESSES; p++) {
            const struct process *process = &call.machine->gpus[i].processes[p];
            if (process->used && process->pid == pid)
                return answer_text(&call, name, length, process->name);
        }
    return call_end(&call, NVML_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state)
{
    struct call call;
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    if (!state)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    bool on = call.machine->confidential_computing;
    *state = (nvmlConfComputeSystemState_t){.environment = on, .ccFeature = on, .devToolsMode = 0};
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct call call;
    if (!call_begin(&call, __func__))
        return call_end(&call, call.code);
    if (!count)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    *count = gpus_counted(call.machine);
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

/* A handle makes this process one that holds the GPU. */
static nvmlReturn_t answer_handle(struct call *call, int index, nvmlReturn_t otherwise, nvmlDevice_t *device)
{
    nvmlReturn_t code = injected(call->machine, call->name, index);
    if (code == NVML_SUCCESS)
        code = index < 0 ? otherwise : call_about(call, index);
    if (code != NVML_SUCCESS)
        return call_end(call, code);
    delay(init_cost(call->machine, index));
    client_hold(call->machine, index);
    *device = handle_of(call->machine, index);
    return call_end(call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct call call;
    if (!call_begin_search(&call, __func__))
        return call_end(&call, call.code);
    if (!device)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    return answer_handle(&call, gpu_by_index(call.machine, index), NVML_INVALID_ARGUMENT, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct call call;
    if (!call_begin_search(&call, __func__))
        return call_end(&call, call.code);
    if (!uuid || !device)
        return call_end(&call, NVML_INVALID_ARGUMENT);
    int found = -1;
    for (unsigned int i = 0; i < call.machine->gpu_count; i++)
        if (call.machine->gpus[i].presence != ABSENT && strcmp(call.machine->gpus[i].uuid, uuid) == 0)
            found = (int)i;
    return answer_handle(&call, found, NVML_NOT_FOUND, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    struct call call;
    struct gpu wanted = {0};
    if (!call_begin_search(&call, __func__))
        return call_end(&call, call.code);
    if (!bus_id || !device || !parse_pci(bus_id, &wanted))
        return call_end(&call, NVML_INVALID_ARGUMENT);
    int found = -1;
    for (unsigned int i = 0; i < call.machine->gpu_count; i++) {
        const struct gpu *gpu = &call.machine->gpus[i];
        if (gpu->presence != ABSENT && compare_pci(gpu, &wanted) == 0)
            found = (int)i;
    }
    return answer_handle(&call, found, NVML_NOT_FOUND, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    return error_text(code);
}
