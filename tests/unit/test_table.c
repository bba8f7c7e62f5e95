/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of commands as text, JSON and CSV. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct zd_table_column columns[] = {
	{ "name", "name", ZD_KIND_TEXT },
	{ "bytes", "size", ZD_KIND_BYTES },
	{ "ok", "ok", ZD_KIND_BOOL },
};

static struct zd_report *sample(void)
{
	struct zd_report *r = zd_report_new("demo run");

	zd_report_field(r, "params", ZD_KIND_COUNT, ZD_REAL(7.5e9));
	zd_report_field(r, "stage", ZD_KIND_TEXT, ZD_TEXT("all"));
	zd_report_field(r, "unset", ZD_KIND_TEXT, ZD_TEXT(NULL));
	zd_report_table(r, "sizes", "Sizes", columns, 3);
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("a"), ZD_REAL(1875000000), ZD_BOOL(true) });
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("long, \"name\""), ZD_REAL(0.5), ZD_BOOL(false) });
	zd_report_table(r, "more", "More", columns, 2);
	zd_report_row(r, (struct zd_cell[]){ ZD_NONE, ZD_REAL(NAN) });
	zd_report_note(r, "%d of %d", 1, 2);
	return r;
}

static char *text_of(struct zd_report *r, enum zd_table_format format)
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(zd_report_write(r, format, out), 0);
	fclose(out);
	zd_report_free(r);
	return text;
}

static void test_text(void **state)
{
	char *text = text_of(sample(), ZD_FORMAT_TABLE);

	(void)state;
	assert_string_equal(text, "demo run: params=7.5e9 stage=all\n"
				  "\n"
				  "Sizes\n"
				  "name              size   ok\n"
				  "a             1.875 GB  yes\n"
				  "long, \"name\"     0.5 B   no\n"
				  "\n"
				  "More\n"
				  "name  size\n"
				  "-        -\n"
				  "\n"
				  "note: 1 of 2\n");
	free(text);
}

static void test_text_without_heading(void **state)
{
	struct zd_report *r = zd_report_new("list");
	char *text;

	(void)state;
	zd_report_table(r, "t", "", columns, 2);
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("\xc3\xa4\xc3\xb6"), ZD_REAL(1) });
	zd_report_row(r, (struct zd_cell[]){ ZD_TEXT("x"), ZD_REAL(2) });
	text = text_of(r, ZD_FORMAT_TABLE);
	/* two characters of two bytes each are two columns wide */
	assert_string_equal(text, "name  size\n\xc3\xa4\xc3\xb6     1 B\nx      2 B\n");
	free(text);
}

static void test_csv(void **state)
{
	char *text = text_of(sample(), ZD_FORMAT_CSV);

	(void)state;
	assert_string_equal(text, "table,name,bytes,ok\n"
				  "sizes,a,1875000000,true\n"
				  "sizes,\"long, \"\"name\"\"\",0.5,false\n"
				  "\n"
				  "table,name,bytes\n"
				  "more,,\n");
	free(text);
}

static void test_json(void **state)
{
	char *text = text_of(sample(), ZD_FORMAT_JSON);
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	json_t *expected = json_pack("{s:s, s:{s:I, s:s, s:n}, s:{s:[{s:s, s:I, s:b}, {s:s, s:f, s:b}], s:[{s:n, s:n}]}, s:[s]}",
				     "command", "demo run", "inputs", "params", (json_int_t)7500000000, "stage", "all", "unset",
				     "tables", "sizes", "name", "a", "bytes", (json_int_t)1875000000, "ok", 1, "name",
				     "long, \"name\"", "bytes", 0.5, "ok", 0, "more", "name", "bytes", "notes", "1 of 2");

	(void)state;
	assert_non_null(j);
	assert_non_null(expected);
	assert_true(json_equal(j, expected));
	json_decref(j);
	json_decref(expected);
	free(text);
}

/* A program must get back the number: 64-bit counters whole, decimals as typed. */
static void test_json_numbers(void **state)
{
	static const struct zd_table_column one[] = { { "x", "x", ZD_KIND_COUNT } };
	struct zd_report *r = zd_report_new("n");
	static const struct {
		struct zd_cell cell;
		const char *text;
	} rows[] = {
		{ { .type = ZD_CELL_INTEGER, .integer = INT64_MAX }, "9223372036854775807" },
		{ { .type = ZD_CELL_INTEGER, .integer = UINT64_MAX }, "" },
		{ { .type = ZD_CELL_REAL, .real = 0.1 }, "0.1" },
		{ { .type = ZD_CELL_REAL, .real = 9007199254740991.0 }, "9007199254740991" },
		{ { .type = ZD_CELL_REAL, .real = 1e300 }, "1e+300" },
		{ { .type = ZD_CELL_REAL, .real = -INFINITY }, "" },
	};
	char expected[256] = "table,x\n", *text;

	(void)state;
	zd_report_table(r, "t", "T", one, 1);
	for (size_t i = 0; i < COUNT(rows); i++) {
		zd_report_row(r, &rows[i].cell);
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "t,%s\n", rows[i].text);
	}
	text = text_of(r, ZD_FORMAT_CSV);
	assert_string_equal(text, expected);
	free(text);
}

static void test_show(void **state)
{
	static const struct {
		enum zd_table_kind kind;
		double value;
		const char *text;
	} rows[] = {
		{ ZD_KIND_BYTES, 0, "0 B" },		  { ZD_KIND_BYTES, 999, "999 B" },
		{ ZD_KIND_BYTES, 1000, "1 kB" },	  { ZD_KIND_BYTES, 31406250000, "31.406 GB" },
		{ ZD_KIND_BYTES, 16e12, "16 TB" },	  { ZD_KIND_RATE, 3.125e9, "3.125 GB/s" },
		{ ZD_KIND_GIB, 17106000000, "15.93 GiB" }, { ZD_KIND_SECONDS, 0, "0 s" },
		{ ZD_KIND_SECONDS, 8.4058125, "8.4058 s" }, { ZD_KIND_SECONDS, 0.0017, "1.7 ms" },
		{ ZD_KIND_SECONDS, 2e-9, "2 ns" },	  { ZD_KIND_SECONDS, 5400, "1.5 h" },
		{ ZD_KIND_SECONDS, 86400, "1 days" },	  { ZD_KIND_SECONDS, 63072000, "2 years" },
		{ ZD_KIND_COUNT, 8192, "8192" },	  { ZD_KIND_COUNT, 9999999, "9999999" },
		{ ZD_KIND_COUNT, 70.6e9, "7.06e10" },	  { ZD_KIND_COUNT, 1e100, "1e100" },
		{ ZD_KIND_NUMBER, 0.974609375, "0.97461" }, { ZD_KIND_BOOL, 1, "yes" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		char text[64];

		zd_table_show(rows[i].kind, rows[i].value, text, sizeof(text));
		assert_string_equal(text, rows[i].text);
	}
}

/* What went wrong on the way is not printed as if it were whole. */
static void test_failures_stick(void **state)
{
	struct zd_report *r;
	FILE *full;
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	assert_int_equal(zd_report_write(NULL, ZD_FORMAT_JSON, out), -1);
	r = zd_report_new("x");
	zd_report_row(r, (struct zd_cell[]){ ZD_NONE }); /* no table yet */
	assert_int_equal(zd_report_write(r, ZD_FORMAT_JSON, out), -1);
	zd_report_free(r);
	r = zd_report_new("x");
	zd_report_table(r, "same", "", columns, 1);
	zd_report_table(r, "same", "", columns, 1);
	assert_int_equal(zd_report_write(r, ZD_FORMAT_TABLE, out), -1);
	zd_report_free(r);
	fclose(out);
	assert_int_equal(size, 0);
	free(text);
	full = fopen("/dev/full", "w");
	if (full == NULL) {
		print_message("SKIPPED in part: there is no /dev/full here\n");
		return;
	}
	r = sample();
	assert_int_equal(zd_report_write(r, ZD_FORMAT_CSV, full), -1);
	zd_report_free(r);
	fclose(full);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),	     cmocka_unit_test(test_text_without_heading),
		cmocka_unit_test(test_csv),	     cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_numbers), cmocka_unit_test(test_show),
		cmocka_unit_test(test_failures_stick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
