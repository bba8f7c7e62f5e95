/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/spec.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/limits.h"
#include "proto/text.h"

#define LEASE_MIN_MS 100u     /* less and a busy machine looks dead */
#define LEASE_MAX_MS 3600000u /* an hour: longer than any pause that somebody waits for */

#define NAME_SLOTS (2 * ZD_UNITS_MAX) /* open addressing, at most half full */

struct where {
	char *text;
	size_t size;
};

static uint32_t extent_max(enum zd_codec codec)
{
	return ZD_PAYLOAD_MAX / zd_codec_bytes(codec);
}

uint32_t zd_spec_default_extent(enum zd_codec grad_codec)
{
	return extent_max(grad_codec);
}

static int name_is_valid(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++) {
		char c = name[n];
		int fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';

		if (!fine || n == ZD_NAME_MAX)
			return 0;
	}
	return n > 0;
}

#define NAME_RULE "expected 1 to 63 letters, digits, \".\", \"_\" or \"-\""

/* FNV-1a: any that spreads names will do; whoever picks names that collide pays with a slow OPEN of their own. */
static uint32_t name_hash(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash;
}

/* A unit of the same name before `at`, or -1.  slots: unit number + 1, 0 is free. */
static int64_t same_name(const struct zd_spec *spec, uint16_t *slots, uint32_t at)
{
	const char *name = spec->units[at].name;
	uint32_t slot = name_hash(name) % NAME_SLOTS;

	for (; slots[slot] != 0; slot = (slot + 1) % NAME_SLOTS)
		if (strcmp(spec->units[slots[slot] - 1].name, name) == 0)
			return slots[slot] - 1;
	slots[slot] = (uint16_t)(at + 1);
	return -1;
}

static int check_units(const struct zd_spec *spec, const struct where *w)
{
	uint16_t slots[NAME_SLOTS] = {0};
	uint32_t trainable = 0;

	if (spec->unit_count < 1 || spec->unit_count > ZD_UNITS_MAX)
		return zd_text_fail(ZD_ERR_BAD_SPEC, w->text, w->size, "%u units, expected 1 to %u", spec->unit_count, ZD_UNITS_MAX);
	for (uint32_t i = 0; i < spec->unit_count; i++) {
		const struct zd_unit_spec *unit = &spec->units[i];
		int64_t same;

		if (!name_is_valid(unit->name))
			return zd_text_fail(ZD_ERR_BAD_SPEC, w->text, w->size, "unit %u: name \"%.*s\", " NAME_RULE, i, (int)ZD_NAME_MAX,
					    unit->name);
		same = same_name(spec, slots, i);
		if (same >= 0)
			return zd_text_fail(ZD_ERR_BAD_SPEC, w->text, w->size, "units %d and %u are both named \"%s\"", (int)same, i,
					    unit->name);
		if (unit->numel < 1 || unit->numel > ZD_NUMEL_MAX)
			return zd_text_fail(ZD_ERR_BAD_SPEC, w->text, w->size, "unit %u \"%s\": %llu elements, expected 1 to %llu", i,
					    unit->name, (unsigned long long)unit->numel, (unsigned long long)ZD_NUMEL_MAX);
		trainable += !unit->frozen;
	}
	if (trainable == 0)
		return zd_text_fail(ZD_ERR_BAD_SPEC, w->text, w->size, "all %u units are frozen, expected at least one that is trained",
				    spec->unit_count);
	return 0;
}

int zd_spec_check(const struct zd_spec *spec, char *text, size_t text_size)
{
	uint32_t extent = spec->extent_elems;

	if (!name_is_valid(spec->name))
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "job name \"%.*s\", " NAME_RULE, (int)ZD_NAME_MAX, spec->name);
	if ((unsigned)spec->optimizer > ZD_OPT_ADAM_L2)
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "optimizer %u, expected 0 (none), 1 (adamw) or 2 (adam with L2)",
				    (unsigned)spec->optimizer);
	if ((unsigned)spec->grad_codec >= ZD_CODEC_COUNT)
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "gradient codec %u, expected 0 (bf16), 1 (fp16) or 2 (fp32)",
				    (unsigned)spec->grad_codec);
	if (extent < ZD_BLOCK_ELEMS || extent > extent_max(spec->grad_codec) || (extent & (extent - 1)) != 0)
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "extent of %u elements, expected a power of two from %u to %u", extent,
				    ZD_BLOCK_ELEMS, extent_max(spec->grad_codec));
	if (spec->lease_ms < LEASE_MIN_MS || spec->lease_ms > LEASE_MAX_MS)
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "lease of %u ms, expected %u to %u", spec->lease_ms, LEASE_MIN_MS,
				    LEASE_MAX_MS);
	return check_units(spec, &(struct where){text, text_size});
}

/* 0, or -1 when it does not fit. */
static int copy_name(char out[ZD_NAME_MAX + 1], const char *in)
{
	size_t len = strnlen(in, ZD_NAME_MAX + 1);

	if (len > ZD_NAME_MAX)
		return -1;
	memcpy(out, in, len + 1);
	return 0;
}

int zd_spec_from_pb(struct zd_spec *ret_spec, struct zd_unit_spec *units, size_t units_cap, const Zd__Pb__JobSpec *pb, char *text,
		    size_t text_size)
{
	struct zd_spec spec = {.optimizer = (enum zd_optimizer)pb->optimizer,
			       .grad_codec = (enum zd_codec)pb->grad_codec,
			       .extent_elems = pb->extent_elems,
			       .lease_ms = pb->lease_ms,
			       .units = units};

	if (copy_name(spec.name, pb->name) < 0)
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "job name \"%.*s...\", " NAME_RULE, (int)ZD_NAME_MAX, pb->name);
	if (pb->n_units > units_cap)
		return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "%zu units, there is room for %zu", pb->n_units, units_cap);
	spec.unit_count = (uint32_t)pb->n_units;
	for (uint32_t i = 0; i < spec.unit_count; i++) {
		const Zd__Pb__Unit *unit = pb->units[i];

		if (copy_name(units[i].name, unit->name) < 0)
			return zd_text_fail(ZD_ERR_BAD_SPEC, text, text_size, "unit %u: name \"%.*s...\", " NAME_RULE, i, (int)ZD_NAME_MAX,
					    unit->name);
		units[i].numel = unit->numel;
		units[i].frozen = unit->has_frozen && unit->frozen;
	}
	ZD_TRY(zd_spec_check(&spec, text, text_size));
	*ret_spec = spec;
	return 0;
}

void zd_spec_to_pb(const struct zd_spec *spec, Zd__Pb__JobSpec *pb, Zd__Pb__Unit *units, Zd__Pb__Unit **ptrs)
{
	zd__pb__job_spec__init(pb);
	pb->name = (char *)spec->name; /* protobuf-c only reads what it packs */
	pb->optimizer = spec->optimizer;
	pb->grad_codec = spec->grad_codec;
	pb->extent_elems = spec->extent_elems;
	pb->lease_ms = spec->lease_ms;
	pb->n_units = spec->unit_count;
	pb->units = ptrs;
	for (uint32_t i = 0; i < spec->unit_count; i++) {
		zd__pb__unit__init(&units[i]);
		units[i].name = spec->units[i].name;
		units[i].numel = spec->units[i].numel;
		units[i].has_frozen = units[i].frozen = spec->units[i].frozen != 0;
		ptrs[i] = &units[i];
	}
}

static int number_differs(const struct where *w, const char *field, uint64_t have, uint64_t asked)
{
	return zd_text_fail(ZD_ERR_JOB_DIFFERS, w->text, w->size, "%s is %llu on the lane, asked for %llu", field, (unsigned long long)have,
			    (unsigned long long)asked);
}

static int unit_compare(uint32_t at, const struct zd_unit_spec *have, const struct zd_unit_spec *asked, const struct where *w)
{
	if (strcmp(have->name, asked->name) != 0)
		return zd_text_fail(ZD_ERR_JOB_DIFFERS, w->text, w->size, "unit %u is \"%s\" on the lane, asked for \"%s\"", at, have->name,
				    asked->name);
	if (have->numel != asked->numel)
		return zd_text_fail(ZD_ERR_JOB_DIFFERS, w->text, w->size, "unit %u \"%s\" has %llu elements on the lane, asked for %llu", at,
				    have->name, (unsigned long long)have->numel, (unsigned long long)asked->numel);
	if (!have->frozen != !asked->frozen)
		return zd_text_fail(ZD_ERR_JOB_DIFFERS, w->text, w->size, "unit %u \"%s\" is %s on the lane, asked for %s", at, have->name,
				    have->frozen ? "frozen" : "trained", asked->frozen ? "frozen" : "trained");
	return 0;
}

int zd_spec_compare(const struct zd_spec *have, const struct zd_spec *asked, char *text, size_t text_size)
{
	struct where w = {text, text_size};

	if (strcmp(have->name, asked->name) != 0)
		return zd_text_fail(ZD_ERR_JOB_DIFFERS, text, text_size, "name is \"%s\" on the lane, asked for \"%s\"", have->name, asked->name);
	if (have->optimizer != asked->optimizer)
		return number_differs(&w, "optimizer", have->optimizer, asked->optimizer);
	if (have->grad_codec != asked->grad_codec)
		return number_differs(&w, "grad_codec", have->grad_codec, asked->grad_codec);
	if (have->extent_elems != asked->extent_elems)
		return number_differs(&w, "extent_elems", have->extent_elems, asked->extent_elems);
	if (have->lease_ms != asked->lease_ms)
		return number_differs(&w, "lease_ms", have->lease_ms, asked->lease_ms);
	if (have->unit_count != asked->unit_count)
		return number_differs(&w, "number of units", have->unit_count, asked->unit_count);
	for (uint32_t i = 0; i < have->unit_count; i++)
		ZD_TRY(unit_compare(i, &have->units[i], &asked->units[i], &w));
	return 0;
}
