/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "show.h"

#include <stdio.h>

#include "boards.h"
#include "format.h"
#include "mig.h"
#include "words.h"

static void string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        if ((unsigned char)*text < ' ')
            printf("\\u%04x", *text);
        else
            putchar(*text);
    }
    putchar('"');
}

static void field(const char *indent, const char *key, const char *text)
{
    printf("%s\"%s\": ", indent, key);
    string(text);
    printf(",\n");
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

static void list(const char *key, const uint64_t *mask)
{
    char text[8 * MASK_BITS];
    format_list(mask, text, sizeof text);
    field("      ", key, text);
}

static void processes(const struct gpu *gpu)
{
    const char *separator = "";
    printf("      \"processes\": [");
    for (int i = 0; i < MAX_PROCESSES; i++) {
        const struct process *process = &gpu->processes[i];
        if (!process->used)
            continue;
        printf("%s{\"pid\": %u, \"kind\": \"%s\", \"memory_mib\": %llu, \"name\": ", separator, process->pid,
               process_names[process->kind], (unsigned long long)process->memory >> 20);
        string(process->name);
        putchar('}');
        separator = ", ";
    }
    printf("]\n");
}

static void show_gpu(const struct machine *machine, unsigned int number)
{
    static const char indent[] = "      ";
    const struct gpu *gpu = &machine->gpus[number];
    char pci[32];
    format_pci(gpu, pci, sizeof pci);
    printf("    {\n");
    printf("%s\"index\": ", indent);
    if (gpu->presence == ABSENT) {
        printf("null,\n");
    } else {
        unsigned int index = 0;
        while (gpu_by_index(machine, index) != (int)number)
            index++;
        printf("%u,\n", index);
    }
    field(indent, "board", gpu->board);
    field(indent, "name", board_find(gpu->board)->name);
    field(indent, "uuid", gpu->uuid);
    field(indent, "serial", gpu->serial);
    field(indent, "pci", pci);
    printf("%s\"minor\": %u,\n", indent, gpu->minor);
    field(indent, "state", presence_names[gpu->presence]);
    printf("%s\"persistence\": %s,\n", indent, truth(persistent(gpu)));
    printf("%s\"persistence_legacy\": %s,\n", indent, truth(gpu->persistence_legacy));
    printf("%s\"persistence_daemon\": %s,\n", indent, truth(gpu->persistence_daemon));
    printf("%s\"persistence_supported\": %s,\n", indent, truth(persistence_known(gpu)));
    printf("%s\"uvm_persistence\": %s,\n", indent, truth(gpu->uvm_persistence));
    field(indent, "compute_mode", compute_names[gpu->compute_mode]);
    field(indent, "virtualization", virtualization_names[gpu->virtualization]);
    printf("%s\"time_slice\": %u,\n", indent, gpu->time_slice);
    printf("%s\"ecc\": {\"current\": %s, \"pending\": %s},\n", indent, truth(gpu->ecc_current),
           truth(gpu->ecc_pending));
    if (mig_capable(gpu))
        printf("%s\"mig\": {\"current\": %s, \"pending\": %s},\n", indent, truth(gpu->mig.current),
               truth(gpu->mig.pending));
    else
        printf("%s\"mig\": null,\n", indent);
    list("cpus", gpu->cpus);
    list("nodes", gpu->nodes);
    if (gpu->memory_node < 0)
        printf("%s\"memory_node\": null,\n", indent);
    else
        printf("%s\"memory_node\": %d,\n", indent, gpu->memory_node);
    processes(gpu);
    printf("    }");
}

static void show_clients(const struct machine *machine)
{
    const char *separator = "";
    printf("  \"clients\": [");
    for (int i = 0; i < MAX_CLIENTS; i++) {
        const struct client *client = &machine->clients[i];
        char held[512];
        uint64_t gpus[MASK_WORDS] = {client->gpus};
        if (!client->used)
            continue;
        format_list(gpus, held, sizeof held);
        printf("%s{\"pid\": %u, \"daemon\": %s, \"gpus\": \"%s\"}", separator, client->pid, truth(client->daemon),
               held);
        separator = ", ";
    }
    printf("],\n");
}

static void show_injections(const struct machine *machine)
{
    const char *separator = "";
    printf("  \"injections\": [");
    for (int i = 0; i < MAX_INJECTIONS; i++) {
        const struct injection *rule = &machine->injections[i];
        if (!rule->used)
            continue;
        printf("%s{\"call\": ", separator);
        string(rule->call);
        printf(", \"code\": %d, \"gpu\": ", rule->code);
        if (rule->gpu < 0)
            printf("null");
        else
            printf("%d", rule->gpu);
        printf(", \"delay_ms\": %u, \"from\": %u, \"times\": %u, \"calls\": %u, \"hits\": %u}", rule->delay_ms,
               rule->skip + 1, rule->times, rule->seen, rule->hits);
        separator = ", ";
    }
    printf("],\n");
}

void show_machine(const struct machine *machine)
{
    uint32_t cuda = cuda_version(machine);
    printf("{\n");
    field("  ", "driver", machine->driver);
    field("  ", "library", machine->library);
    printf("  \"cuda\": \"%u.%u\",\n", cuda / 1000, cuda % 1000 / 10);
    printf("  \"loaded\": %s,\n", truth(machine->loaded));
    printf("  \"confidential_computing\": %s,\n", truth(machine->confidential_computing));
    show_clients(machine);
    show_injections(machine);
    printf("  \"calls_logged\": %llu,\n", (unsigned long long)log_count());
    printf("  \"gpus\": [");
    for (unsigned int i = 0; i < machine->gpu_count; i++) {
        printf(i ? ",\n" : "\n");
        show_gpu(machine, i);
    }
    printf("%s]\n}\n", machine->gpu_count ? "\n  " : "");
}

void show_log_entry(uint64_t number, const struct log_entry *entry)
{
    printf("{\"number\": %llu, \"time\": %llu.%09llu, \"pid\": %u, \"call\": ", (unsigned long long)number,
           (unsigned long long)entry->time_ns / 1000000000u, (unsigned long long)entry->time_ns % 1000000000u,
           entry->pid);
    string(entry->call);
    if (entry->gpu < 0)
        printf(", \"gpu\": null");
    else
        printf(", \"gpu\": %d", entry->gpu);
    printf(", \"code\": %d}\n", entry->code);
}
