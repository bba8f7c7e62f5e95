/* SPDX-License-Identifier: Apache-2.0 */
/* The text for people that goes with an error code: what was expected, what was found. */
#ifndef ZD_PROTO_TEXT_H
#define ZD_PROTO_TEXT_H

#include <stddef.h>

/* Writes the text (cut to size, always ended; size 0: nothing is written) and returns -err. */
int zd_text_fail(int err, char *text, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
