/* SPDX-License-Identifier: Apache-2.0 */
/* zerod-lm: a trainer in C, the example and the measure of what libzerod does for a trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/report.h"
#include "client/trainer/sample.h"
#include "client/trainer/text.h"
#include "proto/assert.h"
#include "proto/program.h"
#include "server/kernel/kernel.h"

enum { EXIT_USAGE = 2, EXIT_AGAIN = 75 /* sysexits.h: EX_TEMPFAIL */ };

static void assertion_failed(const char *file, int line, const char *what)
{
	fprintf(stderr, "zerod-lm: %s:%d: %s does not hold; this is a bug, please report it\n", file, line, what);
	abort();
}

static struct zd_lm_state *open_state(const struct zd_lm_options *o, int *ret_failure, char *detail, size_t size)
{
	*ret_failure = ZD_LM_FAILED;
	if (o->command == ZD_LM_REFERENCE)
		return zd_lm_state_local(o, detail, size);
	return o->stage == 0 ? zd_lm_state_replica(o, ret_failure, detail, size) : zd_lm_state_daemon(o, ret_failure, detail, size);
}

/* Files that cannot be used are said before any daemon is asked for anything; the result is not touched yet. */
static int check_files(const struct zd_lm_options *o, char *detail, size_t size)
{
	struct zd_text *text;
	if (zd_text_open(o->text, o->model.context, &text, detail, size) < 0)
		return -1;
	zd_text_close(text);
	FILE *f = o->result && o->launch.rank == 0 ? fopen(o->result, "a") : NULL;
	if (o->result && o->launch.rank == 0 && !f) {
		snprintf(detail, size, "--result: cannot write '%s': %m; choose another file", o->result);
		return -1;
	}
	if (f)
		fclose(f);
	return 0;
}

/* One unit at a time is gathered for the forward passes. */
struct sampling {
	struct zd_lm_state *state;
	uint32_t held; /* unit that is gathered, or none */
	int failure;   /* enum zd_lm_failure of a unit that did not come; the state has the words */
};

static int release_last(struct sampling *s)
{
	uint32_t unit = s->held;
	s->held = UINT32_MAX;
	return unit == UINT32_MAX ? 0 : s->state->ops->release(s->state, unit, 0);
}

static const uint16_t *sample_weights(void *user, size_t unit)
{
	struct sampling *s = user;
	const uint16_t *w = NULL;
	s->failure = release_last(s);
	if (!s->failure)
		s->failure = s->state->ops->gather(s->state, (uint32_t)unit, 0, &w);
	if (s->failure)
		return NULL;
	s->held = (uint32_t)unit;
	return w;
}

/* Text the model writes; 0 or enum zd_lm_failure. */
static int sample(struct zd_lm_state *state, struct zd_lm_report *report, uint8_t *out)
{
	const struct zd_lm_options *o = state->options;
	static const uint8_t prompt[] = "The ";
	struct sampling sampling = {state, UINT32_MAX, 0};
	struct zd_lm_sample how = {.prompt = prompt,
				   .prompt_bytes = sizeof prompt - 1,
				   .temperature = 0.7,
				   .seed = o->seed,
				   .weights = sample_weights,
				   .user = &sampling};
	char text[256];
	zd_lm_report_sample_begin(report, state);
	int rc = state->ops->generate(state, (int)o->sample_hold);
	if (!rc && zd_lm_sample(&o->model, &how, out, o->sample, text, sizeof text) < 0) {
		rc = sampling.failure ? sampling.failure : ZD_LM_FAILED;
		if (!sampling.failure)
			snprintf(state->detail, sizeof state->detail, "%s", text);
	}
	int last = release_last(&sampling);
	zd_lm_report_sample_end(report, state);
	return rc ? rc : last;
}

static int write_result(struct zd_lm_state *state, const char *digest)
{
	const char *path = state->options->result;
	FILE *f = fopen(path, "w");
	int ok = f && fprintf(f, "%s\n", digest) > 0;
	if (f && fclose(f) != 0)
		ok = 0;
	if (!ok)
		snprintf(state->detail, sizeof state->detail, "--result: cannot write '%s': %m", path);
	return ok ? 0 : ZD_LM_FAILED;
}

static int run(struct zd_lm_state *state, struct zd_lm_report *report)
{
	const struct zd_lm_options *o = state->options;
	char digest[65] = "";
	uint8_t *text = NULL;
	zd_lm_report_start(o, state);
	int rc = zd_lm_train(state, zd_lm_report_round, report);
	zd_lm_report_clear(report);
	if (!rc && o->launch.rank == 0)
		rc = zd_lm_state_digest(state, digest);
	if (!rc && o->launch.rank == 0 && o->sample) {
		text = malloc(o->sample);
		rc = text ? sample(state, report, text) : ZD_LM_FAILED;
		if (!text)
			snprintf(state->detail, sizeof state->detail, "--sample: no memory for %u bytes; choose fewer", o->sample);
	}
	if (!rc && o->result && o->launch.rank == 0)
		rc = write_result(state, digest);
	if (!rc && (o->launch.rank == 0 || o->json))
		zd_lm_report_end(report, state, *digest ? digest : NULL, text, text ? o->sample : 0);
	free(text);
	return rc;
}

static int exit_status(int rc)
{
	switch (rc) {
	case 0: return EXIT_SUCCESS;
	case ZD_LM_AGAIN: return EXIT_AGAIN;
	case ZD_LM_USAGE: return EXIT_USAGE;
	default: return EXIT_FAILURE;
	}
}

int main(int argc, char **argv)
{
	struct zd_lm_options options;
	struct zd_lm_report report;
	char detail[1024] = "";
	zd_program_begin("zerod-lm");
	zd_assert_failed = assertion_failed;
	zd_lm_options_parse(&options, argc, argv);
	zd_kernels_thread_init();
	zd_lm_report_begin(&report, &options);
	options.waiting = zd_lm_report_waiting;
	options.waiting_arg = &report;
	if (check_files(&options, detail, sizeof detail) < 0) {
		fprintf(stderr, "zerod-lm: %s\n", detail);
		return EXIT_FAILURE;
	}
	int rc;
	struct zd_lm_state *state = open_state(&options, &rc, detail, sizeof detail);
	if (!state) {
		if (rc == ZD_LM_USAGE)
			fprintf(stderr, "zerod-lm: %s\nTry 'zerod-lm --help'.\n", detail);
		else
			fprintf(stderr, "zerod-lm: rank %u: %s\n", options.launch.rank, detail);
		return exit_status(rc);
	}
	rc = run(state, &report);
	if (rc)
		fprintf(stderr, "zerod-lm: rank %u: %s\n", options.launch.rank, state->detail);
	state->ops->free(state);
	return exit_status(rc);
}
