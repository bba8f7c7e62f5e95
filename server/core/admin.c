/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS, SHOW and DROP: for people and their tools. */
#include "proto/assert.h"
#include "server/core/state.h"

static void job_status(const struct zd_job *j, Zd__Pb__JobStatus *s)
{
	zd__pb__job_status__init(s);
	s->name = (char *)j->spec.name;
	s->lane_index = j->lane_index;
	s->lane_count = j->lane_count;
	s->params = j->owned;
	s->trainable = j->trainable;
	s->bytes = j->bytes;
	s->decided = j->decided;
	s->step = j->step;
	s->state = j->state;
	s->sealed = j->sealed;
	s->epoch = j->promise.epoch;
	s->attempt = j->promise.attempt;
	s->world = j->world;
	s->joined = j->joined;
	s->pushed_bytes = j->pushed_bytes;
	s->fetched_bytes = j->fetched_bytes;
	s->norm = j->has_decision ? j->decision.norm : 0;
	s->skipped = j->skipped;
	s->timeline = j->timeline;
}

static uint32_t connections(const struct zd_core *core)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < core->conn_count; i++)
		n += core->conn[i].used && !core->conn[i].closing;
	return n;
}

void zd_admin_status(struct zd_core *core, struct zd_conn *c)
{
	Zd__Pb__StatusReply m = ZD__PB__STATUS_REPLY__INIT;
	Zd__Pb__JobStatus jobs[ZD_JOBS_MAX], *ptrs[ZD_JOBS_MAX];

	for (uint32_t i = 0; i < core->config.max_jobs; i++) {
		if (!core->job[i].used)
			continue;
		job_status(&core->job[i], &jobs[m.n_jobs]);
		ptrs[m.n_jobs] = &jobs[m.n_jobs];
		m.n_jobs++;
	}
	m.jobs = ptrs;
	m.daemon = (char *)core->config.daemon;
	m.kernels = (char *)core->config.kernels;
	m.lane = core->config.lane;
	m.slab_bytes = core->slab.size;
	m.slab_used = core->slab.used;
	m.connections = connections(core);
	m.uptime_ms = (core->now - core->config.now) / 1000000u;
	m.draining = core->draining;
	m.frames_in = core->frames_in;
	m.frames_out = core->frames_out;
	m.bytes_in = core->bytes_in;
	m.bytes_out = core->bytes_out;
	m.errors = core->errors;
	zd_emit(core, c, ZD_MSG_STATUS_REPLY, c->reader.header.stream, &m.base);
}

static struct zd_job *named(struct zd_core *core, struct zd_conn *c, const char *name)
{
	struct zd_job *j = zd_job_find(core, name);

	if (!j)
		zd_emit_error(core, c, c->reader.header.stream, ZD_ERR_NO_JOB, ZD_ABOUT_NOTHING, "no job %s on lane %u of daemon %s", name,
			      core->config.lane, core->config.daemon);
	return j;
}

static void worker(const struct zd_core *core, const struct zd_job *j, uint32_t rank, Zd__Pb__Worker *m)
{
	const struct zd_worker *w = &j->worker[rank];

	zd__pb__worker__init(m);
	m->rank = rank;
	m->joined = w->joined;
	m->committed = w->committed;
	m->has_heard_ms = w->known;
	m->heard_ms = w->known ? (core->now - w->seen) / 1000000u : 0;
}

void zd_admin_show(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Show *m)
{
	Zd__Pb__ShowReply reply = ZD__PB__SHOW_REPLY__INIT;
	Zd__Pb__JobSpec spec;
	Zd__Pb__JobStatus status;
	Zd__Pb__Worker workers[ZD_WORLD_MAX], *ptrs[ZD_WORLD_MAX];
	struct zd_job *j = named(core, c, m->name);

	if (!j)
		return;
	zd_spec_to_pb(&j->spec, &spec, core->pb_units, core->pb_ptrs);
	job_status(j, &status);
	reply.spec = &spec;
	reply.status = &status;
	reply.workers = ptrs;
	for (uint32_t r = 0; r < j->world; r++) {
		worker(core, j, r, &workers[r]);
		ptrs[r] = &workers[r];
	}
	reply.n_workers = j->world;
	zd_emit(core, c, ZD_MSG_SHOW_REPLY, c->reader.header.stream, &reply.base);
}

void zd_admin_drop(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Drop *m)
{
	struct zd_job *j = named(core, c, m->name);

	if (!j)
		return;
	if (c->job == j->slot) {
		zd_emit_error(core, c, c->reader.header.stream, ZD_ERR_OUT_OF_ORDER, ZD_ABOUT_NOTHING,
			      "DROP of job %s on a connection that has opened it: use another connection", m->name);
		return;
	}
	c->hold = ZD_HOLD_STORE; /* answered when the memory is free */
	c->wait = ZD_WAIT_DROP;
	c->wait_stream = c->reader.header.stream;
	c->wait_round = j->slot;
	zd_job_drop(core, j);
}
