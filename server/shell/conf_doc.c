/* SPDX-License-Identifier: Apache-2.0 */
/* What the table says, for people: the sample file, the manual page, --help, --dump-config. */
#include "server/shell/conf.h"

#include <string.h>

/* Writes text in lines of at most `width`, each behind `prefix`. */
static void wrap(FILE *out, const char *prefix, const char *text, size_t width)
{
	size_t used = 0;

	while (*text) {
		size_t n = strcspn(text, " ");

		if (used && used + 1 + n > width) {
			fputc('\n', out);
			used = 0;
		}
		used += (size_t)fprintf(out, "%s%.*s", used ? " " : prefix, (int)n, text);
		text += n;
		text += strspn(text, " ");
	}
	if (used)
		fputc('\n', out);
}

static const char *type_text(const struct zd_conf_key *key)
{
	switch (key->type) {
	case ZD_CONF_COUNT:
		return *key->choices ? "number or auto" : "number";
	case ZD_CONF_SIZE:
		return *key->choices ? "size or auto" : "size";
	case ZD_CONF_TIME:
		return "time";
	case ZD_CONF_FLAG:
		return "yes or no";
	case ZD_CONF_LIST:
		return "list";
	case ZD_CONF_PATH:
		return "absolute path";
	case ZD_CONF_WORD:
		return key->choices;
	case ZD_CONF_TEXT:
		break;
	}
	return "text";
}

static int first_of_section(uint32_t i)
{
	return i == 0 || strcmp(zd_conf_keys[i].section, zd_conf_keys[i - 1].section) != 0;
}

void zd_conf_dump(const struct zd_conf *conf, FILE *out)
{
	char value[640], pair[800];
	uint32_t i;

	for (i = 0; i < ZD_CONF_KEYS; i++) {
		const struct zd_conf_key *k = &zd_conf_keys[i];

		if (first_of_section(i))
			fprintf(out, "%s[%s]\n", i ? "\n" : "", k->section);
		snprintf(pair, sizeof(pair), "%s = %s", k->key, zd_conf_format(conf, k, value, sizeof(value)));
		fprintf(out, "%-40s ; %s\n", pair, conf->origin[i]);
	}
}

void zd_conf_print_sample(FILE *out)
{
	uint32_t i;

	fputs("; zerod.conf: every key with its default.  Uncomment what you change.\n"
	      "; Precedence: this file, then zerod.conf.d/*.conf in order of name, then the environment (ZEROD_SECTION_KEY),\n"
	      "; then --set section.key=value.  Check with: zerod -c FILE --check-config.  At most 198 bytes a line.\n"
	      "; \"SIGHUP\" marks what a reload applies; the rest needs a restart.\n",
	      out);
	for (i = 0; i < ZD_CONF_KEYS; i++) {
		const struct zd_conf_key *k = &zd_conf_keys[i];

		if (first_of_section(i))
			fprintf(out, "\n[%s]\n", k->section);
		fputc('\n', out);
		wrap(out, "; ", k->help, 100);
		wrap(out, "; ", k->why, 100);
		fprintf(out, "; (%s%s)\n;%s = %s\n", type_text(k), k->reload ? "; SIGHUP" : "", k->key, k->initial);
	}
}

/* scdoc takes _ and * for markup. */
static void man_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("_*\\#<>[]|~", *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

void zd_conf_print_man(FILE *out)
{
	uint32_t i;

	for (i = 0; i < ZD_CONF_KEYS; i++) {
		const struct zd_conf_key *k = &zd_conf_keys[i];

		if (first_of_section(i))
			fprintf(out, "%s## [%s]\n\n", i ? "" : "", k->section);
		fputc('*', out);
		man_text(out, k->key);
		fputs("* (", out);
		man_text(out, type_text(k));
		fputs(")\n\t", out);
		man_text(out, k->help);
		if (*k->why) {
			fputs("\n\n\t", out);
			man_text(out, k->why);
		}
		fputs("\n\n\tDefault: ", out);
		man_text(out, *k->initial ? k->initial : "empty");
		fprintf(out, ".%s\n\n", k->reload ? " Applied by SIGHUP." : "");
	}
}

void zd_conf_print_keys(FILE *out)
{
	uint32_t i;

	for (i = 0; i < ZD_CONF_KEYS; i++) {
		const struct zd_conf_key *k = &zd_conf_keys[i];

		fprintf(out, "  %s.%s = %s\n", k->section, k->key, k->initial);
		wrap(out, "      ", k->help, 70);
	}
}
