/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* nvml-simctl: makes, shows and changes the simulated machine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "behaviour.h"
#include "boards.h"
#include "format.h"
#include "show.h"
#include "words.h"

static const char usage[] =
    "nvml-simctl COMMAND ...\n"
    "  create [WORD...] [gpu WORD...]...   a new machine; `-f FILE` in place of words: from a file, - is stdin\n"
    "  show                                all of it, as JSON\n"
    "  set [WORD...] [gpu ID WORD...]...   ID: index, UUID or PCI id\n"
    "  lose ID | restore ID                the GPU falls off the bus, and comes back\n"
    "  process add ID pid=N [kind=compute|graphics|mps] [memory=MIB] [name=TEXT] [follow=on]\n"
    "                                      follow: gone when the real process with this pid is\n"
    "  process remove ID pid=N\n"
    "  inject CALL [code=N] [delay_ms=N] [gpu=ID] [from=N] [times=N]\n"
    "                                      the N-th call from now on and all after it, or only so many, answer\n"
    "                                      this code, or late; * is every call, nvmlX is nvmlX_vN too, and\n"
    "                                      nvmlInit is each of its forms\n"
    "  inject clear\n"
    "  log [CALL] | log clear              calls answered so far, one JSON object a line; names as in inject\n"
    "  count [CALL]                        how many of them; an error when more than 8192 were made\n"
    "  reboot                              what is volatile is lost, the driver loaded\n"
    "  unload | load                       the kernel module; no unload while a GPU is held\n"
    "  boards | behaviour | assumptions    what there is; what is done and how we know; what of it is assumed\n";

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "nvml-simctl: %s%s%s\n", what, why ? ": " : "", why ? why : "");
    return 1;
}

static struct machine *begin(void)
{
    struct machine *machine;
    int failed = state_begin(&machine);
    if (failed == 0)
        return machine;
    fail(state_path(), failed == EPROTO ? "not a state of this version; create it anew" : strerror(failed));
    exit(1);
}

static int give_up(const char *what, const char *why)
{
    state_end(false);
    return fail(what, why);
}

static const char *after(const char *word, const char *key)
{
    size_t length = strlen(key);
    return strncmp(word, key, length) == 0 ? word + length : NULL;
}

static bool number(const char *text, uint32_t *place)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *place = (uint32_t)value;
    return end != text && !*end && value <= INT32_MAX;
}

static char **words_of_file(const char *path, int *count)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    char **words = NULL, *word;
    *count = 0;
    if (!file)
        return NULL;
    while (fscanf(file, "%ms", &word) == 1) {
        char **more = realloc(words, sizeof *words * (size_t)(*count + 1));
        if (!more)
            abort();
        words = more;
        words[(*count)++] = word;
    }
    if (file != stdin)
        fclose(file);
    return words ? words : calloc(1, sizeof *words);
}

static int create(int count, char **words)
{
    static struct machine machine;
    struct gpu *gpu = NULL;
    machine.loaded = machine.installed = true;
    if (count == 2 && strcmp(words[0], "-f") == 0) {
        const char *path = words[1];
        words = words_of_file(path, &count);
        if (!words)
            return fail(path, strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        const char *wrong = NULL;
        if (strcmp(words[i], "gpu") == 0) {
            if (machine.gpu_count == MAX_GPUS)
                return fail("create", "too many GPUs");
            gpu = &machine.gpus[machine.gpu_count++];
            gpu_defaults(gpu);
        } else {
            wrong = gpu ? gpu_word(gpu, words[i]) : machine_word(&machine, words[i]);
        }
        if (wrong)
            return fail(words[i], wrong);
    }
    const char *wrong = machine_finish(&machine);
    if (wrong)
        return fail("create", wrong);
    int failed = state_create(&machine);
    return failed ? fail(state_path(), strerror(failed)) : 0;
}

static int set(int count, char **words)
{
    struct machine *machine = begin();
    struct gpu *gpu = NULL;
    for (int i = 0; i < count; i++) {
        const char *wrong;
        if (strcmp(words[i], "gpu") == 0) {
            int index = i + 1 < count ? find_gpu(machine, words[i + 1]) : -1;
            if (index < 0)
                return give_up(i + 1 < count ? words[i + 1] : "gpu", "no such GPU");
            gpu = &machine->gpus[index];
            i++;
            continue;
        }
        wrong = gpu ? gpu_word(gpu, words[i]) : machine_word(machine, words[i]);
        if (wrong)
            return give_up(words[i], wrong);
    }
    settle(machine);
    state_end(true);
    return 0;
}

static int set_presence(const char *name, enum presence presence)
{
    struct machine *machine = begin();
    int index = find_gpu(machine, name);
    if (index < 0)
        return give_up(name, "no such GPU");
    machine->gpus[index].presence = presence;
    state_end(true);
    return 0;
}

static int process(int count, char **words)
{
    struct process wanted = {.used = true, .name = "python3", .kind = COMPUTE, .memory = 1ull << 30};
    struct machine *machine = begin();
    bool add = strcmp(words[0], "add") == 0;
    int index = find_gpu(machine, words[1]);
    if (index < 0)
        return give_up(words[1], "no such GPU");
    for (int i = 2; i < count; i++) {
        const char *value;
        uint32_t mib;
        bool good = false;
        if ((value = after(words[i], "pid=")))
            good = number(value, &wanted.pid) && wanted.pid;
        else if ((value = after(words[i], "memory=")) && (good = number(value, &mib)))
            wanted.memory = (uint64_t)mib << 20;
        else if ((value = after(words[i], "name=")))
            good = snprintf(wanted.name, sizeof wanted.name, "%s", value) < (int)sizeof wanted.name;
        else if ((value = after(words[i], "kind=")) && (good = name_index(process_names, value) >= 0))
            wanted.kind = (uint32_t)name_index(process_names, value);
        else if (strcmp(words[i], "follow=on") == 0)
            good = (wanted.start_time = process_start_time((pid_t)wanted.pid)) != 0;
        if (!good)
            return give_up(words[i], "not understood, or no such process");
    }
    if (!wanted.pid)
        return give_up("process", "no pid=N");
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process *place = &machine->gpus[index].processes[i];
        if (add ? place->used : !place->used || place->pid != wanted.pid)
            continue;
        *place = add ? wanted : (struct process){0};
        settle(machine);
        state_end(true);
        return 0;
    }
    return give_up("process", add ? "no room for another" : "no such process on this GPU");
}

static int inject(int count, char **words)
{
    struct injection rule = {.used = true, .gpu = -1};
    struct machine *machine = begin();
    if (strcmp(words[0], "clear") == 0) {
        memset(machine->injections, 0, sizeof machine->injections);
        state_end(true);
        return 0;
    }
    if (snprintf(rule.call, sizeof rule.call, "%s", words[0]) >= (int)sizeof rule.call)
        return give_up(words[0], "too long");
    for (int i = 1; i < count; i++) {
        const char *value;
        uint32_t parsed = 0;
        bool good = false;
        if ((value = after(words[i], "code=")) && (good = number(value, &parsed)))
            rule.code = (int32_t)parsed;
        else if ((value = after(words[i], "gpu=")))
            good = (rule.gpu = find_gpu(machine, value)) >= 0;
        else if ((value = after(words[i], "delay_ms=")))
            good = number(value, &rule.delay_ms);
        else if ((value = after(words[i], "from=")) && (good = number(value, &parsed) && parsed))
            rule.skip = parsed - 1;
        else if ((value = after(words[i], "times=")))
            good = number(value, &rule.times);
        if (!good)
            return give_up(words[i], "not understood");
    }
    if (!rule.code && !rule.delay_ms)
        return give_up("inject", "no code=N, no delay_ms=N");
    for (int i = 0; i < MAX_INJECTIONS; i++)
        if (!machine->injections[i].used) {
            machine->injections[i] = rule;
            state_end(true);
            return 0;
        }
    return give_up("inject", "no room for another; `inject clear` first");
}

static int show_log(const char *call, bool only_count)
{
    unsigned long long matching = 0;
    begin();
    /* A count that leaves out what was forgotten would be a wrong one. */
    if (log_count() > LOG_ENTRIES)
        return give_up("log", "older calls are forgotten; `log clear` before what is to be counted");
    for (uint64_t i = 0; i < log_count(); i++) {
        const struct log_entry *entry = log_at(i);
        if (!same_call(call, entry->call))
            continue;
        matching++;
        if (!only_count)
            show_log_entry(i, entry);
    }
    if (only_count)
        printf("%llu\n", matching);
    state_end(false);
    return 0;
}

static int driver(bool (*change)(struct machine *machine), const char *refusal)
{
    if (!change(begin()))
        return give_up("nvidia", refusal);
    state_end(true);
    return 0;
}

static int show_boards(void)
{
    const struct board *board;
    for (unsigned int i = 0; (board = board_at(i)); i++)
        printf("%-18s %s\n", board->key, board->name);
    return 0;
}

static int help(void)
{
    fputs(usage, stdout);
    puts("Words of a machine:");
    for (unsigned int i = 0; machine_key_at(i); i++)
        printf("  %s\n", machine_key_at(i));
    puts("Words of a GPU:");
    for (unsigned int i = 0; gpu_key_at(i); i++)
        printf("  %s\n", gpu_key_at(i));
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    int count = argc - 2;
    char **words = argv + 2;
    if (strcmp(command, "create") == 0)
        return create(count, words);
    if (strcmp(command, "show") == 0 && count == 0) {
        show_machine(begin());
        state_end(true);
        return 0;
    }
    if (strcmp(command, "set") == 0 && count > 0)
        return set(count, words);
    if (strcmp(command, "lose") == 0 && count == 1)
        return set_presence(words[0], LOST);
    if (strcmp(command, "restore") == 0 && count == 1)
        return set_presence(words[0], PRESENT);
    if (strcmp(command, "process") == 0 && count > 2 && (!strcmp(words[0], "add") || !strcmp(words[0], "remove")))
        return process(count, words);
    if (strcmp(command, "inject") == 0 && count > 0)
        return inject(count, words);
    if (strcmp(command, "log") == 0 && count == 1 && strcmp(words[0], "clear") == 0) {
        begin();
        log_clear();
        state_end(false);
        return 0;
    }
    if ((strcmp(command, "log") == 0 || strcmp(command, "count") == 0) && count <= 1)
        return show_log(count ? words[0] : "*", strcmp(command, "count") == 0);
    if (strcmp(command, "reboot") == 0 && count == 0) {
        reboot_machine(begin());
        state_end(true);
        return 0;
    }
    if (strcmp(command, "unload") == 0 && count == 0)
        return driver(unload_driver, "a GPU is in use");
    if (strcmp(command, "load") == 0 && count == 0)
        return driver(load_driver, "no module for this kernel");
    if (strcmp(command, "boards") == 0)
        return show_boards();
    if (strcmp(command, "behaviour") == 0)
        return show_behaviour(NULL);
    if (strcmp(command, "assumptions") == 0)
        return show_behaviour("assumed");
    if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0)
        return help();
    fputs(usage, stderr);
    return 2;
}
