/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"

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
	const char *rank, *world, *local, *local_world;
	const char *restarts; /* how often it has started this launch's workers again; mpirun never does, but Slurm may repeat a script with it in */
	int (*identify)(const struct reading *, struct zd_launch *); /* NULL: it tells nothing that the next launch does not have, too */
};

static int identify_torchrun(const struct reading *, struct zd_launch *);
static int identify_openmpi(const struct reading *, struct zd_launch *);
static int identify_slurm(const struct reading *, struct zd_launch *);

static const struct launcher launchers[] = {
	{ZD_LAUNCH_TORCHRUN, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", identify_torchrun},
	{ZD_LAUNCH_OPENMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
	 "SLURM_RESTART_COUNT", identify_openmpi},
	{ZD_LAUNCH_MPICH, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_RESTART_COUNT", NULL},
	{ZD_LAUNCH_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_RESTART_COUNT", identify_slurm},
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

/* A variable that is a number if it is there; 0: it is not. */
static int optional_number(const struct reading *r, const char *name, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *value = variable(r, name);
	*ret = 0;
	return value ? number(r, name, value, min, max, ret) : 0;
}

/* The last two folders above that of a worker's error file, <log folder>/<run id>_<random>/attempt_<restarts>/<local rank>/error.json: torchrun
 * draws the first anew for every launch.  NULL: the path is another. */
static const char *attempt_folder(const char *path, size_t *ret_len)
{
	size_t cut[4], len = strlen(path);
	for (size_t i = 0; i < 4; i++) {
		while (len > 0 && path[len - 1] != '/')
			len--;
		if (len == 0)
			return NULL;
		cut[i] = --len; /* of a slash, from the last one */
	}
	*ret_len = cut[1] - cut[3] - 1;
	return path + cut[3] + 1;
}

/*
 * torchrun's own id of the launch; where nobody gave it one ("none"), what all ranks know and the next launch does not have: on one host the
 * random name of torchrun's log folder, else where the ranks meet, which is another port each time unless it was chosen.
 */
static int identify_torchrun(const struct reading *r, struct zd_launch *l)
{
	const char *run = variable(r, "TORCHELASTIC_RUN_ID"), *address = variable(r, "MASTER_ADDR"), *port = variable(r, "MASTER_PORT");
	const char *error_file = variable(r, "TORCHELASTIC_ERROR_FILE"), *folder;
	uint64_t port_n, local_world;
	size_t len;
	if (optional_number(r, "MASTER_PORT", 1, 65535, &port_n) < 0 || optional_number(r, "LOCAL_WORLD_SIZE", 1, l->world, &local_world) < 0)
		return -1;
	if (run && strcmp(run, "none") != 0)
		return set_id(r, "TORCHELASTIC_RUN_ID", l, run, 0, NULL);
	if (error_file && local_world == l->world && (folder = attempt_folder(error_file, &len)) && len < sizeof l->launch_id) {
		snprintf(l->launch_id, sizeof l->launch_id, "%.*s", (int)len, folder);
		return 0;
	}
	if (address)
		return set_id(r, "MASTER_ADDR", l, address, ':', port);
	return run ? set_id(r, "TORCHELASTIC_RUN_ID", l, run, 0, NULL) : 0;
}

static int identify_openmpi(const struct reading *r, struct zd_launch *l)
{
	static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (variable(r, names[i]))
			return set_id(r, names[i], l, variable(r, names[i]), 0, NULL);
	return 0;
}

static int identify_slurm(const struct reading *r, struct zd_launch *l)
{
	uint64_t n;
	if (optional_number(r, "SLURM_JOB_ID", 0, UINT64_MAX, &n) < 0 || optional_number(r, "SLURM_STEP_ID", 0, UINT64_MAX, &n) < 0)
		return -1;
	const char *job = variable(r, "SLURM_JOB_ID");
	return job ? set_id(r, "SLURM_JOB_ID", l, job, '.', variable(r, "SLURM_STEP_ID")) : 0;
}

/* The shell of a batch script has a SLURM_PROCID, too, but is no task of a step: alone if the job is for one task, else srun was forgotten. */
static int world_of_batch(const struct reading *r, const char **ret_world)
{
	uint64_t tasks;
	if (optional_number(r, "SLURM_NTASKS", 1, ZD_LAUNCH_WORLD_MAX, &tasks) < 0)
		return -1;
	if (tasks > 1) {
		snprintf(r->text, r->text_size,
			 "SLURM_NTASKS is %llu, but this process is no task of a step (SLURM_STEP_NUM_TASKS is not given): start it with srun, or "
			 "give --rank and --world",
			 (unsigned long long)tasks);
		return -1;
	}
	*ret_world = "1";
	return 0;
}

static int read_launcher(const struct reading *r, const struct launcher *m, struct zd_launch *l)
{
	const char *world = variable(r, m->world), *value;
	uint64_t restarts, local_world;
	if (!world && m->source == ZD_LAUNCH_SLURM && world_of_batch(r, &world) < 0)
		return -1;
	if (place(r, m->rank, variable(r, m->rank), m->world, world, l) < 0)
		return -1;
	l->source = m->source;
	if ((value = variable(r, m->local)) && local_rank(r, m->local, value, l) < 0)
		return -1;
	if (m->local_world && optional_number(r, m->local_world, 1, l->world, &local_world) < 0)
		return -1;
	if (m->local_world && local_world && l->local_rank >= local_world) {
		snprintf(r->text, r->text_size, "%s: expected a local rank below %s = %llu, found %u", m->local, m->local_world,
			 (unsigned long long)local_world, l->local_rank);
		return -1;
	}
	if (m->restarts && (value = variable(r, m->restarts))) {
		if (number(r, m->restarts, value, 0, ZD_EPOCH_MAX - 1, &restarts) < 0)
			return -1;
		l->epoch += restarts;
	}
	return m->identify ? m->identify(r, l) : 0;
}

static int same(const struct reading *r, const char *a, const char *b)
{
	const char *x = variable(r, a), *y = variable(r, b);
	return x && y && strcmp(x, y) == 0;
}

/* srun --mpi=pmi2 sets hydra's variables beside its own, which say more.  hydra within a job has its proxies started by srun, so there the two differ. */
static int is_srun(const struct reading *r, const struct launcher *m)
{
	return m->source == ZD_LAUNCH_MPICH && same(r, "PMI_RANK", "SLURM_PROCID") && same(r, "PMI_SIZE", "SLURM_STEP_NUM_TASKS");
}

/* Who says anything about rank or world?  An allocation of Slurm without a task in it does not. */
static const struct launcher *find_launcher(const struct reading *r)
{
	for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
		const struct launcher *m = &launchers[i];
		if (!is_srun(r, m) && (variable(r, m->rank) || (m->source != ZD_LAUNCH_SLURM && variable(r, m->world))))
			return m;
	}
	return NULL;
}

/* l->epoch is 1 plus the restarts. A launcher repeats the command line: if --epoch replaced that, a restart would have the epoch of what failed. */
static int raise_epoch(const struct reading *r, const char *first, struct zd_launch *l)
{
	uint64_t n;
	if (number(r, "--epoch", first, 1, ZD_EPOCH_MAX - (l->epoch - 1), &n) < 0)
		return -1;
	l->epoch += n - 1;
	return 0;
}

static int read_single_options(const struct reading *r, const struct zd_launch_options *o, struct zd_launch *l)
{
	if (o->local_rank && local_rank(r, "--local-rank", o->local_rank, l) < 0)
		return -1;
	if (o->epoch && raise_epoch(r, o->epoch, l) < 0)
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
	static const char *const names[] = {"command line", "torchrun", "Open MPI", "MPICH", "Slurm", "single process"};
	return (unsigned)source < sizeof names / sizeof names[0] ? names[source] : "unknown";
}

uint64_t zd_launch_hash(const char *string)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (; *string; string++)
		h = (h ^ (uint8_t)*string) * 0x100000001b3u;
	return h;
}
