/* SPDX-License-Identifier: Apache-2.0 */
/* KERNEL actions of a core: carried out by the functions of one variant, and told to the core. */
#ifndef ZD_KERNEL_CALL_H
#define ZD_KERNEL_CALL_H

#include "server/core/core.h"
#include "server/kernel/kernel.h"

#define ZD_KERNEL_SUMS (ZD_EXTENT_ELEMS_MAX / ZD_KERNEL_BLOCK)

/* What a call needs beside its operands; zeroed at first, used by one thread. */
struct zd_kernel_scratch {
	uint16_t lo[ZD_EXTENT_ELEMS_MAX]; /* SPLIT_HI */
	struct {
		int valid;
		struct zd_hyper hyper;
		uint64_t step;
		double scale;
		uint8_t l2;
		struct zd_adam_consts consts;
	} adam; /* constants of the last step used: hundreds of extents share them */
};

struct zd_kernel_result {
	uint64_t token;
	struct zd_reduce_result result;
	uint32_t crc;
	uint8_t has_sums;
	double sums[ZD_KERNEL_SUMS];
};

/* The thread has been through zd_kernels_thread_init. */
void zd_kernel_call(const struct zd_kernels *kernels, const struct zd_kernel_call *call, struct zd_kernel_scratch *scratch,
		    struct zd_kernel_result *ret_result);

/* The event that reports it.  Refers to *result, which lives until the core has seen the event; its time is the caller's. */
void zd_kernel_event(const struct zd_kernel_result *result, struct zd_event *ret_event);

#endif
