/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker for the scripts here that can do what zerod-lm cannot: any number of units, and standing still at a chosen place until the script
 * says a word.  Its weights depend on everything: the gradient of an element on its weight, rank, round and micro-batch.
 *
 *     steady_worker key=value...      endpoints job rank world epoch units numel rounds micro extent lease timeout (both in ms) pause
 *
 * It loads (rank 0), trains in stage 3's order (gather and release each unit forward, then backward with a push between), and ends with the
 * line "digest SHA-256" of the fp32 weights.  Before, one line "round N" for each round.  pause=load stops after half of the units are
 * loaded, pause=push after half of them are pushed in round 2, pause=round after round 1: it prints "paused", and a line or the end of
 * standard input lets it go on.
 *
 * Exit: 0; 75 where a launcher would start again (aborted, daemon away, timed out); 1; 2 usage.  The reason is on standard error.
 */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/zerod.h"

/* Rounds that may be computed again in a row; more is no progress. */
#define REDO_MAX 20

struct setup {
	const char *endpoints, *job, *pause;
	uint64_t rank, world, epoch, units, numel, rounds, micro, extent, lease, timeout;
};

struct worker {
	struct setup set;
	struct zerod_client *client;
	struct zerod_unit *units;
	char (*names)[24];
	uint16_t *grad;
	float *flat;
};

/* ---------------------------------------------------------------- what is computed */

/* Sizes that differ, and every 200th unit so large that several lanes own it. */
static uint64_t numel_of(const struct setup *set, uint64_t u)
{
	return u % 200 == 100 ? 40 * set->numel : set->numel + u % 97;
}

/* splitmix64's last step: any mixing function would do. */
static uint32_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)(x >> 32);
}

static float noise(uint64_t a, uint64_t b)
{
	return ((float)(mix(a * 0x9e3779b97f4a7c15u + b) >> 8) - 8388608.0f) / 134217728.0f;
}

static uint16_t to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static void gradient(struct worker *w, uint32_t u, uint64_t round, uint64_t micro, const uint16_t *weights)
{
	uint64_t salt = (round * 1024 + micro) * 64 + w->set.rank;

	for (uint64_t i = 0; i < w->units[u].numel; i++)
		w->grad[i] = to_bf16(0.5f * from_bf16(weights[i]) + noise(salt, (uint64_t)u << 32 | i));
}

/* ---------------------------------------------------------------- the training */

static void pause_at(const struct worker *w, const char *where)
{
	char line[64];

	if (strcmp(w->set.pause, where) != 0)
		return;
	puts("paused");
	fflush(stdout);
	(void)!fgets(line, sizeof(line), stdin);
}

static int load(struct worker *w)
{
	for (uint32_t u = 0; u < w->set.units; u++) {
		int rc;

		if (u == w->set.units / 2)
			pause_at(w, "load");
		for (uint64_t i = 0; i < w->units[u].numel; i++)
			w->flat[i] = noise(u + 1, i);
		rc = zerod_load(w->client, u, ZEROD_FP32, w->flat);
		if (rc)
			return rc;
	}
	return zerod_seal(w->client);
}

static int forward(struct worker *w)
{
	const uint16_t *weights;
	int rc = 0;

	for (uint32_t u = 0; u < w->set.units && rc == 0; u++) {
		rc = zerod_gather(w->client, u, &weights);
		if (rc == 0)
			rc = zerod_release(w->client, u, 0);
	}
	return rc;
}

static int backward(struct worker *w, uint64_t round, uint32_t micro)
{
	const uint16_t *weights;
	int rc = 0, released;

	for (uint32_t u = (uint32_t)w->set.units; u-- > 0 && rc == 0;) {
		if (round == 2 && micro == 0 && u == w->set.units / 2)
			pause_at(w, "push");
		rc = zerod_gather(w->client, u, &weights);
		if (rc)
			return rc;
		gradient(w, u, round, micro, weights);
		rc = zerod_push(w->client, u, micro, (uint32_t)w->set.micro, w->grad);
		released = zerod_release(w->client, u, 0);
		rc = rc ? rc : released;
	}
	return rc;
}

static int one_round(struct worker *w, uint64_t round)
{
	struct zerod_step_result result;
	struct zerod_hyper hyper;
	int rc = 0;

	zerod_hyper_init(&hyper);
	hyper.max_norm = 1;
	for (uint32_t micro = 0; micro < w->set.micro && rc == 0; micro++) {
		rc = forward(w);
		if (rc == 0)
			rc = backward(w, round, micro);
	}
	return rc ? rc : zerod_step(w->client, &hyper, (uint32_t)w->set.micro, &result);
}

static int train(struct worker *w)
{
	struct zerod_progress progress;
	int rc = zerod_progress(w->client, &progress), redo = 0;

	if (rc == 0 && !progress.sealed && w->set.rank == 0)
		rc = load(w);
	while (rc == 0 && progress.round < w->set.rounds) {
		rc = one_round(w, progress.round + 1);
		if (rc == ZEROD_REDO && redo++ < REDO_MAX) {
			fprintf(stderr, "again: round %" PRIu64 "\n", progress.round + 1);
			rc = 0;
			continue;
		}
		redo = 0;
		if (rc == 0)
			rc = zerod_progress(w->client, &progress);
		if (rc == 0) {
			printf("round %" PRIu64 "\n", progress.round);
			fflush(stdout);
			if (progress.round == 1)
				pause_at(w, "round");
		}
	}
	return rc;
}

static int digest(struct worker *w)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	int rc = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 ? 0 : ZEROD_ERR_MEMORY;

	for (uint32_t u = 0; u < w->set.units && rc == 0; u++) {
		rc = zerod_fetch_master(w->client, u, w->flat);
		if (rc == 0 && EVP_DigestUpdate(ctx, w->flat, w->units[u].numel * sizeof(float)) != 1)
			rc = ZEROD_ERR_MEMORY;
	}
	if (rc == 0 && EVP_DigestFinal_ex(ctx, md, &len) != 1)
		rc = ZEROD_ERR_MEMORY;
	EVP_MD_CTX_free(ctx);
	if (rc)
		return rc;
	printf("digest ");
	for (unsigned i = 0; i < len; i++)
		printf("%02x", md[i]);
	puts("");
	return 0;
}

/* ---------------------------------------------------------------- the program */

static int set_one(struct setup *set, const char *arg)
{
	struct {
		const char *key;
		const char **text;
		uint64_t *number;
	} keys[] = {
		{"endpoints", &set->endpoints, NULL}, {"job", &set->job, NULL},	      {"pause", &set->pause, NULL},
		{"rank", NULL, &set->rank},	      {"world", NULL, &set->world},   {"epoch", NULL, &set->epoch},
		{"units", NULL, &set->units},	      {"numel", NULL, &set->numel},   {"rounds", NULL, &set->rounds},
		{"micro", NULL, &set->micro},	      {"extent", NULL, &set->extent}, {"lease", NULL, &set->lease},
		{"timeout", NULL, &set->timeout},
	};
	const char *value = strchr(arg, '=');
	char *end;

	for (size_t i = 0; value && i < sizeof(keys) / sizeof(*keys); i++) {
		if (strlen(keys[i].key) != (size_t)(value - arg) || strncmp(arg, keys[i].key, (size_t)(value - arg)) != 0)
			continue;
		if (keys[i].text) {
			*keys[i].text = value + 1;
			return 0;
		}
		*keys[i].number = strtoull(value + 1, &end, 10);
		return value[1] && !*end ? 0 : -1;
	}
	return -1;
}

static int make(struct worker *w)
{
	struct setup *set = &w->set;
	struct zerod_options options;
	uint64_t most = 0;
	char why[512];

	w->units = calloc(set->units, sizeof(*w->units));
	w->names = calloc(set->units, sizeof(*w->names));
	if (!w->units || !w->names)
		return -1;
	for (uint64_t u = 0; u < set->units; u++) {
		snprintf(w->names[u], sizeof(w->names[u]), "u%" PRIu64, u);
		w->units[u] = (struct zerod_unit){w->names[u], numel_of(set, u), 0};
		most = w->units[u].numel > most ? w->units[u].numel : most;
	}
	w->grad = malloc(most * sizeof(*w->grad));
	w->flat = malloc(most * sizeof(*w->flat));
	if (!w->grad || !w->flat)
		return -1;
	zerod_options_init(&options);
	options.endpoints = set->endpoints;
	options.job = set->job;
	options.optimizer = ZEROD_OPTIMIZER_ADAMW;
	options.rank = (uint32_t)set->rank;
	options.world = (uint32_t)set->world;
	options.epoch = set->epoch;
	options.extent_elems = (uint32_t)set->extent;
	options.lease_ms = (uint32_t)set->lease;
	options.timeout_ms = (uint32_t)set->timeout;
	if (zerod_new(&w->client, &options, w->units, (uint32_t)set->units, why, sizeof(why)) == 0)
		return 0;
	fprintf(stderr, "%s\n", why);
	return -1;
}

static void unmake(struct worker *w)
{
	zerod_free(w->client);
	free(w->units);
	free(w->names);
	free(w->grad);
	free(w->flat);
}

int main(int argc, char **argv)
{
	struct worker w = {.set = {.endpoints = "", .job = "steady", .pause = "", .world = 1, .epoch = 1, .units = 8, .numel = 5000, .rounds = 4,
				   .micro = 1, .lease = 10000, .timeout = 20000}};
	int rc;

	for (int i = 1; i < argc; i++)
		if (set_one(&w.set, argv[i]) < 0) {
			fprintf(stderr, "steady_worker: expected key=value as its source lists them, found '%s'\n", argv[i]);
			return 2;
		}
	rc = make(&w) < 0 ? ZEROD_ERR_ARGUMENT : zerod_connect(w.client);
	if (rc == 0)
		rc = train(&w);
	if (rc == 0)
		rc = digest(&w);
	if (rc)
		fprintf(stderr, "%s: %s\n", zerod_status_text(rc), w.client ? zerod_detail(w.client) : "not made");
	unmake(&w);
	return rc == 0 ? 0 : rc == ZEROD_ERR_ABORTED || rc == ZEROD_ERR_CONNECT || rc == ZEROD_ERR_TIMEOUT ? 75 : 1;
}
