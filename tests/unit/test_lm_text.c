/* SPDX-License-Identifier: Apache-2.0 */
/* The text: what is refused and with which words, and which sequences a step reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/trainer/text.h"

static char folder[] = "/tmp/zerod-test-text-XXXXXX";

static const char *path_of(const char *name)
{
	static char path[100]; /* fits a socket's address */

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_file(const char *name, size_t bytes)
{
	FILE *file = fopen(path_of(name), "w");

	assert_non_null(file);
	for (size_t i = 0; i < bytes; i++)
		assert_true(fputc((int)(i * 7 % 251), file) != EOF);
	assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	(void)state;

	if (fd < 0 || mkdtemp(folder) == NULL)
		return -1;
	write_file("empty", 0);
	write_file("short", 8);
	write_file("just", 9);
	write_file("long", 5000);
	write_file("secret", 5000);
	memcpy(address.sun_path, path_of("socket"), 100);
	int rc = chmod(path_of("secret"), 0) | chmod(folder, 0755) | mkfifo(path_of("pipe"), 0600) |
		 bind(fd, (struct sockaddr *)&address, sizeof(address)) | symlink("nowhere", path_of("dangling")) | symlink("long", path_of("link"));
	(void)close(fd);
	return rc;
}

static int remove_folder(void **state)
{
	static const char *const names[] = { "empty", "short", "just", "long", "socket", "pipe", "dangling", "link", "shrinks", "secret" };
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unlink(path_of(names[i]));
	return rmdir(folder);
}

static void test_refusals(void **state)
{
	/* The message after "text PATH: "; the context is 8. */
	static const struct {
		const char *name, *text;
	} cases[] = {
		{ "just", "" },
		{ "long", "" },
		{ "link", "" },
		{ "missing", "expected a readable file, found: No such file or directory; check the path" },
		{ "dangling", "expected a readable file, found: No such file or directory; check the path" },
		{ "long/below", "expected a readable file, found: Not a directory" },
		{ "empty", "expected at least 9 bytes (context + 1), found an empty file; choose another" },
		{ "short",
		  "expected at least 9 bytes (context + 1), found 8; choose a longer text or a context of at most 7" },
		{ "", "expected a file, found a directory; write the text to a file and name that" },
		{ "pipe", "expected a file, found a pipe; write the text to a file and name that" },
		{ "socket", "expected a readable file, found: No such device or address" },
		{ "../../dev/null", "expected a file, found a device; write the text to a file and name that" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[400] = "", expected[400] = "";
		struct zd_text *handle = NULL;
		const char *path = path_of(cases[i].name);
		int rc = zd_text_open(path, 8, &handle, text, sizeof(text));

		if (cases[i].text[0])
			(void)snprintf(expected, sizeof(expected), "text %s: %s", path, cases[i].text);
		assert_string_equal(text, expected);
		assert_int_equal(rc, cases[i].text[0] ? -1 : 0);
		assert_true((handle != NULL) == (rc == 0));
		zd_text_close(handle);
	}
}

static void test_unreadable(void **state)
{
	char text[400];
	struct zd_text *handle;
	(void)state;

	bool root = geteuid() == 0;

	/* root may read every file, so it must be somebody else meanwhile */
	if (root && seteuid(65534) != 0) {
		print_message("skipped: root may read every file and cannot become another user here\n");
		skip();
	}
	int rc = zd_text_open(path_of("secret"), 8, &handle, text, sizeof(text));
	assert_int_equal(root ? seteuid(0) : 0, 0);
	assert_int_equal(rc, -1);
	assert_non_null(strstr(text, "secret: expected a readable file, found: Permission denied; check its permissions"));
}

static struct zd_text *open_text(const char *name, uint32_t context)
{
	char text[400];
	struct zd_text *handle;

	assert_int_equal(zd_text_open(path_of(name), context, &handle, text, sizeof(text)), 0);
	return handle;
}

static void test_batch(void **state)
{
	struct zd_text *handle = open_text("long", 8);
	struct zd_text_place place = { .seed = 3, .step = 17, .micro_batch = 1, .micro_batches = 2, .rank = 2, .world = 3, .batch = 5 };
	uint8_t tokens[5 * 9 + 1];
	char text[400];
	(void)state;

	assert_int_equal(zd_text_bytes(handle), 5000);
	tokens[45] = 0xee;
	assert_int_equal(zd_text_batch(handle, &place, tokens, text, sizeof(text)), 0);
	for (uint32_t index = 0; index < 5; index++) {
		uint64_t offset = zd_text_offset(handle, &place, index);

		assert_true(offset <= 5000 - 9);
		for (size_t i = 0; i < 9; i++)
			assert_int_equal(tokens[index * 9 + i], (offset + i) * 7 % 251);
	}
	assert_int_equal(tokens[45], 0xee);
	zd_text_close(handle);
}

static void test_just_enough(void **state)
{
	struct zd_text *handle = open_text("just", 8);
	struct zd_text_place place = { .seed = 1, .micro_batches = 1, .world = 1, .batch = 3 };
	uint8_t tokens[3 * 9];
	char text[400];
	(void)state;

	assert_int_equal(zd_text_batch(handle, &place, tokens, text, sizeof(text)), 0);
	for (size_t i = 0; i < sizeof(tokens); i++)
		assert_int_equal(tokens[i], i % 9 * 7 % 251);
	zd_text_close(handle);
}

/* The places that one step of a shape reads, in the order in which the lanes add the gradients up. */
static void places_of(const struct zd_text *handle, struct zd_text_place shape, uint64_t *places)
{
	for (shape.micro_batch = 0; shape.micro_batch < shape.micro_batches; shape.micro_batch++)
		for (shape.rank = 0; shape.rank < shape.world; shape.rank++)
			for (uint32_t index = 0; index < shape.batch; index++)
				*places++ = zd_text_offset(handle, &shape, index);
}

static void test_split(void **state)
{
	/* Twelve sequences a step, cut in different ways. */
	static const struct {
		uint32_t world, micro_batches, batch;
	} shapes[] = { { 1, 1, 12 }, { 2, 1, 6 }, { 1, 2, 6 }, { 3, 2, 2 }, { 2, 3, 2 }, { 12, 1, 1 }, { 1, 12, 1 } };
	struct zd_text *handle = open_text("long", 8);
	uint64_t expected[12], found[12];
	(void)state;

	for (uint64_t step = 0; step < 50; step++) {
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
			struct zd_text_place shape = { .seed = 5,
						       .step = step,
						       .world = shapes[i].world,
						       .micro_batches = shapes[i].micro_batches,
						       .batch = shapes[i].batch };

			places_of(handle, shape, i == 0 ? expected : found);
			if (i > 0)
				assert_memory_equal(found, expected, sizeof(expected));
		}
	}
	zd_text_close(handle);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static size_t distinct(uint64_t *values, size_t count)
{
	size_t n = 1;

	qsort(values, count, sizeof(*values), by_value);
	for (size_t i = 1; i < count; i++)
		n += values[i] != values[i - 1];
	return n;
}

static void test_spread(void **state)
{
	struct zd_text *handle = open_text("long", 8);
	static uint64_t places[40000];
	struct zd_text_place shape = { .seed = 5, .world = 4, .micro_batches = 2, .batch = 5 };
	(void)state;

	/* 1000 steps of 40: 8 times as many as there are places, so all but e^-8 of them are read: 1.7 of 4992 are left out. */
	for (shape.step = 0; shape.step < 1000; shape.step++)
		places_of(handle, shape, places + 40 * shape.step);
	size_t seen = distinct(places, 40000);
	assert_in_range(seen, 4992 - 10, 4992);
	assert_int_equal(places[0], 0);
	assert_int_equal(places[39999], 5000 - 9);

	/* Another seed reads others: of 40 draws from 4992 places hardly any is the same. */
	shape.step = 3;
	places_of(handle, shape, places);
	shape.seed = 6;
	places_of(handle, shape, places + 40);
	assert_in_range(distinct(places, 80), 70, 80);
	zd_text_close(handle);
}

static void test_shrinks(void **state)
{
	struct zd_text_place place = { .seed = 1, .micro_batches = 1, .world = 1, .batch = 1 };
	uint8_t tokens[9];
	char text[400], expected[400];
	(void)state;

	write_file("shrinks", 9);
	struct zd_text *handle = open_text("shrinks", 8);
	assert_int_equal(truncate(path_of("shrinks"), 4), 0);
	assert_int_equal(zd_text_batch(handle, &place, tokens, text, sizeof(text)), -1);
	(void)snprintf(expected, sizeof(expected),
		       "text %s: expected the 9 bytes it had at the start, found its end at 4; it must not change while it is trained on",
		       path_of("shrinks"));
	assert_string_equal(text, expected);
	zd_text_close(handle);
	zd_text_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals), cmocka_unit_test(test_unreadable), cmocka_unit_test(test_batch),
		cmocka_unit_test(test_just_enough), cmocka_unit_test(test_split), cmocka_unit_test(test_spread),
		cmocka_unit_test(test_shrinks),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
