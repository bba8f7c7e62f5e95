/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/normacc.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/bytes.h"

#define LOWEST (-300)		/* bit 0 weighs 2^LOWEST */
#define SPARE_BITS 2		/* the square of the smallest fp32 is bit 2 */
#define FRACTION_BITS 52	/* of an fp64 */
#define EXPONENT_BIAS 1023

/* A lane's total stays below 2^320 (2^38 blocks of less than 2^268 are less than 2^306), so that ZD_LANES_MAX totals cannot overflow. */
#define TOP_WORD_BITS 44

void zd_normacc_zero(struct zd_normacc *a)
{
	memset(a, 0, sizeof(*a));
}

/* Adds `value` at word `at` and carries as far as it goes. */
static void add_word(struct zd_normacc *a, unsigned at, uint64_t value)
{
	while (value != 0) {
		ZD_ASSERT(at < ZD_NORMACC_WORDS);
		value = __builtin_add_overflow(a->word[at], value, &a->word[at]);
		at++;
	}
}

void zd_normacc_add(struct zd_normacc *a, double value)
{
	uint64_t bits, fraction;
	int exponent, shift;

	memcpy(&bits, &value, sizeof(bits));
	if ((bits << 1) == 0) /* also -0 */
		return;
	exponent = (int)(bits >> FRACTION_BITS); /* a set sign makes it too large */
	ZD_ASSERT(exponent > 0 && exponent < EXPONENT_BIAS + 300);
	fraction = (bits & (((uint64_t)1 << FRACTION_BITS) - 1)) | ((uint64_t)1 << FRACTION_BITS);

	shift = exponent - EXPONENT_BIAS - FRACTION_BITS - LOWEST;
	ZD_ASSERT(shift >= SPARE_BITS - FRACTION_BITS);
	if (shift < SPARE_BITS)
		ZD_ASSERT((fraction & (((uint64_t)1 << (SPARE_BITS - shift)) - 1)) == 0);
	if (shift < 0) {
		add_word(a, 0, fraction >> -shift);
		return;
	}
	add_word(a, (unsigned)shift / 64, fraction << (shift % 64));
	if (shift % 64 > 63 - FRACTION_BITS)
		add_word(a, (unsigned)shift / 64 + 1, fraction >> (64 - shift % 64));
}

void zd_normacc_merge(struct zd_normacc *a, const struct zd_normacc *b)
{
	uint64_t carry = 0;

	for (unsigned i = 0; i < ZD_NORMACC_WORDS; i++) {
		uint64_t sum, carried;

		carried = __builtin_add_overflow(a->word[i], b->word[i], &sum);
		carried += __builtin_add_overflow(sum, carry, &sum);
		a->word[i] = sum;
		carry = carried;
	}
	ZD_ASSERT(carry == 0);
}

/* 64 bits from bit `from` on; bits outside the accumulator are zero. */
static uint64_t window(const struct zd_normacc *a, int from)
{
	unsigned at = (unsigned)from / 64, by = (unsigned)from % 64;
	uint64_t low = a->word[at] >> by;

	if (by == 0 || at + 1 == ZD_NORMACC_WORDS)
		return low;
	return low | a->word[at + 1] << (64 - by);
}

/* Is any bit below `end` set? */
static int any_below(const struct zd_normacc *a, int end)
{
	unsigned at = (unsigned)end / 64, by = (unsigned)end % 64;

	for (unsigned i = 0; i < at; i++)
		if (a->word[i] != 0)
			return 1;
	return by != 0 && (a->word[at] << (64 - by)) != 0;
}

double zd_normacc_round(const struct zd_normacc *a)
{
	int top = ZD_NORMACC_WORDS - 1, high, low;
	uint64_t kept, bits;
	double value;

	while (top > 0 && a->word[top] == 0)
		top--;
	if (a->word[top] == 0)
		return 0.0;
	high = top * 64 + 63 - __builtin_clzll(a->word[top]); /* the leading bit */
	low = high - FRACTION_BITS;			      /* the last bit that fits */
	if (low <= 0) {
		kept = a->word[0] << -low; /* exact */
	} else {
		uint64_t half = window(a, low - 1) & 1;

		kept = window(a, low) & (((uint64_t)2 << FRACTION_BITS) - 1);
		if (half && ((kept & 1) || any_below(a, low - 1)))
			kept++; /* up to 2^53: the sum below then carries into the exponent, which is right */
	}
	/* 2^LOWEST is far above the smallest normal fp64, so the result is always normal. */
	bits = ((uint64_t)(high + LOWEST + EXPONENT_BIAS - 1) << FRACTION_BITS) + kept;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

void zd_normacc_encode(uint8_t out[ZD_NORMACC_BYTES], const struct zd_normacc *a)
{
	for (unsigned i = 0; i < ZD_NORMACC_WORDS; i++)
		zd_put64(out + 8 * i, a->word[i]);
}

int zd_normacc_decode(struct zd_normacc *ret, const uint8_t *in, size_t len)
{
	if (len != ZD_NORMACC_BYTES || zd_get64(in + 8 * (ZD_NORMACC_WORDS - 1)) >> TOP_WORD_BITS != 0)
		return -ZD_ERR_BAD_FIELD;
	for (unsigned i = 0; i < ZD_NORMACC_WORDS; i++)
		ret->word[i] = zd_get64(in + 8 * i);
	return 0;
}
