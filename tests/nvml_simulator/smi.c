/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Stand-in for the two things that nvidia-smi can and NVML can't: a GPU's reset, and its time slice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format.h"
#include "state.h"
#include "words.h"

static const char usage[] =
    "nvidia-smi --gpu-reset [-i ID,...]\n"
    "nvidia-smi compute-policy [-i ID,...] --list | --set-timeslice=0|1|2|3\n"
    "This stand-in knows nothing else.\n";
static const char *const slices[] = {"Default", "Short", "Medium", "Long"};

enum { BAD_ARGUMENT = 2, NO_PERMISSION = 4, NOT_FOUND = 6, NO_DRIVER = 9, IS_LOST = 15, MISMATCH = 18, IN_USE = 19 };

static int begin(struct machine **machine)
{
    int failed = state_begin(machine);
    if (failed == 0 && (*machine)->loaded && strcmp((*machine)->driver, (*machine)->library) == 0)
        return 0;
    if (failed == 0) {
        bool mismatch = (*machine)->loaded;
        state_end(false);
        if (mismatch) {
            puts("Failed to initialize NVML: Driver/library version mismatch");
            return MISMATCH;
        }
    }
    puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
         "NVIDIA driver is installed and running.");
    return NO_DRIVER;
}

/* The GPUs of a list such as 0,GPU-...,0000:1b:00.0; all without one. Answers how many, -1 for a name that is none. */
static int choose(const struct machine *machine, const char *list, int chosen[MAX_GPUS])
{
    int count = 0;
    if (!list) {
        for (unsigned int i = 0; i < machine->gpu_count; i++)
            if (machine->gpus[i].presence != ABSENT)
                chosen[count++] = (int)i;
        return count;
    }
    char *names = strdup(list), *rest = names;
    for (char *name; count >= 0 && count < MAX_GPUS && (name = strsep(&rest, ","));) {
        int index = find_gpu(machine, name);
        if (index < 0 || machine->gpus[index].presence == ABSENT) {
            printf("No devices were found: %s\n", name);
            count = -1;
        } else {
            chosen[count++] = index;
        }
    }
    free(names);
    return count;
}

static void bus_id(const struct gpu *gpu, char text[32])
{
    snprintf(text, 32, "%08X:%02X:%02X.%X", gpu->domain, gpu->bus, gpu->device, gpu->function);
}

static int reset(const char *list)
{
    struct machine *machine;
    int chosen[MAX_GPUS];
    int failed = begin(&machine);
    if (failed)
        return failed;
    int count = choose(machine, list, chosen);
    if (geteuid() != 0)
        failed = NO_PERMISSION;
    if (count < 0)
        failed = NOT_FOUND;
    if (failed == NO_PERMISSION)
        puts("Unable to reset this GPU: Insufficient Permissions");
    for (int i = 0; !failed && i < count; i++) {
        char id[32];
        bus_id(&machine->gpus[chosen[i]], id);
        int code = injected(machine, "gpu-reset", chosen[i]);
        if (code == 0 && reset_gpu(machine, chosen[i])) {
            printf("GPU %s was successfully reset.\n", id);
        } else if (code == 0 && machine->gpus[chosen[i]].presence == PRESENT) {
            printf("The following GPUs could not be reset:\n  GPU %s: In use by another client\n", id);
            code = IN_USE;
        } else {
            code = code ? code : IS_LOST;
            printf("The following GPUs could not be reset:\n  GPU %s: %s\n", id, error_text(code));
        }
        log_append("gpu-reset", chosen[i], code);
        failed = code ? 255 : 0;
    }
    if (!failed)
        puts("All done.");
    state_end(true);
    return failed;
}

static int compute_policy(const char *list, int slice, bool show)
{
    struct machine *machine;
    int chosen[MAX_GPUS];
    int failed = begin(&machine);
    if (failed)
        return failed;
    int count = choose(machine, list, chosen);
    if (count < 0)
        failed = NOT_FOUND;
    if (!failed && !show && geteuid() != 0) {
        puts("Failed to set timeslice policy: Insufficient Permissions");
        failed = NO_PERMISSION;
    }
    for (int i = 0; !failed && i < count; i++) {
        struct gpu *gpu = &machine->gpus[chosen[i]];
        char id[32];
        bus_id(gpu, id);
        int code = injected(machine, "compute-policy", chosen[i]);
        if (code == 0 && gpu->presence != PRESENT)
            code = IS_LOST;
        log_append("compute-policy", chosen[i], code);
        if (code) {
            printf("Failed to %s timeslice policy for GPU %s: %s\n", show ? "list" : "set", id, error_text(code));
            failed = code;
        } else if (show) {
            printf("GPU %s\n    Time-slice: %s\n", id, slices[gpu->time_slice]);
        } else {
            gpu->time_slice = (uint32_t)slice;
            printf("Successfully set timeslice policy to %s for GPU %s\n", slices[slice], id);
        }
    }
    state_end(true);
    return failed;
}

static int refuse(const char *why)
{
    if (why)
        printf("Invalid combination of input arguments: %s\n", why);
    fputs(usage, stderr);
    return BAD_ARGUMENT;
}

int main(int argc, char **argv)
{
    const char *list = NULL;
    int slice = -1;
    bool wants_reset = false, show = false, policy = argc > 1 && strcmp(argv[1], "compute-policy") == 0;
    for (int i = policy ? 2 : 1; i < argc; i++) {
        const char *word = argv[i], *value = strchr(word, '=');
        bool is_id = !strcmp(word, "-i") || !strncmp(word, "--id=", 5) || !strcmp(word, "--id");
        bool is_slice = policy && (!strcmp(word, "--set-timeslice") || !strncmp(word, "--set-timeslice=", 16));
        if (is_id || is_slice) {
            value = value ? value + 1 : argv[++i];
            if (!value)
                return refuse(word);
            if (is_id)
                list = value;
            else if (strlen(value) == 1 && *value >= '0' && *value <= '3')
                slice = *value - '0';
            else
                return refuse(value);
        } else if (!policy && (!strcmp(word, "--gpu-reset") || !strcmp(word, "-r"))) {
            wants_reset = true;
        } else if (policy && (!strcmp(word, "--list") || !strcmp(word, "-l"))) {
            show = true;
        } else {
            return refuse(word);
        }
    }
    if (policy && show != (slice >= 0))
        return compute_policy(list, slice, show);
    return wants_reset ? reset(list) : refuse(NULL);
}
