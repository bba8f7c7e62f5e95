/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/table.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Tables of one report: the longest command has nine. */
#define TABLES_MAX 16u
#define CELL_MAX 64u

/* Doubles below this hold every integer, so one that is whole prints as one. */
#define WHOLE_MAX 9007199254740992.0

/* Fifteen digits give back any decimal a person typed; seventeen would show
 * 0.1 as 0.10000000000000001. */
#define REAL_DIGITS 15

struct table {
	const char *title;
	const struct zd_table_column *columns;
	size_t column_count;
	const char *key; /* owned by json */
	json_t *rows;	 /* owned by json */
};

struct zd_report {
	json_t *json;	      /* what is printed as JSON; owns all values */
	json_t *field_kinds;  /* key -> enum zd_table_kind */
	struct table tables[TABLES_MAX];
	size_t table_count;
	bool failed;
};

struct zd_report *zd_report_new(const char *command)
{
	struct zd_report *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->json = json_pack("{s:s, s:{}, s:{}, s:[]}", "command", command, "inputs", "tables", "notes");
	r->field_kinds = json_object();
	r->failed = r->json == NULL || r->field_kinds == NULL;
	return r;
}

void zd_report_free(struct zd_report *report)
{
	if (report == NULL)
		return;
	json_decref(report->json);
	json_decref(report->field_kinds);
	free(report);
}

static json_t *real_value(double x)
{
	if (!isfinite(x))
		return json_null();
	if (x == rint(x) && fabs(x) < WHOLE_MAX)
		return json_integer((json_int_t)x);
	return json_real(x);
}

static json_t *cell_value(struct zd_cell cell)
{
	switch (cell.type) {
	case ZD_CELL_TEXT: return cell.text != NULL ? json_string(cell.text) : json_null();
	case ZD_CELL_REAL: return real_value(cell.real);
	case ZD_CELL_INTEGER:
		return cell.integer <= INT64_MAX ? json_integer((json_int_t)cell.integer) : json_null();
	case ZD_CELL_BOOL: return json_boolean(cell.yes);
	default: return json_null();
	}
}

void zd_report_field(struct zd_report *report, const char *key, enum zd_table_kind kind,
		     struct zd_cell value)
{
	if (report == NULL || report->failed)
		return;
	if (json_object_set_new(json_object_get(report->json, "inputs"), key, cell_value(value)) != 0 ||
	    json_object_set_new(report->field_kinds, key, json_integer(kind)) != 0)
		report->failed = true;
}

void zd_report_table(struct zd_report *report, const char *key, const char *title,
		     const struct zd_table_column *columns, size_t count)
{
	json_t *tables, *rows;

	if (report == NULL || report->failed)
		return;
	tables = json_object_get(report->json, "tables");
	/* A second table of the same key would replace the rows of the first. */
	if (report->table_count == TABLES_MAX || json_object_get(tables, key) != NULL) {
		report->failed = true;
		return;
	}
	rows = json_array();
	if (json_object_set_new(tables, key, rows) != 0) {
		report->failed = true;
		return;
	}
	report->tables[report->table_count++] = (struct table){
		.title = title,
		.columns = columns,
		.column_count = count,
		.key = json_object_iter_key(json_object_iter_at(tables, key)),
		.rows = rows,
	};
}

void zd_report_row(struct zd_report *report, const struct zd_cell *cells)
{
	struct table *t;
	json_t *row;

	if (report == NULL || report->failed)
		return;
	if (report->table_count == 0) {
		report->failed = true;
		return;
	}
	t = &report->tables[report->table_count - 1];
	row = json_object();
	for (size_t i = 0; i < t->column_count; i++)
		if (json_object_set_new(row, t->columns[i].key, cell_value(cells[i])) != 0)
			report->failed = true;
	if (json_array_append_new(t->rows, row) != 0)
		report->failed = true;
}

void zd_report_note(struct zd_report *report, const char *format, ...)
{
	char text[512];
	va_list args;

	if (report == NULL || report->failed)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (json_array_append_new(json_object_get(report->json, "notes"), json_string(text)) != 0)
		report->failed = true;
}

/* --- numbers for people --- */

struct step {
	double from;
	const char *name;
};

static void show_scaled(double value, const struct step *steps, size_t count, const char *tail,
			char *text, size_t size)
{
	size_t i = 0;

	while (i + 1 < count && fabs(value) >= steps[i + 1].from)
		i++;
	snprintf(text, size, "%.5g %s%s", value / steps[i].from, steps[i].name, tail);
}

/* Whole numbers a person can still read, then 7.5e9 as one types it: printf
 * alone would say 7.5e+09. */
static void show_count(double value, char *text, size_t size)
{
	char *exponent;

	if (value == rint(value) && fabs(value) < 1e7) {
		snprintf(text, size, "%.0f", value);
		return;
	}
	snprintf(text, size, "%.6g", value);
	exponent = strstr(text, "e+");
	if (exponent != NULL) {
		char *digits = exponent + 2 + strspn(exponent + 2, "0");

		memmove(exponent + 1, digits, strlen(digits) + 1);
	}
}

void zd_table_show(enum zd_table_kind kind, double value, char *text, size_t size)
{
	static const struct step bytes[] = {
		{ 1.0, "B" }, { 1e3, "kB" }, { 1e6, "MB" }, { 1e9, "GB" }, { 1e12, "TB" }, { 1e15, "PB" },
	};
	static const struct step seconds[] = {
		{ 1e-9, "ns" }, { 1e-6, "us" },	    { 1e-3, "ms" },	 { 1.0, "s" },
		{ 3600.0, "h" }, { 86400.0, "days" }, { 31536000.0, "years" },
	};

	switch (kind) {
	case ZD_KIND_BYTES: show_scaled(value, bytes, sizeof(bytes) / sizeof(bytes[0]), "", text, size); return;
	case ZD_KIND_RATE: show_scaled(value, bytes, sizeof(bytes) / sizeof(bytes[0]), "/s", text, size); return;
	case ZD_KIND_GIB: snprintf(text, size, "%.2f GiB", value / 1073741824.0); return;
	case ZD_KIND_SECONDS:
		if (value == 0.0)
			snprintf(text, size, "0 s");
		else
			show_scaled(value, seconds, sizeof(seconds) / sizeof(seconds[0]), "", text, size);
		return;
	case ZD_KIND_COUNT: show_count(value, text, size); return;
	case ZD_KIND_BOOL: snprintf(text, size, "%s", value != 0.0 ? "yes" : "no"); return;
	default: snprintf(text, size, "%.5g", value); return;
	}
}

/* The text of a value: borrowed from the value, or in `space`. */
static const char *show_value(enum zd_table_kind kind, const json_t *value, char space[CELL_MAX])
{
	if (value == NULL || json_is_null(value))
		return "-";
	if (json_is_string(value))
		return json_string_value(value);
	if (json_is_boolean(value))
		return json_is_true(value) ? "yes" : "no";
	if (kind == ZD_KIND_COUNT && json_is_integer(value) && llabs(json_integer_value(value)) < 10000000)
		snprintf(space, CELL_MAX, "%lld", (long long)json_integer_value(value));
	else
		zd_table_show(kind, json_number_value(value), space, CELL_MAX);
	return space;
}

/* --- text --- */

/* Columns on a screen: bytes of UTF-8 that do not continue a character. */
static int text_width(const char *text)
{
	int width = 0;

	for (; *text != '\0'; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void put_padded(FILE *out, const char *text, int width, bool right, bool last)
{
	int pad = width - text_width(text);

	if (right)
		fprintf(out, "%*s%s", pad, "", text);
	else
		fprintf(out, "%s%*s", text, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", out);
}

static void write_text_table(const struct table *t, FILE *out)
{
	int *widths = calloc(t->column_count, sizeof(*widths));
	char space[CELL_MAX];
	size_t r;
	json_t *row;

	if (widths == NULL) {
		fputs("(not enough memory to lay out this table)\n", out);
		return;
	}
	for (size_t c = 0; c < t->column_count; c++) {
		widths[c] = text_width(t->columns[c].title);
		json_array_foreach(t->rows, r, row) {
			const json_t *value = json_object_get(row, t->columns[c].key);
			int width = text_width(show_value(t->columns[c].kind, value, space));

			widths[c] = width > widths[c] ? width : widths[c];
		}
	}
	if (t->title[0] != '\0')
		fprintf(out, "%s\n", t->title);
	for (size_t c = 0; c < t->column_count; c++)
		put_padded(out, t->columns[c].title, widths[c], t->columns[c].kind != ZD_KIND_TEXT,
			   c + 1 == t->column_count);
	json_array_foreach(t->rows, r, row)
		for (size_t c = 0; c < t->column_count; c++)
			put_padded(out,
				   show_value(t->columns[c].kind, json_object_get(row, t->columns[c].key), space),
				   widths[c], t->columns[c].kind != ZD_KIND_TEXT, c + 1 == t->column_count);
	free(widths);
}

/* Long enough to be read in one go, short enough for a terminal. */
#define LINE_MAX_COLUMNS 96

static void write_text_fields(const struct zd_report *r, FILE *out)
{
	const char *key;
	json_t *value;
	int column = fprintf(out, "%s:", json_string_value(json_object_get(r->json, "command")));

	json_object_foreach(json_object_get(r->json, "inputs"), key, value) {
		enum zd_table_kind kind =
			(enum zd_table_kind)json_integer_value(json_object_get(r->field_kinds, key));
		char space[CELL_MAX];
		const char *text = show_value(kind, value, space);

		if (json_is_null(value))
			continue;
		if (column + (int)(strlen(key) + strlen(text)) + 2 > LINE_MAX_COLUMNS)
			column = fprintf(out, "\n ") - 1;
		column += fprintf(out, " %s=%s", key, text);
	}
	fputc('\n', out);
}

static void write_text(const struct zd_report *r, FILE *out)
{
	size_t i;
	json_t *note;
	json_t *notes = json_object_get(r->json, "notes");

	if (json_object_size(json_object_get(r->json, "inputs")) > 0)
		write_text_fields(r, out);
	for (i = 0; i < r->table_count; i++) {
		if (i > 0 || json_object_size(json_object_get(r->json, "inputs")) > 0)
			fputc('\n', out);
		write_text_table(&r->tables[i], out);
	}
	if (json_array_size(notes) > 0)
		fputc('\n', out);
	json_array_foreach(notes, i, note)
		fprintf(out, "note: %s\n", json_string_value(note));
}

/* --- CSV, RFC 4180 but for the line ends --- */

static void put_csv_text(FILE *out, const char *text)
{
	if (strpbrk(text, ",\"\r\n") == NULL) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text != '\0'; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void put_csv_value(FILE *out, const json_t *value)
{
	fputc(',', out);
	if (json_is_string(value))
		put_csv_text(out, json_string_value(value));
	else if (json_is_integer(value))
		fprintf(out, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		fprintf(out, "%.*g", REAL_DIGITS, json_real_value(value));
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "true" : "false", out);
}

static void write_csv(const struct zd_report *r, FILE *out)
{
	for (size_t i = 0; i < r->table_count; i++) {
		const struct table *t = &r->tables[i];
		size_t n;
		json_t *row;

		fputs(i == 0 ? "table" : "\ntable", out);
		for (size_t c = 0; c < t->column_count; c++)
			fprintf(out, ",%s", t->columns[c].key);
		fputc('\n', out);
		json_array_foreach(t->rows, n, row) {
			put_csv_text(out, t->key);
			for (size_t c = 0; c < t->column_count; c++)
				put_csv_value(out, json_object_get(row, t->columns[c].key));
			fputc('\n', out);
		}
	}
}

int zd_report_write(const struct zd_report *report, enum zd_table_format format, FILE *out)
{
	if (report == NULL || report->failed)
		return -1;
	switch (format) {
	case ZD_FORMAT_JSON:
		if (json_dumpf(report->json, out, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS)) != 0)
			return -1;
		fputc('\n', out);
		break;
	case ZD_FORMAT_CSV: write_csv(report, out); break;
	default: write_text(report, out); break;
	}
	return fflush(out) == 0 && ferror(out) == 0 ? 0 : -1;
}
