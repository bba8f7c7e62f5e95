/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan_number.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct scale {
	const char *text;
	double factor;
};

/* Longer ones first: "Mi" before "M". */
static const struct scale prefixes[] = {
	{ "Ki", 1024.0 },	   { "Mi", 1048576.0 }, { "Gi", 1073741824.0 },
	{ "Ti", 1099511627776.0 }, { "k", 1e3 },	{ "K", 1e3 },
	{ "M", 1e6 },		   { "G", 1e9 },	{ "T", 1e12 },
	{ "P", 1e15 },
};

static const struct scale units[ZD_NUMBER_KINDS][6] = {
	[ZD_NUMBER_COUNT] = { { "", 1.0 }, { "B", 1e9 } },
	[ZD_NUMBER_BYTES] = { { "", 1.0 }, { "B", 1.0 } },
	[ZD_NUMBER_RATE] = { { "", 1.0 }, { "B/s", 1.0 }, { "b/s", 0.125 }, { "bit/s", 0.125 }, { "bps", 0.125 } },
	[ZD_NUMBER_FLOPS] = { { "", 1.0 }, { "FLOP/s", 1.0 }, { "FLOPS", 1.0 }, { "flops", 1.0 } },
	[ZD_NUMBER_REAL] = { { "", 1.0 } },
};

static const struct scale *find_unit(enum zd_number_kind kind, const char *text)
{
	for (size_t i = 0; i < sizeof(units[kind]) / sizeof(units[kind][0]); i++)
		if (units[kind][i].text != NULL && strcmp(units[kind][i].text, text) == 0)
			return &units[kind][i];
	return NULL;
}

/* A prefix makes some units wrong: a billion has none of its own, and a rate
 * "25G" leaves bits or bytes open. */
static bool prefix_fits(enum zd_number_kind kind, const struct scale *unit)
{
	if (kind == ZD_NUMBER_COUNT)
		return unit->factor == 1.0;
	if (kind == ZD_NUMBER_RATE)
		return unit->text[0] != '\0';
	return kind != ZD_NUMBER_REAL;
}

static bool find_factor(enum zd_number_kind kind, const char *suffix, double *ret_factor)
{
	const struct scale *unit = find_unit(kind, suffix);

	if (unit != NULL) {
		*ret_factor = unit->factor;
		return true;
	}
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t len = strlen(prefixes[i].text);

		if (strncmp(suffix, prefixes[i].text, len) != 0)
			continue;
		unit = find_unit(kind, suffix + len);
		if (unit == NULL || !prefix_fits(kind, unit))
			continue;
		*ret_factor = prefixes[i].factor * unit->factor;
		return true;
	}
	return false;
}

bool zd_plan_number_parse(const char *text, enum zd_number_kind kind, double *ret_value)
{
	char *end;
	double value, factor, whole;

	/* strtod would take blanks, signs, hexadecimals, "inf" and "nan". */
	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return false;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return false;
	value = strtod(text, &end);
	if (end == text || !find_factor(kind, end, &factor))
		return false;
	value *= factor;
	if (!isfinite(value))
		return false;
	/* One product of two rounded factors is within 2^-51 of exact. */
	whole = rint(value);
	if (whole > 0.0 && fabs(value - whole) <= ldexp(whole, -51))
		value = whole;
	*ret_value = value;
	return true;
}

const char *zd_plan_number_expected(enum zd_number_kind kind)
{
	switch (kind) {
	case ZD_NUMBER_COUNT: return "a count such as 7.5e9, 70.6B or 2851M";
	case ZD_NUMBER_BYTES: return "a size such as 3.84TB or 64GiB";
	case ZD_NUMBER_RATE: return "a rate such as 25Gb/s (bits) or 50GB/s (bytes)";
	case ZD_NUMBER_FLOPS: return "operations a second such as 400e12 or 395.6TFLOP/s";
	default: return "a number such as 0.9 or 1e-8";
	}
}
