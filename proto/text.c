/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int zd_text_fail(int err, char *text, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, size, format, args);
	va_end(args);
	return -err;
}

/* The bytes that stand for one; their number. */
static size_t escape(unsigned char byte, char out[4])
{
	static const char named[] = "\"\"\\\\\nn\rr\tt", digits[] = "0123456789abcdef"; /* pairs: byte, letter */

	for (size_t i = 0; i + 1 < sizeof(named); i += 2) {
		if (byte != (unsigned char)named[i])
			continue;
		out[0] = '\\';
		out[1] = named[i + 1];
		return 2;
	}
	if (byte >= 0x20 && byte < 0x7f) {
		out[0] = (char)byte;
		return 1;
	}
	out[0] = '\\';
	out[1] = 'x';
	out[2] = digits[byte >> 4];
	out[3] = digits[byte & 15];
	return 4;
}

const char *zd_text_quote(char *out, size_t size, const char *in)
{
	size_t n = 0;

	out[n++] = '"';
	for (; *in; in++) {
		char bytes[4];
		size_t len = escape((unsigned char)*in, bytes);

		if (n + len + 2 > size)
			break;
		memcpy(out + n, bytes, len);
		n += len;
	}
	out[n++] = '"';
	out[n] = '\0';
	return out;
}
