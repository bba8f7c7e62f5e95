/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/trainer/model.h"
#include "client/trainer/random.h"
#include "proto/assert.h"

/* The last bytes of prompt and output, and how many of them there are yet. */
struct window {
	uint8_t tokens[ZD_LM_CONTEXT_MAX + 1];
	uint32_t context;
	uint32_t used; /* 1 .. context */
};

static void window_push(struct window *window, uint8_t byte)
{
	if (window->used == window->context) {
		memmove(window->tokens, window->tokens + 1, window->context - 1);
		window->used--;
	}
	window->tokens[window->used++] = byte;
}

static int likeliest(const float *probabilities)
{
	int best = 0;

	for (int byte = 1; byte < ZD_LM_VOCAB; byte++)
		if (probabilities[byte] > probabilities[best])
			best = byte;
	return best;
}

/* The byte in which the draw, in [0, 1), falls when the bytes lie side by side with their weights; -1 if those are no numbers. */
static int choose(const float *probabilities, double temperature, double draw)
{
	double weights[ZD_LM_VOCAB], total = 0.0;
	int best = likeliest(probabilities);

	for (int byte = 0; byte < ZD_LM_VOCAB; byte++) {
		if (!isfinite(probabilities[byte]))
			return -1;
		/* Relative to the best, so that a low temperature does not make all of them vanish. */
		double ratio = (double)probabilities[byte] / (double)probabilities[best];
		weights[byte] = temperature > 0.0 ? pow(ratio, 1.0 / temperature) : 0.0;
		total += weights[byte];
	}
	if (temperature <= 0.0)
		return best;
	double left = draw * total;
	for (int byte = 0; byte < ZD_LM_VOCAB; byte++) {
		left -= weights[byte];
		if (left < 0.0)
			return byte;
	}
	return best; /* rounding ate the last interval */
}

static int forward(struct zd_lm *lm, const struct zd_lm_config *config, const struct zd_lm_sample *sample, const struct window *window,
		   char *text, size_t text_size)
{
	char name[ZD_LM_UNIT_NAME];

	/* Beyond `used` lie bytes that causal attention does not look at. */
	zd_lm_set_batch(lm, window->tokens);
	for (size_t unit = 0; unit < zd_lm_units(config); unit++) {
		const uint16_t *weights = sample->weights(sample->user, unit);

		if (weights == NULL) {
			(void)snprintf(text, text_size, "sample: no weights of unit %s", zd_lm_unit_name(config, unit, name));
			return -1;
		}
		zd_lm_forward_unit(lm, unit, weights);
	}
	return 0;
}

static int generate(struct zd_lm *lm, const struct zd_lm_config *config, const struct zd_lm_sample *sample, uint8_t *out, size_t count,
		    char *text, size_t text_size)
{
	struct window window = { .context = config->context, .used = 0 };
	uint64_t stream = zd_random_stream(sample->seed, 0);

	for (size_t i = 0; i < sample->prompt_bytes; i++)
		window_push(&window, sample->prompt[i]);
	for (size_t i = 0; i < count; i++) {
		if (forward(lm, config, sample, &window, text, text_size) < 0)
			return -1;
		int byte = choose(zd_lm_probabilities(lm, 0, window.used - 1), sample->temperature, zd_random_unit(stream, i));
		if (byte < 0) {
			(void)snprintf(text, text_size, "sample: the model yields no finite number; its weights are broken");
			return -1;
		}
		out[i] = (uint8_t)byte;
		window_push(&window, out[i]);
	}
	return 0;
}

int zd_lm_sample(const struct zd_lm_config *config, const struct zd_lm_sample *sample, uint8_t *out, size_t count, char *text,
		 size_t text_size)
{
	struct zd_lm_config single = *config;

	ZD_ASSERT(sample->prompt_bytes >= 1);
	single.batch = 1;
	single.recompute = true; /* no backward: one block's activations are enough */
	struct zd_lm *lm = zd_lm_new(&single);
	if (lm == NULL) {
		(void)snprintf(text, text_size, "sample: no memory for %zu bytes", zd_lm_memory(&single));
		return -1;
	}
	int rc = generate(lm, &single, sample, out, count, text, text_size);
	zd_lm_free(lm);
	return rc;
}
