/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/minserver.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/host.h"

#define CHUNK_BYTES (256u << 10)
/* One send and one receive of a worker: below 1 MiB a send costs visibly more per byte. */
#define SEND_BYTES (1u << 20)
#define RECV_BYTES (4u << 20)

struct peer {
	int fd;
	size_t got;  /* of the current chunk */
	size_t sent; /* of the weights */
};

struct server {
	const struct zd_rate *rate;
	struct zd_rate_consts consts;
	uint32_t workers;
	size_t total, chunk; /* bytes of bf16 */
	size_t ready;	     /* bytes of weights that may leave */
	struct peer peer[ZD_RATE_WORKERS_MAX];
	float *w, *m, *v;
	uint16_t *out;
	uint16_t *grad[ZD_RATE_WORKERS_MAX]; /* one chunk each */
};

/* What server and workers inherit. */
struct plan {
	const struct zd_minserver *m;
	int listener;
};

static void die(const char *what)
{
	fprintf(stderr, "minimal server: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void set_nonblocking(int fd)
{
	const int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) || fcntl(fd, F_SETFL, O_NONBLOCK))
		die("socket options");
}

/* ---- worker */

static void worker_wait_go(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char go;

	for (;;) {
		ssize_t r = recv(fd, &go, 1, 0);

		if (r == 1)
			return;
		if (r == 0)
			_exit(0);
		if (errno != EAGAIN && errno != EINTR)
			_exit(1);
		(void)poll(&p, 1, -1);
	}
}

static size_t limited(size_t left, size_t most)
{
	return left < most ? left : most;
}

static void worker_exchange(int fd, const char *grad, char *weights, size_t total)
{
	size_t sent = 0, got = 0;

	while (sent < total || got < total) {
		struct pollfd p = { fd, (short)(POLLIN | (sent < total ? POLLOUT : 0)), 0 };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			die("poll");
		if (p.revents & POLLIN) {
			ssize_t r = recv(fd, weights + got, limited(total - got, RECV_BYTES), 0);

			if (r == 0)
				_exit(1);
			got += r > 0 ? (size_t)r : 0;
		}
		if (p.revents & POLLOUT) {
			ssize_t r = send(fd, grad + sent, limited(total - sent, SEND_BYTES), MSG_NOSIGNAL);

			if (r < 0 && errno != EAGAIN && errno != EINTR)
				die("send");
			sent += r > 0 ? (size_t)r : 0;
		}
	}
}

static void worker_main(size_t total, const struct sockaddr_in *server)
{
	char *grad = zd_host_memory(total, 0), *weights = zd_host_memory(total, ZD_HOST_SKEW);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	/* bf16 0x3838 is 4.4e-5: an ordinary gradient. */
	memset(grad, 0x38, total);
	if (fd < 0 || connect(fd, (const struct sockaddr *)server, sizeof *server))
		die("connect");
	set_nonblocking(fd);
	for (;;) {
		worker_wait_go(fd);
		worker_exchange(fd, grad, weights, total);
	}
}

/* ---- server */

static void server_poll(struct server *s)
{
	struct pollfd p[ZD_RATE_WORKERS_MAX];

	for (uint32_t i = 0; i < s->workers; i++) {
		const struct peer *q = &s->peer[i];
		int in = q->got < s->chunk && s->ready < s->total, out = q->sent < s->ready;

		p[i] = (struct pollfd){ q->fd, (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0 };
	}
	if (poll(p, s->workers, -1) < 0 && errno != EINTR)
		die("poll");
	for (uint32_t i = 0; i < s->workers; i++) {
		struct peer *q = &s->peer[i];

		if (p[i].revents & POLLIN) {
			ssize_t r = recv(q->fd, (char *)s->grad[i] + q->got, s->chunk - q->got, 0);

			if (r == 0)
				die("a worker left");
			q->got += r > 0 ? (size_t)r : 0;
		}
		if (p[i].revents & POLLOUT) {
			ssize_t r = send(q->fd, (const char *)s->out + q->sent, s->ready - q->sent, MSG_NOSIGNAL);

			if (r < 0 && errno != EAGAIN && errno != EINTR)
				die("send");
			q->sent += r > 0 ? (size_t)r : 0;
		}
	}
}

static void server_reduce(struct server *s)
{
	const uint16_t *grads[ZD_RATE_WORKERS_MAX];
	size_t first = s->ready / 2;

	if (s->ready == s->total)
		return;
	for (uint32_t i = 0; i < s->workers; i++) {
		if (s->peer[i].got < s->chunk)
			return;
		grads[i] = s->grad[i];
	}
	s->rate->step(s->w + first, s->m + first, s->v + first, grads, s->workers, s->out + first, s->chunk / 2, &s->consts);
	s->ready += s->chunk;
	for (uint32_t i = 0; i < s->workers; i++)
		s->peer[i].got = 0;
}

static void server_step(struct server *s)
{
	uint32_t finished;

	s->ready = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		s->peer[i].got = s->peer[i].sent = 0;
		if (send(s->peer[i].fd, "g", 1, MSG_NOSIGNAL) != 1)
			die("go");
	}
	do {
		server_poll(s);
		server_reduce(s);
		finished = 0;
		for (uint32_t i = 0; i < s->workers; i++)
			finished += s->peer[i].sent == s->total;
	} while (finished < s->workers);
}

static void server_main(struct zd_actor_box *box, void *state)
{
	const struct plan *plan = state;
	static struct server s;
	size_t n;

	s.rate = zd_rate_select();
	s.workers = plan->m->workers;
	s.consts = zd_rate_consts(s.workers);
	s.chunk = plan->m->chunk_bytes;
	s.total = 2 * plan->m->params;
	n = plan->m->params;
	for (uint32_t i = 0; i < s.workers; i++) {
		s.peer[i].fd = accept(plan->listener, NULL, NULL);
		if (s.peer[i].fd < 0)
			die("accept");
		set_nonblocking(s.peer[i].fd);
		s.grad[i] = zd_host_memory(s.chunk, (4 + i) * ZD_HOST_SKEW);
	}
	close(plan->listener);
	s.w = zd_host_memory(4 * n, 0);
	s.m = zd_host_memory(4 * n, 1 * ZD_HOST_SKEW);
	s.v = zd_host_memory(4 * n, 2 * ZD_HOST_SKEW);
	s.out = zd_host_memory(2 * n, 3 * ZD_HOST_SKEW);
	while (zd_actor_next(box)) {
		double cpu = zd_host_thread_cpu();

		for (uint64_t i = 0; i < box->count && i < ZD_ACTOR_TIMES_MAX; i++) {
			box->begin[i] = zd_host_now();
			server_step(&s);
			box->end[i] = zd_host_now();
			box->times = (uint32_t)i + 1;
		}
		box->cpu = zd_host_thread_cpu() - cpu;
		zd_actor_done(box, 0);
	}
}

static pid_t worker_start(const struct zd_minserver *m, int listener, const struct sockaddr_in *address)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(listener);
		zd_host_pin(m->worker_cpu);
		worker_main(2 * m->params, address);
	}
	zd_host_watch(pid);
	return pid;
}

void zd_minserver_start(struct zd_minserver *m)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (m->chunk_bytes == 0)
		m->chunk_bytes = CHUNK_BYTES;
	m->params -= m->params % (m->chunk_bytes / 2);
	if (listener < 0 || bind(listener, (const struct sockaddr *)&address, len) || listen(listener, ZD_RATE_WORKERS_MAX) ||
	    getsockname(listener, (struct sockaddr *)&address, &len))
		die("listen");
	struct plan plan = { m, listener };
	zd_actor_start(&m->server, "minimal server", m->server_cpu, server_main, &plan);
	for (uint32_t i = 0; i < m->workers; i++)
		m->worker[i] = worker_start(m, listener, &address);
	close(listener);
	zd_actor_call(&m->server, 0, 1); /* returns when all have connected and touched their memory */
	zd_actor_wait(&m->server);
}

void zd_minserver_stop(struct zd_minserver *m)
{
	zd_actor_stop(&m->server);
	for (uint32_t i = 0; i < m->workers; i++) {
		waitpid(m->worker[i], NULL, 0);
		zd_host_unwatch(m->worker[i]);
	}
}
