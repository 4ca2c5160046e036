/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boards.h"
#include "format.h"

const char *const presence_names[] = {"present", "lost", "absent", NULL};
const char *const compute_names[] = {"default", "exclusive_thread", "prohibited", "exclusive_process", NULL};
const char *const virtualization_names[] = {"none", "passthrough", "vgpu", "host_vgpu", "host_vsga", NULL};
const char *const process_names[] = {"compute", "graphics", "mps", NULL};
static const char *const switch_names[] = {"off", "on", NULL};

int name_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static bool to_text(char *place, size_t size, const char *value)
{
    return *value && snprintf(place, size, "%s", value) < (int)size;
}

static bool to_number(uint32_t *place, const char *value)
{
    char *end;
    unsigned long number = strtoul(value, &end, 0);
    if (end == value || *end || number > UINT32_MAX)
        return false;
    *place = (uint32_t)number;
    return true;
}

static bool to_name(uint32_t *place, const char *const *names, const char *value)
{
    int index = name_index(names, value);
    if (index >= 0)
        *place = (uint32_t)index;
    return index >= 0;
}

static bool to_switch(bool *place, const char *value)
{
    uint32_t index;
    if (!to_name(&index, switch_names, value))
        return false;
    *place = index;
    return true;
}

/* Machine */

static bool set_driver(struct machine *machine, const char *value)
{
    /* One release for both, unless `library` comes after it. */
    return to_text(machine->driver, sizeof machine->driver, value) &&
           to_text(machine->library, sizeof machine->library, value);
}

static bool set_library(struct machine *machine, const char *value)
{
    return to_text(machine->library, sizeof machine->library, value);
}

static bool set_loaded(struct machine *machine, const char *value)
{
    return to_switch(&machine->loaded, value) && to_switch(&machine->installed, value);
}

static bool set_cuda(struct machine *machine, const char *value)
{
    return to_number(&machine->cuda, value);
}

static bool set_confidential(struct machine *machine, const char *value)
{
    return to_switch(&machine->confidential_computing, value);
}

static bool set_init_ms(struct machine *machine, const char *value)
{
    return to_number(&machine->init_ms, value);
}

static const struct {
    const char *key, *usage;
    bool (*set)(struct machine *machine, const char *value);
} machine_keys[] = {
    {"driver", "driver=VERSION                  kernel module and library", set_driver},
    {"library", "library=VERSION                 the library alone: a mismatch until the next reboot", set_library},
    {"loaded", "loaded=on|off                   the kernel module; off: not at the next boot either", set_loaded},
    {"cuda", "cuda=12040                      0: what the driver's release implies", set_cuda},
    {"confidential_computing", "confidential_computing=on|off", set_confidential},
    {"init_ms", "init_ms=N                       what taking a GPU costs that nobody holds, persistence off",
     set_init_ms},
};

/* GPU */

static bool set_board(struct gpu *gpu, const char *value)
{
    return board_find(value) && to_text(gpu->board, sizeof gpu->board, value);
}

static bool set_pci(struct gpu *gpu, const char *value)
{
    return parse_pci(value, gpu);
}

static bool set_uuid(struct gpu *gpu, const char *value)
{
    return to_text(gpu->uuid, sizeof gpu->uuid, value);
}

static bool set_serial(struct gpu *gpu, const char *value)
{
    return to_text(gpu->serial, sizeof gpu->serial, value);
}

static bool set_presence(struct gpu *gpu, const char *value)
{
    return to_name(&gpu->presence, presence_names, value);
}

static bool set_cpus(struct gpu *gpu, const char *value)
{
    return parse_list(value, gpu->cpus);
}

static bool set_socket_cpus(struct gpu *gpu, const char *value)
{
    return parse_list(value, gpu->socket_cpus);
}

static bool set_nodes(struct gpu *gpu, const char *value)
{
    return parse_list(value, gpu->nodes);
}

static bool set_socket_nodes(struct gpu *gpu, const char *value)
{
    return parse_list(value, gpu->socket_nodes);
}

static bool set_memory_node(struct gpu *gpu, const char *value)
{
    uint32_t node;
    if (strcmp(value, "none") == 0)
        gpu->memory_node = -1;
    else if (to_number(&node, value) && node < MASK_BITS)
        gpu->memory_node = (int32_t)node;
    else
        return false;
    return true;
}

static bool set_virtualization(struct gpu *gpu, const char *value)
{
    return to_name(&gpu->virtualization, virtualization_names, value);
}

static bool set_persistence_supported(struct gpu *gpu, const char *value)
{
    return to_switch(&gpu->persistence_supported, value);
}

static bool set_persistence(struct gpu *gpu, const char *value)
{
    bool before = persistent(gpu);
    if (!to_switch(&gpu->persistence_legacy, value))
        return false;
    persistence_changed(gpu, before);
    return true;
}

static bool set_compute_mode(struct gpu *gpu, const char *value)
{
    return to_name(&gpu->compute_mode, compute_names, value);
}

static bool set_ecc(struct gpu *gpu, const char *value)
{
    return to_name(&gpu->ecc_current, switch_names, value) && to_name(&gpu->ecc_pending, switch_names, value);
}

static bool set_mig(struct gpu *gpu, const char *value)
{
    return to_name(&gpu->mig.current, switch_names, value) && to_name(&gpu->mig.pending, switch_names, value);
}

static bool set_mig_pending(struct gpu *gpu, const char *value)
{
    return to_name(&gpu->mig.pending, switch_names, value);
}

static bool set_utilization(struct gpu *gpu, const char *value)
{
    return to_number(&gpu->utilization_gpu, value);
}

static bool set_clocks(struct gpu *gpu, const char *value)
{
    uint32_t reasons;
    bool known = to_number(&reasons, value);
    if (known)
        gpu->clocks_event_reasons = reasons;
    return known;
}

static const struct {
    const char *key, *usage;
    bool (*set)(struct gpu *gpu, const char *value);
} gpu_keys[] = {
    {"board", "board=NAME                      see `nvml-simctl boards`", set_board},
    {"pci", "pci=0000:1b:00.0", set_pci},
    {"uuid", "uuid=GPU-...", set_uuid},
    {"serial", "serial=TEXT", set_serial},
    {"state", "state=present|lost|absent       lost: every call fails; absent: not counted any more", set_presence},
    {"cpus", "cpus=0-55,112-167               of the nearest node", set_cpus},
    {"socket_cpus", "socket_cpus=LIST", set_socket_cpus},
    {"nodes", "nodes=LIST                      nearest nodes with memory; empty: unknown", set_nodes},
    {"socket_nodes", "socket_nodes=LIST", set_socket_nodes},
    {"memory_node", "memory_node=N|none              the node that the GPU's own memory is", set_memory_node},
    {"virtualization", "virtualization=none|passthrough|vgpu|host_vgpu|host_vsga", set_virtualization},
    {"persistence_supported", "persistence_supported=on|off    off: as on WSL", set_persistence_supported},
    {"persistence", "persistence=on|off              the legacy flag", set_persistence},
    {"compute_mode", "compute_mode=default|prohibited|exclusive_process", set_compute_mode},
    {"ecc", "ecc=on|off", set_ecc},
    {"mig", "mig=on|off                      current and pending", set_mig},
    {"mig_pending", "mig_pending=on|off", set_mig_pending},
    {"utilization", "utilization=PERCENT", set_utilization},
    {"clocks_event_reasons", "clocks_event_reasons=0x4", set_clocks},
};

enum { MACHINE_KEYS = sizeof machine_keys / sizeof *machine_keys, GPU_KEYS = sizeof gpu_keys / sizeof *gpu_keys };

const char *machine_key_at(unsigned int number)
{
    return number < MACHINE_KEYS ? machine_keys[number].usage : NULL;
}

const char *gpu_key_at(unsigned int number)
{
    return number < GPU_KEYS ? gpu_keys[number].usage : NULL;
}

/* The value when the word is for this key. */
static const char *value_of(const char *word, const char *key)
{
    size_t length = strlen(key);
    return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

const char *machine_word(struct machine *machine, const char *word)
{
    for (int i = 0; i < MACHINE_KEYS; i++) {
        const char *value = value_of(word, machine_keys[i].key);
        if (value)
            return machine_keys[i].set(machine, value) ? NULL : "bad value";
    }
    return "a machine has no such key";
}

const char *gpu_word(struct gpu *gpu, const char *word)
{
    for (int i = 0; i < GPU_KEYS; i++) {
        const char *value = value_of(word, gpu_keys[i].key);
        if (value)
            return gpu_keys[i].set(gpu, value) ? NULL : "bad value";
    }
    return "a GPU has no such key";
}

void gpu_defaults(struct gpu *gpu)
{
    memset(gpu, 0, sizeof *gpu);
    gpu->memory_node = -1;
    gpu->persistence_supported = true;
    gpu->ecc_current = gpu->ecc_pending = 1;
}

static int by_pci(const void *one, const void *other)
{
    return compare_pci(one, other);
}

const char *machine_finish(struct machine *machine)
{
    static const uint64_t fnv_prime = 0x100000001b3;
    if (!*machine->driver)
        set_driver(machine, "580.95.05");
    /* NVML counts in the order of addresses. */
    qsort(machine->gpus, machine->gpu_count, sizeof *machine->gpus, by_pci);
    for (unsigned int i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        if (!*gpu->board)
            return "a GPU without a board";
        if (i && compare_pci(gpu - 1, gpu) == 0)
            return "two GPUs with one PCI address";
        gpu->minor = i;
        uint64_t hash = 0xcbf29ce484222325 ^ ((uint64_t)gpu->domain << 16 | gpu->bus << 8 | gpu->device);
        hash *= fnv_prime;
        if (!*gpu->uuid)
            snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%08x-0000-4000-8000-%012llx", (uint32_t)(hash >> 32),
                     (unsigned long long)(hash & 0xffffffffffff));
        if (!*gpu->serial)
            snprintf(gpu->serial, sizeof gpu->serial, "16%011llu", (unsigned long long)(hash % 100000000000));
        if (empty_mask(gpu->socket_cpus))
            memcpy(gpu->socket_cpus, gpu->cpus, sizeof gpu->cpus);
        if (empty_mask(gpu->socket_nodes))
            memcpy(gpu->socket_nodes, gpu->nodes, sizeof gpu->nodes);
    }
    return NULL;
}

int find_gpu(const struct machine *machine, const char *name)
{
    struct gpu wanted = {0};
    uint32_t index;
    if (to_number(&index, name))
        return gpu_by_index(machine, index);
    bool pci = parse_pci(name, &wanted);
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        if (strcmp(machine->gpus[i].uuid, name) == 0 || (pci && compare_pci(&machine->gpus[i], &wanted) == 0))
            return (int)i;
    return -1;
}
