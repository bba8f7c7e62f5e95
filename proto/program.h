/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs have in common in how they treat their standard descriptors.  Main thread. */
#ifndef ZD_PROTO_PROGRAM_H
#define ZD_PROTO_PROGRAM_H

/* First thing in main.  Closed descriptors 0 to 2 are filled, and a program that would exit with 0 although its standard output could not be
 * written says so after `name` (static) and exits with 1. */
void zd_program_begin(const char *name);

#endif
