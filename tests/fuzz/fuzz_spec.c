/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an OPEN, to the layout that follows from it. */
#include "tests/fuzz/drive.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	zd_drive_spec(data, size);
	return 0;
}
