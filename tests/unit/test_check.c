/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine has, read from trees of files as Debian 12 and 13 and containers show them, and the budget that follows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/shell/check.h"

#define MIB (1ull << 20)

static char root[] = "/tmp/zd-check-XXXXXX";

static int make_root(void **state)
{
	(void)state;
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void put(const char *path, const char *text)
{
	char full[256], command[320];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", full);
	assert_int_equal(system(command), 0);
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void clear(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'/*", root);
	assert_int_equal(system(command), 0);
}

static const char meminfo[] = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   10240000 kB\n";

static void test_no_group(void **state)
{
	struct zd_memory m;

	(void)state;
	clear();
	put("/proc/meminfo", meminfo);
	put("/proc/self/cgroup", "0::/user.slice\n");
	put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
	zd_memory_read(&m, root);
	assert_int_equal(m.available, 10000 * MIB);
	assert_int_equal(m.group_limit, UINT64_MAX);
	assert_int_equal(zd_memory_free(&m), 10000 * MIB);
}

/* The tightest limit on the way up counts, with its own use. */
static void test_version_2(void **state)
{
	struct zd_memory m;

	(void)state;
	clear();
	put("/proc/meminfo", meminfo);
	put("/proc/self/cgroup", "0::/zerod.slice/zerod.service\n");
	put("/sys/fs/cgroup/zerod.slice/zerod.service/memory.max", "4294967296\n");
	put("/sys/fs/cgroup/zerod.slice/zerod.service/memory.current", "1048576\n");
	put("/sys/fs/cgroup/zerod.slice/memory.max", "2147483648\n");
	put("/sys/fs/cgroup/zerod.slice/memory.current", "1073741824\n");
	zd_memory_read(&m, root);
	assert_int_equal(m.group_limit, 2048 * MIB);
	assert_int_equal(zd_memory_free(&m), 1024 * MIB);
}

static void test_version_1(void **state)
{
	struct zd_memory m;

	(void)state;
	clear();
	put("/proc/meminfo", meminfo);
	put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/box/a\n1:cpu:/\n0::/\n");
	put("/sys/fs/cgroup/memory/box/a/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824\n");
	put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "536870912\n");
	zd_memory_read(&m, root);
	assert_int_equal(m.group_limit, 1024 * MIB);
	assert_int_equal(zd_memory_free(&m), 512 * MIB);
}

static void test_budget(void **state)
{
	struct zd_memory m = {.available = 1000 * MIB, .group_limit = UINT64_MAX};
	char text[512] = "";
	uint64_t budget;

	(void)state;
	assert_int_equal(zd_memory_budget(&m, 0, &budget, text, sizeof(text)), 0);
	assert_int_equal(budget, 1000 * MIB / 100 * 80);
	assert_int_equal(zd_memory_budget(&m, 1000 * MIB, &budget, text, sizeof(text)), 0);
	assert_int_equal(budget, 1000 * MIB);
	assert_int_equal(zd_memory_budget(&m, 1000 * MIB + 1, &budget, text, sizeof(text)), -1);
	assert_non_null(strstr(text, "1000 MiB are there"));
	m.group_limit = 300 * MIB;
	m.group_used = 100 * MIB;
	assert_int_equal(zd_memory_budget(&m, 201 * MIB, &budget, text, sizeof(text)), -1);
	assert_non_null(strstr(text, "201 MiB asked for, 200 MiB are there"));
	assert_non_null(strstr(text, "control group: 300 MiB, of which 100 are in use"));
	m.group_used = 400 * MIB;
	assert_int_equal(zd_memory_free(&m), 0);
	m = (struct zd_memory){.available = UINT64_MAX, .group_limit = UINT64_MAX};
	assert_int_equal(zd_memory_budget(&m, 0, &budget, text, sizeof(text)), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_group),
		cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_version_1),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}
