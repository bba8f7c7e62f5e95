/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's answer: fields, tables and notes, collected once and written as
 * aligned text for people, as JSON or as CSV for programs.
 *
 *   report = zd_report_new("plan memory")
 *   zd_report_field(...)            what was asked
 *   zd_report_table(...)            begins a table; rows go to the last one begun
 *   zd_report_row(...)              as many cells as the table has columns
 *   zd_report_note(...)             a sentence for people
 *   zd_report_write(...); zd_report_free(...)
 *
 * JSON: {"command": ..., "inputs": {key: value}, "tables": {key: [{column: value}]},
 * "notes": [...]}. Keys are an interface: they are documented and only added to.
 * Values are in base units (bytes, seconds, bytes a second) whatever the text shows;
 * what is not known is null. CSV: each table with a header line, whose first
 * column is the table's key; tables are separated by an empty line.
 *
 * Memory: every text is copied. A failed allocation is remembered and makes
 * zd_report_write fail, so that a caller checks once. One thread at a time.
 */
#ifndef ZD_CLI_TABLE_H
#define ZD_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum zd_table_format { ZD_FORMAT_TABLE, ZD_FORMAT_JSON, ZD_FORMAT_CSV };

/* How text shows a number; JSON and CSV always have the plain value. */
enum zd_table_kind {
	ZD_KIND_TEXT,
	ZD_KIND_COUNT,	 /* 8192, 7.5e9 */
	ZD_KIND_NUMBER,	 /* 0.97461 */
	ZD_KIND_BYTES,	 /* 31.406 GB */
	ZD_KIND_GIB,	 /* 15.93 GiB */
	ZD_KIND_RATE,	 /* 3.125 GB/s */
	ZD_KIND_SECONDS, /* 8.4058 s, 3.2 years */
	ZD_KIND_BOOL,	 /* yes */
};

struct zd_table_column {
	const char *key;   /* in JSON and CSV */
	const char *title; /* for people */
	enum zd_table_kind kind;
};

enum zd_cell_type { ZD_CELL_NONE, ZD_CELL_TEXT, ZD_CELL_REAL, ZD_CELL_INTEGER, ZD_CELL_BOOL };

struct zd_cell {
	enum zd_cell_type type;
	union {
		const char *text;
		double real;
		uint64_t integer; /* up to 2^63 - 1, JSON's limit here; above it, null */
		bool yes;
	};
};

#define ZD_NONE ((struct zd_cell){ .type = ZD_CELL_NONE })
#define ZD_TEXT(s) ((struct zd_cell){ .type = ZD_CELL_TEXT, .text = (s) })
#define ZD_REAL(x) ((struct zd_cell){ .type = ZD_CELL_REAL, .real = (x) })
#define ZD_INTEGER(x) ((struct zd_cell){ .type = ZD_CELL_INTEGER, .integer = (x) })
#define ZD_BOOL(x) ((struct zd_cell){ .type = ZD_CELL_BOOL, .yes = (x) })

struct zd_report;

/* NULL without memory; every other function here takes that NULL, and
 * zd_report_write then fails. `command` as a person types it. */
struct zd_report *zd_report_new(const char *command);
void zd_report_free(struct zd_report *report);

/* A text that is NULL, and a number that is NaN or infinite, count as unknown. */
void zd_report_field(struct zd_report *report, const char *key, enum zd_table_kind kind,
		     struct zd_cell value);

/* Begins a table of `count` columns, from 1. Columns and title are borrowed:
 * static. An empty title is not printed. */
void zd_report_table(struct zd_report *report, const char *key, const char *title,
		     const struct zd_table_column *columns, size_t count);

/* One cell per column of the table begun last. */
void zd_report_row(struct zd_report *report, const struct zd_cell *cells);

void zd_report_note(struct zd_report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* 0, or -1 when memory ran out on the way here or `out` cannot be written. */
int zd_report_write(const struct zd_report *report, enum zd_table_format format, FILE *out)
	__attribute__((warn_unused_result));

/* `value` as text shows it: at most `size` bytes with the end. For messages. */
void zd_table_show(enum zd_table_kind kind, double value, char *text, size_t size);

#endif
