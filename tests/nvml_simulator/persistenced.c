/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Stand-in for nvidia-persistenced: the flags, files and exit codes of the real one, on the simulator's state. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "format.h"
#include "state.h"

#define RUN_DIR "/var/run/nvidia-persistenced"
#define PID_FILE RUN_DIR "/nvidia-persistenced.pid"
#define SOCKET_FILE RUN_DIR "/socket"

struct options {
    bool verbose;
    bool persistence;
    bool uvm_persistence;
    const char *user, *group;
};

static const char usage[] =
    "nvidia-persistenced [options]\n"
    "  -v, --version                 -h, --help               -V, --verbose\n"
    "  -u USER, --user=USER          -g GROUP, --group=GROUP\n"
    "  --persistence-mode, --no-persistence-mode              on by default\n"
    "  --uvm-persistence-mode, --no-uvm-persistence-mode      off by default\n"
    "  --nvidia-cfg-path=PATH\n";

static void __attribute__((format(printf, 2, 3))) report(int priority, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsyslog(priority, format, arguments);
    va_end(arguments);
    if (priority <= LOG_ERR) {
        va_start(arguments, format);
        fputs("nvidia-persistenced: ", stderr);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
}

static void show_version(void)
{
    struct machine *machine;
    char version[32] = "unknown";
    if (state_begin(&machine) == 0) {
        memcpy(version, machine->library, sizeof version);
        state_end(false);
    }
    printf("nvidia-persistenced:  version %s\n", version);
}

static struct options parse(int argc, char **argv)
{
    enum { PERSISTENCE = 256, NO_PERSISTENCE, UVM, NO_UVM, CFG_PATH };
    static const struct option known[] = {
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {"verbose", no_argument, NULL, 'V'},
        {"user", required_argument, NULL, 'u'},
        {"group", required_argument, NULL, 'g'},
        {"persistence-mode", no_argument, NULL, PERSISTENCE},
        {"no-persistence-mode", no_argument, NULL, NO_PERSISTENCE},
        {"uvm-persistence-mode", no_argument, NULL, UVM},
        {"no-uvm-persistence-mode", no_argument, NULL, NO_UVM},
        {"nvidia-cfg-path", required_argument, NULL, CFG_PATH},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.persistence = true};
    int option;
    while ((option = getopt_long(argc, argv, "vhVu:g:", known, NULL)) != -1)
        switch (option) {
        case 'v':
            show_version();
            exit(0);
        case 'h':
            fputs(usage, stdout);
            exit(0);
        case 'V':
            options.verbose = true;
            break;
        case 'u':
            options.user = optarg;
            break;
        case 'g':
            options.group = optarg;
            break;
        case PERSISTENCE:
        case NO_PERSISTENCE:
            options.persistence = option == PERSISTENCE;
            break;
        case UVM:
        case NO_UVM:
            options.uvm_persistence = option == UVM;
            break;
        case CFG_PATH:
            break;
        default:
            exit(1);
        }
    if (optind < argc) {
        fprintf(stderr, "nvidia-persistenced: unrecognized argument: %s\n", argv[optind]);
        exit(1);
    }
    return options;
}

/* The account to run as, looked up before anything is done. */
static bool find_account(const struct options *options, uid_t *uid, gid_t *gid)
{
    *uid = geteuid();
    *gid = getegid();
    if (options->user) {
        const struct passwd *account = getpwnam(options->user);
        if (!account) {
            report(LOG_ERR, "Failed to find user ID of user '%s'", options->user);
            return false;
        }
        *uid = account->pw_uid;
        *gid = account->pw_gid;
    }
    if (options->group) {
        const struct group *group = getgrnam(options->group);
        if (!group) {
            report(LOG_ERR, "Failed to find group ID of group '%s'", options->group);
            return false;
        }
        *gid = group->gr_gid;
    }
    return true;
}

static bool make_run_dir(uid_t uid, gid_t gid)
{
    if (mkdir(RUN_DIR, 0755) != 0 && errno != EEXIST) {
        report(LOG_ERR, "Unable to create directory %s: %s", RUN_DIR, strerror(errno));
        return false;
    }
    if (geteuid() == 0 && chown(RUN_DIR, uid, gid) != 0) {
        report(LOG_ERR, "Unable to change ownership of %s: %s", RUN_DIR, strerror(errno));
        return false;
    }
    return true;
}

static bool drop_privileges(uid_t uid, gid_t gid)
{
    if (geteuid() != 0 || uid == 0)
        return true;
    if (setgroups(1, &gid) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0)
        return true;
    report(LOG_ERR, "Unable to drop privileges: %s", strerror(errno));
    return false;
}

/* The pid file stays open and locked as long as the daemon lives. */
static bool lock_pid_file(void)
{
    int fd = open(PID_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        report(LOG_ERR, "Failed to open PID file: %s", strerror(errno));
        return false;
    }
    if (lockf(fd, F_TLOCK, 0) != 0) {
        report(LOG_ERR, "Failed to lock PID file: %s", strerror(errno));
        return false;
    }
    if (ftruncate(fd, 0) != 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
        report(LOG_ERR, "Failed to write PID file: %s", strerror(errno));
        return false;
    }
    return true;
}

static bool listen_on_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET_FILE};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(SOCKET_FILE);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && chmod(SOCKET_FILE, 0666) == 0 &&
        listen(fd, 5) == 0)
        return true;
    report(LOG_ERR, "Unable to listen on %s: %s", SOCKET_FILE, strerror(errno));
    return false;
}

/* One GPU; what fails here is the GPU's own affair. Answers whether the GPU is there at all. */
static bool attach(unsigned int index, const struct options *options)
{
    struct machine *machine;
    char pci[32];
    if (state_begin(&machine) != 0)
        return false;
    struct gpu *gpu = &machine->gpus[index];
    int code = injected(machine, "persistenced", (int)index);
    bool there = gpu->presence == PRESENT;
    bool on = there && code == 0 && persistence_known(gpu) && options->persistence;
    format_pci(gpu, pci, sizeof pci);
    if (on) {
        delay(init_cost(machine, (int)index));
        client_hold(machine, (int)index);
        gpu->persistence_daemon = true;
        gpu->uvm_persistence = options->uvm_persistence;
    }
    log_append("persistenced", (int)index, code);
    state_end(true);
    if (options->verbose && there)
        report(LOG_INFO, "device %s - registered", pci);
    if (on)
        report(LOG_NOTICE, "device %s - persistence mode enabled.", pci);
    else if (there && options->persistence)
        report(LOG_WARNING, "device %s - failed to enable persistence mode", pci);
    return there;
}

static bool attach_all(const struct options *options)
{
    struct machine *machine;
    unsigned int count = 0, there = 0;
    if (state_begin(&machine) == 0) {
        bool usable = machine->loaded && strcmp(machine->driver, machine->library) == 0 &&
                      client_join(machine, true) == 0;
        count = usable ? machine->gpu_count : 0;
        state_end(true);
    }
    for (unsigned int i = 0; i < count; i++)
        there += attach(i, options);
    if (there == 0)
        report(LOG_ERR, "Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) "
                        "exist, and that the driver is loaded.");
    return there > 0;
}

static void detach_all(void)
{
    struct machine *machine;
    if (state_begin(&machine) != 0)
        return;
    for (unsigned int i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        bool before = persistent(gpu);
        gpu->persistence_daemon = gpu->uvm_persistence = false;
        persistence_changed(gpu, before);
    }
    client_leave(machine);
    settle(machine);
    state_end(true);
}

static void serve(const struct options *options, uid_t uid, gid_t gid, int told)
{
    sigset_t ends;
    int signal_number;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (!make_run_dir(uid, gid) || !drop_privileges(uid, gid) || !lock_pid_file())
        _exit(1);
    if (!attach_all(options) || !listen_on_socket()) {
        detach_all();
        unlink(PID_FILE);
        _exit(1);
    }
    report(LOG_NOTICE, "Started (%d)", (int)getpid());
    /* From here on the parent's work is done, and nobody reads what we print. */
    if (write(told, "", 1) != 1)
        report(LOG_WARNING, "Nobody waited for the start");
    close(told);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    sigwait(&ends, &signal_number);
    detach_all();
    unlink(SOCKET_FILE);
    unlink(PID_FILE);
    report(LOG_NOTICE, "Shutdown (%d)", (int)getpid());
    _exit(0);
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    uid_t uid;
    gid_t gid;
    int told[2];
    char byte;
    umask(022);
    openlog("nvidia-persistenced", LOG_PID, LOG_DAEMON);
    if (!find_account(&options, &uid, &gid))
        return 1;
    if (chdir("/") != 0 || pipe2(told, O_CLOEXEC) != 0) {
        report(LOG_ERR, "%s", strerror(errno));
        return 1;
    }
    pid_t child = fork();
    if (child < 0) {
        report(LOG_ERR, "Unable to fork: %s", strerror(errno));
        return 1;
    }
    if (child == 0) {
        close(told[0]);
        setsid();
        serve(&options, uid, gid, told[1]);
    }
    /* Returns when every GPU is initialised, which is what Type=forking waits for. */
    close(told[1]);
    ssize_t got;
    while ((got = read(told[0], &byte, 1)) < 0 && errno == EINTR)
        ;
    return got == 1 ? 0 : 1;
}
