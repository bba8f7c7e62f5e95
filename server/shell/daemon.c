/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/shell/check.h"
#include "server/shell/door.h"
#include "server/shell/lane.h"
#include "server/shell/log.h"
#include "server/shell/notify.h"
#include "server/shell/uvx.h"

/* Pokes a lane may leave unanswered before the watchdog starves: one may be on its way, two are a lane that hangs. */
#define UNANSWERED_MAX 2u

enum state { RUNNING, DRAINING, STOPPING };

static const int signums[3] = {SIGTERM, SIGINT, SIGHUP};

struct zd_daemon {
	struct zd_conf conf;
	struct zd_daemon_options options;
	enum state state;
	uv_loop_t loop;
	uv_async_t async;
	uv_timer_t drain_timer, watchdog;
	uv_signal_t signals[3]; /* TERM, INT, HUP */
	int loop_ready, async_ready, timers_ready, signals_ready;
	struct zd_door *door;
	struct zd_lane **lanes;
	uint32_t lane_count;
	atomic_uint connections;
	atomic_int terms;
	int terms_seen;
	uint16_t port;
	uint64_t budget;
	const struct zd_kernels *kernels;
	struct zd_memory memory;
};

/* ---------------------------------------------------------------- ending */

static void stop_lanes(struct zd_daemon *d, int hurry)
{
	uint32_t i;

	d->state = STOPPING;
	uv_timer_stop(&d->drain_timer);
	for (i = 0; i < d->lane_count; i++)
		zd_lane_stop(d->lanes[i], hurry);
}

static void on_drain_timeout(uv_timer_t *timer)
{
	struct zd_daemon *d = timer->data;

	zd_log(ZD_LOG_WARNING, "event=drain-timeout: rounds are still open; timeouts.drain is over, connections are closed");
	stop_lanes(d, 0);
}

static void drain(struct zd_daemon *d)
{
	uint32_t i;

	d->state = DRAINING;
	zd_log(ZD_LOG_NOTICE, "event=draining connections=%u", atomic_load(&d->connections));
	zd_notify("STOPPING=1\nSTATUS=draining: waiting for open rounds to end");
	zd_door_close(d->door);
	for (i = 0; i < d->lane_count; i++)
		zd_lane_drain(d->lanes[i]);
	uv_timer_start(&d->drain_timer, on_drain_timeout, d->conf.timeouts_drain / 1000000, 0);
}

/* From here to the end of the thread, or until ret_old is restored.  Threads begin with the mask of who makes them. */
static void block_signals(const struct zd_daemon *d, sigset_t *ret_old)
{
	sigset_t set;
	int i;

	sigemptyset(&set);
	for (i = 0; d->options.signals && i < 3; i++)
		sigaddset(&set, signums[i]);
	pthread_sigmask(SIG_BLOCK, &set, ret_old);
}

static void close_handles(struct zd_daemon *d)
{
	int i;

	block_signals(d, NULL); /* closing restores what a signal does by default: one more would end the process with its number */
	zd_door_close(d->door);
	uv_close((uv_handle_t *)&d->drain_timer, NULL);
	uv_close((uv_handle_t *)&d->watchdog, NULL);
	for (i = 0; i < d->signals_ready; i++)
		uv_close((uv_handle_t *)&d->signals[i], NULL);
	d->signals_ready = 0;
	d->timers_ready = 0;
	uv_stop(&d->loop);
}

static int all_lanes(const struct zd_daemon *d, int (*what)(const struct zd_lane *lane))
{
	uint32_t i;

	for (i = 0; i < d->lane_count; i++)
		if (!what(d->lanes[i]))
			return 0;
	return 1;
}

static void advance(struct zd_daemon *d)
{
	int terms = atomic_load(&d->terms);

	if (terms > 0 && d->state == RUNNING)
		drain(d);
	if (terms > 1 && d->terms_seen < 2) {
		zd_log(ZD_LOG_NOTICE, "event=hurry");
		stop_lanes(d, 1);
	}
	d->terms_seen = terms;
	if (d->state == DRAINING && all_lanes(d, zd_lane_drained)) {
		zd_log(ZD_LOG_INFO, "event=drained");
		stop_lanes(d, 0);
	}
	if (d->state == STOPPING && d->timers_ready && all_lanes(d, zd_lane_ended))
		close_handles(d);
}

static void on_async(uv_async_t *async)
{
	advance(async->data);
}

void zd_daemon_term(struct zd_daemon *d, int hurry)
{
	atomic_fetch_add(&d->terms, hurry ? 2 : 1);
	uv_async_send(&d->async);
}

/* ---------------------------------------------------------------- signals, watchdog */

static void apply_reload(struct zd_daemon *d)
{
	uint32_t i;

	zd_log_level((enum zd_log_level)(d->conf.log_level + ZD_LOG_ERROR));
	zd_door_reload(d->door, d->conf.limits_hello_timeout, d->conf.timeouts_linger);
	for (i = 0; i < d->lane_count; i++)
		zd_lane_reload(d->lanes[i], d->conf.timeouts_linger, d->conf.timeouts_peer);
}

static void log_mistakes(const struct zd_conf_errors *errors)
{
	char copy[ZD_CONF_ERRORS_MAX], quoted[1024], *line, *save = NULL;

	memcpy(copy, errors->text, sizeof(copy));
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		zd_log(ZD_LOG_ERROR, "event=reload-refused text=%s", zd_text_quote(quoted, sizeof(quoted), line));
}

static void reload(struct zd_daemon *d)
{
	struct zd_conf_errors errors;
	struct zd_conf fresh;
	char from[640], to[640];
	uint32_t i, applied = 0, kept = 0;

	if (!d->options.sources)
		return;
	if (d->state != RUNNING) {
		zd_log(ZD_LOG_WARNING, "event=reload-refused text=\"the daemon is ending; the next one will read the configuration\"");
		return;
	}
	zd_notify("RELOADING=1\nSTATUS=reading configuration");
	if (zd_conf_load(&fresh, d->options.sources, &errors) < 0) {
		log_mistakes(&errors);
		goto done;
	}
	for (i = 0; i < ZD_CONF_KEYS; i++) {
		const struct zd_conf_key *k = &zd_conf_keys[i];

		if (zd_conf_same(&d->conf, &fresh, k))
			continue;
		zd_conf_format(&d->conf, k, from, sizeof(from));
		zd_conf_format(&fresh, k, to, sizeof(to));
		if (k->reload) {
			applied++;
			zd_log(ZD_LOG_NOTICE, "event=reload key=%s.%s from=%s to=%s", k->section, k->key, from, to);
			zd_conf_copy_key(&d->conf, &fresh, k);
		} else {
			kept++;
			zd_log(ZD_LOG_WARNING, "event=reload key=%s.%s from=%s to=%s: needs a restart, not applied", k->section, k->key,
			       from, to);
		}
	}
	apply_reload(d);
	zd_log(ZD_LOG_NOTICE, "event=reloaded applied=%u not_applied=%u", applied, kept);
done:
	zd_notify("READY=1\nSTATUS=listening on port %u", d->port);
}

static void on_signal(uv_signal_t *signal, int signum)
{
	struct zd_daemon *d = signal->data;

	if (signum == SIGHUP) {
		reload(d);
		return;
	}
	atomic_fetch_add(&d->terms, 1);
	advance(d);
}

/* The manager hears from us only while every lane answers. */
static void on_watchdog(uv_timer_t *timer)
{
	struct zd_daemon *d = timer->data;
	uint32_t i, silent = 0;

	for (i = 0; i < d->lane_count; i++) {
		if (zd_lane_ended(d->lanes[i]))
			continue;
		if (zd_lane_unanswered(d->lanes[i]) >= UNANSWERED_MAX) {
			silent++;
			zd_log(ZD_LOG_ERROR, "event=lane-silent lane=%u: no answer for %u watchdog intervals", i, UNANSWERED_MAX);
		}
		zd_lane_poke(d->lanes[i]);
	}
	if (!silent)
		zd_notify("WATCHDOG=1");
}

/* ---------------------------------------------------------------- starting */

static int make_loop(struct zd_daemon *d)
{
	uint64_t watchdog_us = zd_notify_watchdog_us();
	int rc, i;

	rc = zd_uvx_loop_init(&d->loop);
	if (rc < 0)
		return rc;
	d->loop_ready = 1;
	rc = zd_uvx_async_init(&d->loop, &d->async, on_async);
	if (rc < 0)
		return rc;
	d->async.data = d;
	d->async_ready = 1;
	uv_timer_init(&d->loop, &d->drain_timer);
	uv_timer_init(&d->loop, &d->watchdog);
	d->drain_timer.data = d;
	d->watchdog.data = d;
	d->timers_ready = 1;
	if (d->options.signals && watchdog_us)
		uv_timer_start(&d->watchdog, on_watchdog, watchdog_us / 2000, watchdog_us / 2000);
	for (i = 0; d->options.signals && i < 3; i++) {
		rc = uv_signal_init(&d->loop, &d->signals[i]);
		if (rc < 0)
			return rc;
		d->signals[i].data = d;
		d->signals_ready = i + 1;
		rc = zd_uvx_signal_start(&d->signals[i], on_signal, signums[i]);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static uint64_t seed(void)
{
	uint64_t value;

	/* A job's uuid tells its lives apart; where the system has no randomness yet the clock has to do. */
	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value))
		value = uv_hrtime() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
	return value;
}

static void lane_config(const struct zd_daemon *d, uint32_t index, struct zd_lane_config *ret)
{
	const struct zd_conf *c = &d->conf;

	*ret = (struct zd_lane_config){
		.index = index,
		.max_conns = (uint32_t)c->limits_connections,
		.max_jobs = (uint32_t)c->limits_jobs,
		.windows = (uint32_t)c->memory_windows,
		.job_max_bytes = c->memory_job_max / d->lane_count,
		.huge_pages = c->memory_huge_pages == ZD_CONF_HUGE_MADVISE,
		.cpu = -1,
		.linger_ns = c->timeouts_linger,
		.peer_ns = c->timeouts_peer,
		.daemon = d->conf.daemon_name.s,
		.kernels = d->kernels,
		.owner = (uv_async_t *)(uintptr_t)&d->async,
		.connections = (atomic_uint *)(uintptr_t)&d->connections,
	};
}

/* The budget covers slabs and tables; each lane gets an equal part. */
static enum zd_exit size_lanes(struct zd_daemon *d, uint64_t *ret_slab, char *text, size_t size)
{
	uint64_t share, fixed, need;
	struct zd_lane_config config;

	d->lane_count = d->conf.lanes_count ? (uint32_t)d->conf.lanes_count : zd_cpus(NULL, 0);
	zd_memory_read(&d->memory, "");
	if (zd_memory_budget(&d->memory, d->conf.memory_budget, &d->budget, text, size) < 0)
		return ZD_EXIT_CONFIG;
	lane_config(d, 0, &config);
	share = d->budget / d->lane_count;
	config.slab_bytes = share / ZD_LANE_SLAB_ALIGN * ZD_LANE_SLAB_ALIGN;
	fixed = zd_lane_fixed_bytes(&config);
	need = d->conf.memory_windows * ZD_PAYLOAD_MAX + ZD_LANE_SLAB_ALIGN;
	if (share < fixed + need) {
		snprintf(text, size,
			 "memory.budget: %" PRIu64 " MiB for %u lanes is %" PRIu64 " MiB a lane; tables take %" PRIu64
			 " MiB and memory.windows = %" PRIu64 " take %" PRIu64 " MiB of it; raise the budget, or lower lanes.count or memory.windows",
			 d->budget >> 20, d->lane_count, share >> 20, (fixed >> 20) + 1, d->conf.memory_windows,
			 need >> 20);
		return ZD_EXIT_CONFIG;
	}
	*ret_slab = (share - fixed) / ZD_LANE_SLAB_ALIGN * ZD_LANE_SLAB_ALIGN;
	return ZD_EXIT_OK;
}

static int start_lanes(struct zd_daemon *d, uint64_t slab_bytes)
{
	struct zd_lane_config config;
	uint32_t i, cpu_count = 0, wanted = d->lane_count;
	int cpus[256];

	d->lanes = zd_uvx_calloc(wanted, sizeof(*d->lanes));
	if (!d->lanes) {
		d->lane_count = 0;
		return UV_ENOMEM;
	}
	if (d->conf.lanes_pin) {
		cpu_count = zd_cpus(cpus, 256);
		cpu_count = cpu_count < 256 ? cpu_count : 256;
	}
	for (i = 0; i < wanted; i++) {
		int rc;

		lane_config(d, i, &config);
		config.slab_bytes = slab_bytes;
		config.uuid_seed = seed();
		if (cpu_count)
			config.cpu = cpus[i % cpu_count];
		rc = zd_lane_new(&d->lanes[i], &config);
		if (rc < 0) {
			d->lane_count = i;
			return rc;
		}
	}
	return 0;
}

static void door_config(struct zd_daemon *d, struct zd_door_config *ret)
{
	const struct zd_conf *c = &d->conf;
	uint32_t i;

	*ret = (struct zd_door_config){
		.address_count = c->listen_address.count,
		.backlog = (int)c->listen_backlog,
		.handshakes = (uint32_t)c->limits_handshakes,
		.connections_max = (uint32_t)c->limits_connections,
		.hello_ns = c->limits_hello_timeout,
		.linger_ns = c->timeouts_linger,
		.daemon = c->daemon_name.s,
		.lanes = d->lanes,
		.lane_count = d->lane_count,
		.connections = &d->connections,
	};
	for (i = 0; i < c->listen_address.count; i++) {
		const char *text = c->listen_address.item[i];
		int rc;

		if (strchr(text, ':'))
			rc = uv_ip6_addr(text, (int)c->listen_port, (struct sockaddr_in6 *)&ret->address[i]);
		else
			rc = uv_ip4_addr(text, (int)c->listen_port, (struct sockaddr_in *)&ret->address[i]);
		ZD_ASSERT(rc == 0); /* the configuration was checked */
	}
}

/* Why bind or listen failed, and what to do. */
static const char *listen_error(int rc)
{
	switch (rc) {
	case UV_EADDRINUSE:
		return "another process has it; end that one, or set listen.port (0 takes any free port)";
	case UV_EADDRNOTAVAIL:
		return "no interface of this host has this address, or none has it yet; correct listen.address, or start after the network is "
		       "online (zerod(8), SERVICE)";
	case UV_EACCES:
		return "permission denied; ports below 1024 are for privileged processes only: set listen.port to one above";
	default:
		return uv_strerror(rc);
	}
}

static enum zd_exit open_door(struct zd_daemon *d, char *text, size_t size)
{
	struct zd_door_config config;
	uint32_t bad;
	int rc;

	door_config(d, &config);
	rc = zd_door_new(&d->door, &d->loop, &config, &bad);
	if (rc == 0) {
		d->port = zd_door_port(d->door);
		return ZD_EXIT_OK;
	}
	if (bad >= config.address_count)
		snprintf(text, size, "cannot start: %s", uv_strerror(rc));
	else
		snprintf(text, size, "cannot listen on %s port %" PRIu64 ": %s", d->conf.listen_address.item[bad], d->conf.listen_port, listen_error(rc));
	return rc == UV_EADDRINUSE ? ZD_EXIT_AGAIN : rc == UV_EADDRNOTAVAIL || rc == UV_EACCES ? ZD_EXIT_CONFIG : ZD_EXIT_FAILED;
}

/* A reader of a regular file sees the whole number or nothing; pipes and terminals are written to as they are. */
static int write_port_file(const char *path, uint16_t port)
{
	char number[16], temporary[ZD_CONF_TEXT_MAX + 16];
	int len = snprintf(number, sizeof(number), "%u\n", port), fd, special;
	struct stat st;
	ssize_t n;

	special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
	snprintf(temporary, sizeof(temporary), "%s%s", path, special ? "" : ".new");
	fd = open(temporary, O_WRONLY | O_CLOEXEC | O_CREAT | (special ? 0 : O_TRUNC), 0644);
	if (fd < 0)
		return -errno;
	n = write(fd, number, (size_t)len);
	/* Not for the umask to decide, which is 0077 in the service: a port is no secret, and those who ask for it are other users. */
	if (!special)
		(void)fchmod(fd, 0644);
	close(fd);
	if (n != len)
		return -EIO;
	return special || rename(temporary, path) == 0 ? 0 : -errno;
}

static enum zd_exit announce(struct zd_daemon *d, char *text, size_t size)
{
	const char *file = d->conf.listen_port_file.s;
	char addresses[640];
	int rc = *file ? write_port_file(file, d->port) : 0;

	if (rc < 0) {
		snprintf(text, size, "listen.port_file: cannot write %s: %s; choose a file in a folder that this user may write to (of the service: "
			 "/run/zerod/NAME)", file, strerror(-rc));
		return rc == -ENOSPC || rc == -EIO ? ZD_EXIT_FAILED : ZD_EXIT_CONFIG;
	}
	zd_conf_format(&d->conf, &zd_conf_keys[ZD_CONF_KEY_listen_address], addresses, sizeof(addresses));
	if (d->conf.listen_insecure.s[0])
		zd_log(ZD_LOG_WARNING, "event=insecure addresses=\"%s\": listen.insecure allows plain connections from other hosts; "
				       "IPAddressAllow= of the service has to name them, too", addresses);
	zd_log(ZD_LOG_NOTICE, "event=listening port=%u addresses=\"%s\" lanes=%u daemon=%s version=%s budget_mib=%" PRIu64, d->port, addresses,
	       d->lane_count, d->conf.daemon_name.s, ZD_RELEASE, d->budget >> 20);
	zd_notify("READY=1\nSTATUS=listening on port %u", d->port);
	return ZD_EXIT_OK;
}

static enum zd_exit start(struct zd_daemon *d, char *text, size_t size)
{
	uint64_t slab_bytes = 0;
	enum zd_exit ex;
	sigset_t old;
	int rc;

	d->kernels = zd_kernels_select(getenv("ZEROD_KERNELS"));
	if (!d->kernels) {
		snprintf(text, size, "environment ZEROD_KERNELS: expected scalar, avx2 or avx512, found \"%s\"", getenv("ZEROD_KERNELS"));
		return ZD_EXIT_CONFIG;
	}
	ex = size_lanes(d, &slab_bytes, text, size);
	if (ex != ZD_EXIT_OK) {
		d->lane_count = 0;
		return ex;
	}
	zd_check_log(&d->conf, &d->memory, d->budget, d->kernels);
	rc = make_loop(d);
	if (rc == 0) {
		block_signals(d, &old); /* for the lanes: signals are this thread's */
		rc = start_lanes(d, slab_bytes);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	} else {
		d->lane_count = 0;
	}
	if (rc < 0) {
		snprintf(text, size, "cannot start the lanes: %s%s", uv_strerror(rc), rc == UV_EMFILE ? "; raise LimitNOFILE= or ulimit -n" : "");
		return ZD_EXIT_FAILED;
	}
	ex = open_door(d, text, size);
	return ex == ZD_EXIT_OK ? announce(d, text, size) : ex;
}

enum zd_exit zd_daemon_new(struct zd_daemon **ret_daemon, const struct zd_conf *conf, const struct zd_daemon_options *options, char *text,
			   size_t size)
{
	struct zd_daemon *d = zd_uvx_calloc(1, sizeof(*d));
	enum zd_exit ex;

	if (!d) {
		snprintf(text, size, "out of memory");
		return ZD_EXIT_FAILED;
	}
	d->conf = *conf;
	d->options = *options;
	ex = start(d, text, size);
	if (ex != ZD_EXIT_OK) {
		zd_daemon_free(d);
		return ex;
	}
	*ret_daemon = d;
	return ZD_EXIT_OK;
}

uint16_t zd_daemon_port(const struct zd_daemon *d)
{
	return d->port;
}

uint32_t zd_daemon_lanes(const struct zd_daemon *d)
{
	return d->lane_count;
}

enum zd_exit zd_daemon_run(struct zd_daemon *d)
{
	uv_run(&d->loop, UV_RUN_DEFAULT);
	zd_log(ZD_LOG_NOTICE, "event=stopped");
	return ZD_EXIT_OK;
}

static void close_if_open(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

void zd_daemon_free(struct zd_daemon *d)
{
	uint32_t i;
	int rc;

	/* Lanes send to our loop until their threads have ended, and refer to their door's counter. */
	for (i = 0; i < d->lane_count; i++)
		zd_lane_stop(d->lanes[i], 1);
	if (d->door)
		zd_door_close(d->door);
	for (i = 0; i < d->lane_count; i++)
		zd_lane_free(d->lanes[i]);
	free(d->lanes);
	if (d->loop_ready) {
		uv_walk(&d->loop, close_if_open, NULL);
		uv_run(&d->loop, UV_RUN_DEFAULT);
		rc = uv_loop_close(&d->loop);
		ZD_ASSERT(rc == 0);
	}
	if (d->door)
		zd_door_free(d->door);
	free(d);
}
