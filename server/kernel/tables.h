/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the variants, one in each ISA file; only select.c decides which may run. */
#ifndef ZD_KERNEL_TABLES_H
#define ZD_KERNEL_TABLES_H

#include "server/kernel/kernel.h"

extern const struct zd_kernels zd_kernels_table_scalar;
extern const struct zd_kernels zd_kernels_table_avx2;	/* needs AVX2, F16C, FMA, PCLMULQDQ */
extern const struct zd_kernels zd_kernels_table_avx512; /* and AVX-512 F, BW, DQ, VL */

#endif
