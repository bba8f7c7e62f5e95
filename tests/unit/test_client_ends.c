/* SPDX-License-Identifier: Apache-2.0 */
/* How requests end when a lane aborts, refuses, is silent or is no lane, when time runs out, and when memory does. */
#include "client_fixture.h"

/* ---------------------------------------------------------------- ends */

static void test_aborted_table(void **state)
{
	static const struct {
		struct zd_ballot promise, ended;
		int code, status; /* status 0: goes on, with a new attempt */
	} rows[] = {
		{{2, 0}, {2, 0}, ZD_ERR_LEASE, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_GAP, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_HYPER_DIFFERS, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_MICRO_DIFFERS, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_DECISION_DIFFERS, ZEROD_ERR_ABORTED},
		{{2, 0}, {2, 0}, ZD_ERR_LOST, 0},
		{{2, 0}, {2, 0}, ZD_ERR_NOT_JOINED, 0},
		{{3, 0}, {2, 0}, ZD_ERR_BALLOT_LOW, ZEROD_ERR_STALE},
		{{3, 0}, {1, 0}, ZD_ERR_BALLOT_LOW, ZEROD_ERR_STALE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		uint64_t r = push(c, 0, 0, 1, 0);

		skip_pushes(c, 0);
		cs_aborted(c, 0, rows[i].promise, rows[i].ended, rows[i].code, "the lane's words");
		if (rows[i].status == 0) {
			cs_expect(c, 0, ZD_MSG_JOIN, NULL);
			end(c);
			continue;
		}
		assert_true(c->closed[0] && c->closed[1]);
		cs_down(c, 0);
		cs_down(c, 1);
		assert_int_equal(cs_ended(c, r)->status, rows[i].status);
		if (rows[i].status == ZEROD_ERR_ABORTED)
			assert_non_null(strstr(cs_ended(c, r)->text, "the lane's words"));
		r = push(c, 1, 0, 1, 0); /* and so does everything later */
		assert_int_equal(cs_ended(c, r)->status, rows[i].status);
		cs_tick(c, ZD_SEC(10));
		assert_true(c->gen[0] == 0); /* it never comes back by itself */
		end(c);
	}
}

static void test_refused_table(void **state)
{
	static const struct {
		int code, status;
	} rows[] = {
		{ZD_ERR_RANK_TAKEN, ZEROD_ERR_REFUSED}, {ZD_ERR_WORLD_DIFFERS, ZEROD_ERR_REFUSED}, {ZD_ERR_LAUNCH_DIFFERS, ZEROD_ERR_REFUSED},
		{ZD_ERR_NO_MEMORY, ZEROD_ERR_REFUSED},	{ZD_ERR_JOB_DIFFERS, ZEROD_ERR_REFUSED},   {ZD_ERR_DRAINING, ZEROD_ERR_REFUSED},
		{ZD_ERR_NO_ROOM, ZEROD_ERR_REFUSED},
		{ZD_ERR_DROPPED, ZEROD_ERR_LOST},	{ZD_ERR_BAD_MESSAGE, ZEROD_ERR_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cs *c = begin(2);

		cs_error(c, 1, 0, rows[i].code, "rank 0 is process 12");
		assert_int_equal(cs_ended(c, 1)->status, rows[i].status);
		assert_non_null(strstr(cs_ended(c, 1)->text, "rank 0 is process 12"));
		assert_non_null(strstr(cs_ended(c, 1)->text, "lane 1 (one:1, its lane 1)"));
		assert_int_equal(strstr(cs_ended(c, 1)->text, LOST_WAY_OUT) != NULL, rows[i].status == ZEROD_ERR_LOST);
		end(c);
	}
}

static void test_timeouts_name_what_they_waited_for(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_PUSH, .deadline = c->now + ZD_MS(700),
				      .u.push = {.unit = 0, .micro = 0, .micro_batches = 1, .data = grad}};
	struct zd_session_event gather = {.type = ZD_SE_REQ_GATHER, .deadline = c->now + ZD_MS(700), .u.gather.unit = 1};
	uint64_t r = cs_ask(c, &ev), g = cs_ask(c, &gather);

	(void)state;
	cs_pushed(c, 0, own, 5, 0, 10, 0);
	cs_pushed(c, 1, own, 5, 0, 7, 0);
	cs_tick(c, ZD_MS(700));
	assert_int_equal(cs_ended(c, g)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, g)->text, "\"small\""));
	assert_null(cs_ended(c, r)); /* not before its memory is free */
	assert_true(c->closed[0] && c->closed[1]);
	cs_down(c, 0);
	cs_down(c, 1);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, r)->text, "unit \"big\", micro-batch 0, rank 0"));
	assert_non_null(strstr(cs_ended(c, r)->text, "lane 1 (one:1, its lane 1) has 7 of 10 extents"));
	assert_non_null(strstr(cs_ended(c, r)->text, "700 ms"));
	end(c);
}

/* A step that timed out goes on; asked again, it reports the outcome. */
static void test_step_times_out_and_is_claimed(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .deadline = c->now + ZD_MS(500),
				      .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};
	struct zd_record r = cs_record(5, own);
	const ProtobufCMessage *msg;
	struct zd_decision d;
	uint64_t first, second;

	(void)state;
	push_all(c, 5, own);
	first = cs_ask(c, &ev);
	cs_tick(c, ZD_MS(500));
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, first)->text, "has not prepared round 5"));
	cs_expect(c, 0, ZD_MSG_COMMIT, NULL);
	cs_prepared(c, 0, own, &r);
	cs_prepared(c, 1, own, &r);
	cs_expect(c, 0, ZD_MSG_APPLY, &msg);
	zd_decision_from_pb(&d, ((const Zd__Pb__Apply *)msg)->decision);
	cs_applied(c, 0, own, &d);
	cs_applied(c, 1, own, &d);
	second = step(c);
	assert_int_equal(cs_ended(c, second)->status, ZEROD_OK);
	end(c);
}

static void test_wrong_calls(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_STEP, .u.step = {.hyper = cs_record(1, own).hyper, .micro_batches = 1}};
	uint64_t r;

	(void)state;
	r = push(c, 2, 0, 1, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, r)->text, "frozen"));
	r = push(c, 0, 1, 2, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, r)->text, "expected is 0 of 2"));
	push(c, 0, 0, 1, 0);
	r = push(c, 1, 0, 2, 0);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	r = step(c);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_STATE);
	assert_non_null(strstr(cs_ended(c, r)->text, "\"small\" was pushed for 0 of 1"));
	ev.u.step.hyper.beta1 = 1.5;
	r = cs_ask(c, &ev);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_ARGUMENT);
	assert_non_null(strstr(cs_ended(c, r)->text, "beta1"));
	end(c);
}

/* Extents are counted over all micro-batches: more than 32 bits hold. */
static void test_counts_beyond_32_bits(void **state)
{
	static struct zd_unit_spec wide_units[3] = {{"wide", ZD_NUMEL_MAX, 0}, {"small", 8192, 0}, {"still", 100, 1}};
	struct zd_spec wide = spec;
	struct cs_options o = {.spec = &wide, .daemons = 1, .world = 2, .epoch = 2};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT};
	struct cs *c = malloc(sizeof(*c));
	uint64_t r;

	(void)state;
	assert_non_null(c);
	wide.units = wide_units;
	cs_init(c, &o);
	cs_ask(c, &connect);
	cs_up(c, 0, 1);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	cs_opened(c, 0, 9);
	cs_expect(c, 0, ZD_MSG_JOIN, NULL);
	cs_joined(c, 0, &(struct cs_joined){.ballot = own, .credit = 1});
	r = push(c, 0, 0, ZD_MICRO_MAX, 0);
	assert_null(cs_ended(c, r));
	assert_int_equal(skip_pushes(c, 0), 1);
	cs_sent(c, 0);
	cs_pushed(c, 0, own, 1, 0, 1ull << 32 | 1, 1);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_PROTOCOL);
	assert_non_null(strstr(cs_ended(c, r)->text, "counts 4294967297 extents of unit \"wide\" of which 1 were sent"));
	end(c);
}

/* ---------------------------------------------------------------- before the seal */

/* Joined before anybody has sealed. */
static struct cs *begin_unsealed(void)
{
	struct cs *c = begin(2);
	const struct cs_joined j = {.ballot = own, .credit = 1, .unsealed = 1};

	cs_joined(c, 0, &j);
	cs_joined(c, 1, &j);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	return c;
}

static uint64_t expect_ping(struct cs *c, uint32_t slot)
{
	const ProtobufCMessage *msg;

	cs_expect(c, slot, ZD_MSG_PING, &msg);
	return ((const Zd__Pb__Ping *)msg)->token;
}

/* An answer that was on the way before a push was asked for says nothing about it. */
static void test_push_before_the_seal_is_asked_about(void **state)
{
	struct cs *c = begin_unsealed();
	uint64_t first, second, token, later;

	(void)state;
	first = push(c, 0, 0, 2, 0);
	token = expect_ping(c, 0);
	second = push(c, 1, 0, 2, 0);
	later = expect_ping(c, 0);
	cs_expect_nothing(c, 0);
	cs_pong(c, 0, token, 0);
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_STATE);
	assert_non_null(strstr(cs_ended(c, first)->text, "unit \"big\""));
	assert_non_null(strstr(cs_ended(c, first)->text, "lane 0 (one:1, its lane 0) is not sealed"));
	assert_null(cs_ended(c, second));
	cs_pong(c, 0, later, 1);
	expect_ping(c, 1);
	expect_ping(c, 1);
	cs_expect_nothing(c, 1); /* all lanes must be sealed before any gets something */
	assert_int_equal(skip_pushes(c, 0), 0);
	cs_pong(c, 1, later, 1);
	assert_int_equal(skip_pushes(c, 0) + skip_pushes(c, 1), 1); /* the first of two extents: one credit */
	first = push(c, 0, 0, 2, 0); /* it may be made again */
	assert_null(cs_ended(c, first));
	end(c);
}

/* What follows a refused push in its unit is refused with it, and the number of micro-batches may be another the next time. */
static void test_push_before_the_seal_begins_nothing(void **state)
{
	struct cs *c = begin_unsealed();
	uint64_t first, second, flush, token;
	struct zd_session_event ev = {.type = ZD_SE_REQ_FLUSH};

	(void)state;
	first = push(c, 0, 0, 2, 0);
	push(c, 1, 0, 2, 0);
	expect_ping(c, 1);
	token = expect_ping(c, 1);
	second = push(c, 0, 1, 2, 0);
	flush = cs_ask(c, &ev);
	cs_pong(c, 1, token, 0);
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_STATE);
	assert_int_equal(cs_ended(c, second)->status, ZEROD_ERR_STATE);
	assert_int_equal(cs_ended(c, flush)->status, ZEROD_ERR_STATE);
	first = push(c, 0, 0, 1, 0);
	assert_null(cs_ended(c, first));
	cs_down(c, 1); /* the question is lost with the connection, and asked again */
	while (!c->gen[1])
		cs_tick(c, zd_session_deadline(c->session) - c->now);
	cs_up(c, 1, 2);
	cs_expect(c, 1, ZD_MSG_OPEN, NULL);
	cs_opened(c, 1, 9);
	cs_expect(c, 1, ZD_MSG_JOIN, NULL);
	cs_joined(c, 1, &(struct cs_joined){.ballot = own, .credit = 1, .unsealed = 1});
	cs_pong(c, 1, expect_ping(c, 1), 0);
	assert_int_equal(cs_ended(c, first)->status, ZEROD_ERR_STATE);
	end(c);
}

/* Where the lane says that it is too early for a push, those of later micro-batches, of all units, end with it. */
static void test_later_micro_batches_are_too_early_as_well(void **state)
{
	struct cs *c = begin_unsealed();
	uint64_t big = push(c, 0, 0, 2, 0), token = expect_ping(c, 1), small = push(c, 1, 0, 2, 0), later = push(c, 1, 1, 2, 0);

	(void)state;
	cs_pong(c, 1, token, 0);
	assert_int_equal(cs_ended(c, big)->status, ZEROD_ERR_STATE);
	assert_null(cs_ended(c, small));
	assert_non_null(cs_ended(c, later));
	assert_int_equal(cs_ended(c, later)->status, ZEROD_ERR_STATE);
	end(c);
}

/* A push behind a seal of its own session waits for that, whatever an older PING is answered; if it fails, the push is asked about again. */
static void test_push_waits_for_its_own_seal(void **state)
{
	struct zd_session_event ev = {.type = ZD_SE_REQ_SEAL};

	(void)state;
	for (int refused = 0; refused < 2; refused++) {
		struct cs *c = begin_unsealed();
		uint64_t p = push(c, 0, 0, 1, 0), token = expect_ping(c, 0), seal = cs_ask(c, &ev);
		Zd__Pb__Sealed sealed = ZD__PB__SEALED__INIT;
		const struct cs_frame *f = cs_expect(c, 0, ZD_MSG_SEAL, NULL);

		cs_pong(c, 0, token, 0);
		assert_null(cs_ended(c, p));
		if (refused) {
			cs_error(c, 0, f->stream, ZD_ERR_NOT_SEALED, "unit big");
			assert_int_equal(cs_ended(c, seal)->status, ZEROD_ERR_REFUSED);
			cs_pong(c, 0, expect_ping(c, 0), 0);
			assert_int_equal(cs_ended(c, p)->status, ZEROD_ERR_STATE);
		} else {
			cs_say(c, 0, ZD_MSG_SEALED, f->stream, &sealed.base, NULL, 0);
			cs_say(c, 1, ZD_MSG_SEALED, f->stream, &sealed.base, NULL, 0);
			assert_int_equal(cs_ended(c, seal)->status, ZEROD_OK);
			assert_int_equal(skip_pushes(c, 0), 10);
		}
		end(c);
	}
}

/* A launch that died while it sealed had loaded everything: the next one finishes that before it is connected. */
static void test_a_begun_seal_is_finished(void **state)
{
	const struct cs_joined sealed = {.ballot = own, .credit = 1}, unsealed = {.ballot = own, .credit = 1, .unsealed = 1};
	Zd__Pb__Sealed m = ZD__PB__SEALED__INIT;
	struct zd_session_view view;
	const struct cs_frame *f;
	struct cs *c = begin(2);

	(void)state;
	cs_joined(c, 0, &unsealed);
	cs_joined(c, 1, &sealed);
	cs_expect_nothing(c, 1);
	cs_expect(c, 0, ZD_MSG_SEAL, NULL);
	cs_down(c, 0); /* what is lost with a connection is asked again */
	while (!c->gen[0])
		cs_tick(c, zd_session_deadline(c->session) - c->now);
	cs_up(c, 0, 2);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	cs_opened(c, 0, 9);
	cs_expect(c, 0, ZD_MSG_JOIN, NULL);
	cs_joined(c, 0, &unsealed);
	f = cs_expect(c, 0, ZD_MSG_SEAL, NULL);
	assert_null(cs_ended(c, 1));
	cs_say(c, 0, ZD_MSG_SEALED, f->stream, &m.base, NULL, 0);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	zd_session_view(c->session, &view);
	assert_true(view.sealed);
	end(c);
}

/* A lane that has lost what was loaded says so.  Then all is loaded again, and the lane that is sealed compares. */
static void test_a_begun_seal_cannot_be_finished(void **state)
{
	const struct cs_joined sealed = {.ballot = own, .credit = 1}, unsealed = {.ballot = own, .credit = 1, .unsealed = 1};
	struct zd_session_event ev = {.type = ZD_SE_REQ_LOAD, .u.load = {.unit = 0, .codec = ZD_CODEC_BF16, .data = grad}};
	struct zd_session_view view;
	const struct cs_frame *f;
	struct cs *c = begin(2);
	uint64_t load;

	(void)state;
	cs_joined(c, 0, &unsealed);
	cs_joined(c, 1, &sealed);
	f = cs_expect(c, 0, ZD_MSG_SEAL, NULL);
	cs_error(c, 0, f->stream, ZD_ERR_NOT_SEALED, "unit big was not loaded");
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_OK);
	zd_session_view(c->session, &view);
	assert_false(view.sealed || view.failed);
	load = cs_ask(c, &ev);
	cs_expect(c, 0, ZD_MSG_LOAD, NULL);
	f = cs_expect(c, 1, ZD_MSG_LOAD, NULL);
	cs_error(c, 1, f->stream, ZD_ERR_LOAD_DIFFERS, "drop the job");
	cs_sent(c, 0);
	cs_sent(c, 1);
	assert_int_equal(cs_ended(c, load)->status, ZEROD_ERR_REFUSED);
	assert_non_null(strstr(cs_ended(c, load)->text, "drop the job"));
	end(c);
}

/* ---------------------------------------------------------------- links */

/* Who has been in comes back until there is room again: the place may be its own, of the connection that was cut. */
static void test_no_room_to_come_back(void **state)
{
	static const int codes[] = {ZD_ERR_NO_ROOM, ZD_ERR_DRAINING};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		uint64_t r = push(c, 0, 0, 1, 0);

		cs_down(c, 0);
		cs_tick(c, ZD_SEC(3));
		cs_up(c, 0, 2);
		cs_error(c, 0, 0, codes[i], "no room here");
		assert_null(cs_ended(c, r));
		assert_true(c->closed[0] && !c->closed[1]);
		cs_down(c, 0);
		cs_tick(c, ZD_SEC(3));
		cs_up(c, 0, 2);
		cs_expect(c, 0, ZD_MSG_OPEN, NULL);
		end(c);
	}
}

static void test_lost_life(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	uint64_t r = push(c, 0, 0, 1, 0);

	(void)state;
	cs_down(c, 0);
	cs_tick(c, ZD_SEC(3));
	cs_up(c, 0, 2);
	cs_opened(c, 0, 10); /* another life */
	cs_down(c, 0);
	cs_down(c, 1);
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_LOST);
	assert_non_null(strstr(cs_ended(c, r)->text, "lane 0"));
	assert_non_null(strstr(cs_ended(c, r)->text, LOST_WAY_OUT));
	end(c);
}

static void test_greeting(void **state)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 1, .rank = 0, .world = 1, .epoch = 2};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT}, up = {.type = ZD_SE_UP, .slot = 0};
	struct zd_session_event bytes = {.type = ZD_SE_BYTES, .slot = 0, .u.bytes.len = 40};
	Zd__Pb__Welcome m = ZD__PB__WELCOME__INIT;
	char daemon[] = "d";

	(void)state;
	assert_non_null(c);
	cs_init(c, &o);
	cs_ask(c, &connect);
	up.gen = c->gen[0];
	cs_step(c, &up);
	cs_expect(c, 0, ZD_MSG_HELLO, NULL);
	cs_expect_nothing(c, 0);
	m.version = ZD_VERSION;
	m.lane_count = 1;
	m.daemon = daemon;
	m.payload_max = ZD_PAYLOAD_MAX;
	cs_say(c, 0, ZD_MSG_WELCOME, 0, &m.base, NULL, 0);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	cs_fini(c);

	cs_init(c, &o);
	cs_ask(c, &connect);
	up.gen = bytes.gen = c->gen[0];
	cs_step(c, &up);
	memcpy(zd_session_window(c->session, 0, up.gen).base, "HTTP/1.1 400 Bad Request\r\nConnection: c", 40);
	cs_step(c, &bytes);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_ERR_CONNECT);
	assert_non_null(strstr(cs_ended(c, 1)->text, "one:1 speaks another protocol"));
	end(c);
}

/* Damage on the way ends the connection and not the session, from the first frame on. */
static void test_damaged_welcome(void **state)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 1, .rank = 0, .world = 1, .epoch = 2};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT}, up = {.type = ZD_SE_UP, .slot = 0};
	struct zd_session_event bytes = {.type = ZD_SE_BYTES, .slot = 0};
	Zd__Pb__Welcome m = {.base = PROTOBUF_C_MESSAGE_INIT(&zd__pb__welcome__descriptor), .version = ZD_VERSION, .lane_count = 1,
			     .payload_max = ZD_PAYLOAD_MAX};
	uint8_t frame[256];
	char daemon[] = "d";

	(void)state;
	assert_non_null(c);
	m.daemon = daemon;
	cs_init(c, &o);
	cs_ask(c, &connect);
	up.gen = bytes.gen = c->gen[0];
	cs_step(c, &up);
	bytes.u.bytes.len = zd_wire_encode(frame, sizeof(frame), ZD_MSG_WELCOME, 0, &m.base, 0, 0);
	frame[bytes.u.bytes.len - 1] ^= 1;
	memcpy(zd_session_window(c->session, 0, up.gen).base, frame, bytes.u.bytes.len);
	cs_step(c, &bytes);
	assert_null(cs_ended(c, 1));
	assert_true(c->closed[0]);
	cs_down(c, 0);
	cs_tick(c, ZD_SEC(3));
	cs_up(c, 0, 1);
	cs_expect(c, 0, ZD_MSG_OPEN, NULL);
	end(c);
}

/* Bit 6 of one byte of a PONG's header is wrong. */
static void say_damaged(struct cs *c, uint32_t slot, size_t at)
{
	struct zd_session_event bytes = {.type = ZD_SE_BYTES, .slot = slot, .gen = c->gen[slot]};
	Zd__Pb__Pong m = ZD__PB__PONG__INIT;
	uint8_t frame[128];

	bytes.u.bytes.len = zd_wire_encode(frame, sizeof(frame), ZD_MSG_PONG, 0, &m.base, 0, 0);
	frame[at] ^= 0x40;
	memcpy(zd_session_window(c->session, slot, bytes.gen).base, frame, bytes.u.bytes.len);
	cs_step(c, &bytes);
}

static void comes_back(struct cs *c, uint64_t request, uint32_t slot)
{
	assert_null(cs_ended(c, request));
	assert_true(c->closed[slot] && !c->closed[!slot]);
	cs_down(c, slot);
	cs_tick(c, ZD_SEC(2));
	cs_up(c, slot, 2);
	cs_expect(c, slot, ZD_MSG_OPEN, NULL);
}

/* Behind WELCOME it is a zerod that speaks, whatever arrives of that: magic, version, type and lengths are damaged as easily as what the checksum tells. */
static void test_damaged_header(void **state)
{
	static const size_t at[] = {0, 3, 4, 5, 6, 7, 10, 11, 13, 15, 16, 24};

	(void)state;
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		uint64_t r = push(c, 0, 0, 1, 0);

		skip_pushes(c, 0);
		say_damaged(c, 0, at[i]);
		comes_back(c, r, 0);
		say_damaged(c, 0, at[i]); /* before OPENED */
		comes_back(c, r, 0);
		end(c);
	}
}

/* The same on the way to the lane, which says what it found. */
static void test_damaged_request(void **state)
{
	static const int codes[] = {ZD_ERR_BAD_MAGIC, ZD_ERR_BAD_VERSION, ZD_ERR_BAD_TYPE, ZD_ERR_BAD_LENGTH, ZD_ERR_BAD_CHECKSUM};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		struct cs *c = begin_round(4, 2, 1);
		uint64_t r = push(c, 0, 0, 1, 0);

		skip_pushes(c, 0);
		cs_error(c, 0, 0, codes[i], "bytes 5a 52 4f 04");
		comes_back(c, r, 0);
		end(c);
	}
}

/* A length that is damaged and yet within its bounds makes the session wait for a head that does not come: what the lane says meanwhile is taken for
 * it, and is no sign that anything arrives. */
static void test_damaged_head_length(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event bytes = {.type = ZD_SE_BYTES, .slot = 0, .gen = c->gen[0]};
	uint64_t r = push(c, 0, 0, 1, 0);
	Zd__Pb__Error m = ZD__PB__ERROR__INIT;
	uint8_t frame[128];
	uint32_t quarters = 0;

	(void)state;
	skip_pushes(c, 0);
	m.code = ZD_ERR_NO_UNIT;
	m.text = (char *)"words";
	bytes.u.bytes.len = zd_wire_encode(frame, sizeof(frame), ZD_MSG_ERROR, 0, &m.base, 0, 0);
	frame[9] ^= 0x04; /* head_len, by 1,024: many PONGs */
	memcpy(zd_session_window(c->session, 0, bytes.gen).base, frame, bytes.u.bytes.len);
	cs_step(c, &bytes);
	for (; !c->closed[0] && quarters < 10; quarters++) {
		cs_tick(c, ZD_MS(spec.lease_ms) / 4);
		for (uint32_t slot = 0; slot < 2; slot++)
			if (!c->closed[slot])
				cs_pong(c, slot, 0, 1);
	}
	assert_in_range(quarters, 2, 3);
	comes_back(c, r, 0);
	end(c);
}

/* It is not for ever: a request ends when its time is over, and says what was wrong. */
static void test_damaged_every_time(void **state)
{
	struct cs *c = begin_round(4, 2, 1);
	struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .deadline = c->now + ZD_SEC(9), .u.gather.unit = 0};
	uint64_t r = cs_ask(c, &ev);

	(void)state;
	for (uint32_t tries = 0; !cs_ended(c, r); tries++) {
		assert_true(tries < 2000);
		say_damaged(c, 0, 7);
		cs_down(c, 0);
		while (!cs_ended(c, r) && !c->gen[0])
			cs_tick(c, zd_session_deadline(c->session) - c->now);
		if (c->gen[0])
			cs_up(c, 0, 2);
	}
	assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_TIMEOUT);
	assert_non_null(strstr(cs_ended(c, r)->text, "a frame was damaged on the way: message type 16407 is not known"));
	end(c);
}

/* Also where time runs out just when the next connection is being made. */
static void test_damaged_before(void **state)
{
	(void)state;
	for (int greeted = 0; greeted < 2; greeted++) {
		struct cs *c = begin_round(4, 2, 1);
		struct zd_session_event ev = {.type = ZD_SE_REQ_GATHER, .deadline = c->now + ZD_MS(2100), .u.gather.unit = 0};
		uint64_t r = cs_ask(c, &ev);
		struct zd_session_event up = {.type = ZD_SE_UP, .slot = 0};

		say_damaged(c, 0, 7);
		cs_down(c, 0);
		cs_tick(c, ZD_SEC(2));
		up.gen = c->gen[0];
		if (greeted)
			cs_up(c, 0, 2);
		else
			cs_step(c, &up);
		cs_tick(c, ZD_MS(100));
		assert_int_equal(cs_ended(c, r)->status, ZEROD_ERR_TIMEOUT);
		assert_non_null(strstr(cs_ended(c, r)->text, greeted ? "has not answered OPEN" : "does not answer HELLO"));
		assert_non_null(strstr(cs_ended(c, r)->text, "a frame was damaged on the way: message type 16407 is not known"));
		end(c);
	}
}

static void test_nobody_answers(void **state)
{
	struct cs *c = malloc(sizeof(*c));
	struct cs_options o = {.spec = &spec, .daemons = 2, .rank = 0, .world = 1, .epoch = 2};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT, .deadline = ZD_SEC(11)};
	struct zd_session_event down = {.type = ZD_SE_DOWN, .slot = 1, .u.down.text = "connection refused"};
	zd_time tried = 0;
	uint32_t tries = 0;

	(void)state;
	assert_non_null(c);
	cs_init(c, &o);
	cs_ask(c, &connect);
	cs_up(c, 0, 1);
	while (!cs_ended(c, 1)) {
		if (c->gen[1] != down.gen) {
			assert_true(c->now - tried <= ZD_SEC(2));
			tried = c->now;
			tries++;
			down.gen = c->gen[1];
			cs_step(c, &down);
		}
		cs_tick(c, zd_session_deadline(c->session) - c->now);
	}
	assert_true(tries > 5 && tries < 40);
	assert_int_equal(cs_ended(c, 1)->status, ZEROD_ERR_CONNECT);
	assert_non_null(strstr(cs_ended(c, 1)->text, "two:2: connection refused"));
	assert_int_equal(c->now, ZD_SEC(11));
	end(c);
}

/* ---------------------------------------------------------------- memory */

/* A conversation up to a decision in which one allocation fails: whatever is asked ends, with the right word. */
static void converse(struct cs *c)
{
	const struct cs_joined j = {.ballot = own, .decided = 4, .record_round = 5, .record_ballot = {1, 0}, .credit = 1};
	struct zd_session_event connect = {.type = ZD_SE_REQ_CONNECT}, gather = {.type = ZD_SE_REQ_GATHER, .u.gather.unit = 1};
	static float dst[8192];
	struct zd_session_event fetch = {.type = ZD_SE_REQ_FETCH, .u.fetch = {1, ZD_PLANE_MASTER, dst}};
	struct zd_decision d = cs_decision(5, (struct zd_ballot){1, 0});
	uint64_t asked = cs_ask(c, &connect);
	struct zd_session_view view;

	for (uint32_t i = 0; i < 2 && c->gen[i]; i++)
		cs_up(c, i, 2);
	for (uint32_t i = 0; i < 2; i++)
		cs_opened(c, i, 9);
	for (uint32_t i = 0; i < 2; i++)
		cs_joined(c, i, &j);
	for (uint32_t i = 0; i < 2; i++)
		cs_applied(c, i, own, &d);
	push(c, 0, 0, 1, 0);
	cs_ask(c, &gather);
	cs_ask(c, &fetch);
	push(c, 1, 0, 1, 0);
	step(c);
	zd_session_view(c->session, &view);
	if (cs_ended(c, asked) && cs_ended(c, asked)->status == ZEROD_OK)
		assert_true(view.decided == 5 || view.failed == ZEROD_ERR_MEMORY);
	for (uint32_t i = 0; i < c->ends; i++) {
		int status = c->end[i].status;

		assert_true(status == ZEROD_OK || status == ZEROD_ERR_MEMORY || status == ZEROD_ERR_STATE);
		assert_true(status == ZEROD_OK || c->end[i].text[0]);
	}
}

static void test_allocations_fail(void **state)
{
	uint32_t failures = 0, n = 1;
	struct cs *c = malloc(sizeof(*c));

	(void)state;
	assert_non_null(c);
	for (;; n++) {
		struct cs_options o = {.spec = &spec, .daemons = 1, .rank = 0, .world = 2, .epoch = 2, .prefetch = 1, .fail_at = n};
		uint32_t reached;

		cs_init(c, &o);
		if (c->session)
			converse(c);
		for (uint32_t i = 0; i < c->ends; i++)
			failures += c->end[i].status == ZEROD_ERR_MEMORY;
		reached = c->allocations;
		cs_fini(c);
		if (reached < n)
			break;
	}
	assert_true(n > 20 && failures > 8);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_aborted_table),
		cmocka_unit_test(test_refused_table),
		cmocka_unit_test(test_no_room_to_come_back),
		cmocka_unit_test(test_timeouts_name_what_they_waited_for),
		cmocka_unit_test(test_step_times_out_and_is_claimed),
		cmocka_unit_test(test_wrong_calls),
		cmocka_unit_test(test_counts_beyond_32_bits),
		cmocka_unit_test(test_push_before_the_seal_is_asked_about),
		cmocka_unit_test(test_push_before_the_seal_begins_nothing),
		cmocka_unit_test(test_later_micro_batches_are_too_early_as_well),
		cmocka_unit_test(test_push_waits_for_its_own_seal),
		cmocka_unit_test(test_a_begun_seal_is_finished),
		cmocka_unit_test(test_a_begun_seal_cannot_be_finished),
		cmocka_unit_test(test_lost_life),
		cmocka_unit_test(test_greeting),
		cmocka_unit_test(test_damaged_welcome),
		cmocka_unit_test(test_damaged_header),
		cmocka_unit_test(test_damaged_request),
		cmocka_unit_test(test_damaged_head_length),
		cmocka_unit_test(test_damaged_every_time),
		cmocka_unit_test(test_damaged_before),
		cmocka_unit_test(test_nobody_answers),
		cmocka_unit_test(test_allocations_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
