/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated RLIMIT_MEMLOCK, preloaded into every program of a lab host.
 *
 * Only CAP_SYS_RESOURCE may raise a hard limit, and it counts in the first user namespace alone: where the machine
 * under the lab lacks it, root on a lab host could not do what root on a real host does (pam_limits, LimitMEMLOCK=,
 * prlimit). Here the kernel's hard limit is left alone, and its soft limit, which a process may always move below the
 * hard one and which fork and exec pass on, carries the number of an entry in a table of simulated limits. Reading
 * the limits, by system call or from /proc/PID/limits, gives the simulated ones.
 *
 * Out of reach: statically linked programs, and the limits of a process of another user through prlimit().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TABLE "/run/gpu-lab-locked-memory"
#define STEP 4096
#define MOST_ENTRIES 1024
#define LIMIT_NAME "Max locked memory"
/* The kernel's default since 5.16, which also is systemd's. */
#define DEFAULT_LIMIT (8u << 20)
/* Where the real hard limit is unlimited, entries are counted down from here. */
#define HIGH_BASE (1ull << 40)

static int kernel_prlimit(pid_t pid, int resource, const struct rlimit64 *new, struct rlimit64 *old)
{
	return (int)syscall(SYS_prlimit64, pid, resource, new, old);
}

static int kernel_open(int directory, const char *path, int flags, mode_t mode)
{
	return (int)syscall(SYS_openat, directory, path, flags, mode);
}

static rlim_t base(const struct rlimit64 *real)
{
	return real->rlim_max == RLIM64_INFINITY ? HIGH_BASE : real->rlim_max;
}

/* The simulated limits that a process's real ones stand for. */
static struct rlimit64 decode(struct rlimit64 real)
{
	struct rlimit64 entry = { DEFAULT_LIMIT, DEFAULT_LIMIT };
	rlim_t top = base(&real);
	if (real.rlim_cur >= top)
		return entry;
	rlim_t distance = top - real.rlim_cur;
	if (distance % STEP)
		return real;
	int table = kernel_open(AT_FDCWD, TABLE, O_RDONLY | O_CLOEXEC, 0);
	if (table < 0)
		return real;
	ssize_t got = pread(table, &entry, sizeof entry, (off_t)((distance / STEP - 1) * sizeof entry));
	close(table);
	return got == (ssize_t)sizeof entry ? entry : real;
}

/* The real soft limit that stands for `wanted`; 0 when the table can't hold it. */
static rlim_t encode(const struct rlimit64 *wanted, rlim_t top)
{
	int table = kernel_open(AT_FDCWD, TABLE, O_RDWR | O_CLOEXEC, 0);
	/* A service that sees /run read-only can still use what is in the table. */
	if (table < 0)
		table = kernel_open(AT_FDCWD, TABLE, O_RDONLY | O_CLOEXEC, 0);
	if (table < 0)
		return 0;
	rlim_t code = 0;
	if (flock(table, LOCK_EX) == 0) {
		struct rlimit64 entry;
		off_t number = 0;
		bool found = false;
		while (!found && pread(table, &entry, sizeof entry, number * (off_t)sizeof entry) == (ssize_t)sizeof entry) {
			if (entry.rlim_cur == wanted->rlim_cur && entry.rlim_max == wanted->rlim_max)
				found = true;
			else
				number++;
		}
		if (!found && number < MOST_ENTRIES)
			found = pwrite(table, wanted, sizeof *wanted, number * (off_t)sizeof *wanted) == (ssize_t)sizeof *wanted;
		if (found && top > (rlim_t)(number + 1) * STEP)
			code = top - (rlim_t)(number + 1) * STEP;
	}
	close(table);
	return code;
}

static int limit(pid_t pid, int resource, const struct rlimit64 *new, struct rlimit64 *old)
{
	struct rlimit64 real, before;
	if (resource != RLIMIT_MEMLOCK)
		return kernel_prlimit(pid, resource, new, old);
	if (kernel_prlimit(pid, resource, NULL, &real) != 0)
		return -1;
	before = decode(real);
	if (new) {
		if (new->rlim_cur > new->rlim_max) {
			errno = EINVAL;
			return -1;
		}
		if (new->rlim_max > before.rlim_max && geteuid() != 0) {
			errno = EPERM;
			return -1;
		}
		struct rlimit64 carrier = { encode(new, base(&real)), real.rlim_max };
		if (kernel_prlimit(pid, resource, carrier.rlim_cur ? &carrier : new, NULL) != 0)
			return -1;
	}
	if (old)
		*old = before;
	return 0;
}

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limits)
{
	return limit(0, (int)resource, NULL, limits);
}

int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limits)
{
	return limit(0, (int)resource, limits, NULL);
}

int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *new, struct rlimit64 *old)
{
	return limit(pid, (int)resource, new, old);
}

/* On 64-bit machines both structures are the same. */
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "a 64-bit machine");

int getrlimit(__rlimit_resource_t resource, struct rlimit *limits)
{
	return limit(0, (int)resource, NULL, (struct rlimit64 *)limits);
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limits)
{
	return limit(0, (int)resource, (const struct rlimit64 *)limits, NULL);
}

int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *new, struct rlimit *old)
{
	return limit(pid, (int)resource, (const struct rlimit64 *)new, (struct rlimit64 *)old);
}

static bool is_limits_file(const char *path)
{
	if (!path || strncmp(path, "/proc/", 6) != 0)
		return false;
	path += 6;
	size_t length = strcspn(path, "/");
	bool process = length && strspn(path, "0123456789") == length;
	bool self = (length == 4 && strncmp(path, "self", 4) == 0) || (length == 11 && strncmp(path, "thread-self", 11) == 0);
	return (process || self) && strcmp(path + length, "/limits") == 0;
}

static rlim_t number(const char *text)
{
	return strncmp(text, "unlimited", 9) == 0 ? RLIM64_INFINITY : strtoull(text, NULL, 10);
}

static void spell(char *text, size_t size, rlim_t value)
{
	if (value == RLIM64_INFINITY)
		snprintf(text, size, "unlimited");
	else
		snprintf(text, size, "%" PRIu64, (uint64_t)value);
}

/* A copy of /proc/PID/limits, open for reading, with the simulated values in its line on locked memory. */
static int open_limits(int directory, const char *path, int flags)
{
	char text[8192], changed[8192 + 256];
	int real = kernel_open(directory, path, flags, 0);
	if (real < 0 || (flags & O_ACCMODE) != O_RDONLY)
		return real;
	ssize_t length = read(real, text, sizeof text - 1);
	if (length <= 0)
		return real;
	text[length] = 0;
	char *line = strstr(text, LIMIT_NAME);
	char *rest = line ? strchr(line, '\n') : NULL;
	int copy = rest ? memfd_create("limits", flags & O_CLOEXEC ? MFD_CLOEXEC : 0) : -1;
	if (copy < 0) {
		lseek(real, 0, SEEK_SET);
		return real;
	}
	close(real);
	char *soft = line + strlen(LIMIT_NAME), *hard;
	soft += strspn(soft, " ");
	hard = soft + strcspn(soft, " ");
	hard += strspn(hard, " ");
	struct rlimit64 values = decode((struct rlimit64){ number(soft), number(hard) });
	char soft_text[32], hard_text[32];
	spell(soft_text, sizeof soft_text, values.rlim_cur);
	spell(hard_text, sizeof hard_text, values.rlim_max);
	int size = snprintf(changed, sizeof changed, "%.*s%-25s %-20s %-20s %-10s%s", (int)(line - text), text, LIMIT_NAME, soft_text,
			    hard_text, "bytes", rest);
	if (write(copy, changed, (size_t)size) != size || lseek(copy, 0, SEEK_SET) != 0) {
		close(copy);
		errno = EIO;
		return -1;
	}
	return copy;
}

static int open_file(int directory, const char *path, int flags, mode_t mode)
{
	return is_limits_file(path) ? open_limits(directory, path, flags) : kernel_open(directory, path, flags, mode);
}

#define MODE_ARGUMENT(flags, mode)                                     \
	mode_t mode = 0;                                               \
	if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
		va_list arguments;                                     \
		va_start(arguments, flags);                            \
		mode = va_arg(arguments, mode_t);                      \
		va_end(arguments);                                     \
	}

int open(const char *path, int flags, ...)
{
	MODE_ARGUMENT(flags, mode)
	return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	MODE_ARGUMENT(flags, mode)
	return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
	MODE_ARGUMENT(flags, mode)
	return open_file(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
	MODE_ARGUMENT(flags, mode)
	return open_file(directory, path, flags, mode);
}

/* What the compiler makes of open() in programs built with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);

int __open_2(const char *path, int flags)
{
	return open_file(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return open_file(AT_FDCWD, path, flags, 0);
}

int __openat_2(int directory, const char *path, int flags)
{
	return open_file(directory, path, flags, 0);
}

int __openat64_2(int directory, const char *path, int flags)
{
	return open_file(directory, path, flags, 0);
}

static FILE *open_stream(const char *name, const char *path, const char *mode)
{
	if (is_limits_file(path)) {
		int file = open_limits(AT_FDCWD, path, O_RDONLY | (strchr(mode, 'e') ? O_CLOEXEC : 0));
		return file < 0 ? NULL : fdopen(file, mode);
	}
	FILE *(*real)(const char *, const char *);
	/* ISO C has no conversion between object and function pointers; POSIX has it through memory. */
	*(void **)&real = dlsym(RTLD_NEXT, name);
	return real(path, mode);
}

FILE *fopen(const char *path, const char *mode)
{
	return open_stream("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return open_stream("fopen64", path, mode);
}
