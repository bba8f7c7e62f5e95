/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to one lane.
 *
 *     IDLE --connect--> WAIT --retry_at--> CONNECTING --UP--> HELLO --WELCOME--> GREETED --(lanes known)--> OPENING --OPENED--> OPEN
 *                        ^                     |                 |                  |                          |              |
 *                        +------ DOWN ---------+-----------------+-------- DOWN or CLOSING, then DOWN ---------+--------------+
 */
#include "client/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/assert.h"

static int lives(const struct zd_link *l)
{
	return l->state >= ZD_LINK_CONNECTING && l->state <= ZD_LINK_OPEN;
}

int zd_clink_add(struct zd_session *s, uint32_t daemon, uint32_t lane)
{
	struct zd_link *l = zd_csession_alloc(s, sizeof(*l));

	if (!l)
		return -1;
	l->slot = s->link_count;
	l->daemon = daemon;
	l->lane = lane;
	l->index = ZD_NO_LANE;
	l->lend_token = 1;
	s->links[s->link_count++] = l;
	return 0;
}

void zd_clink_start(struct zd_session *s)
{
	for (uint32_t i = 0; i < s->link_count; i++) {
		struct zd_link *l = s->links[i];

		if (l->state == ZD_LINK_IDLE && !l->stopped) {
			l->state = ZD_LINK_WAIT;
			l->retry_at = s->now;
		}
	}
}

struct zd_link *zd_clink_find(struct zd_session *s, uint32_t slot, uint32_t gen)
{
	if (slot >= s->link_count || s->links[slot]->gen != gen)
		return NULL;
	return s->links[slot];
}

void zd_clink_name(const struct zd_session *s, const struct zd_link *l, char *out, size_t size)
{
	if (l->index == ZD_NO_LANE)
		snprintf(out, size, "%s", s->daemons[l->daemon]);
	else
		snprintf(out, size, "lane %u (%s, its lane %u)", l->index, s->daemons[l->daemon], l->lane);
}

void zd_clink_explain(const struct zd_session *s, const struct zd_link *l, char *out, size_t size)
{
	const char *where = s->daemons[l->daemon];
	const char *reason = l->reason[0] ? l->reason : "no answer yet";
	const char *before = l->reason[0] ? "; the connection before was lost: " : ""; /* it may be lost again and again */

	if (l->own && l->state <= ZD_LINK_CONNECTING) {
		snprintf(out, size, "no connection to %s: %s", where, reason);
		return;
	}
	switch (l->state) {
	case ZD_LINK_CONNECTING:
		snprintf(out, size, "%s does not answer (%s); is zerod running there, and the port right?", where, reason);
		return;
	case ZD_LINK_HELLO:
		snprintf(out, size, "%s accepts connections but does not answer HELLO%s%s; is it a zerod?", where, before, l->reason);
		return;
	case ZD_LINK_OPENING:
		snprintf(out, size, "%s has not answered OPEN%s%s", where, before, l->reason);
		return;
	case ZD_LINK_GREETED:
		snprintf(out, size, "%s answered, another daemon did not", where);
		return;
	case ZD_LINK_OPEN:
		snprintf(out, size, "%s is connected", where);
		return;
	default:
		snprintf(out, size, "%s: %s; is zerod running there, and the port right?", where, reason);
	}
}

/* ---------------------------------------------------------------- up and down */

void zd_clink_up(struct zd_session *s, const struct zd_session_event *ev)
{
	struct zd_link *l = zd_clink_find(s, ev->slot, ev->gen);

	if (!l || l->state != ZD_LINK_CONNECTING)
		return;
	zd_reader_init(&l->reader, ZD_SIDE_SERVER, l->head_mem, sizeof(l->head_mem));
	l->heard = l->sent = l->pinged = l->since = l->acked = s->now;
	l->state = ZD_LINK_HELLO;
	l->todo = 0;
	if (ev->u.up.greeted)
		zd_cgreet_welcomed(s, l, ev->u.up.lane_count, ev->u.up.features);
	else
		l->todo = ZD_TODO_HELLO;
}

void zd_clink_lose(struct zd_session *s, struct zd_link *l, const char *format, ...)
{
	char text[sizeof(l->reason)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (lives(l)) {
		memcpy(l->reason, text, sizeof(l->reason));
		l->own = 0;
		l->state = ZD_LINK_CLOSING;
		l->todo = ZD_TODO_CLOSE;
		zd_cagree_down(s, l);
	} else if (l->stopped && l->state == ZD_LINK_WAIT) {
		l->state = ZD_LINK_IDLE;
	}
}

static void back_off(struct zd_session *s, struct zd_link *l)
{
	zd_time wait = ZD_BACKOFF_MIN << (l->tries < 10 ? l->tries : 10);

	if (wait > ZD_BACKOFF_MAX)
		wait = ZD_BACKOFF_MAX;
	wait = wait / 2 + zd_csession_random(s) % (wait / 2);
	l->tries++;
	l->state = ZD_LINK_WAIT;
	l->retry_at = s->now + wait;
}

void zd_clink_down(struct zd_session *s, const struct zd_session_event *ev)
{
	struct zd_link *l = zd_clink_find(s, ev->slot, ev->gen);
	enum zd_clink_state was;

	if (!l || l->state < ZD_LINK_CONNECTING)
		return;
	was = l->state;
	if (was != ZD_LINK_CLOSING) {
		snprintf(l->reason, sizeof(l->reason), "%s", ev->u.down.text ? ev->u.down.text : "connection lost");
		l->own = ev->u.down.own;
		zd_cagree_down(s, l);
	}
	l->state = ZD_LINK_IDLE;
	l->todo = 0;
	while (l->lend_count > 0) {
		struct zd_req *r = l->lends[l->lend_head].req;

		l->lend_head = (l->lend_head + 1) % ZD_LENDS_MAX;
		l->lend_count--;
		zd_csession_unlend(s, r);
	}
	l->lent_bytes = 0;
	zd_cfetch_rewind(s, l);
	zd_cpush_rewind(s, l);
	if (s->failed || l->stopped)
		return;
	if (ev->u.down.fatal && was == ZD_LINK_CONNECTING && !s->connected) {
		zd_csession_fail(s, ZEROD_ERR_CONNECT, "%s: %s", s->daemons[l->daemon], l->reason);
		return;
	}
	if (s->connected && l->tries == 0)
		s->stats.reconnects++;
	back_off(s, l);
}

void zd_clink_sent(struct zd_session *s, const struct zd_session_event *ev)
{
	struct zd_link *l = zd_clink_find(s, ev->slot, ev->gen);
	struct zd_lend lend;

	if (!l || l->lend_count == 0)
		return;
	ZD_ASSERT(ev->u.sent.token == l->lend_token - l->lend_count);
	lend = l->lends[l->lend_head];
	l->lend_head = (l->lend_head + 1) % ZD_LENDS_MAX;
	l->lend_count--;
	l->lent_bytes -= lend.bytes;
	zd_csession_unlend(s, lend.req);
}

/* ---------------------------------------------------------------- time */

static zd_time ping_every(const struct zd_session *s)
{
	return ZD_MS(s->spec.lease_ms) / 4;
}

static zd_time ping_at(const struct zd_session *s, const struct zd_link *l)
{
	zd_time quiet = l->sent < l->heard ? l->sent : l->heard;

	return (quiet > l->pinged ? quiet : l->pinged) + ping_every(s);
}

static zd_time greet_by(const struct zd_session *s, const struct zd_link *l)
{
	zd_time within = ZD_MS(s->spec.lease_ms) / 2;

	if (within < ZD_GREET_MIN)
		within = ZD_GREET_MIN;
	return l->since + (within < ZD_GREET_MAX ? within : ZD_GREET_MAX);
}

/* A lane that does not answer PING for as long as it takes to become due again, and whose host acknowledges nothing either, is cut off.  Half of the
 * lease is left then, for a new connection: TCP would send again only after as long a time as the way has been cut already, and a way that is there
 * again may be found too late.  Acknowledgements without an answer are those of a slow way, which a new connection makes no faster, or of a lane that
 * stands still. */
static zd_time dead_at(const struct zd_session *s, const struct zd_link *l)
{
	zd_time lease = ZD_MS(s->spec.lease_ms), every = ping_every(s), least = lease < ZD_PONG_MIN ? lease : ZD_PONG_MIN;
	zd_time wait = every > least ? every : least;
	zd_time cut = l->asked_at + wait, slow = l->acked + wait, late = l->heard + lease + every;

	if (l->pinged <= l->heard)
		return ZD_TIME_NEVER;
	if (l->acked <= l->asked_at)
		return cut;
	late = late > cut ? late : cut;
	return slow < late ? slow : late;
}

void zd_clink_acked(struct zd_session *s, const struct zd_session_event *ev)
{
	struct zd_link *l = zd_clink_find(s, ev->slot, ev->gen);

	if (l && ev->u.acked.at > l->acked)
		l->acked = ev->u.acked.at;
}

int zd_clink_doubtful(const struct zd_session *s, const struct zd_link *l, zd_time now)
{
	return l->state == ZD_LINK_OPEN && now >= dead_at(s, l);
}

void zd_clink_doubt(struct zd_session *s, struct zd_link *l)
{
	if (zd_clink_doubtful(s, l, s->now))
		zd_clink_lose(s, l, "no answer to PING for %llu ms", (unsigned long long)((s->now - l->heard) / 1000000u));
}

void zd_clink_tick(struct zd_session *s, struct zd_link *l)
{
	if (l->state == ZD_LINK_CONNECTING || l->state == ZD_LINK_HELLO || l->state == ZD_LINK_OPENING) {
		if (s->now >= greet_by(s, l))
			zd_clink_lose(s, l, "%s within %llu ms", l->state == ZD_LINK_CONNECTING ? "no connection" : "no answer to the greeting",
				     (unsigned long long)((s->now - l->since) / 1000000u));
		return;
	}
	if (l->state != ZD_LINK_OPEN && l->state != ZD_LINK_GREETED)
		return;
	if (l->state == ZD_LINK_OPEN && s->now >= ping_at(s, l))
		l->todo |= ZD_TODO_PING;
}

zd_time zd_clink_deadline(const struct zd_session *s, const struct zd_link *l)
{
	zd_time ping, dead;

	switch (l->state) {
	case ZD_LINK_WAIT:
		return l->retry_at;
	case ZD_LINK_CONNECTING:
	case ZD_LINK_HELLO:
	case ZD_LINK_OPENING:
		return greet_by(s, l);
	case ZD_LINK_OPEN:
		ping = ping_at(s, l);
		dead = dead_at(s, l);
		return ping < dead ? ping : dead;
	default:
		return ZD_TIME_NEVER;
	}
}

/* ---------------------------------------------------------------- frames */

/* What is wrong with a header.  Only the first one of a connection tells what the peer speaks; behind WELCOME it was damaged on the way. */
static int is_header_error(int err)
{
	return err == ZD_ERR_BAD_MAGIC || err == ZD_ERR_BAD_VERSION || err == ZD_ERR_BAD_TYPE || err == ZD_ERR_BAD_LENGTH;
}

/* What a lane's ERROR means for the session.  Requests that it refuses are told by their stream; the rest ends the link or the session. */
static void take_error(struct zd_session *s, struct zd_link *l, const Zd__Pb__Error *m, uint64_t stream)
{
	int err = (int)m->code;
	char name[320];

	zd_clink_name(s, l, name, sizeof(name));
	if (ZD_STREAM_KIND(stream) == ZD_STREAM_FETCH && zd_err_class(err) == ZD_ERR_CLASS_REFUSE) {
		zd_cfetch_refused(s, l, stream, err, m->text);
		return;
	}
	if ((ZD_STREAM_KIND(stream) == ZD_STREAM_LOAD || ZD_STREAM_KIND(stream) == ZD_STREAM_SEAL) &&
	    zd_err_class(err) == ZD_ERR_CLASS_REFUSE && err != ZD_ERR_DRAINING) {
		zd_cpush_refused(s, l, stream, err, m->text);
		return;
	}
	if (is_header_error(err) && l->state != ZD_LINK_HELLO) {
		zd_clink_lose(s, l, "a frame was damaged on the way: %s: %s", zd_err_text(err), m->text);
		return;
	}
	switch (err) {
	case ZD_ERR_BAD_CHECKSUM:
	case ZD_ERR_TIMED_OUT:
		zd_clink_lose(s, l, "%s: %s", zd_err_text(err), m->text);
		return;
	case ZD_ERR_DRAINING:
	case ZD_ERR_NO_ROOM: /* our own last connection, cut on the way, may have the place still */
		if (s->connected)
			zd_clink_lose(s, l, "%s: %s", zd_err_text(err), m->text);
		else
			zd_csession_fail(s, ZEROD_ERR_REFUSED, "%s: %s: %s", name, zd_err_text(err), m->text);
		return;
	case ZD_ERR_NO_JOB:
		if (zd_cgreet_known(s, l))
			zd_cgreet_lost(s, l, "it is not there any more");
		else
			zd_csession_fail(s, ZEROD_ERR_REFUSED, "%s: %s: %s", name, zd_err_text(err), m->text);
		return;
	case ZD_ERR_DROPPED:
		zd_csession_lost(s, "%s: %s: %s", name, zd_err_text(err), m->text);
		return;
	case ZD_ERR_BAD_VERSION:
		zd_csession_fail(s, ZEROD_ERR_CONNECT, "%s: %s: %s", name, zd_err_text(err), m->text);
		return;
	default:
		zd_csession_fail(s, zd_err_class(err) == ZD_ERR_CLASS_REFUSE || err == ZD_ERR_NO_LANE || err == ZD_ERR_NO_ROLE
					   ? ZEROD_ERR_REFUSED
					   : ZEROD_ERR_PROTOCOL,
				"%s: %s: %s", name, zd_err_text(err), m->text);
	}
}

/* Greetings, and errors, any time; everything else is for workers, of an open job. */
static int is_expected(const struct zd_session *s, const struct zd_link *l, uint16_t type)
{
	return type == ZD_MSG_WELCOME || type == ZD_MSG_OPENED || type == ZD_MSG_ERROR || type == ZD_MSG_PONG ||
	       (l->state == ZD_LINK_OPEN && s->config.world > 0);
}

static void take_message(struct zd_session *s, struct zd_link *l, uint16_t type, uint64_t stream, const ProtobufCMessage *msg)
{
	if ((type == ZD_MSG_WELCOME) != (l->state == ZD_LINK_HELLO) && type != ZD_MSG_ERROR) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "%s sent %s %s WELCOME", s->daemons[l->daemon], zd_msg_name(type),
				l->state == ZD_LINK_HELLO ? "before" : "after");
		return;
	}
	if (!is_expected(s, l, type)) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "%s sent %s to a %s%s, who has not asked for it", s->daemons[l->daemon], zd_msg_name(type),
				 s->config.world > 0 ? "worker" : "reader", l->state == ZD_LINK_OPEN ? "" : " before OPENED");
		return;
	}
	switch (type) {
	case ZD_MSG_WELCOME:
		zd_cgreet_welcome(s, l, (const Zd__Pb__Welcome *)msg);
		return;
	case ZD_MSG_OPENED:
		zd_cgreet_opened(s, l, (const Zd__Pb__Opened *)msg);
		return;
	case ZD_MSG_JOINED:
		zd_cagree_joined(s, l, (const Zd__Pb__Joined *)msg);
		return;
	case ZD_MSG_LOADED:
		zd_cpush_loaded(s, l, (const Zd__Pb__Loaded *)msg, stream);
		return;
	case ZD_MSG_SEALED:
		zd_cpush_sealed(s, l);
		return;
	case ZD_MSG_PUSHED:
		zd_cpush_pushed(s, l, (const Zd__Pb__Pushed *)msg);
		return;
	case ZD_MSG_PREPARED:
		zd_cagree_prepared(s, l, (const Zd__Pb__Prepared *)msg);
		return;
	case ZD_MSG_APPLIED:
		zd_cagree_applied(s, l, (const Zd__Pb__Applied *)msg);
		return;
	case ZD_MSG_DISCARDED:
		zd_cagree_discarded(s, l, (const Zd__Pb__Discarded *)msg);
		return;
	case ZD_MSG_ABORTED:
		zd_cagree_aborted(s, l, (const Zd__Pb__Aborted *)msg);
		return;
	case ZD_MSG_ERROR:
		take_error(s, l, (const Zd__Pb__Error *)msg, stream);
		return;
	case ZD_MSG_PONG:
		zd_cwaits_pong(l, (const Zd__Pb__Pong *)msg);
		zd_cpush_pong(s, l, (const Zd__Pb__Pong *)msg);
		return;
	default:
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "%s sent %s, which a worker does not ask for", s->daemons[l->daemon], zd_msg_name(type));
	}
}

static void take_head(struct zd_session *s, struct zd_link *l)
{
	const struct zd_header h = l->reader.header;
	const ProtobufCMessage *msg;
	char text[256] = "";
	uint8_t *place = NULL;
	int err;

	s->stats.frames_received++;
	s->stats.wire_received += ZD_HEADER_BYTES + h.head_len + h.payload_len;
	s->stats.payload_received += h.payload_len;
	zd_arena_reset(&s->arena);
	err = zd_wire_decode(&s->arena, h.type, l->reader.head, h.head_len, &msg, text, sizeof(text));
	if (err < 0) {
		zd_csession_fail(s, ZEROD_ERR_PROTOCOL, "%s sent a bad %s: %s", s->daemons[l->daemon], zd_msg_name(h.type), text);
		return;
	}
	if (h.type != ZD_MSG_DATA || l->state != ZD_LINK_OPEN) {
		take_message(s, l, h.type, h.stream, msg);
		return;
	}
	if (zd_cfetch_data(s, l, (const Zd__Pb__Data *)msg, h.stream, h.payload_len, &place) == 0 && h.payload_len > 0)
		zd_reader_payload(&l->reader, place);
}

static void lost_stream(struct zd_session *s, struct zd_link *l, int err)
{
	char text[256] = "";

	zd_header_explain(text, sizeof(text), -err, &l->reader.header);
	if (is_header_error(-err) && l->state == ZD_LINK_HELLO)
		zd_csession_fail(s, ZEROD_ERR_CONNECT, "%s speaks another protocol (%s); is the port right?", s->daemons[l->daemon], text);
	else /* whoever gets as far as the checksum is a zerod, too */
		zd_clink_lose(s, l, "a frame was damaged on the way: %s", text);
}

void zd_clink_bytes(struct zd_session *s, const struct zd_session_event *ev)
{
	struct zd_link *l = zd_clink_find(s, ev->slot, ev->gen);

	if (!l || l->state < ZD_LINK_HELLO || l->state == ZD_LINK_CLOSING)
		return;
	if (l->rx)
		l->heard = s->now;
	zd_reader_advance(&l->reader, ev->u.bytes.len);
	for (;;) {
		int rc = zd_reader_next(&l->reader);

		if (rc == ZD_READER_MORE)
			return;
		if (rc == ZD_READER_HEAD) /* not before: a damaged length takes PONGs for more of its head */
			l->heard = s->now;
		if (rc < 0) {
			lost_stream(s, l, rc);
			return;
		}
		if (rc == ZD_READER_HEAD)
			take_head(s, l);
		else if (l->rx)
			zd_cfetch_frame(s, l);
		if (l->state == ZD_LINK_CLOSING)
			return;
	}
}
