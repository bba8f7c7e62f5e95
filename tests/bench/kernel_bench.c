/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels against the memory they run on.  The baseline of each is a loop here that reads and writes the same planes and computes next
 * to nothing, in the fastest of several prefetch distances, measured in turns with the kernel.  Prints one JSON object a line.  A sample
 * waits for a quiet moment and is taken again, a few times, if another process used the CPU meanwhile; times are medians of the quiet
 * samples (the fastest of all if none was quiet, and standard error says so).
 *
 * Lane scaling is bounded by the memory: where one core already draws all of it, two lanes cannot be faster, and neither can the
 * baseline.  So there are two lines about it: against the baseline's own scaling, and on planes that stay in each core's cache.
 *
 * usage: kernel_bench [parameters [repetitions]]       default 100000000 7
 */
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "proto/crc32c.h"
#include "server/kernel/kernel.h"

#define LANES 2
#define EXTENT 131072 /* the grain in which a lane calls the kernels */
#define CACHED 16384  /* parameters whose planes, 224 KiB, stay in the cache of one core */
#define MOST_SAMPLES 64

struct planes {
	uint16_t *hi, *lo, *ga, *gb;
	float *m, *v, *acc;
	double *sums;
	size_t n;
};

static const struct zd_kernels *kernels;
static struct zd_adam_consts consts;
static struct planes planes;

/* Huge pages, each plane skewed by some lines so that the streams do not fall on the same sets of the cache. */
static void *plane_new(size_t bytes)
{
	static size_t count;
	size_t huge = (size_t)2 << 20, skew = count++ * (3 * 4096 + 256), length = bytes + 2 * huge + skew;
	char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("kernel_bench: mmap");
		exit(1);
	}
	madvise(p, length, MADV_HUGEPAGE);
	return (void *)((((uintptr_t)p + huge - 1) & ~(uintptr_t)(huge - 1)) + skew);
}

static void planes_begin(size_t n)
{
	uint32_t r = 1;

	planes = (struct planes){ .n = n,
				  .hi = plane_new(2 * n),
				  .lo = plane_new(2 * n),
				  .m = plane_new(4 * n),
				  .v = plane_new(4 * n),
				  .ga = plane_new(2 * n),
				  .gb = plane_new(2 * n),
				  .acc = plane_new(4 * n),
				  .sums = plane_new((n / ZD_KERNEL_BLOCK + 1) * sizeof(double)) };
	for (size_t i = 0; i < n; i++) {
		r = r * 1664525u + 1013904223u;
		planes.hi[i] = (uint16_t)(0x3c00 + (r >> 25));
		planes.lo[i] = (uint16_t)(r >> 9);
		planes.ga[i] = (uint16_t)(0x3a00 + (r >> 25) + ((r & 256) << 7));
		planes.gb[i] = (uint16_t)(0x3a00 + (r >> 26) + ((r & 512) << 6));
		planes.m[i] = (float)((int32_t)(r >> 8) - (1 << 23)) * 1e-9f;
		planes.v[i] = planes.m[i] * planes.m[i] + 1e-9f;
		planes.acc[i] = planes.m[i];
	}
}

/* ---- the baselines: every line of the same planes, read or read and written, with one integer operation ---- */

#define WIDE __attribute__((target("avx2"), noinline)) static
#define INLINE_WIDE __attribute__((target("avx2"), always_inline)) static inline

INLINE_WIDE void ahead(const void *p, size_t distance)
{
	if (distance)
		_mm_prefetch((const char *)((uintptr_t)p + distance), _MM_HINT_T0);
}

INLINE_WIDE void touch(void *p, __m256i x)
{
	_mm256_storeu_si256(p, _mm256_xor_si256(_mm256_loadu_si256(p), x));
}

INLINE_WIDE __m256i look(const void *p)
{
	return _mm256_loadu_si256(p);
}

/* Thirty-two elements of a plane: one line of 16-bit ones, two of fp32. */
INLINE_WIDE void touch_line(void *p, size_t distance, __m256i x)
{
	ahead(p, distance);
	touch(p, x);
	touch((char *)p + 32, x);
}

INLINE_WIDE __m256i look_line(const void *p, size_t distance)
{
	ahead(p, distance);
	return _mm256_or_si256(look(p), look((const char *)p + 32));
}

INLINE_WIDE void update_loop(const struct planes *p, size_t first, size_t n, size_t distance)
{
	for (size_t i = first; i + 32 <= first + n; i += 32) {
		__m256i x = _mm256_srli_epi16(look_line(p->ga + i, distance), 15);
		touch_line(p->hi + i, distance, x);
		touch_line(p->lo + i, distance, x);
		touch_line(p->m + i, distance, x);
		touch_line(p->m + i + 16, distance, x);
		touch_line(p->v + i, distance, x);
		touch_line(p->v + i + 16, distance, x);
	}
}

INLINE_WIDE void accumulate_loop(const struct planes *p, size_t first, size_t n, size_t distance)
{
	for (size_t i = first; i + 32 <= first + n; i += 32) {
		__m256i x = _mm256_srli_epi16(look_line(p->ga + i, distance), 15);
		touch_line(p->acc + i, distance, x);
		touch_line(p->acc + i + 16, distance, x);
	}
}

INLINE_WIDE void fill_loop(const struct planes *p, size_t first, size_t n, size_t distance)
{
	for (size_t i = first; i + 32 <= first + n; i += 32) {
		__m256i x = look_line(p->ga + i, distance);
		for (size_t k = 0; k < 32; k += 8)
			_mm256_storeu_si256((__m256i *)(void *)(p->acc + i + k), x);
	}
}

INLINE_WIDE void read_loop(const struct planes *p, size_t first, size_t n, size_t distance, int two)
{
	__m256i x = _mm256_setzero_si256(), y = x;

	for (size_t i = first; i + 32 <= first + n; i += 32) {
		x = _mm256_or_si256(x, look_line(p->ga + i, distance));
		if (two)
			y = _mm256_or_si256(y, look_line(p->gb + i, distance));
	}
	__asm__ volatile("" ::"x"(x), "x"(y));
}

#define BASELINES(name, loop, ...)                                                   \
	WIDE void name##_0(size_t first, size_t n)                                   \
	{                                                                            \
		loop(&planes, first, n, 0 __VA_OPT__(, ) __VA_ARGS__);               \
	}                                                                            \
	WIDE void name##_1k(size_t first, size_t n)                                  \
	{                                                                            \
		loop(&planes, first, n, 1024 __VA_OPT__(, ) __VA_ARGS__);            \
	}                                                                            \
	WIDE void name##_2k(size_t first, size_t n)                                  \
	{                                                                            \
		loop(&planes, first, n, 2048 __VA_OPT__(, ) __VA_ARGS__);            \
	}
BASELINES(update, update_loop)
BASELINES(accumulate, accumulate_loop)
BASELINES(fill, fill_loop)
BASELINES(read_1, read_loop, 0)
BASELINES(read_2, read_loop, 1)

/* ---- the kernels, as a lane calls them ---- */

static void kernel_adam(size_t first, size_t n)
{
	const struct planes *p = &planes;
	kernels->adam[ZD_GRAD_BF16_1](p->hi + first, p->lo + first, p->m + first, p->v + first, p->ga + first, NULL, n, &consts, NULL);
}

static void kernel_acc_set(size_t first, size_t n)
{
	struct zd_reduce_result result;
	kernels->acc_set[ZD_CODEC_BF16](planes.acc + first, planes.ga + first, n, planes.sums + first / ZD_KERNEL_BLOCK, &result);
}

static void kernel_acc_add(size_t first, size_t n)
{
	struct zd_reduce_result result;
	kernels->acc_add[ZD_CODEC_BF16](planes.acc + first, planes.ga + first, n, planes.sums + first / ZD_KERNEL_BLOCK, &result);
}

static void kernel_norm_1(size_t first, size_t n)
{
	struct zd_reduce_result result;
	kernels->norm_bf16_1(planes.ga + first, n, planes.sums + first / ZD_KERNEL_BLOCK, &result, NULL, NULL);
}

static void kernel_norm_2(size_t first, size_t n)
{
	struct zd_reduce_result result;
	kernels->norm_bf16_2(planes.ga + first, planes.gb + first, n, planes.sums + first / ZD_KERNEL_BLOCK, &result, NULL, NULL);
}

/* The same with the checksum of what they read first, or have written: beside it, and in a pass of its own. */

static uint32_t crc;

static void kernel_norm_1_checked(size_t first, size_t n)
{
	struct zd_reduce_result result;
	kernels->norm_bf16_1(planes.ga + first, n, planes.sums + first / ZD_KERNEL_BLOCK, &result, planes.ga + first, &crc);
}

static void norm_1_apart(size_t first, size_t n)
{
	crc = zd_crc32c(0, planes.ga + first, 2 * n);
	kernel_norm_1(first, n);
}

static void kernel_adam_checked(size_t first, size_t n)
{
	const struct planes *p = &planes;
	kernels->adam[ZD_GRAD_BF16_1](p->hi + first, p->lo + first, p->m + first, p->v + first, p->ga + first, NULL, n, &consts, &crc);
}

static void adam_apart(size_t first, size_t n)
{
	kernel_adam(first, n);
	crc = zd_crc32c(0, planes.hi + first, 2 * n);
}

#define BASELINES_EACH 3
#define CHOICES (BASELINES_EACH + 1) /* and the kernel, last */

/* bytes: read plus written, per parameter */
struct row {
	const char *name;
	double bytes, target;
	void (*kernel)(size_t first, size_t n);
	void (*baselines[BASELINES_EACH])(size_t first, size_t n);
};

static const struct row rows[] = {
	{ "kernel_adam", 26, 0.90, kernel_adam, { update_0, update_1k, update_2k } },
	{ "kernel_reduce_set", 6, 0.80, kernel_acc_set, { fill_0, fill_1k, fill_2k } },
	{ "kernel_reduce_add", 10, 0.80, kernel_acc_add, { accumulate_0, accumulate_1k, accumulate_2k } },
	{ "kernel_norm_1", 2, 0, kernel_norm_1, { read_1_0, read_1_1k, read_1_2k } },
	{ "kernel_norm_2", 4, 0, kernel_norm_2, { read_2_0, read_2_1k, read_2_2k } },
	{ "kernel_norm_1_checked", 2, 0, kernel_norm_1_checked, { norm_1_apart, norm_1_apart, norm_1_apart } },
	{ "kernel_adam_checked", 26, 0, kernel_adam_checked, { adam_apart, adam_apart, adam_apart } },
};
#define ROWS (sizeof rows / sizeof rows[0])

/* ---- samples ---- */

struct lane {
	void (*pass)(size_t first, size_t n);
	size_t first, n, passes;
	pthread_barrier_t *barrier;
	double begin, end;
};

/* What is passed over: all planes, or a part per lane small enough for its cache. */
struct extent {
	size_t per_lane; /* 0: everything, divided among the lanes */
	size_t passes;
};

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *lane_run(void *argument)
{
	struct lane *lane = argument;

	zd_kernels_thread_init();
	pthread_barrier_wait(lane->barrier);
	lane->begin = seconds();
	for (size_t pass = 0; pass < lane->passes; pass++)
		for (size_t done = 0; done < lane->n; done += EXTENT)
			lane->pass(lane->first + done, lane->n - done < EXTENT ? lane->n - done : EXTENT);
	lane->end = seconds();
	return NULL;
}

/* Seconds of one sample. */
static double timed(void (*pass)(size_t, size_t), size_t lanes, struct extent extent)
{
	size_t share = extent.per_lane ? extent.per_lane : planes.n / lanes / EXTENT * EXTENT;
	pthread_t threads[LANES];
	struct lane lane[LANES];
	pthread_barrier_t barrier;
	double begin = 1e300, end = 0;

	pthread_barrier_init(&barrier, NULL, (unsigned)lanes);
	for (size_t i = 0; i < lanes; i++) {
		size_t n = !extent.per_lane && i + 1 == lanes ? planes.n - share * i : share;
		lane[i] = (struct lane){ pass, share * i, n, extent.passes, &barrier, 0, 0 };
		if (pthread_create(&threads[i], NULL, lane_run, &lane[i]) != 0)
			exit(1);
	}
	for (size_t i = 0; i < lanes; i++) {
		pthread_join(threads[i], NULL);
		begin = lane[i].begin < begin ? lane[i].begin : begin;
		end = lane[i].end > end ? lane[i].end : end;
	}
	pthread_barrier_destroy(&barrier);
	return end - begin;
}

/* CPU seconds that others have used so far */
static double others_seconds(void)
{
	double v[8] = { 0 };
	struct rusage usage;
	FILE *f = fopen("/proc/stat", "r");

	if (f) {
		if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) != 8)
			memset(v, 0, sizeof v);
		fclose(f);
	}
	getrusage(RUSAGE_SELF, &usage);
	return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / 100 - (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) -
	       1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Seconds that may be spent on waiting and on samples taken again, over the whole run: some machines are never quiet. */
static double patience = 30;

static void wait_for_quiet(void)
{
	for (int i = 0; i < 4 && patience > 0; i++) {
		struct timespec pause = { 0, 50000000 };
		double others = others_seconds();
		nanosleep(&pause, NULL);
		if (others_seconds() - others < 0.015)
			return;
		patience -= 0.05;
	}
}

struct samples {
	double quiet[MOST_SAMPLES], fastest; /* ns per parameter */
	size_t quiets;
};

static void samples_add(struct samples *s, void (*pass)(size_t, size_t), size_t lanes, struct extent extent)
{
	double parameters = extent.per_lane ? (double)(extent.per_lane * lanes) : (double)planes.n;

	for (int i = 0; i < 3 && (i == 0 || patience > 0); i++) {
		wait_for_quiet();
		double others = others_seconds(), t = timed(pass, lanes, extent);
		double each = t * 1e9 / (parameters * (double)extent.passes);
		s->fastest = s->fastest == 0 || each < s->fastest ? each : s->fastest;
		if (others_seconds() - others > 0.04 * t + 0.015) {
			patience -= t;
			continue;
		}
		s->quiet[s->quiets++] = each;
		return;
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(struct samples *s)
{
	size_t n = s->quiets;

	if (n == 0)
		return s->fastest;
	qsort(s->quiet, n, sizeof *s->quiet, compare);
	return n % 2 ? s->quiet[n / 2] : (s->quiet[n / 2 - 1] + s->quiet[n / 2]) / 2;
}

static void print_row(const char *name, const char *suffix, double value, const char *unit, double baseline, double ratio, double target)
{
	printf("{\"name\": \"%s%s\", \"value\": %.4f, \"unit\": \"%s\", \"baseline\": %.4f, \"ratio\": %.3f, \"target\": ", name, suffix, value,
	       unit, baseline, ratio);
	printf(target > 0 ? "%.2f}\n" : "null}\n", target);
	fflush(stdout);
}

/* Medians of the kernel and of its best baseline, for each number of lanes. */
static void measure(const struct row *row, size_t per_lane, int repetitions, double kernel[LANES], double baseline[LANES])
{
	static struct samples all[LANES][CHOICES];
	struct extent extent = { per_lane, 1 };

	memset(all, 0, sizeof all);
	/* long enough for the 10 ms clock of /proc/stat */
	while (timed(row->kernel, 1, extent) < 0.15)
		extent.passes *= 2;
	for (int r = 0; r < repetitions; r++)
		for (size_t lanes = 1; lanes <= LANES; lanes++)
			for (size_t c = 0; c < CHOICES; c++)
				samples_add(&all[lanes - 1][c], c < BASELINES_EACH ? row->baselines[c] : row->kernel, lanes, extent);
	for (size_t l = 0; l < LANES; l++) {
		kernel[l] = median(&all[l][BASELINES_EACH]);
		baseline[l] = median(&all[l][0]);
		for (size_t c = 1; c < BASELINES_EACH; c++)
			baseline[l] = median(&all[l][c]) < baseline[l] ? median(&all[l][c]) : baseline[l];
		for (size_t c = 0; c < CHOICES; c++)
			if (all[l][c].quiets < 3)
				fprintf(stderr, "kernel_bench: %s, %zu lanes, choice %zu: only %zu quiet samples\n", row->name, l + 1, c,
					all[l][c].quiets);
	}
}

static void run_row(const struct row *row, int repetitions)
{
	double kernel[LANES], baseline[LANES], scaling, baseline_scaling;
	int adam = row->kernel == kernel_adam;

	measure(row, 0, repetitions, kernel, baseline);
	for (size_t l = 0; l < LANES; l++)
		print_row(row->name, l ? "_2_lanes" : "", kernel[l], "ns/param", baseline[l], baseline[l] / kernel[l], row->target);
	for (size_t l = 0; l < LANES; l++)
		print_row(row->name, l ? "_2_lanes_rate" : "_rate", row->bytes / kernel[l], "GB/s", row->bytes / baseline[l],
			  baseline[l] / kernel[l], 0);
	scaling = kernel[0] / kernel[1];
	baseline_scaling = baseline[0] / baseline[1];
	print_row(row->name, "_lane_scaling", scaling, "x", baseline_scaling, scaling / baseline_scaling, adam ? 0.95 : 0);
	if (!adam)
		return;
	measure(row, CACHED, repetitions, kernel, baseline);
	print_row(row->name, "_cached", kernel[0], "ns/param", baseline[0], baseline[0] / kernel[0], 0);
	print_row(row->name, "_cached_lane_scaling", kernel[0] / kernel[1], "x", 1, kernel[0] / kernel[1], 1.85);
}

int main(int argc, char **argv)
{
	const struct zd_adam_params params = { .lr = 1e-4, .wd = 0.01, .b1 = 0.9, .b2 = 0.999, .eps = 1e-8 };
	unsigned long long n = argc > 1 ? strtoull(argv[1], NULL, 0) : 100000000;
	int repetitions = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 7;

	if (n < LANES * EXTENT || n > 4000000000u || repetitions < 1 || repetitions > MOST_SAMPLES) {
		fprintf(stderr, "usage: kernel_bench [parameters [repetitions]], %d to 4e9 and 1 to %d\n", LANES * EXTENT, MOST_SAMPLES);
		return 2;
	}
	if (!zd_kernels_avx2()) {
		fprintf(stderr, "kernel_bench: SKIP: the baselines need AVX2\n");
		return 0;
	}
	kernels = zd_kernels_select(getenv("ZEROD_KERNELS"));
	if (!kernels) {
		fprintf(stderr, "kernel_bench: ZEROD_KERNELS must be scalar, avx2 or avx512\n");
		return 2;
	}
	fprintf(stderr, "kernel_bench: %s, %llu parameters, %d repetitions\n", kernels->name, n, repetitions);
	zd_kernels_thread_init();
	zd_adam_consts_init(&consts, &params, 100, 0.5);
	planes_begin((size_t)n);
	for (size_t i = 0; i < ROWS; i++)
		run_row(&rows[i], repetitions);
	return 0;
}
