/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's log: stderr, one event a line, each line one write.
 *
 *     time=2026-01-31T12:00:00.123Z level=info event=listening port=7410      on a terminal or in a file
 *     <6>event=listening port=7410                                           where stderr is the journal
 *
 * What peers can provoke is bounded: beyond ZD_LOG_BURST lines a thread writes ZD_LOG_RATE lines a second, drops the rest and says how
 * many it dropped.  Errors are never dropped.
 *
 * Threads: all functions from any thread; zd_log_setup while only one runs, zd_log_level at any time.
 */
#ifndef ZD_SHELL_LOG_H
#define ZD_SHELL_LOG_H

#include <stddef.h>

#include "server/core/core.h" /* enum zd_log_level */

enum zd_log_format { ZD_LOG_AUTO, ZD_LOG_TEXT, ZD_LOG_JOURNAL };

#define ZD_LOG_LINE_MAX 2048u /* bytes; longer lines are cut */
#define ZD_LOG_BURST 200u     /* lines: a daemon with 64 workers that all join at once says less */
#define ZD_LOG_RATE 50u	      /* lines a second after that: 4 KiB/s or so, which no journal notices */

/* AUTO writes for the journal when JOURNAL_STREAM names the device and inode of stderr. */
void zd_log_setup(enum zd_log_format format, enum zd_log_level level);
void zd_log_level(enum zd_log_level level);

/* format must give "event=NAME key=value ...", and texts that are not our own as zd_text_quote makes them; control characters are replaced by '?'. */
void zd_log(enum zd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One line for people, behind the program's name: what is said before the configuration, and with it zd_log_setup, is known. */
void zd_log_before(enum zd_log_level level, const char *line);

/* Tests take the lines instead of stderr; NULL: stderr again. */
extern void (*zd_log_sink)(enum zd_log_level level, const char *line);

#endif
