/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum in each of its forms against the definition, bit by bit (RFC 3720 appendix B.4). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/crc32c.h"

#define BYTES 20000u

static uint8_t data[BYTES + 64];

static uint32_t by_bits(uint32_t crc, const uint8_t *p, size_t len)
{
	uint32_t state = ~crc;

	for (size_t i = 0; i < len; i++) {
		state ^= p[i];
		for (int b = 0; b < 8; b++)
			state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0);
	}
	return ~state;
}

static int fill(void **state)
{
	uint32_t x = 1;

	(void)state;
	for (size_t i = 0; i < sizeof data; i++) {
		x = x * 1664525u + 1013904223u;
		data[i] = (uint8_t)(x >> 24);
	}
	return 0;
}

static void each_form(const uint8_t *p, size_t len, uint32_t start, uint32_t expected)
{
	assert_int_equal(zd_crc32c(start, p, len), expected);
	assert_int_equal(zd_crc32c_plain(start, p, len, 0), expected);
	assert_int_equal(zd_crc32c_plain(start, p, len, 1), expected);
}

static void test_check_values(void **state)
{
	uint8_t zeros[32] = {0}, ones[32], up[32], down[32];

	(void)state;
	memset(ones, 0xff, sizeof ones);
	for (uint8_t i = 0; i < 32; i++) {
		up[i] = i;
		down[i] = (uint8_t)(31 - i);
	}
	each_form((const uint8_t *)"123456789", 9, 0, 0xe3069283);
	each_form(zeros, 32, 0, 0x8a9136aa); /* this and the next three: the RFC's own */
	each_form(ones, 32, 0, 0x62a8ab43);
	each_form(up, 32, 0, 0x46dd794e);
	each_form(down, 32, 0, 0x113fdb5c);
	each_form(NULL, 0, 0xe3069283, 0xe3069283);
}

/* Past the ends of two blocks of the interleaved form, from every alignment; the expected value grows with the length. */
static void test_lengths(void **state)
{
	(void)state;
	for (size_t offset = 0; offset < 9; offset++) {
		uint32_t expected = 0xdeadbeef;

		for (size_t len = 0; len < 6500; len++) {
			if (len < 64 || len % 61 == 0 || len % 1024 < 9)
				each_form(data + offset, len, 0xdeadbeef, expected);
			expected = by_bits(expected, data + offset + len, 1);
		}
	}
}

/* In pieces of any size the result is that of the whole. */
static void test_pieces(void **state)
{
	uint32_t whole = by_bits(0, data, BYTES);

	(void)state;
	for (size_t piece = 1; piece < 9000; piece += 271) {
		uint32_t a = 0, b = 0;

		for (size_t at = 0; at < BYTES; at += piece) {
			size_t n = BYTES - at < piece ? BYTES - at : piece;

			a = zd_crc32c(a, data + at, n);
			b = zd_crc32c_plain(b, data + at, n, 0);
		}
		assert_int_equal(a, whole);
		assert_int_equal(b, whole);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_values),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_pieces),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
