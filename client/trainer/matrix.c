/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/matrix.h"

#include <cblas.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/*
 * OpenBLAS of Debian 13 takes its memory when it is loaded, and asks for it for ever: no program that is linked with it reaches main() then.
 * Functions of .preinit_array run before any library begins, sanitizers included: hence nothing here but system calls.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void room_for_blas(void)
{
	static const char text[] = "zerod-lm: expected 130 MiB of address space for matrix products, found less; raise ulimit -v (RLIMIT_AS)\n";
	long at = syscall(SYS_mmap, NULL, ZD_MATRIX_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

	if (at == -1) {
		(void)!syscall(SYS_write, STDERR_FILENO, text, sizeof text - 1);
		_exit(1);
	}
	syscall(SYS_munmap, at, ZD_MATRIX_MEMORY);
}

_Static_assert(ZD_MATRIX_MEMORY == (size_t)130 << 20, "as the text says");
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = room_for_blas;

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
