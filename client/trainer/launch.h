/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who this process is: rank and world size, which launch it belongs to, and that launch's epoch.
 *
 * The first of these that says anything about rank or world says both, and the rest as far as it knows it:
 *
 *   source        taken if          rank           world                  local rank             restarts                     launch id
 *   options       --rank, --world   --rank         --world                0                      0                            ""
 *   torchrun      RANK, WORLD_SIZE  RANK           WORLD_SIZE             LOCAL_RANK             TORCHELASTIC_RESTART_COUNT   see below
 *   Open MPI      OMPI_COMM_WORLD_  .._RANK        .._SIZE                .._LOCAL_RANK          SLURM_RESTART_COUNT          PMIX_NAMESPACE, else OMPI_MCA_ess_base_jobid
 *   MPICH (hydra) PMI_RANK, _SIZE   PMI_RANK       PMI_SIZE               MPI_LOCALRANKID        SLURM_RESTART_COUNT          ""
 *   Slurm         SLURM_PROCID      SLURM_PROCID   SLURM_STEP_NUM_TASKS   SLURM_LOCALID          SLURM_RESTART_COUNT          SLURM_JOB_ID, SLURM_STEP_ID: "17.0"
 *   nothing                         0              1                      0                      0                            ""
 *
 * The epoch is --epoch (1 without it) plus the restarts: a launcher that starts workers again repeats their command line.
 *
 * torchrun's launch id is TORCHELASTIC_RUN_ID, unless nobody chose one ("none").  Then, with all ranks on one host (LOCAL_WORLD_SIZE is
 * WORLD_SIZE), two folders of TORCHELASTIC_ERROR_FILE, "none_k2x7q0v1/attempt_0": torchrun draws that name anew for every launch.  Else
 * MASTER_ADDR:MASTER_PORT, which two launches share only if both were told that port; they have to be told an id, too (torchrun --rdzv-id).
 *
 * Each agent of torchrun counts restarts by itself.  With a static rendezvous the counts agree: every agent sees its own workers end.  With c10d an
 * agent that starts healthy workers again, because another agent's have failed, does not count that, so there they do not (the manual says what to do).
 *
 * Slurm: in an allocation without a task in it (a shell of salloc: SLURM_NTASKS but no SLURM_PROCID) this is a single process; in the shell of a batch
 * script (SLURM_PROCID, but no SLURM_STEP_NUM_TASKS), too, if the job has one task, else an error.
 *
 * --local-rank and --launch-id replace that one field whatever the source.
 *
 * A value that is not a number, out of range or at odds with another is an error that names the option or the variable, also
 * for LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS and MASTER_PORT;
 * an empty variable counts as not set. The environment is only read. Any thread, as far as getenv allows it.
 */
#ifndef ZD_TRAINER_LAUNCH_H
#define ZD_TRAINER_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

#define ZD_LAUNCH_WORLD_MAX 65536 /* any would do: far above what one job can use, far below an overflow of a product */
#define ZD_LAUNCH_ID_MAX 255

enum zd_launch_source { ZD_LAUNCH_OPTIONS, ZD_LAUNCH_TORCHRUN, ZD_LAUNCH_OPENMPI, ZD_LAUNCH_MPICH, ZD_LAUNCH_SLURM, ZD_LAUNCH_SINGLE };

/* The arguments as typed; NULL: not given. */
struct zd_launch_options {
	const char *rank, *world, *local_rank, *epoch, *launch_id; /* epoch: before restarts */
};

struct zd_launch {
	enum zd_launch_source source;
	uint32_t rank;
	uint32_t world;
	uint32_t local_rank;
	uint64_t epoch;			 /* from 1 */
	char launch_id[ZD_LAUNCH_ID_MAX + 1]; /* the same on all ranks of one launch */
	uint64_t nonce;			 /* zd_launch_hash of launch_id */
};

/* Like getenv, with a pointer of the caller's. */
typedef const char *zd_launch_env(void *user, const char *name);

/* env NULL: the process's own environment. 0, or -1 with a text. */
int zd_launch_read(const struct zd_launch_options *options, zd_launch_env *env, void *user, struct zd_launch *ret_launch, char *text,
		   size_t text_size) ZD_MUST_USE;

/* "command line", "torchrun", "Open MPI", "MPICH", "Slurm", "single process"; static. */
const char *zd_launch_source_name(enum zd_launch_source source);

/* FNV-1a, 64 bits, of the bytes before the end of the string. */
uint64_t zd_launch_hash(const char *string);

#endif
