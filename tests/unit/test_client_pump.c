/* SPDX-License-Identifier: Apache-2.0 */
/* libzerod through real sockets, against daemons in this process and against what is no zerod. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/zerod.h"
#include "tests/unit/client_must.h"
#include "tests/unit/daemon_thread.h"

#define N0 300000u
#define N1 70000u

static const struct zerod_unit units[] = {{"first", N0, 0}, {"still", 5000, 1}, {"last", N1, 0}};
static struct daemon_thread *daemons[2];
static char endpoints[64];

/* A name to resolve, where the host knows one. */
static const char *loopback_name(void)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;

	if (getaddrinfo("localhost", NULL, &hints, &list) != 0) {
		printf("SKIP names of hosts: localhost does not resolve here\n");
		return "127.0.0.1";
	}
	freeaddrinfo(list);
	return "localhost";
}

static int start_daemons(void **state)
{
	static const char *const sets[] = {NULL};
	enum zd_exit ex;

	(void)state;
	for (int i = 0; i < 2; i++) {
		daemons[i] = daemon_thread_start(sets, &ex);
		if (!daemons[i]) {
			print_error("%s\n", daemon_thread_text());
			return -1;
		}
	}
	snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,%s:%u", daemon_thread_port(daemons[0]), loopback_name(),
		 daemon_thread_port(daemons[1]));
	return 0;
}

static int stop_daemons(void **state)
{
	(void)state;
	return daemon_thread_stop(daemons[0], 1) != ZD_EXIT_OK || daemon_thread_stop(daemons[1], 1) != ZD_EXIT_OK;
}

static struct zerod_options options_of(const char *where, const char *job, uint32_t rank, uint32_t world)
{
	struct zerod_options o;

	zerod_options_init(&o);
	o.endpoints = where;
	o.job = job;
	o.rank = rank;
	o.world = world;
	return o;
}

static struct zerod_client *make_with(const struct zerod_options *o)
{
	struct zerod_client *client;
	char text[300];

	if (zerod_new(&client, o, units, 3, text, sizeof(text)) != ZEROD_OK)
		fail_msg("%s", text);
	return client;
}

static struct zerod_client *make(const char *where, const char *job, uint32_t rank, uint32_t world, uint32_t connect_ms)
{
	struct zerod_options o = options_of(where, job, rank, world);

	if (connect_ms)
		o.connect_timeout_ms = connect_ms;
	return make_with(&o);
}

/* ---------------------------------------------------------------- no daemon */

static int listener(char *where, size_t size)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(where, size, "127.0.0.1:%u", ntohs(a.sin_port));
	return fd;
}

static void test_refused(void **state)
{
	char where[64];
	int fd = listener(where, sizeof(where)); /* bound, not listening */
	struct zerod_client *client = make(where, "j", 0, 1, 200);

	(void)state;
	assert_int_equal(zerod_connect(client), ZEROD_ERR_CONNECT);
	assert_non_null(strstr(zerod_detail(client), where));
	assert_non_null(strstr(zerod_detail(client), "connection refused"));
	zerod_free(client);
	close(fd);
}

static void test_silent(void **state)
{
	char where[64];
	int fd = listener(where, sizeof(where));
	struct zerod_client *client = make(where, "j", 0, 1, 200);

	(void)state;
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(zerod_connect(client), ZEROD_ERR_CONNECT);
	assert_non_null(strstr(zerod_detail(client), "does not answer HELLO"));
	zerod_free(client);
	close(fd);
}

static void *answer_http(void *arg)
{
	static const char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
	char in[256];
	int fd = accept(*(int *)arg, NULL, NULL);

	if (fd >= 0) {
		(void)!read(fd, in, sizeof(in));
		(void)!write(fd, text, sizeof(text));
		close(fd);
	}
	return NULL;
}

static void test_other_protocol(void **state)
{
	char where[64];
	int fd = listener(where, sizeof(where));
	struct zerod_client *client = make(where, "j", 0, 1, 20000);
	pthread_t thread;

	(void)state;
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(pthread_create(&thread, NULL, answer_http, &fd), 0);
	assert_int_equal(zerod_connect(client), ZEROD_ERR_CONNECT);
	assert_non_null(strstr(zerod_detail(client), "speaks another protocol"));
	pthread_join(thread, NULL);
	zerod_free(client);
	close(fd);
}

/* ---------------------------------------------------------------- a training */

struct worker {
	const char *job;
	uint32_t rank, world;
	struct zerod_stats stats;
	float *master;
};

static void note_push(struct zerod_client *client, void *arg, int status)
{
	int *statuses = arg;

	(void)client;
	statuses[status == ZEROD_OK]++;
}

static int train(struct zerod_client *client, struct worker *w, uint16_t *grad)
{
	struct zerod_hyper hyper;
	struct zerod_step_result result;
	const uint16_t *weights;
	int done[2] = {0, 0}, rc;

	zerod_hyper_init(&hyper);
	for (uint32_t i = 0; i < N0; i++)
		grad[i] = (uint16_t)(0x3f80 + w->rank);
	for (uint64_t round = 1; round <= 3; round++) {
		for (uint32_t u = 0; u < 6; u++) {
			uint32_t unit = u < 3 ? u : 5 - u;

			rc = zerod_gather(client, unit, &weights);
			if (rc)
				return rc;
			if (weights != zerod_weights(client, unit))
				return 100;
			rc = zerod_release(client, unit, 0);
			if (rc)
				return rc;
		}
		for (uint32_t u = 3; u-- > 0;) {
			rc = u == 1 ? 0 : zerod_push_start(client, u, 0, 1, grad, note_push, done);
			if (rc)
				return rc;
		}
		rc = zerod_step(client, &hyper, 1, &result);
		if (rc)
			return rc;
		if (result.round != round || result.step != round)
			return 101;
	}
	if (done[0] != 0 || done[1] != 6)
		return 102;
	return zerod_stats(client, &w->stats);
}

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	struct zerod_client *client = make(endpoints, w->job, w->rank, w->world, 0);
	uint16_t *grad = malloc(2 * N0);
	struct zerod_progress progress;

	MUST(zerod_connect(client));
	if (w->rank == 0) {
		memset(grad, 0, 2 * N0);
		for (uint32_t u = 0; u < 3; u++)
			MUST(zerod_load(client, u, ZEROD_BF16, grad));
		MUST(zerod_seal(client));
	}
	MUST(train(client, w, grad));
	w->master = malloc(N0 * sizeof(float));
	MUST(zerod_fetch_master(client, 0, w->master));
	MUST(zerod_progress(client, &progress));
	assert_int_equal(progress.round, 3);
	assert_int_equal(progress.lanes, 4);
	zerod_free(client);
	free(grad);
	return NULL;
}

static void test_two_workers(void **state)
{
	struct worker w[2] = {{.job = "two", .rank = 0, .world = 2}, {.job = "two", .rank = 1, .world = 2}};
	pthread_t thread[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, run_worker, &w[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_memory_equal(w[0].master, w[1].master, N0 * sizeof(float));
	for (uint32_t i = 0; i < N0; i++)
		if (!(w[0].master[i] < -0.0029f && w[0].master[i] > -0.0031f)) /* three steps of Adam against a constant gradient: -lr each */
			fail_msg("element %u is %g", i, (double)w[0].master[i]);
	for (int i = 0; i < 2; i++) {
		assert_true(w[i].stats.gathered_bytes_max <= w[i].stats.gather_bytes_limit);
		assert_int_equal(w[i].stats.payload_sent, 3 * 2 * (N0 + N1) + (i == 0 ? 2 * (N0 + N1 + 5000) : 0));
		assert_int_equal(w[i].stats.reconnects + w[i].stats.redos, 0);
		free(w[i].master);
	}
}

/* ---------------------------------------------------------------- who is waited for */

/* Rank 0 is told about rank 1, which does its next thing only then. */
struct told {
	sem_t absent, behind; /* posted when it is said to be so */
	uint64_t others;      /* ranks of which something was said, too */
};

static void tell(void *arg, const struct zerod_progress *p)
{
	struct told *told = arg;

	if (p->absent == 2 && p->behind == 0)
		sem_post(&told->absent);
	else if (p->absent == 0 && p->behind == 2)
		sem_post(&told->behind);
	told->others |= (p->absent | p->behind) & ~2ull;
}

static struct zerod_client *make_waiting(uint32_t rank, struct told *told)
{
	struct zerod_options o = options_of(endpoints, "waits", rank, 2);

	o.lease_ms = 1000; /* daemons are asked every quarter of it */
	o.waiting = rank == 0 ? tell : NULL;
	o.waiting_arg = told;
	return make_with(&o);
}

static void step_once(struct zerod_client *client, const uint16_t *grad)
{
	struct zerod_hyper hyper;

	zerod_hyper_init(&hyper);
	MUST(zerod_push(client, 2, 0, 1, grad));
	MUST(zerod_push(client, 0, 0, 1, grad));
	MUST(zerod_step(client, &hyper, 1, NULL));
}

static void *come_late(void *arg)
{
	struct told *told = arg;
	struct zerod_client *client = make_waiting(1, told);
	uint16_t *grad = calloc(N0, 2);

	sem_wait(&told->absent);
	MUST(zerod_connect(client));
	sem_wait(&told->behind);
	step_once(client, grad);
	zerod_free(client);
	free(grad);
	return NULL;
}

static void test_who_waits_is_told_for_whom(void **state)
{
	struct told told = {.others = 0};
	struct zerod_client *client = make_waiting(0, &told);
	uint16_t *grad = calloc(N0, 2);
	struct zerod_progress progress;
	pthread_t thread;

	(void)state;
	assert_int_equal(sem_init(&told.absent, 0, 0) | sem_init(&told.behind, 0, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, come_late, &told), 0);
	MUST(zerod_connect(client));
	for (uint32_t u = 0; u < 3; u++)
		MUST(zerod_load(client, u, ZEROD_BF16, grad));
	MUST(zerod_seal(client));
	step_once(client, grad);
	MUST(zerod_progress(client, &progress));
	assert_int_equal(progress.round, 1);
	assert_int_equal(progress.absent | progress.behind, 0);
	assert_int_equal(told.others, 0);
	pthread_join(thread, NULL);
	zerod_free(client);
	free(grad);
}

/* ---------------------------------------------------------------- calls */

struct seen {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int done, status, inner;
	char text[200];
};

static void note(struct zerod_client *client, void *arg, int status)
{
	struct seen *seen = arg;

	pthread_mutex_lock(&seen->lock);
	seen->inner = zerod_push_flush(client); /* may not block here */
	seen->done++;
	seen->status = status;
	snprintf(seen->text, sizeof(seen->text), "%s", zerod_detail(client));
	pthread_cond_signal(&seen->cond);
	pthread_mutex_unlock(&seen->lock);
}

static void test_free_cancels(void **state)
{
	struct seen seen = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1, -1, ""};
	struct zerod_client *client = make(endpoints, "open", 0, 1, 0);
	float *dst = malloc(N0 * sizeof(float));

	(void)state;
	MUST(zerod_connect(client));
	MUST(zerod_gather_start(client, 0, note, &seen)); /* never answered: the job is not sealed */
	MUST(zerod_fetch_master_start(client, 0, dst, note, &seen));
	zerod_free(client);
	assert_int_equal(seen.done, 2);
	assert_int_equal(seen.status, ZEROD_ERR_CANCELED);
	assert_int_equal(seen.inner, ZEROD_ERR_STATE);
	free(dst);
}

static void test_wrong_calls(void **state)
{
	struct zerod_client *client = make(endpoints, "wrong", 0, 1, 0);
	struct zerod_progress progress;
	struct zerod_hyper hyper;
	uint16_t *grad = calloc(2, N0);

	(void)state;
	zerod_hyper_init(&hyper);
	assert_int_equal(zerod_progress(client, &progress), ZEROD_ERR_STATE);
	assert_int_equal(zerod_push(client, 0, 0, 1, grad), ZEROD_ERR_STATE);
	assert_non_null(strstr(zerod_detail(client), "zerod_connect first"));
	MUST(zerod_connect(client));
	MUST(zerod_connect(client));
	assert_int_equal(zerod_push(client, 3, 0, 1, grad), ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(zerod_detail(client), "unit 3 does not exist: the job has 3"));
	assert_int_equal(zerod_push(client, 0, 0, 1, NULL), ZEROD_ERR_ARGUMENT);
	assert_int_equal(zerod_release(client, 0, 0), ZEROD_ERR_STATE);
	assert_int_equal(zerod_seal(client), ZEROD_ERR_REFUSED);
	assert_non_null(strstr(zerod_detail(client), "lane "));
	hyper.lr = -1;
	assert_int_equal(zerod_step(client, &hyper, 1, NULL), ZEROD_ERR_ARGUMENT);
	assert_int_equal(zerod_connect(NULL), ZEROD_ERR_ARGUMENT);
	zerod_free(client);
	free(grad);
}

static void test_rank_taken(void **state)
{
	struct zerod_client *client = make(endpoints, "taken", 0, 1, 0), *other = make(endpoints, "taken", 0, 1, 0);

	(void)state;
	MUST(zerod_connect(client));
	assert_int_equal(zerod_connect(other), ZEROD_ERR_REFUSED);
	assert_non_null(strstr(zerod_detail(other), "rank"));
	zerod_free(other);
	zerod_free(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),	  cmocka_unit_test(test_silent),      cmocka_unit_test(test_other_protocol),
		cmocka_unit_test(test_two_workers), cmocka_unit_test(test_free_cancels), cmocka_unit_test(test_wrong_calls),
		cmocka_unit_test(test_rank_taken),  cmocka_unit_test(test_who_waits_is_told_for_whom),
	};

	return cmocka_run_group_tests(tests, start_daemons, stop_daemons);
}
