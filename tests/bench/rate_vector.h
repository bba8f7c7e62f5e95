/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of rate.h in vectors of sixteen elements, written once.  An ISA file defines what is named below and includes this.
 *
 *   struct vec     sixteen fp32                      struct line    sixty-four bytes
 *   vec_load vec_store vec_set1 vec_add vec_mul vec_div vec_sqrt
 *   vec_fma                                          x * y + z
 *   vec_bf16                                         sixteen bf16, widened
 *   bf16_stream                                      thirty-two elements to bf16, nearest even, past the caches; not for NaN
 *   line_zero line_load line_store line_xor line_add16
 *   line_sum                                         something that depends on every bit
 */
#ifndef ZD_BENCH_RATE_VECTOR_H
#define ZD_BENCH_RATE_VECTOR_H

#define STEP 16
#define LINE 64
/* About the latency of memory times the rate of one core; 512 to 2048 measure alike. */
#define AHEAD 1024

/* Expanded with a constant distance; 0 is none. */
ALWAYS void ahead_by(const void *p, const size_t distance)
{
	if (distance)
		_mm_prefetch((const char *)p + distance, _MM_HINT_T0);
}

ALWAYS void ahead(const void *p)
{
	ahead_by(p, AHEAD);
}

struct consts {
	struct vec b1, omb1, b2, omb2, rbc2, eps, step, decay, mean;
};

ALWAYS struct vec adam(float *w, float *m, float *v, struct vec g, const struct consts *c)
{
	struct vec m1 = vec_fma(g, c->omb1, vec_mul(vec_load(m), c->b1));
	struct vec v1 = vec_fma(vec_mul(g, g), c->omb2, vec_mul(vec_load(v), c->b2));
	struct vec root = vec_fma(vec_sqrt(v1), c->rbc2, c->eps);
	struct vec w1 = vec_fma(vec_div(m1, root), c->step, vec_mul(vec_load(w), c->decay));

	vec_store(m, m1);
	vec_store(v, v1);
	vec_store(w, w1);
	return w1;
}

ALWAYS struct vec mean(const uint16_t *const *grads, const uint32_t workers, size_t i, const struct consts *c)
{
	struct vec g = vec_bf16(grads[0] + i);

	for (uint32_t q = 1; q < workers; q++)
		g = vec_add(g, vec_bf16(grads[q] + i));
	return workers > 1 ? vec_mul(g, c->mean) : g;
}

/* Expanded for each constant number of workers, so that one worker costs neither loop nor scaling. */
ALWAYS void step_k(float *w, float *m, float *v, const uint16_t *const *grads, const uint32_t workers, uint16_t *out, size_t n,
		   const struct zd_rate_consts *rc)
{
	const struct consts c = {
		.b1 = vec_set1(rc->b1),	    .omb1 = vec_set1(rc->omb1), .b2 = vec_set1(rc->b2),
		.omb2 = vec_set1(rc->omb2), .rbc2 = vec_set1(rc->rbc2), .eps = vec_set1(rc->eps),
		.step = vec_set1(rc->step), .decay = vec_set1(rc->decay), .mean = vec_set1(rc->mean),
	};

	for (size_t i = 0; i < n; i += 2 * STEP) {
		struct vec x[2];

		for (size_t k = 0; k < 2; k++) {
			size_t j = i + STEP * k;

			ahead(w + j);
			ahead(m + j);
			ahead(v + j);
			x[k] = adam(w + j, m + j, v + j, mean(grads, workers, j, &c), &c);
		}
		bf16_stream(out + i, x[0], x[1]);
	}
	_mm_sfence();
}

static void step(float *w, float *m, float *v, const uint16_t *const *grads, uint32_t workers, uint16_t *out, size_t n,
		 const struct zd_rate_consts *c)
{
	if (workers == 1)
		step_k(w, m, v, grads, 1, out, n, c);
	else if (workers == 2)
		step_k(w, m, v, grads, 2, out, n, c);
	else
		step_k(w, m, v, grads, workers, out, n, c);
}

ALWAYS void update_by(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n, const size_t distance)
{
	const struct vec one = vec_set1(1.0f);

	for (size_t i = 0; i < n; i += 2 * STEP) {
		ahead_by(hi + i, distance);
		ahead_by(lo + i, distance);
		ahead_by(grad + i, distance);
		struct line g = line_load(grad + i);

		line_store(hi + i, line_xor(line_load(hi + i), g));
		line_store(lo + i, line_add16(line_load(lo + i), g));
		for (size_t j = i; j < i + 2 * STEP; j += STEP) {
			ahead_by(m + j, distance);
			ahead_by(v + j, distance);
			vec_store(m + j, vec_add(vec_load(m + j), one));
			vec_store(v + j, vec_add(vec_load(v + j), one));
		}
	}
}

static void update_none(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n)
{
	update_by(hi, lo, m, v, grad, n, 0);
}

static void update_512(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n)
{
	update_by(hi, lo, m, v, grad, n, 512);
}

static void update_1024(uint16_t *hi, uint16_t *lo, float *m, float *v, const uint16_t *grad, size_t n)
{
	update_by(hi, lo, m, v, grad, n, 1024);
}

static uint64_t read_all(const void *p, size_t bytes)
{
	struct line s[2] = { line_zero(), line_zero() };
	const char *q = p;

	for (size_t i = 0; i < bytes; i += 2 * LINE)
		for (size_t k = 0; k < 2; k++) {
			ahead(q + i + LINE * k);
			s[k] = line_xor(s[k], line_load(q + i + LINE * k));
		}
	return line_sum(line_xor(s[0], s[1]));
}

#define RATE_TABLE(isa) { #isa, step, { update_none, update_512, update_1024 }, read_all }

#endif
