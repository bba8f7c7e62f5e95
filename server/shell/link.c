/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a lane: reading into the core's windows, writing what it sends, closing. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/shell/lane_priv.h"
#include "server/shell/log.h"
#include "server/shell/uvx.h"

void zd_links_init(struct zd_lane *lane)
{
	uint32_t i;

	for (i = lane->config.max_conns; i-- > 0;) {
		lane->links[i].lane = lane;
		lane->links[i].id.slot = i;
		lane->links[i].next_free = lane->free_links;
		lane->free_links = &lane->links[i];
	}
}

struct zd_link *zd_link_find(struct zd_lane *lane, struct zd_conn_id id)
{
	struct zd_link *link;

	ZD_ASSERT(id.slot < lane->config.max_conns);
	link = &lane->links[id.slot];
	return link->id.gen == id.gen && link->state == ZD_LINK_OPEN ? link : NULL;
}

/* ---------------------------------------------------------------- closing */

static void set_parked(struct zd_link *link, int parked)
{
	if (link->parked != parked) {
		link->lane->parked_links += parked ? 1u : UINT32_MAX;
		link->parked = (uint8_t)parked;
	}
}

static void release_link(struct zd_link *link)
{
	struct zd_lane *lane = link->lane;
	void *ring = link->outbox.ring;

	/* Most connections never fill a page of their ring; what a busy one touched is given back. */
	if (link->outbox.touched > 4 * 4096u)
		(void)madvise(ring, ZD_OUTBOX_BYTES, MADV_DONTNEED);
	link->state = ZD_LINK_FREE;
	link->next_free = lane->free_links;
	lane->free_links = link;
	lane->open_links--;
	atomic_fetch_sub(lane->config.connections, 1);
}

static void on_close(uv_handle_t *handle)
{
	struct zd_link *link = handle->data;
	struct zd_event event = {.type = ZD_EV_CLOSED, .u.closed.id = link->id};
	int known = link->known;

	ZD_ASSERT(link->state == ZD_LINK_CLOSING && link->write_count == 0);
	link->known = 0;
	if (known)
		zd_lane_feed(link->lane, &event);
	/* Free only now: a step in between must not give the slot to another connection. */
	release_link(link);
}

void zd_link_close(struct zd_link *link)
{
	if (link->state == ZD_LINK_CLOSING)
		return;
	if (link->state != ZD_LINK_OPEN)
		link->lane->closing_links--;
	set_parked(link, 0);
	link->state = ZD_LINK_CLOSING;
	uv_close((uv_handle_t *)&link->tcp, on_close);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
	struct zd_link *link = req->data;

	if (status < 0)
		zd_link_close(link);
}

/* FLUSHING with nothing left to write. */
static void shut_down(struct zd_link *link)
{
	link->state = ZD_LINK_LINGER;
	link->shutdown.data = link;
	if (zd_uvx_shutdown(&link->shutdown, &link->tcp, on_shutdown) < 0)
		zd_link_close(link);
}

static void mark_dirty(struct zd_link *link)
{
	if (!link->dirty) {
		link->dirty = 1;
		link->next_dirty = link->lane->dirty_links;
		link->lane->dirty_links = link;
	}
}

/* ---------------------------------------------------------------- reading */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct zd_link *link = handle->data;
	struct zd_lane *lane = link->lane;
	struct zd_span window = {lane->sink, ZD_LANE_SINK_BYTES};

	(void)suggested;
	if (link->turn != lane->turn) {
		link->turn = lane->turn;
		link->turn_bytes = 0;
	}
	/* No buffer ends this connection's turn: libuv reports ENOBUFS and asks again in the next one. */
	if (link->turn_bytes >= ZD_LINK_QUOTA)
		window = (struct zd_span){NULL, 0};
	else if (link->state == ZD_LINK_OPEN)
		window = zd_core_window(lane->core, link->id);
	*buf = uv_buf_init((char *)window.base, (unsigned)window.len);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct zd_link *link = stream->data;
	struct zd_event event = {.type = ZD_EV_BYTES};

	(void)buf;
	if (n == 0 || link->state == ZD_LINK_CLOSING)
		return;
	if (n == UV_ENOBUFS) {
		if (link->state == ZD_LINK_OPEN && link->turn_bytes < ZD_LINK_QUOTA) {
			uv_read_stop(stream);
			set_parked(link, 1);
			zd_log(ZD_LOG_DEBUG, "event=reading-stopped lane=%u slot=%u", link->lane->config.index, link->id.slot);
		}
		return;
	}
	if (n < 0) {
		if (n != UV_EOF)
			zd_log(ZD_LOG_DEBUG, "event=connection-lost lane=%u slot=%u error=%s", link->lane->config.index, link->id.slot,
			       uv_err_name((int)n));
		zd_link_close(link);
		return;
	}
	link->turn_bytes += (uint32_t)n;
	if (link->state != ZD_LINK_OPEN)
		return;
	event.u.bytes.id = link->id;
	event.u.bytes.len = (size_t)n;
	zd_lane_feed(link->lane, &event);
}

static void start_reading(struct zd_link *link)
{
	int rc = zd_uvx_read_start(&link->tcp, on_alloc, on_read);

	if (rc < 0) {
		zd_log(ZD_LOG_WARNING, "event=read-failed lane=%u slot=%u error=%s", link->lane->config.index, link->id.slot,
		       uv_err_name(rc));
		zd_link_close(link);
	}
}

void zd_links_unpark(struct zd_lane *lane)
{
	uint32_t i;

	for (i = 0; lane->parked_links && i < lane->config.max_conns; i++) {
		struct zd_link *link = &lane->links[i];

		if (!link->parked || zd_core_window(lane->core, link->id).len == 0)
			continue;
		set_parked(link, 0);
		start_reading(link);
	}
}

void zd_link_finish(struct zd_link *link)
{
	struct zd_lane *lane = link->lane;

	if (link->state != ZD_LINK_OPEN)
		return;
	link->state = ZD_LINK_FLUSHING;
	link->deadline = uv_hrtime() + atomic_load(&lane->linger_ns);
	lane->closing_links++;
	mark_dirty(link);
	if (link->parked) {
		set_parked(link, 0);
		start_reading(link);
	}
}

void zd_links_expire(struct zd_lane *lane, zd_time now)
{
	uint32_t i;

	for (i = 0; lane->closing_links && i < lane->config.max_conns; i++) {
		struct zd_link *link = &lane->links[i];

		if ((link->state == ZD_LINK_FLUSHING || link->state == ZD_LINK_LINGER) && link->deadline <= now)
			zd_link_close(link);
	}
}

zd_time zd_links_deadline(const struct zd_lane *lane)
{
	zd_time first = ZD_TIME_NEVER;
	uint32_t i;

	for (i = 0; lane->closing_links && i < lane->config.max_conns; i++) {
		const struct zd_link *link = &lane->links[i];

		if ((link->state == ZD_LINK_FLUSHING || link->state == ZD_LINK_LINGER) && link->deadline < first)
			first = link->deadline;
	}
	return first;
}

/* ---------------------------------------------------------------- writing */

static void on_write(uv_write_t *req, int status)
{
	struct zd_link *link = req->data;
	struct zd_link_write *write = &link->writes[link->write_first];
	struct zd_event event = {.type = ZD_EV_SENT, .u.sent.id = link->id};
	uint32_t i;

	ZD_ASSERT(&write->req == req && link->write_count > 0);
	zd_outbox_settle(&link->outbox, &write->out);
	link->write_first = (link->write_first + 1) % ZD_LINK_WRITES;
	link->write_count--;
	if (status < 0) {
		zd_link_close(link);
		return;
	}
	/* The request may be used again by what these events send: its tokens are read before. */
	if (link->state == ZD_LINK_OPEN && write->out.token_count) {
		uint64_t tokens[ZD_OUTBOX_PAYLOADS];
		uint32_t count = write->out.token_count;

		memcpy(tokens, write->out.tokens, count * sizeof(tokens[0]));
		for (i = 0; i < count && link->state == ZD_LINK_OPEN; i++) {
			event.u.sent.token = tokens[i];
			zd_lane_feed(link->lane, &event);
		}
	}
	if (link->state == ZD_LINK_FLUSHING || !zd_outbox_empty(&link->outbox))
		mark_dirty(link);
}

static void flush(struct zd_link *link)
{
	while ((link->state == ZD_LINK_OPEN || link->state == ZD_LINK_FLUSHING) && !zd_outbox_empty(&link->outbox) &&
	       link->write_count < ZD_LINK_WRITES) {
		struct zd_link_write *write = &link->writes[(link->write_first + link->write_count) % ZD_LINK_WRITES];
		int rc;

		zd_outbox_take(&link->outbox, &write->out);
		write->req.data = link;
		rc = zd_uvx_write(&write->req, &link->tcp, write->out.bufs, write->out.buf_count, on_write);
		if (rc < 0) {
			zd_log(ZD_LOG_WARNING, "event=write-failed lane=%u slot=%u error=%s", link->lane->config.index, link->id.slot,
			       uv_err_name(rc));
			zd_link_close(link);
			return;
		}
		link->write_count++;
	}
	if (link->state == ZD_LINK_FLUSHING && zd_outbox_empty(&link->outbox) && link->write_count == 0)
		shut_down(link);
}

void zd_link_send(struct zd_link *link, const uint8_t *frame, uint32_t frame_len, const uint8_t *payload, uint32_t payload_len, uint64_t token)
{
	if (zd_outbox_add(&link->outbox, frame, frame_len, payload, payload_len, token) < 0) {
		zd_log(ZD_LOG_WARNING, "event=peer-does-not-read lane=%u slot=%u queued=%u: connection closed", link->lane->config.index,
		       link->id.slot, ZD_OUTBOX_BYTES);
		zd_link_close(link);
		return;
	}
	if (link->outbox.pending_bytes >= ZD_LINK_BATCH)
		flush(link);
	mark_dirty(link);
}

void zd_links_flush(struct zd_lane *lane)
{
	while (lane->dirty_links) {
		struct zd_link *link = lane->dirty_links;

		lane->dirty_links = link->next_dirty;
		link->dirty = 0;
		flush(link);
	}
}

/* ---------------------------------------------------------------- opening */

static void set_options(struct zd_link *link, int fd)
{
	unsigned peer_ms = (unsigned)(atomic_load(&link->lane->peer_ns) / 1000000u);

	/* None of these is worth refusing a connection for. */
	(void)uv_tcp_nodelay(&link->tcp, 1);
	(void)uv_tcp_keepalive(&link->tcp, 1, peer_ms / 1000 ? peer_ms / 1000 : 1);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &peer_ms, sizeof(peer_ms));
}

static struct zd_link *take_link(struct zd_lane *lane)
{
	struct zd_link *link = lane->free_links;

	if (!link)
		return NULL;
	lane->free_links = link->next_free;
	lane->open_links++;
	link->id.gen++;
	link->state = ZD_LINK_OPEN;
	link->known = 0;
	link->turn = 0;
	link->turn_bytes = 0;
	link->write_first = 0;
	link->write_count = 0;
	zd_outbox_init(&link->outbox, (uint8_t *)lane->rings + (size_t)link->id.slot * ZD_OUTBOX_BYTES);
	return link;
}

static void tell_core(struct zd_link *link, const struct zd_handover *h)
{
	struct zd_event event = {.type = ZD_EV_CONN};

	event.u.conn.id = link->id;
	event.u.conn.role = h->role;
	event.u.conn.features = h->features;
	event.u.conn.early = h->early;
	event.u.conn.early_len = h->early_len;
	event.u.conn.peer = h->peer;
	link->known = 1;
	zd_lane_feed(link->lane, &event);
}

void zd_link_open(struct zd_lane *lane, struct zd_handover *h)
{
	struct zd_link *link = take_link(lane);
	int rc;

	if (!link) {
		/* The door counts connections before it hands one over, so this is a close that is still on its way. */
		close(h->transport.fd);
		atomic_fetch_sub(lane->config.connections, 1);
		return;
	}
	link->tls = h->transport.tls;
	rc = zd_uvx_tcp_init(&lane->loop, &link->tcp);
	if (rc < 0) {
		close(h->transport.fd);
		release_link(link);
		goto failed;
	}
	link->tcp.data = link;
	rc = zd_uvx_tcp_open(&link->tcp, h->transport.fd);
	if (rc < 0) {
		close(h->transport.fd);
		zd_link_close(link);
		goto failed;
	}
	set_options(link, h->transport.fd);
	tell_core(link, h);
	if (link->state == ZD_LINK_OPEN || link->state == ZD_LINK_FLUSHING)
		start_reading(link);
	return;
failed:
	zd_log(ZD_LOG_WARNING, "event=handover-failed lane=%u peer=%s error=%s", lane->config.index, h->peer, uv_err_name(rc));
}
