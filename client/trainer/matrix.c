/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/matrix.h"

#include <cblas.h>
#include <sys/mman.h>

#define FIRST_DIM 64

/* OpenBLAS has it; other libraries behind cblas.h need not. */
void openblas_set_num_threads(int threads) __attribute__((weak));

/* Large enough for the path that takes the memory. */
static void first_product(void)
{
	static float in[FIRST_DIM * FIRST_DIM], out[FIRST_DIM * FIRST_DIM];
	const struct zd_matrix m = { in, FIRST_DIM };

	zd_matrix_product(FIRST_DIM, FIRST_DIM, FIRST_DIM, 1.0f, m, m, 0.0f, out, FIRST_DIM);
}

int zd_matrix_begin(void)
{
	void *probe = mmap(NULL, ZD_MATRIX_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (probe == MAP_FAILED)
		return -1;
	munmap(probe, ZD_MATRIX_MEMORY);
	if (openblas_set_num_threads != NULL)
		openblas_set_num_threads(1);
	first_product();
	return 0;
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
