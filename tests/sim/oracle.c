/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What training must give.  It knows which computation of which rank went into which ballot (from the frames that sessions send), and computes from that, in
 * plain loops over whole units: the sum in the order (micro-batch, rank), the norm, the decision, the next version.  Only Adam is the scalar
 * kernel, over whole units.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

/* ---------------------------------------------------------------- values */

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	return bits;
}

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, 4);
	return x;
}

static int is_finite(float x)
{
	return (bits_of(x) & 0x7f800000) != 0x7f800000;
}

/* Finite numbers of both signs between 2^-9 and 2, with a few zeros. */
static uint32_t value_bits(uint64_t h)
{
	if ((h >> 40 & 63) == 0)
		return (uint32_t)(h >> 63) << 31;
	return (uint32_t)(h >> 63) << 31 | (118 + (uint32_t)(h >> 48 & 7) + (uint32_t)(h >> 52 & 1)) << 23 | (uint32_t)(h & 0x7fffff);
}

struct zd_hyper sim_hyper(const struct sim_world *w, uint64_t epoch, uint64_t round)
{
	uint64_t h = sim_mix(w->config.seed ^ epoch * 77777);

	return (struct zd_hyper){
		.lr = 1e-3 * (1 + (double)(h & 7)) / (1 + (double)round),
		.weight_decay = h >> 3 & 1 ? 0.1 : 0,
		.beta1 = 0.9,
		.beta2 = h >> 4 & 1 ? 0.95 : 0.999,
		.eps = 1e-8,
		.max_norm = h >> 5 & 1 ? 0.5 : 0,
		.loss_scale = h >> 6 & 1 ? 1024 : 1,
		.weight = h >> 7 & 1 ? 12345 : 0,
	};
}

/* A computation may have a value that is not finite, in one place. */
static int bad_place(const struct sim_world *w, uint64_t salt, uint32_t micro_batches, uint32_t *micro, uint32_t *unit, uint64_t *element)
{
	uint64_t h = sim_mix(salt ^ 0xbad);

	if (h % 100 >= w->config.bad_percent)
		return 0;
	*micro = (uint32_t)(sim_mix(h) % micro_batches);
	*unit = (uint32_t)(sim_mix(h + 1) % w->config.spec.unit_count);
	*element = sim_mix(h + 2) % w->config.units[*unit].numel;
	return 1;
}

void sim_gradient(const struct sim_world *w, uint64_t salt, uint64_t round, uint32_t rank, uint32_t size, uint32_t micro, uint32_t unit, void *out)
{
	uint64_t n = w->config.units[unit].numel, element;
	uint64_t base = sim_mix(salt + sim_mix(round * 64 + rank) + sim_mix(size * 4096u + micro * 64 + unit));
	uint32_t bad_micro, bad_unit;
	int fp32 = w->config.spec.grad_codec == ZD_CODEC_FP32;
	uint16_t *out16 = out;
	uint32_t *out32 = out;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t h = (base + i) * 0x9e3779b97f4a7c15u;

		h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
		if (fp32)
			out32[i] = value_bits(h);
		else
			out16[i] = (uint16_t)(value_bits(h) >> 16);
	}
	for (uint32_t m = 1; m <= 3; m++) { /* the worker's own number of micro-batches is not known here: each may have its place */
		if (!bad_place(w, salt + m, m, &bad_micro, &bad_unit, &element) || bad_micro != micro || bad_unit != unit)
			continue;
		if (fp32)
			out32[element] = 0x7f800000;
		else
			out16[element] = 0x7fc0;
	}
}

/* ---------------------------------------------------------------- making and ending */

void sim_oracle_init(struct sim_world *w)
{
	struct sim_oracle *o = &w->oracle;
	uint64_t load[SIM_LANES_MAX];
	int bf16 = w->config.load_codec != ZD_CODEC_FP32;

	zd_layout_all(&w->config.spec, w->lane_count, o->pieces, load);
	for (uint32_t u = 0; u < w->config.spec.unit_count; u++) {
		uint64_t n = w->config.units[u].numel;

		o->initial[u] = sim_alloc(4 * n);
		o->hi[u] = sim_alloc(2 * n);
		o->lo[u] = sim_alloc(2 * n);
		o->m[u] = sim_alloc(4 * n);
		o->v[u] = sim_alloc(4 * n);
		for (uint64_t i = 0; i < n; i++) {
			uint32_t bits = value_bits(sim_mix(w->config.seed + (uint64_t)u * 1000003 + i));

			if (bf16)
				bits &= 0xffff0000;
			o->initial[u][i] = float_of(bits);
			o->hi[u][i] = (uint16_t)((bits + 0x8000) >> 16);
			if (!w->config.units[u].frozen) /* a frozen unit keeps the high half only */
				o->lo[u][i] = (uint16_t)(bits - ((uint32_t)o->hi[u][i] << 16));
		}
		o->weights[u] = sim_alloc(sizeof(uint16_t *));
		o->weights[u][0] = sim_alloc(2 * n);
		memcpy(o->weights[u][0], o->hi[u], 2 * n);
	}
	o->version_cap = 1;
	o->decision_cap = 64;
	o->decisions = sim_alloc(o->decision_cap * sizeof(*o->decisions));
}

static void free_sums(struct sim_candidate *c)
{
	for (uint32_t u = 0; u < SIM_UNITS_MAX; u++) {
		free(c->sums[u]);
		c->sums[u] = NULL;
	}
}

void sim_oracle_fini(struct sim_world *w)
{
	struct sim_oracle *o = &w->oracle;

	for (uint32_t i = 0; i < o->candidate_count; i++) {
		free_sums(o->candidates[i]);
		free(o->candidates[i]->salts);
		free(o->candidates[i]);
	}
	free(o->candidates);
	for (uint32_t u = 0; u < w->config.spec.unit_count; u++) {
		for (uint64_t v = 0; v <= o->version; v++)
			free(o->weights[u][v]);
		free(o->weights[u]);
		free(o->initial[u]);
		free(o->hi[u]);
		free(o->lo[u]);
		free(o->m[u]);
		free(o->v[u]);
	}
	free(o->decisions);
}

/* ---------------------------------------------------------------- contributions */

struct sim_candidate *sim_candidate(struct sim_world *w, uint64_t round, struct zd_ballot ballot)
{
	struct sim_oracle *o = &w->oracle;
	const struct sim_launch *launch = sim_launch_of(w, ballot.epoch);
	struct sim_candidate *c;

	for (uint32_t i = o->candidate_count; i-- > 0;)
		if (o->candidates[i]->round == round && zd_ballot_cmp(o->candidates[i]->ballot, ballot) == 0)
			return o->candidates[i];
	c = sim_alloc(sizeof(*c));
	c->round = round;
	c->ballot = ballot;
	c->salts = sim_alloc((size_t)launch->size * launch->micro * w->config.spec.unit_count * sizeof(*c->salts));
	o->candidates = sim_grow(o->candidates, o->candidate_count, &o->candidate_cap, sizeof(struct sim_candidate *));
	o->candidates[o->candidate_count++] = c;
	return c;
}

static uint64_t *salt_of(const struct sim_world *w, struct sim_candidate *c, uint32_t rank, uint32_t micro, uint32_t unit)
{
	return &c->salts[((size_t)rank * sim_launch_of(w, c->ballot.epoch)->micro + micro) * w->config.spec.unit_count + unit];
}

/* A session sends (a part of) this push under this ballot. */
void sim_oracle_pushed(struct sim_world *w, struct zd_ballot ballot, uint64_t round, uint32_t rank, const struct sim_request *r)
{
	struct sim_candidate *c = sim_candidate(w, round, ballot);
	uint64_t *salt = salt_of(w, c, rank, r->micro, r->unit);

	if (r->round != round)
		sim_fail(w, "rank %u sends a gradient of round %llu as one of round %llu", rank, (unsigned long long)r->round,
			 (unsigned long long)round);
	else if (*salt && *salt != r->salt)
		sim_fail(w, "rank %u sends two computations of round %llu under one ballot (%llu, %u)", rank, (unsigned long long)round,
			 (unsigned long long)ballot.epoch, ballot.attempt);
	*salt = r->salt;
}

static double block_sum(const float *x, uint64_t n)
{
	double s[16] = {0};

	for (uint64_t i = 0; i < n; i++)
		s[i % 16] += (double)x[i] * (double)x[i];
	for (int half = 8; half > 0; half /= 2)
		for (int j = 0; j < half; j++)
			s[j] += s[j + half];
	return s[0];
}

static float add(float a, float b)
{
	float sum = a + b;

	return sum != sum ? float_of(0x7fc00000) : sum;
}

static float widened(const struct sim_world *w, const void *gradient, uint64_t i)
{
	if (w->config.spec.grad_codec == ZD_CODEC_FP32)
		return ((const float *)gradient)[i];
	return float_of((uint32_t)((const uint16_t *)gradient)[i] << 16);
}

/* The sum of one unit; who made an element not finite first goes into `culprit` (size of it: n; 0: finite, else 1 + rank). */
static void sum_unit(struct sim_world *w, struct sim_candidate *c, uint32_t unit, uint8_t *culprit)
{
	const struct sim_launch *launch = sim_launch_of(w, c->ballot.epoch);
	uint64_t n = w->config.units[unit].numel;
	void *gradient = sim_alloc(4 * n);
	float *sum = c->sums[unit] = sim_alloc(4 * n);

	for (uint32_t m = 0; m < launch->micro; m++) {
		for (uint32_t r = 0; r < launch->size; r++) {
			uint64_t salt = *salt_of(w, c, r, m, unit);

			if (!salt) {
				sim_fail(w, "I6: a record of round %llu, ballot (%llu, %u) has no contribution of rank %u, micro-batch %u, unit %u",
					 (unsigned long long)c->round, (unsigned long long)c->ballot.epoch, c->ballot.attempt, r, m, unit);
				free(gradient);
				return;
			}
			sim_gradient(w, salt, c->round, r, launch->size, m, unit, gradient);
			for (uint64_t i = 0; i < n; i++) {
				float x = widened(w, gradient, i);

				sum[i] = m + r == 0 ? x : add(sum[i], x);
				if (!culprit[i] && !is_finite(sum[i]))
					culprit[i] = (uint8_t)(1 + r);
			}
		}
	}
	free(gradient);
}

/* A lane's part of the record. */
static void share(struct sim_world *w, struct sim_candidate *c, uint32_t unit, uint32_t lane, const uint8_t *culprit)
{
	struct zd_piece p = w->oracle.pieces[unit * w->lane_count + lane];
	const float *sum = c->sums[unit];

	for (uint64_t first = p.first; first < p.first + p.count; first += ZD_BLOCK_ELEMS) {
		uint64_t end = first + ZD_BLOCK_ELEMS < p.first + p.count ? first + ZD_BLOCK_ELEMS : p.first + p.count;
		int bad = 0;

		for (uint64_t i = first; i < end; i++) {
			if (!culprit[i])
				continue;
			bad = 1;
			if (c->nonfinite[lane]++ == 0 || unit < c->bad_unit[lane]) {
				c->bad_unit[lane] = unit;
				c->bad_element[lane] = i;
				c->bad_rank[lane] = culprit[i] - 1u;
			}
		}
		if (!bad)
			zd_normacc_add(&c->norms[lane], block_sum(sum + first, end - first));
	}
}

static void compute_unit(struct sim_world *w, struct sim_candidate *c, uint32_t unit)
{
	uint8_t *culprit;

	if (w->config.units[unit].frozen || c->computed[unit])
		return;
	c->computed[unit] = 1;
	culprit = sim_alloc(w->config.units[unit].numel);
	sum_unit(w, c, unit, culprit);
	for (uint32_t l = 0; l < w->lane_count && !w->failure[0]; l++)
		share(w, c, unit, l, culprit);
	free(culprit);
}

/* What a lane prepares is sent to that lane; of units elsewhere nothing may have left yet.  lane NULL: everything. */
static void compute(struct sim_world *w, struct sim_candidate *c, const struct sim_lane *lane)
{
	for (uint32_t u = 0; u < w->config.spec.unit_count && !w->failure[0]; u++)
		if (!lane || w->oracle.pieces[u * w->lane_count + lane->index].count > 0)
			compute_unit(w, c, u);
}

/* ---------------------------------------------------------------- records and decisions */

void sim_oracle_record(struct sim_world *w, struct sim_lane *lane, const struct zd_record *r)
{
	const struct sim_launch *launch = sim_launch_of(w, r->ballot.epoch);
	struct zd_hyper hyper = sim_hyper(w, r->ballot.epoch, r->round);
	uint32_t l = lane->index;
	struct sim_candidate *c;
	const char *field;

	if (!launch || r->world != launch->size || r->micro_batches != launch->micro) {
		sim_fail(w, "I6: lane %u prepares with a world of %u and %u micro-batches", l, r->world, r->micro_batches);
		return;
	}
	field = zd_hyper_differs(&hyper, &r->hyper);
	if (field) {
		sim_fail(w, "I6: lane %u prepares with another %s than ballot (%llu, %u) has", l, field, (unsigned long long)r->ballot.epoch,
			 r->ballot.attempt);
		return;
	}
	c = sim_candidate(w, r->round, r->ballot);
	compute(w, c, lane);
	if (w->failure[0])
		return;
	if (memcmp(&c->norms[l], &r->norm, sizeof(r->norm)) != 0 || c->nonfinite[l] != r->nonfinite)
		sim_fail(w, "I6: lane %u prepares round %llu, ballot (%llu, %u), with other contributions than were sent (%llu elements not finite, "
			    "expected %llu)",
			 l, (unsigned long long)r->round, (unsigned long long)r->ballot.epoch, r->ballot.attempt,
			 (unsigned long long)r->nonfinite, (unsigned long long)c->nonfinite[l]);
	else if (r->nonfinite &&
		 (r->bad_unit != c->bad_unit[l] || r->bad_element != c->bad_element[l] || r->bad_rank != c->bad_rank[l]))
		sim_fail(w, "lane %u names unit %u element %llu rank %u as not finite, expected %u %llu %u", l, r->bad_unit,
			 (unsigned long long)r->bad_element, r->bad_rank, c->bad_unit[l], (unsigned long long)c->bad_element[l], c->bad_rank[l]);
}

static struct zd_decision decide(struct sim_world *w, struct sim_candidate *c)
{
	const struct sim_launch *launch = sim_launch_of(w, c->ballot.epoch);
	struct zd_hyper h = sim_hyper(w, c->ballot.epoch, c->round);
	double divisor = (h.weight > 0 ? h.weight : (double)(launch->size * launch->micro)) * h.loss_scale, clip = 1;
	struct zd_decision d = {.round = c->round, .ballot = c->ballot, .applied = 1, .step = w->oracle.version};
	struct zd_normacc total;

	zd_normacc_zero(&total);
	for (uint32_t l = 0; l < w->lane_count; l++) {
		zd_normacc_merge(&total, &c->norms[l]);
		if (c->nonfinite[l])
			d.applied = 0;
	}
	d.norm = sqrt(zd_normacc_round(&total)) / divisor;
	if (h.max_norm > 0 && h.max_norm / (d.norm + 1e-6) < 1)
		clip = h.max_norm / (d.norm + 1e-6);
	d.scale = d.applied ? clip / divisor : 0;
	d.step += d.applied;
	return d;
}

static void next_version(struct sim_world *w, struct sim_candidate *c, const struct zd_decision *d)
{
	struct sim_oracle *o = &w->oracle;
	struct zd_hyper h = sim_hyper(w, d->ballot.epoch, d->round);
	struct zd_adam_params params = {h.lr, h.weight_decay, h.beta1, h.beta2, h.eps, w->config.spec.optimizer == ZD_OPT_ADAM_L2};
	struct zd_adam_consts consts;
	uint64_t v = o->version + 1;

	zd_adam_consts_init(&consts, &params, d->step, d->scale);
	for (uint32_t u = 0; u < w->config.spec.unit_count; u++) {
		uint64_t n = w->config.units[u].numel;
		uint16_t **all = sim_alloc((v + 1) * sizeof(*all));

		if (!w->config.units[u].frozen && w->config.spec.optimizer != ZD_OPT_NONE)
			zd_kernels_scalar()->adam[ZD_GRAD_FP32](o->hi[u], o->lo[u], o->m[u], o->v[u], c->sums[u], NULL, n, &consts, NULL);
		memcpy(all, o->weights[u], v * sizeof(*all));
		free(o->weights[u]);
		o->weights[u] = all;
		all[v] = sim_alloc(2 * n);
		memcpy(all[v], o->hi[u], 2 * n);
	}
	o->version = v;
}

/* Sums of rounds long decided are not asked for again. */
static void forget_sums(struct sim_world *w)
{
	struct sim_oracle *o = &w->oracle;

	for (uint32_t i = 0; i < o->candidate_count; i++)
		if (o->candidates[i]->round + 1 < o->decided)
			free_sums(o->candidates[i]);
}

/* A lane has decided a round: the first says how, all others must say the same. */
void sim_oracle_decided(struct sim_world *w, struct sim_lane *lane, const struct zd_decision *d)
{
	struct sim_oracle *o = &w->oracle;
	struct zd_decision want;
	struct sim_candidate *c;

	if (d->round <= o->decided) {
		if (!zd_decision_equal(d, &o->decisions[d->round]))
			sim_fail(w, "I4: lane %u decides round %llu as ballot (%llu, %u), %s, scale %.17g; another lane or life had (%llu, %u), %s, %.17g",
				 lane->index, (unsigned long long)d->round, (unsigned long long)d->ballot.epoch, d->ballot.attempt,
				 d->applied ? "applied" : "skipped", d->scale, (unsigned long long)o->decisions[d->round].ballot.epoch,
				 o->decisions[d->round].ballot.attempt, o->decisions[d->round].applied ? "applied" : "skipped",
				 o->decisions[d->round].scale);
		return;
	}
	if (d->round != o->decided + 1) {
		sim_fail(w, "I5: lane %u decides round %llu, nobody has decided the one before", lane->index, (unsigned long long)d->round);
		return;
	}
	c = sim_candidate(w, d->round, d->ballot);
	compute(w, c, NULL);
	if (w->failure[0])
		return;
	want = decide(w, c);
	if (!zd_decision_equal(d, &want)) {
		sim_fail(w, "I4: lane %u decides round %llu: %s, scale %.17g, norm %.17g, step %llu; the records give %s, %.17g, %.17g, %llu",
			 lane->index, (unsigned long long)d->round, d->applied ? "applied" : "skipped", d->scale, d->norm,
			 (unsigned long long)d->step, want.applied ? "applied" : "skipped", want.scale, want.norm, (unsigned long long)want.step);
		return;
	}
	if (d->round >= o->decision_cap) {
		o->decisions = realloc(o->decisions, 2 * o->decision_cap * sizeof(*o->decisions));
		o->decision_cap *= 2;
	}
	o->decisions[d->round] = *d;
	o->decided = d->round;
	w->skipped += !d->applied;
	if (d->applied)
		next_version(w, c, d);
	forget_sums(w);
}

/* ---------------------------------------------------------------- comparisons */

void sim_oracle_planes(struct sim_world *w, struct sim_lane *lane)
{
	const struct sim_oracle *o = &w->oracle;

	if (lane->view.step != o->version)
		return;
	for (uint32_t u = 0; u < w->config.spec.unit_count; u++) {
		struct zd_piece p = o->pieces[u * w->lane_count + lane->index];
		struct zd_plane_view view;
		int same;

		if (p.count == 0)
			continue;
		if (!zd_core_planes(lane->core, w->config.spec.name, u, &view) || view.count != p.count) {
			sim_fail(w, "lane %u has another piece of unit %u than the layout says", lane->index, u);
			return;
		}
		same = memcmp(view.hi, o->hi[u] + p.first, 2 * p.count) == 0;
		if (!w->config.units[u].frozen)
			same = same && memcmp(view.lo, o->lo[u] + p.first, 2 * p.count) == 0 &&
			       memcmp(view.m, o->m[u] + p.first, 4 * p.count) == 0 && memcmp(view.v, o->v[u] + p.first, 4 * p.count) == 0;
		if (!same) {
			sim_fail(w, "I4: the planes of lane %u, unit %u, at version %llu are not what training gives", lane->index, u,
				 (unsigned long long)lane->view.step);
			return;
		}
	}
}

/* What a worker is told about a round that it finished. */
void sim_oracle_result(struct sim_world *w, struct sim_worker *worker, const struct zerod_step_result *r)
{
	const struct zd_decision *d = r->round <= w->oracle.decided ? &w->oracle.decisions[r->round] : NULL;

	if (!d || d->step != r->step || d->applied == r->skipped || memcmp(&d->norm, &r->norm, 8) != 0 || memcmp(&d->scale, &r->scale, 8) != 0)
		sim_fail(w, "rank %u is told another outcome of round %llu than was decided", worker->rank, (unsigned long long)r->round);
}
