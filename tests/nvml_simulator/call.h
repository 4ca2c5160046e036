/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* One NVML call: its transaction, its line in the log, and the errors that come before the function's own work. */
#ifndef NVML_SIMULATOR_CALL_H
#define NVML_SIMULATOR_CALL_H

#include "nvml_abi.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

struct call {
    const char *name;
    struct machine *machine;
    struct gpu *gpu;
    int index;
    nvmlReturn_t code;
};

/* False when the call is over already: the answer is then call_end(call, call->code). */
bool call_begin(struct call *call, const char *name);
bool call_begin_device(struct call *call, const char *name, nvmlDevice_t device);
/* Without asking for an injected error, as the GPU that the call is about has to be found first. */
bool call_begin_search(struct call *call, const char *name);
/* For nvmlInit: begins whether or not NVML is initialised. */
bool call_begin_init(struct call *call, const char *name);
nvmlReturn_t call_end(struct call *call, nvmlReturn_t code);
nvmlReturn_t answer_text(struct call *call, char *buffer, unsigned int length, const char *text);

/* Says which GPU the call turned out to be about, and fails when that one can't answer. */
nvmlReturn_t call_about(struct call *call, int index);
nvmlDevice_t handle_of(const struct machine *machine, int index);

extern unsigned int initialised;

/* Start of a function about one device; leaves with the error of that start. */
#define DEVICE_CALL(call, device) \
    struct call call; \
    if (!call_begin_device(&call, __func__, device)) \
        return call_end(&call, call.code)

/* The release that brought a function, as the first number of the driver's version. */
unsigned int since(const char *name);

#endif
