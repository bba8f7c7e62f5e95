/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the shell that can fail does, one at a time: the n-th libuv call or allocation from start to end of a training step, for
 * every n.  The daemon either refuses to start, with a reason and nothing left behind, or closes the connection concerned; a second worker
 * then does the same step undisturbed and gets the same weights.  Peers that vanish at every stage are the same test from outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/shell/uvx.h"
#include "tests/unit/daemon_thread.h"
#include "tests/unit/raw_job.h"

static atomic_uint calls, target;

/* Calls that have failed at least once, so that a wrapper which nobody reaches is noticed. */
static const char *const names[] = {
	"loop_init", "async_init", "thread_create", "mutex_init", "tcp_init", "tcp_bind", "tcp_open", "listen",	  "accept",
	"getsockname", "read_start", "write",	      "try_write",  "dup",	   "calloc",   "map",
};
#define NAMES (sizeof(names) / sizeof(names[0]))
static atomic_int hit[NAMES];

static int fail_at_target(const char *call)
{
	size_t i;

	if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&target))
		return 0;
	for (i = 0; i < NAMES; i++)
		if (strcmp(names[i], call) == 0)
			atomic_store(&hit[i], 1);
	return UV_ENOMEM;
}

static void arm(unsigned n)
{
	atomic_store(&calls, 0);
	atomic_store(&target, n);
	zd_uvx_fault = fail_at_target;
}

/* The hook stays where it is while threads run; it merely never matches again. */
static void disarm(void)
{
	atomic_store(&target, 0);
}

static int converse(struct daemon_thread *t, const char *name, enum raw_stage end, uint32_t *ret_sum)
{
	struct raw_peer *p = calloc(1, sizeof(*p));
	struct raw_job job;
	int done;

	assert_non_null(p);
	assert_int_equal(raw_open(p, daemon_thread_port(t)), 0);
	raw_job_init(&job, name);
	done = raw_job_run(&job, p, RAW_HELLO, end);
	if (done < (int)end && job.why != RAW_CLOSED && job.why != RAW_RESET && job.why != ZD_MSG_ERROR)
		fail_msg("stage %d ended with %d", done, job.why);
	*ret_sum = job.sum;
	raw_close(p);
	free(p);
	return done;
}

static const char *const one_lane[] = {"lanes.count=1", "timeouts.linger=100ms", NULL};

static uint32_t undisturbed_sum(void)
{
	enum zd_exit ex;
	struct daemon_thread *t = daemon_thread_start(one_lane, &ex);
	uint32_t sum = 0;

	assert_non_null(t);
	assert_int_equal(converse(t, "job", RAW_STAGES, &sum), RAW_STAGES);
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
	assert_true(sum != 0);
	return sum;
}

static void test_every_call(void **state)
{
	uint32_t want = undisturbed_sum(), sum;
	unsigned n, refused = 0, cut = 0;
	size_t i;

	(void)state;
	for (n = 1;; n++) {
		struct daemon_thread *t;
		enum zd_exit ex;
		int done;

		arm(n);
		t = daemon_thread_start(one_lane, &ex);
		if (!t) {
			assert_int_equal(ex, ZD_EXIT_FAILED);
			assert_true(strlen(daemon_thread_text()) > 10);
			refused++;
			continue;
		}
		done = converse(t, "first", RAW_STAGES, &sum);
		cut += done < RAW_STAGES;
		if (atomic_load(&calls) < n) {
			/* The whole step took fewer calls than that: all have failed. */
			disarm();
			assert_int_equal(done, RAW_STAGES);
			assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
			break;
		}
		disarm();
		sum = 0;
		assert_int_equal(converse(t, "second", RAW_STAGES, &sum), RAW_STAGES);
		assert_int_equal(sum, want);
		assert_int_equal(daemon_thread_stop(t, 1), ZD_EXIT_OK);
	}
	zd_uvx_fault = NULL;
	print_message("%u calls; %u starts refused, %u connections cut\n", n - 1, refused, cut);
	assert_true(refused > 10);
	assert_true(cut > 10);
	for (i = 0; i < NAMES; i++)
		if (!atomic_load(&hit[i]))
			fail_msg("%s never failed", names[i]);
}

/* The calls of a refusal, by the door (no HELLO) or by a lane (behind HELLO): the peer's connection ends one way or another, and the next
 * peer is served. */
static void refusals(struct daemon_thread *t, int hello)
{
	unsigned n;

	for (n = 1;; n++) {
		struct raw_peer *p = calloc(1, sizeof(*p));
		uint8_t junk[64] = "no frame";
		int type;

		assert_non_null(p);
		arm(n);
		assert_int_equal(raw_open(p, daemon_thread_port(t)), 0);
		if (hello)
			(void)raw_hello(p, ZD_ROLE_WORKER, 0);
		raw_bytes(p, junk, sizeof(junk));
		type = raw_receive(p);
		if (type == ZD_MSG_ERROR)
			type = raw_receive(p);
		assert_true(type == RAW_CLOSED || type == RAW_RESET);
		raw_close(p);
		free(p);
		if (atomic_load(&calls) < n)
			break;
		disarm();
	}
	disarm();
	assert_true(n > (hello ? 10 : 5));
}

static void test_every_call_of_a_refusal(void **state)
{
	enum zd_exit ex;
	struct daemon_thread *t = daemon_thread_start(one_lane, &ex);
	uint32_t sum;

	(void)state;
	assert_non_null(t);
	refusals(t, 0);
	refusals(t, 1);
	assert_int_equal(converse(t, "job", RAW_STAGES, &sum), RAW_STAGES);
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
	zd_uvx_fault = NULL;
}

/* A peer resets its connection at every stage, with answers on their way and memory lent to them. */
static void test_peer_vanishes(void **state)
{
	/* Room for all the jobs that are left behind, receive windows included. */
	const char *const sets[] = {"lanes.count=1", "memory.budget=384MiB", "memory.windows=192", NULL};
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	enum zd_exit ex;
	struct daemon_thread *t = daemon_thread_start(sets, &ex);
	uint32_t want, sum;
	char name[16];
	int stage, i;

	(void)state;
	assert_non_null(t);
	assert_int_equal(converse(t, "job", RAW_STAGES, &want), RAW_STAGES);
	for (stage = 0; stage < RAW_STAGES; stage++) {
		struct raw_peer *p = calloc(1, sizeof(*p));
		struct raw_job job;

		assert_non_null(p);
		snprintf(name, sizeof(name), "gone-%d", stage);
		raw_job_init(&job, name);
		assert_int_equal(raw_open(p, daemon_thread_port(t)), 0);
		assert_int_equal(raw_job_run(&job, p, RAW_HELLO, (enum raw_stage)stage), stage);
		/* Ask for more than a socket holds, and read nothing of it. */
		for (i = 0; i < (stage == RAW_FETCH ? 32 : 1); i++)
			raw_job_ask(&job, p, (enum raw_stage)stage);
		(void)setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		raw_close(p);
		free(p);
		if (stage % 2 == 0) { /* 16 jobs at most */
			snprintf(name, sizeof(name), "next-%d", stage);
			assert_int_equal(converse(t, name, RAW_STAGES, &sum), RAW_STAGES);
			assert_int_equal(sum, want);
		}
	}
	assert_int_equal(daemon_thread_stop(t, 1), ZD_EXIT_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call),
		cmocka_unit_test(test_every_call_of_a_refusal),
		cmocka_unit_test(test_peer_vanishes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
