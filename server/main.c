/* SPDX-License-Identifier: Apache-2.0 */
/* zerod: options, configuration, and the daemon. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/program.h"
#include "proto/text.h"
#include "server/shell/conf.h"
#include "server/shell/daemon.h"
#include "server/shell/log.h"

#define DEFAULT_FILE "/etc/zerod/zerod.conf"
#define SETS_MAX 64u

extern char **environ;

enum { OPT_CHECK = 256, OPT_DUMP, OPT_SET, OPT_SAMPLE, OPT_MAN, OPT_PORT_FILE };

enum mode { RUN, CHECK, DUMP, SAMPLE, MAN };

struct options {
	struct zd_conf_sources sources;
	const char *sets[SETS_MAX];
	char port_file[2048];
	enum mode mode;
};

static const struct argp_option option_list[] = {
	{"config", 'c', "FILE", 0, "Configuration; drop-ins are FILE.d/*.conf (default: " DEFAULT_FILE ", if it exists)", 0},
	{"set", OPT_SET, "SECTION.KEY=VALUE", 0, "Override one value; may be repeated, the last one counts", 0},
	{"port-file", OPT_PORT_FILE, "FILE", 0, "Write the port to FILE once the daemon listens (listen.port_file)", 0},
	{"check-config", OPT_CHECK, NULL, 0, "Check the configuration: exit 0, or 78 with every mistake", 0},
	{"dump-config", OPT_DUMP, NULL, 0, "Print every value in effect and where it came from", 0},
	{"print-sample-config", OPT_SAMPLE, NULL, 0, "Print a configuration file with all keys and defaults", 0},
	{"print-config-man", OPT_MAN, NULL, 0, "Print the keys in the language of scdoc", 0},
	ZD_PROGRAM_OPTIONS,
	{0},
};

static const char examples[] =
	"Examples:\n"
	"  zerod --set memory.budget=4GiB\n"
	"  zerod --set listen.port=0 --port-file /tmp/port\n"
	"  zerod --print-sample-config >/etc/zerod/main.conf\n"
	"  zerod -c /etc/zerod/main.conf --check-config\n"
	"\n";

static void set_port_file(struct argp_state *state, struct options *o, const char *path)
{
	char cwd[1024] = "";

	/* As typed in a shell, it may be relative; the configuration takes absolute ones only. */
	if (*path != '/' && !getcwd(cwd, sizeof(cwd)))
		argp_failure(state, ZD_EXIT_USAGE, errno, "--port-file %s", path);
	snprintf(o->port_file, sizeof(o->port_file), "listen.port_file=%s%s%.900s", cwd, *cwd ? "/" : "", path);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'c':
		if (!*arg)
			argp_error(state, "--config: expected a file, found an empty name");
		o->sources.file = arg;
		o->sources.must_exist = 1;
		return 0;
	case OPT_SET:
		if (o->sources.set_count == SETS_MAX - 1)
			argp_error(state, "more than %u times --set", SETS_MAX - 1);
		o->sets[o->sources.set_count++] = arg;
		return 0;
	case OPT_PORT_FILE:
		if (!*arg)
			argp_error(state, "--port-file: expected a file, found an empty name");
		set_port_file(state, o, arg);
		return 0;
	case OPT_CHECK:
		o->mode = CHECK;
		return 0;
	case OPT_DUMP:
		o->mode = DUMP;
		return 0;
	case OPT_SAMPLE:
		o->mode = SAMPLE;
		return 0;
	case OPT_MAN:
		o->mode = MAN;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "expected only options, found \"%s\"", arg);
		return 0;
	default:
		return zd_program_help(key, examples, state) ? 0 : ARGP_ERR_UNKNOWN;
	}
}

/* --help ends with the keys of the table. */
static char *help_filter(int key, const char *text, void *input)
{
	char *keys = NULL;
	size_t size;
	FILE *f;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)(uintptr_t)text;
	f = open_memstream(&keys, &size);
	if (!f)
		return (char *)(uintptr_t)text;
	fputs("Keys, each also as ZEROD_SECTION_KEY in the environment:\n\n", f);
	zd_conf_print_keys(f);
	fputs("\nExit status: 0 ended as asked, 1 failed while running, 2 usage, 75 the port is taken, 78 configuration.", f);
	fclose(f);
	return keys;
}

/* Each mistake behind our name: it may stand in the log of a script, among others'. */
static void print_mistakes(char *text)
{
	char *line, *save = NULL;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		zd_log_before(ZD_LOG_ERROR, line);
}

static void failed_assert(const char *file, int line, const char *what)
{
	char quoted[ZD_TEXT_QUOTED];

	zd_log(ZD_LOG_ERROR, "event=assertion file=%s line=%d what=%s: a fault in zerod itself, please report it", file, line,
	       zd_text_quote(quoted, sizeof(quoted), what));
	abort();
}

static enum zd_exit run(const struct options *o, const struct zd_conf *conf)
{
	struct zd_daemon_options options = {.signals = 1, .sources = &o->sources};
	struct zd_daemon *daemon;
	char text[1024], quoted[2048];
	enum zd_exit ex;

	signal(SIGPIPE, SIG_IGN);
	ex = zd_daemon_new(&daemon, conf, &options, text, sizeof(text));
	if (ex != ZD_EXIT_OK) {
		zd_log(ZD_LOG_ERROR, "event=start-failed exit=%u text=%s", ex, zd_text_quote(quoted, sizeof(quoted), text));
		return ex;
	}
	ex = zd_daemon_run(daemon);
	zd_daemon_free(daemon);
	return ex;
}

static enum zd_exit with_config(struct options *o)
{
	struct zd_conf_errors errors;
	struct zd_conf conf;

	if (*o->port_file)
		o->sets[o->sources.set_count++] = o->port_file;
	o->sources.sets = o->sets;
	o->sources.env = environ;
	if (!o->sources.file)
		o->sources.file = DEFAULT_FILE;
	if (zd_conf_load(&conf, &o->sources, &errors) < 0) {
		print_mistakes(errors.text);
		return ZD_EXIT_CONFIG;
	}
	if (o->mode == DUMP)
		zd_conf_dump(&conf, stdout);
	if (o->mode != RUN)
		return ZD_EXIT_OK;
	zd_log_setup((enum zd_log_format)conf.log_format, (enum zd_log_level)(conf.log_level + ZD_LOG_ERROR));
	return run(o, &conf);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = option_list,
		.parser = parse_option,
		.doc = "Keeps a shard of a model's optimizer state and steps it: the daemon of zerod.\v",
		.help_filter = help_filter,
	};
	static struct options o;

	zd_program_begin("zerod");
	zd_assert_failed = failed_assert;
	argp_err_exit_status = ZD_EXIT_USAGE;
	argv[0] = program_invocation_short_name; /* what messages begin with */
	argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &o);
	switch (o.mode) {
	case SAMPLE:
		zd_conf_print_sample(stdout);
		return ZD_EXIT_OK;
	case MAN:
		zd_conf_print_man(stdout);
		return ZD_EXIT_OK;
	default:
		return (int)with_config(&o);
	}
}
