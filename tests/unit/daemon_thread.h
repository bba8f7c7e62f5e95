/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon in this process, on a thread of its own, with a quiet log that tests can search. */
#ifndef ZD_TESTS_DAEMON_THREAD_H
#define ZD_TESTS_DAEMON_THREAD_H

#include "server/shell/daemon.h"

struct daemon_thread;

/* sets: "section.key=value", ended by NULL; port 0, two lanes and 128 MiB unless they say otherwise.  NULL: refused, with the reason in
 * daemon_thread_text and the exit code in *ret_exit. */
struct daemon_thread *daemon_thread_start(const char *const *sets, enum zd_exit *ret_exit);
uint16_t daemon_thread_port(const struct daemon_thread *t);
struct zd_daemon *daemon_thread_daemon(struct daemon_thread *t);
/* SIGTERM's effect; waits for the end and frees it. */
enum zd_exit daemon_thread_stop(struct daemon_thread *t, int hurry);
/* The same for one that was told to end already. */
enum zd_exit daemon_thread_join(struct daemon_thread *t);
const char *daemon_thread_text(void);
/* 1 if a log line since the start of the process, or the last daemon_log_clear, contains it. */
int daemon_log_has(const char *part);
void daemon_log_clear(void);

#endif
