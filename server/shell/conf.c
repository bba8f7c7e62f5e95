/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the configuration, read one over the other into a configuration that is given out only if all of it was right. */
#include "server/shell/conf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <ini.h>

#include "proto/assert.h"

#define ENV_PREFIX "ZEROD_"
#define PLAINTEXT "I-accept-plaintext"
#define LAST_LINE 40u /* bytes that are left for how many mistakes did not fit */

const struct zd_conf_key zd_conf_keys[ZD_CONF_KEYS] = {
#define X(section, key, TYPE, initial, min, max, reload, choices, help, why)                                                          \
	{#section, #key,    ZD_CONF_##TYPE, initial, min, max, reload, choices, help, why, offsetof(struct zd_conf, section##_##key)},
#include "server/conf.def"
#undef X
};

/* One layer while it is read. */
struct layer {
	struct zd_conf *conf;
	struct zd_conf_errors *errors;
	uint8_t seen[ZD_CONF_KEYS];
	int last_wins; /* flags: a wrapper script may add one that overrides */
	/* files only */
	FILE *file;
	const char *name;
	uint32_t line;
};

void zd_conf_error(struct zd_conf_errors *errors, const char *where, const char *format, ...)
{
	char line[1024];
	va_list args;
	int n, head = 0;

	errors->count++;
	if (where && *where)
		head = snprintf(line, sizeof(line), "%.300s: ", where);
	va_start(args, format);
	n = vsnprintf(line + head, sizeof(line) - (size_t)head, format, args);
	va_end(args);
	if (n < 0 || errors->shown + 1 < errors->count || errors->len + strlen(line) + 2 > sizeof(errors->text) - LAST_LINE)
		return;
	errors->shown++;
	errors->len += (size_t)snprintf(errors->text + errors->len, sizeof(errors->text) - errors->len, "%s%s", errors->len ? "\n" : "",
					line);
}

const struct zd_conf_key *zd_conf_find(const char *section, const char *key)
{
	uint32_t i;

	for (i = 0; i < ZD_CONF_KEYS; i++)
		if (strcmp(zd_conf_keys[i].section, section) == 0 && strcmp(zd_conf_keys[i].key, key) == 0)
			return &zd_conf_keys[i];
	return NULL;
}

static void unknown_key(struct layer *l, const char *where, const char *section, const char *key)
{
	char keys[512] = "";
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < ZD_CONF_KEYS && n < sizeof(keys); i++)
		if (strcmp(zd_conf_keys[i].section, section) == 0)
			n += (size_t)snprintf(keys + n, sizeof(keys) - n, "%s%s", n ? ", " : "", zd_conf_keys[i].key);
	if (n)
		zd_conf_error(l->errors, where, "unknown key \"%s\" in [%s]; there are %s", key, section, keys);
	else
		zd_conf_error(l->errors, where,
			      "unknown section [%s]; there are daemon, listen, lanes, memory, limits, timeouts and log", section);
}

/* A list goes on where a line begins with blanks (inih calls again with the same key), or where the key is repeated. */
static void append_list(struct layer *l, const char *where, const struct zd_conf_key *k, const char *value)
{
	char all[1024], text[512];

	zd_conf_format(l->conf, k, all, 640);
	snprintf(all + strlen(all), sizeof(all) - strlen(all), ", %.256s", value);
	if (zd_conf_parse_value(l->conf, k, all, text, sizeof(text)) < 0)
		zd_conf_error(l->errors, where, "%s.%s: %s", k->section, k->key, text);
}

static void set_value(struct layer *l, const char *where, const char *section, const char *key, const char *value)
{
	const struct zd_conf_key *k = zd_conf_find(section, key);
	char text[512];
	uint32_t index;

	if (!k) {
		unknown_key(l, where, section, key);
		return;
	}
	index = (uint32_t)(k - zd_conf_keys);
	if (l->seen[index] && k->type == ZD_CONF_LIST) {
		append_list(l, where, k, value);
		return;
	}
	if (l->seen[index] && !l->last_wins) {
		zd_conf_error(l->errors, where, "%s.%s is set a second time (first at %s); one value is expected", section, key,
			      l->conf->origin[index]);
		return;
	}
	l->seen[index] = 1;
	if (zd_conf_parse_value(l->conf, k, value, text, sizeof(text)) < 0)
		zd_conf_error(l->errors, where, "%s.%s: %s", section, key, text);
	snprintf(l->conf->origin[index], sizeof(l->conf->origin[0]), "%.127s", where);
}

/* ---------------------------------------------------------------- files */

static void where_in_file(const struct layer *l, char out[300])
{
	const char *name = l->name;

	/* The end of a long path tells more than its beginning. */
	if (strlen(name) > 100)
		name += strlen(name) - 100;
	snprintf(out, 300, "%s:%" PRIu32, name, l->line);
}

/* fgets for inih that counts lines, refuses those that inih would cut in two, and ends the file at a NUL byte. */
static char *read_line(char *str, int num, void *stream)
{
	struct layer *l = stream;
	char where[300], *nul;
	int n = 0, c = 0;

	while (n < num - 1 && c != '\n' && (c = getc(l->file)) != EOF)
		str[n++] = (char)c;
	if (n == 0)
		return NULL;
	str[n] = '\0';
	l->line++;
	where_in_file(l, where);
	nul = memchr(str, '\0', (size_t)n);
	if (nul) { /* there will be more of them */
		zd_conf_error(l->errors, where, "expected text, found a NUL byte in column %td; is this a configuration file?", nul - str + 1);
		return NULL;
	}
	if (c == '\n' || c == EOF)
		return str;
	zd_conf_error(l->errors, where, "line is longer than %d bytes; shorten it, or split a list over several lines", num - 2);
	while (c != '\n' && c != EOF)
		c = getc(l->file);
	str[0] = '\0';
	return str;
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
	struct layer *l = user;
	char where[300];

	where_in_file(l, where);
	if (!*section)
		zd_conf_error(l->errors, where, "expected a [section] first, found \"%s\"", key);
	else
		set_value(l, where, section, key, value ? value : "");
	return 1;
}

/* NULL if a file can be read to its end, or is /dev/null (1:3 on Linux): a drop-in is switched off by a link to that. */
static const char *unreadable_kind(const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		return NULL;
	case S_IFDIR:
		return "a directory";
	case S_IFIFO:
		return "a FIFO";
	default:
		return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3) ? NULL : "a device";
	}
}

/* NULL and errno, or 0 there if an error has been added. */
static FILE *open_file(const char *path, struct zd_conf_errors *errors)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO would wait for its writer */
	const char *kind;
	struct stat st;
	FILE *file = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0) {
		kind = unreadable_kind(&st);
		if (!kind) {
			file = fdopen(fd, "r");
		} else {
			zd_conf_error(errors, path, "expected a regular file, found %s", kind);
			errno = 0;
		}
	}
	if (!file) {
		int saved = errno;

		close(fd);
		errno = saved;
	}
	return file;
}

/* 0 read (errors may have been added), 1 there is no such file and that is allowed. */
static int load_file(struct zd_conf *conf, const char *path, int must_exist, struct zd_conf_errors *errors)
{
	struct layer l = {.conf = conf, .errors = errors, .name = path};
	char where[300];
	int rc;

	l.file = open_file(path, errors);
	if (!l.file && errno == ENOENT && !must_exist)
		return 1;
	if (!l.file) {
		if (errno)
			zd_conf_error(errors, path, "cannot be read: %s", strerror(errno));
		return 0;
	}
	errno = 0;
	rc = ini_parse_stream(read_line, &l, on_pair, &l);
	if (rc > 0) {
		l.line = (uint32_t)rc;
		where_in_file(&l, where);
		zd_conf_error(errors, where, "expected [section], key = value, or a comment");
	} else if (rc < 0 || ferror(l.file)) {
		zd_conf_error(errors, path, "cannot be read%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
	}
	fclose(l.file);
	return 0;
}

static int is_dropin(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return e->d_name[0] != '.' && n > 5 && strcmp(e->d_name + n - 5, ".conf") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name); /* not strcoll: the order must not depend on the locale */
}

static void load_dropins(struct zd_conf *conf, const char *file, struct zd_conf_errors *errors)
{
	struct dirent **entries;
	char path[4096];
	int i, n;

	snprintf(path, sizeof(path), "%s.d", file);
	n = scandir(path, &entries, is_dropin, by_bytes);
	if (n < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			zd_conf_error(errors, path, "cannot be read: %s", strerror(errno));
		return;
	}
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s.d/%s", file, entries[i]->d_name);
		load_file(conf, path, 1, errors);
		free(entries[i]);
	}
	free(entries);
}

/* ---------------------------------------------------------------- environment and flags */

/* ZEROD_SECTION_KEY with a known section must name a known key; other variables of that prefix belong to somebody else. */
static void load_env(struct zd_conf *conf, char *const *env, struct zd_conf_errors *errors)
{
	struct layer l = {.conf = conf, .errors = errors};

	for (; *env; env++) {
		char name[128], where[160], section[64], *p, *key;
		size_t len = strcspn(*env, "=");
		uint32_t i;

		if (strncmp(*env, ENV_PREFIX, strlen(ENV_PREFIX)) != 0 || len >= sizeof(name) || !(*env)[len])
			continue;
		memcpy(name, *env, len);
		name[len] = '\0';
		snprintf(where, sizeof(where), "environment %s", name);
		for (p = name; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		p = name + strlen(ENV_PREFIX);
		key = strchr(p, '_');
		if (!key)
			continue;
		snprintf(section, sizeof(section), "%.*s", (int)(key - p), p);
		for (i = 0; i < ZD_CONF_KEYS && strcmp(zd_conf_keys[i].section, section) != 0; i++)
			;
		if (i < ZD_CONF_KEYS)
			set_value(&l, where, section, key + 1, *env + len + 1);
	}
}

static void load_sets(struct zd_conf *conf, const char *const *sets, uint32_t count, struct zd_conf_errors *errors)
{
	struct layer l = {.conf = conf, .errors = errors, .last_wins = 1};
	uint32_t i;

	for (i = 0; i < count; i++) {
		const char *dot = strchr(sets[i], '.'), *eq = strchr(sets[i], '=');
		char section[64], key[64];

		if (!dot || !eq || dot > eq || dot == sets[i] || (size_t)(dot - sets[i]) >= sizeof(section) ||
		    (size_t)(eq - dot) > sizeof(key)) {
			zd_conf_error(errors, "--set", "expected section.key=value, found \"%s\"", sets[i]);
			continue;
		}
		snprintf(section, sizeof(section), "%.*s", (int)(dot - sets[i]), sets[i]);
		snprintf(key, sizeof(key), "%.*s", (int)(eq - dot - 1), dot + 1);
		set_value(&l, "--set", section, key, eq + 1);
	}
}

/* ---------------------------------------------------------------- all of it */

void zd_conf_defaults(struct zd_conf *conf)
{
	char text[512];
	uint32_t i;

	memset(conf, 0, sizeof(*conf));
	for (i = 0; i < ZD_CONF_KEYS; i++) {
		int rc = zd_conf_parse_value(conf, &zd_conf_keys[i], zd_conf_keys[i].initial, text, sizeof(text));

		ZD_ASSERT(rc == 0);
		snprintf(conf->origin[i], sizeof(conf->origin[i]), "default");
	}
}

static int is_loopback(int family, const void *addr)
{
	static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;

	if (family == AF_INET)
		return *(const uint8_t *)addr == 127;
	return memcmp(addr, &loopback, sizeof(loopback)) == 0;
}

static void check_addresses(const struct zd_conf *conf, struct zd_conf_errors *errors)
{
	const char *where = conf->origin[ZD_CONF_KEY_listen_address];
	uint32_t i;

	for (i = 0; i < conf->listen_address.count; i++) {
		const char *text = conf->listen_address.item[i];
		struct in6_addr addr;
		int family = strchr(text, ':') ? AF_INET6 : AF_INET;

		if (inet_pton(family, text, &addr) != 1)
			zd_conf_error(errors, where, "listen.address: expected a numeric IPv4 or IPv6 address, found \"%s\"", text);
		else if (!is_loopback(family, &addr) && strcmp(conf->listen_insecure.s, PLAINTEXT) != 0)
			zd_conf_error(errors, where,
				      "listen.address: %s is not loopback, and connections are neither encrypted nor authenticated: "
				      "whoever reaches the port may read and change the weights. Use 127.0.0.1, or set "
				      "listen.insecure = " PLAINTEXT,
				      text);
	}
	if (conf->listen_insecure.s[0] && strcmp(conf->listen_insecure.s, PLAINTEXT) != 0)
		zd_conf_error(errors, conf->origin[ZD_CONF_KEY_listen_insecure], "listen.insecure: expected " PLAINTEXT
			      " or nothing, found \"%s\"", conf->listen_insecure.s);
}

static void check_name(const struct zd_conf *conf, struct zd_conf_errors *errors)
{
	const char *name = conf->daemon_name.s, *p;

	for (p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p)) {
			zd_conf_error(errors, conf->origin[ZD_CONF_KEY_daemon_name],
				      "daemon.name: expected letters, digits, '.', '_' and '-', found \"%s\"", name);
			return;
		}
}

int zd_conf_load(struct zd_conf *ret_conf, const struct zd_conf_sources *sources, struct zd_conf_errors *errors)
{
	struct zd_conf conf;

	memset(errors, 0, sizeof(*errors));
	zd_conf_defaults(&conf);
	if (sources->file && load_file(&conf, sources->file, sources->must_exist, errors) == 0)
		load_dropins(&conf, sources->file, errors);
	if (sources->env)
		load_env(&conf, sources->env, errors);
	load_sets(&conf, sources->sets, sources->set_count, errors);
	if (errors->count == 0) {
		check_addresses(&conf, errors);
		check_name(&conf, errors);
	}
	if (errors->shown < errors->count)
		snprintf(errors->text + errors->len, sizeof(errors->text) - errors->len, "\nand %" PRIu32 " more mistakes",
			 errors->count - errors->shown);
	if (errors->count)
		return -1;
	*ret_conf = conf;
	return 0;
}
