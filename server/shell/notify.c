/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/notify.h"

#include <stdarg.h>
#include <stdio.h>

#ifndef ZD_NO_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

void zd_notify(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
#ifndef ZD_NO_SYSTEMD
	(void)sd_notify(0, text); /* a manager that does not listen is not our trouble */
#endif
}

uint64_t zd_notify_watchdog_us(void)
{
	uint64_t us = 0;

#ifndef ZD_NO_SYSTEMD
	if (sd_watchdog_enabled(0, &us) <= 0)
		us = 0;
#endif
	return us;
}
