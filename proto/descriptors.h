/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors are counted before a loop of libuv is made: where the first one of a process finds none for its pipe, libuv aborts. */
#ifndef ZD_PROTO_DESCRIPTORS_H
#define ZD_PROTO_DESCRIPTORS_H

#include <fcntl.h>
#include <sys/resource.h>

/* What a loop takes at most: epoll, two rings of io_uring, an eventfd, its pipe for signals and, with the first, the process's. */
#define ZD_LOOP_DESCRIPTORS 8u

/* Are so many free?  Nobody keeps them: another thread may take them in the next moment. */
static inline int zd_descriptors_free(unsigned wanted)
{
	struct rlimit files;
	rlim_t fd;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 1;
	for (fd = 0; wanted > 0 && fd < files.rlim_cur; fd++)
		wanted -= fcntl((int)fd, F_GETFD) < 0;
	return wanted == 0;
}

#endif
