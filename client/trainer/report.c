/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* A progress line is on the terminal, without its end. */
static volatile sig_atomic_t line_open;

/* Ends the progress line, so that the shell's prompt has a line of its own, and lets the signal do what it does without us. */
static void end_line(int signal_number)
{
	if (line_open && write(STDERR_FILENO, "\n", 1) < 0)
		line_open = 0;
	raise(signal_number); /* SA_RESETHAND: the default is back */
}

static void end_line_on(int signal_number)
{
	struct sigaction now, handler = {.sa_handler = end_line, .sa_flags = (int)SA_RESETHAND};
	if (sigaction(signal_number, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
		(void)sigaction(signal_number, &handler, NULL);
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zd_lm_report_begin(struct zd_lm_report *r, const struct zd_lm_options *options)
{
	*r = (struct zd_lm_report){.options = options};
	r->live = options->progress == 1 || (options->progress == -1 && options->launch.rank == 0 && isatty(STDERR_FILENO));
	r->start_s = r->last_s = now_s();
	if (r->live && isatty(STDERR_FILENO)) {
		end_line_on(SIGINT);
		end_line_on(SIGTERM);
	}
}

void zd_lm_report_start(const struct zd_lm_options *o, const struct zd_lm_state *state)
{
	if (o->command == ZD_LM_TRAIN && o->launch.rank == 0 && o->launch.epoch > 1 && state->progress.round == 0)
		fprintf(stderr, "zerod-lm: job '%s' has made no step: epoch %" PRIu64 " begins with the initial weights (steps of an earlier launch, if "
				"there were any, are lost with the daemons that held them)\n",
			o->job, o->launch.epoch);
}

static double tokens(const struct zd_lm_options *o)
{
	return (double)o->model.batch * o->model.context * o->micro_batches * o->launch.world;
}

static void json_line(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	if (text)
		puts(text);
	fflush(stdout);
	free(text);
	json_decref(object);
}

static void json_round(const struct zd_lm_round *round, double rate, const struct zerod_stats *st)
{
	json_line(json_pack("{s:I, s:I, s:f, s:f, s:f, s:b, s:f, s:I, s:I, s:I}", "round", (json_int_t)round->round, "step",
			    (json_int_t)round->result.step, "loss", round->loss, "lr", round->lr, "norm", round->result.norm, "skipped",
			    (int)round->result.skipped, "tokens_per_second", rate, "pushed_bytes", (json_int_t)st->payload_sent, "fetched_bytes",
			    (json_int_t)st->payload_received, "resident_bytes", (json_int_t)st->gathered_bytes_max));
}

/* Overwritten by the next, so it must fit in a terminal of 80 columns. */
static void show_line(const char *line)
{
	line_open = 1;
	fprintf(stderr, "\r%-79s", line);
}

static void live_line(const struct zd_lm_options *o, const struct zd_lm_round *round, double rate, const struct zerod_stats *st)
{
	char line[80], moved[48] = "";
	if (o->command == ZD_LM_TRAIN)
		snprintf(moved, sizeof moved, "  pushed %.0f MB  fetched %.0f MB", (double)st->payload_sent / 1e6,
			 (double)st->payload_received / 1e6);
	snprintf(line, sizeof line, "step %" PRIu64 "/%u  loss %.4f  %.0f tokens/s%s", round->round, o->steps, round->loss, rate, moved);
	show_line(line);
}

void zd_lm_report_waiting(void *arg, const struct zerod_progress *progress)
{
	struct zd_lm_report *r = arg;
	uint64_t ranks = progress->absent ? progress->absent : progress->behind;
	int count = __builtin_popcountll(ranks), first = __builtin_ctzll(ranks);
	const char *why = progress->absent ? "not here" : "behind";
	char line[80], more[32] = "";
	if (!r->live)
		return;
	if (count > 1)
		snprintf(more, sizeof more, " and %d more", count - 1);
	snprintf(line, sizeof line, "step %" PRIu64 "/%u  waiting for rank %d%s: %s", progress->round + 1, r->options->steps, first, more, why);
	show_line(line);
}

void zd_lm_report_round(void *arg, const struct zd_lm_state *state, const struct zd_lm_round *round)
{
	struct zd_lm_report *r = arg;
	struct zerod_stats st;
	double now = now_s(), rate = tokens(r->options) / (now > r->last_s ? now - r->last_s : 1e-9);
	if (r->rounds++ == 0)
		r->first_loss = round->loss;
	r->last_loss = round->loss;
	r->last_s = now;
	r->skipped += round->result.skipped;
	if (round->result.skipped) {
		zd_lm_report_clear(r);
		fprintf(stderr, "zerod-lm: round %" PRIu64 " skipped: %" PRIu64 " gradient values are not finite; the first is element %" PRIu64
				" of unit %u, from rank %u\n",
			round->round, round->result.nonfinite, round->result.bad_element, round->result.bad_unit, round->result.bad_rank);
	}
	if (!r->options->json && !r->live)
		return;
	((struct zd_lm_state *)state)->ops->stats((struct zd_lm_state *)state, &st);
	if (r->options->json)
		json_round(round, rate, &st);
	if (r->live)
		live_line(r->options, round, rate, &st);
}

void zd_lm_report_clear(struct zd_lm_report *r)
{
	if (r->live && line_open)
		fputc('\n', stderr);
	line_open = 0;
}

static uint64_t fetched(const struct zd_lm_state *state)
{
	struct zerod_stats st;
	state->ops->stats((struct zd_lm_state *)state, &st);
	return st.payload_received;
}

void zd_lm_report_sample_begin(struct zd_lm_report *r, const struct zd_lm_state *state)
{
	r->sample_fetched = fetched(state);
}

void zd_lm_report_sample_end(struct zd_lm_report *r, const struct zd_lm_state *state)
{
	r->sample_fetched = fetched(state) - r->sample_fetched;
}

/* Weights that were in this process at once at most, whoever counted them. */
static uint64_t resident_max(const struct zd_lm_state *state, const struct zerod_stats *st)
{
	uint64_t beyond = state->beyond_bytes ? state->beyond_bytes + st->gathered_bytes : 0;
	return beyond > st->gathered_bytes_max ? beyond : st->gathered_bytes_max;
}

static void print_sample(const uint8_t *sample, size_t len)
{
	puts("sample:");
	for (size_t i = 0; i < len; i++)
		putchar(sample[i] == '\n' || (sample[i] >= 32 && sample[i] < 127) ? sample[i] : '?');
	putchar('\n');
}

static void print_traffic(const struct zd_lm_report *r, const struct zd_lm_state *state, const struct zerod_stats *st)
{
	double mb = 1e-6;
	printf("pushed %.2f MB, fetched %.2f MB; weights resident at most %.2f MB, bound %.2f MB, model %.2f MB\n", mb * (double)st->payload_sent,
	       mb * (double)st->payload_received, mb * (double)st->gathered_bytes_max, mb * (double)st->gather_bytes_limit,
	       mb * 2 * (double)state->numel_sum);
	if (!r->options->sample || r->options->launch.rank != 0 || r->options->stage == 0)
		return;
	printf("the sample fetched %.2f MB of that", mb * (double)r->sample_fetched);
	if (state->beyond_bytes)
		printf(" and held all weights at once, %.2f MB beyond the bound (--sample-weights=fetch keeps to it)",
		       mb * (double)state->beyond_bytes);
	putchar('\n');
}

static void text_end(const struct zd_lm_report *r, const struct zd_lm_state *state, const struct zerod_stats *st, const char *digest,
		     const uint8_t *sample, size_t sample_len)
{
	double s = r->last_s - r->start_s;
	if (r->rounds)
		printf("loss %.4f -> %.4f in %" PRIu64 " steps, %.0f tokens/s\n", r->first_loss, r->last_loss, r->rounds,
		       tokens(r->options) * (double)r->rounds / (s > 0 ? s : 1e-9));
	else
		printf("nothing to do: the job has decided %" PRIu64 " rounds already; a higher --steps than %" PRIu64 " goes on\n", state->progress.round,
		       (uint64_t)r->options->steps);
	if (r->skipped)
		printf("skipped %" PRIu64 " steps with gradients that were not finite\n", r->skipped);
	if (r->options->command == ZD_LM_TRAIN)
		print_traffic(r, state, st);
	if (sample_len)
		print_sample(sample, sample_len);
	if (digest)
		printf("sha256 %s\n", digest);
}

void zd_lm_report_end(struct zd_lm_report *r, const struct zd_lm_state *state, const char *digest, const uint8_t *sample, size_t sample_len)
{
	struct zerod_stats st;
	state->ops->stats((struct zd_lm_state *)state, &st);
	if (!r->options->json) {
		text_end(r, state, &st, digest, sample, sample_len);
		return;
	}
	char *text = malloc(sample_len + 1);
	for (size_t i = 0; text && i < sample_len; i++)
		text[i] = sample[i] == '\n' || (sample[i] >= 32 && sample[i] < 127) ? (char)sample[i] : '?';
	if (text)
		text[sample_len] = 0;
	json_line(json_pack("{s:b, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s?, s:s?}", "done", 1, "rounds",
			    (json_int_t)state->progress.round, "step", (json_int_t)state->progress.step, "first_loss", r->first_loss, "last_loss",
			    r->last_loss, "params", (json_int_t)state->numel_sum, "pushed_bytes", (json_int_t)st.payload_sent, "fetched_bytes",
			    (json_int_t)st.payload_received, "wire_sent_bytes", (json_int_t)st.wire_sent, "wire_received_bytes",
			    (json_int_t)st.wire_received, "resident_bytes_max", (json_int_t)resident_max(state, &st), "resident_bytes_limit",
			    (json_int_t)st.gather_bytes_limit, "sample_fetched_bytes", (json_int_t)r->sample_fetched, "sample_beyond_bytes",
			    (json_int_t)state->beyond_bytes, "skipped", (json_int_t)r->skipped, "redos", (json_int_t)st.redos, "sample",
			    sample_len ? text : NULL, "sha256", digest));
	free(text);
}
