/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exact accumulator for sums of squares.  Block sums of squared fp32 values are fp64 multiples of 2^-298 (the square of the smallest
 * fp32) below 2^268; they are added in a fixed-point number of 640 bits, so the total does not depend on order or grouping: any
 * number of lanes gives the same bits.  (Kulisch's long accumulator, cut to the range that can occur.)
 */
#ifndef ZD_PROTO_NORMACC_H
#define ZD_PROTO_NORMACC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

#define ZD_NORMACC_WORDS 10
#define ZD_NORMACC_BYTES (ZD_NORMACC_WORDS * 8)

struct zd_normacc {
	uint64_t word[ZD_NORMACC_WORDS]; /* little end first; bit 0 of word 0 weighs 2^-300 */
};

void zd_normacc_zero(struct zd_normacc *a);
/* value: finite, not negative, below 2^300, a multiple of 2^-298 (what kernels return); else it asserts. */
void zd_normacc_add(struct zd_normacc *a, double value);
void zd_normacc_merge(struct zd_normacc *a, const struct zd_normacc *b);
/* The total rounded to nearest-even fp64. */
double zd_normacc_round(const struct zd_normacc *a);

void zd_normacc_encode(uint8_t out[ZD_NORMACC_BYTES], const struct zd_normacc *a);
int zd_normacc_decode(struct zd_normacc *ret, const uint8_t *in, size_t len) ZD_MUST_USE;

#endif
