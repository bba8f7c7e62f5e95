/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/text.h"

#include <stdarg.h>
#include <stdio.h>

int zd_text_fail(int err, char *text, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, size, format, args);
	va_end(args);
	return -err;
}
