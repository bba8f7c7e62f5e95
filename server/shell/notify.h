/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words to the service manager, as sd_notify(3) and sd_watchdog_enabled(3) define them.  Without a manager (NOTIFY_SOCKET unset), or with
 * one that does not listen, they go nowhere.  Two files do it: notify_systemd.c through libsystemd, and notify_socket.c for ZD_STATIC,
 * because libsystemd has no archive.
 */
#ifndef ZD_SHELL_NOTIFY_H
#define ZD_SHELL_NOTIFY_H

#include <stdint.h>

#define ZD_NOTIFY_MAX 512u /* bytes of one message; what is longer is cut: ours are one short line of status */

void zd_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Interval in which WATCHDOG=1 is expected, microseconds; 0: no watchdog. */
uint64_t zd_notify_watchdog_us(void);

#endif
