/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that peers send, as values of a log line: nothing in them ends the value or the line, at any length it is cut to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

static void test_quote(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"", "\"\""},
		{"no job old-run", "\"no job old-run\""},
		{"x\" level=error y=\"", "\"x\\\" level=error y=\\\"\""},
		{"ends with \\", "\"ends with \\\\\""},
		{"\\\"", "\"\\\\\\\"\""},
		{"a\nevent=faked\r\tb", "\"a\\nevent=faked\\r\\tb\""},
		{"\x01\x1b[2J\x1f\x7f", "\"\\x01\\x1b[2J\\x1f\\x7f\""},
		{"\x80\xc3\xa9\xff", "\"\\x80\\xc3\\xa9\\xff\""},
		{" ~", "\" ~\""},
	};
	char out[200];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_ptr_equal(zd_text_quote(out, sizeof(out), cases[i].in), out);
		assert_string_equal(out, cases[i].out);
	}
}

/* The length of the value that begins a line, as a reader of the log finds it; 0: it does not end. */
static size_t value_length(const char *line)
{
	for (size_t i = 1; line[i]; i++) {
		if (line[i] == '\\' && line[i + 1])
			i++;
		else if (line[i] == '"')
			return i + 1;
	}
	return 0;
}

static void test_cut(void **state)
{
	static const char in[] = "a\"b\\c\nd\x02" "e", whole[] = "\"a\\\"b\\\\c\\nd\\x02e\"";

	(void)state;
	for (size_t size = 3; size <= sizeof(whole) + 2; size++) {
		char *out = malloc(size); /* of that size exactly: sanitizers see a byte beyond */

		assert_non_null(out);
		zd_text_quote(out, size, in);
		assert_int_equal(value_length(out), strlen(out));
		assert_memory_equal(out, whole, strlen(out) - 1);
		assert_true(size < sizeof(whole) || strcmp(out, whole) == 0);
		/* Nothing that fits is left out: an escape of four bytes is the most. */
		assert_true(strlen(out) + 4 + 1 > size || strcmp(out, whole) == 0);
		free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_quote), cmocka_unit_test(test_cut)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
