/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the configuration: text to number, size, time, flag, list, and back. */
#include "server/shell/conf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* From the largest down, so that formatting takes the first that divides. */
static const struct unit size_units[] = {
	{"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1}, {NULL, 0},
};
static const struct unit time_units[] = {
	{"h", 3600000000000ull}, {"min", 60000000000ull}, {"s", 1000000000ull}, {"ms", 1000000ull}, {"us", 1000ull}, {NULL, 0},
};

static void *place(struct zd_conf *conf, const struct zd_conf_key *key)
{
	return (char *)conf + key->offset;
}

static const void *place_const(const struct zd_conf *conf, const struct zd_conf_key *key)
{
	return (const char *)conf + key->offset;
}

static int is_number(enum zd_conf_type type)
{
	return type == ZD_CONF_COUNT || type == ZD_CONF_SIZE || type == ZD_CONF_TIME;
}

static const struct unit *units_of(enum zd_conf_type type)
{
	return type == ZD_CONF_SIZE ? size_units : type == ZD_CONF_TIME ? time_units : NULL;
}

static const char *format_number(const struct unit *units, uint64_t value, char *out, size_t size)
{
	const struct unit *u;

	for (u = units; u && u->name; u++)
		if (value && value % u->factor == 0)
			break;
	if (!u || !u->name)
		snprintf(out, size, "%" PRIu64 "%s", value, units == time_units ? (value ? "ns" : "s") : "");
	else
		snprintf(out, size, "%" PRIu64 "%s", value / u->factor, u->name);
	return out;
}

static int parse_number(const struct zd_conf_key *key, const char *value, uint64_t *ret, char *text, size_t size)
{
	const struct unit *units = units_of(key->type), *u;
	char min[32], max[32], *end;
	uint64_t n, factor = 1;

	if (strcmp(key->choices, "auto") == 0 && strcmp(value, "auto") == 0) {
		*ret = 0;
		return 0;
	}
	errno = 0;
	n = strtoull(value, &end, 10);
	while (*end == ' ')
		end++;
	for (u = units; u && u->name && strcmp(u->name, end) != 0; u++)
		;
	if (u && u->name)
		factor = u->factor;
	/* Times without a unit would be guesses; zero is the same in all of them. */
	if (!isdigit((unsigned char)value[0]) || errno || (!(u && u->name) && (*end || (key->type == ZD_CONF_TIME && n))) ||
	    n > UINT64_MAX / factor) {
		snprintf(text, size, "expected %s%s, found \"%s\"",
			 key->type == ZD_CONF_SIZE   ? "bytes with KiB, MiB, GiB or TiB, such as 64GiB" :
			 key->type == ZD_CONF_TIME   ? "a time with us, ms, s, min or h, such as 30s" :
						       "a whole number",
			 *key->choices ? ", or auto" : "", value);
		return -1;
	}
	n *= factor;
	if (n < key->min || n > key->max) {
		snprintf(text, size, "expected %s to %s%s, found \"%s\"%s", format_number(units, key->min, min, sizeof(min)),
			 format_number(units, key->max, max, sizeof(max)), *key->choices ? ", or auto" : "", value,
			 key->type == ZD_CONF_SIZE && !*end ? ", which without a unit is bytes; add KiB, MiB, GiB or TiB" : "");
		return -1;
	}
	*ret = n;
	return 0;
}

static int parse_flag(const char *value, uint64_t *ret, char *text, size_t size)
{
	static const char *const words[2][4] = {{"no", "false", "off", "0"}, {"yes", "true", "on", "1"}};
	int on, i;

	for (on = 0; on < 2; on++)
		for (i = 0; i < 4; i++)
			if (strcmp(value, words[on][i]) == 0) {
				*ret = (uint64_t)on;
				return 0;
			}
	snprintf(text, size, "expected yes or no, found \"%s\"", value);
	return -1;
}

static int parse_word(const struct zd_conf_key *key, const char *value, uint64_t *ret, char *text, size_t size)
{
	const char *p = key->choices;
	uint64_t index = 0;
	size_t len = strlen(value);

	for (;; index++) {
		size_t n = strcspn(p, "|");

		if (n == len && memcmp(p, value, len) == 0) {
			*ret = index;
			return 0;
		}
		if (!p[n])
			break;
		p += n + 1;
	}
	snprintf(text, size, "expected one of %s, found \"%s\"", key->choices, value);
	return -1;
}

static int parse_text(const struct zd_conf_key *key, const char *value, struct zd_conf_text *ret, char *text, size_t size)
{
	size_t len = strlen(value);

	if (len < key->min || len > key->max) {
		snprintf(text, size, "expected %" PRIu64 " to %" PRIu64 " bytes, found %zu", key->min, key->max, len);
		return -1;
	}
	if (key->type == ZD_CONF_PATH && len && value[0] != '/') {
		snprintf(text, size, "expected an absolute path, found \"%s\"", value);
		return -1;
	}
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->s, value, len);
	return 0;
}

static int parse_list(const struct zd_conf_key *key, const char *value, struct zd_conf_list *ret, char *text, size_t size)
{
	struct zd_conf_list list = {0};
	const char *p = value;

	for (;;) {
		size_t n, keep;

		p += strspn(p, " \t");
		n = strcspn(p, ",");
		for (keep = n; keep && (p[keep - 1] == ' ' || p[keep - 1] == '\t'); keep--)
			;
		if (keep == 0 || keep >= sizeof(list.item[0]) || list.count == ZD_CONF_LIST_MAX || list.count == key->max) {
			snprintf(text, size, "expected %" PRIu64 " to %" PRIu64 " items of 1 to %zu bytes, separated by commas, found \"%s\"",
				 key->min, key->max, sizeof(list.item[0]) - 1, value);
			return -1;
		}
		memcpy(list.item[list.count++], p, keep);
		if (!p[n])
			break;
		p += n + 1;
	}
	*ret = list;
	return 0;
}

int zd_conf_parse_value(struct zd_conf *conf, const struct zd_conf_key *key, const char *value, char *text, size_t size)
{
	void *to = place(conf, key);

	switch (key->type) {
	case ZD_CONF_COUNT:
	case ZD_CONF_SIZE:
	case ZD_CONF_TIME:
		return parse_number(key, value, to, text, size);
	case ZD_CONF_FLAG:
		return parse_flag(value, to, text, size);
	case ZD_CONF_WORD:
		return parse_word(key, value, to, text, size);
	case ZD_CONF_LIST:
		return parse_list(key, value, to, text, size);
	case ZD_CONF_TEXT:
	case ZD_CONF_PATH:
		return parse_text(key, value, to, text, size);
	}
	return -1;
}

static const char *format_word(const char *choices, uint64_t index, char *out, size_t size)
{
	for (; index; index--)
		choices += strcspn(choices, "|") + 1;
	snprintf(out, size, "%.*s", (int)strcspn(choices, "|"), choices);
	return out;
}

static const char *format_list(const struct zd_conf_list *list, char *out, size_t size)
{
	size_t n = 0;
	uint32_t i;

	out[0] = '\0';
	for (i = 0; i < list->count && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", list->item[i]);
	return out;
}

const char *zd_conf_format(const struct zd_conf *conf, const struct zd_conf_key *key, char *out, size_t size)
{
	const void *from = place_const(conf, key);
	uint64_t number;

	if (key->type == ZD_CONF_LIST)
		return format_list(from, out, size);
	if (key->type == ZD_CONF_TEXT || key->type == ZD_CONF_PATH) {
		snprintf(out, size, "%s", ((const struct zd_conf_text *)from)->s);
		return out;
	}
	memcpy(&number, from, sizeof(number));
	if (key->type == ZD_CONF_FLAG)
		snprintf(out, size, "%s", number ? "yes" : "no");
	else if (key->type == ZD_CONF_WORD)
		format_word(key->choices, number, out, size);
	else if (number == 0 && is_number(key->type) && *key->choices)
		snprintf(out, size, "auto");
	else
		format_number(units_of(key->type), number, out, size);
	return out;
}

static size_t size_of(enum zd_conf_type type)
{
	switch (type) {
	case ZD_CONF_TEXT:
	case ZD_CONF_PATH:
		return sizeof(struct zd_conf_text);
	case ZD_CONF_LIST:
		return sizeof(struct zd_conf_list);
	default:
		return sizeof(uint64_t);
	}
}

int zd_conf_same(const struct zd_conf *a, const struct zd_conf *b, const struct zd_conf_key *key)
{
	return memcmp(place_const(a, key), place_const(b, key), size_of(key->type)) == 0;
}

void zd_conf_copy_key(struct zd_conf *to, const struct zd_conf *from, const struct zd_conf_key *key)
{
	memcpy(place(to, key), place_const(from, key), size_of(key->type));
	memcpy(to->origin[key - zd_conf_keys], from->origin[key - zd_conf_keys], sizeof(to->origin[0]));
}
