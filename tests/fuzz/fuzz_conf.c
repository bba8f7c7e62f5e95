/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration through the way a daemon reads it: up to the first NUL a file, then strings that each end with NUL, --set arguments or, if
 * they begin with ZEROD_, environment.  What is accepted reads the same when it is written out; what is not is explained.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/shell/conf.h"
#include "tests/fuzz/fuzz.h"

#define STRINGS_MAX 16u

static void check_accepted(const struct zd_conf *conf)
{
	static struct zd_conf again;

	zd_conf_defaults(&again);
	for (uint32_t i = 0; i < ZD_CONF_KEYS; i++) {
		const struct zd_conf_key *k = &zd_conf_keys[i];
		char value[640], text[512] = "";

		zd_conf_format(conf, k, value, sizeof(value));
		ZD_ASSERT(zd_conf_parse_value(&again, k, value, text, sizeof(text)) == 0);
		ZD_ASSERT(zd_conf_same(conf, &again, k));
		ZD_ASSERT(memchr(conf->origin[i], 0, sizeof(conf->origin[i])) != NULL);
	}
}

static void check_refused(const struct zd_conf_errors *errors)
{
	ZD_ASSERT(errors->count > 0 && errors->len > 0 && errors->len < sizeof(errors->text));
	ZD_ASSERT(errors->text[errors->len] == 0 && strlen(errors->text) == errors->len);
}

static void load(const char *path, const char *strings, size_t size)
{
	static struct zd_conf conf;
	static struct zd_conf_errors errors;
	const char *sets[STRINGS_MAX];
	char *env[STRINGS_MAX + 1];
	struct zd_conf_sources sources = {.file = path, .must_exist = 1, .sets = sets, .env = env};
	uint32_t n = 0;

	for (size_t at = 0; at < size; at += strlen(strings + at) + 1) {
		if (strncmp(strings + at, "ZEROD_", 6) == 0 && n < STRINGS_MAX)
			env[n++] = (char *)(uintptr_t)(strings + at);
		else if (sources.set_count < STRINGS_MAX)
			sets[sources.set_count++] = strings + at;
	}
	env[n] = NULL;
	if (zd_conf_load(&conf, &sources, &errors) == 0)
		check_accepted(&conf);
	else
		check_refused(&errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32], *copy = malloc(size + 1);
	int fd = memfd_create("conf", MFD_CLOEXEC);
	size_t file;

	ZD_ASSERT(copy && fd >= 0);
	if (size > 0)
		memcpy(copy, data, size);
	copy[size] = 0;
	file = strlen(copy);
	ZD_ASSERT(write(fd, copy, file) == (ssize_t)file);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	load(path, copy + file + (file < size), size - file - (file < size));
	close(fd);
	free(copy);
	return 0;
}
