/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	zd_launch_env *env;
	void *user;
	char *text;
	size_t text_size;
};

static const char *from_process(void *user, const char *name)
{
	(void)user;
	return getenv(name);
}

/* An empty variable counts as not set. */
static const char *variable(const struct reading *r, const char *name)
{
	const char *value = r->env(r->user, name);
	return value && *value ? value : NULL;
}

static int number(const struct reading *r, const char *name, const char *value, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno || v < min || v > max) {
		snprintf(r->text, r->text_size, "%s: expected a whole number from %llu to %llu, found '%.100s'", name, (unsigned long long)min,
			 (unsigned long long)max, value);
		return -1;
	}
	*ret = v;
	return 0;
}

/* What a launcher's variables are called; alternatives in the order in which they count. */
struct launcher {
	enum zd_launch_source source;
	const char *rank, *world, *world_too, *local;
	const char *restarts;	     /* epoch - 1 */
	const char *id, *id_more;    /* id, or id.id_more where both are there */
	const char *id_else, *port_else; /* or id_else:port_else */
};

static const struct launcher launchers[] = {
	{ZD_LAUNCH_TORCHRUN, "RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", NULL, "MASTER_ADDR",
	 "MASTER_PORT"},
	{ZD_LAUNCH_OPENMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_RANK", NULL, "PMIX_NAMESPACE", NULL,
	 "OMPI_MCA_ess_base_jobid", NULL},
	{ZD_LAUNCH_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_RESTART_COUNT", "SLURM_JOB_ID",
	 "SLURM_STEP_ID", NULL, NULL},
};

/* Rank and world from two texts, one of which may be missing: an error that names it. */
static int place(const struct reading *r, const char *rank_name, const char *rank, const char *world_name, const char *world,
		 struct zd_launch *l)
{
	uint64_t rank_n, world_n;
	if (!rank || !world) {
		snprintf(r->text, r->text_size, "%s is %s but %s is not given: expected both", rank ? rank_name : world_name, rank ? rank : world,
			 rank ? world_name : rank_name);
		return -1;
	}
	if (number(r, world_name, world, 1, ZD_LAUNCH_WORLD_MAX, &world_n) < 0 ||
	    number(r, rank_name, rank, 0, ZD_LAUNCH_WORLD_MAX - 1, &rank_n) < 0)
		return -1;
	if (rank_n >= world_n) {
		snprintf(r->text, r->text_size, "%s: expected a rank below %s = %llu, found %llu", rank_name, world_name, (unsigned long long)world_n,
			 (unsigned long long)rank_n);
		return -1;
	}
	l->rank = (uint32_t)rank_n;
	l->world = (uint32_t)world_n;
	return 0;
}

static int local_rank(const struct reading *r, const char *name, const char *value, struct zd_launch *l)
{
	uint64_t n;
	if (number(r, name, value, 0, ZD_LAUNCH_WORLD_MAX - 1, &n) < 0)
		return -1;
	/* Counted among the ranks of one host in their order, it cannot be above the rank itself. */
	if (n > l->rank) {
		snprintf(r->text, r->text_size, "%s: expected a local rank of at most the rank %u, found %llu", name, l->rank,
			 (unsigned long long)n);
		return -1;
	}
	l->local_rank = (uint32_t)n;
	return 0;
}

static int set_id(const struct reading *r, const char *name, struct zd_launch *l, const char *a, char between, const char *b)
{
	int n = b ? snprintf(l->launch_id, sizeof l->launch_id, "%s%c%s", a, between, b) : snprintf(l->launch_id, sizeof l->launch_id, "%s", a);
	if (n >= 0 && (size_t)n < sizeof l->launch_id)
		return 0;
	snprintf(r->text, r->text_size, "%s: expected at most %d bytes, found %d", name, ZD_LAUNCH_ID_MAX, n);
	return -1;
}

static int read_launcher(const struct reading *r, const struct launcher *m, struct zd_launch *l)
{
	const char *world = variable(r, m->world), *world_name = m->world, *value;
	uint64_t restarts;
	if (!world && m->world_too) {
		world = variable(r, m->world_too);
		world_name = m->world_too;
	}
	if (place(r, m->rank, variable(r, m->rank), world_name, world, l) < 0)
		return -1;
	l->source = m->source;
	if ((value = variable(r, m->local)) && local_rank(r, m->local, value, l) < 0)
		return -1;
	if (m->restarts && (value = variable(r, m->restarts))) {
		if (number(r, m->restarts, value, 0, UINT64_MAX - 1, &restarts) < 0)
			return -1;
		l->epoch = restarts + 1;
	}
	if ((value = variable(r, m->id)))
		return set_id(r, m->id, l, value, '.', m->id_more ? variable(r, m->id_more) : NULL);
	if (m->id_else && (value = variable(r, m->id_else)))
		return set_id(r, m->id_else, l, value, ':', m->port_else ? variable(r, m->port_else) : NULL);
	return 0;
}

/* Who says anything about rank or world?  An allocation of Slurm without a task in it does not. */
static const struct launcher *find_launcher(const struct reading *r)
{
	for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
		const struct launcher *m = &launchers[i];
		if (variable(r, m->rank) || (m->source != ZD_LAUNCH_SLURM && variable(r, m->world)))
			return m;
	}
	return NULL;
}

static int read_single_options(const struct reading *r, const struct zd_launch_options *o, struct zd_launch *l)
{
	if (o->local_rank && local_rank(r, "--local-rank", o->local_rank, l) < 0)
		return -1;
	if (o->epoch && number(r, "--epoch", o->epoch, 1, UINT64_MAX, &l->epoch) < 0)
		return -1;
	return o->launch_id ? set_id(r, "--launch-id", l, o->launch_id, 0, NULL) : 0;
}

int zd_launch_read(const struct zd_launch_options *o, zd_launch_env *env, void *user, struct zd_launch *ret, char *text, size_t text_size)
{
	struct reading r = {env ? env : from_process, user, text, text_size};
	struct zd_launch l = {.source = ZD_LAUNCH_SINGLE, .world = 1, .epoch = 1};
	const struct launcher *m;
	int rc = 0;
	if (o->rank || o->world) {
		l.source = ZD_LAUNCH_OPTIONS;
		rc = place(&r, "--rank", o->rank, "--world", o->world, &l);
	} else if ((m = find_launcher(&r))) {
		rc = read_launcher(&r, m, &l);
	}
	if (rc < 0 || read_single_options(&r, o, &l) < 0)
		return -1;
	l.nonce = zd_launch_hash(l.launch_id);
	*ret = l;
	return 0;
}

const char *zd_launch_source_name(enum zd_launch_source source)
{
	static const char *const names[] = {"command line", "torchrun", "Open MPI", "Slurm", "single process"};
	return (unsigned)source < sizeof names / sizeof names[0] ? names[source] : "unknown";
}

uint64_t zd_launch_hash(const char *string)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (; *string; string++)
		h = (h ^ (uint8_t)*string) * 0x100000001b3u;
	return h;
}
