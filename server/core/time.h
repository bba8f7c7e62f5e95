/* SPDX-License-Identifier: Apache-2.0 */
/* Time is a value that comes in with events: nanoseconds of a monotonic clock that nobody in the core can read. */
#ifndef ZD_CORE_TIME_H
#define ZD_CORE_TIME_H

#include <stdint.h>

typedef uint64_t zd_time; /* ns */
#define ZD_TIME_NEVER UINT64_MAX
#define ZD_MS(n) ((zd_time)(n) * 1000000u)
#define ZD_SEC(n) ((zd_time)(n) * 1000000000u)

#endif
