/* SPDX-License-Identifier: Apache-2.0 */
/* What a store puts back at start, what invariants are checked against, and a digest of everything that messages may change. */
#include <string.h>

#include "proto/assert.h"
#include "proto/text.h"
#include "server/core/state.h"

int zd_core_job_view(const struct zd_core *core, const char *job, struct zd_job_view *v)
{
	const struct zd_job *j = zd_job_find(core, job);

	if (!j)
		return 0;
	memset(v, 0, sizeof *v);
	v->promise = j->promise;
	v->state = (enum zd_round_state)j->state;
	v->decided = j->decided;
	v->step = j->step;
	v->timeline = j->timeline;
	v->has_record = j->state == ZD_ROUND_WRITING || j->state == ZD_ROUND_PREPARED;
	v->has_decision = j->has_decision;
	if (v->has_record)
		v->record = j->record;
	v->decision = j->decision;
	v->due = j->due;
	v->owned = j->owned;
	v->trainable = j->trainable;
	v->bytes = j->bytes;
	return 1;
}

/* ---------------------------------------------------------------- digest: FNV-1a over words, in a fixed order of fields */

static uint64_t word(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x100000001b3u;
	return h ^ h >> 29;
}

static uint64_t bits(uint64_t h, double x)
{
	uint64_t w;

	memcpy(&w, &x, sizeof w);
	return word(h, w);
}

static uint64_t ballot(uint64_t h, struct zd_ballot b)
{
	return word(word(h, b.epoch), b.attempt);
}

static uint64_t hyper(uint64_t h, const struct zd_hyper *p)
{
	h = bits(bits(bits(bits(h, p->lr), p->weight_decay), p->beta1), p->beta2);
	return bits(bits(bits(bits(h, p->eps), p->max_norm), p->loss_scale), p->weight);
}

static uint64_t record(uint64_t h, const struct zd_record *r)
{
	h = hyper(ballot(word(h, r->round), r->ballot), &r->hyper);
	h = word(word(word(h, r->world), r->micro_batches), r->nonfinite);
	for (int i = 0; i < ZD_NORMACC_WORDS; i++)
		h = word(h, r->norm.word[i]);
	return word(word(word(h, r->bad_unit), r->bad_rank), r->bad_element);
}

static uint64_t workers(uint64_t h, const struct zd_job *j)
{
	for (uint32_t r = 0; r < j->world; r++) {
		const struct zd_worker *w = &j->worker[r];

		h = word(word(h, w->known), w->joined);
		if (w->known)
			h = word(word(h, w->process), w->link);
		h = word(h, w->committed);
		if (w->committed)
			h = hyper(h, &w->hyper);
		for (uint32_t u = 0; u < j->spec.unit_count; u++)
			h = word(h, j->pos[(size_t)r * j->spec.unit_count + u]);
	}
	return h;
}

uint64_t zd_core_digest(const struct zd_core *core, const char *job)
{
	const struct zd_job *j = zd_job_find(core, job);
	uint64_t h = 0xcbf29ce484222325u;

	if (!j)
		return 0;
	h = word(word(word(h, j->uuid_hi), j->uuid_lo), j->timeline);
	h = word(word(word(ballot(h, j->promise), j->launch), j->world), j->ended);
	h = word(word(word(word(h, j->state), j->sealed), j->decided), j->step);
	h = word(word(word(h, j->micro), j->commits), j->left);
	if (j->state == ZD_ROUND_WRITING || j->state == ZD_ROUND_PREPARED)
		h = record(h, &j->record);
	if (j->has_decision) {
		h = ballot(word(word(h, j->decision.round), j->decision.applied), j->decision.ballot);
		h = word(bits(bits(h, j->decision.scale), j->decision.norm), j->decision.step);
	}
	h = workers(h, j);
	for (uint32_t e = 0; e < j->extent_count; e++)
		if (j->extents[e].gather == j->gather)
			h = word(word(h, j->extents[e].counted), j->extents[e].mark);
	for (uint32_t g = 0; g < j->grain_count; g++)
		h = word(word(h, j->grains[g].codec), j->grains[g].crc);
	return h ? h : 1;
}

/* ---------------------------------------------------------------- images */

int zd_core_image(const struct zd_core *core, const char *job, struct zd_job_image *image)
{
	const struct zd_job *j = zd_job_find(core, job);

	if (!j || (j->due > 0 && j->due < j->trainable_extents))
		return 0;
	memset(image, 0, sizeof *image);
	image->spec = &j->spec;
	image->lane_index = j->lane_index;
	image->lane_count = j->lane_count;
	image->uuid_hi = j->uuid_hi;
	image->uuid_lo = j->uuid_lo;
	image->timeline = j->timeline;
	image->launch = j->launch;
	image->promise = j->promise;
	image->world = j->world;
	image->sealed = j->sealed;
	image->due = j->due > 0;
	image->has_record = j->state == ZD_ROUND_WRITING || j->state == ZD_ROUND_PREPARED;
	image->has_decision = j->has_decision;
	image->decided = j->decided;
	image->step = j->step;
	if (image->has_record || image->due)
		image->record = j->record;
	image->decision = j->decision;
	image->grad_form = (enum zd_grad_form_core)j->update.form;
	return 1;
}

int zd_core_planes(struct zd_core *core, const char *job, uint32_t unit, struct zd_plane_view *view)
{
	const struct zd_job *j = zd_job_find(core, job);
	const struct zd_unit *u;
	uint32_t area;

	if (!j || unit >= j->spec.unit_count)
		return 0;
	u = &j->units[unit];
	area = j->spec.optimizer != ZD_OPT_NONE ? 0 : (j->state >= ZD_ROUND_COLLECTING ? j->decided + 1 : j->decided) & 1;
	*view = (struct zd_plane_view){.count = u->piece.count, .hi = u->hi, .lo = u->lo, .m = u->m, .v = u->v, .grad = u->grad[area]};
	return 1;
}

/* The prepared record is of the promise: its ranks have counted everything. */
static void fill_positions(struct zd_job *j)
{
	for (uint32_t r = 0; r < j->record.world; r++)
		for (uint32_t u = 0; u < j->spec.unit_count; u++)
			if (!j->spec.units[u].frozen)
				j->pos[(size_t)r * j->spec.unit_count + u] = (uint64_t)j->record.micro_batches * j->units[u].extents;
}

static void restore_round(struct zd_job *j, const struct zd_job_image *image)
{
	j->update.form = (uint8_t)image->grad_form;
	if (!image->sealed)
		return;
	for (uint32_t e = 0; e < j->extent_count; e++)
		if (!j->spec.units[j->extents[e].unit].frozen)
			j->extents[e].step = image->step - image->due;
	j->state = ZD_ROUND_EMPTY;
	if (image->spec->optimizer == ZD_OPT_NONE && image->has_decision && !image->has_record) { /* the sum that comes back is the decided one */
		j->grad_round = image->decided;
		j->grad_form[image->decided & 1] = (uint8_t)image->grad_form;
	}
	if (image->due) {
		j->record = image->record;
		j->update.hyper = image->record.hyper;
		j->update.scale = image->decision.scale;
		j->update.step = image->decision.step;
		j->due = j->trainable_extents;
	}
	if (image->has_record) {
		j->record = image->record;
		j->state = ZD_ROUND_PREPARED;
		j->left = 0;
		if (zd_ballot_cmp(image->record.ballot, image->promise) == 0)
			fill_positions(j);
	}
}

int zd_core_restore(struct zd_core *core, const struct zd_job_image *image, char *text, size_t text_size)
{
	struct zd_job *j;

	ZD_TRY(zd_spec_check(image->spec, text, text_size));
	if (image->lane_count < 1 || image->lane_count > ZD_LANES_MAX || image->lane_index >= image->lane_count || image->world > ZD_WORLD_MAX ||
	    (image->has_record && (image->due || !image->sealed || image->record.round != image->decided + 1)) ||
	    (image->due && (!image->sealed || !image->has_decision || image->step == 0 || image->spec->optimizer == ZD_OPT_NONE)) ||
	    zd_job_find(core, image->spec->name))
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "stored state of job %s contradicts itself, or is there twice",
				    image->spec->name);
	ZD_TRY(zd_job_create(core, image->spec, image->lane_index, image->lane_count, &j, text, text_size));
	j->uuid_hi = image->uuid_hi;
	j->uuid_lo = image->uuid_lo;
	j->timeline = image->timeline;
	j->launch = image->launch;
	j->promise = image->promise;
	j->world = image->world;
	j->sealed = image->sealed;
	j->has_decision = image->has_decision;
	j->decision = image->decision;
	j->decided = image->decided;
	j->step = image->step;
	restore_round(j, image);
	return 0;
}
