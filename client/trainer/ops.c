/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/ops.h"

#include <math.h>
#include <string.h>

#define LANES 8 /* partial sums: two vectors of SSE, one of AVX */

static float lanes_sum(const float lane[LANES])
{
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static float dot(size_t count, const float *a, const float *b)
{
	float lane[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (size_t k = 0; k < LANES; k++)
			lane[k] += a[i + k] * b[i + k];
	for (size_t k = 0; i < count; i++, k++)
		lane[k] += a[i] * b[i];
	return lanes_sum(lane);
}

static float sum(size_t count, const float *a)
{
	float lane[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (size_t k = 0; k < LANES; k++)
			lane[k] += a[i + k];
	for (size_t k = 0; i < count; i++, k++)
		lane[k] += a[i];
	return lanes_sum(lane);
}

/* NaN is passed over; whatever is computed from the same row next meets it. */
static float largest(size_t count, const float *a)
{
	float max = -INFINITY;

	for (size_t i = 0; i < count; i++)
		max = a[i] > max ? a[i] : max;
	return max;
}

/*
 * e^x = 2^n * e^r with n the integer nearest to x / ln 2. Adding 1.5 * 2^23 leaves n in the low bits of the sum, from where
 * it goes into the exponent of the polynomial: no conversion, no branch, hence vectors. Beyond +-64 it stays at the value there:
 * what is smaller than e^-64 counts for nothing here, and its products would be denormal, which costs a hundred cycles each.
 */
static inline float exponential(float x)
{
	const float shift = 0x1.8p23f;
	const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f; /* n * ln2_high is exact */
	float v = x < -64.0f ? -64.0f : x;
	v = v > 64.0f ? 64.0f : v;

	float shifted = v * 0x1.715476p0f + shift;
	float n = shifted - shift;
	float r = (v - n * ln2_high) - n * ln2_low;
	/* The series of e^r up to r^7; |r| <= 0.35, so the next term is below 2^-27. */
	float p = 1.0f / 5040;
	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;

	uint32_t power, bits;
	memcpy(&power, &shifted, sizeof(power));
	memcpy(&bits, &p, sizeof(bits));
	bits += power << 23;
	memcpy(&p, &bits, sizeof(p));
	return p + (v - v); /* 0, or NaN for NaN, whose bits the shift may have turned into a number */
}

void zd_ops_norm(size_t rows, size_t dim, const float *x, const float *gain, float *inverse, float *out)
{
	for (size_t row = 0; row < rows; row++, x += dim, out += dim) {
		float scale = 1.0f / sqrtf(dot(dim, x, x) / (float)dim + ZD_OPS_NORM_EPSILON);

		inverse[row] = scale;
		for (size_t i = 0; i < dim; i++)
			out[i] = x[i] * scale * gain[i];
	}
}

void zd_ops_norm_backward(size_t rows, size_t dim, const float *x, const float *gain, const float *inverse, const float *dout, float *dx,
			  float *dgain)
{
	for (size_t row = 0; row < rows; row++, x += dim, dout += dim, dx += dim) {
		float scale = inverse[row];
		float lane[LANES] = { 0 };

		/* Through inverse, every x[i] moves the whole row: by -x[i] * scale^3 / dim of this sum. */
		for (size_t i = 0; i < dim; i++)
			lane[i % LANES] += gain[i] * dout[i] * x[i];
		float through = lanes_sum(lane) * scale * scale * scale / (float)dim;

		for (size_t i = 0; i < dim; i++) {
			dx[i] += gain[i] * dout[i] * scale - x[i] * through;
			dgain[i] += dout[i] * x[i] * scale;
		}
	}
}

#define GELU_OUTER 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_INNER 0.044715f

static inline float gelu_sigmoid(float x)
{
	return 1.0f / (1.0f + exponential(-(GELU_OUTER * (x + GELU_INNER * x * x * x))));
}

void zd_ops_gelu(size_t count, const float *x, float *out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = x[i] * gelu_sigmoid(x[i]);
}

void zd_ops_gelu_backward(size_t count, const float *x, float *restrict out, float *restrict grad)
{
	for (size_t i = 0; i < count; i++) {
		float sigmoid = gelu_sigmoid(x[i]);
		float slope = GELU_OUTER * (1.0f + 3.0f * GELU_INNER * x[i] * x[i]);

		out[i] = x[i] * sigmoid;
		grad[i] *= sigmoid + x[i] * sigmoid * (1.0f - sigmoid) * slope;
	}
}

/* Softmax of a row; returns the sum of the exponentials of what the row exceeds max, its largest element. */
static float softmax(size_t count, float *row, float max)
{
	for (size_t i = 0; i < count; i++)
		row[i] = exponential(row[i] - max);
	float total = sum(count, row);
	float scale = 1.0f / total;
	for (size_t i = 0; i < count; i++)
		row[i] *= scale;
	return total;
}

void zd_ops_causal_softmax(size_t context, float *scores)
{
	for (size_t row = 0; row < context; row++, scores += context) {
		(void)softmax(row + 1, scores, largest(row + 1, scores));
		memset(scores + row + 1, 0, (context - row - 1) * sizeof(*scores));
	}
}

void zd_ops_causal_softmax_backward(size_t context, const float *probabilities, float scale, float *grad)
{
	for (size_t row = 0; row < context; row++, probabilities += context, grad += context) {
		float mean = dot(row + 1, probabilities, grad);

		for (size_t i = 0; i <= row; i++)
			grad[i] = probabilities[i] * (grad[i] - mean) * scale;
		memset(grad + row + 1, 0, (context - row - 1) * sizeof(*grad));
	}
}

double zd_ops_cross_entropy(size_t rows, size_t classes, float *logits, const uint8_t *targets)
{
	double loss = 0.0;

	for (size_t row = 0; row < rows; row++, logits += classes) {
		float target = logits[targets[row]], max = largest(classes, logits);
		float total = softmax(classes, logits, max);

		loss += log((double)total) + ((double)max - (double)target);
	}
	return loss;
}

void zd_ops_cross_entropy_backward(size_t rows, size_t classes, float *probabilities, const uint8_t *targets)
{
	float scale = 1.0f / (float)rows;

	for (size_t row = 0; row < rows; row++, probabilities += classes) {
		probabilities[targets[row]] -= 1.0f;
		for (size_t i = 0; i < classes; i++)
			probabilities[i] *= scale;
	}
}

void zd_ops_add(size_t count, float *to, const float *from)
{
	for (size_t i = 0; i < count; i++)
		to[i] += from[i];
}
