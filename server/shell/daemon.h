/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: door and lanes under one main loop.  main.c runs one; tests start theirs in process.
 *
 *     new --> run ... term --> DRAINING --no round open, or timeouts.drain--> STOPPING --lanes ended--> run returns --> free
 *                      `-- a second term, or hurry ------------------------------^
 *
 * DRAINING: no new connections; lanes get ZD_EV_DRAIN and rounds end by rule.  STOPPING: connections are closed.
 *
 * Threads: new, run and free on one thread (the door's); zd_daemon_term and zd_daemon_port from any.
 */
#ifndef ZD_SHELL_DAEMON_H
#define ZD_SHELL_DAEMON_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/shell/conf.h"

/* What a program ends with (sysexits.h): a service manager restarts after 75, and does not after 78. */
enum zd_exit { ZD_EXIT_OK = 0, ZD_EXIT_FAILED = 1, ZD_EXIT_USAGE = 2, ZD_EXIT_AGAIN = 75, ZD_EXIT_CONFIG = 78 };

struct zd_daemon_options {
	int signals; /* SIGTERM, SIGINT: term; SIGHUP: reload from `sources` */
	const struct zd_conf_sources *sources; /* outlives the daemon; only for SIGHUP */
};

struct zd_daemon;

/* Checks memory, starts the lanes, listens, writes the port file.  ZD_EXIT_OK and a daemon, or what to exit with and why in *text, with
 * nothing left behind. */
enum zd_exit zd_daemon_new(struct zd_daemon **ret_daemon, const struct zd_conf *conf, const struct zd_daemon_options *options, char *text,
			   size_t size) ZD_MUST_USE;
uint16_t zd_daemon_port(const struct zd_daemon *daemon);
uint32_t zd_daemon_lanes(const struct zd_daemon *daemon);
/* Returns when the daemon has ended. */
enum zd_exit zd_daemon_run(struct zd_daemon *daemon);
/* As SIGTERM; hurry: as two of them. */
void zd_daemon_term(struct zd_daemon *daemon, int hurry);
/* After run returned, or without it (then it ends in a hurry). */
void zd_daemon_free(struct zd_daemon *daemon);

#endif
