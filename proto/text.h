/* SPDX-License-Identifier: Apache-2.0 */
/* The text for people that goes with an error code: what was expected, what was found; and how it stands in a log. */
#ifndef ZD_PROTO_TEXT_H
#define ZD_PROTO_TEXT_H

#include <stddef.h>

/* Writes the text (cut to size, always ended; size 0: nothing is written) and returns -err. */
int zd_text_fail(int err, char *text, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Room for a text of this many bytes in a log line: what is longer is cut there. */
#define ZD_TEXT_QUOTED 768u

/* `in` as the value of a key=value line, which nothing in it can end: in quotes, '"' and '\' behind a '\', newline, return and tab as \n, \r,
 * \t, every other byte that is not printable ASCII as \xNN.  Cut in front of what does not fit into size (from 3), and closed.  Returns out. */
const char *zd_text_quote(char *out, size_t size, const char *in);

#endif
