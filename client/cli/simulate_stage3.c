/* SPDX-License-Identifier: Apache-2.0 */
/* Stage 3 over a stack of tanh layers: gather, use, drop; reduce-scatter. */
#include "client/cli/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One rank. Gathered layers are allocated and freed for real, so that using one
 * that was dropped is a crash and not a good result. */
struct rank {
	double **gathered;	 /* layers: NULL unless resident */
	double *h;		 /* (layers + 1) x batch x width: activations */
	double *delta, *next;	 /* batch x width: gradient of the loss by the activations */
	double *dw;		 /* width x width: gradient of the layer at hand */
	size_t resident, resident_peak, gathered_elements;
};

static bool valid(const struct zd_simulate_stage3 *in)
{
	return in->layers > 0 && in->width > 0 && in->batch > 0 && in->ranks > 0;
}

static size_t layer_size(const struct zd_simulate_stage3 *in)
{
	return in->width * in->width;
}

static double *activations(const struct zd_simulate_stage3 *in, const struct rank *k, size_t layer)
{
	return k->h + layer * in->batch * in->width;
}

static void rank_fini(const struct zd_simulate_stage3 *in, struct rank *k)
{
	for (size_t l = 0; k->gathered != NULL && l < in->layers; l++)
		free(k->gathered[l]);
	free(k->gathered);
	free(k->h);
	free(k->delta);
	free(k->next);
	free(k->dw);
}

static int rank_init(const struct zd_simulate_stage3 *in, size_t r, struct rank *k)
{
	size_t samples = in->batch * in->width;

	*k = (struct rank){
		.gathered = calloc(in->layers, sizeof(double *)),
		.h = calloc((in->layers + 1) * samples, sizeof(double)),
		.delta = calloc(samples, sizeof(double)),
		.next = calloc(samples, sizeof(double)),
		.dw = calloc(layer_size(in), sizeof(double)),
	};
	if (k->gathered == NULL || k->h == NULL || k->delta == NULL || k->next == NULL || k->dw == NULL)
		return ZD_SIMULATE_E_MEMORY;
	memcpy(k->h, in->inputs + r * samples, samples * sizeof(double));
	return ZD_SIMULATE_OK;
}

/* --- the arithmetic of one layer on one rank --- */

static void layer_forward(const struct zd_simulate_stage3 *in, const double *w, const double *h, double *ret_h)
{
	size_t d = in->width;

	for (size_t b = 0; b < in->batch; b++)
		for (size_t o = 0; o < d; o++) {
			double z = 0.0;

			for (size_t i = 0; i < d; i++)
				z += w[o * d + i] * h[b * d + i];
			ret_h[b * d + o] = tanh(z);
		}
}

/* From the gradient by the outputs (in k->delta) to the one by W (in k->dw) and
 * by the inputs (again in k->delta). */
static void layer_backward(const struct zd_simulate_stage3 *in, struct rank *k, const double *w, size_t layer)
{
	const double *h = activations(in, k, layer), *out = activations(in, k, layer + 1);
	size_t d = in->width;
	double *swap = k->delta;

	memset(k->dw, 0, layer_size(in) * sizeof(double));
	memset(k->next, 0, in->batch * d * sizeof(double));
	for (size_t b = 0; b < in->batch; b++)
		for (size_t o = 0; o < d; o++) {
			double y = out[b * d + o], dz = k->delta[b * d + o] * (1.0 - y * y);

			for (size_t i = 0; i < d; i++) {
				k->dw[o * d + i] += dz * h[b * d + i];
				k->next[b * d + i] += dz * w[o * d + i];
			}
		}
	k->delta = k->next;
	k->next = swap;
}

/* The loss of one rank; leaves its gradient by the last activations in k->delta. */
static double rank_loss(const struct zd_simulate_stage3 *in, size_t r, struct rank *k)
{
	size_t samples = in->batch * in->width;
	const double *h = activations(in, k, in->layers), *target = in->targets + r * samples;
	double sum = 0.0;

	for (size_t i = 0; i < samples; i++) {
		double e = h[i] - target[i];

		sum += e * e;
		k->delta[i] = e / (double)in->batch;
	}
	return sum / 2.0 / (double)in->batch;
}

/* --- what sharding adds --- */

/* Puts a layer together from the pieces that all ranks own. `weights` stands for
 * those pieces: piece r of it is in no other rank's memory. */
static int gather(const struct zd_simulate_stage3 *in, struct rank *k, size_t layer)
{
	const double *weights = in->weights + layer * layer_size(in);

	if (k->gathered[layer] != NULL)
		return ZD_SIMULATE_OK;
	k->gathered[layer] = malloc(layer_size(in) * sizeof(double));
	if (k->gathered[layer] == NULL)
		return ZD_SIMULATE_E_MEMORY;
	for (size_t r = 0; r < in->ranks; r++) {
		struct zd_simulate_piece p = zd_simulate_split(layer_size(in), in->ranks, r);

		memcpy(k->gathered[layer] + p.first, weights + p.first, p.count * sizeof(double));
		k->gathered_elements += p.count;
	}
	k->resident++;
	if (k->resident > k->resident_peak)
		k->resident_peak = k->resident;
	return ZD_SIMULATE_OK;
}

static void drop(const struct zd_simulate_stage3 *in, struct rank *k, size_t layer)
{
	if (in->mistake == ZD_SIMULATE_KEEP)
		return;
	free(k->gathered[layer]);
	k->gathered[layer] = NULL;
	k->resident--;
}

static double sum_over_ranks(const struct zd_simulate_stage3 *in, const struct rank *ranks, size_t i)
{
	double sum = ranks[0].dw[i];

	for (size_t r = 1; r < in->ranks; r++)
		sum += ranks[r].dw[i];
	return sum;
}

/* Each rank averages its own piece of the layer's gradient. */
static void reduce_scatter(const struct zd_simulate_stage3 *in, const struct rank *ranks, double *gradient)
{
	size_t n = layer_size(in), shift = in->mistake == ZD_SIMULATE_SHIFT ? 1 : 0;

	for (size_t r = 0; r < in->ranks; r++) {
		struct zd_simulate_piece p = zd_simulate_split(n, in->ranks, r);

		for (size_t i = p.first; i < p.first + p.count; i++) {
			double sum = sum_over_ranks(in, ranks, (i + shift) % n);

			gradient[i] = in->mistake == ZD_SIMULATE_SUM ? sum : sum / (double)in->ranks;
		}
	}
}

static int sharded_forward(const struct zd_simulate_stage3 *in, struct rank *ranks)
{
	for (size_t l = 0; l < in->layers; l++)
		for (size_t r = 0; r < in->ranks; r++) {
			struct rank *k = &ranks[r];

			if (gather(in, k, l) != ZD_SIMULATE_OK)
				return ZD_SIMULATE_E_MEMORY;
			layer_forward(in, k->gathered[l], activations(in, k, l), activations(in, k, l + 1));
			if (l + 1 < in->layers)
				drop(in, k, l);
		}
	return ZD_SIMULATE_OK;
}

static int sharded_backward(const struct zd_simulate_stage3 *in, struct rank *ranks, double *ret_gradient)
{
	for (size_t l = in->layers; l-- > 0;) {
		for (size_t r = 0; r < in->ranks; r++) {
			struct rank *k = &ranks[r];

			if (gather(in, k, l) != ZD_SIMULATE_OK)
				return ZD_SIMULATE_E_MEMORY;
			layer_backward(in, k, k->gathered[l], l);
			drop(in, k, l);
		}
		reduce_scatter(in, ranks, ret_gradient + l * layer_size(in));
	}
	return ZD_SIMULATE_OK;
}

static void ranks_free(const struct zd_simulate_stage3 *in, struct rank *ranks)
{
	for (size_t r = 0; ranks != NULL && r < in->ranks; r++)
		rank_fini(in, &ranks[r]);
	free(ranks);
}

/* NULL without memory. */
static struct rank *ranks_new(const struct zd_simulate_stage3 *in)
{
	struct rank *ranks = calloc(in->ranks, sizeof(*ranks));

	for (size_t r = 0; ranks != NULL && r < in->ranks; r++)
		if (rank_init(in, r, &ranks[r]) != ZD_SIMULATE_OK) {
			ranks_free(in, ranks);
			return NULL;
		}
	return ranks;
}

int zd_simulate_stage3_sharded(const struct zd_simulate_stage3 *in, double *ret_gradient,
			       struct zd_simulate_counts *ret_counts)
{
	struct zd_simulate_counts counts = { 0 };
	struct rank *ranks;
	int rc;

	if (!valid(in))
		return ZD_SIMULATE_E_RANGE;
	ranks = ranks_new(in);
	if (ranks == NULL)
		return ZD_SIMULATE_E_MEMORY;
	rc = sharded_forward(in, ranks);
	for (size_t r = 0; rc == ZD_SIMULATE_OK && r < in->ranks; r++)
		counts.loss += rank_loss(in, r, &ranks[r]) / (double)in->ranks;
	if (rc == ZD_SIMULATE_OK)
		rc = sharded_backward(in, ranks, ret_gradient);
	for (size_t r = 0; r < in->ranks; r++) {
		if (ranks[r].resident_peak > counts.resident_layers)
			counts.resident_layers = ranks[r].resident_peak;
		if (ranks[r].gathered_elements > counts.gathered_elements)
			counts.gathered_elements = ranks[r].gathered_elements;
	}
	counts.resident_elements = counts.resident_layers * layer_size(in);
	ranks_free(in, ranks);
	if (rc == ZD_SIMULATE_OK)
		*ret_counts = counts;
	return rc;
}

int zd_simulate_stage3_plain(const struct zd_simulate_stage3 *in, double *ret_gradient, double *ret_loss)
{
	struct rank *ranks;
	double loss = 0.0;
	size_t n;

	if (!valid(in))
		return ZD_SIMULATE_E_RANGE;
	n = layer_size(in);
	ranks = ranks_new(in);
	if (ranks == NULL)
		return ZD_SIMULATE_E_MEMORY;
	for (size_t r = 0; r < in->ranks; r++) {
		struct rank *k = &ranks[r];

		for (size_t l = 0; l < in->layers; l++)
			layer_forward(in, in->weights + l * n, activations(in, k, l), activations(in, k, l + 1));
		loss += rank_loss(in, r, k) / (double)in->ranks;
	}
	for (size_t l = in->layers; l-- > 0;) {
		for (size_t r = 0; r < in->ranks; r++)
			layer_backward(in, &ranks[r], in->weights + l * n, l);
		for (size_t i = 0; i < n; i++)
			ret_gradient[l * n + i] = sum_over_ranks(in, ranks, i) / (double)in->ranks;
	}
	ranks_free(in, ranks);
	*ret_loss = loss;
	return ZD_SIMULATE_OK;
}
