/* SPDX-License-Identifier: Apache-2.0 */
/* What `zeroctl ... --help` says about the commands that ask daemons; plan and simulate make theirs from their options. */
#ifndef ZD_CLI_HELP_H
#define ZD_CLI_HELP_H

/* Text of `noun verb`, of `noun` alone if there is no such verb (or verb is NULL); static.  NULL: no such noun. */
const char *zd_ctl_help(const char *noun, const char *verb);

#endif
