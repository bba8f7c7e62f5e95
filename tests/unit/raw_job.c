/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/raw_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/crc32c.h"
#include "proto/spec.h"

const struct zd_hyper raw_job_hyper = {
	.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .max_norm = 1, .loss_scale = 1};

float raw_job_weight(uint32_t k)
{
	return (float)(k % 1000) * 0.001f;
}

/* Around 0.01 and larger; the norm, and with it the scale, differs from pattern to pattern. */
uint16_t raw_job_grad(uint32_t pattern, uint32_t k)
{
	return (uint16_t)(0x3c00 + (k + 37 * pattern) % (64 * pattern));
}

static void ask_open(struct raw_peer *p, const char *name)
{
	struct zd_unit_spec unit = {.name = "w", .numel = RAW_JOB_NUMEL};
	struct zd_spec spec = {.optimizer = ZD_OPT_ADAMW, .grad_codec = ZD_CODEC_BF16, .extent_elems = ZD_EXTENT_ELEMS_MAX,
			       .lease_ms = 60000, .unit_count = 1, .units = &unit};
	Zd__Pb__JobSpec pb = ZD__PB__JOB_SPEC__INIT;
	Zd__Pb__Open open = ZD__PB__OPEN__INIT;
	Zd__Pb__Unit pb_unit, *ptr;

	snprintf(spec.name, sizeof(spec.name), "%s", name);
	zd_spec_to_pb(&spec, &pb, &pb_unit, &ptr);
	open.spec = &pb;
	open.lane_index = 0;
	open.lane_count = 1;
	open.has_create = 1;
	open.create = 1;
	raw_send(p, ZD_MSG_OPEN, 2, &open.base, NULL, 0);
}

static void ask_load(struct raw_peer *p)
{
	float *values = malloc(ZD_GRAIN_ELEMS * sizeof(*values));
	uint32_t first, i;

	if (!values)
		abort();
	for (first = 0; first < RAW_JOB_NUMEL; first += ZD_GRAIN_ELEMS) {
		Zd__Pb__Load load = ZD__PB__LOAD__INIT;

		load.first = first;
		load.count = RAW_JOB_NUMEL - first < ZD_GRAIN_ELEMS ? RAW_JOB_NUMEL - first : ZD_GRAIN_ELEMS;
		load.codec = ZD_CODEC_FP32;
		for (i = 0; i < load.count; i++)
			values[i] = raw_job_weight(first + i);
		raw_send(p, ZD_MSG_LOAD, first, &load.base, values, load.count * 4);
	}
	free(values);
}

static void ask_join(struct raw_peer *p)
{
	Zd__Pb__Ballot ballot = ZD__PB__BALLOT__INIT;
	Zd__Pb__Join join = ZD__PB__JOIN__INIT;

	ballot.epoch = 1;
	join.ballot = &ballot;
	join.launch = 11;
	join.process = 12;
	join.world = 1;
	raw_send(p, ZD_MSG_JOIN, 3, &join.base, NULL, 0);
}

static void ask_push(struct raw_peer *p, uint64_t round, uint32_t pattern)
{
	uint16_t *grad = malloc(ZD_EXTENT_ELEMS_MAX * sizeof(*grad));
	uint32_t first, i;

	if (!grad)
		abort();
	for (first = 0; first < RAW_JOB_NUMEL; first += ZD_EXTENT_ELEMS_MAX) {
		Zd__Pb__Ballot ballot = ZD__PB__BALLOT__INIT;
		Zd__Pb__Push push = ZD__PB__PUSH__INIT;

		ballot.epoch = 1;
		push.ballot = &ballot;
		push.round = round;
		push.micro_batches = 1;
		push.first = first;
		push.count = RAW_JOB_NUMEL - first < ZD_EXTENT_ELEMS_MAX ? RAW_JOB_NUMEL - first : ZD_EXTENT_ELEMS_MAX;
		push.codec = ZD_CODEC_BF16;
		for (i = 0; i < push.count; i++)
			grad[i] = raw_job_grad(pattern, first + i);
		raw_send(p, ZD_MSG_PUSH, 0, &push.base, grad, push.count * 2);
	}
	free(grad);
}

static void ask_commit(struct raw_peer *p, uint64_t round)
{
	Zd__Pb__Ballot ballot = ZD__PB__BALLOT__INIT;
	Zd__Pb__Commit commit = ZD__PB__COMMIT__INIT;
	Zd__Pb__Hyper pb;
	uint32_t one = 1;

	ballot.epoch = 1;
	zd_hyper_to_pb(&raw_job_hyper, &pb);
	commit.ballot = &ballot;
	commit.round = round;
	commit.micro_batches = 1;
	commit.hyper = &pb;
	commit.n_counts = 1;
	commit.counts = &one;
	raw_send(p, ZD_MSG_COMMIT, 4, &commit.base, NULL, 0);
}

static void ask_apply(struct raw_peer *p, const struct zd_record *record, struct zd_decision *decision)
{
	Zd__Pb__Ballot ballot = ZD__PB__BALLOT__INIT, of_record;
	Zd__Pb__Apply apply = ZD__PB__APPLY__INIT;
	Zd__Pb__Decision pb;
	char text[256];

	if (zd_decide(record, 1, record->round - 1, decision, text, sizeof(text)) < 0)
		abort();
	zd_decision_to_pb(decision, &pb, &of_record);
	ballot.epoch = 1;
	apply.ballot = &ballot;
	apply.decision = &pb;
	raw_send(p, ZD_MSG_APPLY, 5, &apply.base, NULL, 0);
}

static void ask_fetch(struct raw_peer *p, uint64_t version)
{
	Zd__Pb__Fetch fetch = ZD__PB__FETCH__INIT;

	fetch.count = RAW_JOB_NUMEL;
	fetch.plane = 1;
	fetch.mode = 1;
	fetch.version = version;
	raw_send(p, ZD_MSG_FETCH, 6, &fetch.base, NULL, 0);
}

void raw_job_init(struct raw_job *job, const char *name)
{
	memset(job, 0, sizeof(*job));
	job->name = name;
	job->role = ZD_ROLE_WORKER;
	job->round = 1;
	job->pattern = 1;
}

void raw_job_ask(struct raw_job *job, struct raw_peer *p, enum raw_stage stage)
{
	uint8_t frame[ZD_HEADER_BYTES + 256];
	Zd__Pb__Seal seal = ZD__PB__SEAL__INIT;

	switch (stage) {
	case RAW_HELLO:
		raw_bytes(p, frame, raw_hello_frame(frame, sizeof(frame), job->role, 0));
		break;
	case RAW_OPEN:
		ask_open(p, job->name);
		break;
	case RAW_LOAD:
		ask_load(p);
		break;
	case RAW_SEAL:
		raw_send(p, ZD_MSG_SEAL, 8, &seal.base, NULL, 0);
		break;
	case RAW_JOIN:
		ask_join(p);
		break;
	case RAW_PUSH:
		ask_push(p, job->round, job->pattern);
		break;
	case RAW_COMMIT:
		ask_commit(p, job->round);
		break;
	case RAW_APPLY:
		ask_apply(p, &job->record, &job->decision);
		break;
	case RAW_FETCH:
		ask_fetch(p, job->round);
		break;
	case RAW_STAGES:
		break;
	}
}

static const uint8_t answers[RAW_STAGES] = {
	[RAW_HELLO] = ZD_MSG_WELCOME, [RAW_OPEN] = ZD_MSG_OPENED, [RAW_LOAD] = ZD_MSG_LOADED,   [RAW_SEAL] = ZD_MSG_SEALED,   [RAW_JOIN] = ZD_MSG_JOINED,
	[RAW_PUSH] = ZD_MSG_PUSHED,   [RAW_COMMIT] = ZD_MSG_PREPARED, [RAW_APPLY] = ZD_MSG_APPLIED, [RAW_FETCH] = ZD_MSG_DATA,
};

/* 1 if the frame just received is the last answer of its stage. */
static int is_last(const struct raw_peer *p, enum raw_stage stage)
{
	if (stage == RAW_LOAD) {
		const Zd__Pb__Loaded *loaded = (const Zd__Pb__Loaded *)p->msg;

		return loaded->first + loaded->count == RAW_JOB_NUMEL;
	}
	if (stage == RAW_PUSH)
		return ((const Zd__Pb__Pushed *)p->msg)->counted == (RAW_JOB_NUMEL + ZD_EXTENT_ELEMS_MAX - 1) / ZD_EXTENT_ELEMS_MAX;
	if (stage == RAW_FETCH)
		return ((const Zd__Pb__Data *)p->msg)->last;
	return 1;
}

int raw_job_hear(struct raw_job *job, struct raw_peer *p, enum raw_stage stage)
{
	if (stage == RAW_FETCH)
		job->sum = 0;
	do {
		job->why = raw_receive(p);
		if (job->why != answers[stage])
			return -1;
		if (stage == RAW_COMMIT && zd_record_from_pb(&job->record, ((const Zd__Pb__Prepared *)p->msg)->record) < 0) {
			job->why = RAW_BROKEN;
			return -1;
		}
		if (stage == RAW_FETCH)
			job->sum = zd_crc32c(job->sum, p->payload, p->reader.header.payload_len);
	} while (!is_last(p, stage));
	return 0;
}

int raw_job_run(struct raw_job *job, struct raw_peer *p, enum raw_stage first, enum raw_stage end)
{
	int stage;

	for (stage = (int)first; stage < (int)end; stage++) {
		raw_job_ask(job, p, (enum raw_stage)stage);
		if (raw_job_hear(job, p, (enum raw_stage)stage) < 0)
			break;
	}
	return stage;
}
