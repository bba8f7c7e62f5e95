/* SPDX-License-Identifier: Apache-2.0 */
/* A lane between hostile peers and one worker that behaves: see core_script.c for what the bytes mean.  The first: receive windows. */
#include "tests/fuzz/core_drive.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cd d;

	if (size == 0)
		return 0;
	cd_init(&d, 6 + data[0] % 24);
	cd_script(&d, data + 1, size - 1);
	cd_finish(&d);
	cd_fini(&d);
	return 0;
}
