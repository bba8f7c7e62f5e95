/* SPDX-License-Identifier: Apache-2.0 */
/* A head of the type that the first byte says. */
#include "tests/fuzz/drive.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		zd_drive_head(data[0], data + 1, size - 1);
	return 0;
}
