/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a connection.  The first byte: bit 0 who sends, bit 1 whether checksums are made right first, the rest how reads are cut. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/drive.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes;

	if (size == 0)
		return 0;
	bytes = malloc(size);
	if (!bytes)
		return 0;
	memcpy(bytes, data, size);
	if (data[0] & 2)
		zd_drive_fix(bytes + 1, size - 1);
	zd_drive_frames(data[0] & 1 ? ZD_SIDE_SERVER : ZD_SIDE_CLIENT, data[0] >> 2, bytes + 1, size - 1);
	free(bytes);
	return 0;
}
