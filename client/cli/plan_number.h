/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities as people write them: 7.5e9, 70.6B, 2851M, 64GiB, 25Gb/s, 50GB/s,
 * 395.6TFLOP/s. Decimal prefixes k M G T P, binary ones Ki Mi Gi Ti; for counts B
 * is a billion. A rate with a prefix must say bits (b, bit, bps) or bytes (B),
 * because both are common and eight apart.
 *
 * Pure but for the C locale's decimal point, which strtod reads; any thread.
 */
#ifndef ZD_CLI_PLAN_NUMBER_H
#define ZD_CLI_PLAN_NUMBER_H

#include <stdbool.h>

enum zd_number_kind {
	ZD_NUMBER_COUNT, /* parameters, elements, tokens */
	ZD_NUMBER_BYTES,
	ZD_NUMBER_RATE,	 /* bytes a second */
	ZD_NUMBER_FLOPS, /* operations a second */
	ZD_NUMBER_REAL,	 /* no suffix */
	ZD_NUMBER_KINDS,
};

/*
 * The whole of `text` as a quantity of `kind`, in its base unit; zero or above,
 * finite. False, with *ret_value untouched, for anything else. A result within
 * rounding of an integer is that integer: 70.6B is exactly 70600000000.
 */
bool zd_plan_number_parse(const char *text, enum zd_number_kind kind, double *ret_value)
	__attribute__((warn_unused_result));

/* What is accepted, for an error message: "a count such as 7.5e9, 70.6B or 2851M". */
const char *zd_plan_number_expected(enum zd_number_kind kind);

#endif
