/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The state of a simulated machine's GPUs: one mapped file, shared by every process that plays a part of the driver. */
#ifndef NVML_SIMULATOR_STATE_H
#define NVML_SIMULATOR_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STATE_FILE "/srv/nvml-simulator/state"
#define STATE_VARIABLE "NVML_SIMULATOR_STATE"

enum {
    MAX_GPUS = 16,
    MAX_PROCESSES = 32,
    MAX_CLIENTS = 256,
    MAX_INJECTIONS = 64,
    LOG_ENTRIES = 8192,
    TEXT = 64,
    /* NVML masks are arrays of unsigned long: 1024 CPUs, as many nodes. */
    MASK_WORDS = 16,
    MASK_BITS = 64 * MASK_WORDS,
};

/* lost: on the bus, every call answers GPU_IS_LOST. absent: not enumerated any more, so indices shift. */
enum presence { PRESENT, LOST, ABSENT };
/* Numbers of nvmlGpuVirtualizationMode_t. */
enum virtualization { BARE, PASSTHROUGH, VGPU_GUEST, VGPU_HOST, VSGA_HOST };
enum process_kind { COMPUTE, GRAPHICS, MPS, PROCESS_KINDS };

struct process {
    bool used;
    uint32_t pid;
    uint32_t kind;
    /* Not 0: the entry ends with the real process that has this pid and start time. */
    uint64_t start_time;
    uint64_t memory;
    char name[TEXT];
};

struct mig {
    uint32_t current;
    uint32_t pending;
};

struct gpu {
    char board[TEXT];
    char uuid[TEXT];
    char serial[32];
    uint32_t domain, bus, device, function;
    uint32_t minor;
    uint32_t presence;
    uint64_t cpus[MASK_WORDS], socket_cpus[MASK_WORDS];
    uint64_t nodes[MASK_WORDS], socket_nodes[MASK_WORDS];
    /* The node that this GPU's own memory is; -1 on machines where it is none. */
    int32_t memory_node;
    uint32_t virtualization;
    bool persistence_supported;
    bool persistence_legacy;
    bool persistence_daemon;
    bool uvm_persistence;
    uint32_t compute_mode;
    uint32_t time_slice;
    uint32_t ecc_current, ecc_pending;
    uint32_t utilization_gpu, utilization_memory;
    uint64_t clocks_event_reasons;
    /* Part of every handle: one taken before the last change of this number is invalid. */
    uint32_t generation;
    struct mig mig;
    struct process processes[MAX_PROCESSES];
};

/* A process with NVML initialised, or the daemon. It holds a lock on a byte of its own: the kernel says if it lives. */
struct client {
    bool used;
    bool daemon;
    uint32_t pid;
    uint32_t gpus;
};

struct injection {
    bool used;
    char call[TEXT];
    int32_t gpu;
    /* 0: a delay alone. */
    int32_t code;
    uint32_t delay_ms;
    /* This many matching calls still work; then `times` fail, 0 meaning all. */
    uint32_t skip;
    uint32_t times;
    uint32_t seen;
    uint32_t hits;
};

struct machine {
    char driver[32];
    char library[32];
    uint32_t cuda;
    bool loaded;
    /* There is a module for this kernel, so that a boot loads it. */
    bool installed;
    bool confidential_computing;
    /* What it takes to initialise one GPU that nobody holds: whoever is the first to take it waits. */
    uint32_t init_ms;
    uint32_t gpu_count;
    struct gpu gpus[MAX_GPUS];
    struct client clients[MAX_CLIENTS];
    struct injection injections[MAX_INJECTIONS];
};

struct log_entry {
    uint64_t time_ns;
    uint32_t pid;
    int32_t gpu;
    int32_t code;
    char call[TEXT];
};

/* Functions answer 0, or an errno. */
int state_create(const struct machine *machine);
const char *state_path(void);

/*
 * Everything between the two is one transaction on a copy. A process killed in between leaves the old state, and the
 * kernel frees its lock. state_begin has already dropped what belonged to the dead.
 */
int state_begin(struct machine **machine);
void state_end(bool commit);

/* Inside a transaction. */
/* Waited for when the transaction is over, so that nobody else has to. */
void delay(unsigned int milliseconds);
void log_append(const char *call, int gpu, int code);
uint64_t log_count(void);
/* The n-th call since the machine was made, counted from 0; NULL once the ring has forgotten it. */
const struct log_entry *log_at(uint64_t number);
void log_clear(void);
/* Whether a name means this call: nvmlDeviceGetPciInfo means its _v3 too, and * every call. */
bool same_call(const char *name, const char *call);
/* The code this call has to answer, or 0. Counts the call. */
int injected(struct machine *machine, const char *call, int gpu);

/* This process as a client; client_join keeps its slot until client_leave or its end. */
int client_join(struct machine *machine, bool daemon);
void client_leave(struct machine *machine);
bool client_joined(void);
void client_hold(struct machine *machine, int gpu);

/* What the GPU loses when nobody holds it any more, done where that is so. */
void settle(struct machine *machine);
void reboot_machine(struct machine *machine);
/* False where a GPU is held, or where there is no module to load. */
bool unload_driver(struct machine *machine);
bool load_driver(struct machine *machine);
/* What the next client will wait for this GPU. */
unsigned int init_cost(const struct machine *machine, int gpu);
bool reset_gpu(struct machine *machine, int gpu);
bool held(const struct machine *machine, int gpu, bool by_others_than_daemon);
bool persistent(const struct gpu *gpu);
/* False where the mode can't be asked for: WSL, and guests with a virtual GPU. */
bool persistence_known(const struct gpu *gpu);
/* To be called with persistence as it was before a change. */
void persistence_changed(struct gpu *gpu, bool before);

/* Start time of a process, 0 if it is not there. */
uint64_t process_start_time(pid_t pid);

/* Presence and index as NVML counts: ABSENT GPUs are skipped. */
unsigned int gpus_counted(const struct machine *machine);
int gpu_by_index(const struct machine *machine, unsigned int index);

#endif
