/* SPDX-License-Identifier: Apache-2.0 */
/* Who am I: options and the environments of the launchers, what they say and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "client/trainer/launch.h"

/* "NAME=value" pairs, ended by NULL. */
#define VARIABLES 16

static const char *look_up(void *user, const char *name)
{
	const char *const *variables = user;
	size_t length = strlen(name);

	for (; *variables != NULL; variables++)
		if (strncmp(*variables, name, length) == 0 && (*variables)[length] == '=')
			return *variables + length + 1;
	return NULL;
}

static int read_with(const struct zd_launch_options *options, const char *const *variables, struct zd_launch *launch, char text[300])
{
	return zd_launch_read(options, look_up, (void *)(uintptr_t)variables, launch, text, 300);
}

#define TORCHRUN "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "TORCHELASTIC_RESTART_COUNT=4", "TORCHELASTIC_RUN_ID=abc", "MASTER_ADDR=h", "MASTER_PORT=29500"
#define NONE "RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=h", "MASTER_PORT=29500"
#define ERROR_FILE "TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_1s/none_k2x7/attempt_2/1/error.json"
#define OPENMPI "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_RANK=2", "PMIX_NAMESPACE=prterun-1"
#define SLURM "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=8", "SLURM_LOCALID=0", "SLURM_JOB_ID=17"
/* What real launchers set for rank 1 of 2: torchrun 2.13 alone, with c10d, and as the second of two hosts; Open MPI 4.1.4, hydra 4.0.2, Slurm 22.05. */
#define TORCHRUN_REAL "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=localhost", "TORCHELASTIC_MAX_RESTARTS=3"
#define STANDALONE TORCHRUN_REAL, "TORCHELASTIC_RESTART_COUNT=1", "MASTER_PORT=37385", "TORCHELASTIC_RUN_ID=bfb596b1-55ff-4530-b716-f2ef097b4848", \
	"TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_015y3cg6/bfb596b1-55ff-4530-b716-f2ef097b4848_bkqvxmds/attempt_1/1/error.json"
#define C10D TORCHRUN_REAL, "TORCHELASTIC_RESTART_COUNT=0", "MASTER_PORT=44205", "TORCHELASTIC_RUN_ID=none", \
	"TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_n94u0sbi/none_z7cua9ff/attempt_0/1/error.json"
#define TWO_HOSTS "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29622", \
	"TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_e0mj9g_y/none_rl2zi3sf/attempt_0/0/error.json"
#define OPENMPI_REAL "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", \
	"OMPI_MCA_ess_base_jobid=103809025", "PMIX_NAMESPACE=103809025", "PMIX_RANK=1"
#define HYDRA "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "HYDI_CONTROL_FD=7"
#define SRUN "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_JOB_ID=8", "SLURM_STEP_ID=1"
#define BATCH "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_JOB_ID=8"

static const struct {
	struct zd_launch_options options; /* rank, world, local_rank, epoch, launch_id */
	const char *variables[VARIABLES];
	enum zd_launch_source source;
	uint32_t rank, world, local_rank;
	uint64_t epoch;
	const char *launch_id;
} sources[] = {
	{ { 0 }, { NULL }, ZD_LAUNCH_SINGLE, 0, 1, 0, 1, "" },
	{ { "1", "2", NULL, NULL, NULL }, { NULL }, ZD_LAUNCH_OPTIONS, 1, 2, 0, 1, "" },
	{ { "1", "2", "1", "7", "run" }, { NULL }, ZD_LAUNCH_OPTIONS, 1, 2, 1, 7, "run" },
	{ { NULL, NULL, NULL, "7", NULL }, { NULL }, ZD_LAUNCH_SINGLE, 0, 1, 0, 7, "" },
	{ { "65535", "65536", NULL, "9223372036854775807", NULL }, { NULL }, ZD_LAUNCH_OPTIONS, 65535, 65536, 0, UINT64_MAX >> 1, "" },
	/* one source says all: nothing of the environment joins rank and world of the options */
	{ { "1", "2", NULL, NULL, NULL }, { TORCHRUN, NULL }, ZD_LAUNCH_OPTIONS, 1, 2, 0, 1, "" },
	{ { 0 }, { TORCHRUN, NULL }, ZD_LAUNCH_TORCHRUN, 3, 8, 1, 5, "abc" },
	/* restarts go on from the epoch of the command line, which the launcher repeats */
	{ { NULL, NULL, "2", "9", "mine" }, { TORCHRUN, NULL }, ZD_LAUNCH_TORCHRUN, 3, 8, 2, 13, "mine" },
	{ { NULL, NULL, NULL, "9223372036854775803", NULL }, { TORCHRUN, NULL }, ZD_LAUNCH_TORCHRUN, 3, 8, 1, UINT64_MAX >> 1, "abc" },
	{ { NULL, NULL, NULL, "1", NULL }, { TORCHRUN, NULL }, ZD_LAUNCH_TORCHRUN, 3, 8, 1, 5, "abc" },
	{ { 0 }, { TORCHRUN, "SLURM_RESTART_COUNT=7", NULL }, ZD_LAUNCH_TORCHRUN, 3, 8, 1, 5, "abc" },
	{ { "1", "2", NULL, "9", NULL }, { TORCHRUN, NULL }, ZD_LAUNCH_OPTIONS, 1, 2, 0, 9, "" },
	{ { 0 }, { STANDALONE, NULL }, ZD_LAUNCH_TORCHRUN, 1, 2, 1, 2, "bfb596b1-55ff-4530-b716-f2ef097b4848" },
	{ { 0 }, { C10D, NULL }, ZD_LAUNCH_TORCHRUN, 1, 2, 1, 1, "none_z7cua9ff/attempt_0" },
	{ { 0 }, { TWO_HOSTS, NULL }, ZD_LAUNCH_TORCHRUN, 1, 2, 0, 1, "127.0.0.1:29622" },
	{ { 0 }, { "RANK=0", "WORLD_SIZE=1", NULL }, ZD_LAUNCH_TORCHRUN, 0, 1, 0, 1, "" },
	{ { 0 }, { "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=h", "MASTER_PORT=29500", NULL }, ZD_LAUNCH_TORCHRUN, 0, 1, 0, 1, "h:29500" },
	/* nobody gave the launch an id: the random folder of a launch on one host, else where the ranks meet */
	{ { 0 }, { NONE, "LOCAL_WORLD_SIZE=4", ERROR_FILE, NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "none_k2x7/attempt_2" },
	{ { 0 }, { NONE, "LOCAL_WORLD_SIZE=2", ERROR_FILE, NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "h:29500" },
	{ { 0 }, { NONE, ERROR_FILE, NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "h:29500" },
	{ { 0 }, { NONE, "LOCAL_WORLD_SIZE=4", "TORCHELASTIC_ERROR_FILE=", NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "h:29500" },
	{ { 0 }, { NONE, "LOCAL_WORLD_SIZE=4", "TORCHELASTIC_ERROR_FILE=a/b/c/error.json", NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "h:29500" },
	{ { 0 }, { NONE, "LOCAL_WORLD_SIZE=4", "TORCHELASTIC_ERROR_FILE=/a/b/c/error.json", NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "a/b" },
	{ { NULL, NULL, NULL, NULL, "mine" }, { NONE, "LOCAL_WORLD_SIZE=4", ERROR_FILE, NULL }, ZD_LAUNCH_TORCHRUN, 1, 4, 1, 3, "mine" },
	{ { 0 }, { "RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=none", NULL }, ZD_LAUNCH_TORCHRUN, 0, 1, 0, 1, "none" },
	{ { 0 }, { TORCHRUN, "LOCAL_WORLD_SIZE=8", ERROR_FILE, NULL }, ZD_LAUNCH_TORCHRUN, 3, 8, 1, 5, "abc" },
	{ { 0 }, { OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=3", NULL }, ZD_LAUNCH_OPENMPI, 5, 6, 2, 1, "prterun-1" },
	{ { 0 }, { OPENMPI, NULL }, ZD_LAUNCH_OPENMPI, 5, 6, 2, 1, "prterun-1" },
	{ { 0 }, { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess_base_jobid=99", NULL }, ZD_LAUNCH_OPENMPI, 0, 2, 0, 1,
	  "99" },
	{ { 0 }, { OPENMPI_REAL, NULL }, ZD_LAUNCH_OPENMPI, 1, 2, 1, 1, "103809025" },
	/* nothing tells two launches of hydra apart */
	{ { 0 }, { HYDRA, NULL }, ZD_LAUNCH_MPICH, 1, 2, 1, 1, "" },
	{ { NULL, NULL, NULL, "3", "mine" }, { HYDRA, NULL }, ZD_LAUNCH_MPICH, 1, 2, 1, 3, "mine" },
	/* its proxy is a task of Slurm's, one on each host */
	{ { 0 }, { HYDRA, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_JOB_ID=8", NULL }, ZD_LAUNCH_MPICH, 1, 2, 1, 1, "" },
	{ { 0 }, { HYDRA, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_JOB_ID=8", NULL }, ZD_LAUNCH_MPICH, 1, 2, 1, 1, "" },
	{ { 0 }, { HYDRA, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=3", "SLURM_JOB_ID=8", NULL }, ZD_LAUNCH_MPICH, 1, 2, 1, 1, "" },
	{ { 0 }, { SLURM, NULL }, ZD_LAUNCH_SLURM, 2, 4, 0, 1, "17" },
	{ { 0 }, { SRUN, NULL }, ZD_LAUNCH_SLURM, 1, 2, 1, 1, "8.1" },
	/* srun --mpi=pmi2 */
	{ { 0 }, { SRUN, "PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=8.1", NULL }, ZD_LAUNCH_SLURM, 1, 2, 1, 1, "8.1" },
	/* sbatch --requeue repeats the script */
	{ { NULL, NULL, NULL, "5", NULL }, { SRUN, "SLURM_RESTART_COUNT=1", NULL }, ZD_LAUNCH_SLURM, 1, 2, 1, 6, "8.1" },
	{ { 0 }, { OPENMPI_REAL, "SLURM_RESTART_COUNT=1", NULL }, ZD_LAUNCH_OPENMPI, 1, 2, 1, 2, "103809025" },
	{ { 0 }, { HYDRA, "SLURM_RESTART_COUNT=2", NULL }, ZD_LAUNCH_MPICH, 1, 2, 1, 3, "" },
	/* the script itself, of a job for one task */
	{ { 0 }, { BATCH, NULL }, ZD_LAUNCH_SLURM, 0, 1, 0, 1, "8" },
	{ { 0 }, { BATCH, "SLURM_NTASKS=1", "SLURM_RESTART_COUNT=1", NULL }, ZD_LAUNCH_SLURM, 0, 1, 0, 2, "8" },
	{ { 0 }, { SLURM, "SLURM_RESTART_COUNT=2", "SLURM_STEP_ID=3", NULL }, ZD_LAUNCH_SLURM, 2, 4, 0, 3, "17.3" },
	/* a shell of salloc is no task */
	{ { 0 }, { "SLURM_NTASKS=4", "SLURM_JOB_ID=17", NULL }, ZD_LAUNCH_SINGLE, 0, 1, 0, 1, "" },
	{ { 0 }, { "SLURM_STEP_NUM_TASKS=4", NULL }, ZD_LAUNCH_SINGLE, 0, 1, 0, 1, "" },
	/* torchrun before Open MPI before hydra before Slurm */
	{ { 0 }, { SLURM, OPENMPI, "RANK=0", "WORLD_SIZE=3", NULL }, ZD_LAUNCH_TORCHRUN, 0, 3, 0, 1, "" },
	{ { 0 }, { SLURM, HYDRA, OPENMPI, NULL }, ZD_LAUNCH_OPENMPI, 5, 6, 2, 1, "prterun-1" },
	/* empty counts as not set */
	{ { 0 }, { "RANK=", "WORLD_SIZE=", SLURM, NULL }, ZD_LAUNCH_SLURM, 2, 4, 0, 1, "17" },
};

static void test_sources(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		struct zd_launch l;
		char text[300] = "";

		if (read_with(&sources[i].options, sources[i].variables, &l, text) != 0)
			fail_msg("case %zu: %s", i, text);
		if (l.source != sources[i].source || l.rank != sources[i].rank || l.world != sources[i].world ||
		    l.local_rank != sources[i].local_rank || l.epoch != sources[i].epoch || strcmp(l.launch_id, sources[i].launch_id) != 0)
			fail_msg("case %zu: found %s, %u of %u, local %u, epoch %llu, id %s", i, zd_launch_source_name(l.source), l.rank,
				 l.world, l.local_rank, (unsigned long long)l.epoch, l.launch_id);
		assert_true(l.nonce == zd_launch_hash(sources[i].launch_id));
	}
}

static const struct {
	struct zd_launch_options options;
	const char *variables[VARIABLES];
	const char *text;
} refusals[] = {
	{ { "1", NULL, NULL, NULL, NULL }, { TORCHRUN, NULL }, "--rank is 1 but --world is not given: expected both" },
	{ { NULL, "2", NULL, NULL, NULL }, { TORCHRUN, NULL }, "--world is 2 but --rank is not given: expected both" },
	{ { "2", "2", NULL, NULL, NULL }, { NULL }, "--rank: expected a rank below --world = 2, found 2" },
	{ { "-1", "2", NULL, NULL, NULL }, { NULL }, "--rank: expected a whole number from 0 to 65535, found '-1'" },
	{ { "", "2", NULL, NULL, NULL }, { NULL }, "--rank: expected a whole number from 0 to 65535, found ''" },
	{ { "1x", "2", NULL, NULL, NULL }, { NULL }, "--rank: expected a whole number from 0 to 65535, found '1x'" },
	{ { " 1", "2", NULL, NULL, NULL }, { NULL }, "--rank: expected a whole number from 0 to 65535, found ' 1'" },
	{ { "0", "0", NULL, NULL, NULL }, { NULL }, "--world: expected a whole number from 1 to 65536, found '0'" },
	{ { "0", "65537", NULL, NULL, NULL }, { NULL }, "--world: expected a whole number from 1 to 65536, found '65537'" },
	{ { "0", "99999999999999999999", NULL, NULL, NULL },
	  { NULL },
	  "--world: expected a whole number from 1 to 65536, found '99999999999999999999'" },
	{ { "1", "4", "2", NULL, NULL }, { NULL }, "--local-rank: expected a local rank of at most the rank 1, found 2" },
	{ { NULL, NULL, NULL, "0", NULL }, { NULL }, "--epoch: expected a whole number from 1 to 9223372036854775807, found '0'" },
	{ { NULL, NULL, NULL, "9223372036854775808", NULL },
	  { NULL },
	  "--epoch: expected a whole number from 1 to 9223372036854775807, found '9223372036854775808'" },
	{ { NULL, NULL, NULL, "9223372036854775804", NULL },
	  { TORCHRUN, NULL },
	  "--epoch: expected a whole number from 1 to 9223372036854775803, found '9223372036854775804'" },
	{ { 0 }, { "RANK=1", NULL }, "RANK is 1 but WORLD_SIZE is not given: expected both" },
	{ { 0 }, { "WORLD_SIZE=2", NULL }, "WORLD_SIZE is 2 but RANK is not given: expected both" },
	{ { 0 }, { "RANK=4", "WORLD_SIZE=4", NULL }, "RANK: expected a rank below WORLD_SIZE = 4, found 4" },
	{ { 0 }, { "RANK=one", "WORLD_SIZE=4", NULL }, "RANK: expected a whole number from 0 to 65535, found 'one'" },
	{ { 0 }, { "RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=1", NULL }, "LOCAL_RANK: expected a local rank of at most the rank 0, found 1" },
	{ { 0 }, { TORCHRUN, "LOCAL_WORLD_SIZE=x", NULL }, "LOCAL_WORLD_SIZE: expected a whole number from 1 to 8, found 'x'" },
	{ { 0 }, { TORCHRUN, "LOCAL_WORLD_SIZE=0", NULL }, "LOCAL_WORLD_SIZE: expected a whole number from 1 to 8, found '0'" },
	{ { 0 }, { TORCHRUN, "LOCAL_WORLD_SIZE=9", NULL }, "LOCAL_WORLD_SIZE: expected a whole number from 1 to 8, found '9'" },
	{ { 0 }, { TORCHRUN, "LOCAL_WORLD_SIZE=1", NULL }, "LOCAL_RANK: expected a local rank below LOCAL_WORLD_SIZE = 1, found 1" },
	{ { 0 },
	  { "RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=0", NULL },
	  "MASTER_PORT: expected a whole number from 1 to 65535, found '0'" },
	{ { 0 },
	  { "RANK=0", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=abc", "MASTER_PORT=65536", NULL },
	  "MASTER_PORT: expected a whole number from 1 to 65535, found '65536'" },
	{ { 0 },
	  { OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", NULL },
	  "OMPI_COMM_WORLD_LOCAL_RANK: expected a local rank below OMPI_COMM_WORLD_LOCAL_SIZE = 2, found 2" },
	{ { 0 },
	  { OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=7", NULL },
	  "OMPI_COMM_WORLD_LOCAL_SIZE: expected a whole number from 1 to 6, found '7'" },
	{ { 0 },
	  { "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_JOB_ID=x", NULL },
	  "SLURM_JOB_ID: expected a whole number from 0 to 18446744073709551615, found 'x'" },
	{ { 0 },
	  { SLURM, "SLURM_STEP_ID=batch", NULL },
	  "SLURM_STEP_ID: expected a whole number from 0 to 18446744073709551615, found 'batch'" },
	{ { 0 },
	  { "RANK=0", "WORLD_SIZE=4", "TORCHELASTIC_RESTART_COUNT=-1", NULL },
	  "TORCHELASTIC_RESTART_COUNT: expected a whole number from 0 to 9223372036854775806, found '-1'" },
	{ { 0 },
	  { "RANK=0", "WORLD_SIZE=4", "TORCHELASTIC_RESTART_COUNT=9223372036854775807", NULL },
	  "TORCHELASTIC_RESTART_COUNT: expected a whole number from 0 to 9223372036854775806, found '9223372036854775807'" },
	{ { 0 }, { "OMPI_COMM_WORLD_SIZE=2", NULL }, "OMPI_COMM_WORLD_SIZE is 2 but OMPI_COMM_WORLD_RANK is not given: expected both" },
	{ { 0 },
	  { BATCH, "SLURM_NTASKS=2", NULL },
	  "SLURM_NTASKS is 2, but this process is no task of a step (SLURM_STEP_NUM_TASKS is not given): start it with srun, or give --rank and --world" },
	{ { 0 }, { BATCH, "SLURM_NTASKS=x", NULL }, "SLURM_NTASKS: expected a whole number from 1 to 65536, found 'x'" },
	{ { 0 }, { "PMI_SIZE=2", NULL }, "PMI_SIZE is 2 but PMI_RANK is not given: expected both" },
	{ { 0 }, { "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=3", NULL }, "MPI_LOCALNRANKS: expected a whole number from 1 to 2, found '3'" },
	{ { 0 }, { "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=2", NULL }, "MPI_LOCALRANKID: expected a local rank of at most the rank 1, found 2" },
	{ { 0 },
	  { "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=4", NULL },
	  "SLURM_PROCID: expected a rank below SLURM_STEP_NUM_TASKS = 2, found 3" },
	{ { 0 },
	  { SLURM, "SLURM_RESTART_COUNT=x", NULL },
	  "SLURM_RESTART_COUNT: expected a whole number from 0 to 9223372036854775806, found 'x'" },
};

static void test_refusals(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		struct zd_launch l = { .world = 77 };
		char text[300] = "";

		assert_int_equal(read_with(&refusals[i].options, refusals[i].variables, &l, text), -1);
		assert_string_equal(text, refusals[i].text);
		assert_int_equal(l.world, 77); /* written only on success */
	}
}

static void test_long_id(void **state)
{
	char id[ZD_LAUNCH_ID_MAX + 2], text[300];
	static const char *const none[] = { NULL };
	struct zd_launch_options options = { .launch_id = id };
	struct zd_launch l;
	(void)state;

	memset(id, 'a', sizeof(id));
	id[ZD_LAUNCH_ID_MAX] = 0;
	assert_int_equal(read_with(&options, none, &l, text), 0);
	assert_string_equal(l.launch_id, id);
	id[ZD_LAUNCH_ID_MAX] = 'a';
	id[ZD_LAUNCH_ID_MAX + 1] = 0;
	assert_int_equal(read_with(&options, none, &l, text), -1);
	assert_string_equal(text, "--launch-id: expected at most 255 bytes, found 256");
}

static void test_process_environment(void **state)
{
	struct zd_launch_options options = { 0 };
	struct zd_launch l;
	char text[300];
	(void)state;

	assert_int_equal(setenv("RANK", "1", 1) | setenv("WORLD_SIZE", "3", 1), 0);
	assert_int_equal(zd_launch_read(&options, NULL, NULL, &l, text, sizeof(text)), 0);
	assert_int_equal(l.rank, 1);
	assert_int_equal(l.world, 3);
}

static void test_hash(void **state)
{
	/* From the authors' test vectors (draft-eastlake-fnv). */
	(void)state;
	assert_true(zd_launch_hash("") == 0xcbf29ce484222325u);
	assert_true(zd_launch_hash("a") == 0xaf63dc4c8601ec8cu);
	assert_true(zd_launch_hash("foobar") == 0x85944171f73967e8u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sources),		    cmocka_unit_test(test_refusals), cmocka_unit_test(test_long_id),
		cmocka_unit_test(test_process_environment), cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
