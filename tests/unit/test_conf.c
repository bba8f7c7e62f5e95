/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration: values, layers and their precedence, mistakes with file and line, and the sample that must equal the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/shell/conf.h"

static char dir[] = "/tmp/zd-conf-XXXXXX";
static char file[64], dropins[64];

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/z.conf", dir);
	snprintf(dropins, sizeof(dropins), "%s/z.conf.d", dir);
	return mkdir(dropins, 0700);
}

static int remove_dir(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void put_dropin(const char *name, const char *text)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", dropins, name);
	put(path, text);
}

static void clear_dropins(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -f '%s'/*", dropins);
	assert_int_equal(system(command), 0);
}

static int load(struct zd_conf *conf, struct zd_conf_errors *errors, char *const *env, const char *const *sets, uint32_t count)
{
	struct zd_conf_sources sources = {.file = file, .must_exist = 1, .env = env, .sets = sets, .set_count = count};

	return zd_conf_load(conf, &sources, errors);
}

struct value_case {
	const char *section, *key, *in;
	const char *out;   /* as formatted again; NULL: refused */
	const char *error; /* part of the message */
};

static const struct value_case values[] = {
	{"memory", "budget", "64GiB", "64GiB", NULL},
	{"memory", "budget", "65536 MiB", "64GiB", NULL},
	{"memory", "budget", "16777217", "16777217B", NULL},
	{"memory", "budget", "auto", "auto", NULL},
	{"memory", "budget", "64GB", NULL, "expected bytes with KiB"},
	{"memory", "budget", "1MiB", NULL, "expected 16MiB to 128TiB, or auto, found \"1MiB\""},
	{"memory", "budget", "64", NULL, "found \"64\", which without a unit is bytes; add KiB, MiB, GiB or TiB"},
	{"memory", "budget", "-1", NULL, "expected bytes"},
	{"memory", "budget", "18446744073709551615TiB", NULL, "expected bytes"},
	{"memory", "budget", "99999999999999999999", NULL, "expected bytes"},
	{"memory", "budget", "", NULL, "expected bytes"},
	{"limits", "hello_timeout", "5s", "5s", NULL},
	{"limits", "hello_timeout", "5000ms", "5s", NULL},
	{"limits", "hello_timeout", "2min", "2min", NULL},
	{"limits", "hello_timeout", "1500ms", "1500ms", NULL},
	{"limits", "hello_timeout", "5", NULL, "expected a time"},
	{"limits", "hello_timeout", "5 parsecs", NULL, "expected a time"},
	{"timeouts", "drain", "0", "0s", NULL},
	{"listen", "port", "0", "0", NULL},
	{"listen", "port", "65535", "65535", NULL},
	{"listen", "port", "65536", NULL, "expected 0 to 65535"},
	{"listen", "port", "auto", NULL, "expected a whole number"},
	{"listen", "port", "7410x", NULL, "expected a whole number"},
	{"lanes", "count", "auto", "auto", NULL},
	{"lanes", "count", "0", NULL, "expected 1 to 256, or auto"},
	{"lanes", "pin", "on", "yes", NULL},
	{"lanes", "pin", "0", "no", NULL},
	{"lanes", "pin", "maybe", NULL, "expected yes or no"},
	{"memory", "huge_pages", "off", "off", NULL},
	{"memory", "huge_pages", "o", NULL, "expected one of madvise|off"},
	{"listen", "address", "127.0.0.1,::1", "127.0.0.1, ::1", NULL},
	{"listen", "address", "127.0.0.1,,::1", NULL, "expected 1 to 8 items"},
	{"listen", "address", "1,2,3,4,5,6,7,8,9", NULL, "expected 1 to 8 items"},
	{"listen", "port_file", "/run/port", "/run/port", NULL},
	{"listen", "port_file", "run/port", NULL, "expected an absolute path"},
	{"daemon", "name", "", NULL, "expected 1 to 63 bytes"},
};

static void test_values(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const struct value_case *c = &values[i];
		const struct zd_conf_key *key = zd_conf_find(c->section, c->key);
		char text[512] = "", out[640];
		struct zd_conf conf;
		int rc;

		assert_non_null(key);
		zd_conf_defaults(&conf);
		rc = zd_conf_parse_value(&conf, key, c->in, text, sizeof(text));
		if (c->out) {
			assert_int_equal(rc, 0);
			assert_string_equal(zd_conf_format(&conf, key, out, sizeof(out)), c->out);
		} else {
			assert_int_equal(rc, -1);
			if (!strstr(text, c->error))
				fail_msg("%s.%s = \"%s\": \"%s\" does not say \"%s\"", c->section, c->key, c->in, text, c->error);
		}
	}
}

/* Every layer sets one key more than the layer above it, so that each shows through exactly once. */
static void test_precedence(void **state)
{
	char *env[] = {"ZEROD_LIMITS_JOBS=4", "ZEROD_LIMITS_HANDSHAKES=4", "ZEROD_ENDPOINTS=x:1", "ZEROD_KERNELS=scalar", "OTHER=1", NULL};
	const char *sets[] = {"limits.jobs=9", "limits.jobs=5"};
	struct zd_conf_errors errors;
	struct zd_conf conf;

	(void)state;
	put(file, "[limits]\njobs = 1\nhandshakes = 1\nconnections = 1\n[listen]\nbacklog = 1\nport = 1\n");
	put_dropin("20.conf", "[limits]\njobs = 3\nhandshakes = 3\nconnections = 3\n");
	put_dropin("10.conf", "[limits]\njobs = 2\nhandshakes = 2\nconnections = 2\n[listen]\nbacklog = 2\n");
	put_dropin("30.conf.off", "[limits]\njobs = 16\nconnections = 16\n");
	if (load(&conf, &errors, env, sets, 2) < 0)
		fail_msg("%s", errors.text);
	assert_int_equal(conf.limits_jobs, 5);
	assert_int_equal(conf.limits_handshakes, 4);
	assert_int_equal(conf.limits_connections, 3);
	assert_int_equal(conf.listen_backlog, 2);
	assert_int_equal(conf.listen_port, 1);
	assert_int_equal(conf.memory_windows, 48);
	assert_string_equal(conf.origin[ZD_CONF_KEY_limits_jobs], "--set");
	assert_string_equal(conf.origin[ZD_CONF_KEY_limits_handshakes], "environment ZEROD_LIMITS_HANDSHAKES");
	assert_non_null(strstr(conf.origin[ZD_CONF_KEY_limits_connections], "20.conf:4"));
	assert_non_null(strstr(conf.origin[ZD_CONF_KEY_listen_backlog], "10.conf:6"));
	assert_non_null(strstr(conf.origin[ZD_CONF_KEY_listen_port], "z.conf:7"));
	assert_string_equal(conf.origin[ZD_CONF_KEY_memory_windows], "default");
	clear_dropins();
}

struct mistake_case {
	const char *text;
	const char *expected[3]; /* parts of the messages, all of them */
};

#define LINE_190 "; 3456789012345678901234567890123456789012345678901234567890123456789012345678901234567890" \
		 "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

static const struct mistake_case mistakes[] = {
	{"[limits]\njob = 1\n", {"z.conf:2: unknown key \"job\" in [limits]", "handshakes"}},
	{"[limit]\njobs = 1\n", {"z.conf:2: unknown section [limit]"}},
	{"jobs = 1\n", {"z.conf:1: expected a [section] first, found \"jobs\""}},
	{"[limits]\njobs = 1\n\njobs = 1\n", {"z.conf:4: limits.jobs is set a second time", "z.conf:2"}},
	{"[limits]\njobs = 17\nhandshakes = none\n", {"z.conf:2: limits.jobs: expected 1 to 16, found \"17\"", "z.conf:3: limits.handshakes"}},
	{"[limits]\njobs\n", {"z.conf:2: expected [section], key = value"}},
	{"[listen]\nport_file = port\n", {"z.conf:2: listen.port_file: expected an absolute path"}},
	{"[listen]\naddress = 0.0.0.0\n", {"z.conf:2: listen.address: 0.0.0.0 is not loopback", "I-accept-plaintext"}},
	{"[listen]\naddress = ::\n", {"listen.address: :: is not loopback"}},
	{"[listen]\naddress = localhost\n", {"expected a numeric IPv4 or IPv6 address, found \"localhost\""}},
	{"[listen]\ninsecure = yes\n", {"listen.insecure: expected I-accept-plaintext"}},
	{"[daemon]\nname = a b\n", {"daemon.name: expected letters"}},
	{"[limits]\n" LINE_190 "0123456789\njobs = 17\n", {"z.conf:2: line is longer than 198 bytes", "z.conf:3: limits.jobs"}},
};

static void test_mistakes(void **state)
{
	size_t i, j;

	(void)state;
	for (i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		struct zd_conf_errors errors;
		struct zd_conf conf;

		memset(&conf, 0x5a, sizeof(conf));
		put(file, mistakes[i].text);
		assert_int_equal(load(&conf, &errors, NULL, NULL, 0), -1);
		for (j = 0; j < 3 && mistakes[i].expected[j]; j++)
			if (!strstr(errors.text, mistakes[i].expected[j]))
				fail_msg("\"%s\" does not say \"%s\"", errors.text, mistakes[i].expected[j]);
		assert_int_equal(((uint8_t *)&conf)[0], 0x5a); /* not touched */
	}
}

/* Of a file that is none of ours the first byte that tells is named, once. */
static void test_nul_byte(void **state)
{
	static const char text[] = "[limits]\njobs = 1\0; not text\n\0handshakes = 0\n";
	struct zd_conf_errors errors;
	struct zd_conf conf;
	FILE *f = fopen(file, "w");

	(void)state;
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, sizeof(text) - 1, f), sizeof(text) - 1);
	fclose(f);
	assert_int_equal(load(&conf, &errors, NULL, NULL, 0), -1);
	assert_int_equal(errors.count, 1);
	assert_non_null(strstr(errors.text, "z.conf:2: expected text, found a NUL byte in column 9"));
}

static void put_fifo(const char *path)
{
	assert_int_equal(mkfifo(path, 0600), 0);
}

static void put_folder(const char *path)
{
	assert_int_equal(mkdir(path, 0700), 0);
}

static void put_endless(const char *path)
{
	assert_int_equal(symlink("/dev/zero", path), 0);
}

/* Whatever would block, never end or say something else is refused at once, as the file and as a drop-in. */
static void test_not_a_file(void **state)
{
	static const struct {
		void (*put)(const char *path);
		const char *found;
	} cases[] = {{put_fifo, "a FIFO"}, {put_folder, "a directory"}, {put_endless, "a device"}};
	struct zd_conf_errors errors;
	struct zd_conf conf;
	char path[160], expected[128];
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (k = 0; k < 2; k++) {
			snprintf(path, sizeof(path), "%s%s", k ? dropins : file, k ? "/10.conf" : "");
			put(file, "");
			if (k == 0)
				assert_int_equal(unlink(file), 0);
			cases[i].put(path);
			assert_int_equal(load(&conf, &errors, NULL, NULL, 0), -1);
			assert_int_equal(errors.count, 1);
			snprintf(expected, sizeof(expected), "%s: expected a regular file, found %s", k ? "10.conf" : "z.conf",
				 cases[i].found);
			if (!strstr(errors.text, expected))
				fail_msg("\"%s\" does not say \"%s\"", errors.text, expected);
			assert_int_equal(remove(path), 0);
		}
}

/* A drop-in is switched off by a link of its name to /dev/null, as with systemd. */
static void test_null_device_is_empty(void **state)
{
	struct zd_conf_errors errors;
	struct zd_conf conf;
	char path[160];

	(void)state;
	put(file, "[limits]\njobs = 3\n");
	snprintf(path, sizeof(path), "%s/10.conf", dropins);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(load(&conf, &errors, NULL, NULL, 0), 0);
	assert_int_equal(conf.limits_jobs, 3);
	clear_dropins();
}

static void test_line_of_198_is_read(void **state)
{
	struct zd_conf_errors errors;
	struct zd_conf conf;

	(void)state;
	put(file, LINE_190 "01234567\n[limits]\njobs = 7\n");
	assert_int_equal(load(&conf, &errors, NULL, NULL, 0), 0);
	assert_int_equal(conf.limits_jobs, 7);
}

static void test_a_list_goes_on_in_the_next_line(void **state)
{
	struct zd_conf_errors errors;
	struct zd_conf conf;

	(void)state;
	put(file, "[listen]\naddress = 127.0.0.1\n   127.0.0.2, ::1\n");
	assert_int_equal(load(&conf, &errors, NULL, NULL, 0), 0);
	assert_int_equal(conf.listen_address.count, 3);
	assert_string_equal(conf.listen_address.item[2], "::1");
}

static void test_insecure_in_words(void **state)
{
	struct zd_conf_errors errors;
	struct zd_conf conf;

	(void)state;
	put(file, "[listen]\naddress = 0.0.0.0\ninsecure = I-accept-plaintext\n");
	assert_int_equal(load(&conf, &errors, NULL, NULL, 0), 0);
}

static void test_wrong_environment_and_flags(void **state)
{
	char *env[] = {"ZEROD_LIMITS_JOBZ=4", NULL};
	const char *sets[] = {"limits.jobs", "limits.jobs=x", "jobs=1"};
	struct zd_conf_errors errors;
	struct zd_conf conf;

	(void)state;
	put(file, "");
	assert_int_equal(load(&conf, &errors, env, sets, 3), -1);
	assert_int_equal(errors.count, 4);
	assert_non_null(strstr(errors.text, "environment ZEROD_LIMITS_JOBZ: unknown key \"jobz\""));
	assert_non_null(strstr(errors.text, "--set: expected section.key=value, found \"limits.jobs\""));
	assert_non_null(strstr(errors.text, "--set: limits.jobs: expected a whole number"));
	assert_non_null(strstr(errors.text, "found \"jobs=1\""));
}

static void test_missing_file(void **state)
{
	struct zd_conf_sources sources = {.file = "/nonexistent/z.conf", .must_exist = 1};
	struct zd_conf_errors errors;
	struct zd_conf conf;

	(void)state;
	assert_int_equal(zd_conf_load(&conf, &sources, &errors), -1);
	assert_non_null(strstr(errors.text, "/nonexistent/z.conf: cannot be read: No such file"));
	sources.must_exist = 0;
	assert_int_equal(zd_conf_load(&conf, &sources, &errors), 0);
	assert_int_equal(conf.listen_port, 7410);
}

/* What --dump-config prints is a configuration that gives the same values. */
static void test_dump_is_a_configuration(void **state)
{
	const char *sets[] = {"memory.budget=3GiB", "lanes.pin=yes", "timeouts.drain=90s", "listen.address=127.0.0.1,::1"};
	struct zd_conf_errors errors;
	struct zd_conf before, after;
	uint32_t i;
	FILE *f;

	(void)state;
	put(file, "");
	assert_int_equal(load(&before, &errors, NULL, sets, 4), 0);
	f = fopen(file, "w");
	assert_non_null(f);
	zd_conf_dump(&before, f);
	fclose(f);
	if (load(&after, &errors, NULL, NULL, 0) < 0)
		fail_msg("%s", errors.text);
	for (i = 0; i < ZD_CONF_KEYS; i++)
		assert_true(zd_conf_same(&before, &after, &zd_conf_keys[i]));
}

/* The sample in deploy/ is the table's, changes nothing as it is, and stays right with every line uncommented. */
static void test_sample(void **state)
{
	struct zd_conf_errors errors;
	struct zd_conf conf, defaults;
	char *text = NULL, *disk, *p;
	size_t size, n;
	uint32_t i;
	FILE *f;

	(void)state;
	f = open_memstream(&text, &size);
	assert_non_null(f);
	zd_conf_print_sample(f);
	fclose(f);
	f = fopen("deploy/zerod.conf", "r");
	assert_non_null(f);
	disk = calloc(1, size + 2);
	assert_non_null(disk);
	n = fread(disk, 1, size + 1, f);
	fclose(f);
	assert_int_equal(n, size);
	assert_memory_equal(disk, text, size); /* else: zerod --print-sample-config > deploy/zerod.conf */
	for (i = 0; i < 2; i++) {
		uint32_t k;

		put(file, disk);
		if (load(&conf, &errors, NULL, NULL, 0) < 0)
			fail_msg("%s", errors.text);
		zd_conf_defaults(&defaults);
		for (k = 0; k < ZD_CONF_KEYS; k++)
			assert_true(zd_conf_same(&conf, &defaults, &zd_conf_keys[k]));
		for (p = disk; (p = strstr(p, "\n;")); p++)
			if (p[2] != ' ')
				p[1] = ' ';
		for (p = disk; (p = strstr(p, "\n ")); p++)
			memmove(p + 1, p + 2, strlen(p + 2) + 1);
	}
	free(disk);
	free(text);
}

/* The manual page holds the keys as the table has them. */
static void test_manual(void **state)
{
	char *text = NULL, *page;
	size_t size;
	FILE *f;

	(void)state;
	f = open_memstream(&text, &size);
	assert_non_null(f);
	zd_conf_print_man(f);
	fclose(f);
	page = calloc(1, size + 65536);
	assert_non_null(page);
	f = fopen("docs/man/zerod.conf.5.scd", "r");
	assert_non_null(f);
	assert_true(fread(page, 1, size + 65535, f) > size);
	fclose(f);
	assert_non_null(strstr(page, text)); /* else: zerod --print-config-man, into KEYS of the page */
	free(page);
	free(text);
}

/* What does not fit is counted, so that nobody takes the mistakes that are shown for all there are. */
static void test_more_mistakes_than_fit(void **state)
{
	static char text[20000];
	struct zd_conf_errors errors;
	struct zd_conf conf;
	size_t n = (size_t)snprintf(text, sizeof(text), "[limits]\n");
	uint32_t shown = 1;
	char last[80];

	(void)state;
	clear_dropins();
	for (int i = 0; i < 200; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "nonsense_%d = 5\n", i);
	put(file, text);
	assert_int_equal(load(&conf, &errors, NULL, NULL, 0), -1);
	assert_int_equal(errors.count, 200);
	for (const char *p = errors.text; (p = strchr(p, '\n')); p++)
		shown++;
	snprintf(last, sizeof(last), "\nand %u more mistakes", 200 - (shown - 1));
	assert_true(shown > 10 && shown < 200);
	assert_string_equal(strrchr(errors.text, '\n'), last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_more_mistakes_than_fit),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_precedence),
		cmocka_unit_test(test_mistakes),
		cmocka_unit_test(test_nul_byte),
		cmocka_unit_test(test_not_a_file),
		cmocka_unit_test(test_null_device_is_empty),
		cmocka_unit_test(test_line_of_198_is_read),
		cmocka_unit_test(test_a_list_goes_on_in_the_next_line),
		cmocka_unit_test(test_insecure_in_words),
		cmocka_unit_test(test_wrong_environment_and_flags),
		cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_dump_is_a_configuration),
		cmocka_unit_test(test_sample),
		cmocka_unit_test(test_manual),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
