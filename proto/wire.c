/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire.h"

#include "proto/assert.h"
#include "proto/prescan.h"
#include "proto/text.h"
#include "proto/validate.h"

/* NULL: no such type. */
static const ProtobufCMessageDescriptor *descriptor_of(uint16_t type)
{
	switch (type) {
#define X(name, number, from, head_max, pl_min, pl_max, Pb, pb)                                                                       \
	case number:                                                                                                                  \
		return &zd__pb__##pb##__descriptor;
#include "proto/msg.def"
#undef X
	default:
		return NULL;
	}
}

int zd_wire_decode(struct zd_arena *a, uint16_t type, const uint8_t *head, size_t len, const ProtobufCMessage **ret_msg, char *text,
		   size_t text_size)
{
	const ProtobufCMessageDescriptor *of = descriptor_of(type);
	struct zd_prescan_work work;
	const ProtobufCMessage *msg;

	if (!of)
		return zd_text_fail(ZD_ERR_BAD_MESSAGE, text, text_size, "message type %u is not known", type);
	ZD_TRY(zd_prescan(of, head, len, &work, text, text_size));
	a->allocator.allocator_data = a; /* the arena may have been moved */
	msg = protobuf_c_message_unpack(of, &a->allocator, len, head);
	if (!msg)
		return zd_text_fail(ZD_ERR_BAD_MESSAGE, text, text_size,
				    "%s of %zu bytes and %u fields does not fit the %zu bytes there are to decode it", of->short_name, len,
				    work.fields, a->size);
	ZD_TRY(zd_validate(type, msg, text, text_size));
	*ret_msg = msg;
	return 0;
}

size_t zd_wire_size(const ProtobufCMessage *msg)
{
	return ZD_HEADER_BYTES + protobuf_c_message_get_packed_size(msg);
}

size_t zd_wire_encode(uint8_t *out, size_t size, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, uint32_t payload_len,
		      uint32_t payload_crc)
{
	size_t total = zd_wire_size(msg);
	struct zd_header header = {.version = ZD_VERSION,
				   .type = type,
				   .head_len = (uint32_t)(total - ZD_HEADER_BYTES),
				   .payload_len = payload_len,
				   .payload_crc = payload_crc,
				   .stream = stream};

	ZD_ASSERT(msg->descriptor == descriptor_of(type));
	ZD_ASSERT(total <= size && header.head_len <= zd_msg_head_max(type));
	ZD_ASSERT(zd_validate(type, msg, NULL, 0) == 0);
	ZD_ASSERT(zd_wire_check_payload(type, msg, payload_len, NULL, 0) == 0);
	protobuf_c_message_pack(msg, out + ZD_HEADER_BYTES);
	zd_header_encode(out, &header, out + ZD_HEADER_BYTES);
	return total;
}

int zd_ballot_cmp(struct zd_ballot a, struct zd_ballot b)
{
	if (a.epoch != b.epoch)
		return a.epoch < b.epoch ? -1 : 1;
	return (a.attempt > b.attempt) - (a.attempt < b.attempt);
}
