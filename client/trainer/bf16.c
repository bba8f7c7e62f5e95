/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/bf16.h"

#include <string.h>

void zd_bf16_widen(float *to, const uint16_t *from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t bits = (uint32_t)from[i] << 16;

		memcpy(&to[i], &bits, sizeof(bits));
	}
}

void zd_bf16_round(uint16_t *to, const float *from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t bits;

		memcpy(&bits, &from[i], sizeof(bits));
		/* Half of the last kept place, less one where that place is even: the carry rounds, infinity included. */
		uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
		/* A NaN could lose its only set bits, or carry into another number: keep its top, with the quiet bit. */
		uint32_t quiet = bits >> 16 | 0x40;

		to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
	}
}
