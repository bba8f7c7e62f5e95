/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli, RFC 3720 appendix B.4) through ISA-L, with the usual initial and final inversion: zd_crc32c(0, "123456789", 9) is
 * 0xe3069283.  Call again with the result to go on: zd_crc32c(zd_crc32c(0, a), b) is the checksum of a and b in sequence. */
#ifndef ZD_PROTO_CRC32C_H
#define ZD_PROTO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t zd_crc32c(uint32_t crc, const void *data, size_t len);

/* For loops that compute a checksum beside other work (processors with SSE4.2 and PCLMULQDQ only): one `crc32` waits for the one before, so a
 * block goes in four chains of ZD_CRC32C_QUARTER bytes.  a starts from the state so far (the inverted checksum), the others from 0; what
 * comes back is the state after all four. */
#define ZD_CRC32C_QUARTER 2048
uint32_t zd_crc32c_join(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* zd_crc32c without ISA-L, for builds with -DZD_ISAL=OFF.  portable: also without SSE4.2 and PCLMULQDQ, as on a processor that lacks them. */
uint32_t zd_crc32c_plain(uint32_t crc, const void *data, size_t len, int portable);

#endif
