/* SPDX-License-Identifier: Apache-2.0 */
/* What the groups share, and main. */
#include "tests/kernel/kernel_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if ZD_TEST_SIMDE
extern const struct zd_kernels zd_kernels_table_avx512_simde;
#endif

void zd_test_variants(struct variant variants[VARIANTS])
{
	variants[0] = (struct variant){ "avx2", zd_kernels_avx2(), "AVX2, F16C and FMA" };
	variants[1] = (struct variant){ "avx512", zd_kernels_avx512(), "AVX-512 F, BW, DQ and VL" };
	variants[2] = (struct variant){ "avx512 through SIMDe", NULL, "libsimde-dev at build time, AVX2, F16C and FMA at run time" };
#if ZD_TEST_SIMDE
	if (zd_kernels_avx2())
		variants[2].kernels = &zd_kernels_table_avx512_simde;
#endif
}

void zd_test_guarded_init(struct guarded *g, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	g->room_bytes = (bytes + page - 1) / page * page;
	g->map_bytes = g->room_bytes + 2 * page;
	g->map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(g->map != MAP_FAILED);
	g->room = g->map + page;
	assert_int_equal(mprotect(g->room, g->room_bytes, PROT_READ | PROT_WRITE), 0);
}

void zd_test_guarded_fini(struct guarded *g)
{
	assert_int_equal(munmap(g->map, g->map_bytes), 0);
}

uint64_t zd_test_random(struct values *r)
{
	r->state ^= r->state >> 12;
	r->state ^= r->state << 25;
	r->state ^= r->state >> 27;
	return r->state * 0x2545f4914f6cdd1du;
}

uint32_t zd_test_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

float zd_test_float(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static const uint32_t f32_edges[] = {
	0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00400000, 0x00800000, 0x80800000, 0x00800001,
	0x3f800000, 0xbf800000, 0x3f807fff, 0x3f808000, 0x3f808001, 0x3f818000, 0xbf808000, 0x3fffffff, 0x7f7fffff, 0xff7fffff,
	0x7f7f7fff, 0x7f7f8000, 0xff7f8000, 0x7f7f0000, 0x1e3ce508, 0x33800000, 0x34000000, 0x5f000000, 0x20000000, 0xa0000000,
};
static const uint32_t f32_nonfinite[] = {
	0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7fffffff, 0xffffffff, 0x7fd12345,
};

float zd_test_f32(struct values *r, enum pattern pattern)
{
	uint64_t x = zd_test_random(r);
	uint32_t bits = (uint32_t)x;

	if (pattern == PATTERN_EDGES)
		return zd_test_float(f32_edges[(x >> 32) % COUNT(f32_edges)]);
	if (pattern == PATTERN_NONFINITE && (x >> 32) % 61 == 0)
		return zd_test_float(f32_nonfinite[(x >> 40) % COUNT(f32_nonfinite)]);
	if (pattern == PATTERN_BITS)
		return zd_test_float((bits & 0x7f800000) == 0x7f800000 ? bits & 0xbfffffff : bits);
	/* exponents -20 .. 3 */
	return zd_test_float((bits & 0x807fffff) | (uint32_t)(107 + (x >> 32) % 24) << 23);
}

uint16_t zd_test_bf16(struct values *r, enum pattern pattern)
{
	static const uint32_t nonfinite[] = { 0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81, 0xff91 };
	uint64_t x = zd_test_random(r);

	if (pattern == PATTERN_NONFINITE)
		return (uint16_t)((x >> 32) % 61 == 0 ? nonfinite[(x >> 40) % COUNT(nonfinite)] :
							 zd_test_bits(zd_test_f32(r, PATTERN_TRAINING)) >> 16);
	return (uint16_t)(zd_test_bits(zd_test_f32(r, pattern)) >> 16);
}

uint16_t zd_test_fp16(struct values *r, enum pattern pattern)
{
	static const uint16_t edges[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0200, 0x0400, 0x8400, 0x3c00, 0x7bff, 0xfbff };
	static const uint16_t nonfinite[] = { 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfdff, 0xffff };
	uint64_t x = zd_test_random(r);

	if (pattern == PATTERN_EDGES)
		return edges[(x >> 32) % COUNT(edges)];
	if (pattern == PATTERN_NONFINITE && (x >> 32) % 61 == 0)
		return nonfinite[(x >> 40) % COUNT(nonfinite)];
	return (uint16_t)((x & 0x7c00) == 0x7c00 ? x & 0xbfff : x);
}

int main(void)
{
	struct variant variants[VARIANTS];
	int failed;

	zd_kernels_thread_init();
	zd_test_variants(variants);
	for (size_t i = 0; i < VARIANTS; i++)
		printf(variants[i].kernels ? "TEST %s\n" : "SKIP %s: needs %s\n", variants[i].name, variants[i].needs);
	fflush(stdout);
	failed = zd_test_group_definition();
	failed += zd_test_group_adam();
	failed += zd_test_group_variants();
	return failed != 0;
}
