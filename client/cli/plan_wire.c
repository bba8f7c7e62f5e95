/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan_wire.h"

#include "proto/limits.h"

#define WEIGHT_BYTES 2u
#define SUM_BYTES 4u /* stage 0 fetches the gradient sum in fp32 */

/* Heads of the messages that carry or ask for tensors take 20 to 36 bytes with
 * ordinary epochs and steps; 40 bounds them. */
#define TENSOR_FRAME (ZD_HEADER_BYTES + 40u)

/* COMMIT: hyper-parameters and ballot fit 112 bytes, then a count per unit of at
 * most 3. The others: the limits of their types. */
#define COMMIT_FRAME (ZD_HEADER_BYTES + 112u)
#define COMMIT_UNIT 3u
#define APPLY_FRAME (ZD_HEADER_BYTES + 128u)
#define PREPARED_FRAME (ZD_HEADER_BYTES + 512u)

/* A sum that remembers that it left 64 bits. */
struct tally {
	uint64_t value;
	bool lost;
};

static void tally_add(struct tally *t, uint64_t count, uint64_t each)
{
	uint64_t product;

	if (__builtin_mul_overflow(count, each, &product) ||
	    __builtin_add_overflow(t->value, product, &t->value))
		t->lost = true;
}

/* How often one unit is pushed and fetched in a step. */
struct passes {
	uint64_t push, fetch;
};

static uint64_t stage3_fetches(const struct zd_plan_wire_spec *spec, size_t i)
{
	uint64_t micro = spec->micro_batches, fetches = 2 * micro;

	if (spec->keep_after_forward)
		return micro;
	if ((spec->reuse & ZD_PLAN_REUSE_LAST) && i + 1 == spec->unit_count)
		fetches -= micro;
	if ((spec->reuse & ZD_PLAN_REUSE_FIRST) && i == 0)
		fetches -= micro - 1;
	return fetches;
}

static struct passes unit_passes(const struct zd_plan_wire_spec *spec, size_t i)
{
	bool frozen = spec->units[i].frozen;
	struct passes p;

	p.push = spec->sum_locally ? 1 : spec->micro_batches;
	if (frozen)
		p.push = 0;
	if (spec->stage == 3)
		p.fetch = stage3_fetches(spec, i);
	else
		p.fetch = frozen ? 0 : 1;
	return p;
}

/* Lanes that own a piece of a unit; as in proto/layout.h. */
static uint64_t unit_pieces(uint64_t numel, uint32_t lanes)
{
	uint64_t pieces = numel / ZD_PIECE_ELEMS_MIN;

	if (pieces < 1)
		pieces = 1;
	return pieces < lanes ? pieces : lanes;
}

/* The most frames that `pieces` ranges of whole blocks need to carry `numel`
 * elements: a range of b blocks takes ceil(b/E) = floor((b-1)/E) + 1, and floors
 * of parts sum to no more than the floor of the whole. */
static uint64_t frames_bound(uint64_t numel, uint64_t pieces, unsigned element_bytes)
{
	uint64_t extent_blocks = ZD_PAYLOAD_MAX / element_bytes / ZD_BLOCK_ELEMS;
	uint64_t blocks = numel / ZD_BLOCK_ELEMS + (numel % ZD_BLOCK_ELEMS != 0);

	return (blocks - pieces) / extent_blocks + pieces;
}

static int check(const struct zd_plan_wire_spec *spec)
{
	if (spec->stage > 3)
		return ZD_PLAN_E_STAGE;
	if (spec->unit_count == 0 || spec->micro_batches == 0 || spec->lanes == 0 ||
	    (spec->grad_bytes != 2 && spec->grad_bytes != 4))
		return ZD_PLAN_E_RANGE;
	if ((spec->keep_after_forward && spec->stage != 3) || (spec->sum_locally && spec->stage > 1))
		return ZD_PLAN_E_SHAPE;
	for (size_t i = 0; i < spec->unit_count; i++)
		if (spec->units[i].numel == 0)
			return ZD_PLAN_E_RANGE;
	return ZD_PLAN_OK;
}

int zd_plan_wire_compute(const struct zd_plan_wire_spec *spec, struct zd_plan_wire *ret_wire)
{
	struct tally push = { 0 }, fetch = { 0 }, pushes = { 0 }, fetches = { 0 }, data = { 0 };
	struct tally sent = { 0 }, received = { 0 };
	unsigned fetch_element = spec->stage == 0 ? SUM_BYTES : WEIGHT_BYTES;
	int rc = check(spec);

	if (rc != ZD_PLAN_OK)
		return rc;
	for (size_t i = 0; i < spec->unit_count; i++) {
		uint64_t numel = spec->units[i].numel;
		uint64_t pieces = unit_pieces(numel, spec->lanes);
		struct passes p = unit_passes(spec, i);

		tally_add(&push, p.push * spec->grad_bytes, numel);
		tally_add(&fetch, p.fetch * fetch_element, numel);
		tally_add(&pushes, p.push, frames_bound(numel, pieces, spec->grad_bytes));
		tally_add(&fetches, p.fetch, pieces);
		tally_add(&data, p.fetch, frames_bound(numel, pieces, fetch_element));
	}
	tally_add(&sent, pushes.value, TENSOR_FRAME);
	tally_add(&sent, fetches.value, TENSOR_FRAME);
	tally_add(&sent, spec->lanes, COMMIT_FRAME + COMMIT_UNIT * spec->unit_count + APPLY_FRAME);
	tally_add(&received, pushes.value, TENSOR_FRAME);
	tally_add(&received, data.value, TENSOR_FRAME);
	tally_add(&received, spec->lanes, PREPARED_FRAME + APPLY_FRAME);
	if (push.value == 0 && fetch.value == 0) /* only frozen units: there is no step */
		return ZD_PLAN_E_RANGE;
	if (push.lost || fetch.lost || pushes.lost || fetches.lost || data.lost || sent.lost ||
	    received.lost)
		return ZD_PLAN_E_LARGE;
	*ret_wire = (struct zd_plan_wire){
		.push_bytes = push.value,
		.fetch_bytes = fetch.value,
		.push_frames = pushes.value,
		.fetch_frames = fetches.value,
		.data_frames = data.value,
		.step_frames = 4 * (uint64_t)spec->lanes,
		.sent_extra = sent.value,
		.received_extra = received.value,
		.extra_ratio = ((double)sent.value + (double)received.value) / ((double)push.value + (double)fetch.value),
	};
	return ZD_PLAN_OK;
}

double zd_plan_wire_excess(uint64_t planned, uint64_t counted)
{
	return ((double)counted - (double)planned) / (double)planned;
}
