/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products in fp32 through CBLAS, in the forms that a linear layer needs. Row-major; `ld` is the distance of two
 * rows in elements, which lets a product work on a slice of columns. Shapes are checked by zd_lm_config_check.
 */
#ifndef ZD_TRAINER_MATRIX_H
#define ZD_TRAINER_MATRIX_H

#include <stddef.h>

struct zd_matrix {
	const float *data;
	size_t ld;
};

/* Bytes of address space that must be there for the first product: OpenBLAS takes 128 MiB. */
#define ZD_MATRIX_MEMORY ((size_t)130 << 20)

/*
 * Before the first product, for the whole process. Holds BLAS to the calling thread, if the library has a switch for
 * it: the bits must not depend on how many cores it finds, and ranks that share a host must not fight for them. Then lets
 * it take its memory. 0, or -1 if there are no ZD_MATRIX_MEMORY bytes: OpenBLAS would ask for them for ever.
 */
int zd_matrix_begin(void) __attribute__((warn_unused_result));

/* All three: out[rows][cols] = scale * product + keep * out, keep being 0 or 1. */

/* product = a[rows][inner] * b[inner][cols]: forward. */
void zd_matrix_product(size_t rows, size_t cols, size_t inner, float scale, struct zd_matrix a, struct zd_matrix b, float keep, float *out,
		       size_t out_ld);

/* product = a[rows][inner] * transpose of b[cols][inner]: gradient of the input. */
void zd_matrix_product_bt(size_t rows, size_t cols, size_t inner, float scale, struct zd_matrix a, struct zd_matrix b, float keep,
			  float *out, size_t out_ld);

/* product = transpose of a[inner][rows] * b[inner][cols]: gradient of the weights. */
void zd_matrix_product_at(size_t rows, size_t cols, size_t inner, float scale, struct zd_matrix a, struct zd_matrix b, float keep,
			  float *out, size_t out_ld);

#endif
