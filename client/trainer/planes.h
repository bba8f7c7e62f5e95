/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights and moments of all units in this process, in the daemons' own form and with the daemons' own kernels: 12 bytes per
 * parameter.  Stage 0 and the reference.  Threads: one, which must have called zd_kernels_thread_init. */
#ifndef ZD_LM_PLANES_H
#define ZD_LM_PLANES_H

#include "client/trainer/state.h"
#include "server/kernel/kernel.h"

struct zd_lm_planes {
	const struct zd_lm_state *state;
	const struct zd_kernels *kernels;
	uint64_t *offset; /* elements before unit u */
	uint16_t *hi, *lo;
	float *m, *v;
};

/* Initial weights from the model.  0 or ZD_LM_FAILED (no memory). */
int zd_lm_planes_init(struct zd_lm_planes *p, const struct zd_lm_state *state) ZEROD_MUST_USE;
void zd_lm_planes_fini(struct zd_lm_planes *p);
const uint16_t *zd_lm_planes_weights(const struct zd_lm_planes *p, uint32_t u);
void zd_lm_planes_master(const struct zd_lm_planes *p, uint32_t u, float *ret_weights);
/* One optimizer step of unit u: sum is the gradient sum over ranks and micro-batches. */
void zd_lm_planes_step(struct zd_lm_planes *p, uint32_t u, const float *sum, const struct zerod_hyper *hyper, uint64_t t, double scale);

#endif
