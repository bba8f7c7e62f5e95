/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli, RFC 3720 appendix B.4) through ISA-L, with the usual initial and final inversion: zd_crc32c(0, "123456789", 9) is
 * 0xe3069283.  Call again with the result to go on: zd_crc32c(zd_crc32c(0, a), b) is the checksum of a and b in sequence. */
#ifndef ZD_PROTO_CRC32C_H
#define ZD_PROTO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t zd_crc32c(uint32_t crc, const void *data, size_t len);

#endif
