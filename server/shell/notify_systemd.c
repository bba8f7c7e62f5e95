/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/notify.h"

#include <stdarg.h>
#include <stdio.h>
#include <systemd/sd-daemon.h>

void zd_notify(const char *format, ...)
{
	char text[ZD_NOTIFY_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)sd_notify(0, text); /* a manager that does not listen is not our trouble */
}

uint64_t zd_notify_watchdog_us(void)
{
	uint64_t us = 0;

	return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}
