/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/assert.h"

static void trap(const char *file, int line, const char *what)
{
	(void)file;
	(void)line;
	(void)what;
	__builtin_trap();
}

zd_assert_handler *zd_assert_failed = trap;
