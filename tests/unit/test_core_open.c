/* SPDX-License-Identifier: Apache-2.0 */
/* OPEN, LOAD, SEAL, the administrator's requests, roles, and bytes that are no frames. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_harness.h"

static const int64_t sizes[] = {70000, -6000};

static struct hz *up(void)
{
	struct hz *h = hz_new(8, 4u << 20);

	hz_spec(h, "job", ZD_OPT_ADAMW, ZD_CODEC_BF16, 65536, 2, sizes);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_open(h, 0, 1);
	return h;
}

static void open_compares(void **state)
{
	struct hz *h = up();

	(void)state;
	hz_connect(h, 1, ZD_ROLE_WORKER);
	h->spec.lease_ms = 2000;
	hz_send_open(h, 1, 1, 0, 1);
	hz_error(h, 1, ZD_ERR_JOB_DIFFERS, "lease", 0);
	h->spec.lease_ms = 1000;
	h->units[1].numel++;
	hz_send_open(h, 1, 1, 0, 1);
	hz_error(h, 1, ZD_ERR_JOB_DIFFERS, "u1", 0);
	h->units[1].numel--;
	hz_send_open(h, 1, 1, 0, 2);
	hz_error(h, 1, ZD_ERR_JOB_DIFFERS, "this lane is 0 of 1, asked was 0 of 2", 0);
	snprintf(h->spec.name, sizeof h->spec.name, "%s", "other");
	hz_send_open(h, 1, 0, 0, 1);
	hz_error(h, 1, ZD_ERR_NO_JOB, "other does not exist", 0);
	snprintf(h->spec.name, sizeof h->spec.name, "%s", "job");
	hz_open(h, 1, 0);
	hz_send_open(h, 1, 0, 0, 1);
	hz_error(h, 1, ZD_ERR_OUT_OF_ORDER, "OPEN of job on a connection that has opened job", 1);
	hz_connect(h, 2, ZD_ROLE_READER);
	snprintf(h->spec.name, sizeof h->spec.name, "%s", "other");
	hz_send_open(h, 2, 1, 0, 1); /* readers create nothing */
	hz_error(h, 2, ZD_ERR_NO_JOB, "other", 0);
	hz_free(h);
}

static void memory_is_refused_with_numbers(void **state)
{
	static const int64_t large[] = {400000};
	struct hz *h = hz_new(8, 4u << 20);
	char part[128];
	uint64_t need;

	(void)state;
	hz_spec(h, "large", ZD_OPT_ADAMW, ZD_CODEC_BF16, 65536, 1, large);
	need = zd_job_bytes(&h->spec, 1, 0);
	hz_connect(h, 0, ZD_ROLE_WORKER);
	hz_send_open(h, 0, 1, 0, 1);
	snprintf(part, sizeof part, "job large needs %llu bytes on this lane, free are 4194304 (4194304 in one piece) of a budget of 4194304",
		 (unsigned long long)need);
	hz_error(h, 0, ZD_ERR_NO_MEMORY, part, 0);
	hz_send_open(h, 0, 1, 0, 2); /* half of it fits */
	hz_recv(h, 0, ZD_MSG_OPENED);
	assert_int_equal(hz_view(h).bytes, zd_job_bytes(&h->spec, 2, 0));
	hz_connect(h, 1, ZD_ROLE_WORKER);
	snprintf(h->spec.name, sizeof h->spec.name, "%s", "second");
	hz_send_open(h, 1, 1, 0, 2);
	hz_error(h, 1, ZD_ERR_NO_MEMORY, "job second needs", 0);
	snprintf(h->spec.name, sizeof h->spec.name, "%s", "large");
	hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1}); /* the first job is unharmed */
	hz_free(h);
}

static void job_limits(void **state)
{
	struct hz *h = hz_new(8, 4u << 20);
	static const int64_t tiny[] = {10};

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		char name[8];

		snprintf(name, sizeof name, "j%u", i);
		hz_spec(h, name, ZD_OPT_ADAMW, ZD_CODEC_BF16, 4096, 1, tiny);
		hz_connect(h, i, ZD_ROLE_WORKER);
		hz_send_open(h, i, 1, 0, 1);
		if (i < 4)
			hz_recv(h, i, ZD_MSG_OPENED);
		else
			hz_error(h, i, ZD_ERR_NO_ROOM, "more than the 4 jobs", 0);
	}
	hz_free(h);
}

static void loads(void **state)
{
	struct hz *h = up();
	float *w = malloc(70000 * sizeof *w), *f = malloc(6000 * sizeof *f);

	(void)state;
	hz_weights(h, 0, 1, w);
	hz_weights(h, 1, 1, f);
	hz_send_load(h, 0, 0, 100, 4096, ZD_CODEC_FP32, w);
	hz_error(h, 0, ZD_ERR_BAD_RANGE, "[100, +4096): this lane owns [0, +70000), load it in grains of 65536", 0);
	hz_send_load(h, 0, 0, 0, 60000, ZD_CODEC_FP32, w);
	hz_error(h, 0, ZD_ERR_BAD_RANGE, "", 0);
	hz_send_load(h, 0, 5, 0, 16, ZD_CODEC_FP32, w);
	hz_error(h, 0, ZD_ERR_NO_UNIT, "unit 5", 0);
	hz_seal(h, 0);
	hz_error(h, 0, ZD_ERR_NOT_SEALED, "unit u0 [0, +65536) was not loaded", 0);
	w[77] = (float)INFINITY;
	hz_send_load(h, 0, 0, 0, 65536, ZD_CODEC_FP32, w);
	hz_error(h, 0, ZD_ERR_BAD_VALUE, "u0 has 1 values that are not finite, or round to infinity, in [0, +65536), the first at element 77", 0);
	w[77] = 1;
	hz_send_load(h, 0, 0, 0, 65536, ZD_CODEC_FP32, w);
	hz_recv(h, 0, ZD_MSG_LOADED);
	hz_send_load(h, 0, 0, 0, 65536, ZD_CODEC_FP32, w); /* again */
	hz_recv(h, 0, ZD_MSG_LOADED);
	w[78] += 1;
	hz_send_load(h, 0, 0, 0, 65536, ZD_CODEC_FP32, w);
	hz_error(h, 0, ZD_ERR_LOAD_DIFFERS, "every worker must start from equal weights", 0);
	hz_send_load(h, 0, 0, 65536, 70000 - 65536, ZD_CODEC_FP32, w + 65536);
	hz_recv(h, 0, ZD_MSG_LOADED);
	hz_seal(h, 0);
	hz_error(h, 0, ZD_ERR_NOT_SEALED, "unit u1 [0, +6000)", 0);
	hz_send_load(h, 0, 1, 0, 6000, ZD_CODEC_FP32, f);
	hz_recv(h, 0, ZD_MSG_LOADED);
	h->hold_store = 1;
	hz_seal(h, 0);
	hz_nothing(h, 0);
	hz_stored(h, 0);
	hz_recv(h, 0, ZD_MSG_SEALED);
	h->hold_store = 0;
	hz_connect(h, 1, ZD_ROLE_WORKER); /* a slower worker with the same weights is welcome */
	hz_open(h, 1, 0);
	hz_send_load(h, 1, 1, 0, 6000, ZD_CODEC_FP32, f);
	hz_recv(h, 1, ZD_MSG_LOADED);
	f[0] += 1;
	hz_send_load(h, 1, 1, 0, 6000, ZD_CODEC_FP32, f);
	hz_error(h, 1, ZD_ERR_LOAD_DIFFERS, "drop the job", 0);
	hz_seal(h, 1);
	hz_recv(h, 1, ZD_MSG_SEALED);
	free(w);
	free(f);
	hz_free(h);
}

/* The whole unit in grains, from `values`. */
static void load_unit(struct hz *h, uint32_t slot, uint32_t unit, const float *values)
{
	uint64_t n = h->units[unit].numel;

	for (uint64_t at = 0; at < n; at += 65536) {
		hz_send_load(h, slot, unit, at, n - at < 65536 ? (uint32_t)(n - at) : 65536, ZD_CODEC_FP32, values + at);
		hz_recv(h, slot, ZD_MSG_LOADED);
	}
}

/* A launch that died between LOADED and SEALED: the next one loads what it likes, as long as it loads all of it, and its workers are equal. */
static void a_new_launch_loads_anew(void **state)
{
	struct hz *h = up();
	float *old[2], *new[2], *back = malloc(70000 * sizeof *back);
	struct hz_who who = {.epoch = 1, .world = 2};

	(void)state;
	for (uint32_t u = 0; u < 2; u++) {
		old[u] = malloc(70000 * sizeof(float));
		new[u] = malloc(70000 * sizeof(float));
		hz_weights(h, u, 1, old[u]);
		hz_weights(h, u, 2, new[u]);
	}
	hz_join(h, 0, who);
	load_unit(h, 0, 0, old[0]);
	load_unit(h, 0, 1, old[1]);
	hz_send_load(h, 0, 1, 0, 6000, ZD_CODEC_FP32, new[1]);
	hz_error(h, 0, ZD_ERR_LOAD_DIFFERS, "", 0); /* of one launch they must be equal */
	who.attempt = 1;
	hz_join(h, 0, who);
	hz_send_load(h, 0, 1, 0, 6000, ZD_CODEC_FP32, new[1]);
	hz_error(h, 0, ZD_ERR_LOAD_DIFFERS, "", 0); /* another attempt is the same launch */
	hz_disconnect(h, 0);

	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_open(h, 1, 0);
	hz_join(h, 1, (struct hz_who){.epoch = 2, .world = 2, .process = 1});
	load_unit(h, 1, 0, new[0]);
	hz_seal(h, 1);
	hz_error(h, 1, ZD_ERR_NOT_SEALED, "unit u1 [0, +6000) was loaded before epoch 2 and others in it: load it again, then seal", 0);
	hz_connect(h, 2, ZD_ROLE_WORKER);
	hz_open(h, 2, 0);
	hz_join(h, 2, (struct hz_who){.epoch = 2, .world = 2, .rank = 1, .process = 2});
	hz_send_load(h, 2, 0, 0, 65536, ZD_CODEC_FP32, old[0]);
	hz_error(h, 2, ZD_ERR_LOAD_DIFFERS, "every worker must start from equal weights", 0);
	load_unit(h, 2, 1, old[1]); /* what the older launch loaded will do, if this one says so */
	hz_seal(h, 1);
	hz_recv(h, 1, ZD_MSG_SEALED);
	hz_seal(h, 1); /* the answer may have been lost */
	hz_recv(h, 1, ZD_MSG_SEALED);
	load_unit(h, 2, 0, new[0]);
	hz_fetch(h, 1, 0, 2, 0, back);
	assert_memory_equal(back, new[0], 70000 * sizeof *back);
	for (uint32_t u = 0; u < 2; u++) {
		free(old[u]);
		free(new[u]);
	}
	free(back);
	hz_free(h);
}

/* It may also seal what the dead one has loaded as a whole: another lane may have sealed that already. */
static void a_new_launch_seals(void **state)
{
	struct hz *h = up();
	float *w = malloc(70000 * sizeof *w);

	(void)state;
	hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1});
	for (uint32_t u = 0; u < 2; u++) {
		hz_weights(h, u, 1, w);
		load_unit(h, 0, u, w);
	}
	hz_disconnect(h, 0);
	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_open(h, 1, 0);
	hz_join(h, 1, (struct hz_who){.epoch = 2, .world = 1, .process = 1});
	hz_seal(h, 1);
	hz_recv(h, 1, ZD_MSG_SEALED);
	free(w);
	hz_free(h);
}

/* What is left of an older launch loads and seals nothing. */
static void an_old_launch_loads_nothing(void **state)
{
	struct hz *h = up();
	float *w = malloc(70000 * sizeof *w);
	uint64_t digest;

	(void)state;
	hz_weights(h, 1, 1, w);
	hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1});
	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_open(h, 1, 0);
	hz_join(h, 1, (struct hz_who){.epoch = 2, .world = 1, .process = 1});
	hz_drain(h, 0); /* ABORTED: its ballot is over */
	digest = zd_core_digest(h->core, "job");
	hz_send_load(h, 0, 1, 0, 6000, ZD_CODEC_FP32, w);
	hz_aborted(h, 0, ZD_ERR_BALLOT_LOW, 1, 0, "a newer launch has taken the job, stop");
	hz_seal(h, 0);
	hz_aborted(h, 0, ZD_ERR_BALLOT_LOW, 1, 0, "a newer launch has taken the job, stop");
	assert_true(zd_core_digest(h->core, "job") == digest);
	load_unit(h, 1, 1, w);
	free(w);
	hz_free(h);
}

/* Nor what it had half sent, or what waited for a window, when the new launch came. */
static void half_a_load_of_an_old_launch(void **state)
{
	static uint8_t frame[30000];
	static float old[6000], new[6000];
	Zd__Pb__Load m = ZD__PB__LOAD__INIT;
	size_t n;

	(void)state;
	new[0] = 1;
	m.unit = 1;
	m.count = 6000;
	m.codec = ZD_CODEC_FP32;
	n = hz_encode(frame, sizeof frame, ZD_MSG_LOAD, 9, &m.base, old, sizeof old);
	for (size_t sent = 4; sent < n; sent += 10000) {
		struct hz *h = up();
		uint64_t digest;

		hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1});
		hz_bytes(h, 0, frame, sent);
		hz_connect(h, 1, ZD_ROLE_WORKER);
		hz_open(h, 1, 0);
		hz_join(h, 1, (struct hz_who){.epoch = 2, .world = 1, .process = 1});
		hz_drain(h, 0); /* ABORTED: its ballot is over */
		digest = zd_core_digest(h->core, "job");
		hz_bytes(h, 0, frame + sent, n - sent);
		hz_aborted(h, 0, ZD_ERR_BALLOT_LOW, 1, 0, "a newer launch has taken the job, stop");
		assert_int_equal(h->last.stream, 9);
		assert_true(zd_core_digest(h->core, "job") == digest);
		load_unit(h, 1, 1, new);
		hz_free(h);
	}
}

static void push_before_seal(void **state)
{
	struct hz *h = up();
	static uint16_t g[65536];
	Zd__Pb__Ping m = ZD__PB__PING__INIT;
	const Zd__Pb__Pong *pong;

	(void)state;
	hz_join(h, 0, (struct hz_who){.epoch = 1, .world = 1});
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, 1, 0, 65536}, g);
	hz_error(h, 0, ZD_ERR_NOT_SEALED, "LOAD and SEAL first", 0);
	hz_send(h, 0, ZD_MSG_PING, 6, &m.base, NULL, 0); /* who asks first is told so */
	pong = (const Zd__Pb__Pong *)hz_recv(h, 0, ZD_MSG_PONG);
	assert_true(pong->has_sealed && !pong->sealed);
	hz_load_all(h, 0, 1);
	hz_send(h, 0, ZD_MSG_PING, 6, &m.base, NULL, 0);
	assert_true(((const Zd__Pb__Pong *)hz_recv(h, 0, ZD_MSG_PONG))->sealed);
	hz_send_push(h, 0, (struct hz_push){1, 0, 1, 0, 0, 0, 1, 0, 65536}, g); /* the refusal has left nothing behind */
	hz_nothing(h, 0);
	hz_free(h);
}

static void admin(void **state)
{
	struct hz *h = up();
	Zd__Pb__Status status = ZD__PB__STATUS__INIT;
	Zd__Pb__Show show = ZD__PB__SHOW__INIT;
	const Zd__Pb__StatusReply *reply;
	const Zd__Pb__ShowReply *shown;

	(void)state;
	hz_join(h, 0, (struct hz_who){.epoch = 3, .world = 2});
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	h->now += ZD_MS(5000);
	hz_send(h, 1, ZD_MSG_STATUS, 1, &status.base, NULL, 0);
	reply = (const Zd__Pb__StatusReply *)hz_recv(h, 1, ZD_MSG_STATUS_REPLY);
	assert_int_equal(reply->n_jobs, 1);
	assert_int_equal(reply->connections, 2);
	assert_int_equal(reply->uptime_ms, 5000);
	assert_string_equal(reply->daemon, "test");
	assert_int_equal(reply->jobs[0]->params, 76000);
	assert_int_equal(reply->jobs[0]->trainable, 70000);
	assert_int_equal(reply->jobs[0]->epoch, 3);
	assert_int_equal(reply->jobs[0]->world, 2);
	assert_int_equal(reply->jobs[0]->joined, 1);
	assert_int_equal(reply->slab_used, hz_view(h).bytes + 8 * ZD_PAYLOAD_MAX);
	show.name = h->spec.name;
	hz_send(h, 1, ZD_MSG_SHOW, 2, &show.base, NULL, 0);
	shown = (const Zd__Pb__ShowReply *)hz_recv(h, 1, ZD_MSG_SHOW_REPLY);
	assert_int_equal(shown->spec->n_units, 2);
	assert_int_equal(shown->spec->units[0]->numel, 70000);
	show.name = (char *)"none";
	hz_send(h, 1, ZD_MSG_SHOW, 2, &show.base, NULL, 0);
	hz_error(h, 1, ZD_ERR_NO_JOB, "no job none", 0);
	/* In the log a peer's words stay inside their value. */
	show.name = (char *)"x\" level=error text=\"\\";
	hz_send(h, 1, ZD_MSG_SHOW, 2, &show.base, NULL, 0);
	hz_error(h, 1, ZD_ERR_NO_JOB, "no job x\" level=error text=\"\\ on", 0);
	assert_non_null(strstr(h->logged, " text=\"no job x\\\" level=error text=\\\"\\\\ on lane 0 of daemon test\""));
	hz_send(h, 0, ZD_MSG_STATUS, 1, &status.base, NULL, 0);
	hz_error(h, 0, ZD_ERR_NO_ROLE, "STATUS from role worker: connect as admin", 1);
	hz_free(h);
}

static void drop(void **state)
{
	struct hz *h = up();
	Zd__Pb__Drop m = ZD__PB__DROP__INIT;
	const Zd__Pb__Dropped *d;
	uint64_t bytes = hz_view(h).bytes;

	(void)state;
	hz_load_all(h, 0, 1);
	hz_connect(h, 1, ZD_ROLE_READER);
	hz_open(h, 1, 0);
	h->hold_sent = h->hold_closed = 1;
	hz_send_fetch(h, 1, 1, 0, 0, 65536, 1, 1, 0);
	hz_recv(h, 1, ZD_MSG_DATA);
	hz_connect(h, 2, ZD_ROLE_ADMIN);
	m.name = h->spec.name;
	hz_send(h, 2, ZD_MSG_DROP, 5, &m.base, NULL, 0);
	hz_error(h, 0, ZD_ERR_DROPPED, "job job was dropped", 1);
	hz_error(h, 1, ZD_ERR_DROPPED, "job job was dropped", 1);
	hz_nothing(h, 2);
	assert_int_equal(h->released, 0); /* the reader's weights are still lent */
	hz_disconnect(h, 0);
	assert_int_equal(h->released, 0);
	hz_disconnect(h, 1);
	h->hold_closed = 0;
	d = (const Zd__Pb__Dropped *)hz_recv(h, 2, ZD_MSG_DROPPED);
	assert_int_equal(d->bytes, bytes);
	assert_int_equal(h->last.stream, 5);
	assert_int_equal(h->released, 1);
	assert_int_equal(zd_core_digest(h->core, "job"), 0);
	h->hold_sent = 0;
	hz_connect(h, 0, ZD_ROLE_WORKER); /* the name and the memory are free; moments begin at zero again */
	hz_open(h, 0, 1);
	hz_send(h, 2, ZD_MSG_DROP, 6, &m.base, NULL, 0);
	hz_recv(h, 2, ZD_MSG_DROPPED);
	hz_idle(h);
	hz_send(h, 2, ZD_MSG_DROP, 7, &m.base, NULL, 0);
	hz_error(h, 2, ZD_ERR_NO_JOB, "no job job", 0);
	hz_free(h);
}

/* A job after another in the same memory computes what it would in fresh memory. */
static void memory_is_used_again(void **state)
{
	static uint16_t first[70000], second[70000];
	struct hz_who who = {.epoch = 1, .world = 1};

	(void)state;
	for (int again = 0; again < 2; again++) {
		struct hz *h = up();
		Zd__Pb__Drop m = ZD__PB__DROP__INIT;

		m.name = h->spec.name;
		for (int i = 0; i <= again; i++) {
			if (i > 0) {
				hz_connect(h, 2, ZD_ROLE_ADMIN);
				hz_send(h, 2, ZD_MSG_DROP, 5, &m.base, NULL, 0);
				hz_recv(h, 2, ZD_MSG_DROPPED);
				hz_connect(h, 0, ZD_ROLE_WORKER);
				hz_open(h, 0, 1);
			}
			hz_join(h, 0, who);
			hz_load_all(h, 0, 1);
			hz_round(h, who, 1, 1, &hz_hyper);
			hz_fetch(h, 0, 0, 1, 1, again ? second : first);
		}
		hz_free(h);
	}
	assert_memory_equal(first, second, sizeof first);
}

static void wrong_bytes(void **state)
{
	static const struct {
		uint32_t at, value; /* of the header */
		int err;
		const char *part;
	} table[] = {
		{0, 0x20544547, ZD_ERR_BAD_MAGIC, "47 45 54 20"}, {4, 9, ZD_ERR_BAD_VERSION, "version 9, expected 1"},
		{6, 63, ZD_ERR_BAD_TYPE, "type 63"},		  {6, 4, ZD_ERR_BAD_TYPE, "OPENED is sent by the server only"},
		{8, 1 << 20, ZD_ERR_BAD_LENGTH, "PING"},	  {12, 1, ZD_ERR_BAD_LENGTH, "payload of PING"},
		{16, 1, ZD_ERR_BAD_CHECKSUM, "checksum of PING"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct hz *h = up();
		Zd__Pb__Ping m = ZD__PB__PING__INIT;
		uint8_t frame[64];
		size_t n = hz_encode(frame, sizeof frame, ZD_MSG_PING, 1, &m.base, NULL, 0);

		memcpy(frame + table[i].at, &table[i].value, table[i].at == 4 || table[i].at == 6 ? 2 : 4);
		hz_connect(h, 1, ZD_ROLE_READER);
		hz_bytes(h, 1, frame, n);
		hz_error(h, 1, table[i].err, table[i].part, 1);
		hz_seal(h, 0); /* the others go on */
		hz_error(h, 0, ZD_ERR_NOT_SEALED, "u0", 0);
		hz_free(h);
	}
}

static void before_open(void **state)
{
	struct hz *h = up();
	Zd__Pb__Hello hello = ZD__PB__HELLO__INIT;

	(void)state;
	hz_connect(h, 1, ZD_ROLE_WORKER);
	hz_send_join(h, 1, (struct hz_who){.epoch = 1, .world = 1});
	hz_error(h, 1, ZD_ERR_OUT_OF_ORDER, "JOIN before OPEN", 1);
	hz_connect(h, 2, ZD_ROLE_READER);
	hello.version = 1;
	hello.role = 1;
	hz_send(h, 2, ZD_MSG_HELLO, 1, &hello.base, NULL, 0);
	hz_error(h, 2, ZD_ERR_OUT_OF_ORDER, "HELLO on a connection that has passed the door", 1);
	hz_free(h);
}

/* A very large model: its OPEN does not fit a page.  Only a few may be on their way, and none may stay there. */
static void long_heads(void **state)
{
	struct hz *h = hz_new(8, 64u << 20);
	static Zd__Pb__Unit units[1000], *ptrs[1000];
	static char names[1000][64];
	static uint8_t frame[ZD_HEAD_OPEN_MAX];
	Zd__Pb__JobSpec spec = ZD__PB__JOB_SPEC__INIT;
	Zd__Pb__Open m = ZD__PB__OPEN__INIT;
	size_t n;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		zd__pb__unit__init(&units[i]);
		snprintf(names[i], sizeof names[i], "a_rather_long_name_of_a_unit_of_a_model_%d", i);
		units[i].name = names[i];
		units[i].numel = 1000;
		ptrs[i] = &units[i];
	}
	spec.name = (char *)"huge";
	spec.units = ptrs;
	spec.n_units = 1000;
	spec.optimizer = ZD_OPT_ADAMW;
	spec.extent_elems = 4096;
	spec.lease_ms = 1000;
	m.spec = &spec;
	m.lane_count = 1;
	m.has_create = m.create = 1;
	n = hz_encode(frame, sizeof frame, ZD_MSG_OPEN, 1, &m.base, NULL, 0);
	for (uint32_t i = 0; i < 4; i++) { /* four stop in the middle */
		hz_connect(h, i, ZD_ROLE_WORKER);
		assert_int_equal(hz_feed(h, i, frame, 20000), 20000);
	}
	hz_connect(h, 4, ZD_ROLE_WORKER);
	assert_true(hz_feed(h, 4, frame, n) < n); /* the fifth waits */
	hz_time(h, 9999);
	assert_int_equal(zd_core_window(h->core, (struct zd_conn_id){4, h->conn[4].gen}).len, 0);
	hz_bytes(h, 3, frame + 20000, n - 20000);
	hz_recv(h, 3, ZD_MSG_OPENED);
	assert_true(zd_core_window(h->core, (struct zd_conn_id){4, h->conn[4].gen}).len > 0);
	h->hold_closed = 1; /* which takes as long as timeouts.linger, and must keep nobody waiting */
	hz_time(h, 1);
	for (uint32_t i = 0; i < 3; i++)
		hz_error(h, i, ZD_ERR_TIMED_OUT, "19968 of them are here", 1);
	hz_connect(h, 5, ZD_ROLE_WORKER);
	hz_bytes(h, 5, frame, n);
	hz_recv(h, 5, ZD_MSG_OPENED);
	hz_bytes(h, 4, frame + ZD_LANDING_BYTES, n - ZD_LANDING_BYTES);
	hz_recv(h, 4, ZD_MSG_OPENED);
	hz_free(h);
}

/* A flood of requests in one read with large answers must not overflow one step. */
static void flood(void **state)
{
	struct hz *h = up();
	Zd__Pb__Status status = ZD__PB__STATUS__INIT;
	static uint8_t buf[120 * 40];
	size_t n = 0;

	(void)state;
	hz_connect(h, 1, ZD_ROLE_ADMIN);
	for (int i = 0; i < 120; i++)
		n += hz_encode(buf + n, sizeof buf - n, ZD_MSG_STATUS, 1, &status.base, NULL, 0);
	hz_bytes(h, 1, buf, n);
	hz_idle(h);
	for (int i = 0; i < 120; i++)
		hz_recv(h, 1, ZD_MSG_STATUS_REPLY);
	hz_free(h);
}

static void early(struct hz *h, uint32_t slot, enum zd_role role, const uint8_t *bytes, size_t len)
{
	struct zd_event ev = {.type = ZD_EV_CONN, .now = h->now};

	ev.u.conn.id = (struct zd_conn_id){slot, 1};
	ev.u.conn.role = role;
	ev.u.conn.features = ZD_FEATURE_PAYLOAD_CRC;
	ev.u.conn.peer = "peer";
	ev.u.conn.early = bytes;
	ev.u.conn.early_len = len;
	zd_core_step(h->core, &ev, h->actions);
}

/* The widest step there is: a job with as many connections as a lane can have is dropped. */
static void drop_of_a_crowd(void **state)
{
	struct hz *h = hz_new(8, 4u << 20);
	Zd__Pb__Open open = ZD__PB__OPEN__INIT;
	Zd__Pb__Drop m = ZD__PB__DROP__INIT;
	Zd__Pb__JobSpec spec;
	Zd__Pb__Unit units[HZ_UNITS], *ptrs[HZ_UNITS];
	uint8_t frame[512];
	size_t n;
	uint32_t closed = 0;

	(void)state;
	hz_spec(h, "crowd", ZD_OPT_ADAMW, ZD_CODEC_BF16, 65536, 1, sizes);
	h->config.max_conns = 1024;
	hz_restart(h);
	zd_spec_to_pb(&h->spec, &spec, units, ptrs);
	open.spec = &spec;
	open.lane_count = 1;
	open.has_create = open.create = 1;
	n = hz_encode(frame, sizeof frame, ZD_MSG_OPEN, 1, &open.base, NULL, 0);
	for (uint32_t i = 0; i < 1023; i++) {
		early(h, i, ZD_ROLE_WORKER, frame, n);
		assert_int_equal(h->actions->item[h->actions->count - 1].type, ZD_ACT_SEND);
	}
	m.name = h->spec.name;
	n = hz_encode(frame, sizeof frame, ZD_MSG_DROP, 1, &m.base, NULL, 0);
	early(h, 1023, ZD_ROLE_ADMIN, frame, n);
	for (uint32_t i = 0; i < h->actions->count; i++)
		closed += h->actions->item[i].type == ZD_ACT_CLOSE;
	assert_int_equal(closed, 1023);
	hz_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_compares), cmocka_unit_test(memory_is_refused_with_numbers),
		cmocka_unit_test(job_limits),	 cmocka_unit_test(loads),
		cmocka_unit_test(a_new_launch_loads_anew), cmocka_unit_test(a_new_launch_seals),
		cmocka_unit_test(an_old_launch_loads_nothing),
		cmocka_unit_test(half_a_load_of_an_old_launch),
		cmocka_unit_test(push_before_seal), cmocka_unit_test(admin),
		cmocka_unit_test(drop),		 cmocka_unit_test(memory_is_used_again),
		cmocka_unit_test(wrong_bytes),	 cmocka_unit_test(before_open),
		cmocka_unit_test(long_heads),	 cmocka_unit_test(flood),
		cmocka_unit_test(drop_of_a_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
