/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void (*zd_log_sink)(enum zd_log_level level, const char *line);

static atomic_int log_level = ZD_LOG_INFO;
static int log_journal;

static const char *const level_names[] = {"emerg", "alert", "crit", "error", "warning", "notice", "info", "debug"};

static int stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	if (!stream || sscanf(stream, "%llu:%llu", &dev, &ino) != 2 || fstat(STDERR_FILENO, &st) < 0)
		return 0;
	return (unsigned long long)st.st_dev == dev && (unsigned long long)st.st_ino == ino;
}

void zd_log_setup(enum zd_log_format format, enum zd_log_level level)
{
	log_journal = format == ZD_LOG_JOURNAL || (format == ZD_LOG_AUTO && stderr_is_journal());
	zd_log_level(level);
}

void zd_log_before(enum zd_log_level level, const char *line)
{
	char priority[8] = "";

	if (stderr_is_journal())
		snprintf(priority, sizeof(priority), "<%d>", (int)level);
	fprintf(stderr, "%s%s: %s\n", priority, program_invocation_short_name, line);
}

void zd_log_level(enum zd_log_level level)
{
	atomic_store(&log_level, (int)level);
}

/* A bucket of lines per thread: 0 take it, 1 drop it.  *ret_dropped is what was dropped before this line. */
static int log_limited(uint64_t *ret_dropped)
{
	static _Thread_local uint64_t last_ns, dropped;
	static _Thread_local double tokens = ZD_LOG_BURST;
	struct timespec ts;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	if (last_ns)
		tokens += (double)(now - last_ns) * 1e-9 * ZD_LOG_RATE;
	if (tokens > ZD_LOG_BURST)
		tokens = ZD_LOG_BURST;
	last_ns = now;
	if (tokens < 1) {
		dropped++;
		return 1;
	}
	tokens -= 1;
	*ret_dropped = dropped;
	dropped = 0;
	return 0;
}

static size_t log_prefix(char *out, size_t size, enum zd_log_level level)
{
	struct timespec ts;
	struct tm tm;
	size_t n;

	if (log_journal)
		return (size_t)snprintf(out, size, "<%d>", (int)level);
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(out, size, "time=%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(out + n, size - n, ".%03ldZ level=%s ", ts.tv_nsec / 1000000, level_names[level & 7]);
}

static void log_write(enum zd_log_level level, char *line, size_t prefix, size_t len)
{
	size_t i;

	for (i = prefix; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	if (zd_log_sink) {
		line[len] = '\0';
		zd_log_sink(level, line + prefix);
		return;
	}
	line[len++] = '\n';
	/* A log that cannot be written is nobody's reason to stop. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

void zd_log(enum zd_log_level level, const char *format, ...)
{
	char line[ZD_LOG_LINE_MAX + 2];
	uint64_t dropped = 0;
	size_t prefix;
	va_list args;
	int n;

	if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
		return;
	if (level > ZD_LOG_ERROR && log_limited(&dropped))
		return;
	prefix = log_prefix(line, sizeof(line), level);
	if (dropped) {
		n = snprintf(line + prefix, ZD_LOG_LINE_MAX - prefix, "event=log-limited dropped=%llu", (unsigned long long)dropped);
		log_write(level, line, prefix, prefix + (size_t)n);
	}
	va_start(args, format);
	n = vsnprintf(line + prefix, ZD_LOG_LINE_MAX - prefix, format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n >= ZD_LOG_LINE_MAX - prefix)
		n = (int)(ZD_LOG_LINE_MAX - prefix - 1);
	log_write(level, line, prefix, prefix + (size_t)n);
}
