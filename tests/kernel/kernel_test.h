/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of test_kernel: the variants under test, guarded memory, values. */
#ifndef ZD_TESTS_KERNEL_KERNEL_TEST_H
#define ZD_TESTS_KERNEL_KERNEL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/kernel/kernel.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct variant {
	const char *name;
	const struct zd_kernels *kernels; /* NULL: cannot run here */
	const char *needs;		  /* why not, for the line that says so */
};

/* AVX2, AVX-512, and the source of AVX-512 built against SIMDe. */
#define VARIANTS 3
void zd_test_variants(struct variant variants[VARIANTS]);

/* An array between two pages that fault.  Elements may be placed at any byte offset of the usable room. */
struct guarded {
	unsigned char *map, *room;
	size_t map_bytes, room_bytes;
};
void zd_test_guarded_init(struct guarded *g, size_t bytes);
void zd_test_guarded_fini(struct guarded *g);

/* xorshift64*: the same values on every run and host */
struct values {
	uint64_t state;
};
uint64_t zd_test_random(struct values *r);

/* How the arrays of one case are filled. */
enum pattern {
	PATTERN_TRAINING,  /* magnitudes as in training */
	PATTERN_BITS,	   /* any finite bits, v not negative */
	PATTERN_EDGES,	   /* zeros of both signs, denormals, smallest and largest normal, halfway cases of the rounding */
	PATTERN_NONFINITE, /* training values with a NaN (quiet, signalling, any payload) or an infinity here and there */
	PATTERN_COUNT
};
float zd_test_f32(struct values *r, enum pattern pattern);
uint16_t zd_test_bf16(struct values *r, enum pattern pattern);
uint16_t zd_test_fp16(struct values *r, enum pattern pattern);

uint32_t zd_test_bits(float f);
float zd_test_float(uint32_t bits);

/* The groups; each adds to the number of failed tests. */
int zd_test_group_definition(void);
int zd_test_group_adam(void);
int zd_test_group_variants(void);

#endif
