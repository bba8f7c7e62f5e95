/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager hears.  Linked twice: with the file that uses libsystemd and with the one that does without; both must do the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/shell/notify.h"

static char folder[] = "/tmp/zd-notify-XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

/* A manager that listens on `name`, written as in NOTIFY_SOCKET.  The message has to be there when zd_notify returns, so nothing waits. */
static int listens(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && len < sizeof(address.sun_path));
	memcpy(address.sun_path, name, len);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	assert_int_equal(bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)), 0);
	return fd;
}

static void hears(int fd, const char *text)
{
	char got[2 * ZD_NOTIFY_MAX];
	ssize_t n = recv(fd, got, sizeof(got) - 1, 0);

	assert_true(n >= 0);
	got[n] = '\0';
	assert_string_equal(got, text);
}

static void hears_nothing(int fd)
{
	char got[16];

	assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
}

static void test_path(void **state)
{
	char name[64];
	int fd;

	(void)state;
	snprintf(name, sizeof(name), "%s/socket", folder);
	fd = listens(name);
	setenv("NOTIFY_SOCKET", name, 1);
	zd_notify("READY=1\nSTATUS=listening on port %u", 7410u);
	hears(fd, "READY=1\nSTATUS=listening on port 7410");
	zd_notify("WATCHDOG=1"); /* the variable is still there */
	hears(fd, "WATCHDOG=1");
	hears_nothing(fd);
	close(fd);
	zd_notify("STOPPING=1"); /* nobody listens any more */
	unlink(name);
	zd_notify("STOPPING=1");
}

static void test_abstract(void **state)
{
	char name[64];
	int fd;

	(void)state;
	snprintf(name, sizeof(name), "@zd-notify-%ld", (long)getpid());
	fd = listens(name);
	setenv("NOTIFY_SOCKET", name, 1);
	zd_notify("READY=1");
	hears(fd, "READY=1");
	unsetenv("NOTIFY_SOCKET");
	zd_notify("READY=1");
	hears_nothing(fd);
	close(fd);
}

/* The longest path that an address holds has no room for a zero at its end. */
static void test_lengths(void **state)
{
	struct sockaddr_un address;
	char name[sizeof(address.sun_path) + 2], text[2 * ZD_NOTIFY_MAX];
	int fd;

	(void)state;
	memset(name, 'x', sizeof(name));
	name[0] = '@';
	name[sizeof(address.sun_path) - 1] = '\0';
	fd = listens(name);
	setenv("NOTIFY_SOCKET", name, 1);
	memset(text, 'y', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	zd_notify("%s", text);
	text[ZD_NOTIFY_MAX - 1] = '\0';
	hears(fd, text);
	name[sizeof(address.sun_path) - 1] = 'x';
	name[sizeof(address.sun_path) + 1] = '\0';
	setenv("NOTIFY_SOCKET", name, 1);
	zd_notify("READY=1");
	hears_nothing(fd);
	close(fd);
}

static void test_no_address(void **state)
{
	static const char *const names[] = {"", "@", "/", "relative", "vsock:2:1234", "/none/of/that/name"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		setenv("NOTIFY_SOCKET", names[i], 1);
		zd_notify("READY=1");
	}
	unsetenv("NOTIFY_SOCKET");
}

static void test_watchdog(void **state)
{
	char self[24], parent[24];
	struct {
		const char *usec, *pid;
		uint64_t want;
	} cases[] = {
		{"30000000", self, 30000000},
		{"100000", NULL, 100000},
		{"1", self, 1},
		{"30000000", parent, 0},
		{"30000000", "", 0},
		{"30000000", "1x", 0},
		{"0", self, 0},
		{"", self, 0},
		{"-5", self, 0},
		{"5s", self, 0},
		{"18446744073709551615", self, 0},
		{"99999999999999999999999", self, 0},
		{NULL, self, 0},
		{NULL, NULL, 0},
	};

	(void)state;
	snprintf(self, sizeof(self), "%ld", (long)getpid());
	snprintf(parent, sizeof(parent), "%ld", (long)getppid());
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cases[i].usec ? setenv("WATCHDOG_USEC", cases[i].usec, 1) : unsetenv("WATCHDOG_USEC");
		cases[i].pid ? setenv("WATCHDOG_PID", cases[i].pid, 1) : unsetenv("WATCHDOG_PID");
		if (zd_notify_watchdog_us() != cases[i].want)
			fail_msg("case %zu: %llu", i, (unsigned long long)zd_notify_watchdog_us());
	}
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path),	   cmocka_unit_test(test_abstract), cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_no_address), cmocka_unit_test(test_watchdog),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
