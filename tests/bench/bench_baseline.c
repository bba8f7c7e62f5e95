/* SPDX-License-Identifier: Apache-2.0 */
/* The baselines by themselves: what this machine gives before the product has done anything. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/host.h"
#include "tests/bench/inplace.h"
#include "tests/bench/minserver.h"
#include "tests/bench/series.h"
#include "tests/bench/uvstream.h"

void zd_bench_stream(const struct zd_bench *b)
{
	const uint64_t bytes = (b->quick ? 100u : 400u) * (uint64_t)ZD_UVSTREAM_BYTES;
	struct zd_series s = { 0 };
	struct zd_uvstream stream;

	zd_uvstream_start(&stream, zd_bench_worker_cpu(b), zd_bench_server_cpu(b));
	zd_uvstream_run(&stream, bytes);
	for (uint32_t i = 0; i < 2 * b->rounds; i++) {
		zd_host_wait_quiet();
		struct zd_host_mark mark = zd_host_mark();
		double rate = zd_uvstream_run(&stream, bytes);

		zd_series_add(&s, rate / 1e9, zd_host_quiet_since(mark));
	}
	zd_uvstream_stop(&stream);
	zd_series_report("bare_stream", "GB/s", ZD_HIGHER_IS_BETTER, &s, NULL, 0);
}

void zd_bench_minimal(const struct zd_bench *b)
{
	for (uint32_t workers = 1; workers <= 2; workers++) {
		struct zd_minserver m = { .workers = workers, .params = b->params, .server_cpu = zd_bench_server_cpu(b),
					  .worker_cpu = zd_bench_worker_cpu(b) };
		struct zd_series s = { 0 };
		char name[64];

		zd_minserver_start(&m);
		for (uint32_t i = 0; i < b->rounds; i++) {
			zd_host_wait_quiet();
			struct zd_host_mark mark = zd_host_mark();

			zd_actor_call(&m.server, 0, 7);
			zd_actor_wait(&m.server);
			int quiet = zd_host_quiet_since(mark);
			for (uint32_t t = 1; t < m.server.box->times; t++)
				zd_series_add(&s, (m.server.box->end[t] - m.server.box->begin[t]) * 1e9 / (double)m.params, quiet);
		}
		zd_minserver_stop(&m);
		snprintf(name, sizeof name, "minimal_server_w%u", workers);
		zd_series_report(name, "ns/param", ZD_LOWER_IS_BETTER, &s, NULL, 0);
	}
}

void zd_bench_update(const struct zd_bench *b)
{
	for (uint32_t threads = 1; threads <= 2; threads++) {
		struct zd_inplace p = { .threads = threads, .params = b->params };
		struct zd_series s = { 0 };
		char name[64];

		zd_inplace_start(&p);
		for (uint32_t i = 0; i < 2 * b->rounds; i++) {
			zd_host_wait_quiet();
			struct zd_host_mark mark = zd_host_mark();
			double seconds = zd_inplace_run(&p, 2);

			zd_series_add(&s, (double)ZD_RATE_UPDATE_BYTES * (double)p.params / seconds / 1e9, zd_host_quiet_since(mark));
		}
		zd_inplace_stop(&p);
		snprintf(name, sizeof name, "inplace_update_t%u", threads);
		zd_series_report(name, "GB/s", ZD_HIGHER_IS_BETTER, &s, NULL, 0);
	}
}
