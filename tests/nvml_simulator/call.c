/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

unsigned int initialised;

/* A handle is a mark, the generation it was taken in, and the GPU's place. */
enum { HANDLE_MARK = 0x4e56 };

static const struct {
    const char *name;
    unsigned int driver;
} introduced[] = {
#define SINCE(name, driver) {#name, driver},
#include "introduced.def"
};

unsigned int since(const char *name)
{
    for (size_t i = 0; i < sizeof introduced / sizeof *introduced; i++)
        if (strcmp(introduced[i].name, name) == 0)
            return introduced[i].driver;
    return 0;
}

nvmlDevice_t handle_of(const struct machine *machine, int index)
{
    uint64_t handle = (uint64_t)HANDLE_MARK << 48 | (unsigned int)index;
    handle |= (uint64_t)machine->gpus[index].generation << 8;
    return (nvmlDevice_t)(uintptr_t)handle;
}

static bool call_start(struct call *call, const char *name)
{
    *call = (struct call){.name = name, .index = -1};
    int failed = state_begin(&call->machine);
    if (failed == 0)
        return true;
    call->code = failed == EPROTO ? NVML_UNKNOWN : NVML_DRIVER_NOT_LOADED;
    return false;
}

bool call_begin_init(struct call *call, const char *name)
{
    if (!call_start(call, name))
        return false;
    call->code = injected(call->machine, name, -1);
    return call->code == 0;
}

static bool call_known(struct call *call)
{
    if (!initialised)
        call->code = NVML_UNINITIALIZED;
    else if ((unsigned long)atol(call->machine->library) < since(call->name))
        call->code = NVML_FUNCTION_NOT_FOUND;
    return call->code == 0;
}

bool call_begin(struct call *call, const char *name)
{
    if (!call_start(call, name) || !call_known(call))
        return false;
    call->code = injected(call->machine, name, -1);
    return call->code == 0;
}

bool call_begin_search(struct call *call, const char *name)
{
    return call_start(call, name) && call_known(call);
}

bool call_begin_device(struct call *call, const char *name, nvmlDevice_t device)
{
    uint64_t handle = (uint64_t)(uintptr_t)device;
    unsigned int index = handle & 0xff;
    if (!call_start(call, name) || !call_known(call))
        return false;
    if (handle >> 48 != HANDLE_MARK || index >= call->machine->gpu_count ||
        device != handle_of(call->machine, (int)index)) {
        call->code = NVML_INVALID_ARGUMENT;
        return false;
    }
    call->code = injected(call->machine, name, (int)index);
    if (call->code == 0)
        call->code = call_about(call, (int)index);
    else
        call->index = (int)index;
    return call->code == 0;
}

nvmlReturn_t call_about(struct call *call, int index)
{
    call->index = index;
    call->gpu = &call->machine->gpus[index];
    return call->gpu->presence == PRESENT ? NVML_SUCCESS : NVML_GPU_IS_LOST;
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t code)
{
    if (call->machine) {
        log_append(call->name, call->index, code);
        state_end(true);
    }
    return code;
}

nvmlReturn_t answer_text(struct call *call, char *buffer, unsigned int length, const char *text)
{
    if (!buffer)
        return call_end(call, NVML_INVALID_ARGUMENT);
    if (strlen(text) >= length)
        return call_end(call, NVML_INSUFFICIENT_SIZE);
    strcpy(buffer, text);
    return call_end(call, NVML_SUCCESS);
}
