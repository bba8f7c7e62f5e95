/* SPDX-License-Identifier: Apache-2.0 */
#include "client/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void zerod_options_init(struct zerod_options *options)
{
	*options = (struct zerod_options){
		.size = sizeof(*options),
		.optimizer = ZEROD_OPTIMIZER_ADAMW,
		.grad_codec = ZEROD_BF16,
		.world = 1,
		.epoch = 1,
		.lease_ms = 10000,
		.timeout_ms = 60000,
		.connect_timeout_ms = 10000,
		.prefetch = 1,
		.create = 1,
	};
}

void zerod_hyper_init(struct zerod_hyper *hyper)
{
	*hyper = (struct zerod_hyper){
		.lr = 1e-3, .weight_decay = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .loss_scale = 1};
}

const char *zerod_version(void)
{
	return ZD_RELEASE;
}

const char *zerod_status_text(int status)
{
	static const char *const texts[] = {
		[ZEROD_OK] = "ok",
		[ZEROD_ERR_ARGUMENT] = "invalid argument",
		[ZEROD_ERR_STATE] = "not allowed in this state",
		[ZEROD_ERR_MEMORY] = "out of memory",
		[ZEROD_ERR_CONNECT] = "cannot connect",
		[ZEROD_ERR_TIMEOUT] = "timed out",
		[ZEROD_ERR_REFUSED] = "refused by a daemon",
		[ZEROD_ERR_ABORTED] = "step aborted",
		[ZEROD_ERR_STALE] = "a higher epoch exists",
		[ZEROD_ERR_LOST] = "daemons lost the job's state",
		[ZEROD_ERR_PROTOCOL] = "protocol violated",
		[ZEROD_REDO] = "compute the step again",
		[ZEROD_ERR_CANCELED] = "canceled",
	};

	if (status < 0 || (size_t)status >= sizeof(texts) / sizeof(texts[0]))
		return "unknown status";
	return texts[status];
}

void zd_options_tell(char *detail, size_t size, const char *format, ...)
{
	va_list args;

	if (!detail || size == 0)
		return;
	va_start(args, format);
	vsnprintf(detail, size, format, args);
	va_end(args);
}

#define REFUSE(...) return (zd_options_tell(detail, size, __VA_ARGS__), ZEROD_ERR_ARGUMENT)

/* One "host:port" or "[address]:port" of len bytes. */
static int parse_endpoint(struct zd_endpoint *out, const char *text, size_t len, char *detail, size_t size)
{
	const char *colon = memrchr(text, ':', len);
	size_t host_len = colon ? (size_t)(colon - text) : 0, port_len = colon ? len - host_len - 1 : 0;
	const char *host = text;
	unsigned long port = 0;

	if (!colon || host_len == 0 || port_len == 0)
		REFUSE("endpoint \"%.*s\": expected host:port", (int)(len < 80 ? len : 80), text);
	if (host[0] == '[' && host[host_len - 1] == ']') {
		host++;
		host_len -= 2;
	} else if (memchr(host, ':', host_len)) {
		REFUSE("endpoint \"%.*s\": write an IPv6 address in brackets, [address]:port", (int)(len < 80 ? len : 80), text);
	}
	if (host_len == 0 || host_len > ZD_HOST_MAX)
		REFUSE("endpoint \"%.80s...\": a host name has 1 to %u bytes, this one %zu", text, ZD_HOST_MAX, host_len);
	for (size_t i = 0; i < port_len; i++) {
		if (colon[1 + i] < '0' || colon[1 + i] > '9' || port > 65535)
			port = 65536;
		else
			port = port * 10 + (unsigned long)(colon[1 + i] - '0');
	}
	if (port < 1 || port > 65535)
		REFUSE("endpoint \"%.*s\": the port must be 1 to 65535", (int)(len < 80 ? len : 80), text);
	memcpy(out->host, host, host_len);
	out->host[host_len] = '\0';
	snprintf(out->port, sizeof(out->port), "%lu", port % 100000);
	return ZEROD_OK;
}

static int parse_endpoints(struct zd_options *out, const char *list, char *detail, size_t size)
{
	uint32_t count = 1, i = 0;
	const char *at = list;
	char *name;

	for (const char *c = list; *c; c++)
		count += *c == ',';
	if (count > ZD_LANES_MAX)
		REFUSE("%u endpoints; at most %u", count, ZD_LANES_MAX);
	out->endpoints = calloc(count, sizeof(*out->endpoints));
	out->names = calloc(count, sizeof(*out->names));
	out->names_memory = strdup(list);
	if (!out->endpoints || !out->names || !out->names_memory) {
		zd_options_tell(detail, size, "no memory for %u endpoints", count);
		return ZEROD_ERR_MEMORY;
	}
	name = out->names_memory;
	for (;; i++) {
		size_t len = strcspn(at, ",");
		int rc = parse_endpoint(&out->endpoints[i], at, len, detail, size);

		if (rc != ZEROD_OK)
			return rc;
		name[len] = '\0';
		out->names[i] = name;
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(out->names[k], name) == 0)
				REFUSE("endpoint \"%.80s\" is named twice", name);
		if (!at[len])
			break;
		at += len + 1;
		name += len + 1;
	}
	out->daemon_count = count;
	return ZEROD_OK;
}

static int check_numbers(const struct zerod_options *o, char *detail, size_t size)
{
	if (o->size != sizeof(*o))
		REFUSE("options.size is %zu, this library expects %zu: call zerod_options_init, and build against the installed header", o->size,
		       sizeof(*o));
	if (!o->endpoints || !o->endpoints[0])
		REFUSE("options.endpoints is empty: expected \"host:port,host:port\"");
	if (!o->job)
		REFUSE("options.job is NULL");
	if (o->world > ZD_WORLD_MAX)
		REFUSE("world size %u: at most %u workers", o->world, ZD_WORLD_MAX);
	if (o->world > 0 && o->rank >= o->world)
		REFUSE("rank %u of world size %u: ranks count from 0", o->rank, o->world);
	if (o->epoch < 1)
		REFUSE("epoch 0: epochs count from 1, and a launcher raises them at each restart");
	if (o->epoch > ZD_EPOCH_MAX)
		REFUSE("epoch %llu: expected at most %llu, so that there is always a higher one", (unsigned long long)o->epoch,
		       (unsigned long long)ZD_EPOCH_MAX);
	if (o->optimizer > ZEROD_OPTIMIZER_ADAM)
		REFUSE("optimizer %u does not exist: 0 none, 1 AdamW, 2 Adam with L2", o->optimizer);
	if (o->grad_codec > ZEROD_FP32)
		REFUSE("grad_codec %u does not exist: 0 bf16, 1 fp16, 2 fp32", o->grad_codec);
	return ZEROD_OK;
}

static int parse_spec(struct zd_options *out, const struct zerod_options *o, const struct zerod_unit *units, uint32_t unit_count, char *detail,
		      size_t size)
{
	struct zd_spec *spec = &out->spec;

	if (!units && unit_count > 0)
		REFUSE("units is NULL");
	if (unit_count < 1 || unit_count > ZD_UNITS_MAX)
		REFUSE("%u units: a job has 1 to %u", unit_count, ZD_UNITS_MAX);
	if (strlen(o->job) > ZD_NAME_MAX)
		REFUSE("job name \"%.80s\" is longer than %u bytes", o->job, ZD_NAME_MAX);
	spec->units = calloc(unit_count, sizeof(*spec->units));
	if (!spec->units) {
		zd_options_tell(detail, size, "no memory for %u units", unit_count);
		return ZEROD_ERR_MEMORY;
	}
	snprintf(spec->name, sizeof(spec->name), "%s", o->job);
	spec->optimizer = (enum zd_optimizer)o->optimizer;
	spec->grad_codec = (enum zd_codec)o->grad_codec;
	spec->extent_elems = o->extent_elems ? o->extent_elems : zd_spec_default_extent(spec->grad_codec);
	spec->lease_ms = o->lease_ms;
	spec->unit_count = unit_count;
	for (uint32_t u = 0; u < unit_count; u++) {
		if (!units[u].name || strlen(units[u].name) > ZD_NAME_MAX)
			REFUSE("unit %u: its name is missing or longer than %u bytes", u, ZD_NAME_MAX);
		snprintf(spec->units[u].name, sizeof(spec->units[u].name), "%s", units[u].name);
		spec->units[u].numel = units[u].numel;
		spec->units[u].frozen = units[u].frozen != 0;
	}
	if (zd_spec_check(spec, detail, size) < 0)
		return ZEROD_ERR_ARGUMENT;
	return ZEROD_OK;
}

static int check_limit(struct zd_options *out, const struct zerod_options *o, char *detail, size_t size)
{
	uint64_t least = zd_session_gather_min(&out->spec);

	out->gather_bytes_max = o->gather_bytes_max;
	if (out->gather_bytes_max == 0)
		out->gather_bytes_max = zd_session_gather_default(&out->spec);
	if (o->optimizer != ZEROD_OPTIMIZER_NONE && out->gather_bytes_max < least)
		REFUSE("gather_bytes_max is %llu, but the largest unit alone takes %llu bytes: raise it, or make units smaller",
		       (unsigned long long)o->gather_bytes_max, (unsigned long long)least);
	return ZEROD_OK;
}

int zd_options_parse(struct zd_options *out, const struct zerod_options *options, const struct zerod_unit *units, uint32_t unit_count,
		     char *detail, size_t size)
{
	int rc;

	if (!options)
		REFUSE("options is NULL");
	rc = check_numbers(options, detail, size);
	if (rc == ZEROD_OK)
		rc = parse_spec(out, options, units, unit_count, detail, size);
	if (rc == ZEROD_OK)
		rc = parse_endpoints(out, options->endpoints, detail, size);
	if (rc == ZEROD_OK)
		rc = check_limit(out, options, detail, size);
	if (rc != ZEROD_OK) {
		zd_options_fini(out);
		return rc;
	}
	out->rank = options->rank;
	out->world = options->world;
	out->timeout_ms = options->timeout_ms;
	out->connect_timeout_ms = options->connect_timeout_ms;
	out->prefetch = options->prefetch;
	out->create = options->create;
	out->epoch = options->epoch;
	out->launch = options->launch;
	out->waiting = options->waiting;
	out->waiting_arg = options->waiting_arg;
	return ZEROD_OK;
}

void zd_options_config(const struct zd_options *o, struct zd_session_config *config)
{
	uint64_t random[2] = {0, 0};

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random[0] = random[1] = zd_pump_now();
	*config = (struct zd_session_config){
		.spec = &o->spec,
		.daemons = o->names,
		.daemon_count = o->daemon_count,
		.rank = o->rank,
		.world = o->world,
		.epoch = o->epoch,
		.launch = o->launch,
		.process = random[0],
		.seed = random[1],
		.gather_bytes_max = o->gather_bytes_max,
		.prefetch = o->prefetch,
		.create = o->create != 0,
		.features = ZD_FEATURE_PAYLOAD_CRC,
	};
}

void zd_options_fini(struct zd_options *o)
{
	free(o->spec.units);
	free(o->endpoints);
	free(o->names);
	free(o->names_memory);
}
