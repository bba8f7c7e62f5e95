/* SPDX-License-Identifier: Apache-2.0 */
/* zerod_new refuses with a text that says what was expected and what was found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/options.h"

static const struct zerod_unit two[] = {{"a", 1000, 0}, {"b", 5000, 0}};

#define LONG "0123456789012345678901234567890123456789012345678901234567890123"
#define LONGER LONG LONG LONG LONG

struct row {
	const char *expected; /* part of the text; NULL: accepted */
	const char *endpoints, *job;
	const struct zerod_unit *units;
	uint32_t unit_count, rank, world, optimizer, codec;
	uint64_t epoch, gather;
	size_t size_off;
};

static const struct zerod_unit twice[] = {{"a", 10, 0}, {"a", 10, 0}}, frozen[] = {{"a", 10, 1}}, empty[] = {{"a", 0, 0}}, nameless[] = {{NULL, 1, 0}};

#define OK_UNITS two, 2
static const struct row rows[] = {
	{NULL, "localhost:1", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{NULL, "[::1]:65535,127.0.0.1:7410", "j", OK_UNITS, 0, 0, 1, 0, 1, 0, 0},
	{NULL, "h:1", "j", OK_UNITS, 63, 64, 0, 2, 9, 10000, 0},
	{NULL, "h:1", "j", OK_UNITS, 0, 1, 0, 0, 1, 1, 0}, /* without weights there is nothing to gather */
	{"expected host:port", "localhost", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"expected host:port", "h:1,", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"expected host:port", ":1", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"port must be 1 to 65535", "h:0", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"port must be 1 to 65535", "h:65536", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"port must be 1 to 65535", "h:99999999999999999999", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"port must be 1 to 65535", "h:1x", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"in brackets", "::1:80", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"1 to 255 bytes, this one 256", LONGER ":1", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"\"h:2\" is named twice", "h:2,g:2,h:2", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"endpoints is empty", NULL, "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"endpoints is empty", "", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"job is NULL", "h:1", NULL, OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"longer than 63", "h:1", LONG, OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"name", "h:1", "a b", OK_UNITS, 0, 1, 1, 0, 1, 0, 0},
	{"0 units: a job has 1 to 1024", "h:1", "j", two, 0, 0, 1, 1, 0, 1, 0, 0},
	{"0 units", "h:1", "j", two, 0, 0, 1, 1, 0, 1, 0, 0},
	{"its name is missing", "h:1", "j", nameless, 1, 0, 1, 1, 0, 1, 0, 0},
	{"a", "h:1", "j", twice, 2, 0, 1, 1, 0, 1, 0, 0},
	{"frozen", "h:1", "j", frozen, 1, 0, 1, 1, 0, 1, 0, 0},
	{"0 elements, expected 1 to", "h:1", "j", empty, 1, 0, 1, 1, 0, 1, 0, 0},
	{"rank 2 of world size 2", "h:1", "j", OK_UNITS, 2, 2, 1, 0, 1, 0, 0},
	{"world size 65", "h:1", "j", OK_UNITS, 0, 65, 1, 0, 1, 0, 0},
	{NULL, "h:1", "j", OK_UNITS, 0, 1, 1, 0, UINT64_MAX >> 1, 0, 0},
	{"so that there is always a higher one", "h:1", "j", OK_UNITS, 0, 1, 1, 0, (UINT64_MAX >> 1) + 1, 0, 0},
	{"epochs count from 1", "h:1", "j", OK_UNITS, 0, 1, 1, 0, 0, 0, 0},
	{"optimizer 3 does not exist", "h:1", "j", OK_UNITS, 0, 1, 3, 0, 1, 0, 0},
	{"grad_codec 3 does not exist", "h:1", "j", OK_UNITS, 0, 1, 1, 3, 1, 0, 0},
	{"largest unit alone takes 10000 bytes", "h:1", "j", OK_UNITS, 0, 1, 1, 0, 1, 9999, 0},
	{"call zerod_options_init", "h:1", "j", OK_UNITS, 0, 1, 1, 0, 1, 0, 8},
};

static void test_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		struct zerod_options o;
		struct zerod_client *client = NULL;
		char text[300];
		int rc;

		zerod_options_init(&o);
		o.endpoints = row->endpoints;
		o.job = row->job;
		o.rank = row->rank;
		o.world = row->world;
		o.optimizer = row->optimizer;
		o.grad_codec = row->codec;
		o.epoch = row->epoch;
		o.gather_bytes_max = row->gather;
		o.size -= row->size_off;
		rc = zerod_new(&client, &o, row->units, row->unit_count, text, sizeof(text));
		if (!row->expected) {
			if (rc != ZEROD_OK)
				fail_msg("row %zu: %s", i, text);
			zerod_free(client);
			continue;
		}
		if (rc != ZEROD_ERR_ARGUMENT || !strstr(text, row->expected))
			fail_msg("row %zu: status %d, expected \"%s\", found \"%s\"", i, rc, row->expected, text);
		assert_null(client);
	}
}

static void test_nothing_given(void **state)
{
	struct zerod_client *client;
	struct zerod_options o;
	char text[10];

	(void)state;
	zerod_options_init(&o);
	assert_int_equal(zerod_new(&client, NULL, two, 2, NULL, 0), ZEROD_ERR_ARGUMENT);
	assert_int_equal(zerod_new(NULL, &o, two, 2, NULL, 0), ZEROD_ERR_ARGUMENT);
	assert_int_equal(zerod_new(&client, &o, two, 2, text, sizeof(text)), ZEROD_ERR_ARGUMENT);
	assert_int_equal(strlen(text), sizeof(text) - 1); /* cut, and ended */
	zerod_free(NULL);
	assert_string_equal(zerod_status_text(ZEROD_REDO), "compute the step again");
	assert_string_equal(zerod_status_text(-1), "unknown status");
	assert_string_equal(zerod_status_text(13), "unknown status");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_nothing_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
