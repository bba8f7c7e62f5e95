/* SPDX-License-Identifier: Apache-2.0 */
#include "client/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The way of bytes between a connection and its socket.  Plain: the session's windows are the read buffers, frames are written as they lie.
 * A transport that encrypts hands out buffers of its own in `window`, opens what came in `received`, and seals in `write`.
 */
struct transport {
	void (*window)(struct zd_conn *c, uv_buf_t *ret_buf);
	void (*received)(struct zd_conn *c, size_t len);
	void (*write)(struct zd_conn *c, const uv_buf_t *bufs, const uint8_t *keep, uint32_t count, const uint64_t *tokens, uint32_t token_count);
};

struct zd_conn {
	const struct zd_conn_owner *owner;
	const struct transport *transport;
	uint32_t slot, gen;
	struct zd_endpoint to;
	uv_tcp_t tcp;
	uv_connect_t connect;
	uv_getaddrinfo_t resolve;
	struct addrinfo *addresses, *at;
	uint8_t resolving, has_tcp, is_up, closing, fatal, own;
	char reason[160];
};

struct write {
	uv_write_t req;
	struct zd_conn *conn;
	uint32_t token_count;
	uint64_t tokens[];
	/* then uv_buf_t bufs[], then copied bytes */
};

static int try_next(struct zd_conn *c);

static void on_closed(uv_handle_t *handle)
{
	struct zd_conn *c = handle->data;
	const struct zd_conn_owner *owner = c->owner;

	c->has_tcp = 0;
	if (!c->closing && c->at) {
		(void)try_next(c);
		return;
	}
	owner->down(owner->arg, c->slot, c->gen, c->reason, c->fatal, c->own);
	uv_freeaddrinfo(c->addresses);
	free(c);
}

/* Begins the end; it ends in on_closed, or in on_resolved while a name is being resolved. */
static void end(struct zd_conn *c, const char *reason)
{
	if (reason && !c->reason[0])
		snprintf(c->reason, sizeof(c->reason), "%s", reason);
	if (c->resolving) {
		uv_cancel((uv_req_t *)&c->resolve);
		return;
	}
	if (c->has_tcp && !uv_is_closing((uv_handle_t *)&c->tcp))
		uv_close((uv_handle_t *)&c->tcp, on_closed);
}

/* No connection to this address; the close callback tries the next, if there is one. */
static void miss(struct zd_conn *c, int status)
{
	c->own = status == UV_EMFILE || status == UV_ENFILE;
	c->reason[0] = '\0';
	end(c, c->own ? "too many open files in this process: raise ulimit -n, or close some" : uv_strerror(status));
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct zd_conn *c = handle->data;

	(void)suggested;
	c->transport->window(c, buf);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
	struct zd_conn *c = stream->data;

	(void)buf;
	if (got > 0) {
		c->transport->received(c, (size_t)got);
	} else if (got < 0) {
		c->closing = 1;
		end(c, got == UV_EOF ? "the daemon closed the connection" : uv_strerror((int)got));
	}
}

static void on_connected(uv_connect_t *req, int status)
{
	struct zd_conn *c = req->data;

	if (status == UV_ECANCELED || c->closing)
		return;
	if (status == 0)
		status = uv_tcp_nodelay(&c->tcp, 1);
	if (status == 0)
		status = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
	if (status < 0) {
		miss(c, status);
		return;
	}
	c->is_up = 1;
	c->at = NULL;
	c->owner->up(c->owner->arg, c->slot, c->gen);
}

/* Connects to the next address, or gives up: then -1, and the connection is freed. */
static int try_next(struct zd_conn *c)
{
	const struct addrinfo *ai = c->at;
	int rc = uv_tcp_init(c->owner->loop, &c->tcp);

	if (rc < 0) { /* without a handle there is no close callback to free it in: the process is out of descriptors or memory */
		c->owner->down(c->owner->arg, c->slot, c->gen, uv_strerror(rc), 0, 1);
		uv_freeaddrinfo(c->addresses);
		free(c);
		return -1;
	}
	c->tcp.data = c;
	c->has_tcp = 1;
	c->connect.data = c;
	if (!ai) {
		c->closing = 1;
		end(c, "the name has no address");
		return 0;
	}
	c->at = ai->ai_next;
	rc = uv_tcp_connect(&c->connect, &c->tcp, ai->ai_addr, on_connected);
	if (rc < 0)
		miss(c, rc);
	return 0;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
	struct zd_conn *c = req->data;

	c->resolving = 0;
	c->addresses = c->at = res;
	if (c->closing)
		c->at = NULL;
	if (status < 0) {
		c->closing = 1;
		c->fatal = status == UV_EAI_NONAME || status == UV_EAI_NODATA;
		snprintf(c->reason, sizeof(c->reason), "the name \"%.80s\" cannot be resolved: %s", c->to.host, uv_strerror(status));
	}
	if (try_next(c) == 0 && c->closing)
		end(c, NULL);
}

/* ---------------------------------------------------------------- plain */

static void plain_window(struct zd_conn *c, uv_buf_t *ret_buf)
{
	struct zd_span w = c->owner->window(c->owner->arg, c->slot, c->gen);

	*ret_buf = uv_buf_init((char *)w.base, (unsigned)w.len);
}

static void plain_received(struct zd_conn *c, size_t len)
{
	c->owner->bytes(c->owner->arg, c->slot, c->gen, len);
}

static void on_written(uv_write_t *req, int status)
{
	struct write *w = req->data;
	struct zd_conn *c = w->conn;

	if (status == 0 && w->token_count > 0)
		c->owner->sent(c->owner->arg, c->slot, c->gen, w->tokens, w->token_count);
	else if (status < 0 && status != UV_ECANCELED) {
		c->closing = 1;
		end(c, uv_strerror(status));
	}
	free(w);
}

/* Small frames usually go out at once.  Returns how many bytes did. */
static size_t write_now(struct zd_conn *c, const uv_buf_t *bufs, uint32_t count)
{
	int n;

	if (uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp) > 0)
		return 0;
	n = uv_try_write((uv_stream_t *)&c->tcp, bufs, count);
	return n > 0 ? (size_t)n : 0;
}

static void plain_write(struct zd_conn *c, const uv_buf_t *bufs, const uint8_t *keep, uint32_t count, const uint64_t *tokens,
			uint32_t token_count)
{
	size_t copied = 0, gone = 0, head;
	struct write *w;
	uv_buf_t *out;
	char *bytes;
	uint32_t n = 0;
	int rc;

	if (token_count == 0)
		gone = write_now(c, bufs, count);
	for (uint32_t i = 0; i < count; i++)
		if (!keep[i])
			copied += bufs[i].len;
	if (token_count == 0 && gone == copied)
		return;
	head = (sizeof(*w) + token_count * sizeof(tokens[0]) + 15) & ~(size_t)15;
	w = malloc(head + count * sizeof(*out) + copied);
	if (!w) {
		c->closing = 1;
		end(c, "no memory for a write");
		return;
	}
	w->req.data = w;
	w->conn = c;
	w->token_count = token_count;
	if (token_count > 0)
		memcpy(w->tokens, tokens, token_count * sizeof(tokens[0]));
	out = (uv_buf_t *)((char *)w + head);
	bytes = (char *)(out + count);
	for (uint32_t i = 0; i < count; i++) {
		size_t skip = gone < bufs[i].len ? gone : bufs[i].len, len = bufs[i].len - skip;

		gone -= skip;
		if (len == 0)
			continue;
		out[n] = uv_buf_init(bufs[i].base + skip, (unsigned)len);
		if (!keep[i]) {
			memcpy(bytes, out[n].base, len);
			out[n].base = bytes;
			bytes += len;
		}
		n++;
	}
	rc = uv_write(&w->req, (uv_stream_t *)&c->tcp, out, n, on_written);
	if (rc < 0) {
		free(w);
		c->closing = 1;
		end(c, uv_strerror(rc));
	}
}

static const struct transport plain = {plain_window, plain_received, plain_write};

/* ---------------------------------------------------------------- */

struct zd_conn *zd_conn_new(const struct zd_conn_owner *owner, uint32_t slot, uint32_t gen, const struct zd_endpoint *to)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct zd_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->owner = owner;
	c->transport = &plain;
	c->slot = slot;
	c->gen = gen;
	c->to = *to;
	c->resolve.data = c;
	if (uv_getaddrinfo(owner->loop, &c->resolve, on_resolved, c->to.host, c->to.port, &hints) < 0) {
		free(c);
		return NULL;
	}
	c->resolving = 1;
	return c;
}

void zd_conn_write(struct zd_conn *c, const uv_buf_t *bufs, const uint8_t *keep, uint32_t count, const uint64_t *tokens, uint32_t token_count)
{
	if (c->is_up && !c->closing)
		c->transport->write(c, bufs, keep, count, tokens, token_count);
}

zd_time zd_conn_acked(const struct zd_conn *c)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);
	zd_time now = zd_pump_now(), ago;
	uv_os_fd_t fd;

	if (!c->is_up || c->closing || uv_fileno((const uv_handle_t *)&c->tcp, &fd) < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
		return 0;
	ago = ZD_MS(info.tcpi_last_ack_recv);
	return ago < now ? now - ago : 0;
}

void zd_conn_close(struct zd_conn *c)
{
	c->closing = 1;
	c->at = NULL;
	end(c, "closed");
}
