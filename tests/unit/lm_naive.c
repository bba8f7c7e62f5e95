/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lm_naive.h"

#include <math.h>
#include <string.h>

#define DIM_MAX 64
#define CONTEXT_MAX 32

struct sequence {
	const struct zd_lm_config *config;
	double x[CONTEXT_MAX][DIM_MAX];
};

static void norm(size_t d, const double *x, const double *gain, double *out)
{
	double square = 0.0;

	for (size_t i = 0; i < d; i++)
		square += x[i] * x[i];
	for (size_t i = 0; i < d; i++)
		out[i] = x[i] / sqrt(square / (double)d + 1e-5) * gain[i];
}

/* out = x * w, w being [in][out] */
static void linear(size_t in, size_t out_count, const double *x, const double *w, double *out)
{
	for (size_t j = 0; j < out_count; j++) {
		out[j] = 0.0;
		for (size_t i = 0; i < in; i++)
			out[j] += x[i] * w[i * out_count + j];
	}
}

static void attend(const struct zd_lm_config *config, double qkv[][3 * DIM_MAX], size_t at, double *out)
{
	size_t d = config->dim, width = d / config->heads;

	for (size_t head = 0; head < config->heads; head++) {
		double weight[CONTEXT_MAX], total = 0.0;

		for (size_t j = 0; j <= at; j++) {
			double score = 0.0;

			for (size_t i = head * width; i < (head + 1) * width; i++)
				score += qkv[at][i] * qkv[j][d + i];
			weight[j] = exp(score / sqrt((double)width));
			total += weight[j];
		}
		for (size_t i = head * width; i < (head + 1) * width; i++) {
			out[i] = 0.0;
			for (size_t j = 0; j <= at; j++)
				out[i] += weight[j] / total * qkv[j][2 * d + i];
		}
	}
}

static double gelu(double x)
{
	return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static void block(struct sequence *s, const double *w)
{
	size_t d = s->config->dim, context = s->config->context;
	const double *norm1 = w, *qkv_w = norm1 + d, *proj = qkv_w + 3 * d * d, *norm2 = proj + d * d, *up = norm2 + d, *down = up + 4 * d * d;
	double qkv[CONTEXT_MAX][3 * DIM_MAX], normed[DIM_MAX], attended[DIM_MAX], hidden[4 * DIM_MAX], change[DIM_MAX];

	for (size_t at = 0; at < context; at++) {
		norm(d, s->x[at], norm1, normed);
		linear(d, 3 * d, normed, qkv_w, qkv[at]);
	}
	for (size_t at = 0; at < context; at++) {
		attend(s->config, qkv, at, attended);
		linear(d, d, attended, proj, change);
		for (size_t i = 0; i < d; i++)
			s->x[at][i] += change[i];
		norm(d, s->x[at], norm2, normed);
		linear(d, 4 * d, normed, up, hidden);
		for (size_t i = 0; i < 4 * d; i++)
			hidden[i] = gelu(hidden[i]);
		linear(4 * d, d, hidden, down, change);
		for (size_t i = 0; i < d; i++)
			s->x[at][i] += change[i];
	}
}

static double head(const struct sequence *s, const double *w, const uint8_t *targets, double *logits)
{
	size_t d = s->config->dim;
	double normed[DIM_MAX], row[256], loss = 0.0;

	for (size_t at = 0; at < s->config->context; at++) {
		double total = 0.0;

		norm(d, s->x[at], w, normed);
		linear(d, 256, normed, w + d, row);
		for (size_t i = 0; i < 256; i++)
			total += exp(row[i]);
		loss += log(total) - row[targets[at]];
		if (logits != NULL)
			memcpy(logits + at * 256, row, sizeof(row));
	}
	return loss;
}

double lm_naive_loss(const struct zd_lm_config *config, const double *weights, const uint8_t *tokens, double *logits)
{
	size_t d = config->dim, context = config->context;
	struct sequence s = { .config = config };
	double loss = 0.0;

	for (size_t row = 0; row < config->batch; row++, tokens += context + 1) {
		const double *w = weights;

		for (size_t at = 0; at < context; at++)
			for (size_t i = 0; i < d; i++)
				s.x[at][i] = w[tokens[at] * d + i] + w[(256 + at) * d + i];
		w += (256 + context) * d;
		for (size_t layer = 0; layer < config->layers; layer++, w += 12 * d * d + 2 * d)
			block(&s, w);
		loss += head(&s, w, tokens + 1, logits != NULL ? logits + row * context * 256 : NULL);
	}
	return loss / (double)(config->batch * context);
}
