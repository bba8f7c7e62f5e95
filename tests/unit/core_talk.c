/* SPDX-License-Identifier: Apache-2.0 */
/* What workers say to a core under test, and what it must compute: see core_harness.h. */
#include <stdlib.h>

#include "core_harness.h"
#include "server/kernel/kernel.h"

void hz_send_open(struct hz *h, uint32_t slot, int create, uint32_t lane, uint32_t lanes)
{
	Zd__Pb__Open m = ZD__PB__OPEN__INIT;
	Zd__Pb__JobSpec spec;
	Zd__Pb__Unit units[HZ_UNITS], *ptrs[HZ_UNITS];

	zd_spec_to_pb(&h->spec, &spec, units, ptrs);
	m.spec = &spec;
	m.lane_index = lane;
	m.lane_count = lanes;
	m.has_create = 1;
	m.create = create;
	hz_send(h, slot, ZD_MSG_OPEN, 7, &m.base, NULL, 0);
}

void hz_open(struct hz *h, uint32_t slot, int create)
{
	hz_send_open(h, slot, create, 0, 1);
	hz_recv(h, slot, ZD_MSG_OPENED);
}

static Zd__Pb__Ballot ballot(uint64_t epoch, uint32_t attempt)
{
	Zd__Pb__Ballot b = ZD__PB__BALLOT__INIT;

	b.epoch = epoch;
	b.attempt = attempt;
	return b;
}

void hz_send_join(struct hz *h, uint32_t slot, struct hz_who who)
{
	Zd__Pb__Join m = ZD__PB__JOIN__INIT;
	Zd__Pb__Ballot b = ballot(who.epoch, who.attempt);

	m.ballot = &b;
	m.launch = who.launch;
	m.process = who.process ? who.process : 100 + who.rank;
	m.rank = who.rank;
	m.world = who.world;
	m.link = who.link;
	hz_send(h, slot, ZD_MSG_JOIN, 8, &m.base, NULL, 0);
}

const Zd__Pb__Joined *hz_join(struct hz *h, uint32_t slot, struct hz_who who)
{
	hz_send_join(h, slot, who);
	return (const Zd__Pb__Joined *)hz_recv(h, slot, ZD_MSG_JOINED);
}

void hz_send_load(struct hz *h, uint32_t slot, uint32_t unit, uint64_t first, uint32_t count, uint32_t codec, const void *values)
{
	Zd__Pb__Load m = ZD__PB__LOAD__INIT;

	m.unit = unit;
	m.first = first;
	m.count = count;
	m.codec = codec;
	hz_send(h, slot, ZD_MSG_LOAD, 9, &m.base, values, count * zd_codec_bytes((enum zd_codec)codec));
}

void hz_seal(struct hz *h, uint32_t slot)
{
	Zd__Pb__Seal m = ZD__PB__SEAL__INIT;

	hz_send(h, slot, ZD_MSG_SEAL, 10, &m.base, NULL, 0);
}

void hz_load_all(struct hz *h, uint32_t slot, uint32_t seed)
{
	for (uint32_t u = 0; u < h->spec.unit_count; u++) {
		uint64_t n = h->spec.units[u].numel;
		float *values = malloc(n * sizeof *values);

		hz_weights(h, u, seed, values);
		for (uint64_t at = 0; at < n; at += ZD_GRAIN_ELEMS) {
			hz_send_load(h, slot, u, at, (uint32_t)(n - at < ZD_GRAIN_ELEMS ? n - at : ZD_GRAIN_ELEMS), ZD_CODEC_FP32, values + at);
			hz_recv(h, slot, ZD_MSG_LOADED);
		}
		free(values);
	}
	hz_seal(h, slot);
	assert_int_equal(((const Zd__Pb__Sealed *)hz_recv(h, slot, ZD_MSG_SEALED))->version, 0);
}

size_t hz_encode_push(struct hz *h, uint8_t *out, size_t size, struct hz_push p, const void *values)
{
	Zd__Pb__Push m = ZD__PB__PUSH__INIT;
	Zd__Pb__Ballot b = ballot(p.epoch, p.attempt);

	m.ballot = &b;
	m.round = p.round;
	m.rank = p.rank;
	m.unit = p.unit;
	m.micro = p.micro;
	m.micro_batches = p.micros;
	m.first = p.first;
	m.count = p.count;
	m.codec = h->spec.grad_codec;
	return hz_encode(out, size, ZD_MSG_PUSH, 11, &m.base, values, p.count * zd_codec_bytes(h->spec.grad_codec));
}

void hz_send_push(struct hz *h, uint32_t slot, struct hz_push p, const void *values)
{
	static uint8_t buf[ZD_PAYLOAD_MAX + 1024];

	hz_bytes(h, slot, buf, hz_encode_push(h, buf, sizeof buf, p, values));
}

void hz_push_unit(struct hz *h, uint32_t slot, struct hz_who who, uint64_t round, uint32_t unit, uint32_t micro, uint32_t micros)
{
	uint64_t n = h->spec.units[unit].numel;
	uint32_t bytes = zd_codec_bytes(h->spec.grad_codec), extents = (uint32_t)((n + h->spec.extent_elems - 1) / h->spec.extent_elems);
	uint8_t *values = malloc(n * bytes);
	const Zd__Pb__Pushed *m = NULL;

	hz_gradient(h, round, who.rank, micro, unit, values);
	for (uint64_t at = 0; at < n; at += h->spec.extent_elems) {
		struct hz_push p = {who.epoch, who.attempt, round, who.rank, unit, micro, micros, at,
				    (uint32_t)(n - at < h->spec.extent_elems ? n - at : h->spec.extent_elems)};

		hz_send_push(h, slot, p, values + at * bytes);
	}
	free(values);
	while (h->conn[slot].count > 0) /* those that only give windows back come before */
		m = (const Zd__Pb__Pushed *)hz_recv(h, slot, ZD_MSG_PUSHED);
	assert_non_null(m);
	assert_int_equal(m->round, round);
	assert_int_equal(m->unit, unit);
	assert_int_equal(m->counted, (micro + 1) * extents);
}

void hz_send_commit(struct hz *h, uint32_t slot, struct hz_who who, uint64_t round, uint32_t micros, const struct zd_hyper *hyper)
{
	Zd__Pb__Commit m = ZD__PB__COMMIT__INIT;
	Zd__Pb__Ballot b = ballot(who.epoch, who.attempt);
	Zd__Pb__Hyper p;
	uint32_t counts[HZ_UNITS];

	zd_hyper_to_pb(hyper, &p);
	for (uint32_t u = 0; u < h->spec.unit_count; u++)
		counts[u] = h->spec.units[u].frozen ? 0 : micros;
	m.ballot = &b;
	m.round = round;
	m.rank = who.rank;
	m.micro_batches = micros;
	m.hyper = &p;
	m.counts = counts;
	m.n_counts = h->spec.unit_count;
	hz_send(h, slot, ZD_MSG_COMMIT, 12, &m.base, NULL, 0);
}

struct zd_record hz_prepared(struct hz *h, uint32_t slot)
{
	const Zd__Pb__Prepared *m = (const Zd__Pb__Prepared *)hz_recv(h, slot, ZD_MSG_PREPARED);
	struct zd_record r;

	assert_int_equal(zd_record_from_pb(&r, m->record), 0);
	return r;
}

struct zd_decision hz_decide(const struct zd_record *record, uint64_t step)
{
	struct zd_decision d;
	char text[256];

	assert_int_equal(zd_decide(record, 1, step, &d, text, sizeof text), 0);
	return d;
}

void hz_send_apply(struct hz *h, uint32_t slot, struct hz_who who, const struct zd_decision *d)
{
	Zd__Pb__Apply m = ZD__PB__APPLY__INIT;
	Zd__Pb__Ballot b = ballot(who.epoch, who.attempt), name;
	Zd__Pb__Decision pb;

	zd_decision_to_pb(d, &pb, &name);
	m.ballot = &b;
	m.decision = &pb;
	hz_send(h, slot, ZD_MSG_APPLY, 13, &m.base, NULL, 0);
}

void hz_applied(struct hz *h, uint32_t slot, uint64_t round)
{
	const Zd__Pb__Applied *m = (const Zd__Pb__Applied *)hz_recv(h, slot, ZD_MSG_APPLIED);

	assert_int_equal(m->decision->round, round);
}

void hz_send_discard(struct hz *h, uint32_t slot, struct hz_who who, uint64_t round, uint64_t epoch, uint32_t attempt)
{
	Zd__Pb__Discard m = ZD__PB__DISCARD__INIT;
	Zd__Pb__Ballot b = ballot(who.epoch, who.attempt), name = ballot(epoch, attempt);

	m.ballot = &b;
	m.round = round;
	m.record = &name;
	hz_send(h, slot, ZD_MSG_DISCARD, 14, &m.base, NULL, 0);
}

void hz_send_fetch(struct hz *h, uint32_t slot, uint64_t stream, uint32_t unit, uint64_t first, uint64_t count, uint32_t plane, uint32_t mode,
		   uint64_t version)
{
	Zd__Pb__Fetch m = ZD__PB__FETCH__INIT;

	m.unit = unit;
	m.first = first;
	m.count = count;
	m.plane = plane;
	m.mode = mode;
	m.version = version;
	hz_send(h, slot, ZD_MSG_FETCH, stream, &m.base, NULL, 0);
}

void hz_fetch(struct hz *h, uint32_t slot, uint32_t unit, uint32_t plane, uint64_t version, void *out)
{
	uint64_t n = h->spec.units[unit].numel, at = 0;
	uint32_t bytes = plane == 1 ? 2 : 4;

	hz_send_fetch(h, slot, 77, unit, 0, n, plane, 2, version);
	while (at < n) {
		const Zd__Pb__Data *m = (const Zd__Pb__Data *)hz_recv(h, slot, ZD_MSG_DATA);

		assert_int_equal(h->last.stream, 77);
		assert_int_equal(m->unit, unit);
		assert_int_equal(m->first, at);
		assert_int_equal(m->version, version);
		assert_int_equal(m->count * bytes, h->last.payload_len);
		memcpy((uint8_t *)out + at * bytes, h->last.payload, h->last.payload_len);
		at += m->count;
		assert_int_equal(m->last, at == n);
	}
	hz_nothing(h, slot);
}

struct zd_job_view hz_view(const struct hz *h)
{
	struct zd_job_view v;

	assert_int_equal(zd_core_job_view(h->core, h->spec.name, &v), 1);
	return v;
}

struct zd_decision hz_round(struct hz *h, struct hz_who who, uint64_t round, uint32_t micros, const struct zd_hyper *hyper)
{
	struct zd_record record = {0};
	struct zd_decision d;

	for (uint32_t micro = 0; micro < micros; micro++)
		for (uint32_t u = h->spec.unit_count; u-- > 0;)
			for (uint32_t r = 0; r < who.world && !h->spec.units[u].frozen; r++) {
				who.rank = r;
				hz_push_unit(h, r, who, round, u, micro, micros);
			}
	for (uint32_t r = 0; r < who.world; r++) {
		who.rank = r;
		hz_send_commit(h, r, who, round, micros, hyper);
	}
	for (uint32_t r = 0; r < who.world; r++)
		record = hz_prepared(h, r);
	d = hz_decide(&record, hz_view(h).step);
	for (uint32_t r = 0; r < who.world; r++) {
		who.rank = r;
		hz_send_apply(h, r, who, &d);
		hz_applied(h, r, round);
		hz_nothing(h, r);
	}
	return d;
}

/* ---------------------------------------------------------------- values */

static uint32_t next(uint32_t *x)
{
	*x = *x * 1664525u + 1013904223u;
	return *x >> 8;
}

void hz_gradient(const struct hz *h, uint64_t round, uint32_t rank, uint32_t micro, uint32_t unit, void *out)
{
	uint32_t x = (uint32_t)round * 977 + rank * 31 + micro * 7 + unit * 131 + 1;
	uint64_t n = h->spec.units[unit].numel;

	for (uint64_t i = 0; i < n; i++) {
		float f = ((float)(next(&x) & 0xffff) - 32768.0f) / 65536.0f;
		uint32_t bits;

		memcpy(&bits, &f, 4);
		if (h->spec.grad_codec == ZD_CODEC_FP32)
			memcpy((uint8_t *)out + 4 * i, &bits, 4);
		else if (h->spec.grad_codec == ZD_CODEC_BF16)
			((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
		else
			((uint16_t *)out)[i] = (uint16_t)((next(&x) & 0x83ff) | 0x3000); /* 0.125 to 0.25, of both signs */
	}
}

void hz_weights(const struct hz *h, uint32_t unit, uint32_t seed, float *out)
{
	uint32_t x = seed + unit;

	for (uint64_t i = 0; i < h->spec.units[unit].numel; i++)
		out[i] = ((float)(next(&x) & 0xfffff) - 524288.0f) / 4194304.0f;
}

void hz_model_init(struct hz *h, struct hz_model *m, uint32_t unit, uint32_t seed)
{
	struct zd_reduce_result r;
	float *w;

	m->n = h->spec.units[unit].numel;
	m->hi = calloc(m->n, 2);
	m->lo = calloc(m->n, 2);
	m->m = calloc(m->n, 4);
	m->v = calloc(m->n, 4);
	m->acc = calloc(m->n, 4);
	w = malloc(m->n * 4);
	hz_weights(h, unit, seed, w);
	zd_kernels_scalar()->split[ZD_CODEC_FP32](m->hi, m->lo, w, m->n, &r);
	free(w);
}

void hz_model_fini(struct hz_model *m)
{
	free(m->hi);
	free(m->lo);
	free(m->m);
	free(m->v);
	free(m->acc);
}

void hz_model_round(struct hz *h, struct hz_model *m, uint32_t unit, uint64_t round, uint32_t world, uint32_t micros)
{
	const struct zd_kernels *k = zd_kernels_scalar();
	struct zd_reduce_result r;
	void *g = malloc(m->n * 4);

	for (uint32_t micro = 0; micro < micros; micro++)
		for (uint32_t rank = 0; rank < world; rank++) {
			hz_gradient(h, round, rank, micro, unit, g);
			(micro + rank ? k->acc_add : k->acc_set)[h->spec.grad_codec](m->acc, g, m->n, NULL, &r);
		}
	free(g);
}

void hz_model_step(struct hz *h, struct hz_model *m, const struct zd_hyper *hyper, const struct zd_decision *d)
{
	struct zd_adam_params p = {hyper->lr, hyper->weight_decay, hyper->beta1, hyper->beta2, hyper->eps, h->spec.optimizer == ZD_OPT_ADAM_L2};
	struct zd_adam_consts consts;

	zd_adam_consts_init(&consts, &p, d->step, d->scale);
	zd_kernels_scalar()->adam[ZD_GRAD_FP32](m->hi, m->lo, m->m, m->v, m->acc, NULL, m->n, &consts, NULL);
}
