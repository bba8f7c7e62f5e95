/* SPDX-License-Identifier: Apache-2.0 */
/* Words to the service manager.  Without one (NOTIFY_SOCKET unset), or built without libsystemd, they go nowhere. */
#ifndef ZD_SHELL_NOTIFY_H
#define ZD_SHELL_NOTIFY_H

#include <stdint.h>

void zd_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Interval in which WATCHDOG=1 is expected, microseconds; 0: no watchdog. */
uint64_t zd_notify_watchdog_us(void);

#endif
