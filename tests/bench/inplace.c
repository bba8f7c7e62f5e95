/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/inplace.h"

#include "tests/bench/host.h"
#include "tests/bench/rate.h"

static void body(struct zd_actor_box *box, void *state)
{
	const struct zd_inplace *p = state;
	const struct zd_rate *rate = zd_rate_select();
	size_t n = p->params / p->threads;
	uint16_t *hi = zd_host_memory(2 * n, 0), *lo = zd_host_memory(2 * n, 1 * ZD_HOST_SKEW);
	float *m = zd_host_memory(4 * n, 2 * ZD_HOST_SKEW), *v = zd_host_memory(4 * n, 3 * ZD_HOST_SKEW);
	uint16_t *grad = zd_host_memory(2 * n, 4 * ZD_HOST_SKEW);

	while (zd_actor_next(box)) {
		box->begin[0] = zd_host_thread_cpu();
		for (uint64_t i = 0; i < box->count; i++)
			rate->update(hi, lo, m, v, grad, n);
		box->end[0] = zd_host_thread_cpu();
		box->times = 1;
		zd_actor_done(box, 0);
	}
}

void zd_inplace_start(struct zd_inplace *p)
{
	p->params -= p->params % (p->threads * 4096u);
	for (uint32_t i = 0; i < p->threads; i++)
		zd_actor_start(&p->actor[i], "in-place update", zd_host_cpus() >= (int)p->threads ? (int)i : -1, body, p);
	(void)zd_inplace_run(p, 1);
}

double zd_inplace_run(struct zd_inplace *p, uint32_t passes)
{
	double worst = 0;

	for (uint32_t i = 0; i < p->threads; i++)
		zd_actor_call(&p->actor[i], 0, passes);
	for (uint32_t i = 0; i < p->threads; i++) {
		zd_actor_wait(&p->actor[i]);
		double s = p->actor[i].box->end[0] - p->actor[i].box->begin[0];
		worst = s > worst ? s : worst;
	}
	return worst / passes;
}

void zd_inplace_stop(struct zd_inplace *p)
{
	for (uint32_t i = 0; i < p->threads; i++)
		zd_actor_stop(&p->actor[i]);
}
