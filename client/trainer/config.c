/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "client/trainer/random.h"
#include "client/trainer/trig.h"
#include "proto/assert.h"

struct zd_lm_config zd_lm_config_default(void)
{
	return (struct zd_lm_config){ .layers = 4, .dim = 128, .heads = 4, .context = 64, .batch = 8, .recompute = false };
}

int zd_lm_config_check(const struct zd_lm_config *config, char *text, size_t text_size)
{
	const struct {
		const char *name;
		uint32_t value, max;
	} fields[] = {
		{ "layers", config->layers, ZD_LM_LAYERS_MAX },	   { "dim", config->dim, ZD_LM_DIM_MAX },
		{ "heads", config->heads, ZD_LM_DIM_MAX },	   { "context", config->context, ZD_LM_CONTEXT_MAX },
		{ "batch", config->batch, ZD_LM_BATCH_MAX },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].value >= 1 && fields[i].value <= fields[i].max)
			continue;
		(void)snprintf(text, text_size, "%s: expected 1 to %" PRIu32 ", found %" PRIu32, fields[i].name, fields[i].max,
			       fields[i].value);
		return -1;
	}
	if (config->dim % config->heads != 0) {
		(void)snprintf(text, text_size,
			       "heads: expected a divisor of dim %" PRIu32 ", found %" PRIu32 "; choose a dim that is a multiple of heads",
			       config->dim, config->heads);
		return -1;
	}
	uint64_t tokens = (uint64_t)config->batch * config->context;
	if (tokens > ZD_LM_TOKENS_MAX) {
		(void)snprintf(text, text_size,
			       "batch: expected at most %u tokens (batch times context), found %" PRIu64
			       "; use a smaller batch with more micro-batches",
			       ZD_LM_TOKENS_MAX, tokens);
		return -1;
	}
	return 0;
}

struct zd_lm_block_layout zd_lm_block_layout(uint32_t dim)
{
	struct zd_lm_block_layout at;
	size_t d = dim;

	at.norm1 = 0;
	at.qkv = at.norm1 + d;
	at.proj = at.qkv + 3 * d * d;
	at.norm2 = at.proj + d * d;
	at.up = at.norm2 + d;
	at.down = at.up + ZD_LM_WIDEN * d * d;
	at.numel = at.down + ZD_LM_WIDEN * d * d;
	return at;
}

size_t zd_lm_embed_position(const struct zd_lm_config *config)
{
	return (size_t)ZD_LM_VOCAB * config->dim;
}

size_t zd_lm_head_out(const struct zd_lm_config *config)
{
	return config->dim;
}

size_t zd_lm_units(const struct zd_lm_config *config)
{
	return (size_t)config->layers + 2;
}

size_t zd_lm_unit_numel(const struct zd_lm_config *config, size_t unit)
{
	ZD_ASSERT(unit < zd_lm_units(config));
	if (unit == 0)
		return zd_lm_embed_position(config) + (size_t)config->context * config->dim;
	if (unit <= config->layers)
		return zd_lm_block_layout(config->dim).numel;
	return zd_lm_head_out(config) + (size_t)config->dim * ZD_LM_VOCAB;
}

size_t zd_lm_largest_unit(const struct zd_lm_config *config)
{
	size_t embed = zd_lm_unit_numel(config, 0), block = zd_lm_unit_numel(config, 1);

	/* All blocks are of one size; the head, 257 dim, is never larger than the embedding with its 256 + context rows. */
	return block > embed ? block : embed;
}

size_t zd_lm_numel(const struct zd_lm_config *config)
{
	size_t sum = 0;

	for (size_t unit = 0; unit < zd_lm_units(config); unit++)
		sum += zd_lm_unit_numel(config, unit);
	return sum;
}

const char *zd_lm_unit_name(const struct zd_lm_config *config, size_t unit, char name[ZD_LM_UNIT_NAME])
{
	ZD_ASSERT(unit < zd_lm_units(config));
	if (unit == 0)
		(void)snprintf(name, ZD_LM_UNIT_NAME, "embed");
	else if (unit <= config->layers)
		(void)snprintf(name, ZD_LM_UNIT_NAME, "block.%zu", unit - 1);
	else
		(void)snprintf(name, ZD_LM_UNIT_NAME, "head");
	return name;
}

struct init {
	uint64_t stream;
	uint64_t drawn;
	float *weights;
};

/*
 * Nearly normal, exactly the same everywhere: the sum of four 16-bit draws (Irwin-Hall), centred and scaled to the given
 * deviation. Tails end at 3.46 deviations, which suits initial weights.
 */
static void init_normal(struct init *init, size_t count, double deviation)
{
	/* Variance of a draw from 0..65535 is (2^32 - 1) / 12; of four, a third of 2^32 - 1. */
	const double scale = deviation / sqrt(4294967295.0 / 3.0);

	for (size_t i = 0; i < count; i++) {
		uint64_t bits = zd_random_at(init->stream, init->drawn++);
		int sum = (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) + (int)(bits >> 48);

		*init->weights++ = (float)(scale * (double)(sum - 2 * 65535));
	}
}

static void init_ones(struct init *init, size_t count)
{
	for (size_t i = 0; i < count; i++)
		*init->weights++ = 1.0f;
}

/*
 * The sines and cosines of Vaswani et al. 2017 as a start: attention to a fixed distance is then one rotation of the query
 * away, which a few dozen steps learn, and from noise they do not. Frequencies fall from 1 through as many octaves as it takes
 * until the slowest tells all positions apart, geometric from octave to octave and linear within one, which needs no pow.
 */
static void init_positions(struct init *init, const struct zd_lm_config *config, double amplitude)
{
	size_t d = config->dim, pairs = (d + 1) / 2, octaves = 1;

	while ((size_t)1 << (octaves - 1) < config->context)
		octaves++;
	for (size_t pair = 0; pair < pairs; pair++) {
		double ladder = (double)(octaves * pair) / (double)pairs;
		double whole = floor(ladder);
		double frequency = ldexp(1.0 - (ladder - whole) / 2.0, -(int)whole);
		double turn_sine = zd_trig_sine(frequency), turn_cosine = zd_trig_cosine(frequency);
		double sine = 0.0, cosine = amplitude;

		for (size_t position = 0; position < config->context; position++) {
			float *row = init->weights + position * d;
			double next = sine * turn_cosine + cosine * turn_sine;

			row[2 * pair] = (float)sine;
			if (2 * pair + 1 < d)
				row[2 * pair + 1] = (float)cosine;
			cosine = cosine * turn_cosine - sine * turn_sine;
			sine = next;
		}
	}
}

void zd_lm_init_unit(const struct zd_lm_config *config, uint64_t seed, size_t unit, float *weights)
{
	struct init init = { .stream = zd_random_stream(seed, unit), .drawn = 0, .weights = weights };
	size_t d = config->dim;
	double matrix = 1.0 / sqrt((double)d);
	double residual = 1.0 / sqrt(2.0 * (double)config->layers);

	ZD_ASSERT(unit < zd_lm_units(config));
	if (unit == 0) {
		init_normal(&init, zd_lm_embed_position(config), 0.5);
		init_positions(&init, config, 0.5);
	} else if (unit <= config->layers) {
		init_ones(&init, d);
		init_normal(&init, 3 * d * d, matrix);
		init_normal(&init, d * d, matrix * residual);
		init_ones(&init, d);
		init_normal(&init, ZD_LM_WIDEN * d * d, matrix);
		init_normal(&init, ZD_LM_WIDEN * d * d, matrix / sqrt((double)ZD_LM_WIDEN) * residual);
	} else {
		init_ones(&init, d);
		init_normal(&init, d * ZD_LM_VOCAB, matrix);
	}
}
