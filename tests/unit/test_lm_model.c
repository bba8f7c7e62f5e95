/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model against the naive one of lm_naive.c: values, and gradients by central differences. And what it promises of bits.
 *
 * The bound of the comparisons: every fp32 rounding adds a relative error of at most u = 2^-24, and a value that comes out
 * of a chain of n of them is off by at most n * u of the largest magnitude in it (Higham, Accuracy and Stability, 3.1). The longest
 * chain of the tiny model below, counted in terms of sums (a sum of k terms rounds k - 1 times) and the elementwise steps around them:
 *
 *   a block    norms 2 (dim + 8), qkv and proj 2 dim, scores and values dim / heads + context, softmax context + 20,
 *              MLP 5 dim + 30                                                    d = 8, context 5:  ~ 160
 *   the head   norm dim + 8, matrix dim, softmax 256 / 8 + 30                                       ~  90
 *
 * forward through two blocks and the head is 410, and backward through each of them twice as much again: n = 1230. Gradients
 * of weights add up 10 tokens. A term left out or a factor forgotten is off by a tenth or so: a thousand times the bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/bf16.h"
#include "client/trainer/model.h"
#include "client/trainer/random.h"
#include "proto/assert.h"
#include "tests/unit/lm_naive.h"

#define UNIT_ROUNDOFF 0x1p-24
#define ROUNDINGS 1240.0
#define UNITS_MAX 8

/* A model with everything around it, all units one after the other. */
struct fixture {
	struct zd_lm_config config;
	size_t units, numel;
	size_t at[UNITS_MAX + 1];
	struct zd_lm *lm;
	uint16_t *weights;
	float *grad;
	uint8_t *tokens;
};

static const struct zd_lm_config tiny = { .layers = 2, .dim = 8, .heads = 2, .context = 5, .batch = 2 };
static const struct zd_lm_config odd = { .layers = 3, .dim = 33, .heads = 3, .context = 19, .batch = 3 };

static void begin(struct fixture *f, const struct zd_lm_config *config, uint64_t seed)
{
	char text[200];

	*f = (struct fixture){ .config = *config, .units = zd_lm_units(config), .numel = zd_lm_numel(config) };
	assert_int_equal(zd_lm_config_check(config, text, sizeof(text)), 0);
	assert_true(f->units <= UNITS_MAX);
	f->lm = zd_lm_new(config);
	f->weights = malloc(f->numel * sizeof(*f->weights));
	f->grad = malloc(f->numel * sizeof(*f->grad));
	f->tokens = malloc((size_t)config->batch * (config->context + 1));
	assert_true(f->lm && f->weights && f->grad && f->tokens);
	for (size_t unit = 0; unit < f->units; unit++) {
		zd_lm_init_unit(config, seed, unit, f->grad + f->at[unit]);
		f->at[unit + 1] = f->at[unit] + zd_lm_unit_numel(config, unit);
	}
	/* Gains that are all 1 would hide a gain that is left out. */
	for (size_t i = 0; i < f->numel; i++)
		f->grad[i] *= 1.0f + 0.5f * (float)zd_random_unit(seed + 1, i);
	zd_bf16_round(f->weights, f->grad, f->numel);
	for (size_t i = 0; i < (size_t)config->batch * (config->context + 1); i++)
		f->tokens[i] = (uint8_t)zd_random_below(seed + 2, i, 256);
	f->tokens[1] = f->tokens[0]; /* a byte that occurs twice: its gradients add up */
}

static void end(struct fixture *f)
{
	zd_lm_free(f->lm);
	free(f->weights);
	free(f->grad);
	free(f->tokens);
}

static void forward(struct fixture *f)
{
	zd_lm_set_batch(f->lm, f->tokens);
	for (size_t unit = 0; unit < f->units; unit++)
		zd_lm_forward_unit(f->lm, unit, f->weights + f->at[unit]);
}

static void backward(struct fixture *f, bool accumulate)
{
	for (size_t unit = f->units; unit-- > 0;)
		zd_lm_backward_unit(f->lm, unit, f->weights + f->at[unit], f->grad + f->at[unit], accumulate);
}

static double *in_double(const struct fixture *f)
{
	float *single = malloc(f->numel * sizeof(*single));
	double *wide = malloc(f->numel * sizeof(*wide));

	assert_true(single && wide);
	zd_bf16_widen(single, f->weights, f->numel);
	for (size_t i = 0; i < f->numel; i++)
		wide[i] = (double)single[i];
	free(single);
	return wide;
}

static void assert_close(const char *what, size_t index, double found, double expected, double bound)
{
	if (!(fabs(found - expected) <= bound))
		fail_msg("%s %zu: expected %.9g within %.2g, found %.9g", what, index, expected, bound, found);
}

static void test_forward(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, &tiny, 5);
	double *weights = in_double(&f), logits[2 * 5 * 256];

	forward(&f);
	double loss = lm_naive_loss(&f.config, weights, f.tokens, logits);
	assert_close("loss", 0, zd_lm_loss(f.lm), loss, 410 * UNIT_ROUNDOFF * loss);
	for (uint32_t token = 0; token < 10; token++) {
		const double *row = logits + token * 256;
		const float *found = zd_lm_probabilities(f.lm, token / 5, token % 5);
		double total = 0.0, largest = 0.0;

		for (size_t i = 0; i < 256; i++) {
			total += exp(row[i]);
			largest = fabs(row[i]) > largest ? fabs(row[i]) : largest;
		}
		/* An error of a logit is a relative error of its probability. */
		for (size_t i = 0; i < 256; i++)
			assert_close("probability", i, (double)found[i], exp(row[i]) / total,
				     410 * UNIT_ROUNDOFF * (1.0 + largest) * exp(row[i]) / total);
	}
	free(weights);
	end(&f);
}

static double difference(const struct fixture *f, double *weights, size_t i)
{
	/* Truncation step^2 / 6 * f''' and cancellation 2^-52 * loss / step are both below 1e-9. */
	const double step = 0x1p-15;
	double kept = weights[i];

	weights[i] = kept + step;
	double above = lm_naive_loss(&f->config, weights, f->tokens, NULL);
	weights[i] = kept - step;
	double below = lm_naive_loss(&f->config, weights, f->tokens, NULL);
	weights[i] = kept;
	return (above - below) / (2.0 * step);
}

static bool byte_occurs(const struct fixture *f, size_t byte)
{
	for (size_t row = 0; row < f->config.batch; row++)
		if (memchr(f->tokens + row * (f->config.context + 1), (int)byte, f->config.context) != NULL)
			return true;
	return false;
}

static void check_unit_gradient(const struct fixture *f, double *weights, size_t unit)
{
	float largest = 0.0f;

	for (size_t i = f->at[unit]; i < f->at[unit + 1]; i++)
		largest = fabsf(f->grad[i]) > largest ? fabsf(f->grad[i]) : largest;
	assert_true(largest > 1e-3f);
	for (size_t i = f->at[unit]; i < f->at[unit + 1]; i++) {
		/* A byte that is not there has no gradient, exactly; most of the embedding. */
		if (i < 256 * f->config.dim && !byte_occurs(f, i / f->config.dim)) {
			assert_true(f->grad[i] == 0.0f);
			continue;
		}
		assert_close("gradient", i, (double)f->grad[i], difference(f, weights, i),
			     ROUNDINGS * UNIT_ROUNDOFF * (double)largest + 1e-9);
	}
}

static void test_gradient(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, &tiny, 7);
	double *weights = in_double(&f);

	for (size_t i = 0; i < f.numel; i++)
		f.grad[i] = NAN; /* is overwritten, not added to */
	forward(&f);
	backward(&f, false);
	for (size_t unit = 0; unit < f.units; unit++)
		check_unit_gradient(&f, weights, unit);
	free(weights);
	end(&f);
}

static void test_accumulate(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, &tiny, 9);
	float *first = malloc(f.numel * sizeof(*first));
	assert_non_null(first);

	forward(&f);
	backward(&f, false);
	memcpy(first, f.grad, f.numel * sizeof(*first));
	for (size_t i = 0; i < f.numel; i++)
		f.grad[i] = 1.0f;
	forward(&f);
	backward(&f, true);
	/* At most 20 additions to the 1, each off by half a place of a number near it. */
	for (size_t i = 0; i < f.numel; i++)
		assert_close("sum", i, (double)f.grad[i], 1.0 + (double)first[i], 20 * UNIT_ROUNDOFF * 2);
	free(first);
	end(&f);
}

/* Loss and gradients of a fresh model, in a heap that looks another each time. */
static uint64_t bits_of(const struct zd_lm_config *config, bool used_before)
{
	struct fixture f;
	void *shift = malloc(used_before ? 4242 : 17);

	begin(&f, config, 11);
	if (used_before) {
		uint8_t kept = f.tokens[2];

		f.tokens[2] ^= 1;
		forward(&f);
		backward(&f, true);
		f.tokens[2] = kept;
		zd_lm_set_batch(f.lm, f.tokens);
		zd_lm_forward_unit(f.lm, 0, f.weights); /* given up */
	}
	forward(&f);
	double loss = zd_lm_loss(f.lm);
	backward(&f, false);
	uint64_t hash = 0;
	memcpy(&hash, &loss, sizeof(hash));
	for (size_t i = 0; i < f.numel; i++) {
		uint32_t bits;

		memcpy(&bits, &f.grad[i], sizeof(bits));
		hash = zd_random_mix(hash + bits);
	}
	end(&f);
	free(shift);
	return hash;
}

static void test_same_bits(void **state)
{
	struct zd_lm_config recompute = odd;
	(void)state;

	recompute.recompute = true;
	uint64_t expected = bits_of(&odd, false);
	assert_true(bits_of(&odd, false) == expected);
	assert_true(bits_of(&odd, true) == expected);
	assert_true(bits_of(&recompute, false) == expected);
	assert_true(bits_of(&recompute, true) == expected);
	recompute.heads = 1;
	assert_true(bits_of(&recompute, false) != expected);
}

/* OpenBLAS has both; another BLAS behind cblas.h need not. */
void openblas_set_num_threads(int threads) __attribute__((weak));
int openblas_get_num_threads(void) __attribute__((weak));

static void test_one_thread(void **state)
{
	struct fixture f;
	(void)state;

	if (openblas_set_num_threads == NULL || openblas_get_num_threads == NULL) {
		print_message("skipped: this BLAS has no switch for threads\n");
		skip();
	}
	openblas_set_num_threads(2);
	begin(&f, &tiny, 1);
	assert_int_equal(openblas_get_num_threads(), 1);
	end(&f);
}

static void test_causal(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, &odd, 13);
	size_t context = odd.context;
	float before[256];

	/* Byte 7 of the second sequence changes nothing before position 7 of it, and no other sequence. */
	for (uint32_t token = 0; token < odd.batch * odd.context; token++) {
		uint32_t row = token / odd.context, at = token % odd.context;
		uint8_t *changed = &f.tokens[context + 1 + 7];

		forward(&f);
		memcpy(before, zd_lm_probabilities(f.lm, row, at), sizeof(before));
		*changed ^= 1;
		forward(&f);
		bool same = memcmp(before, zd_lm_probabilities(f.lm, row, at), sizeof(before)) == 0;
		*changed ^= 1;
		assert_true(same == (row != 1 || at < 7));
	}
	end(&f);
}

static void test_broken_weight(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, &tiny, 15);
	struct zd_lm_block_layout at = zd_lm_block_layout(tiny.dim);
	const size_t places[] = { f.at[0] + (size_t)f.tokens[0] * 8, f.at[1] + at.norm1, f.at[1] + at.qkv + 20, f.at[2] + at.up,
				  f.at[2] + at.down, f.at[3], f.at[3] + 30 };

	/* Wherever a NaN or an infinity comes in, it comes out in the loss or in its own unit's gradient, not as a number. */
	for (size_t i = 0; i < 2 * sizeof(places) / sizeof(places[0]); i++) {
		uint16_t *broken = &f.weights[places[i / 2]], kept = *broken;
		bool finite = true;

		*broken = i % 2 ? 0x7fc0 : 0x7f80;
		forward(&f);
		backward(&f, false);
		for (size_t k = 0; k < f.numel; k++)
			finite = finite && isfinite(f.grad[k]);
		assert_false(finite);
		*broken = kept;
	}
	end(&f);
}

static jmp_buf failed_assertion;

static void note_assertion(const char *file, int line, const char *what)
{
	(void)file;
	(void)line;
	(void)what;
	longjmp(failed_assertion, 1);
}

enum call { BATCH, FORWARD, LOSS, BACKWARD, PROBABILITIES };

static void do_call(struct fixture *f, enum call call, size_t unit)
{
	switch (call) {
	case BATCH:
		zd_lm_set_batch(f->lm, f->tokens);
		break;
	case FORWARD:
		zd_lm_forward_unit(f->lm, unit, f->weights + f->at[unit % f->units]);
		break;
	case LOSS:
		(void)zd_lm_loss(f->lm);
		break;
	case BACKWARD:
		zd_lm_backward_unit(f->lm, unit, f->weights + f->at[unit % f->units], f->grad, false);
		break;
	case PROBABILITIES:
		(void)zd_lm_probabilities(f->lm, 0, (uint32_t)unit);
		break;
	}
}

static void test_order(void **state)
{
	/* After `forwards` and `backwards` of the four units; -1: without a batch. */
	static const struct {
		int forwards, backwards;
		enum call call;
		size_t unit;
		bool allowed;
	} cases[] = {
		{ -1, 0, FORWARD, 0, false }, { -1, 0, LOSS, 0, false },     { -1, 0, BACKWARD, 3, false }, { 0, 0, FORWARD, 0, true },
		{ 0, 0, FORWARD, 1, false },  { 1, 0, FORWARD, 0, false },   { 1, 0, BATCH, 0, true },	    { 3, 0, LOSS, 0, false },
		{ 3, 0, BACKWARD, 3, false }, { 4, 0, LOSS, 0, true },	     { 4, 0, FORWARD, 4, false },   { 4, 0, BACKWARD, 3, true },
		{ 4, 0, BACKWARD, 2, false }, { 4, 1, BACKWARD, 3, false },  { 4, 1, BACKWARD, 2, true },   { 4, 1, LOSS, 0, true },
		{ 4, 4, BACKWARD, 0, false }, { 4, 4, FORWARD, 0, false },   { 4, 4, BATCH, 0, true },	    { 4, 0, PROBABILITIES, 0, true },
		{ 4, 0, PROBABILITIES, 5, false }, { 4, 1, PROBABILITIES, 0, false }, { 3, 0, PROBABILITIES, 0, false },
	};
	zd_assert_handler *kept = zd_assert_failed;
	(void)state;

	for (volatile size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture f;
		volatile bool allowed = false;

		begin(&f, &tiny, 17);
		if (cases[i].forwards >= 0)
			zd_lm_set_batch(f.lm, f.tokens);
		for (int unit = 0; unit < cases[i].forwards; unit++)
			do_call(&f, FORWARD, (size_t)unit);
		for (int unit = 0; unit < cases[i].backwards; unit++)
			do_call(&f, BACKWARD, (size_t)(3 - unit));
		zd_assert_failed = note_assertion;
		if (setjmp(failed_assertion) == 0) {
			do_call(&f, cases[i].call, cases[i].unit);
			allowed = true;
		}
		zd_assert_failed = kept;
		if (allowed != cases[i].allowed)
			fail_msg("case %zu: expected %d, found %d", (size_t)i, cases[i].allowed, allowed);
		end(&f);
	}
}

static void test_memory(void **state)
{
	struct zd_lm_config c = { .layers = 4, .dim = 128, .heads = 4, .context = 64, .batch = 8 };
	(void)state;
	/* The formula of model.h, in floats; each of the at most 50 pieces may be rounded up to 64 bytes. */
	size_t tokens = 512, block = tokens * (10 * 128 + 4 * 64 + 2), largest = 12 * 128 * 128 + 2 * 128;
	size_t shared = tokens * (12 * 128 + 257) + 64 * 64 + largest;
	size_t all = 4 * (4 * block + shared), some = 4 * (4 * tokens * 128 + block - tokens * 128 + shared);

	assert_in_range(zd_lm_memory(&c), all, all + 50 * 64 + 2048);
	c.recompute = true;
	assert_in_range(zd_lm_memory(&c), some, some + 50 * 64 + 2048);
	zd_lm_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forward),	     cmocka_unit_test(test_gradient), cmocka_unit_test(test_accumulate),
		cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_causal),   cmocka_unit_test(test_broken_weight),
		cmocka_unit_test(test_order),	     cmocka_unit_test(test_memory),   cmocka_unit_test(test_one_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
