/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gradient that is not finite, through the whole of libzerod and a daemon: the step is skipped on all ranks, every one of them hears which
 * element of which unit it was and whose, the weights stay as they are, and the training goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include <cmocka.h>

#include "client/include/zerod.h"
#include "tests/unit/daemon_thread.h"

#define WORLD 2u
#define ROUNDS 3u
#define BAD 1u /* the second round */
#define N0 300000u
#define N1 70000u

static const struct zerod_unit units[] = {{"first", N0, 0}, {"still", 5000, 1}, {"last", N1, 0}};
static const uint64_t numel[] = {N0, 5000, N1};
static struct daemon_thread *daemon_thread;

struct nan_case {
	const char *name;
	uint32_t codec, micros;
	uint32_t unit, rank, micro; /* where the bad element is */
	uint64_t element;
	uint32_t bits;	/* what it is, in fp32 */
	uint32_t also;	/* what the other rank has there, or 0: a good value */
	uint64_t count; /* elements that are not finite */
};

static const struct nan_case cases[] = {
	{"nan-of-rank-0", ZEROD_BF16, 1, 0, 0, 0, 131072, 0x7fc00000, 0, 1}, /* the first of an extent */
	{"nan-of-rank-1", ZEROD_BF16, 1, 2, 1, 0, N1 - 1, 0xffc00000, 0, 1}, /* the last of a unit */
	{"infinity", ZEROD_BF16, 2, 2, 1, 1, 0, 0xff800000, 0, 1},
	{"fp32", ZEROD_FP32, 1, 0, 1, 0, N0 - 1, 0x7f800001, 0, 1},
	{"fp16", ZEROD_FP16, 3, 0, 0, 2, 4095, 0x7f800000, 0, 1},
	{"sum-too-large", ZEROD_BF16, 1, 0, 1, 0, 7, 0x7f7f0000, 0x7f7f0000, 1}, /* each is finite: whoever was added last */
};

struct worker {
	const struct nan_case *c;
	uint32_t rank;
	int failed; /* line, 0: none */
	char text[512];
	struct zerod_step_result result[ROUNDS];
	float *weights[ROUNDS][3];
};

/* The k-th element of a gradient that is 0.01 with either sign, in the case's codec. */
static void put(void *grad, uint32_t codec, uint64_t k, uint32_t bits)
{
	uint16_t half = bits == 0x7f800000 ? 0x7c00 : bits >> 31 ? 0xa11f : 0x211f; /* fp16 */

	if (codec == ZEROD_FP32)
		memcpy((uint8_t *)grad + 4 * k, &bits, 4);
	else if (codec == ZEROD_BF16)
		((uint16_t *)grad)[k] = (uint16_t)(bits >> 16);
	else
		((uint16_t *)grad)[k] = half;
}

static void make_gradient(const struct worker *w, uint32_t round, uint32_t unit, uint32_t micro, void *grad)
{
	const struct nan_case *c = w->c;

	for (uint64_t k = 0; k < numel[unit]; k++)
		put(grad, c->codec, k, (k + round + w->rank) % 3 ? 0x3c240000 : 0xbc240000);
	if (round != BAD || unit != c->unit || micro != c->micro)
		return;
	if (w->rank == c->rank)
		put(grad, c->codec, c->element, c->bits);
	else if (c->also)
		put(grad, c->codec, c->element, c->also);
}

#define TRY(call)                                                                                                                     \
	do {                                                                                                                          \
		if ((call) != ZEROD_OK) {                                                                                             \
			w->failed = __LINE__;                                                                                         \
			snprintf(w->text, sizeof(w->text), "%s: %s", #call, zerod_detail(client));                                    \
			return;                                                                                                       \
		}                                                                                                                     \
	} while (0)

static void train(struct worker *w, struct zerod_client *client, void *memory)
{
	struct zerod_hyper hyper;
	float *initial = memory;

	zerod_hyper_init(&hyper);
	TRY(zerod_connect(client));
	for (uint64_t k = 0; k < N0; k++)
		initial[k] = (float)(k % 1000) * 0.001f;
	for (uint32_t u = 0; u < 3; u++)
		TRY(zerod_load(client, u, ZEROD_FP32, initial));
	TRY(zerod_seal(client));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t micro = 0; micro < w->c->micros; micro++)
			for (uint32_t u = 0; u < 3; u += 2) {
				make_gradient(w, round, u, micro, memory);
				TRY(zerod_push(client, u, micro, w->c->micros, memory));
			}
		TRY(zerod_step(client, &hyper, w->c->micros, &w->result[round]));
		for (uint32_t u = 0; u < 3; u += 2)
			TRY(zerod_fetch_master(client, u, w->weights[round][u]));
	}
}

static void *run(void *arg)
{
	struct worker *w = arg;
	struct zerod_options o;
	struct zerod_client *client;
	char where[64];
	void *memory = malloc(N0 * 4);

	zerod_options_init(&o);
	snprintf(where, sizeof(where), "127.0.0.1:%u", daemon_thread_port(daemon_thread));
	o.endpoints = where;
	o.job = w->c->name;
	o.grad_codec = w->c->codec;
	o.rank = w->rank;
	o.world = WORLD;
	if (!memory || zerod_new(&client, &o, units, 3, w->text, sizeof(w->text)) != ZEROD_OK) {
		w->failed = __LINE__;
	} else {
		train(w, client, memory);
		zerod_free(client);
	}
	free(memory);
	return NULL;
}

static void check(const struct nan_case *c, struct worker *w)
{
	for (uint32_t r = 0; r < WORLD; r++) {
		const struct zerod_step_result *bad = &w[r].result[BAD];

		if (w[r].failed)
			fail_msg("%s, rank %u, line %d: %s", c->name, r, w[r].failed, w[r].text);
		assert_int_equal(w[r].result[0].skipped, 0);
		assert_int_equal(w[r].result[0].step, 1);
		assert_int_equal(bad->skipped, 1);
		assert_int_equal(bad->round, 2);
		assert_int_equal(bad->step, 1);
		assert_int_equal(bad->bad_unit, c->unit);
		assert_int_equal(bad->bad_rank, c->rank);
		assert_int_equal(bad->bad_element, c->element);
		assert_int_equal(bad->nonfinite, c->count);
		assert_int_equal(w[r].result[2].skipped, 0);
		assert_int_equal(w[r].result[2].step, 2);
		for (uint32_t u = 0; u < 3; u += 2) {
			assert_memory_equal(w[r].weights[0][u], w[r].weights[BAD][u], numel[u] * 4);
			assert_memory_not_equal(w[r].weights[BAD][u], w[r].weights[2][u], numel[u] * 4);
			assert_memory_equal(w[0].weights[2][u], w[r].weights[2][u], numel[u] * 4);
		}
	}
}

static void test_skipped_and_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct worker w[WORLD] = {{.c = &cases[i]}, {.c = &cases[i], .rank = 1}};
		pthread_t threads[WORLD];

		for (uint32_t r = 0; r < WORLD; r++) {
			for (uint32_t k = 0; k < ROUNDS; k++)
				for (uint32_t u = 0; u < 3; u += 2)
					w[r].weights[k][u] = calloc(numel[u], 4);
			assert_int_equal(pthread_create(&threads[r], NULL, run, &w[r]), 0);
		}
		for (uint32_t r = 0; r < WORLD; r++)
			pthread_join(threads[r], NULL);
		check(&cases[i], w);
		for (uint32_t r = 0; r < WORLD; r++)
			for (uint32_t k = 0; k < ROUNDS; k++)
				for (uint32_t u = 0; u < 3; u += 2)
					free(w[r].weights[k][u]);
	}
}

static int start(void **state)
{
	enum zd_exit ex;

	(void)state;
	daemon_thread = daemon_thread_start(NULL, &ex);
	return daemon_thread ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	return daemon_thread_stop(daemon_thread, 1) != ZD_EXIT_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_skipped_and_named),
	};

	return cmocka_run_group_tests_name("client: gradients that are not finite", tests, start, stop);
}
