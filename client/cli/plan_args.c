/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan_args.h"

#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/plan_number.h"

/* getopt_long's value for the n-th option; above any letter. */
#define OPTION_BASE 256

static enum zd_number_kind number_kind(enum zd_arg_kind kind)
{
	switch (kind) {
	case ZD_ARG_BYTES: return ZD_NUMBER_BYTES;
	case ZD_ARG_RATE: return ZD_NUMBER_RATE;
	case ZD_ARG_FLOPS: return ZD_NUMBER_FLOPS;
	case ZD_ARG_REAL: return ZD_NUMBER_REAL;
	default: return ZD_NUMBER_COUNT;
	}
}

int zd_args_error(const struct zd_command *command, FILE *err, const char *format, ...)
{
	va_list args;

	fprintf(err, "zeroctl %s: ", command->name);
	va_start(args, format);
	vfprintf(err, format, args);
	va_end(args);
	fprintf(err, "; see: zeroctl %s --help\n", command->name);
	return ZD_PLAN_EXIT_USAGE;
}

/* --- values --- */

/* As short as it can be told without rounding: "expected 0 to 1, found '1'" would be a riddle. */
static const char *bound(double value, char out[32])
{
	int digits = 6;

	do
		snprintf(out, 32, "%.*g", digits, value);
	while (strtod(out, NULL) != value && ++digits <= 17);
	return out;
}

static bool within(const struct zd_command *cmd, const struct zd_arg *arg, double value, const char *text, FILE *err)
{
	char min[32], max[32];

	if (value >= arg->min && (arg->max == 0.0 || value <= arg->max))
		return true;
	if (arg->max > 0.0)
		zd_args_error(cmd, err, "--%s: expected %s to %s, found '%s'", arg->name, bound(arg->min, min), bound(arg->max, max), text);
	else
		zd_args_error(cmd, err, "--%s: expected %s, at least %s, found '%s'", arg->name,
			      zd_plan_number_expected(number_kind(arg->kind)), bound(arg->min, min), text);
	return false;
}

static bool set_number(const struct zd_command *cmd, const struct zd_arg *arg, const char *text,
		       char *field, FILE *err)
{
	enum zd_number_kind kind = number_kind(arg->kind);
	double value;

	if (!zd_plan_number_parse(text, kind, &value)) {
		zd_args_error(cmd, err, "--%s: expected %s, found '%s'", arg->name,
			      zd_plan_number_expected(kind), text);
		return false;
	}
	if (arg->kind == ZD_ARG_INTEGER && value != rint(value)) {
		zd_args_error(cmd, err, "--%s: expected a whole number, found '%s'", arg->name, text);
		return false;
	}
	if (!within(cmd, arg, value, text, err))
		return false;
	if (arg->kind == ZD_ARG_INTEGER) {
		uint64_t whole = (uint64_t)value;

		memcpy(field, &whole, sizeof(whole));
	} else {
		memcpy(field, &value, sizeof(value));
	}
	return true;
}

static bool set_choice(const struct zd_command *cmd, const struct zd_arg *arg, const char *text,
		       char *field, FILE *err)
{
	const char *word = arg->choices;

	for (unsigned index = 0;; index++) {
		size_t len = strcspn(word, "|");

		if (strlen(text) == len && strncmp(word, text, len) == 0) {
			memcpy(field, &index, sizeof(index));
			return true;
		}
		if (word[len] == '\0')
			break;
		word += len + 1;
	}
	zd_args_error(cmd, err, "--%s: expected one of %s, found '%s'", arg->name, arg->choices, text);
	return false;
}

static bool add_texts(const struct zd_command *cmd, const struct zd_arg *arg, const char *text,
		      struct zd_arg_texts *list, FILE *err)
{
	for (;;) {
		size_t len = strcspn(text, ",");

		if (list->count == ZD_ARG_LIST_MAX || list->used + len + 1 > sizeof(list->space)) {
			zd_args_error(cmd, err, "--%s: expected at most %u values of %zu characters together, found more",
				      arg->name, ZD_ARG_LIST_MAX, sizeof(list->space));
			return false;
		}
		if (len == 0) {
			zd_args_error(cmd, err, "--%s: expected %s, found an empty value", arg->name,
				      arg->value_name);
			return false;
		}
		list->items[list->count++] = memcpy(list->space + list->used, text, len);
		list->space[list->used + len] = '\0';
		list->used += len + 1;
		if (text[len] == '\0')
			return true;
		text += len + 1;
	}
}

static bool set_value(const struct zd_command *cmd, const struct zd_arg *arg, const char *text,
		      void *options, FILE *err)
{
	char *field = (char *)options + arg->offset;

	switch (arg->kind) {
	case ZD_ARG_CHOICE: return set_choice(cmd, arg, text, field, err);
	case ZD_ARG_FLAG: *(bool *)field = true; return true;
	case ZD_ARG_TEXTS: return add_texts(cmd, arg, text, (struct zd_arg_texts *)(void *)field, err);
	default: return set_number(cmd, arg, text, field, err);
	}
}

/* --- help --- */

static void print_help(const struct zd_command *cmd, FILE *out)
{
	fprintf(out, "Examples:\n%s\nzeroctl %s: %s\n\nOptions:\n", cmd->examples, cmd->name, cmd->summary);
	for (const struct zd_arg *a = cmd->args; a->name != NULL; a++) {
		char left[64];
		const char *value = a->kind == ZD_ARG_CHOICE ? a->choices : a->value_name;

		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", a->letter ? '-' : ' ', a->letter ? a->letter : ' ',
			 a->letter ? ", " : "  ", a->name, a->kind == ZD_ARG_FLAG ? "" : " ",
			 a->kind == ZD_ARG_FLAG ? "" : value);
		fprintf(out, "  %-34s %s", left, a->help);
		if (a->required)
			fputs(" (required)", out);
		else if (a->def != NULL)
			fprintf(out, " (default %s)", a->def);
		fputc('\n', out);
	}
	fprintf(out, "  %-34s %s\n", "-h, --help", "this text");
}

static void print_commands(const struct zd_command *const *commands, const char *noun, FILE *out)
{
	fprintf(out, "Examples:\n");
	for (const struct zd_command *const *c = commands; *c != NULL; c++)
		fprintf(out, "%.*s\n", (int)strcspn((*c)->examples, "\n"), (*c)->examples);
	fprintf(out, "\nCommands:\n");
	for (const struct zd_command *const *c = commands; *c != NULL; c++)
		fprintf(out, "  zeroctl %-16s %s\n", (*c)->name, (*c)->summary);
	fprintf(out, "\nzeroctl %s COMMAND --help lists the options of one.\n", noun);
}

/* --- parsing --- */

struct getopt_table {
	struct option longs[ZD_ARGS_MAX + 2];
	char letters[2 * ZD_ARGS_MAX + 4];
};

static size_t build_table(const struct zd_command *cmd, struct getopt_table *t)
{
	size_t n = 0, l = 0;

	/* '+': stop at the first word that is no option; ':': report a missing value as ':'. */
	t->letters[l++] = '+';
	t->letters[l++] = ':';
	t->letters[l++] = 'h';
	for (const struct zd_arg *a = cmd->args; a->name != NULL && n < ZD_ARGS_MAX; a++, n++) {
		bool flag = a->kind == ZD_ARG_FLAG;

		t->longs[n] = (struct option){ a->name, flag ? no_argument : required_argument, NULL,
					       OPTION_BASE + (int)n };
		if (a->letter) {
			t->letters[l++] = a->letter;
			if (!flag)
				t->letters[l++] = ':';
		}
	}
	t->letters[l] = '\0';
	t->longs[n] = (struct option){ "help", no_argument, NULL, 'h' };
	t->longs[n + 1] = (struct option){ NULL, 0, NULL, 0 };
	return n;
}

static const struct zd_arg *find_arg(const struct zd_command *cmd, size_t count, int opt)
{
	if (opt >= OPTION_BASE)
		return &cmd->args[opt - OPTION_BASE];
	for (size_t i = 0; i < count; i++)
		if (cmd->args[i].letter == opt)
			return &cmd->args[i];
	return NULL;
}

/* Defaults for what was not given, and the complaint for what had to be. */
static bool fill_rest(const struct zd_command *cmd, const bool *given, size_t count, void *options, FILE *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct zd_arg *a = &cmd->args[i];

		if (given[i])
			continue;
		if (a->required) {
			zd_args_error(cmd, err, "expected --%s %s (%s), found none", a->name, a->value_name,
				      a->help);
			return false;
		}
		if (a->def != NULL && !set_value(cmd, a, a->def, options, err))
			return false;
	}
	return true;
}

int zd_args_parse(const struct zd_command *command, int argc, char **argv, void *options, FILE *out, FILE *err)
{
	struct getopt_table table;
	bool given[ZD_ARGS_MAX] = { false };
	size_t count = build_table(command, &table);
	int opt;

	memset(options, 0, command->size);
	optind = 0; /* start anew, GNU's way: also forgets an unfinished cluster of letters */
	opterr = 0;
	while ((opt = getopt_long(argc, argv, table.letters, table.longs, NULL)) != -1) {
		const struct zd_arg *a;

		if (opt == 'h') {
			print_help(command, out);
			return 1;
		}
		if (opt == ':' || opt == '?') {
			zd_args_error(command, err, opt == ':' ? "expected a value after '%s', found none" :
				      "expected an option of this command, found '%s'", argv[optind - 1]);
			return -1;
		}
		a = find_arg(command, count, opt);
		/* Of choices the last one counts: a wrapper puts its own -o first. */
		if (given[a - command->args] && a->kind != ZD_ARG_TEXTS && a->kind != ZD_ARG_CHOICE) {
			zd_args_error(command, err, "expected --%s once, found it again; remove one", a->name);
			return -1;
		}
		given[a - command->args] = true;
		if (!set_value(command, a, optarg, options, err))
			return -1;
	}
	if (optind < argc) {
		zd_args_error(command, err, "expected only options, found '%s'", argv[optind]);
		return -1;
	}
	return fill_rest(command, given, count, options, err) ? 0 : -1;
}

/* --- report and dispatch --- */

static enum zd_table_kind report_kind(enum zd_arg_kind kind)
{
	switch (kind) {
	case ZD_ARG_BYTES: return ZD_KIND_BYTES;
	case ZD_ARG_RATE: return ZD_KIND_RATE;
	case ZD_ARG_COUNT:
	case ZD_ARG_FLOPS:
	case ZD_ARG_INTEGER: return ZD_KIND_COUNT;
	case ZD_ARG_FLAG: return ZD_KIND_BOOL;
	case ZD_ARG_REAL: return ZD_KIND_NUMBER;
	default: return ZD_KIND_TEXT;
	}
}

static void report_choice(struct zd_report *report, const char *key, const char *choices, unsigned index)
{
	char word[32];

	for (; index > 0; index--)
		choices += strcspn(choices, "|") + 1;
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(choices, "|"), choices);
	zd_report_field(report, key, ZD_KIND_TEXT, ZD_TEXT(word));
}

static void report_texts(struct zd_report *report, const char *key, const struct zd_arg_texts *list)
{
	char all[sizeof(list->space)];
	size_t used = 0;

	if (list->count == 0)
		return;
	for (size_t i = 0; i < list->count; i++)
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i ? "," : "", list->items[i]);
	zd_report_field(report, key, ZD_KIND_TEXT, ZD_TEXT(all));
}

static void report_number(struct zd_report *report, const char *key, const struct zd_arg *a, double value)
{
	if (value != 0.0 || a->def != NULL || a->required)
		zd_report_field(report, key, report_kind(a->kind), ZD_REAL(value));
}

void zd_args_report(const struct zd_command *command, const void *options, struct zd_report *report)
{
	for (const struct zd_arg *a = command->args; a->name != NULL; a++) {
		const char *field = (const char *)options + a->offset;
		char key[32];
		uint64_t whole;
		double real;

		if (strcmp(a->name, "output") == 0)
			continue;
		snprintf(key, sizeof(key), "%s", a->name);
		for (char *c = key; *c != '\0'; c++)
			*c = *c == '-' ? '_' : *c;
		switch (a->kind) {
		case ZD_ARG_CHOICE: report_choice(report, key, a->choices, *(const unsigned *)(const void *)field); break;
		case ZD_ARG_FLAG: zd_report_field(report, key, ZD_KIND_BOOL, ZD_BOOL(*(const bool *)field)); break;
		case ZD_ARG_TEXTS: report_texts(report, key, (const struct zd_arg_texts *)(const void *)field); break;
		case ZD_ARG_INTEGER:
			memcpy(&whole, field, sizeof(whole));
			if (whole != 0 || a->def != NULL || a->required)
				zd_report_field(report, key, ZD_KIND_COUNT, ZD_INTEGER(whole));
			break;
		default:
			memcpy(&real, field, sizeof(real));
			report_number(report, key, a, real);
			break;
		}
	}
}

int zd_args_finish(const struct zd_command *command, struct zd_report *report, enum zd_table_format format,
		   FILE *out, FILE *err)
{
	int rc = zd_report_write(report, format, out);

	zd_report_free(report);
	if (rc == 0)
		return ZD_PLAN_EXIT_OK;
	fprintf(err, "zeroctl %s: expected to write the whole answer, could not; check the free memory and where "
		     "the output goes\n", command->name);
	return ZD_PLAN_EXIT_FAILED;
}

static const struct zd_command *find_command(const struct zd_command *const *commands, const char *noun, const char *verb)
{
	size_t len = strlen(noun);

	for (const struct zd_command *const *c = commands; *c != NULL; c++)
		if (strncmp((*c)->name, noun, len) == 0 && (*c)->name[len] == ' ' &&
		    strcmp((*c)->name + len + 1, verb) == 0)
			return *c;
	return NULL;
}

int zd_command_dispatch(const struct zd_command *const *commands, int argc, char **argv, FILE *out, FILE *err)
{
	const char *verb = argc > 1 ? argv[1] : NULL;
	const struct zd_command *command;
	void *options;
	int rc;

	if (verb != NULL && (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0)) {
		print_commands(commands, argv[0], out);
		return ZD_PLAN_EXIT_OK;
	}
	command = verb != NULL ? find_command(commands, argv[0], verb) : NULL;
	if (command == NULL) {
		fprintf(err, "zeroctl %s: expected a command, found %s%s%s\n\n", argv[0], verb ? "'" : "",
			verb ? verb : "none", verb ? "'" : "");
		print_commands(commands, argv[0], err);
		return ZD_PLAN_EXIT_USAGE;
	}
	options = malloc(command->size);
	if (options == NULL) {
		fprintf(err, "zeroctl %s: expected %zu bytes of memory, found none\n", command->name, command->size);
		return ZD_PLAN_EXIT_FAILED;
	}
	rc = zd_args_parse(command, argc - 1, argv + 1, options, out, err);
	if (rc == 0)
		rc = command->run(command, options, out, err);
	else
		rc = rc > 0 ? ZD_PLAN_EXIT_OK : ZD_PLAN_EXIT_USAGE;
	free(options);
	return rc;
}
