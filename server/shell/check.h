/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine offers, and whether the configuration fits it.  One log line per finding, with the fix.
 *
 * Threads: before the daemon's threads start.
 */
#ifndef ZD_SHELL_CHECK_H
#define ZD_SHELL_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/kernel/kernel.h"
#include "server/shell/conf.h"

struct zd_memory {
	uint64_t available; /* MemAvailable of /proc/meminfo */
	uint64_t group_limit, group_used; /* of the control group (v2 or v1); UINT64_MAX and 0: none */
};

/* root: where /proc and /sys are found, "" in production. */
void zd_memory_read(struct zd_memory *ret_memory, const char *root);

/* What may be used: the lesser of available and what the group has left. */
uint64_t zd_memory_free(const struct zd_memory *memory);

/* memory.budget, or 80 % of what is there for auto.  0, or -1 with the numbers in *text if the budget is more than there is. */
int zd_memory_budget(const struct zd_memory *memory, uint64_t asked, uint64_t *ret_budget, char *text, size_t size) ZD_MUST_USE;

/* CPUs this process may run on; at most `max` of their numbers go to ret_cpus (NULL: none). */
uint32_t zd_cpus(int *ret_cpus, uint32_t max);

/* The start-up checks that only inform. */
void zd_check_log(const struct zd_conf *conf, const struct zd_memory *memory, uint64_t budget, const struct zd_kernels *kernels);

#endif
