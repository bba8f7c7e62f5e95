/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian numbers in bytes of any alignment; compilers make one instruction of each. */
#ifndef ZD_PROTO_BYTES_H
#define ZD_PROTO_BYTES_H

#include <stdint.h>

static inline void zd_put16(uint8_t *out, uint16_t v)
{
	out[0] = (uint8_t)v;
	out[1] = (uint8_t)(v >> 8);
}

static inline void zd_put32(uint8_t *out, uint32_t v)
{
	zd_put16(out, (uint16_t)v);
	zd_put16(out + 2, (uint16_t)(v >> 16));
}

static inline void zd_put64(uint8_t *out, uint64_t v)
{
	zd_put32(out, (uint32_t)v);
	zd_put32(out + 4, (uint32_t)(v >> 32));
}

static inline uint16_t zd_get16(const uint8_t *in)
{
	return (uint16_t)(in[0] | in[1] << 8);
}

static inline uint32_t zd_get32(const uint8_t *in)
{
	return zd_get16(in) | (uint32_t)zd_get16(in + 2) << 16;
}

static inline uint64_t zd_get64(const uint8_t *in)
{
	return zd_get32(in) | (uint64_t)zd_get32(in + 4) << 32;
}

#endif
