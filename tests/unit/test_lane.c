/* SPDX-License-Identifier: Apache-2.0 */
/* A lane through real sockets: whole steps, a push that waits for a slow reader, the end in the middle of a round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/crc32c.h"
#include "server/kernel/kernel.h"
#include "server/shell/log.h"
#include "tests/unit/daemon_thread.h"
#include "tests/unit/raw_job.h"

static struct daemon_thread *start(const char *const *sets)
{
	enum zd_exit ex;
	struct daemon_thread *t;

	daemon_log_clear();
	zd_log_level(ZD_LOG_DEBUG);
	t = daemon_thread_start(sets, &ex);
	if (!t)
		fail_msg("exit %u: %s", ex, daemon_thread_text());
	return t;
}

static struct raw_peer *peer(struct daemon_thread *t)
{
	struct raw_peer *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	assert_int_equal(raw_open(p, daemon_thread_port(t)), 0);
	return p;
}

static void leave(struct raw_peer *p)
{
	raw_close(p);
	free(p);
}

static void run(struct raw_job *job, struct raw_peer *p, enum raw_stage first, enum raw_stage end)
{
	int done = raw_job_run(job, p, first, end);

	if (done != (int)end)
		fail_msg("stage %d: answer %d: %s", done, job->why,
			 job->why == ZD_MSG_ERROR ? ((const Zd__Pb__Error *)p->msg)->text : "no error");
}

#define ROUNDS 4

/* What the weights must be after each round, from the scalar kernels alone. */
static void reference(const uint32_t *patterns, const double *scales, uint32_t *sums)
{
	const struct zd_kernels *k = zd_kernels_scalar();
	uint16_t *hi = calloc(RAW_JOB_NUMEL, 2), *lo = calloc(RAW_JOB_NUMEL, 2), *grad = calloc(RAW_JOB_NUMEL, 2);
	float *w = calloc(RAW_JOB_NUMEL, 4), *m = calloc(RAW_JOB_NUMEL, 4), *v = calloc(RAW_JOB_NUMEL, 4);
	const struct zd_hyper *h = &raw_job_hyper;
	struct zd_adam_params params = {.lr = h->lr, .wd = h->weight_decay, .b1 = h->beta1, .b2 = h->beta2, .eps = h->eps};
	struct zd_reduce_result refused;
	struct zd_adam_consts consts;
	uint32_t round, i;

	assert_true(hi && lo && grad && w && m && v);
	zd_kernels_thread_init();
	for (i = 0; i < RAW_JOB_NUMEL; i++)
		w[i] = raw_job_weight(i);
	k->split[ZD_CODEC_FP32](hi, lo, w, RAW_JOB_NUMEL, &refused);
	for (round = 1; round <= ROUNDS; round++) {
		for (i = 0; i < RAW_JOB_NUMEL; i++)
			grad[i] = raw_job_grad(patterns[round - 1], i);
		zd_adam_consts_init(&consts, &params, round, scales[round - 1]);
		k->adam[ZD_GRAD_BF16_1](hi, lo, m, v, grad, NULL, RAW_JOB_NUMEL, &consts, NULL);
		sums[round - 1] = zd_crc32c(0, hi, RAW_JOB_NUMEL * 2);
	}
	free(hi);
	free(lo);
	free(grad);
	free(w);
	free(m);
	free(v);
}

/* Two jobs on one lane, in turns and then each on its own: the same step with another scale, and the same scale in another step. */
static void two_jobs(struct daemon_thread *t)
{
	static const uint32_t patterns[2][ROUNDS] = {{1, 2, 3, 4}, {5, 5, 5, 5}};
	static const uint8_t turns[2 * ROUNDS] = {0, 1, 0, 1, 0, 0, 1, 1};
	uint32_t sums[2][ROUNDS], want[ROUNDS], done[2] = {0, 0}, i;
	double scales[2][ROUNDS];
	struct raw_peer *p[2];
	struct raw_job job[2];

	for (i = 0; i < 2; i++) {
		p[i] = peer(t);
		raw_job_init(&job[i], i ? "even" : "odd");
	}
	for (i = 0; i < 2 * ROUNDS; i++) {
		uint32_t k = turns[i], r = done[k]++;

		job[k].round = r + 1;
		job[k].pattern = patterns[k][r];
		run(&job[k], p[k], r ? RAW_PUSH : RAW_HELLO, RAW_STAGES);
		sums[k][r] = job[k].sum;
		scales[k][r] = job[k].decision.scale;
	}
	assert_true(scales[0][0] != scales[0][1] && scales[0][0] != scales[1][0] && scales[1][2] == scales[1][3]);
	for (i = 0; i < 2; i++) {
		reference(patterns[i], scales[i], want);
		assert_memory_equal(sums[i], want, sizeof(want));
		leave(p[i]);
	}
}

/* Whatever the memory and the lanes, the weights are what the scalar kernels give, step by step. */
static void test_steps(void **state)
{
	const char *const variants[][5] = {
		{"lanes.count=1", NULL},
		{"lanes.count=2", "lanes.pin=yes", "memory.huge_pages=off", NULL},
		{"lanes.count=1", "memory.windows=16", "memory.budget=64MiB", NULL},
	};
	size_t v;

	(void)state;
	for (v = 0; v < 3; v++) {
		struct daemon_thread *t = start(variants[v]);

		two_jobs(t);
		assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
	}
}

/* A wrong frame with megabytes behind it: its sender is told why, instead of being reset by bytes that nobody reads. */
static void test_reason_survives_unread_bytes(void **state)
{
	struct daemon_thread *t = start(NULL);
	struct raw_peer *p = peer(t);
	uint8_t *junk = calloc(1, 8 << 20);

	(void)state;
	assert_non_null(junk);
	assert_true(raw_hello(p, ZD_ROLE_WORKER, 1));
	assert_int_equal(raw_bytes(p, junk, 8 << 20), 0);
	assert_int_equal(raw_receive(p), ZD_MSG_ERROR);
	assert_int_equal(((const Zd__Pb__Error *)p->msg)->code, ZD_ERR_BAD_MAGIC);
	assert_int_equal(raw_receive(p), RAW_CLOSED);
	leave(p);
	free(junk);
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
}

/*
 * A reader asks for far more than sockets hold and takes nothing: the weights stay lent to it.  The push after the next decision needs Adam on
 * them, so the worker's connection is parked; when the reader reads on, the push goes on, and the reader got the old version all the way.
 */
static void test_push_waits_for_a_slow_reader(void **state)
{
	const char *const sets[] = {"lanes.count=1", NULL};
	struct daemon_thread *t = start(sets);
	struct raw_peer *w = peer(t), *r = peer(t);
	struct raw_job worker, reader;
	int small = 65536, i;
	uint32_t sum;

	(void)state;
	raw_job_init(&worker, "slow");
	run(&worker, w, RAW_HELLO, RAW_STAGES);
	sum = worker.sum;
	raw_job_init(&reader, "slow");
	reader.role = ZD_ROLE_READER;
	(void)setsockopt(r->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	run(&reader, r, RAW_HELLO, RAW_LOAD);
	for (i = 0; i < 16; i++)
		raw_job_ask(&reader, r, RAW_FETCH);
	assert_int_equal(raw_job_hear(&reader, r, RAW_FETCH), 0);
	assert_int_equal(reader.sum, sum);
	worker.round = 2;
	run(&worker, w, RAW_PUSH, RAW_FETCH); /* decided: Adam is due, and cannot touch what is lent */
	worker.round = 3;
	raw_job_ask(&worker, w, RAW_PUSH);
	while (!daemon_log_has("event=reading-stopped"))
		assert_int_equal(sched_yield(), 0);
	for (i = 1; i < 16; i++)
		assert_int_equal(raw_job_hear(&reader, r, RAW_FETCH), 0);
	assert_int_equal(raw_job_hear(&worker, w, RAW_PUSH), 0);
	run(&worker, w, RAW_COMMIT, RAW_STAGES);
	leave(r);
	leave(w);
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
}

/* SIGTERM in the middle of a round: the round may end, then the daemon does. */
static void test_drain_lets_a_round_end(void **state)
{
	const char *const sets[] = {"lanes.count=2", "timeouts.drain=600s", "timeouts.linger=50ms", NULL};
	struct daemon_thread *t = start(sets);
	struct raw_peer *p = peer(t);
	struct raw_job job;

	(void)state;
	raw_job_init(&job, "drain");
	run(&job, p, RAW_HELLO, RAW_COMMIT);
	zd_daemon_term(daemon_thread_daemon(t), 0);
	run(&job, p, RAW_COMMIT, RAW_FETCH);
	assert_int_equal(daemon_thread_join(t), ZD_EXIT_OK);
	assert_true(daemon_log_has("event=drained"));
	assert_false(daemon_log_has("event=drain-timeout"));
	leave(p);
}

/* A round that nobody ends holds the daemon up for timeouts.drain and no longer; a second SIGTERM does not wait at all. */
static void test_drain_is_bounded(void **state)
{
	const char *const sets[][3] = {{"timeouts.drain=50ms", "timeouts.linger=50ms", NULL}, {"timeouts.drain=600s", NULL}};
	int hurry;

	(void)state;
	for (hurry = 0; hurry < 2; hurry++) {
		struct daemon_thread *t = start(sets[hurry]);
		struct raw_peer *p = peer(t);
		struct raw_job job;

		raw_job_init(&job, "drain");
		run(&job, p, RAW_HELLO, RAW_COMMIT);
		if (hurry)
			zd_daemon_term(daemon_thread_daemon(t), 0);
		assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
		assert_int_equal(daemon_log_has("event=drain-timeout"), !hurry);
		assert_int_equal(daemon_log_has("event=hurry"), hurry);
		leave(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_reason_survives_unread_bytes),
		cmocka_unit_test(test_push_waits_for_a_slow_reader),
		cmocka_unit_test(test_drain_lets_a_round_end),
		cmocka_unit_test(test_drain_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
