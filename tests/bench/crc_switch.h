/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums that cost nothing, to see what they cost: stands before ISA-L's crc32_iscsi and, once switched off, returns its start value
 * without looking at a byte.  Both sides then agree on every checksum.  The product has no such switch: on a connection without TLS payloads
 * are always checked.
 *
 * Linked into the measuring program, and built as a module that the daemon loads by LD_PRELOAD; there ZD_BENCH_NO_CRC switches it off.
 */
#ifndef ZD_BENCH_CRC_SWITCH_H
#define ZD_BENCH_CRC_SWITCH_H

#define ZD_CRC_SWITCH_ENV "ZD_BENCH_NO_CRC"

/* For this process, for ever. */
void zd_crc_switch_off(void);

#endif
