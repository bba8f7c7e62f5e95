/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/crc32c.h"

#ifdef ZD_ISAL
#include <isa-l.h>

/* ISA-L takes an int; any bound that fits would do. */
#define PART_MAX ((size_t)1 << 30)

uint32_t zd_crc32c(uint32_t crc, const void *data, size_t len)
{
	unsigned char *bytes = (unsigned char *)data; /* ISA-L reads only; its prototype forgot to say so */
	uint32_t state = ~crc;

	while (len > 0) {
		size_t part = len < PART_MAX ? len : PART_MAX;

		state = crc32_iscsi(bytes, (int)part, state);
		bytes += part;
		len -= part;
	}
	return ~state;
}
#else
uint32_t zd_crc32c(uint32_t crc, const void *data, size_t len)
{
	return zd_crc32c_plain(crc, data, len, 0);
}
#endif
