/* SPDX-License-Identifier: Apache-2.0 */
/* Text from a model: against forward passes by hand, and what it does with a callback or a model that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/bf16.h"
#include "client/trainer/model.h"
#include "client/trainer/sample.h"

static const struct zd_lm_config config = { .layers = 1, .dim = 16, .heads = 2, .context = 6, .batch = 3 };

struct store {
	uint16_t *weights[3];
	size_t calls;
	size_t fail_at; /* this call and later ones return NULL; SIZE_MAX: none */
};

static const uint16_t *give(void *user, size_t unit)
{
	struct store *store = user;

	return store->calls++ >= store->fail_at ? NULL : store->weights[unit];
}

static void begin(struct store *store)
{
	*store = (struct store){ .fail_at = SIZE_MAX };
	for (size_t unit = 0; unit < 3; unit++) {
		size_t numel = zd_lm_unit_numel(&config, unit);
		float *wide = malloc(numel * sizeof(*wide));

		store->weights[unit] = malloc(numel * sizeof(uint16_t));
		assert_true(wide && store->weights[unit]);
		zd_lm_init_unit(&config, 1, unit, wide);
		zd_bf16_round(store->weights[unit], wide, numel);
		free(wide);
	}
}

static void end(struct store *store)
{
	for (size_t unit = 0; unit < 3; unit++)
		free(store->weights[unit]);
}

static int draw(struct store *store, const char *prompt, double temperature, uint64_t seed, uint8_t *out, size_t count, char text[200])
{
	struct zd_lm_sample sample = { .prompt = (const uint8_t *)prompt,
				       .prompt_bytes = strlen(prompt),
				       .temperature = temperature,
				       .seed = seed,
				       .weights = give,
				       .user = store };

	return zd_lm_sample(&config, &sample, out, count, text, 200);
}

/* The probabilities that follow the last `used` bytes of text, by a forward pass over nothing else. */
static void by_hand(const struct store *store, const uint8_t *last, uint32_t used, float probabilities[256])
{
	struct zd_lm_config c = config;
	struct zd_lm *lm;
	uint8_t tokens[7] = { 0 };

	c.batch = 1;
	lm = zd_lm_new(&c);
	assert_non_null(lm);
	memcpy(tokens, last, used);
	zd_lm_set_batch(lm, tokens);
	for (size_t unit = 0; unit < 3; unit++)
		zd_lm_forward_unit(lm, unit, store->weights[unit]);
	memcpy(probabilities, zd_lm_probabilities(lm, 0, used - 1), 256 * sizeof(float));
	zd_lm_free(lm);
}

static void test_likeliest(void **state)
{
	struct store store;
	uint8_t all[3 + 10] = "abc";
	char text[200];
	(void)state;
	begin(&store);

	assert_int_equal(draw(&store, "abc", 0.0, 1, all + 3, 10, text), 0);
	assert_int_equal(store.calls, 10 * 3);
	for (size_t i = 3; i < sizeof(all); i++) {
		uint32_t used = i < 6 ? (uint32_t)i : 6;
		float p[256];
		int best = 0;

		by_hand(&store, all + i - used, used, p);
		for (int byte = 1; byte < 256; byte++)
			best = p[byte] > p[best] ? byte : best;
		assert_int_equal(all[i], best);
	}
	end(&store);
}

static void test_window(void **state)
{
	struct store store;
	uint8_t a[20], b[20];
	char text[200];
	(void)state;
	begin(&store);

	/* Only the last six bytes of a prompt count. */
	assert_int_equal(draw(&store, "something else uvwxyz", 1.0, 4, a, 20, text), 0);
	assert_int_equal(draw(&store, "uvwxyz", 1.0, 4, b, 20, text), 0);
	assert_memory_equal(a, b, 20);
	end(&store);
}

static void test_seed(void **state)
{
	struct store store;
	uint8_t a[20], b[20], c[20];
	char text[200];
	(void)state;
	begin(&store);

	assert_int_equal(draw(&store, "x", 1.0, 4, a, 20, text), 0);
	assert_int_equal(draw(&store, "x", 1.0, 4, b, 20, text), 0);
	assert_int_equal(draw(&store, "x", 1.0, 5, c, 20, text), 0);
	assert_memory_equal(a, b, 20);
	assert_memory_not_equal(a, c, 20);
	end(&store);
}

static void test_draws(void **state)
{
	struct store store;
	uint8_t out[50];
	char text[200];
	bool seen[256] = { false };
	int distinct = 0;
	(void)state;
	begin(&store);

	/* A head of zeros makes all bytes equally likely: 50 draws hit about 45 of them, if each draw is its own. */
	memset(store.weights[2], 0, zd_lm_unit_numel(&config, 2) * sizeof(uint16_t));
	assert_int_equal(draw(&store, "x", 1.0, 4, out, 50, text), 0);
	for (size_t i = 0; i < 50; i++) {
		distinct += !seen[out[i]];
		seen[out[i]] = true;
	}
	assert_in_range(distinct, 38, 50);
	end(&store);
}

/* How often each byte follows "x" in 4000 draws at a temperature, against p^(1/temperature). */
static void check_odds(struct store *store, double temperature)
{
	enum { DRAWS = 4000 };
	float p[256];
	double weight[256], total = 0.0, chi = 0.0;
	int count[256] = { 0 };
	char text[200];

	by_hand(store, (const uint8_t *)"x", 1, p);
	for (int byte = 0; byte < 256; byte++)
		total += weight[byte] = pow((double)p[byte], 1.0 / temperature);
	for (uint64_t seed = 0; seed < DRAWS; seed++) {
		uint8_t byte;

		assert_int_equal(draw(store, "x", temperature, seed, &byte, 1, text), 0);
		count[byte]++;
	}
	/* Chi-square with 255 degrees of freedom: mean 255, deviation 22.6; the seeds are fixed, so this passes always or never. */
	for (int byte = 0; byte < 256; byte++) {
		double expected = (double)DRAWS * weight[byte] / total;

		chi += (count[byte] - expected) * (count[byte] - expected) / expected;
	}
	if (!(chi > 255 - 5 * 22.6 && chi < 255 + 5 * 22.6))
		fail_msg("temperature %g: chi-square %g", temperature, chi);
}

static void test_temperature(void **state)
{
	struct store store;
	(void)state;
	begin(&store);

	check_odds(&store, 1.0);
	check_odds(&store, 2.0);
	end(&store);
}

static void test_failures(void **state)
{
	struct store store;
	uint8_t out[4];
	char text[200];
	(void)state;
	begin(&store);

	static const char *const units[] = { "embed", "block.0", "head" };
	for (size_t call = 0; call < 6; call++) {
		char expected[200];

		store.calls = 0;
		store.fail_at = call;
		assert_int_equal(draw(&store, "x", 1.0, 1, out, 4, text), -1);
		(void)snprintf(expected, sizeof(expected), "sample: no weights of unit %s", units[call % 3]);
		assert_string_equal(text, expected);
		assert_int_equal(store.calls, call + 1);
	}
	store.fail_at = SIZE_MAX;
	store.weights[2][16 + 255] = 0x7fc0;
	assert_int_equal(draw(&store, "x", 1.0, 1, out, 4, text), -1);
	assert_string_equal(text, "sample: the model yields no finite number; its weights are broken");
	assert_int_equal(draw(&store, "x", 0.0, 1, out, 4, text), -1);
	/* Nothing to write: nothing is asked for. */
	store.calls = 0;
	assert_int_equal(draw(&store, "x", 1.0, 1, out, 0, text), 0);
	assert_int_equal(store.calls, 0);
	end(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_likeliest),   cmocka_unit_test(test_window),   cmocka_unit_test(test_seed),
		cmocka_unit_test(test_temperature), cmocka_unit_test(test_failures),
		cmocka_unit_test(test_draws),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
