/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/uvstream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "tests/bench/host.h"

/* One side; the loop runs until `left` is 0. */
struct side {
	uv_loop_t loop;
	uv_tcp_t tcp;
	uv_write_t write[ZD_UVSTREAM_WRITES];
	char *buffer;
	uint64_t left;	 /* bytes still to be received, or to be handed to uv_write */
	uint32_t queued; /* writes */
};

static void must(int status, const char *what)
{
	if (status == 0)
		return;
	fprintf(stderr, "bare stream: %s: %s\n", what, uv_strerror(status));
	_exit(1);
}

static struct side *side_new(int fd, size_t skew)
{
	struct side *s = zd_host_memory(sizeof *s, skew);

	s->buffer = zd_host_memory(ZD_UVSTREAM_BYTES, skew);
	must(uv_loop_init(&s->loop), "loop");
	must(uv_tcp_init(&s->loop, &s->tcp), "handle");
	must(uv_tcp_open(&s->tcp, fd), "open");
	must(uv_tcp_nodelay(&s->tcp, 1), "nodelay");
	s->tcp.data = s;
	return s;
}

/* ---- sender */

static void on_written(uv_write_t *req, int status);

static void queue_write(struct side *s, uv_write_t *req)
{
	uv_buf_t b = uv_buf_init(s->buffer, ZD_UVSTREAM_BYTES);

	s->left -= ZD_UVSTREAM_BYTES;
	s->queued++;
	must(uv_write(req, (uv_stream_t *)&s->tcp, &b, 1, on_written), "write");
}

static void on_written(uv_write_t *req, int status)
{
	struct side *s = req->handle->data;

	must(status, "write");
	s->queued--;
	if (s->left > 0)
		queue_write(s, req);
}

static void send_body(struct zd_actor_box *box, void *state)
{
	struct side *s = side_new(*(int *)state, 0);

	while (zd_actor_next(box)) {
		s->left = box->count;
		for (int i = 0; i < ZD_UVSTREAM_WRITES && s->left > 0; i++)
			queue_write(s, &s->write[i]);
		while (s->queued > 0)
			uv_run(&s->loop, UV_RUN_ONCE);
		zd_actor_done(box, 0);
	}
}

/* ---- receiver */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct side *s = handle->data;

	(void)suggested;
	*buf = uv_buf_init(s->buffer, ZD_UVSTREAM_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct side *s = stream->data;

	(void)buf;
	if (n < 0)
		must((int)n, "read");
	s->left -= (uint64_t)n;
	if (s->left == 0)
		uv_stop(&s->loop);
}

static void receive_body(struct zd_actor_box *box, void *state)
{
	struct side *s = side_new(*(int *)state, ZD_HOST_SKEW);

	while (zd_actor_next(box)) {
		s->left = box->count;
		box->begin[0] = zd_host_now();
		must(uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read), "read");
		uv_run(&s->loop, UV_RUN_DEFAULT);
		box->end[0] = zd_host_now();
		box->times = 1;
		uv_read_stop((uv_stream_t *)&s->tcp);
		zd_actor_done(box, 0);
	}
}

/* Connected sockets over loopback: [0] sends, [1] receives. */
static void tcp_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || fd[0] < 0 || bind(listener, (struct sockaddr *)&a, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&a, &len) || connect(fd[0], (struct sockaddr *)&a, len) ||
	    (fd[1] = accept(listener, NULL, NULL)) < 0) {
		perror("bare stream: sockets");
		exit(1);
	}
	close(listener);
}

void zd_uvstream_start(struct zd_uvstream *s, int sender_cpu, int receiver_cpu)
{
	int fd[2];

	tcp_pair(fd);
	zd_actor_start(&s->sender, "bare stream, sender", sender_cpu, send_body, &fd[0]);
	zd_actor_start(&s->receiver, "bare stream, receiver", receiver_cpu, receive_body, &fd[1]);
	close(fd[0]);
	close(fd[1]);
}

double zd_uvstream_run(struct zd_uvstream *s, uint64_t bytes)
{
	zd_actor_call(&s->receiver, 0, bytes);
	zd_actor_call(&s->sender, 0, bytes);
	zd_actor_wait(&s->sender);
	zd_actor_wait(&s->receiver);
	return (double)bytes / (s->receiver.box->end[0] - s->receiver.box->begin[0]);
}

void zd_uvstream_stop(struct zd_uvstream *s)
{
	zd_actor_stop(&s->sender);
	zd_actor_stop(&s->receiver);
}
