/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/prescan.h"

#include <string.h>

#include "proto/assert.h"
#include "proto/limits.h"
#include "proto/normacc.h"
#include "proto/text.h"
#include "zerod.pb-c.h"

#define MESSAGE_FIELDS_MAX 32u /* of one message of ours: JobStatus has 19 */
#define VARINT_BYTES_MAX 10u   /* 64 bits, seven in each byte */
#define FIELD_NUMBER_MAX ((1u << 29) - 1)

enum wire { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Entries of repeated fields, bytes of strings.  Strings that are not here are names; every repeated field must be. */
static const struct bound {
	const ProtobufCMessageDescriptor *of;
	uint32_t field, max;
} bounds[] = {
	{&zd__pb__job_spec__descriptor, 2, ZD_UNITS_MAX},    /* units */
	{&zd__pb__joined__descriptor, 7, ZD_UNITS_MAX},	     /* counted */
	{&zd__pb__commit__descriptor, 6, ZD_UNITS_MAX},	     /* counts */
	{&zd__pb__aborted__descriptor, 5, ZD_WORLD_MAX},     /* missing */
	{&zd__pb__pong__descriptor, 3, ZD_WORLD_MAX},	     /* absent */
	{&zd__pb__pong__descriptor, 4, ZD_WORLD_MAX},	     /* behind */
	{&zd__pb__status_reply__descriptor, 14, ZD_JOBS_MAX}, /* jobs */
	{&zd__pb__show_reply__descriptor, 3, ZD_WORLD_MAX},  /* workers */
	{&zd__pb__aborted__descriptor, 4, ZD_TEXT_MAX},	     /* text */
	{&zd__pb__error__descriptor, 2, ZD_TEXT_MAX},	     /* text */
	{&zd__pb__record__descriptor, 6, ZD_NORMACC_BYTES},  /* norm */
};

struct scan {
	struct zd_prescan_work *work;
	char *text;
	size_t text_size;
};

struct cursor {
	const uint8_t *at, *end;
};

static uint32_t bound_of(const ProtobufCMessageDescriptor *of, const ProtobufCFieldDescriptor *field)
{
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
		if (bounds[i].of == of && bounds[i].field == field->id)
			return bounds[i].max;
	ZD_ASSERT(field->label != PROTOBUF_C_LABEL_REPEATED);
	return ZD_NAME_MAX;
}

static enum wire wire_of(const ProtobufCFieldDescriptor *field)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return LENGTH;
	case PROTOBUF_C_TYPE_DOUBLE:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return FIXED64;
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return FIXED32;
	default:
		return VARINT;
	}
}

static uint64_t largest(const ProtobufCFieldDescriptor *field)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_BOOL:
		return 1;
	case PROTOBUF_C_TYPE_UINT32:
		return UINT32_MAX;
	default:
		return UINT64_MAX;
	}
}

static int refuse(struct scan *s, const ProtobufCMessageDescriptor *of, const char *field, const char *what)
{
	return zd_text_fail(ZD_ERR_BAD_MESSAGE, s->text, s->text_size, "%s%s%s: %s", of->short_name, field ? "." : "", field ? field : "",
			    what);
}

/* A varint in its shortest form.  NULL, or what is wrong with it. */
static const char *take_varint(struct scan *s, struct cursor *c, uint64_t *ret_value)
{
	uint64_t value = 0;
	uint8_t byte;
	unsigned n = 0;

	s->work->varints++;
	do {
		if (c->at == c->end)
			return "the message ends inside a number";
		byte = *c->at++;
		if (n == VARINT_BYTES_MAX - 1 && byte > 1)
			return "number of more than 64 bits";
		value |= (uint64_t)(byte & 0x7f) << 7 * n++;
	} while (byte & 0x80);
	if (byte == 0 && n > 1)
		return "number is not in its shortest form";
	*ret_value = value;
	return NULL;
}

/* Steps over a value; for LENGTH, *ret_inner is what is in it, for VARINT *ret_value. */
static const char *take_value(struct scan *s, struct cursor *c, enum wire wire, uint64_t *ret_value, struct cursor *ret_inner)
{
	uint64_t left, size;
	const char *wrong;

	if (wire == VARINT)
		return take_varint(s, c, ret_value);
	if (wire == LENGTH) {
		wrong = take_varint(s, c, &size);
		if (wrong)
			return wrong;
	} else {
		size = wire == FIXED64 ? 8 : 4;
	}
	left = (uint64_t)(c->end - c->at);
	if (size > left)
		return "longer than the message";
	*ret_inner = (struct cursor){c->at, c->at + size};
	c->at += size;
	return NULL;
}

/* Packed numbers: each counts against the field's bound. */
static const char *check_packed(struct scan *s, const ProtobufCFieldDescriptor *field, struct cursor inner, uint32_t max,
				uint32_t *count)
{
	struct cursor ignored;
	const char *wrong;

	while (inner.at < inner.end) {
		uint64_t value = 0;

		if (++*count > max)
			return "more entries than the protocol allows";
		wrong = take_value(s, &inner, wire_of(field), &value, &ignored);
		if (wrong)
			return wrong;
		if (value > largest(field))
			return "number outside its type";
	}
	return NULL;
}

static const char *check_string(struct scan *s, const ProtobufCFieldDescriptor *field, struct cursor inner, uint32_t max)
{
	size_t len = (size_t)(inner.end - inner.at);

	if (len > max)
		return "longer than the protocol allows";
	if (field->type == PROTOBUF_C_TYPE_BYTES)
		return NULL;
	s->work->bytes += (uint32_t)len;
	return memchr(inner.at, 0, len) ? "NUL in a string" : NULL;
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *of, struct cursor c, unsigned depth);

/* The value of a known field; `count` counts its occurrences (entries, if repeated). */
static int scan_known(struct scan *s, const ProtobufCMessageDescriptor *of, const ProtobufCFieldDescriptor *field, enum wire wire,
		      struct cursor *c, uint32_t *count, unsigned depth)
{
	int repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
	uint32_t max = repeated || wire == LENGTH ? bound_of(of, field) : 0;
	struct cursor inner = {0};
	uint64_t value = 0;
	const char *wrong = take_value(s, c, wire, &value, &inner);

	if (wrong)
		return refuse(s, of, field->name, wrong);
	if (repeated && wire == LENGTH && wire_of(field) != LENGTH) {
		wrong = check_packed(s, field, inner, max, count);
		return wrong ? refuse(s, of, field->name, wrong) : 0;
	}
	if (wire != wire_of(field))
		return refuse(s, of, field->name, "encoded as another type");
	if (++*count > (repeated ? max : 1))
		return refuse(s, of, field->name, repeated ? "more entries than the protocol allows" : "present twice");
	if (value > largest(field))
		return refuse(s, of, field->name, "number outside its type");
	if (field->type == PROTOBUF_C_TYPE_MESSAGE)
		return scan_message(s, field->descriptor, inner, depth + 1);
	if (wire == LENGTH) {
		wrong = check_string(s, field, inner, max);
		return wrong ? refuse(s, of, field->name, wrong) : 0;
	}
	return 0;
}

static int scan_field(struct scan *s, const ProtobufCMessageDescriptor *of, struct cursor *c, uint32_t *counts, unsigned depth)
{
	const ProtobufCFieldDescriptor *field;
	struct cursor inner;
	uint64_t tag, value;
	unsigned wire;
	const char *wrong;

	if (++s->work->fields > ZD_FIELDS_MAX)
		return refuse(s, of, NULL, "more fields than the protocol allows");
	wrong = take_varint(s, c, &tag);
	if (wrong)
		return refuse(s, of, NULL, wrong);
	wire = tag & 7;
	if (tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX)
		return refuse(s, of, NULL, "field number outside its range");
	if (wire != VARINT && wire != FIXED64 && wire != LENGTH && wire != FIXED32)
		return refuse(s, of, NULL, "unknown wire type");

	field = protobuf_c_message_descriptor_get_field(of, (unsigned)(tag >> 3));
	if (field)
		return scan_known(s, of, field, (enum wire)wire, c, &counts[field - of->fields], depth);
	wrong = take_value(s, c, (enum wire)wire, &value, &inner);
	return wrong ? refuse(s, of, "(unknown field)", wrong) : 0;
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *of, struct cursor c, unsigned depth)
{
	uint32_t counts[MESSAGE_FIELDS_MAX] = {0};

	if (depth > ZD_DEPTH_MAX)
		return refuse(s, of, NULL, "nested too deep");
	ZD_ASSERT(of->n_fields <= MESSAGE_FIELDS_MAX);
	while (c.at < c.end)
		ZD_TRY(scan_field(s, of, &c, counts, depth));
	for (unsigned i = 0; i < of->n_fields; i++)
		if (of->fields[i].label == PROTOBUF_C_LABEL_REQUIRED && counts[i] == 0)
			return refuse(s, of, of->fields[i].name, "missing");
	return 0;
}

int zd_prescan(const ProtobufCMessageDescriptor *of, const uint8_t *head, size_t len, struct zd_prescan_work *ret_work, char *text,
	       size_t text_size)
{
	struct scan s = {ret_work, text, text_size};

	*ret_work = (struct zd_prescan_work){0};
	return scan_message(&s, of, (struct cursor){head, head + len}, 1);
}
