/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that do not offer payload checksums, to see what checksums cost.  The product has no such switch: on a connection without TLS
 * payloads are always checked, and its daemon asks for that.  zd_bench_unchecked is the daemon that does not (server/shell/door.c).
 *
 * The linker puts this between zerod_connect and the function that says what a session offers (--wrap).
 */
#ifndef ZD_BENCH_CRC_SWITCH_H
#define ZD_BENCH_CRC_SWITCH_H

/* For this process, for ever. */
void zd_crc_switch_off(void);

#endif
