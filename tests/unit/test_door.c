/* SPDX-License-Identifier: Apache-2.0 */
/* The door through real sockets: who is let in, who is told what, and that every client's bytes stay its own on the way to a lane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/codec.h"
#include "tests/unit/daemon_thread.h"
#include "tests/unit/raw_peer.h"

static struct daemon_thread *start(const char *const *sets)
{
	enum zd_exit ex;
	struct daemon_thread *t;

	daemon_log_clear();
	t = daemon_thread_start(sets, &ex);
	if (!t)
		fail_msg("exit %u: %s", ex, daemon_thread_text());
	return t;
}

static struct raw_peer *peer(struct daemon_thread *t)
{
	struct raw_peer *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	assert_int_equal(raw_open(p, daemon_thread_port(t)), 0);
	return p;
}

static void leave(struct raw_peer *p)
{
	raw_close(p);
	free(p);
}

/* ERROR with that code and text, then the end of the connection. */
static void expect_refused(struct raw_peer *p, int err, const char *text)
{
	const Zd__Pb__Error *e;

	assert_int_equal(raw_receive(p), ZD_MSG_ERROR);
	e = (const Zd__Pb__Error *)p->msg;
	assert_int_equal(e->code, err);
	if (!strstr(e->text, text))
		fail_msg("\"%s\" does not say \"%s\"", e->text, text);
	assert_int_equal(raw_receive(p), RAW_CLOSED);
}

static void expect_status(struct raw_peer *p, uint64_t stream)
{
	assert_int_equal(raw_receive(p), ZD_MSG_STATUS_REPLY);
	assert_int_equal(p->reader.header.stream, stream);
}

static size_t status_frame(uint8_t *out, size_t size, uint64_t stream)
{
	Zd__Pb__Status status = ZD__PB__STATUS__INIT;

	return raw_frame(out, size, ZD_MSG_STATUS, stream, &status.base, NULL, 0);
}

static void ask_status(struct raw_peer *p, uint64_t stream)
{
	uint8_t frame[256];

	raw_bytes(p, frame, status_frame(frame, sizeof(frame), stream));
	expect_status(p, stream);
}

/* ---------------------------------------------------------------- the first frame */

static size_t frame_http(uint8_t *out, size_t size)
{
	return (size_t)snprintf((char *)out, size, "GET / HTTP/1.1\r\nHost: zerod\r\nAccept: */*\r\n\r\n");
}

static size_t frame_hello(uint8_t *out, size_t size, uint32_t version, uint64_t features, uint32_t lane)
{
	Zd__Pb__Hello hello = ZD__PB__HELLO__INIT;

	hello.version = version;
	hello.features = features;
	hello.role = ZD_ROLE_ADMIN;
	hello.lane = lane;
	return raw_frame(out, size, ZD_MSG_HELLO, 7, &hello.base, NULL, 0);
}

static size_t frame_version(uint8_t *out, size_t size)
{
	return frame_hello(out, size, ZD_VERSION + 1, ZD_FEATURE_PAYLOAD_CRC, 0);
}

static size_t frame_lane(uint8_t *out, size_t size)
{
	return frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 2);
}

static size_t frame_no_crc(uint8_t *out, size_t size)
{
	return frame_hello(out, size, ZD_VERSION, 0, 0);
}

static size_t frame_header_version(uint8_t *out, size_t size)
{
	size_t n = frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 0);

	out[4] = 9;
	return n;
}

static size_t frame_damaged(uint8_t *out, size_t size)
{
	size_t n = frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 0);

	out[n - 1] ^= 1;
	return n;
}

static size_t frame_oversized(uint8_t *out, size_t size)
{
	size_t n = frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 0);

	out[8] = 1; /* head_len 257 */
	out[9] = 1;
	return n;
}

static size_t frame_huge(uint8_t *out, size_t size)
{
	size_t n = frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 0);

	memset(out + 8, 0xff, 8); /* both lengths */
	return n;
}

static size_t frame_type(uint8_t *out, size_t size)
{
	size_t n = frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 0);

	out[6] = 63;
	return n;
}

static size_t frame_from_server(uint8_t *out, size_t size)
{
	size_t n = frame_hello(out, size, ZD_VERSION, ZD_FEATURE_PAYLOAD_CRC, 0);

	out[6] = ZD_MSG_WELCOME;
	return n;
}

static const struct {
	const char *name;
	size_t (*make)(uint8_t *out, size_t size);
	int err;
	const char *text;
} refused[] = {
	{"http", frame_http, ZD_ERR_BAD_MAGIC, "is the peer zerod?"},
	{"version", frame_version, ZD_ERR_BAD_VERSION, "speaks 1"},
	{"header version", frame_header_version, ZD_ERR_BAD_VERSION, "protocol version 9"},
	{"lane", frame_lane, ZD_ERR_NO_LANE, "has lanes 0 to 1, found 2"},
	{"no checksums", frame_no_crc, ZD_ERR_BAD_FIELD, "payload checksums"},
	{"damaged", frame_damaged, ZD_ERR_BAD_CHECKSUM, "checksum of HELLO"},
	{"oversized", frame_oversized, ZD_ERR_BAD_LENGTH, "HELLO"},
	{"huge", frame_huge, ZD_ERR_BAD_LENGTH, "HELLO"},
	{"unknown type", frame_type, ZD_ERR_BAD_TYPE, "63"},
	{"server's type", frame_from_server, ZD_ERR_BAD_TYPE, "WELCOME"},
};

static void test_first_frame(void **state)
{
	struct daemon_thread *t = start(NULL);
	uint8_t frame[512];
	size_t i, k, n;

	(void)state;
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		/* Whole, and then byte by byte. */
		for (k = 0; k < 2; k++) {
			struct raw_peer *p = peer(t);
			size_t j;

			n = refused[i].make(frame, sizeof(frame));
			for (j = 0; k == 1 && j < n; j++)
				raw_bytes(p, frame + j, 1);
			if (k == 0)
				raw_bytes(p, frame, n);
			expect_refused(p, refused[i].err, refused[i].text);
			leave(p);
		}
	}
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
}

/* Who speaks another protocol, and less of it than a header, is told so long before its time is over. */
static void test_short_stranger(void **state)
{
	const char *sets[] = {"limits.hello_timeout=600s", NULL};
	struct daemon_thread *t = start(sets);
	struct raw_peer *p = peer(t);

	(void)state;
	raw_bytes(p, "SSH-2.0-x\r\n", 11);
	expect_refused(p, ZD_ERR_BAD_MAGIC, "found bytes 53 53 48 2d");
	leave(p);
	daemon_thread_stop(t, 0);
}

/* A payload behind a wrong first frame does not reset the connection before its sender has read why. */
static void test_reason_survives_unread_bytes(void **state)
{
	struct daemon_thread *t = start(NULL);
	struct raw_peer *p = peer(t);
	Zd__Pb__Load load = ZD__PB__LOAD__INIT;

	(void)state;
	load.unit = 0;
	load.first = 0;
	load.count = 65536;
	load.codec = ZD_CODEC_FP32;
	raw_send(p, ZD_MSG_LOAD, 1, &load.base, p->payload, ZD_PAYLOAD_MAX);
	expect_refused(p, ZD_ERR_OUT_OF_ORDER, "expected HELLO first, found LOAD");
	leave(p);
	daemon_thread_stop(t, 0);
}

/* ---------------------------------------------------------------- bounds */

static void test_slow_hello(void **state)
{
	const char *sets[] = {"limits.hello_timeout=10ms", NULL};
	struct daemon_thread *t = start(sets);
	struct raw_peer *silent = peer(t), *slow = peer(t);
	uint8_t frame[512];
	size_t n = raw_hello_frame(frame, sizeof(frame), ZD_ROLE_ADMIN, 0);

	(void)state;
	raw_bytes(slow, frame, n - 1);
	expect_refused(silent, ZD_ERR_TIMED_OUT, "limits.hello_timeout");
	expect_refused(slow, ZD_ERR_TIMED_OUT, "within 10 ms");
	leave(silent);
	leave(slow);
	daemon_thread_stop(t, 0);
}

/* With both places taken by peers that say nothing, the one that came first makes room for the third, long before its time is over. */
static void test_too_many_handshakes(void **state)
{
	const char *sets[] = {"limits.handshakes=2", "limits.hello_timeout=600s", "timeouts.linger=600s", NULL};
	struct daemon_thread *t = start(sets);
	struct raw_peer *a = peer(t), *b = peer(t), *c = peer(t);

	(void)state;
	assert_true(raw_hello(c, ZD_ROLE_ADMIN, 1));
	ask_status(c, 5);
	assert_true(raw_receive(a) == RAW_CLOSED);
	assert_true(raw_hello(b, ZD_ROLE_ADMIN, 0));
	leave(a);
	leave(b);
	leave(c);
	daemon_thread_stop(t, 0);
}

/* A place is free again as soon as its peer leaves, long before any time limit. */
static void test_leaving_frees_a_place(void **state)
{
	const char *sets[] = {"limits.handshakes=1", "limits.hello_timeout=600s", "timeouts.linger=600s", NULL};
	struct daemon_thread *t = start(sets);
	int i;

	(void)state;
	for (i = 0; i < 20; i++) {
		struct raw_peer *p = peer(t), *q = peer(t);

		if (i % 2)
			raw_bytes(p, "junk that is no frame at all, but longer than a header", 54);
		leave(p);
		assert_true(raw_hello(q, ZD_ROLE_ADMIN, 0));
		leave(q);
	}
	daemon_thread_stop(t, 0);
}

static void test_too_many_connections(void **state)
{
	const char *sets[] = {"limits.connections=3", NULL};
	struct daemon_thread *t = start(sets);
	struct raw_peer *in[3], *out;
	uint8_t frame[512];
	int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		in[i] = peer(t);
		assert_true(raw_hello(in[i], ZD_ROLE_ADMIN, (uint32_t)i % 2));
	}
	out = peer(t);
	raw_bytes(out, frame, raw_hello_frame(frame, sizeof(frame), ZD_ROLE_ADMIN, 0));
	expect_refused(out, ZD_ERR_NO_ROOM, "limits.connections");
	leave(out);
	for (i = 0; i < 3; i++)
		ask_status(in[i], 9);
	/* One leaves: sooner or later its place is somebody else's. */
	leave(in[0]);
	for (i = 0;; i++) {
		out = peer(t);
		if (raw_hello(out, ZD_ROLE_ADMIN, 0))
			break;
		leave(out);
		assert_true(i < 10000);
	}
	ask_status(out, 11);
	leave(out);
	leave(in[1]);
	leave(in[2]);
	daemon_thread_stop(t, 0);
}

/* ---------------------------------------------------------------- handing over */

#define CLIENTS 24
#define REQUESTS 16

/* HELLO and the first requests leave in one piece cut anywhere, for many clients on two lanes at once; each gets the answers to its own
 * requests, in order, and nothing else. */
static void test_early_bytes_stay_their_own(void **state)
{
	struct daemon_thread *t = start(NULL);
	uint8_t bytes[CLIENTS][2048];
	size_t len[CLIENTS], at[CLIENTS] = {0}, moved;
	struct raw_peer *p[CLIENTS];
	uint32_t i, k;

	(void)state;
	for (i = 0; i < CLIENTS; i++) {
		p[i] = peer(t);
		len[i] = raw_hello_frame(bytes[i], sizeof(bytes[i]), ZD_ROLE_ADMIN, i % 2);
		for (k = 0; k < REQUESTS; k++)
			len[i] += status_frame(bytes[i] + len[i], sizeof(bytes[i]) - len[i], i * 1000 + k);
		assert_true(len[i] < sizeof(bytes[i]));
	}
	/* In turns of 1 + 7i bytes: some in a single piece, some in hundreds. */
	do {
		moved = 0;
		for (i = 0; i < CLIENTS; i++) {
			size_t n = i == 0 ? len[i] : 1 + 7 * (i - 1);

			n = n < len[i] - at[i] ? n : len[i] - at[i];
			raw_bytes(p[i], bytes[i] + at[i], n);
			at[i] += n;
			moved += n;
		}
	} while (moved);
	for (i = 0; i < CLIENTS; i++) {
		assert_int_equal(raw_receive(p[i]), ZD_MSG_WELCOME);
		for (k = 0; k < REQUESTS; k++)
			expect_status(p[i], i * 1000 + k);
		ask_status(p[i], 42);
	}
	for (i = 0; i < CLIENTS; i++)
		leave(p[i]);
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
}

static void test_welcome(void **state)
{
	struct daemon_thread *t = start(NULL);
	struct raw_peer *p = peer(t);
	const Zd__Pb__Welcome *w;

	(void)state;
	assert_true(raw_hello(p, ZD_ROLE_ADMIN, 1));
	w = (const Zd__Pb__Welcome *)p->msg;
	assert_int_equal(w->version, ZD_VERSION);
	assert_int_equal(w->features, ZD_FEATURE_PAYLOAD_CRC);
	assert_int_equal(w->lane_count, 2);
	assert_int_equal(w->payload_max, ZD_PAYLOAD_MAX);
	assert_string_equal(w->daemon, "test");
	assert_int_equal(p->reader.header.stream, 1);
	ask_status(p, 3);
	assert_int_equal(((const Zd__Pb__StatusReply *)p->msg)->lane, 1);
	leave(p);
	daemon_thread_stop(t, 0);
}

/* A peer that asks and never reads is cut off at a bound; one that reads is not. */
static void test_peer_that_does_not_read(void **state)
{
	struct daemon_thread *t = start(NULL);
	struct raw_peer *p = peer(t), *q = peer(t);
	int small = 4096;
	uint8_t frame[256];
	size_t n = status_frame(frame, sizeof(frame), 1);
	int i, cut = 0;

	(void)state;
	assert_true(raw_hello(q, ZD_ROLE_ADMIN, 0));
	(void)setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_true(raw_hello(p, ZD_ROLE_ADMIN, 0));
	/* Socket buffers of both sides, 10 MiB or so, and then the bound; each answer has 50 bytes at least. */
	for (i = 0; i < 4000000 && !cut; i++)
		cut = send(p->fd, frame, n, MSG_NOSIGNAL) < 0;
	assert_true(cut);
	assert_true(errno == EPIPE || errno == ECONNRESET);
	assert_true(daemon_log_has("event=peer-does-not-read"));
	ask_status(q, 2);
	leave(p);
	leave(q);
	daemon_thread_stop(t, 0);
}

/* ---------------------------------------------------------------- starting and ending */

static void test_port_taken(void **state)
{
	struct daemon_thread *t = start(NULL), *u;
	const char *sets[2] = {NULL, NULL};
	char port[32];
	enum zd_exit ex;

	(void)state;
	snprintf(port, sizeof(port), "listen.port=%u", daemon_thread_port(t));
	sets[0] = port;
	u = daemon_thread_start(sets, &ex);
	assert_null(u);
	assert_int_equal(ex, ZD_EXIT_AGAIN);
	assert_non_null(strstr(daemon_thread_text(), "another process has it"));
	daemon_thread_stop(t, 0);
}

static void test_memory_is_refused_at_start(void **state)
{
	static const struct {
		const char *sets[4];
		const char *text;
	} cases[] = {
		{{"memory.budget=128TiB", NULL}, "MiB are there"},
		{{"memory.budget=16MiB", NULL}, "raise the budget"},
		{{"memory.budget=64MiB", "memory.windows=4096", NULL}, "memory.windows = 4096"},
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum zd_exit ex;

		assert_null(daemon_thread_start(cases[i].sets, &ex));
		assert_int_equal(ex, ZD_EXIT_CONFIG);
		if (!strstr(daemon_thread_text(), cases[i].text))
			fail_msg("\"%s\" does not say \"%s\"", daemon_thread_text(), cases[i].text);
	}
}

/* Idle connections do not hold up the end, and are closed in order. */
static void test_drain(void **state)
{
	struct daemon_thread *t = start(NULL);
	struct raw_peer *idle = peer(t), *guest = peer(t), late;
	uint16_t port = daemon_thread_port(t);

	(void)state;
	assert_true(raw_hello(idle, ZD_ROLE_ADMIN, 0));
	ask_status(idle, 1);
	assert_int_equal(daemon_thread_stop(t, 0), ZD_EXIT_OK);
	assert_int_equal(raw_receive(idle), RAW_CLOSED);
	assert_int_equal(raw_receive(guest), RAW_CLOSED);
	assert_int_equal(raw_open(&late, port), -1);
	leave(idle);
	leave(guest);
}

/* Memory of a running daemon without jobs stays far below its budget: nothing is touched before it is needed. */
static void test_nothing_is_prefaulted(void **state)
{
	const char *sets[] = {"memory.budget=2GiB", NULL};
	long before = 0, after = 0, size;
	struct daemon_thread *t;
	FILE *f;

	(void)state;
	f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &before), 2);
	fclose(f);
	t = start(sets);
	f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &after), 2);
	fclose(f);
	daemon_thread_stop(t, 1);
	assert_true((after - before) * sysconf(_SC_PAGESIZE) < (48 << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_welcome),
		cmocka_unit_test(test_first_frame),
		cmocka_unit_test(test_short_stranger),
		cmocka_unit_test(test_reason_survives_unread_bytes),
		cmocka_unit_test(test_slow_hello),
		cmocka_unit_test(test_too_many_handshakes),
		cmocka_unit_test(test_leaving_frees_a_place),
		cmocka_unit_test(test_too_many_connections),
		cmocka_unit_test(test_early_bytes_stay_their_own),
		cmocka_unit_test(test_peer_that_does_not_read),
		cmocka_unit_test(test_port_taken),
		cmocka_unit_test(test_memory_is_refused_at_start),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_nothing_is_prefaulted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
