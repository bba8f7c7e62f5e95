/* SPDX-License-Identifier: Apache-2.0 */
/* Element formats of tensors on the wire.  The numbers are part of the protocol. */
#ifndef ZD_PROTO_CODEC_H
#define ZD_PROTO_CODEC_H

#include <stdint.h>

enum zd_codec {
	ZD_CODEC_BF16 = 0, /* bfloat16: the high half of an fp32 */
	ZD_CODEC_FP16 = 1, /* IEEE 754 binary16 */
	ZD_CODEC_FP32 = 2, /* IEEE 754 binary32 */
	ZD_CODEC_COUNT = 3
};

/* Bytes of one element; codec must be one of the above. */
static inline uint32_t zd_codec_bytes(enum zd_codec codec)
{
	return codec == ZD_CODEC_FP32 ? 4 : 2;
}

#endif
