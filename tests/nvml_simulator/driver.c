/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* What the driver does by itself: hold and lose GPU state, reset, reboot, answer an injected error. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards.h"
#include "mig.h"
#include "state.h"

bool persistent(const struct gpu *gpu)
{
    return gpu->persistence_legacy || gpu->persistence_daemon;
}

bool persistence_known(const struct gpu *gpu)
{
    return gpu->persistence_supported && gpu->virtualization != VGPU_GUEST;
}

void persistence_changed(struct gpu *gpu, bool before)
{
    const struct board *board = board_find(gpu->board);
    /* The GPU's memory leaves the CPU's nodes, the device is bound anew: every handle of before is void. */
    if (before && !persistent(gpu) && board && board->coherent && gpu->memory_node >= 0)
        gpu->generation++;
}

bool held(const struct machine *machine, int gpu, bool by_others_than_daemon)
{
    for (int i = 0; i < MAX_CLIENTS; i++) {
        const struct client *client = &machine->clients[i];
        if (client->used && client->gpus & 1u << gpu && !(client->daemon && by_others_than_daemon))
            return true;
    }
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (machine->gpus[gpu].processes[i].used)
            return true;
    return false;
}

static void lose_volatile(struct gpu *gpu)
{
    gpu->compute_mode = 0;
    gpu->clocks_event_reasons = 0;
}

void settle(struct machine *machine)
{
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        if (!persistent(&machine->gpus[i]) && !held(machine, (int)i, false))
            lose_volatile(&machine->gpus[i]);
}

/* What the kernel module keeps for a GPU. */
static void forget(struct gpu *gpu)
{
    lose_volatile(gpu);
    gpu->persistence_legacy = false;
    gpu->time_slice = 0;
}

static void reset(struct gpu *gpu)
{
    forget(gpu);
    gpu->ecc_current = gpu->ecc_pending;
}

bool reset_gpu(struct machine *machine, int index)
{
    struct gpu *gpu = &machine->gpus[index];
    if (gpu->presence != PRESENT || held(machine, index, true))
        return false;
    reset(gpu);
    mig_after_reset(gpu);
    return true;
}

void reboot_machine(struct machine *machine)
{
    memset(machine->clients, 0, sizeof machine->clients);
    machine->loaded = false;
    load_driver(machine);
    for (unsigned int i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        memset(gpu->processes, 0, sizeof gpu->processes);
        gpu->persistence_daemon = gpu->uvm_persistence = false;
        reset(gpu);
        mig_after_reboot(gpu);
        if (gpu->presence == LOST)
            gpu->presence = PRESENT;
    }
}

bool unload_driver(struct machine *machine)
{
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        if (held(machine, (int)i, false))
            return false;
    for (unsigned int i = 0; i < machine->gpu_count; i++) {
        forget(&machine->gpus[i]);
        mig_after_unload(&machine->gpus[i]);
    }
    machine->loaded = false;
    return true;
}

bool load_driver(struct machine *machine)
{
    if (!machine->installed || machine->loaded)
        return machine->loaded;
    /* The module on disk is the one installed with the library. */
    memcpy(machine->driver, machine->library, sizeof machine->driver);
    machine->loaded = true;
    return true;
}

unsigned int init_cost(const struct machine *machine, int gpu)
{
    return persistent(&machine->gpus[gpu]) || held(machine, gpu, false) ? 0 : machine->init_ms;
}

unsigned int gpus_counted(const struct machine *machine)
{
    unsigned int count = 0;
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        count += machine->gpus[i].presence != ABSENT;
    return count;
}

int gpu_by_index(const struct machine *machine, unsigned int index)
{
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        if (machine->gpus[i].presence != ABSENT && index-- == 0)
            return (int)i;
    return -1;
}

bool same_call(const char *name, const char *call)
{
    size_t length = strlen(name);
    if (strcmp(name, "*") == 0)
        return true;
    if (strncmp(name, call, length) != 0)
        return false;
    call += length;
    return *call == '\0' || (call[0] == '_' && call[1] == 'v' && call[2] >= '1' && call[2] <= '9' && call[3] == '\0');
}

int injected(struct machine *machine, const char *call, int gpu)
{
    int code = 0;
    for (int i = 0; i < MAX_INJECTIONS; i++) {
        struct injection *rule = &machine->injections[i];
        if (!rule->used || !same_call(rule->call, call) || (rule->gpu >= 0 && rule->gpu != gpu))
            continue;
        if (rule->seen++ < rule->skip || (rule->times && rule->hits >= rule->times))
            continue;
        if (code == 0) {
            rule->hits++;
            delay(rule->delay_ms);
            code = rule->code;
        }
    }
    return code;
}

uint64_t process_start_time(pid_t pid)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, line, sizeof line - 1);
    close(fd);
    if (length <= 0)
        return 0;
    line[length] = '\0';
    /* The name in brackets may hold spaces: count on from its end. Field 3 is the state, 22 the start time. */
    char *rest = strrchr(line, ')');
    if (!rest || rest[2] == 'Z')
        return 0;
    rest += 2;
    for (int field = 3; rest && field < 22; field++) {
        rest = strchr(rest, ' ');
        if (rest)
            rest++;
    }
    return rest ? strtoull(rest, NULL, 10) : 0;
}
