/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "boards.h"

enum { MAGIC = 0x4c4d564e, VERSION = 1 };

struct store {
    uint32_t magic;
    uint32_t version;
    uint64_t size;
    /* Which of the two copies counts. A transaction fills the other one and then changes this word. */
    _Atomic uint32_t active;
    _Atomic uint64_t logged;
    struct machine machines[2];
    struct log_entry log[LOG_ENTRIES];
};

static pthread_mutex_t in_process = PTHREAD_MUTEX_INITIALIZER;
static struct store *store;
static int state_fd = -1;
/* Locks belong to an open file, which a fork shares: a child has to open its own. */
static pid_t opened_by;
/* The open file that holds the lock on this client's byte. A forked child shares it, as it would the device node. */
static int client_fd = -1;
static int client_slot = -1;
static _Thread_local unsigned int delayed_ms;

const char *state_path(void)
{
    const char *path = secure_getenv(STATE_VARIABLE);
    return path && *path ? path : STATE_FILE;
}

static int make_directories(const char *path)
{
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part)
        return ENAMETOOLONG;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return errno;
    }
    return 0;
}

int state_create(const struct machine *machine)
{
    const char *path = state_path();
    char fresh[PATH_MAX];
    struct store *filled = calloc(1, sizeof *filled);
    int failed = filled ? make_directories(path) : ENOMEM;
    if (failed == 0 && snprintf(fresh, sizeof fresh, "%s.new", path) >= (int)sizeof fresh)
        failed = ENAMETOOLONG;
    if (failed) {
        free(filled);
        return failed;
    }
    filled->magic = MAGIC;
    filled->version = VERSION;
    filled->size = sizeof *filled;
    filled->machines[0] = *machine;
    int fd = failed ? -1 : open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (failed == 0 && fd < 0)
        failed = errno;
    if (fd >= 0) {
        ssize_t written = write(fd, filled, sizeof *filled);
        /* Every user is a possible client, as with the device nodes. */
        if (written < 0 || fchmod(fd, 0666) != 0)
            failed = errno;
        else if (written != (ssize_t)sizeof *filled)
            failed = ENOSPC;
        else if (rename(fresh, path) != 0)
            failed = errno;
        close(fd);
        if (failed)
            unlink(fresh);
    }
    free(filled);
    return failed;
}

static void state_close(void)
{
    if (store)
        munmap(store, sizeof *store);
    if (state_fd >= 0)
        close(state_fd);
    store = NULL;
    state_fd = -1;
}

static int state_open(void)
{
    struct stat ours, there;
    if (store && opened_by == getpid()) {
        /* The machine was made anew: go on with the new one. */
        if (stat(state_path(), &there) == 0 && fstat(state_fd, &ours) == 0 && ours.st_ino == there.st_ino)
            return 0;
    }
    state_close();
    int fd = open(state_path(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (fstat(fd, &there) != 0 || there.st_size != (off_t)sizeof *store) {
        close(fd);
        return EPROTO;
    }
    struct store *mapped = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        close(fd);
        return ENOMEM;
    }
    store = mapped;
    state_fd = fd;
    opened_by = getpid();
    if (store->magic != MAGIC || store->version != VERSION || store->size != sizeof *store) {
        state_close();
        return EPROTO;
    }
    return 0;
}

static bool alive(int slot)
{
    /* The byte lies far behind the end of the file: it is only a name for the lock. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (1L << 30) + slot, .l_len = 1};
    if (slot == client_slot && client_fd >= 0)
        return true;
    return fcntl(state_fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static void bury_the_dead(struct machine *machine)
{
    for (int slot = 0; slot < MAX_CLIENTS; slot++) {
        struct client *client = &machine->clients[slot];
        if (!client->used || alive(slot))
            continue;
        if (client->daemon)
            for (unsigned int i = 0; i < machine->gpu_count; i++) {
                struct gpu *gpu = &machine->gpus[i];
                bool before = persistent(gpu);
                gpu->persistence_daemon = gpu->uvm_persistence = false;
                persistence_changed(gpu, before);
            }
        memset(client, 0, sizeof *client);
    }
    for (unsigned int i = 0; i < machine->gpu_count; i++)
        for (int p = 0; p < MAX_PROCESSES; p++) {
            struct process *process = &machine->gpus[i].processes[p];
            if (process->used && process->start_time && process_start_time((pid_t)process->pid) != process->start_time)
                memset(process, 0, sizeof *process);
        }
    settle(machine);
}

int state_begin(struct machine **machine)
{
    pthread_mutex_lock(&in_process);
    int failed = state_open();
    if (failed == 0)
        while (flock(state_fd, LOCK_EX) != 0)
            if (errno != EINTR) {
                failed = errno;
                break;
            }
    if (failed) {
        pthread_mutex_unlock(&in_process);
        return failed;
    }
    uint32_t active = atomic_load(&store->active) & 1;
    *machine = &store->machines[1 - active];
    memcpy(*machine, &store->machines[active], sizeof **machine);
    bury_the_dead(*machine);
    return 0;
}

void state_end(bool commit)
{
    if (commit)
        atomic_store(&store->active, 1 - (atomic_load(&store->active) & 1));
    flock(state_fd, LOCK_UN);
    pthread_mutex_unlock(&in_process);
    struct timespec rest = {.tv_sec = delayed_ms / 1000, .tv_nsec = delayed_ms % 1000 * 1000000L};
    while (delayed_ms && nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
    delayed_ms = 0;
}

void delay(unsigned int milliseconds)
{
    delayed_ms += milliseconds;
}

void log_append(const char *call, int gpu, int code)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t number = atomic_load(&store->logged);
    struct log_entry *entry = &store->log[number % LOG_ENTRIES];
    entry->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    entry->pid = (uint32_t)getpid();
    entry->gpu = gpu;
    entry->code = code;
    snprintf(entry->call, sizeof entry->call, "%s", call);
    atomic_store(&store->logged, number + 1);
}

uint64_t log_count(void)
{
    return atomic_load(&store->logged);
}

const struct log_entry *log_at(uint64_t number)
{
    uint64_t count = log_count();
    return number < count && count - number <= LOG_ENTRIES ? &store->log[number % LOG_ENTRIES] : NULL;
}

void log_clear(void)
{
    atomic_store(&store->logged, 0);
}

int client_join(struct machine *machine, bool daemon)
{
    int fd = open(state_path(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    for (int slot = 0; slot < MAX_CLIENTS; slot++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (1L << 30) + slot, .l_len = 1};
        struct client *client = &machine->clients[slot];
        if (client->used || fcntl(fd, F_OFD_SETLK, &lock) != 0)
            continue;
        *client = (struct client){.used = true, .daemon = daemon, .pid = (uint32_t)getpid()};
        client_fd = fd;
        client_slot = slot;
        return 0;
    }
    close(fd);
    return EUSERS;
}

void client_leave(struct machine *machine)
{
    if (client_slot < 0)
        return;
    if (machine->clients[client_slot].pid == (uint32_t)getpid())
        memset(&machine->clients[client_slot], 0, sizeof *machine->clients);
    close(client_fd);
    client_fd = client_slot = -1;
}

bool client_joined(void)
{
    return client_slot >= 0;
}

void client_hold(struct machine *machine, int gpu)
{
    /* Another's pid: the machine was made anew, or this is a fork, whose parent holds already. */
    if (client_slot >= 0 && machine->clients[client_slot].pid == (uint32_t)getpid())
        machine->clients[client_slot].gpus |= 1u << gpu;
}
