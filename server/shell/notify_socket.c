/* SPDX-License-Identifier: Apache-2.0 */
/* The manager's side of the protocol is stable and small (sd_notify(3), "Notes"): one datagram with the text to the socket that
 * NOTIFY_SOCKET names, by its path or, after "@", in the abstract namespace. */
#include "server/shell/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Returns the length of the address, 0 without one. */
static socklen_t manager(struct sockaddr_un *ret_address)
{
	const char *name = getenv("NOTIFY_SOCKET");
	size_t len = name ? strlen(name) : 0;

	if (len < 2 || len >= sizeof(ret_address->sun_path) || (name[0] != '/' && name[0] != '@'))
		return 0;
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret_address->sun_path, name, len);
	if (name[0] == '@')
		ret_address->sun_path[0] = '\0';
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

void zd_notify(const char *format, ...)
{
	struct sockaddr_un address;
	socklen_t len = manager(&address);
	char text[ZD_NOTIFY_MAX];
	va_list args;
	int fd;

	if (len == 0)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* A manager that does not listen is not our trouble. */
	(void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, len);
	close(fd);
}

/* A decimal number and nothing else; 0 if it is none, as 0 is for whom we ask. */
static uint64_t number(const char *text)
{
	if (!text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 19)
		return 0; /* 19 digits always fit, and are 300,000 years in microseconds */
	return strtoull(text, NULL, 10);
}

uint64_t zd_notify_watchdog_us(void)
{
	const char *pid = getenv("WATCHDOG_PID");

	/* Without WATCHDOG_PID it is meant for whoever is started. */
	if (pid && number(pid) != (uint64_t)getpid())
		return 0;
	return number(getenv("WATCHDOG_USEC"));
}
