/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/door.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "proto/wire.h"
#include "server/shell/log.h"
#include "server/shell/uvx.h"

/* What a lane of this release can do. */
#define FEATURES ZD_FEATURE_PAYLOAD_CRC
/* What a client must offer on a connection without TLS.  Built without any to measure what checksums cost (tests/bench), and nowhere else. */
#ifndef ZD_DOOR_REQUIRED
#define ZD_DOOR_REQUIRED ZD_FEATURE_PAYLOAD_CRC
#endif
/* Decoding a HELLO of 256 bytes; its pre-scan bounds what that may take. */
#define HELLO_ARENA 16384u
/* A listener that had to wait for a place, or could not accept, tries again this often. */
#define RETRY_NS ZD_MS(50)
/* When all places are taken, the guest that has been here longest makes room, but not before its HELLO, which a client sends with its first
 * packet, can have been read: so nobody who only connects can keep others out. */
#define EVICT_NS ZD_MS(20)

enum guest_state { GUEST_FREE, GUEST_READING, GUEST_LINGER, GUEST_CLOSING };

/* A peer that has not been let in. */
struct guest {
	struct zd_door *door;
	enum guest_state state;
	struct guest *next_free;
	zd_time since, deadline;
	uv_tcp_t tcp;
	uv_shutdown_t shutdown;
	char peer[ZD_PEER_BYTES];
	struct zd_reader reader;
};

struct listener {
	struct zd_door *door;
	uv_tcp_t tcp;
	int ready;   /* initialised, to be closed */
	int waiting; /* a connection was announced and not accepted: libuv announces no other until it is */
};

struct zd_door {
	struct zd_door_config config;
	uv_loop_t *loop;
	uv_timer_t timer;
	zd_time timer_at;
	struct listener listeners[ZD_DOOR_ADDRESSES_MAX];
	uint16_t port;
	int closing;
	struct guest *guests, *free_guests;
	uint32_t guest_count; /* not FREE */
	struct zd_arena arena;
	_Alignas(16) uint8_t arena_mem[HELLO_ARENA];
};

static void set_timer(struct zd_door *door);
static void accept_waiting(struct zd_door *door);

/* ---------------------------------------------------------------- closing a guest */

static void on_guest_closed(uv_handle_t *handle)
{
	struct guest *g = handle->data;
	struct zd_door *door = g->door;

	g->state = GUEST_FREE;
	g->next_free = door->free_guests;
	door->free_guests = g;
	door->guest_count--;
	if (!door->closing)
		accept_waiting(door);
}

static void close_guest(struct guest *g)
{
	if (g->state == GUEST_CLOSING)
		return;
	g->state = GUEST_CLOSING;
	uv_close((uv_handle_t *)&g->tcp, on_guest_closed);
}

static void on_guest_shutdown(uv_shutdown_t *req, int status)
{
	if (status < 0)
		close_guest(req->data);
}

/* Tells the peer why, then waits a little for it to read that. */
__attribute__((format(printf, 3, 4))) static void refuse(struct guest *g, int err, const char *format, ...)
{
	uint8_t frame[ZD_HEADER_BYTES + 2048];
	char text[ZD_TEXT_MAX + 1], quoted[ZD_TEXT_MAX + 1];
	Zd__Pb__Error msg = ZD__PB__ERROR__INIT;
	size_t len;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	zd_log(ZD_LOG_NOTICE, "event=refused peer=%s error=%s text=%s", g->peer, zd_err_name(err),
	       zd_text_quote(quoted, sizeof(quoted), text));
	msg.code = (uint32_t)err;
	msg.text = text;
	len = zd_wire_encode(frame, sizeof(frame), ZD_MSG_ERROR, g->reader.header.stream, &msg.base, 0, 0);
	g->state = GUEST_LINGER;
	g->deadline = uv_hrtime() + g->door->config.linger_ns;
	g->shutdown.data = g;
	/* The socket's buffer is empty, so that this fits; if the peer made it otherwise it goes without. */
	if (zd_uvx_try_write_all(&g->tcp, frame, len) < 0 || zd_uvx_shutdown(&g->shutdown, &g->tcp, on_guest_shutdown) < 0)
		close_guest(g);
	set_timer(g->door);
}

/* ---------------------------------------------------------------- letting in */

static int send_welcome(struct guest *g, const Zd__Pb__Hello *hello)
{
	struct zd_door *door = g->door;
	uint8_t frame[ZD_HEADER_BYTES + 256];
	Zd__Pb__Welcome msg = ZD__PB__WELCOME__INIT;
	size_t len;

	msg.version = ZD_VERSION;
	msg.features = hello->features & FEATURES;
	msg.lane_count = door->config.lane_count;
	msg.daemon = (char *)(uintptr_t)door->config.daemon;
	msg.payload_max = ZD_PAYLOAD_MAX;
	len = zd_wire_encode(frame, sizeof(frame), ZD_MSG_WELCOME, g->reader.header.stream, &msg.base, 0, 0);
	return zd_uvx_try_write_all(&g->tcp, frame, len);
}

static struct zd_handover *pack(const struct guest *g, const Zd__Pb__Hello *hello)
{
	const struct zd_reader *r = &g->reader;
	struct zd_handover *h = zd_uvx_calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->role = (enum zd_role)hello->role;
	h->features = hello->features & FEATURES;
	memcpy(h->peer, g->peer, sizeof(h->peer));
	h->early_len = r->end - r->begin;
	memcpy(h->early, r->landing + r->begin, h->early_len);
	return h;
}

/*
 * The lane gets a descriptor of its own.  libuv ties the old number to this loop until uv_close has taken it out; opened on the lane's loop it
 * would be read by both.
 */
static void hand_over(struct guest *g, const Zd__Pb__Hello *hello)
{
	struct zd_door *door = g->door;
	struct zd_lane *lane = door->config.lanes[hello->lane];
	struct zd_handover *h;

	if (atomic_fetch_add(door->config.connections, 1) >= door->config.connections_max) {
		atomic_fetch_sub(door->config.connections, 1);
		refuse(g, ZD_ERR_NO_ROOM, "%u connections are open, and limits.connections of daemon %s allows no more",
		       door->config.connections_max, door->config.daemon);
		return;
	}
	h = pack(g, hello);
	if (!h) {
		atomic_fetch_sub(door->config.connections, 1);
		refuse(g, ZD_ERR_NO_ROOM, "daemon %s is out of memory", door->config.daemon);
		return;
	}
	uv_read_stop((uv_stream_t *)&g->tcp);
	h->transport.fd = zd_uvx_dup(&g->tcp);
	if (h->transport.fd < 0 || send_welcome(g, hello) < 0) {
		if (h->transport.fd >= 0)
			close(h->transport.fd);
		free(h);
		atomic_fetch_sub(door->config.connections, 1);
		zd_log(ZD_LOG_WARNING, "event=handover-failed peer=%s", g->peer);
		close_guest(g);
		return;
	}
	zd_log(ZD_LOG_DEBUG, "event=welcome peer=%s lane=%u role=%u", g->peer, hello->lane, hello->role);
	close_guest(g);
	zd_lane_handover(lane, h);
}

static void hear_hello(struct guest *g)
{
	struct zd_door *door = g->door;
	const ProtobufCMessage *msg;
	const Zd__Pb__Hello *hello;
	char text[ZD_TEXT_MAX + 1] = "";
	int rc;

	zd_arena_reset(&door->arena);
	rc = zd_wire_decode(&door->arena, ZD_MSG_HELLO, g->reader.head, g->reader.header.head_len, &msg, text, sizeof(text));
	if (rc < 0) {
		refuse(g, -rc, "%s", text);
		return;
	}
	hello = (const Zd__Pb__Hello *)msg;
	if (hello->version != ZD_VERSION)
		refuse(g, ZD_ERR_BAD_VERSION, "HELLO asks for protocol version %u, daemon %s speaks %u", hello->version,
		       door->config.daemon, ZD_VERSION);
	else if (hello->lane >= door->config.lane_count)
		refuse(g, ZD_ERR_NO_LANE, "HELLO.lane: daemon %s has lanes 0 to %u, found %u", door->config.daemon,
		       door->config.lane_count - 1, hello->lane);
	else if (~hello->features & ZD_DOOR_REQUIRED)
		refuse(g, ZD_ERR_BAD_FIELD, "HELLO.features: payload checksums (bit 0) are required on a connection without TLS");
	else
		hand_over(g, hello);
}

/* Everything the bytes so far allow: at most one frame, which has to be HELLO. */
static void hear(struct guest *g)
{
	struct zd_reader *r = &g->reader;
	char text[ZD_TEXT_MAX + 1];
	int rc = zd_reader_next(r);

	if (rc == ZD_READER_MORE)
		return;
	if (rc < 0) {
		zd_header_explain(text, sizeof(text), -rc, &r->header);
		refuse(g, -rc, "%s", text);
	} else if (r->header.type != ZD_MSG_HELLO) {
		refuse(g, ZD_ERR_OUT_OF_ORDER, "expected HELLO first, found %s", zd_msg_name(r->header.type));
	} else {
		ZD_ASSERT(rc == ZD_READER_HEAD);
		hear_hello(g);
	}
}

static void on_guest_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct guest *g = handle->data;
	struct zd_span window;

	(void)suggested;
	if (g->state == GUEST_READING)
		window = zd_reader_window(&g->reader, (struct zd_span){NULL, 0});
	else
		window = (struct zd_span){g->reader.landing, sizeof(g->reader.landing)}; /* thrown away */
	*buf = uv_buf_init((char *)window.base, (unsigned)window.len);
}

static void on_guest_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct guest *g = stream->data;

	(void)buf;
	if (n < 0) {
		close_guest(g);
		return;
	}
	if (n == 0 || g->state != GUEST_READING)
		return;
	zd_reader_advance(&g->reader, (size_t)n);
	hear(g);
}

/* ---------------------------------------------------------------- accepting */

static void name_peer(struct guest *g)
{
	struct sockaddr_storage addr;
	int len = sizeof(addr);
	char host[INET6_ADDRSTRLEN] = "";

	snprintf(g->peer, sizeof(g->peer), "unknown");
	if (uv_tcp_getpeername(&g->tcp, (struct sockaddr *)&addr, &len) < 0)
		return;
	if (addr.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&addr;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(g->peer, sizeof(g->peer), "%s:%u", host, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(g->peer, sizeof(g->peer), "[%s]:%u", host, ntohs(in6->sin6_port));
	}
}

static void evict(struct zd_door *door)
{
	struct guest *oldest = NULL;
	uint32_t i;

	for (i = 0; i < door->config.handshakes; i++) {
		struct guest *g = &door->guests[i];

		if (g->state == GUEST_CLOSING)
			return; /* somebody is leaving already */
		if ((g->state == GUEST_READING || g->state == GUEST_LINGER) && (!oldest || g->since < oldest->since))
			oldest = g;
	}
	if (!oldest || uv_hrtime() - oldest->since < EVICT_NS)
		return;
	zd_log(ZD_LOG_NOTICE, "event=evicted peer=%s: %s, and %u connections are at the door (limits.handshakes)", oldest->peer,
	       oldest->state == GUEST_READING ? "no HELLO yet" : "refused, and not closed yet", door->config.handshakes);
	close_guest(oldest);
}

/* 0: taken in, or gone again already; negative: try later. */
static int accept_one(struct listener *l)
{
	struct zd_door *door = l->door;
	struct guest *g = door->free_guests;
	int rc;

	if (!g) {
		evict(door);
		return UV_EAGAIN; /* until that one is closed */
	}
	rc = zd_uvx_tcp_init(door->loop, &g->tcp);
	if (rc < 0)
		return rc;
	door->free_guests = g->next_free;
	door->guest_count++;
	g->tcp.data = g;
	g->state = GUEST_READING;
	g->since = uv_hrtime();
	g->deadline = g->since + door->config.hello_ns;
	g->peer[0] = '\0';
	rc = zd_uvx_accept(&l->tcp, &g->tcp);
	if (rc < 0) {
		close_guest(g);
		return rc == UV_EAGAIN ? 0 : rc; /* the peer has gone again */
	}
	name_peer(g);
	zd_reader_init(&g->reader, ZD_SIDE_CLIENT, NULL, 0);
	rc = zd_uvx_read_start(&g->tcp, on_guest_alloc, on_guest_read);
	if (rc < 0) {
		zd_log(ZD_LOG_WARNING, "event=accept-failed peer=%s error=%s", g->peer, uv_err_name(rc));
		close_guest(g);
	}
	return 0;
}

static void accept_waiting(struct zd_door *door)
{
	uint32_t i;

	for (i = 0; i < door->config.address_count; i++)
		if (door->listeners[i].waiting && accept_one(&door->listeners[i]) == 0)
			door->listeners[i].waiting = 0;
	set_timer(door);
}

static void on_connection(uv_stream_t *server, int status)
{
	struct listener *l = server->data;

	if (status < 0) {
		zd_log(ZD_LOG_WARNING, "event=accept-failed error=%s", uv_err_name(status));
		return;
	}
	if (accept_one(l) < 0)
		l->waiting = 1;
	set_timer(l->door);
}

/* ---------------------------------------------------------------- time */

static void on_timer(uv_timer_t *timer)
{
	struct zd_door *door = timer->data;
	zd_time now = uv_hrtime();
	uint32_t i;

	door->timer_at = ZD_TIME_NEVER;
	for (i = 0; i < door->config.handshakes; i++) {
		struct guest *g = &door->guests[i];

		if (g->state == GUEST_READING && g->deadline <= now)
			refuse(g, ZD_ERR_TIMED_OUT, "no complete HELLO within %llu ms (limits.hello_timeout)",
			       (unsigned long long)(door->config.hello_ns / 1000000));
		else if (g->state == GUEST_LINGER && g->deadline <= now)
			close_guest(g);
	}
	accept_waiting(door);
}

static void set_timer(struct zd_door *door)
{
	zd_time at = ZD_TIME_NEVER, now = uv_hrtime();
	uint32_t i;

	if (door->closing)
		return;
	for (i = 0; door->guest_count && i < door->config.handshakes; i++) {
		const struct guest *g = &door->guests[i];

		if ((g->state == GUEST_READING || g->state == GUEST_LINGER) && g->deadline < at)
			at = g->deadline;
	}
	for (i = 0; i < door->config.address_count; i++)
		if (door->listeners[i].waiting && now + RETRY_NS < at)
			at = now + RETRY_NS;
	if (at == door->timer_at)
		return;
	door->timer_at = at;
	if (at == ZD_TIME_NEVER)
		uv_timer_stop(&door->timer);
	else
		uv_timer_start(&door->timer, on_timer, at > now ? (at - now + 999999) / 1000000 : 0, 0);
}

/* ---------------------------------------------------------------- making and ending */

static uint16_t *port_of(struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET ? &((struct sockaddr_in *)addr)->sin_port : &((struct sockaddr_in6 *)addr)->sin6_port;
}

static int start_listener(struct zd_door *door, struct listener *l, const struct sockaddr_storage *address)
{
	struct sockaddr_storage addr = *address, bound;
	int rc;

	if (*port_of(&addr) == 0)
		*port_of(&addr) = htons(door->port);
	l->door = door;
	rc = zd_uvx_tcp_init(door->loop, &l->tcp);
	if (rc < 0)
		return rc;
	l->ready = 1;
	l->tcp.data = l;
	rc = zd_uvx_tcp_bind(&l->tcp, (const struct sockaddr *)&addr, addr.ss_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
	if (rc == 0)
		rc = zd_uvx_listen(&l->tcp, door->config.backlog, on_connection);
	if (rc == 0)
		rc = zd_uvx_getsockname(&l->tcp, &bound);
	if (rc == 0)
		door->port = ntohs(*port_of(&bound));
	return rc;
}

static void init_guests(struct zd_door *door)
{
	uint32_t i;

	for (i = door->config.handshakes; i-- > 0;) {
		door->guests[i].door = door;
		door->guests[i].next_free = door->free_guests;
		door->free_guests = &door->guests[i];
	}
}

int zd_door_new(struct zd_door **ret_door, uv_loop_t *loop, const struct zd_door_config *config, uint32_t *ret_address)
{
	struct zd_door *door = zd_uvx_calloc(1, sizeof(*door));
	uint32_t i;
	int rc = 0;

	*ret_address = config->address_count;
	if (!door)
		return UV_ENOMEM;
	door->config = *config;
	door->loop = loop;
	door->timer_at = ZD_TIME_NEVER;
	door->guests = zd_uvx_calloc(config->handshakes, sizeof(*door->guests));
	if (!door->guests) {
		free(door);
		return UV_ENOMEM;
	}
	init_guests(door);
	zd_arena_init(&door->arena, door->arena_mem, sizeof(door->arena_mem));
	uv_timer_init(loop, &door->timer);
	door->timer.data = door;
	for (i = 0; rc == 0 && i < config->address_count; i++) {
		rc = start_listener(door, &door->listeners[i], &config->address[i]);
		if (rc < 0)
			*ret_address = i;
	}
	if (rc < 0) {
		zd_door_close(door);
		uv_run(loop, UV_RUN_NOWAIT); /* the close callbacks */
		zd_door_free(door);
		return rc;
	}
	*ret_door = door;
	return 0;
}

uint16_t zd_door_port(const struct zd_door *door)
{
	return door->port;
}

void zd_door_reload(struct zd_door *door, zd_time hello_ns, zd_time linger_ns)
{
	door->config.hello_ns = hello_ns;
	door->config.linger_ns = linger_ns;
}

void zd_door_close(struct zd_door *door)
{
	uint32_t i;

	if (door->closing)
		return;
	door->closing = 1;
	uv_close((uv_handle_t *)&door->timer, NULL);
	for (i = 0; i < door->config.address_count; i++)
		if (door->listeners[i].ready)
			uv_close((uv_handle_t *)&door->listeners[i].tcp, NULL);
	for (i = 0; i < door->config.handshakes; i++)
		if (door->guests[i].state != GUEST_FREE)
			close_guest(&door->guests[i]);
}

void zd_door_free(struct zd_door *door)
{
	ZD_ASSERT(door->closing && door->guest_count == 0);
	free(door->guests);
	free(door);
}
