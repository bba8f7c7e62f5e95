/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: one table (conf.def), five layers.
 *
 *     defaults < file < drop-ins <file>.d/<name>.conf in order of name < environment ZEROD_SECTION_KEY < --set section.key=value
 *
 * All of it is applied or nothing, and all mistakes are reported at once, each as "where: what was expected, what was found".
 * Where every value came from is kept, for --dump-config and for the message about a reload.
 *
 * Threads: none; a configuration is a value that its owner copies.
 */
#ifndef ZD_SHELL_CONF_H
#define ZD_SHELL_CONF_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/err.h"

#define ZD_CONF_TEXT_MAX 255u /* bytes of a text; lines of the file end at 198 bytes anyway, as inih reads them */
#define ZD_CONF_LIST_MAX 8u
#define ZD_CONF_ERRORS_MAX 4096u /* bytes of messages */

struct zd_conf_text {
	char s[ZD_CONF_TEXT_MAX + 1];
};

struct zd_conf_list {
	uint32_t count;
	char item[ZD_CONF_LIST_MAX][64];
};

enum zd_conf_type { ZD_CONF_COUNT, ZD_CONF_SIZE, ZD_CONF_TIME, ZD_CONF_FLAG, ZD_CONF_TEXT, ZD_CONF_LIST, ZD_CONF_PATH, ZD_CONF_WORD };

/* Numbers of all kinds are 64 bits wide; 0 where the file may say "auto"; a WORD is its index among the choices. */
#define ZD_CONF_C_COUNT uint64_t
#define ZD_CONF_C_SIZE uint64_t
#define ZD_CONF_C_TIME uint64_t
#define ZD_CONF_C_FLAG uint64_t
#define ZD_CONF_C_WORD uint64_t
#define ZD_CONF_C_TEXT struct zd_conf_text
#define ZD_CONF_C_PATH struct zd_conf_text
#define ZD_CONF_C_LIST struct zd_conf_list

enum {
#define X(section, key, TYPE, ...) ZD_CONF_KEY_##section##_##key,
#include "server/conf.def"
#undef X
	ZD_CONF_KEYS
};

struct zd_conf {
#define X(section, key, TYPE, ...) ZD_CONF_C_##TYPE section##_##key;
#include "server/conf.def"
#undef X
	char origin[ZD_CONF_KEYS][128]; /* "default", "FILE:LINE", "environment ZEROD_...", "--set" */
};

/* The order of WORD choices in conf.def. */
enum { ZD_CONF_HUGE_MADVISE, ZD_CONF_HUGE_OFF };

struct zd_conf_key {
	const char *section, *key;
	enum zd_conf_type type;
	const char *initial;
	uint64_t min, max;
	int reload;
	const char *choices, *help, *why;
	size_t offset; /* in struct zd_conf */
};
extern const struct zd_conf_key zd_conf_keys[ZD_CONF_KEYS];

/* Messages about what is wrong, one a line; a mistake that does not fit any more is counted by the last line. */
struct zd_conf_errors {
	uint32_t count, shown;
	size_t len;
	char text[ZD_CONF_ERRORS_MAX];
};

/* Where the layers come from.  file: NULL for none; must_exist: 0 if its absence means defaults.  env: as environ, NULL for none.
 * sets: "section.key=value", set_count of them. */
struct zd_conf_sources {
	const char *file;
	int must_exist;
	char *const *env;
	const char *const *sets;
	uint32_t set_count;
};

/* All layers and the checks that look at several keys.  0, or -1 with messages in *errors; *ret_conf is written only on success. */
int zd_conf_load(struct zd_conf *ret_conf, const struct zd_conf_sources *sources, struct zd_conf_errors *errors) ZD_MUST_USE;

void zd_conf_defaults(struct zd_conf *conf);
/* The first key of that name, or NULL. */
const struct zd_conf_key *zd_conf_find(const char *section, const char *key);

/* A value as it would stand in the file; `out` has at least 640 bytes. */
const char *zd_conf_format(const struct zd_conf *conf, const struct zd_conf_key *key, char *out, size_t size);

/* Parses one value into its place: 0, or -1 with what was expected in *text. */
int zd_conf_parse_value(struct zd_conf *conf, const struct zd_conf_key *key, const char *value, char *text, size_t size) ZD_MUST_USE;

/* 1 if `a` and `b` have the same value of that key. */
int zd_conf_same(const struct zd_conf *a, const struct zd_conf *b, const struct zd_conf_key *key);
void zd_conf_copy_key(struct zd_conf *to, const struct zd_conf *from, const struct zd_conf_key *key);

void zd_conf_dump(const struct zd_conf *conf, FILE *out);   /* effective values and where each came from */
void zd_conf_print_sample(FILE *out);			    /* deploy/zerod.conf */
void zd_conf_print_man(FILE *out);			    /* the generated part of zerod.conf(5), in scdoc's language */
void zd_conf_print_keys(FILE *out);			    /* for --help */

void zd_conf_error(struct zd_conf_errors *errors, const char *where, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
