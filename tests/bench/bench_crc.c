/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C as frames use it, against reading the same memory: in cache, and from memory. */
#include "proto/crc32c.h"
#include "tests/bench/bench.h"
#include "tests/bench/host.h"
#include "tests/bench/rate.h"
#include "tests/bench/series.h"

static volatile uint64_t sink;

static double crc_rate(const void *p, size_t bytes, uint32_t times)
{
	double t = zd_host_thread_cpu();

	for (uint32_t i = 0; i < times; i++)
		sink = zd_crc32c((uint32_t)sink, p, bytes);
	return (double)bytes * times / (zd_host_thread_cpu() - t) / 1e9;
}

static double read_rate(const struct zd_rate *rate, const void *p, size_t bytes, uint32_t times)
{
	double t = zd_host_thread_cpu();

	for (uint32_t i = 0; i < times; i++)
		sink = rate->read(p, bytes);
	return (double)bytes * times / (zd_host_thread_cpu() - t) / 1e9;
}

void zd_bench_crc(const struct zd_bench *b)
{
	/* Half a payload stays in the second-level cache of any processor of interest; 256 MiB in no cache. */
	static const struct {
		const char *name;
		size_t bytes;
	} cases[] = { { "crc32c_hot", 128u << 10 }, { "crc32c_memory", 256u << 20 } };
	const struct zd_rate *rate = zd_rate_select();
	const void *p = zd_host_memory(cases[1].bytes, 0);

	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		uint32_t times = (uint32_t)((512u << 20) / cases[c].bytes);
		struct zd_series crc = { 0 }, plain = { 0 };

		for (uint32_t i = 0; i < 2 * b->rounds; i++) {
			zd_host_wait_quiet();
			struct zd_host_mark mark = zd_host_mark();
			double x = crc_rate(p, cases[c].bytes, times), y = read_rate(rate, p, cases[c].bytes, times);
			int quiet = zd_host_quiet_since(mark);

			zd_series_add(&crc, x, quiet);
			zd_series_add(&plain, y, quiet);
		}
		zd_series_report(cases[c].name, "GB/s", ZD_HIGHER_IS_BETTER, &crc, &plain, 0);
	}
}
