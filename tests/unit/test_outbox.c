/* SPDX-License-Identifier: Apache-2.0 */
/* The write queue of a connection against a model: every byte comes out once, in order, across every wrap of its ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "server/shell/outbox.h"

static uint8_t *ring;
static struct zd_outbox outbox;
static struct zd_outbox_write out_write;

static int make_ring(void **state)
{
	(void)state;
	ring = malloc(ZD_OUTBOX_BYTES);
	return ring ? 0 : -1;
}

static int free_ring(void **state)
{
	(void)state;
	free(ring);
	return 0;
}

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void test_joins_what_touches(void **state)
{
	uint8_t payload[8] = "payload";

	(void)state;
	zd_outbox_init(&outbox, ring);
	assert_int_equal(zd_outbox_add(&outbox, (const uint8_t *)"abc", 3, NULL, 0, 0), 0);
	assert_int_equal(zd_outbox_add(&outbox, (const uint8_t *)"defg", 4, payload, 8, 77), 0);
	assert_int_equal(zd_outbox_add(&outbox, (const uint8_t *)"hi", 2, NULL, 0, 0), 0);
	assert_int_equal(outbox.pending_bytes, 17);
	zd_outbox_take(&outbox, &out_write);
	assert_int_equal(out_write.buf_count, 3);
	assert_int_equal(out_write.bufs[0].len, 7);
	assert_memory_equal(out_write.bufs[0].base, "abcdefg", 7);
	assert_ptr_equal(out_write.bufs[1].base, payload);
	assert_memory_equal(out_write.bufs[2].base, "hi", 2);
	assert_int_equal(out_write.token_count, 1);
	assert_int_equal(out_write.tokens[0], 77);
	assert_true(zd_outbox_empty(&outbox));
}

/* What is not settled counts, taken or not; a refused frame leaves nothing behind. */
static void test_bound(void **state)
{
	static uint8_t big[ZD_OUTBOX_BYTES];

	(void)state;
	zd_outbox_init(&outbox, ring);
	assert_int_equal(zd_outbox_add(&outbox, big, ZD_OUTBOX_BYTES - 10, NULL, 0, 0), 0);
	assert_int_equal(zd_outbox_add(&outbox, big, 11, NULL, 0, 0), -ZD_ERR_TOO_MANY);
	zd_outbox_take(&outbox, &out_write);
	assert_int_equal(out_write.ring_bytes, ZD_OUTBOX_BYTES - 10);
	assert_int_equal(zd_outbox_add(&outbox, big, 11, NULL, 0, 0), -ZD_ERR_TOO_MANY);
	assert_true(zd_outbox_empty(&outbox));
	assert_int_equal(zd_outbox_add(&outbox, big, 10, NULL, 0, 0), 0);
	zd_outbox_settle(&outbox, &out_write);
	assert_int_equal(zd_outbox_add(&outbox, big, ZD_OUTBOX_BYTES - 10, NULL, 0, 0), 0);
	assert_int_equal(zd_outbox_add(&outbox, big, 1, NULL, 0, 0), -ZD_ERR_TOO_MANY);
}

/* How much of the ring was ever written to: its owner gives that back to the system, and a ring that has been empty since is no cleaner. */
static void test_touched(void **state)
{
	static uint8_t big[100000];

	(void)state;
	zd_outbox_init(&outbox, ring);
	assert_int_equal(outbox.touched, 0);
	assert_int_equal(zd_outbox_add(&outbox, big, sizeof(big), NULL, 0, 0), 0);
	zd_outbox_take(&outbox, &out_write);
	zd_outbox_settle(&outbox, &out_write);
	assert_int_equal(zd_outbox_add(&outbox, big, 40, NULL, 0, 0), 0);
	assert_int_equal(outbox.touched, sizeof(big));
	for (int i = 0; i < 2; i++) { /* past its end */
		zd_outbox_take(&outbox, &out_write);
		assert_int_equal(zd_outbox_add(&outbox, big, sizeof(big), NULL, 0, 0), 0);
		zd_outbox_settle(&outbox, &out_write);
	}
	zd_outbox_take(&outbox, &out_write);
	assert_int_equal(zd_outbox_add(&outbox, big, sizeof(big), NULL, 0, 0), 0);
	assert_int_equal(outbox.touched, ZD_OUTBOX_BYTES);
	zd_outbox_init(&outbox, ring);
	assert_int_equal(outbox.touched, 0);
}

/* Random frames, two writes on their way as a link has them; the bytes are a running counter. */
static void test_random(void **state)
{
	static struct zd_outbox_write flying[2];
	static uint8_t frame[20000], payload[64];
	uint64_t seed = 0x9e3779b97f4a7c15u;
	uint32_t in = 0, out = 0, first = 0, count = 0, rounds = 0, i, k;
	uint64_t token_in = 0, token_out = 0;

	(void)state;
	zd_outbox_init(&outbox, ring);
	while (rounds < 20000) {
		uint64_t r = next_random(&seed);

		if (r % 4 != 0 && outbox.payload_count < ZD_OUTBOX_PAYLOADS) {
			uint32_t len = 1 + (uint32_t)(r >> 8) % (r % 16 == 1 ? 20000u : 60u), with = (uint32_t)(r >> 40) & 1;

			if (len > ZD_OUTBOX_BYTES - (outbox.head - outbox.tail))
				len = 1;
			for (i = 0; i < len; i++)
				frame[i] = (uint8_t)(in + i);
			if (zd_outbox_add(&outbox, frame, len, with ? payload : NULL, with ? 64 : 0, token_in) == 0) {
				in += len;
				token_in += with;
			}
		} else if (r % 8 == 0 && count < 2 && !zd_outbox_empty(&outbox)) {
			zd_outbox_take(&outbox, &flying[(first + count++) % 2]);
		} else if (count) {
			const struct zd_outbox_write *w = &flying[first];

			for (i = 0; i < w->buf_count; i++) {
				if ((uint8_t *)w->bufs[i].base == payload)
					continue;
				for (k = 0; k < w->bufs[i].len; k++)
					if ((uint8_t)w->bufs[i].base[k] != (uint8_t)out++)
						fail_msg("byte %u differs", out - 1);
			}
			for (i = 0; i < w->token_count; i++)
				assert_int_equal(w->tokens[i], token_out++);
			zd_outbox_settle(&outbox, w);
			first = (first + 1) % 2;
			count--;
			rounds++;
		}
	}
	assert_true(out > 100 * ZD_OUTBOX_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_joins_what_touches),
		cmocka_unit_test(test_touched),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, make_ring, free_ring);
}
