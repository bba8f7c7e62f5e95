/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C for builds without ISA-L.  With SSE4.2 and PCLMULQDQ: four checksums at once over quarters of a block, because one `crc32` waits
 * for the one before (Gopal et al., Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction, Intel 2011).  As fast as ISA-L where
 * that has no VPCLMULQDQ.  Kernels that compute a checksum beside other work join their chains here, with ISA-L and without.
 */
#include "proto/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>
#endif

/* Four bits at a time: x^32 to x^35 times the nibble, reflected. */
static const uint32_t nibble[16] = {
	0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
	0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

static uint32_t nibbles(uint32_t state, const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		state ^= bytes[i];
		state = state >> 4 ^ nibble[state & 15];
		state = state >> 4 ^ nibble[state & 15];
	}
	return state;
}

#if defined(__x86_64__)
#define CRC __attribute__((target("sse4.2,pclmul")))
#define QUARTER ((size_t)ZD_CRC32C_QUARTER)
#define LINE ((size_t)64)
/* x^(8 * k * QUARTER - 33), reflected */
#define TO_1 0xa51b6135u
#define TO_2 0x82f89c77u
#define TO_3 0xb9d68d49u

static uint64_t word(const uint8_t *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof x);
	return x;
}

/* The state as if zeros had followed.  The product of two reflected numbers is one bit short of the register, and the reduction multiplies
 * by x^32: hence powers that are 33 too small. */
CRC static uint32_t advance(uint64_t state, uint32_t power)
{
	__m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state), _mm_cvtsi32_si128((int)power), 0);

	return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

CRC uint32_t zd_crc32c_join(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return advance(a, TO_3) ^ advance(b, TO_2) ^ advance(c, TO_1) ^ (uint32_t)d;
}

CRC static uint32_t quarters(uint32_t state, const uint8_t *bytes, size_t len)
{
	uint64_t a = state;

	for (; len >= 4 * QUARTER; len -= 4 * QUARTER, bytes += 4 * QUARTER) {
		uint64_t b = 0, c = 0, d = 0;

		for (size_t i = 0; i < QUARTER; i += LINE) {
			for (size_t k = 0; k < 4; k++) /* four streams in turns are more than the processor foresees */
				_mm_prefetch((const char *)((uintptr_t)bytes + 4 * (QUARTER + i) + k * LINE), _MM_HINT_T0);
			for (size_t at = i; at < i + LINE; at += 8) {
				a = _mm_crc32_u64(a, word(bytes + at));
				b = _mm_crc32_u64(b, word(bytes + QUARTER + at));
				c = _mm_crc32_u64(c, word(bytes + 2 * QUARTER + at));
				d = _mm_crc32_u64(d, word(bytes + 3 * QUARTER + at));
			}
		}
		a = zd_crc32c_join(a, b, c, d);
	}
	for (; len >= 8; len -= 8, bytes += 8)
		a = _mm_crc32_u64(a, word(bytes));
	for (; len > 0; len--, bytes++)
		a = _mm_crc32_u8((uint32_t)a, *bytes);
	return (uint32_t)a;
}

static int has_crc(void)
{
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#else
static int has_crc(void)
{
	return 0;
}

static uint32_t quarters(uint32_t state, const uint8_t *bytes, size_t len)
{
	return nibbles(state, bytes, len);
}
#endif

uint32_t zd_crc32c_plain(uint32_t crc, const void *data, size_t len, int portable)
{
	return ~(portable || !has_crc() ? nibbles(~crc, data, len) : quarters(~crc, data, len));
}
