/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/options.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/program.h"

#define EXAMPLES_TRAIN                                                                    \
	"  zerod-lm train --endpoints 127.0.0.1:7410 --text book.txt\n"                   \
	"  zerod-lm train --endpoints a:7410,b:7410 --text book.txt --rank 0 --world 2\n" \
	"  torchrun --no-python --nproc-per-node 2 \\\n"                                  \
	"      zerod-lm train --endpoints a:7410 --text book.txt\n"
#define EXAMPLES_REFERENCE "  zerod-lm reference --world 2 --text book.txt\n"
#define LAUNCH                                                                                                                                   \
	"Rank and world size come from the options, or from the environment of torchrun, Open MPI, MPICH or Slurm, whose restarts raise the epoch.\n" \
	"Exit status: 0 done, 1 failed, 2 usage, 75 the launch is over (a worker died, a daemon went away): start all ranks again with a "           \
	"higher --epoch, and training goes on from the last decided round."

/* What --help says: of the program, and of each command. */
static const struct help {
	const char *command, *examples, *doc;
} helps[] = {
	{"train", "Examples:\n" EXAMPLES_TRAIN "\n", "One worker process of a training through zerod's shard daemons; start one per rank.\v" LAUNCH},
	{"reference", "Examples:\n" EXAMPLES_REFERENCE "\n",
	 "The training of all ranks of --world in one process without any daemon: the same bits.\v"
	 "Options of train are taken as well, so that both may be called alike.\n"
	 "Exit status: 0 done, 1 failed, 2 usage."},
	{"train|reference", "Examples:\n" EXAMPLES_TRAIN EXAMPLES_REFERENCE "\n",
	 "Trains a byte-level Transformer through zerod's shard daemons.\v"
	 "Commands:\n"
	 "  train       one worker process; start one per rank\n"
	 "  reference   the same training for all ranks in one process without any\n"
	 "              daemon: the same bits\n"
	 "\n"
	 "zerod-lm COMMAND --help says more about one.\n" LAUNCH},
};

enum key {
	K_ENDPOINTS = 256, K_JOB, K_TEXT, K_STAGE, K_RESHARD, K_MICRO, K_ACCUMULATE, K_STEPS, K_SEED, K_CODEC, K_LAYERS, K_DIM, K_HEADS,
	K_CONTEXT, K_BATCH, K_RECOMPUTE, K_LR, K_FLOOR, K_WARMUP, K_DECAY, K_BETA1, K_BETA2, K_EPS, K_NORM, K_OPTIMIZER, K_GATHER, K_PREFETCH,
	K_LEASE, K_TIMEOUT, K_SAMPLE, K_SAMPLE_WEIGHTS, K_RESULT, K_JSON, K_PROGRESS, K_KERNELS, K_RANK, K_WORLD, K_LOCAL, K_EPOCH, K_LAUNCH,
};

static const struct argp_option table[] = {
	{NULL, 0, NULL, 0, "Where", 1},
	{"endpoints", K_ENDPOINTS, "HOST:PORT,...", 0, "daemons, in the same order for every rank (127.0.0.1:7410)", 0},
	{"job", K_JOB, "NAME", 0, "job on the daemons (zerod-lm)", 0},
	{"rank", K_RANK, "N", 0, "this worker, from 0; goes with --world (0)", 0},
	{"world", K_WORLD, "N", 0, "number of workers (1)", 0},
	{"local-rank", K_LOCAL, "N", 0, "this worker among those of its host", 0},
	{"epoch", K_EPOCH, "N", 0, "launch number; raise it whenever you launch again (1)", 0},
	{"launch-id", K_LAUNCH, "TEXT", 0, "name of the launch, equal on all ranks", 0},
	{NULL, 0, NULL, 0, "Sharding", 2},
	{"stage", K_STAGE, "0|1|2|3", 0, "ZeRO stage (3)", 0},
	{"reshard-after-forward", K_RESHARD, "yes|no", 0, "stage 3: drop weights between forward and backward (yes)", 0},
	{"gather-bytes", K_GATHER, "BYTES", 0, "bound on gathered weights (two largest units)", 0},
	{"prefetch", K_PREFETCH, "UNITS", 0, "units fetched ahead (1)", 0},
	{"grad-codec", K_CODEC, "bf16|fp32", 0, "gradients on the wire (bf16)", 0},
	{"lease", K_LEASE, "SECONDS", 0, "silence after which a worker counts as dead (10)", 0},
	{"timeout", K_TIMEOUT, "SECONDS", 0, "bound on each wait (60), 0 for none", 0},
	{NULL, 0, NULL, 0, "Training", 3},
	{"text", K_TEXT, "FILE", 0, "what to train on", 0},
	{"steps", K_STEPS, "N", 0, "rounds to reach (150)", 0},
	{"micro-batches", K_MICRO, "N", 0, "gradient accumulation (1)", 0},
	{"accumulate", K_ACCUMULATE, "exact|local", 0, "stages 0 and 1: send each micro-batch, the same bits as stages 2 and 3 (exact), or one sum", 0},
	{"seed", K_SEED, "N", 0, "of initial weights and data order (1)", 0},
	{"lr", K_LR, "X", 0, "peak learning rate (6e-3)", 0},
	{"lr-floor", K_FLOOR, "X", 0, "rate at the end (a tenth of the peak)", 0},
	{"warmup", K_WARMUP, "STEPS", 0, "linear warm-up (a tenth of the steps)", 0},
	{"weight-decay", K_DECAY, "X", 0, "(0.01)", 0},
	{"beta1", K_BETA1, "X", 0, "(0.9)", 0},
	{"beta2", K_BETA2, "X", 0, "(0.99)", 0},
	{"eps", K_EPS, "X", 0, "(1e-8)", 0},
	{"max-norm", K_NORM, "X", 0, "gradient clipping, 0 for none (1)", 0},
	{"optimizer", K_OPTIMIZER, "adamw|adam", 0, "adam: L2 instead of decoupled decay (adamw)", 0},
	{NULL, 0, NULL, 0, "Model", 4},
	{"layers", K_LAYERS, "N", 0, "blocks (4)", 0},
	{"dim", K_DIM, "N", 0, "width (128)", 0},
	{"heads", K_HEADS, "N", 0, "attention heads (4)", 0},
	{"context", K_CONTEXT, "BYTES", 0, "length of a sequence (64)", 0},
	{"batch", K_BATCH, "N", 0, "sequences per micro-batch and rank (8)", 0},
	{"recompute", K_RECOMPUTE, NULL, 0, "keep block inputs only, compute the rest again in backward", 0},
	{NULL, 0, NULL, 0, "Output", 5},
	{"sample", K_SAMPLE, "BYTES", 0, "text to generate at the end (0)", 0},
	{"sample-weights", K_SAMPLE_WEIGHTS, "hold|fetch", 0,
	 "stage 3: all weights at once for the sample, or one unit at a time (hold)", 0},
	{"result", K_RESULT, "FILE", 0, "write the SHA-256 of the final weights there", 0},
	{"json", K_JSON, NULL, 0, "one JSON object per step and one at the end, on standard output", 0},
	{"progress", K_PROGRESS, "auto|always|never", 0, "progress line (auto: on a terminal, rank 0)", 0},
	{"kernels", K_KERNELS, "NAME", 0, "at most scalar, avx2 or avx512 (the best)", 0},
	ZD_PROGRAM_OPTIONS,
	{0},
};

/* What only a worker has. */
static const int of_train[] = {K_ENDPOINTS, K_JOB, K_RANK, K_LOCAL, K_EPOCH, K_LAUNCH, K_STAGE, K_RESHARD, K_GATHER, K_PREFETCH, K_LEASE, K_TIMEOUT,
			       K_SAMPLE_WEIGHTS};

struct parsing {
	struct zd_lm_options *o;
	struct zd_launch_options launch;
	const char *command;
	int help; /* the key that asked for it; the command may come yet */
	int has_floor, has_warmup;
};

static double real(struct argp_state *state, const char *name, const char *text, double min, double max)
{
	char *end;
	errno = 0;
	double v = strtod(text, &end);
	if (end == text || *end || errno || !(v >= min && v <= max))
		argp_error(state, "--%s: expected a number from %.9g to %.9g, found '%s'", name, min, max, text);
	return v;
}

static uint64_t whole(struct argp_state *state, const char *name, const char *text, uint64_t min, uint64_t max)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (end == text || *end || errno || strchr(text, '-') || v < min || v > max)
		argp_error(state, "--%s: expected a whole number from %llu to %llu, found '%s'", name, (unsigned long long)min,
			   (unsigned long long)max, text);
	return v;
}

/* Index of text among the NULL-terminated words. */
static int word(struct argp_state *state, const char *name, const char *text, const char *const *words)
{
	char all[128] = "";
	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0)
			return i;
		size_t len = strlen(all);
		snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", words[i]);
	}
	argp_error(state, "--%s: expected one of %s; found '%s'", name, all, text);
	return 0;
}

static int parse_launch(struct parsing *p, int key, char *arg)
{
	switch (key) {
	case K_RANK: p->launch.rank = arg; return 1;
	case K_WORLD: p->launch.world = arg; return 1;
	case K_LOCAL: p->launch.local_rank = arg; return 1;
	case K_EPOCH: p->launch.epoch = arg; return 1;
	case K_LAUNCH: p->launch.launch_id = arg; return 1;
	default: return 0;
	}
}

static int parse_model(struct zd_lm_options *o, int key, char *arg, struct argp_state *s)
{
	switch (key) {
	case K_LAYERS: o->model.layers = (uint32_t)whole(s, "layers", arg, 1, ZD_LM_LAYERS_MAX); return 1;
	case K_DIM: o->model.dim = (uint32_t)whole(s, "dim", arg, 1, ZD_LM_DIM_MAX); return 1;
	case K_HEADS: o->model.heads = (uint32_t)whole(s, "heads", arg, 1, ZD_LM_DIM_MAX); return 1;
	case K_CONTEXT: o->model.context = (uint32_t)whole(s, "context", arg, 1, ZD_LM_CONTEXT_MAX); return 1;
	case K_BATCH: o->model.batch = (uint32_t)whole(s, "batch", arg, 1, ZD_LM_BATCH_MAX); return 1;
	case K_RECOMPUTE: o->model.recompute = true; return 1;
	default: return 0;
	}
}

static int parse_training(struct parsing *p, int key, char *arg, struct argp_state *s)
{
	static const char *const accumulates[] = {"exact", "local", NULL}, *const optimizers[] = {"adamw", "adam", NULL};
	struct zd_lm_options *o = p->o;
	switch (key) {
	case K_TEXT: o->text = arg; return 1;
	case K_STEPS: o->steps = (uint32_t)whole(s, "steps", arg, 1, 1000000000); return 1;
	case K_MICRO: o->micro_batches = (uint32_t)whole(s, "micro-batches", arg, 1, ZD_MICRO_MAX); return 1;
	case K_ACCUMULATE: o->accumulate = (enum zd_lm_accumulate)word(s, "accumulate", arg, accumulates); return 1;
	case K_SEED: o->seed = whole(s, "seed", arg, 0, UINT64_MAX); return 1;
	case K_LR: o->schedule.peak = real(s, "lr", arg, 1e-12, 1e3); return 1;
	case K_FLOOR: o->schedule.floor = real(s, "lr-floor", arg, 0, 1e3); p->has_floor = 1; return 1;
	case K_WARMUP: o->schedule.warmup = whole(s, "warmup", arg, 0, 1000000000); p->has_warmup = 1; return 1;
	case K_DECAY: o->weight_decay = real(s, "weight-decay", arg, 0, 1e3); return 1;
	case K_BETA1: o->beta1 = real(s, "beta1", arg, 0, 0.9999999); return 1;
	case K_BETA2: o->beta2 = real(s, "beta2", arg, 0, 0.9999999); return 1;
	case K_EPS: o->eps = real(s, "eps", arg, 1e-30, 1); return 1;
	case K_NORM: o->max_norm = real(s, "max-norm", arg, 0, 1e30); return 1;
	case K_OPTIMIZER: o->l2 = (uint32_t)word(s, "optimizer", arg, optimizers); return 1;
	default: return 0;
	}
}

static int parse_sharding(struct zd_lm_options *o, int key, char *arg, struct argp_state *s)
{
	static const char *const no_yes[] = {"no", "yes", NULL}, *const codecs[] = {"bf16", "fp32", NULL};
	switch (key) {
	case K_ENDPOINTS: o->endpoints = arg; return 1;
	case K_JOB: o->job = arg; return 1;
	case K_STAGE: o->stage = (uint32_t)whole(s, "stage", arg, 0, 3); return 1;
	case K_RESHARD: o->reshard = (uint32_t)word(s, "reshard-after-forward", arg, no_yes); return 1;
	case K_GATHER: o->gather_bytes = whole(s, "gather-bytes", arg, 1, UINT64_MAX); return 1;
	case K_PREFETCH: o->prefetch = (uint32_t)whole(s, "prefetch", arg, 0, ZD_UNITS_MAX); return 1;
	case K_CODEC: o->grad_codec = word(s, "grad-codec", arg, codecs) ? ZD_CODEC_FP32 : ZD_CODEC_BF16; return 1;
	case K_LEASE: o->lease_ms = (uint32_t)(real(s, "lease", arg, 0.1, 3600) * 1e3); return 1;
	case K_TIMEOUT: o->timeout_ms = (uint32_t)ceil(real(s, "timeout", arg, 0, 86400) * 1e3); return 1; /* only 0 is none */
	default: return 0;
	}
}

static int parse_output(struct zd_lm_options *o, int key, char *arg, struct argp_state *s)
{
	static const char *const kernels[] = {"scalar", "avx2", "avx512", NULL};
	static const char *const progresses[] = {"auto", "never", "always", NULL}, *const sample_weights[] = {"fetch", "hold", NULL};
	switch (key) {
	case K_SAMPLE: o->sample = (uint32_t)whole(s, "sample", arg, 0, 1000000); return 1;
	case K_SAMPLE_WEIGHTS: o->sample_hold = (uint32_t)word(s, "sample-weights", arg, sample_weights); return 1;
	case K_RESULT: o->result = arg; return 1;
	case K_JSON: o->json = 1; return 1;
	case K_PROGRESS: o->progress = word(s, "progress", arg, progresses) - 1; return 1;
	case K_KERNELS: o->kernels = kernels[word(s, "kernels", arg, kernels)]; return 1;
	default: return 0;
	}
}

static int is_of_train(int key)
{
	for (size_t i = 0; i < sizeof of_train / sizeof of_train[0]; i++)
		if (of_train[i] == key)
			return 1;
	return 0;
}

/* Ends the program. */
static void print_help(const struct parsing *p, struct argp_state *state)
{
	struct argp_option rows[sizeof table / sizeof table[0]];
	const struct help *h = helps;
	while (h < helps + 2 && (!p->command || strcmp(h->command, p->command) != 0))
		h++;
	memcpy(rows, table, sizeof table);
	for (size_t i = 0; h == helps + 1 && i < sizeof rows / sizeof rows[0]; i++)
		if (is_of_train(rows[i].key))
			rows[i].flags |= OPTION_HIDDEN;
	const struct argp argp = {rows, NULL, h->command, h->doc, NULL, NULL, NULL};
	state->root_argp = &argp;
	(void)zd_program_help(p->help, h->examples, state);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct parsing *p = state->input;
	switch (key) {
	case ARGP_KEY_ARG:
		if (p->command)
			argp_error(state, "expected one command and options, found '%s'", arg);
		p->command = arg;
		return 0;
	case ARGP_KEY_END:
		if (p->help)
			print_help(p, state);
		return 0;
	case '?':
	case 'h':
	case ZD_PROGRAM_USAGE:
		p->help = key;
		return 0;
	default: break;
	}
	if (zd_program_help(key, "", state) || parse_launch(p, key, arg) || parse_model(p->o, key, arg, state) || parse_training(p, key, arg, state) ||
	    parse_sharding(p->o, key, arg, state) || parse_output(p->o, key, arg, state))
		return 0;
	return ARGP_ERR_UNKNOWN;
}

static void defaults(struct zd_lm_options *o)
{
	*o = (struct zd_lm_options){
		.model = zd_lm_config_default(),
		.schedule = {.peak = 6e-3},
		.endpoints = "127.0.0.1:7410",
		.job = "zerod-lm",
		.stage = 3,
		.reshard = 1,
		.micro_batches = 1,
		.steps = 150,
		.seed = 1,
		.grad_codec = ZD_CODEC_BF16,
		.weight_decay = 0.01,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.max_norm = 1,
		.prefetch = 1,
		.lease_ms = 10000,
		.timeout_ms = 60000,
		.sample_hold = 1,
		.progress = -1,
	};
}

static void usage_error(const char *text)
{
	fprintf(stderr, "zerod-lm: %s\nTry 'zerod-lm --help'.\n", text);
	exit(2);
}

/* What the options say together. */
static void finish(struct parsing *p)
{
	struct zd_lm_options *o = p->o;
	char text[512];
	if (!p->command)
		usage_error("a command is missing: train or reference");
	if (strcmp(p->command, "train") != 0 && strcmp(p->command, "reference") != 0) {
		snprintf(text, sizeof text, "no command '%.100s'; expected train or reference", p->command);
		usage_error(text);
	}
	o->command = p->command[0] == 't' ? ZD_LM_TRAIN : ZD_LM_REFERENCE;
	if (o->command == ZD_LM_REFERENCE && p->launch.world && !p->launch.rank)
		p->launch.rank = "0"; /* --world alone is enough */
	if (!o->text)
		usage_error("--text is missing: expected a file to train on, for instance /usr/share/common-licenses/GPL-3");
	if (!p->has_floor)
		o->schedule.floor = o->schedule.peak / 10;
	if (!p->has_warmup)
		o->schedule.warmup = o->steps / 10;
	o->schedule.steps = o->steps;
	if (zd_launch_read(&p->launch, NULL, NULL, &o->launch, text, sizeof text) < 0 ||
	    zd_lm_config_check(&o->model, text, sizeof text) < 0 || zd_schedule_check(&o->schedule, text, sizeof text) < 0)
		usage_error(text);
	if (o->command == ZD_LM_REFERENCE)
		o->launch.rank = 0; /* whatever a launcher says: it plays all of them, and reports */
	if (o->launch.world > ZD_WORLD_MAX) {
		snprintf(text, sizeof text, "--world: expected at most %u workers, found %u", ZD_WORLD_MAX, o->launch.world);
		usage_error(text);
	}
	if (!o->reshard && o->stage != 3)
		usage_error("--reshard-after-forward=no is for stage 3; stages 0 to 2 keep all weights anyway");
	if (!o->sample_hold && o->stage != 3)
		usage_error("--sample-weights=fetch is for stage 3; stages 0 to 2 hold all weights anyway");
	if (o->accumulate == ZD_LM_LOCAL && o->stage > 1 && o->command == ZD_LM_TRAIN)
		usage_error("--accumulate=local is for stages 0 and 1; stages 2 and 3 keep no gradients to add up");
}

void zd_lm_options_parse(struct zd_lm_options *options, int argc, char **argv)
{
	static const struct argp argp = {table, parse, "train|reference", NULL, NULL, NULL, NULL};
	struct parsing p = {.o = options};
	defaults(options);
	argp_err_exit_status = 2;
	argv[0] = program_invocation_short_name; /* what messages begin with */
	argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &p);
	finish(&p);
}
