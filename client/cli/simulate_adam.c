/* SPDX-License-Identifier: Apache-2.0 */
/* The sharded Adam step, beside the one that is not sharded. */
#include "client/cli/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct zd_simulate_piece zd_simulate_split(size_t n, size_t parts, size_t part)
{
	size_t each = n / parts, extra = n % parts;

	return (struct zd_simulate_piece){
		.first = part * each + (part < extra ? part : extra),
		.count = each + (part < extra),
	};
}

size_t zd_simulate_differ(const double *a, const double *b, size_t n, double *ret_largest)
{
	size_t count = 0;
	double largest = 0.0;

	for (size_t i = 0; i < n; i++) {
		double d = fabs(a[i] - b[i]);

		if (a[i] == b[i])
			continue;
		count++;
		if (isnan(d) || d > largest)
			largest = d;
	}
	if (ret_largest != NULL)
		*ret_largest = largest;
	return count;
}

static bool valid(const struct zd_simulate_adam *in)
{
	return in->n > 0 && in->ranks > 0 && in->step > 0 && in->lr > 0.0 && in->eps > 0.0 && in->beta1 >= 0.0 &&
	       in->beta1 < 1.0 && in->beta2 >= 0.0 && in->beta2 < 1.0;
}

/* One element of weights and moments, in place. */
static void step_element(const struct zd_simulate_adam *in, double g, double *w, double *m, double *v)
{
	double t = (double)in->step;
	double m_hat, v_hat;

	*m = in->beta1 * *m + (1.0 - in->beta1) * g;
	*v = in->beta2 * *v + (1.0 - in->beta2) * g * g;
	m_hat = *m / (1.0 - pow(in->beta1, t));
	v_hat = *v / (1.0 - pow(in->beta2, t));
	*w -= in->lr * m_hat / (sqrt(v_hat) + in->eps);
}

static double sum_over_ranks(const struct zd_simulate_adam *in, size_t i)
{
	double sum = in->gradients[i];

	for (size_t r = 1; r < in->ranks; r++)
		sum += in->gradients[r * in->n + i];
	return sum;
}

/* What one rank has: its piece of everything, and nothing else. */
struct shard {
	struct zd_simulate_piece piece;
	double *w, *m, *v, *g;
};

static void shard_load(struct shard *s, const struct zd_simulate_adam *in)
{
	size_t bytes = s->piece.count * sizeof(double);

	memcpy(s->w, in->weights + s->piece.first, bytes);
	memcpy(s->m, in->m + s->piece.first, bytes);
	memcpy(s->v, in->v + s->piece.first, bytes);
}

static void shard_reduce(struct shard *s, const struct zd_simulate_adam *in)
{
	size_t shift = in->mistake == ZD_SIMULATE_SHIFT ? 1 : 0;

	for (size_t i = 0; i < s->piece.count; i++) {
		double sum = sum_over_ranks(in, (s->piece.first + i + shift) % in->n);

		s->g[i] = in->mistake == ZD_SIMULATE_SUM ? sum : sum / (double)in->ranks;
	}
}

int zd_simulate_adam_sharded(const struct zd_simulate_adam *in, double *ret_weights, double *ret_m, double *ret_v)
{
	struct shard s;
	size_t largest;
	double *memory;

	if (!valid(in))
		return ZD_SIMULATE_E_RANGE;
	largest = zd_simulate_split(in->n, in->ranks, 0).count;
	memory = calloc(4 * largest, sizeof(double));
	if (memory == NULL)
		return ZD_SIMULATE_E_MEMORY;
	s.w = memory;
	s.m = memory + largest;
	s.v = memory + 2 * largest;
	s.g = memory + 3 * largest;
	for (size_t r = 0; r < in->ranks; r++) {
		size_t bytes;

		s.piece = zd_simulate_split(in->n, in->ranks, r);
		bytes = s.piece.count * sizeof(double);
		shard_load(&s, in);
		shard_reduce(&s, in);
		for (size_t i = 0; i < s.piece.count; i++)
			step_element(in, s.g[i], &s.w[i], &s.m[i], &s.v[i]);
		memcpy(ret_weights + s.piece.first, s.w, bytes);
		memcpy(ret_m + s.piece.first, s.m, bytes);
		memcpy(ret_v + s.piece.first, s.v, bytes);
	}
	free(memory);
	return ZD_SIMULATE_OK;
}

int zd_simulate_adam_plain(const struct zd_simulate_adam *in, double *ret_weights, double *ret_m, double *ret_v)
{
	if (!valid(in))
		return ZD_SIMULATE_E_RANGE;
	memcpy(ret_weights, in->weights, in->n * sizeof(double));
	memcpy(ret_m, in->m, in->n * sizeof(double));
	memcpy(ret_v, in->v, in->n * sizeof(double));
	for (size_t i = 0; i < in->n; i++)
		step_element(in, sum_over_ranks(in, i) / (double)in->ranks, &ret_weights[i], &ret_m[i], &ret_v[i]);
	return ZD_SIMULATE_OK;
}
