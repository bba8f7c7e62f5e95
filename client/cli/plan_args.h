/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of one command from one table, which makes the parser, the help and
 * the "inputs" of the answer. A default is a text that goes through the same
 * parser, so help and behaviour cannot differ.
 *
 * getopt_long underneath (argp insists on being the whole program and would
 * have to be told about every noun and verb); it has global state, so parse on
 * one thread at a time.
 */
#ifndef ZD_CLI_PLAN_ARGS_H
#define ZD_CLI_PLAN_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/cli/table.h"

/* Exit codes of zeroctl that commands without a daemon can have. */
enum { ZD_PLAN_EXIT_OK = 0, ZD_PLAN_EXIT_FAILED = 1, ZD_PLAN_EXIT_USAGE = 2 };

/* Options of one command, and values of one list: any command here has half. */
#define ZD_ARGS_MAX 48u
#define ZD_ARG_LIST_MAX 32u

enum zd_arg_kind {
	/* into a double; see plan_number.h */
	ZD_ARG_COUNT,
	ZD_ARG_BYTES,
	ZD_ARG_RATE,
	ZD_ARG_FLOPS,
	ZD_ARG_REAL,
	ZD_ARG_INTEGER, /* into a uint64_t; takes the suffixes of a count */
	ZD_ARG_CHOICE,	/* into an unsigned: index in `choices` */
	ZD_ARG_FLAG,	/* into a bool; takes no value */
	ZD_ARG_TEXTS,	/* into a zd_arg_texts; may be repeated, and holds commas apart */
};

struct zd_arg_texts {
	const char *items[ZD_ARG_LIST_MAX]; /* NUL-terminated, inside `space` */
	size_t count;
	char space[512];
	size_t used;
};

struct zd_arg {
	const char *name; /* long option without its dashes; NULL ends the table */
	char letter;	  /* or 0 */
	enum zd_arg_kind kind;
	size_t offset;	  /* of the field in the struct that is filled */
	double min, max;  /* of numbers, inclusive; max 0: none */
	const char *value_name;
	const char *help;
	const char *def;     /* text of the default; NULL: the field stays 0 */
	bool required;
	const char *choices; /* words parted by '|' */
};

struct zd_command {
	const char *name;     /* "plan memory" */
	const char *summary;
	const char *examples; /* lines, ready to print */
	const struct zd_arg *args;
	size_t size;	      /* of the struct that `args` describes */
	/* Exit code. `options` is that struct. */
	int (*run)(const struct zd_command *command, const void *options, FILE *out, FILE *err);
};

/*
 * argv[0] is the noun ("plan"), argv[1] the verb; commands end with NULL.
 * Parses, runs, and returns the exit code: usage errors go to `err` and return
 * ZD_PLAN_EXIT_USAGE, --help goes to `out`. argv may be reordered. "-h" and "--help"
 * need not be in the table.
 */
int zd_command_dispatch(const struct zd_command *const *commands, int argc, char **argv, FILE *out, FILE *err);

/* Fills `options` from argv[1..] of one command. 0; 1 after help was printed;
 * negative after a usage error was printed. */
int zd_args_parse(const struct zd_command *command, int argc, char **argv, void *options, FILE *out,
		  FILE *err) __attribute__((warn_unused_result));

/* Puts every option's effective value into the report's inputs, key = name with
 * '_' for '-'; "output" and numbers that are 0 because nobody gave them are left out. */
void zd_args_report(const struct zd_command *command, const void *options, struct zd_report *report);

/* A usage error found after parsing; returns ZD_PLAN_EXIT_USAGE. The text says what
 * was expected, what was found and what to do. */
int zd_args_error(const struct zd_command *command, FILE *err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Writes and frees the report; the exit code. */
int zd_args_finish(const struct zd_command *command, struct zd_report *report,
		   enum zd_table_format format, FILE *out, FILE *err);

#endif
