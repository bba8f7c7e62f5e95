/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of a job as both sides hold it: units, optimizer, formats.  It decides the layout, so it must be equal everywhere;
 * a lane that has the job compares it field by field and names the first that differs.
 */
#ifndef ZD_PROTO_SPEC_H
#define ZD_PROTO_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"
#include "proto/wire.h"

enum zd_optimizer { ZD_OPT_NONE = 0, ZD_OPT_ADAMW = 1, ZD_OPT_ADAM_L2 = 2 };

struct zd_unit_spec {
	char name[ZD_NAME_MAX + 1];
	uint64_t numel;
	uint8_t frozen;
};

struct zd_spec {
	char name[ZD_NAME_MAX + 1];
	enum zd_optimizer optimizer;
	enum zd_codec grad_codec;
	uint32_t extent_elems;
	uint32_t lease_ms;
	uint32_t unit_count;
	struct zd_unit_spec *units; /* unit_count of them; memory of whoever holds the specification */
};

/* 0 or -ZD_ERR_BAD_SPEC with a text: names (letters, digits, ".", "_", "-", at most 63 bytes, units distinct), numel 1..ZD_NUMEL_MAX,
 * at least one unit that is not frozen, extent_elems a power of two times a block within the maximum of the codec, lease 100 ms..1 h. */
int zd_spec_check(const struct zd_spec *spec, char *text, size_t text_size) ZD_MUST_USE;

/* Copies a decoded message; `units` is memory for ZD_UNITS_MAX entries or for as many as the message has.  Checks as zd_spec_check. */
int zd_spec_from_pb(struct zd_spec *ret_spec, struct zd_unit_spec *units, size_t units_cap, const Zd__Pb__JobSpec *pb, char *text,
		    size_t text_size) ZD_MUST_USE;

/* Fills a message that refers to the specification's memory.  `units` and `ptrs` have unit_count entries. */
void zd_spec_to_pb(const struct zd_spec *spec, Zd__Pb__JobSpec *pb, Zd__Pb__Unit *units, Zd__Pb__Unit **ptrs);

/* 0 if equal, else -ZD_ERR_JOB_DIFFERS and a text that names the first field that differs, what the lane has and what was asked. */
int zd_spec_compare(const struct zd_spec *have, const struct zd_spec *asked, char *text, size_t text_size) ZD_MUST_USE;

uint32_t zd_spec_default_extent(enum zd_codec grad_codec);

#endif
