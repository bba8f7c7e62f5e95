/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs have in common: how they treat their standard descriptors, and help.  Main thread. */
#ifndef ZD_PROTO_PROGRAM_H
#define ZD_PROTO_PROGRAM_H

#include <argp.h>

/* First thing in main.  Closed descriptors 0 to 2 are filled, and a program that would exit with 0 although its standard output could not be
 * written says so after `name` (static) and exits with 1. */
void zd_program_begin(const char *name);

/* Help, which argp's own (ARGP_NO_HELP keeps it away) would not begin with examples, and has no -h: the rows of an option table, and what its
 * parser asks first.  1: the key was one of them, and was answered (--version and --usage end the program). */
#define ZD_PROGRAM_USAGE 0x4000
#define ZD_PROGRAM_OPTIONS                                                                                                             \
	{"help", 'h', NULL, 0, "this text", -1}, {NULL, '?', NULL, OPTION_HIDDEN, NULL, -1},                                             \
	{"usage", ZD_PROGRAM_USAGE, NULL, 0, "the options in short", -1}, {"version", 'V', NULL, 0, "version", -1}
int zd_program_help(int key, const char *examples, struct argp_state *state);

#endif
