/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/daemon_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "server/shell/log.h"

#define SETS_MAX 32u

struct daemon_thread {
	pthread_t thread;
	struct zd_daemon *daemon;
	enum zd_exit ex;
};

static char last_text[1024];
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static size_t log_len;

static void sink(enum zd_log_level level, const char *line)
{
	size_t n = strlen(line);

	(void)level;
	pthread_mutex_lock(&log_mutex);
	if (log_len + n + 2 < sizeof(log_text)) {
		memcpy(log_text + log_len, line, n);
		log_len += n;
		log_text[log_len++] = '\n';
		log_text[log_len] = '\0';
	}
	pthread_mutex_unlock(&log_mutex);
}

int daemon_log_has(const char *part)
{
	int has;

	pthread_mutex_lock(&log_mutex);
	has = strstr(log_text, part) != NULL;
	pthread_mutex_unlock(&log_mutex);
	return has;
}

void daemon_log_clear(void)
{
	pthread_mutex_lock(&log_mutex);
	log_len = 0;
	log_text[0] = '\0';
	pthread_mutex_unlock(&log_mutex);
}

static void *run(void *arg)
{
	struct daemon_thread *t = arg;

	t->ex = zd_daemon_run(t->daemon);
	zd_daemon_free(t->daemon);
	return NULL;
}

struct daemon_thread *daemon_thread_start(const char *const *sets, enum zd_exit *ret_exit)
{
	static const char *const defaults[] = {"listen.port=0", "lanes.count=2", "memory.budget=128MiB", "daemon.name=test"};
	struct zd_daemon_options options = {0};
	struct zd_conf_sources sources = {0};
	const char *all[SETS_MAX + 4];
	struct zd_conf_errors errors;
	struct zd_conf conf;
	struct daemon_thread *t = calloc(1, sizeof(*t));
	uint32_t n = 0;

	if (!t)
		abort();
	signal(SIGPIPE, SIG_IGN);
	zd_log_sink = sink;
	for (; n < 4; n++)
		all[n] = defaults[n];
	for (; sets && *sets && n < SETS_MAX; sets++)
		all[n++] = *sets;
	sources.sets = all;
	sources.set_count = n;
	if (zd_conf_load(&conf, &sources, &errors) < 0)
		abort();
	*ret_exit = zd_daemon_new(&t->daemon, &conf, &options, last_text, sizeof(last_text));
	if (*ret_exit != ZD_EXIT_OK || pthread_create(&t->thread, NULL, run, t) != 0) {
		free(t);
		return NULL;
	}
	return t;
}

uint16_t daemon_thread_port(const struct daemon_thread *t)
{
	return zd_daemon_port(t->daemon);
}

struct zd_daemon *daemon_thread_daemon(struct daemon_thread *t)
{
	return t->daemon;
}

enum zd_exit daemon_thread_stop(struct daemon_thread *t, int hurry)
{
	zd_daemon_term(t->daemon, hurry);
	return daemon_thread_join(t);
}

enum zd_exit daemon_thread_join(struct daemon_thread *t)
{
	enum zd_exit ex;

	pthread_join(t->thread, NULL);
	ex = t->ex;
	free(t);
	return ex;
}

const char *daemon_thread_text(void)
{
	return last_text;
}
