/* SPDX-License-Identifier: Apache-2.0 */
/* zerod_options and units, checked and turned into what the session needs.  Every refusal says what was expected and what was found. */
#ifndef ZD_CLIENT_OPTIONS_H
#define ZD_CLIENT_OPTIONS_H

#include "client/pump.h"

#define ZD_DETAIL_BYTES 1024u

struct zd_options {
	struct zd_spec spec;
	uint32_t daemon_count;
	struct zd_endpoint *endpoints;
	const char **names; /* "host:port" */
	char *names_memory;
	uint32_t rank, world, timeout_ms, connect_timeout_ms, prefetch, create;
	uint64_t epoch, launch, gather_bytes_max;
	zerod_waiting *waiting;
	void *waiting_arg;
};

void zd_options_tell(char *detail, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* ZEROD_OK, ZEROD_ERR_ARGUMENT or ZEROD_ERR_MEMORY with a text; *out must be zero and needs zd_options_fini only after success. */
int zd_options_parse(struct zd_options *out, const struct zerod_options *options, const struct zerod_unit *units, uint32_t unit_count,
		     char *detail, size_t size) ZD_MUST_USE;
void zd_options_config(const struct zd_options *o, struct zd_session_config *config);
void zd_options_fini(struct zd_options *o);

#endif
