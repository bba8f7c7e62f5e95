/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/inplace.h"

#include "tests/bench/host.h"
#include "tests/bench/rate.h"

struct planes {
	uint16_t *hi, *lo, *grad;
	float *m, *v;
	size_t n;
};

static double pass(const struct planes *p, const struct zd_rate *rate, uint32_t variant)
{
	double t = zd_host_thread_cpu();

	rate->update[variant](p->hi, p->lo, p->m, p->v, p->grad, p->n);
	return zd_host_thread_cpu() - t;
}

/* Each tried in turns; the least of a few passes tells them apart. */
static uint32_t fastest(const struct planes *p, const struct zd_rate *rate)
{
	double least[ZD_RATE_UPDATES];
	uint32_t best = 0;

	for (int i = 0; i < 4; i++)
		for (uint32_t k = 0; k < ZD_RATE_UPDATES; k++) {
			double t = pass(p, rate, k);

			least[k] = i == 0 || t < least[k] ? t : least[k];
		}
	for (uint32_t k = 1; k < ZD_RATE_UPDATES; k++)
		best = least[k] < least[best] ? k : best;
	return best;
}

static void body(struct zd_actor_box *box, void *state)
{
	const struct zd_inplace *inplace = state;
	const struct zd_rate *rate = zd_rate_select();
	size_t n = inplace->params / inplace->threads;
	struct planes p = { .hi = zd_host_memory(2 * n, 0), .lo = zd_host_memory(2 * n, 1 * ZD_HOST_SKEW),
			    .m = zd_host_memory(4 * n, 2 * ZD_HOST_SKEW), .v = zd_host_memory(4 * n, 3 * ZD_HOST_SKEW),
			    .grad = zd_host_memory(2 * n, 4 * ZD_HOST_SKEW), .n = n };
	uint32_t variant = 0;
	int chosen = 0;

	while (zd_actor_next(box)) {
		if (!chosen)
			variant = fastest(&p, rate);
		chosen = 1;
		box->end[0] = 0;
		for (uint64_t i = 0; i < box->count; i++)
			box->end[0] += pass(&p, rate, variant);
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
		double s = p->actor[i].box->end[0];
		worst = s > worst ? s : worst;
	}
	return worst / passes;
}

void zd_inplace_stop(struct zd_inplace *p)
{
	for (uint32_t i = 0; i < p->threads; i++)
		zd_actor_stop(&p->actor[i]);
}
