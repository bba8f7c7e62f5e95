/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bfloat16, the upper half of an fp32: what weights arrive as and gradients leave as. Pure; any thread.
 */
#ifndef ZD_TRAINER_BF16_H
#define ZD_TRAINER_BF16_H

#include <stddef.h>
#include <stdint.h>

/* Exact. */
void zd_bf16_widen(float *to, const uint16_t *from, size_t count);

/*
 * Rounds to nearest, ties to even. Values beyond the largest finite bf16 become infinity, as IEEE 754 rounds; NaN stays NaN
 * (quiet, sign kept), so that a broken gradient arrives as one.
 */
void zd_bf16_round(uint16_t *to, const float *from, size_t count);

#endif
