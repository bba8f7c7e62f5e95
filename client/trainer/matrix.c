/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/matrix.h"

#include <cblas.h>

/* OpenBLAS has it; other libraries behind cblas.h need not. */
void openblas_set_num_threads(int threads) __attribute__((weak));

void zd_matrix_one_thread(void)
{
	if (openblas_set_num_threads != NULL)
		openblas_set_num_threads(1);
}

void zd_matrix_product(size_t rows, size_t cols, size_t inner, float scale, struct zd_matrix a, struct zd_matrix b, float keep, float *out,
		       size_t out_ld)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)cols, (int)inner, scale, a.data, (int)a.ld, b.data,
		    (int)b.ld, keep, out, (int)out_ld);
}

void zd_matrix_product_bt(size_t rows, size_t cols, size_t inner, float scale, struct zd_matrix a, struct zd_matrix b, float keep,
			  float *out, size_t out_ld)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)cols, (int)inner, scale, a.data, (int)a.ld, b.data,
		    (int)b.ld, keep, out, (int)out_ld);
}

void zd_matrix_product_at(size_t rows, size_t cols, size_t inner, float scale, struct zd_matrix a, struct zd_matrix b, float keep,
			  float *out, size_t out_ld)
{
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)cols, (int)inner, scale, a.data, (int)a.ld, b.data,
		    (int)b.ld, keep, out, (int)out_ld);
}
