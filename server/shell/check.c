/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/check.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "server/shell/log.h"

#define AUTO_PERCENT 80u

static int read_file(const char *root, const char *path, char *out, size_t size)
{
	char full[PATH_MAX];
	size_t n;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	f = fopen(full, "re");
	if (!f)
		return -1;
	n = fread(out, 1, size - 1, f);
	out[n] = '\0';
	fclose(f);
	return 0;
}

/* "max" and the near-2^63 that version 1 shows for "no limit" both mean none. */
static uint64_t parse_limit(const char *text)
{
	uint64_t n;

	if (sscanf(text, "%" SCNu64, &n) != 1 || n >= 1ull << 60)
		return UINT64_MAX;
	return n;
}

static int read_group(struct zd_memory *m, const char *root, const char *dir, const char *limit_name, const char *used_name)
{
	char path[PATH_MAX], text[256];
	uint64_t limit, used = 0;

	snprintf(path, sizeof(path), "%.3000s/%s", dir, limit_name);
	if (read_file(root, path, text, sizeof(text)) < 0)
		return -1;
	limit = parse_limit(text);
	snprintf(path, sizeof(path), "%.3000s/%s", dir, used_name);
	if (read_file(root, path, text, sizeof(text)) == 0)
		(void)sscanf(text, "%" SCNu64, &used);
	if (limit < m->group_limit) {
		m->group_limit = limit;
		m->group_used = used;
	}
	return 0;
}

/* The limits of the group and of all above it: the tightest counts. */
static void read_groups(struct zd_memory *m, const char *root, char *path, const char *mount, const char *limit_name, const char *used_name)
{
	char dir[PATH_MAX];
	char *slash;

	for (;;) {
		snprintf(dir, sizeof(dir), "%s%.2000s", mount, path);
		(void)read_group(m, root, dir, limit_name, used_name);
		slash = strrchr(path, '/');
		if (!slash || !path[1])
			break;
		*(slash == path ? slash + 1 : slash) = '\0';
	}
}

void zd_memory_read(struct zd_memory *ret_memory, const char *root)
{
	struct zd_memory m = {.available = UINT64_MAX, .group_limit = UINT64_MAX};
	char text[8192], *line, *save = NULL, *p;
	uint64_t kib;

	if (read_file(root, "/proc/meminfo", text, sizeof(text)) == 0 && (p = strstr(text, "MemAvailable:")) &&
	    sscanf(p, "MemAvailable: %" SCNu64, &kib) == 1)
		m.available = kib * 1024;
	if (read_file(root, "/proc/self/cgroup", text, sizeof(text)) == 0)
		for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
			char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

			if (!path)
				continue;
			*path++ = '\0';
			if (names[1] == '\0')
				read_groups(&m, root, path, "/sys/fs/cgroup", "memory.max", "memory.current");
			else if (strcmp(names + 1, "memory") == 0)
				read_groups(&m, root, path, "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
		}
	*ret_memory = m;
}

uint64_t zd_memory_free(const struct zd_memory *memory)
{
	uint64_t left = memory->group_limit;

	if (left != UINT64_MAX)
		left = memory->group_used < left ? left - memory->group_used : 0;
	return left < memory->available ? left : memory->available;
}

int zd_memory_budget(const struct zd_memory *memory, uint64_t asked, uint64_t *ret_budget, char *text, size_t size)
{
	uint64_t there = zd_memory_free(memory);
	char group[96] = "no limit";

	if (asked == 0 && there == UINT64_MAX) {
		snprintf(text, size, "memory.budget: how much memory there is cannot be read from /proc/meminfo; set a number");
		return -1;
	}
	if (asked > there) {
		if (memory->group_limit != UINT64_MAX)
			snprintf(group, sizeof(group), "%" PRIu64 " MiB, of which %" PRIu64 " are in use", memory->group_limit >> 20,
				 memory->group_used >> 20);
		snprintf(text, size,
			 "memory.budget: %" PRIu64 " MiB asked for, %" PRIu64 " MiB are there (available: %" PRIu64
			 " MiB, control group: %s); lower it, or give the daemon more memory",
			 asked >> 20, there >> 20, memory->available >> 20, group);
		return -1;
	}
	*ret_budget = asked ? asked : there / 100 * AUTO_PERCENT;
	return 0;
}

uint32_t zd_cpus(int *ret_cpus, uint32_t max)
{
	cpu_set_t set;
	uint32_t n = 0, i;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) < 0) {
		if (ret_cpus && max)
			ret_cpus[0] = 0;
		return 1;
	}
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set)) {
			if (ret_cpus && n < max)
				ret_cpus[n] = (int)i;
			n++;
		}
	return n ? n : 1;
}

static void check_huge_pages(const struct zd_conf *conf)
{
	char text[128] = "";

	if (conf->memory_huge_pages == ZD_CONF_HUGE_OFF) {
		zd_log(ZD_LOG_INFO, "event=check huge_pages=off: as memory.huge_pages says");
		return;
	}
	if (read_file("", "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)) < 0)
		zd_log(ZD_LOG_WARNING, "event=check huge_pages=missing: this kernel has none; Adam is 5 to 18 %% slower");
	else if (strstr(text, "[never]"))
		zd_log(ZD_LOG_WARNING, "event=check huge_pages=never: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled makes Adam "
				       "5 to 18 %% faster");
	else
		zd_log(ZD_LOG_INFO, "event=check huge_pages=ok");
}

/* Sockets of lanes, of the door, and what loops and files take. */
static void check_files(const struct zd_conf *conf)
{
	uint64_t need = conf->limits_connections + conf->limits_handshakes + 64 + 8 * (conf->lanes_count ? conf->lanes_count : zd_cpus(NULL, 0));
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	if (files.rlim_cur >= need)
		zd_log(ZD_LOG_INFO, "event=check files=ok limit=%" PRIu64, (uint64_t)files.rlim_cur);
	else
		zd_log(ZD_LOG_WARNING,
		       "event=check files=low limit=%" PRIu64 " needed=%" PRIu64 ": raise LimitNOFILE= or ulimit -n, or lower limits.connections",
		       (uint64_t)files.rlim_cur, need);
}

void zd_check_log(const struct zd_conf *conf, const struct zd_memory *memory, uint64_t budget, const struct zd_kernels *kernels)
{
	struct rlimit lock;

	zd_log(ZD_LOG_INFO, "event=check cpus=%u lanes=%" PRIu64 " kernels=%s", zd_cpus(NULL, 0),
	       conf->lanes_count ? conf->lanes_count : zd_cpus(NULL, 0), kernels->name);
	if (memory->group_limit == UINT64_MAX)
		zd_log(ZD_LOG_INFO, "event=check memory=ok available_mib=%" PRIu64 " budget_mib=%" PRIu64 " group=unlimited",
		       memory->available >> 20, budget >> 20);
	else
		zd_log(ZD_LOG_INFO,
		       "event=check memory=ok available_mib=%" PRIu64 " budget_mib=%" PRIu64 " group_mib=%" PRIu64 " group_used_mib=%" PRIu64,
		       memory->available >> 20, budget >> 20, memory->group_limit >> 20, memory->group_used >> 20);
	check_huge_pages(conf);
	check_files(conf);
	if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0) {
		if (lock.rlim_cur == RLIM_INFINITY)
			zd_log(ZD_LOG_INFO, "event=check memlock=unlimited");
		else
			zd_log(ZD_LOG_INFO, "event=check memlock_kib=%" PRIu64 ": enough while state lives in memory; LimitMEMLOCK= raises it",
			       (uint64_t)lock.rlim_cur >> 10);
	}
}
