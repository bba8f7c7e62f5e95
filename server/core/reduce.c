/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contributions: contribution k = micro * world + rank of an extent is counted once, and added in the order of k.
 *
 *   raw          at most two contributions in bf16: each is received into its own half of the extent's gradient area and stays there;
 *                the kernel that reads it first also computes its checksum (docs/decisions/0009), and it is counted after that.  For the
 *                last one that kernel is the norm, which sums the squares of all; Adam adds them later.
 *   accumulated  received into a window of the worker's own; added at once if it is next (which it always is for the smallest
 *                unfinished micro-batch and rank: nobody waits in a circle), else staged there until it is.
 *
 * A rank sends the extents of a unit in ascending order, micro-batch after micro-batch: what it has counted is one number.  And it sends
 * all units of a micro-batch before the next one: else its windows could be full of contributions that wait for ranks which wait for it.
 */
#include <string.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/core/state.h"

static uint64_t *position(const struct zd_job *j, uint32_t rank, uint32_t unit)
{
	return &j->pos[(size_t)rank * j->spec.unit_count + unit];
}

/* Where the sum of the open round goes; see job.c. */
static uint32_t open_area(const struct zd_job *j)
{
	return j->spec.optimizer == ZD_OPT_NONE ? (j->decided + 1) & 1 : 0;
}

static void skip(struct zd_conn *c, uint32_t unit, int answer)
{
	c->take.kind = ZD_TAKE_SKIP;
	c->take.answer = answer != 0;
	c->take.unit = unit;
	c->take.stream = c->reader.header.stream;
	zd_reader_skip(&c->reader);
}

/* The unit, range and format must be those of one extent of this lane: its index, or ZD_NONE after an error. */
static uint32_t target(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const Zd__Pb__Push *m)
{
	uint64_t stream = c->reader.header.stream, at;
	struct zd_about about = {m->unit, m->rank};
	const struct zd_unit *u;
	uint32_t e;

	if (m->unit >= j->spec.unit_count) {
		zd_emit_error(core, c, stream, ZD_ERR_NO_UNIT, (struct zd_about){ZD_NONE, m->rank}, "PUSH to unit %u, job %s has %u", m->unit,
			      j->spec.name, j->spec.unit_count);
		return ZD_NONE;
	}
	if (j->spec.units[m->unit].frozen) {
		zd_emit_error(core, c, stream, ZD_ERR_FROZEN, about, "PUSH to unit %s, which is frozen: it takes no gradient",
			      j->spec.units[m->unit].name);
		return ZD_NONE;
	}
	u = &j->units[m->unit];
	at = m->first - u->piece.first;
	e = u->extent + (uint32_t)(at / j->spec.extent_elems);
	if (m->first < u->piece.first || at >= u->piece.count || at % j->spec.extent_elems || m->count != zd_extent_count(j, e)) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_RANGE, about,
			      "PUSH to unit %s [%llu, +%u): this lane owns [%llu, +%llu) in extents of %u", j->spec.units[m->unit].name,
			      (unsigned long long)m->first, m->count, (unsigned long long)u->piece.first, (unsigned long long)u->piece.count,
			      j->spec.extent_elems);
		return ZD_NONE;
	}
	if (m->codec != j->spec.grad_codec) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_FIELD, about, "PUSH in codec %u, the job takes codec %d", m->codec, j->spec.grad_codec);
		return ZD_NONE;
	}
	return e;
}

/* A duplicate used a credit, but no window. */
static void give_credit_back(struct zd_job *j, uint32_t rank)
{
	if (!j->raw)
		j->worker[rank].freed++;
}

/* Whether the open round takes it; everything else is answered here. */
static int round_takes(struct zd_core *core, struct zd_conn *c, struct zd_job *j, const Zd__Pb__Push *m)
{
	uint64_t stream = c->reader.header.stream;

	if (m->round <= j->decided) {
		zd_emit_applied(core, c, stream);
		return 0;
	}
	if (m->round > j->decided + 1) {
		zd_text_fail(0, core->text, sizeof core->text, "PUSH for round %llu, this lane expects round %llu: resolve first",
			     (unsigned long long)m->round, (unsigned long long)(j->decided + 1));
		zd_emit_aborted(core, c, stream, j->promise, ZD_ERR_WRONG_ROUND, NULL, 0, core->text);
		return 0;
	}
	if (j->state == ZD_ROUND_WRITING || j->state == ZD_ROUND_PREPARED) {
		if (zd_ballot_cmp(j->record.ballot, j->promise) == 0) {
			give_credit_back(j, m->rank);
			skip(c, m->unit, m->unit < j->spec.unit_count);
			return 0;
		}
		zd_text_fail(0, core->text, sizeof core->text,
			     "round %llu is prepared by ballot (%llu, %u): finish or discard that record before pushing", (unsigned long long)m->round,
			     (unsigned long long)j->record.ballot.epoch, j->record.ballot.attempt);
		zd_emit_aborted(core, c, stream, j->promise, ZD_ERR_WRONG_ROUND, NULL, 0, core->text);
		return 0;
	}
	if (!j->sealed) {
		zd_emit_error(core, c, stream, ZD_ERR_NOT_SEALED, (struct zd_about){m->unit, m->rank},
			      "PUSH before the initial weights are complete: LOAD and SEAL first");
		return 0;
	}
	if (core->draining && j->state == ZD_ROUND_EMPTY) {
		zd_emit_error(core, c, stream, ZD_ERR_DRAINING, (struct zd_about){m->unit, m->rank},
			      "round %llu is not begun: daemon %s is shutting down", (unsigned long long)m->round, core->config.daemon);
		return 0;
	}
	return 1;
}

/* A unit of which the rank's micro-batch is not complete, though it goes on with the next one. */
static void before_its_time(struct zd_core *core, struct zd_conn *c, const struct zd_job *j, const Zd__Pb__Push *m)
{
	uint32_t micro = j->worker[m->rank].micro, u = 0;
	uint64_t have;

	while (j->spec.units[u].frozen || *position(j, m->rank, u) >= (micro + 1ull) * j->units[u].extents)
		u++;
	have = *position(j, m->rank, u) - (uint64_t)micro * j->units[u].extents;
	zd_emit_error(core, c, c->reader.header.stream, ZD_ERR_OUT_OF_ORDER, (struct zd_about){m->unit, m->rank},
		      "PUSH of micro-batch %u of unit %s while %llu of %u extents of unit %s are there of micro-batch %u: push all units of a "
		      "micro-batch before the next one",
		      m->micro, j->spec.units[m->unit].name, (unsigned long long)have, j->units[u].extents, j->spec.units[u].name, micro);
}

/* The contribution must be the next of its rank and unit: 1, else 0 after an answer. */
static int is_next(struct zd_core *core, struct zd_conn *c, struct zd_job *j, const Zd__Pb__Push *m, uint32_t extent)
{
	const struct zd_unit *u = &j->units[m->unit];
	uint64_t at = (uint64_t)m->micro * u->extents + (extent - u->extent), want = *position(j, m->rank, m->unit);

	if (at < want) {
		give_credit_back(j, m->rank);
		skip(c, m->unit, 1);
		return 0;
	}
	if (at > want) {
		zd_emit_error(core, c, c->reader.header.stream, ZD_ERR_OUT_OF_ORDER, (struct zd_about){m->unit, m->rank},
			      "PUSH of unit %s micro-batch %u extent %u, expected micro-batch %llu extent %llu: push in order, without gaps",
			      j->spec.units[m->unit].name, m->micro, extent - u->extent, (unsigned long long)(want / u->extents),
			      (unsigned long long)(want % u->extents));
		return 0;
	}
	if (m->micro > j->worker[m->rank].micro) {
		before_its_time(core, c, j, m);
		return 0;
	}
	return 1;
}

void zd_reduce_push(struct zd_core *core, struct zd_conn *c, const Zd__Pb__Push *m)
{
	struct zd_job *j = zd_job_of(core, c);
	uint64_t stream = c->reader.header.stream;
	uint32_t extent;

	if (!zd_round_serves(core, c, stream, (struct zd_ballot){m->ballot->epoch, m->ballot->attempt}, m->rank) || !round_takes(core, c, j, m))
		return;
	extent = target(core, c, j, m);
	if (extent == ZD_NONE)
		return;
	if (m->micro_batches < 1 || m->micro_batches > ZD_MICRO_MAX || m->micro >= m->micro_batches) {
		zd_emit_error(core, c, stream, ZD_ERR_BAD_FIELD, (struct zd_about){m->unit, m->rank},
			      "PUSH of micro-batch %u of %u, expected an index below a count of 1 to %u", m->micro, m->micro_batches, ZD_MICRO_MAX);
		return;
	}
	if (!zd_round_open(core, j, m->micro_batches, m->rank) || !is_next(core, c, j, m, extent))
		return;
	c->take.unit = m->unit;
	c->take.extent = extent;
	c->take.k = m->micro * j->world + m->rank;
	c->take.stream = stream;
	if (j->raw) {
		c->take.kind = ZD_TAKE_SLOT;
		zd_reduce_place(core, c);
		return;
	}
	if (j->worker[m->rank].out >= j->credit) {
		zd_emit_error(core, c, stream, ZD_ERR_NO_CREDIT, (struct zd_about){m->unit, m->rank},
			      "PUSH with all %u windows of rank %u in use: wait for PUSHED to give one back", j->credit, m->rank);
		return;
	}
	c->take.kind = ZD_TAKE_WINDOW;
	c->take.window = zd_window_take(core, j);
	j->worker[m->rank].out++;
	zd_reader_payload(&c->reader, zd_window_memory(core, c->take.window));
}

/* The half of an extent's gradient area that a raw contribution has for itself. */
static uint8_t *raw_place(const struct zd_job *j, uint32_t extent, uint32_t k)
{
	return zd_extent_grad(j, extent, open_area(j)) + (size_t)k * 2 * zd_extent_count(j, extent);
}

/* I12: nothing lands where the last round's Adam is due, or in memory that is still being read. */
void zd_reduce_place(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_taking *t = &c->take;
	struct zd_extent *x = &j->extents[t->extent];
	int held = c->hold == ZD_HOLD_PLACE;
	uint32_t area = open_area(j);

	ZD_ASSERT(t->kind == ZD_TAKE_SLOT && t->k < 2);
	c->hold = ZD_HOLD_PLACE;
	if (zd_extent_update(core, j, t->extent, c, 0) < 0)
		return;
	if (zd_extent_due(j, t->extent)) { /* under way */
		zd_core_queue(core, c);
		return;
	}
	if (j->spec.optimizer == ZD_OPT_NONE && x->lends[area] > 0) {
		zd_extent_want(core, j, t->extent, area);
		return;
	}
	c->hold = ZD_HOLD_NO;
	zd_reader_payload_unchecked(&c->reader, raw_place(j, t->extent, t->k));
	if (held)
		zd_conn_run(core, c);
}

/* ---- raw: what reads a contribution first also computes its checksum; it counts when both are known */

static struct zd_kernel_call *norm_raw(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *open)
{
	struct zd_kernel_call *call = zd_emit_kernel(core, open);

	call->op = j->total == 2 ? ZD_KERNEL_NORM_2 : ZD_KERNEL_NORM_1;
	call->codec = ZD_CODEC_BF16;
	call->n = zd_extent_count(j, open->extent);
	call->a = raw_place(j, open->extent, 0);
	call->b = j->total == 2 ? raw_place(j, open->extent, 1) : NULL;
	call->want_sums = 1;
	return call;
}

static int count(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_taking *t = &c->take;
	struct zd_extent *x = &j->extents[t->extent];
	struct zd_worker *w = &j->worker[c->rank];

	zd_extent_touch(j, x);
	x->counted++;
	x->mark = (x->mark ^ ((uint64_t)t->k << 32 | c->reader.header.payload_crc)) * 0x9e3779b97f4a7c15u;
	j->pushed_bytes += c->reader.header.payload_len;
	if (++*position(j, c->rank, t->unit) % j->units[t->unit].extents > 0)
		return 0;
	if (++w->complete == j->trainable_units) {
		w->micro++;
		w->complete = 0;
	}
	return 1; /* the unit is complete */
}

static void raw_counted(struct zd_core *core, struct zd_conn *c)
{
	struct zd_extent *x = &zd_job_of(core, c)->extents[c->take.extent];
	int complete = count(core, c);

	ZD_ASSERT(!(x->have >> c->take.k & 1));
	x->have |= (uint8_t)(1u << c->take.k);
	if (complete)
		zd_emit_pushed(core, c, c->take.stream, c->take.unit);
}

static void raw_received(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_extent *x = &j->extents[c->take.extent];
	struct zd_kernel_open open = {.kind = ZD_K_RAW, .job = j->slot, .gather = j->gather, .extent = c->take.extent, .conn = {c->slot, c->gen},
				      .window = ZD_NONE16};
	struct zd_kernel_call *call;

	zd_extent_touch(j, x);
	open.last = x->counted + 1 == j->total;
	if (!open.last && !c->check_payload) {
		raw_counted(core, c);
		return;
	}
	if (open.last) {
		call = norm_raw(core, j, &open);
	} else {
		call = zd_emit_kernel(core, &open);
		call->op = ZD_KERNEL_CHECK;
		call->codec = ZD_CODEC_BF16;
		call->n = zd_extent_count(j, open.extent);
		call->a = raw_place(j, open.extent, c->take.k);
	}
	call->checked = c->check_payload ? raw_place(j, open.extent, c->take.k) : NULL;
	c->hold = ZD_HOLD_KERNEL;
}

static void window_received(struct zd_core *core, struct zd_conn *c)
{
	struct zd_job *j = zd_job_of(core, c);
	struct zd_taking *t = &c->take;
	struct zd_window *w = &core->window[t->window];
	int complete = count(core, c);

	w->state = ZD_WINDOW_STAGED;
	w->k = t->k;
	w->stream = t->stream;
	w->report = (uint8_t)complete;
	w->next = j->extents[t->extent].staged;
	j->extents[t->extent].staged = t->window;
	zd_reduce_advance(core, j, t->extent);
	if (complete && w->state == ZD_WINDOW_STAGED) {
		w->report = 0;
		zd_emit_pushed(core, c, t->stream, t->unit);
	}
	t->window = ZD_NONE16;
}

/* The payload of a PUSH is complete. */
void zd_reduce_received(struct zd_core *core, struct zd_conn *c)
{
	if (c->take.kind == ZD_TAKE_SLOT)
		raw_received(core, c);
	else
		window_received(core, c);
}

static uint16_t take_staged(struct zd_core *core, struct zd_extent *x, uint32_t k)
{
	uint16_t *at = &x->staged, w;

	while (*at != ZD_NONE16 && core->window[*at].k != k)
		at = &core->window[*at].next;
	w = *at;
	if (w != ZD_NONE16)
		*at = core->window[w].next;
	return w;
}

/* Adds what is next in order, as far as it is here. */
void zd_reduce_advance(struct zd_core *core, struct zd_job *j, uint32_t extent)
{
	struct zd_extent *x = &j->extents[extent];
	uint32_t area = open_area(j);
	uint16_t w;

	if (x->gather != j->gather || x->staged == ZD_NONE16 || zd_extent_update(core, j, extent, NULL, 0) < 0)
		return;
	if (j->spec.optimizer == ZD_OPT_NONE && x->lends[area] > 0) {
		zd_extent_want(core, j, extent, area);
		return;
	}
	while ((w = take_staged(core, x, x->reduced)) != ZD_NONE16) {
		struct zd_window *win = &core->window[w];
		struct zd_kernel_open open = {
			.kind = ZD_K_ACC, .job = j->slot, .gather = j->gather, .extent = extent, .window = w, .k = win->k, .stream = win->stream,
			.report = win->report, .last = win->k == j->total - 1,
		};
		struct zd_kernel_call *call = zd_emit_kernel(core, &open);

		call->op = win->k == 0 ? ZD_KERNEL_ACC_SET : ZD_KERNEL_ACC_ADD;
		call->codec = (uint8_t)j->spec.grad_codec;
		call->n = zd_extent_count(j, extent);
		call->dst = zd_extent_grad(j, extent, area);
		call->a = zd_window_memory(core, w);
		call->want_sums = open.last;
		win->state = ZD_WINDOW_KERNEL;
		x->reduced++;
	}
}

static int is_nonfinite(uint16_t bf16)
{
	return (bf16 & 0x7f80) == 0x7f80;
}

/* Which rank made an element of a raw extent non-finite: whose value is not finite; of two finite ones the second, which overflowed. */
static uint32_t raw_culprit(const struct zd_job *j, uint32_t extent, uint64_t element)
{
	const uint16_t *a = (const uint16_t *)(const void *)zd_extent_grad(j, extent, open_area(j));

	return j->total == 2 && !is_nonfinite(a[element]) ? 1 % j->world : 0;
}

static void note_nonfinite(struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev)
{
	struct zd_extent *x = &j->extents[k->extent];
	uint64_t first = ev->u.kernel.first_nonfinite;

	x->nonfinite = ev->u.kernel.nonfinite;
	if (x->nonfinite == 0 || first >= x->bad_element)
		return;
	x->bad_element = (uint32_t)first;
	x->bad_rank = k->kind != ZD_K_ACC ? raw_culprit(j, k->extent, first) : k->k % j->world;
}

static void complete(struct zd_core *core, struct zd_job *j, uint32_t extent, const double *sums)
{
	struct zd_extent *x = &j->extents[extent];
	uint32_t blocks = (zd_extent_count(j, extent) + ZD_BLOCK_ELEMS - 1) / ZD_BLOCK_ELEMS;

	for (uint32_t i = 0; i < blocks; i++)
		if (sums[i] < 0x1p300) /* +infinity where an element is not finite; the round is skipped then */
			zd_normacc_add(&j->norm, sums[i]);
	if (x->nonfinite > 0) {
		uint64_t element = zd_extent_first(j, extent) + x->bad_element;

		if (j->nonfinite == 0 || x->unit < j->bad_unit || (x->unit == j->bad_unit && element < j->bad_element)) {
			j->bad_unit = x->unit;
			j->bad_element = element;
			j->bad_rank = x->bad_rank;
		}
		j->nonfinite += x->nonfinite;
	}
	ZD_ASSERT(j->left > 0);
	j->left--;
	zd_round_try_prepare(core, j);
}

void zd_reduce_done(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev)
{
	int current = j->used && k->gather == j->gather;

	if (k->window != ZD_NONE16)
		zd_window_back(core, k->window);
	if (!current)
		return;
	note_nonfinite(j, k, ev);
	if (k->window != ZD_NONE16) {
		struct zd_worker *w = &j->worker[k->k % j->world];
		struct zd_conn *c = zd_core_conn(core, w->conn);
		uint32_t half = j->credit / 2 > 0 ? j->credit / 2 : 1;

		w->out--;
		w->freed++;
		if (c && c->joined && (k->report || w->freed - w->told >= half))
			zd_emit_pushed(core, c, k->stream, j->extents[k->extent].unit);
	}
	if (k->last)
		complete(core, j, k->extent, ev->u.kernel.block_sums);
}

void zd_reduce_read(struct zd_core *core, struct zd_job *j, const struct zd_kernel_open *k, const struct zd_event *ev)
{
	struct zd_conn *c = zd_core_conn(core, k->conn);
	int wanted; /* else its ballot has ended in that step */

	if (!c || c->closing)
		return;
	ZD_ASSERT(c->hold == ZD_HOLD_KERNEL);
	wanted = c->take.kind == ZD_TAKE_SLOT;
	c->hold = ZD_HOLD_NO;
	c->take.kind = ZD_TAKE_NO;
	if (c->check_payload && ev->u.kernel.crc != c->reader.header.payload_crc) {
		zd_conn_fail(core, c, -ZD_ERR_BAD_CHECKSUM);
		return;
	}
	if (wanted) {
		ZD_ASSERT(j->used && k->gather == j->gather);
		raw_counted(core, c);
		if (k->last) {
			note_nonfinite(j, k, ev);
			complete(core, j, k->extent, ev->u.kernel.block_sums);
		} else if (j->extents[k->extent].counted == j->total) { /* both came in one step */
			norm_raw(core, j, &(struct zd_kernel_open){.kind = ZD_K_NORM, .job = j->slot, .gather = j->gather, .extent = k->extent,
								   .window = ZD_NONE16, .last = 1});
		}
	}
	zd_conn_run(core, c);
}

void zd_reduce_drop_staged(struct zd_core *core, struct zd_job *j)
{
	for (uint32_t i = 0; i < core->config.windows; i++)
		if (core->window[i].state == ZD_WINDOW_STAGED && core->window[i].job == j->slot)
			zd_window_back(core, (uint16_t)i);
}
