/* SPDX-License-Identifier: Apache-2.0 */
/* libzerod as it is called by a program with threads, callbacks and children: who may call, what a call leaves alone, where its words are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/zerod.h"
#include "tests/unit/client_must.h"
#include "tests/unit/daemon_thread.h"

#define N 70000u
#define UNITS 3u
#define THREADS 4u
#define ROUNDS 20u

static const struct zerod_unit units[UNITS] = {{"first", N, 0}, {"still", 5000, 1}, {"last", 1, 0}};
static struct daemon_thread *daemon_one;
static char endpoint[32];
static float zeros[N];

static int start_daemon(void **state)
{
	static const char *const sets[] = {NULL};
	enum zd_exit ex;

	(void)state;
	daemon_one = daemon_thread_start(sets, &ex);
	if (!daemon_one) {
		print_error("%s\n", daemon_thread_text());
		return -1;
	}
	snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", daemon_thread_port(daemon_one));
	return 0;
}

static int stop_daemon(void **state)
{
	(void)state;
	return daemon_thread_stop(daemon_one, 1) != ZD_EXIT_OK;
}

static struct zerod_client *make(const char *job)
{
	struct zerod_options o;
	struct zerod_client *client;
	char text[300];

	zerod_options_init(&o);
	o.endpoints = endpoint;
	o.job = job;
	if (zerod_new(&client, &o, units, UNITS, text, sizeof(text)) != ZEROD_OK)
		fail_msg("%s", text);
	return client;
}

static struct zerod_client *make_sealed(const char *job)
{
	struct zerod_client *client = make(job);

	MUST(zerod_connect(client));
	for (uint32_t u = 0; u < UNITS; u++)
		MUST(zerod_load(client, u, ZEROD_FP32, zeros));
	MUST(zerod_seal(client));
	return client;
}

static void assert_tells(const struct zerod_client *client, const char *part)
{
	if (!strstr(zerod_detail(client), part))
		fail_msg("expected \"%s\" in \"%s\"", part, zerod_detail(client));
}

/* ---------------------------------------------------------------- what a call leaves alone */

#define KEEPS_ERRNO(call)                                                                                                             \
	do {                                                                                                                          \
		errno = 12345;                                                                                                        \
		call;                                                                                                                 \
		if (errno != 12345)                                                                                                   \
			fail_msg("%s: errno is %d", #call, errno);                                                                    \
	} while (0)

static void test_errno_is_the_callers(void **state)
{
	static uint16_t grad[N];
	struct zerod_options o;
	struct zerod_client *client;
	struct zerod_progress progress;
	struct zerod_hyper hyper;
	struct zerod_stats stats;
	uint32_t plan[] = {0, 1, 2};
	char text[300];

	(void)state;
	zerod_hyper_init(&hyper);
	zerod_options_init(&o);
	o.endpoints = "nowhere";
	o.job = "errno";
	KEEPS_ERRNO(assert_int_equal(zerod_new(&client, &o, units, UNITS, text, sizeof(text)), ZEROD_ERR_ARGUMENT));
	o.endpoints = endpoint;
	KEEPS_ERRNO(assert_int_equal(zerod_new(&client, &o, units, UNITS, text, sizeof(text)), ZEROD_OK));
	KEEPS_ERRNO(MUST(zerod_connect(client)));
	for (uint32_t u = 0; u < UNITS; u++)
		KEEPS_ERRNO(MUST(zerod_load(client, u, ZEROD_FP32, zeros)));
	KEEPS_ERRNO(MUST(zerod_seal(client)));
	KEEPS_ERRNO(MUST(zerod_plan_gathers(client, plan, 3)));
	KEEPS_ERRNO(MUST(zerod_gather(client, 0, NULL)));
	KEEPS_ERRNO(MUST(zerod_release(client, 0, 0)));
	KEEPS_ERRNO(MUST(zerod_push_start(client, 0, 0, 1, grad, NULL, NULL)));
	KEEPS_ERRNO(MUST(zerod_push(client, 2, 0, 1, grad)));
	KEEPS_ERRNO(MUST(zerod_step(client, &hyper, 1, NULL)));
	KEEPS_ERRNO(MUST(zerod_progress(client, &progress)));
	KEEPS_ERRNO(MUST(zerod_stats(client, &stats)));
	KEEPS_ERRNO(zerod_free(client));
}

/* ---------------------------------------------------------------- where the words are */

static void test_every_refusal_has_words(void **state)
{
	struct zerod_client *client = make("words");
	struct zerod_options o;
	char text[300];

	(void)state;
	assert_int_equal(zerod_progress(client, NULL), ZEROD_ERR_ARGUMENT);
	assert_tells(client, "ret_progress is NULL");
	assert_int_equal(zerod_stats(client, NULL), ZEROD_ERR_ARGUMENT);
	assert_tells(client, "ret_stats is NULL");
	assert_int_equal(zerod_step_result(client, NULL), ZEROD_ERR_ARGUMENT);
	assert_tells(client, "ret_result is NULL");
	assert_int_equal(zerod_plan_gathers(client, NULL, 1), ZEROD_ERR_ARGUMENT);
	assert_tells(client, "units is NULL");
	assert_string_equal(zerod_detail(NULL), "");
	zerod_free(client);
	zerod_options_init(&o);
	o.endpoints = endpoint;
	o.job = "words";
	assert_int_equal(zerod_new(&client, &o, NULL, 3, text, sizeof(text)), ZEROD_ERR_ARGUMENT);
	assert_string_equal(text, "units is NULL");
}

struct seen {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint32_t done;
	int status, blocking, wrong;
	char text[300], blocking_text[300], wrong_text[300];
};
#define SEEN {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1, -1, -1, "", "", ""}

static void note(struct zerod_client *client, void *arg, int status)
{
	struct seen *seen = arg;

	pthread_mutex_lock(&seen->lock);
	seen->status = status;
	snprintf(seen->text, sizeof(seen->text), "%s", zerod_detail(client));
	seen->blocking = zerod_gather(client, 0, NULL);
	snprintf(seen->blocking_text, sizeof(seen->blocking_text), "%s", zerod_detail(client));
	seen->wrong = zerod_push_start(client, UNITS, 0, 1, zeros, NULL, NULL);
	snprintf(seen->wrong_text, sizeof(seen->wrong_text), "%s", zerod_detail(client));
	zerod_free(client); /* not here: it would wait for this thread */
	seen->done++;
	pthread_cond_signal(&seen->cond);
	pthread_mutex_unlock(&seen->lock);
}

static void wait_until(struct seen *seen, uint32_t done)
{
	pthread_mutex_lock(&seen->lock);
	while (seen->done < done)
		pthread_cond_wait(&seen->cond, &seen->lock);
	pthread_mutex_unlock(&seen->lock);
}

/* A callback has words of its own: of the operation, then of what it calls itself; the other thread keeps those of its last call. */
static void test_words_of_a_callback(void **state)
{
	struct zerod_client *client = make("callback");
	struct seen seen = SEEN;

	(void)state;
	MUST(zerod_connect(client));
	assert_int_equal(zerod_push(client, 1, 0, 1, zeros), ZEROD_ERR_ARGUMENT);
	assert_tells(client, "\"still\" is frozen");
	MUST(zerod_push_start(client, 0, 1, 1, zeros, note, &seen));
	wait_until(&seen, 1);
	assert_int_equal(seen.status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(seen.text, "micro-batch 1 of unit \"first\""));
	assert_int_equal(seen.blocking, ZEROD_ERR_STATE);
	assert_non_null(strstr(seen.blocking_text, "a blocking call from a callback"));
	assert_int_equal(seen.wrong, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(seen.wrong_text, "unit 3 does not exist"));
	assert_tells(client, "\"still\" is frozen");
	zerod_free(client);
}

/* What this process lacks is not asked of the daemon. */
static void test_words_of_too_few_descriptors(void **state)
{
	struct zerod_options o;
	struct zerod_client *client;
	struct rlimit files, none;
	int lowest, rc;

	(void)state;
	zerod_options_init(&o);
	o.endpoints = endpoint;
	o.job = "descriptors";
	o.connect_timeout_ms = 100;
	assert_int_equal(zerod_new(&client, &o, units, UNITS, NULL, 0), ZEROD_OK);
	lowest = dup(STDOUT_FILENO);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = (struct rlimit){(rlim_t)lowest, files.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	rc = zerod_connect(client);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_int_equal(rc, ZEROD_ERR_CONNECT);
	assert_tells(client, "too many open files in this process: raise ulimit -n, or close some");
	assert_null(strstr(zerod_detail(client), "is zerod running"));
	while (rc == ZEROD_ERR_CONNECT || rc == ZEROD_ERR_TIMEOUT) /* it goes on trying */
		rc = zerod_connect(client);
	assert_int_equal(rc, ZEROD_OK);
	zerod_free(client);
}

/* ---------------------------------------------------------------- who may call */

struct crew {
	struct zerod_client *client;
	uint32_t index;
};

static void *gather_and_fail(void *arg)
{
	const struct crew *c = arg;
	struct zerod_client *client = c->client;
	struct zerod_progress progress;
	const uint16_t *weights;
	char words[64];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t unit = (c->index + i) % UNITS, none = UNITS + c->index * ROUNDS + i;

		MUST(zerod_gather(client, unit, &weights));
		assert_ptr_equal(weights, zerod_weights(client, unit));
		assert_int_equal(weights[0], 0);
		MUST(zerod_release(client, unit, 0));
		MUST(zerod_progress(client, &progress));
		snprintf(words, sizeof(words), "unit %u does not exist", none);
		assert_int_equal(zerod_gather(client, none, NULL), ZEROD_ERR_ARGUMENT);
		assert_tells(client, words);
	}
	return NULL;
}

static void test_threads_call_at_once(void **state)
{
	struct zerod_client *client = make_sealed("threads");
	struct crew crew[THREADS];
	pthread_t thread[THREADS];

	(void)state;
	for (uint32_t i = 0; i < THREADS; i++) {
		crew[i] = (struct crew){client, i};
		assert_int_equal(pthread_create(&thread[i], NULL, gather_and_fail, &crew[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t u = 0; u < UNITS; u++)
		assert_int_equal(zerod_release(client, u, 0), ZEROD_ERR_STATE); /* as many as there were gathers */
	zerod_free(client);
}

struct chain {
	uint32_t started, done;
	int refused;
};

static void start_again(struct zerod_client *client, void *arg, int status)
{
	struct chain *chain = arg;

	chain->done++;
	if (status != ZEROD_ERR_CANCELED)
		return;
	chain->refused = zerod_connect_start(client, start_again, chain);
	chain->started += chain->refused == ZEROD_OK;
}

/* What a callback starts while the client is freed is refused, or has its end: nothing is taken and forgotten. */
static void test_a_callback_of_a_freed_client(void **state)
{
	struct chain chain = {.started = 1, .refused = -1};
	struct zerod_options o;
	struct zerod_client *client;

	(void)state;
	zerod_options_init(&o);
	o.endpoints = "127.0.0.1:1";
	o.job = "freed";
	assert_int_equal(zerod_new(&client, &o, units, UNITS, NULL, 0), ZEROD_OK);
	MUST(zerod_connect_start(client, start_again, &chain));
	zerod_free(client);
	assert_int_equal(chain.done, chain.started);
	assert_int_equal(chain.refused, ZEROD_ERR_CANCELED);
}

/* In a forked child nobody would ever carry out what it asks for: it is told so, and may drop its copy. */
static void child_of(struct zerod_client *client)
{
	struct zerod_progress progress;
	int wrong = 0;

	alarm(60); /* a call that blocks here does so for ever */
	wrong |= zerod_gather(client, 0, NULL) != ZEROD_ERR_STATE || !strstr(zerod_detail(client), "was forked from");
	wrong |= zerod_gather_start(client, 0, NULL, NULL) != ZEROD_ERR_STATE;
	wrong |= zerod_plan_gathers(client, (const uint32_t[]){0}, 1) != ZEROD_ERR_STATE;
	wrong |= zerod_release(client, 0, 0) != ZEROD_ERR_STATE;
	wrong |= zerod_progress(client, &progress) != ZEROD_ERR_STATE;
	wrong |= zerod_weights(client, 0) != NULL;
	zerod_free(client);
	_exit(wrong);
}

static void test_a_forked_child(void **state)
{
	struct zerod_client *client = make_sealed("fork");
	struct zerod_hyper hyper;
	struct zerod_stats stats;
	int status = -1;
	pid_t child;

	(void)state;
	MUST(zerod_gather(client, 0, NULL));
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		child_of(client);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("the child ended with status %#x", (unsigned)status);
	MUST(zerod_release(client, 0, 0));
	zerod_hyper_init(&hyper);
	MUST(zerod_push(client, 0, 0, 1, zeros));
	MUST(zerod_push(client, 2, 0, 1, zeros));
	MUST(zerod_step(client, &hyper, 1, NULL));
	MUST(zerod_stats(client, &stats));
	assert_int_equal(stats.reconnects, 0);
	zerod_free(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errno_is_the_callers), cmocka_unit_test(test_every_refusal_has_words),
		cmocka_unit_test(test_words_of_a_callback),  cmocka_unit_test(test_words_of_too_few_descriptors),
		cmocka_unit_test(test_threads_call_at_once), cmocka_unit_test(test_a_forked_child),
		cmocka_unit_test(test_a_callback_of_a_freed_client),
	};

	return cmocka_run_group_tests(tests, start_daemon, stop_daemon);
}
