/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shell/uvx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/descriptors.h"

zd_uvx_fault_fn *zd_uvx_fault;

static int fault(const char *call)
{
	return __builtin_expect(zd_uvx_fault != NULL, 0) ? zd_uvx_fault(call) : 0;
}

#define FAULT(call)                                                                                                                   \
	do {                                                                                                                          \
		int fault_rc_ = fault(call);                                                                                          \
		if (fault_rc_ < 0)                                                                                                    \
			return fault_rc_;                                                                                             \
	} while (0)

int zd_uvx_loop_init(uv_loop_t *loop)
{
	FAULT("loop_init");
	if (!zd_descriptors_free(ZD_LOOP_DESCRIPTORS))
		return UV_EMFILE;
	return uv_loop_init(loop);
}

int zd_uvx_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb cb)
{
	FAULT("async_init");
	return uv_async_init(loop, async, cb);
}

int zd_uvx_signal_start(uv_signal_t *signal, uv_signal_cb cb, int signum)
{
	FAULT("signal_start");
	return uv_signal_start(signal, cb, signum);
}

int zd_uvx_thread_create(uv_thread_t *thread, uv_thread_cb entry, void *arg)
{
	FAULT("thread_create");
	return uv_thread_create(thread, entry, arg);
}

int zd_uvx_mutex_init(uv_mutex_t *mutex)
{
	FAULT("mutex_init");
	return uv_mutex_init(mutex);
}

int zd_uvx_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp)
{
	FAULT("tcp_init");
	return uv_tcp_init(loop, tcp);
}

int zd_uvx_tcp_bind(uv_tcp_t *tcp, const struct sockaddr *addr, unsigned flags)
{
	FAULT("tcp_bind");
	return uv_tcp_bind(tcp, addr, flags);
}

int zd_uvx_tcp_open(uv_tcp_t *tcp, int fd)
{
	FAULT("tcp_open");
	return uv_tcp_open(tcp, fd);
}

int zd_uvx_listen(uv_tcp_t *tcp, int backlog, uv_connection_cb cb)
{
	FAULT("listen");
	return uv_listen((uv_stream_t *)tcp, backlog, cb);
}

int zd_uvx_accept(uv_tcp_t *server, uv_tcp_t *client)
{
	FAULT("accept");
	return uv_accept((uv_stream_t *)server, (uv_stream_t *)client);
}

int zd_uvx_getsockname(const uv_tcp_t *tcp, struct sockaddr_storage *ret_addr)
{
	int len = sizeof(*ret_addr);

	FAULT("getsockname");
	return uv_tcp_getsockname(tcp, (struct sockaddr *)ret_addr, &len);
}

int zd_uvx_read_start(uv_tcp_t *tcp, uv_alloc_cb alloc, uv_read_cb read_cb)
{
	FAULT("read_start");
	return uv_read_start((uv_stream_t *)tcp, alloc, read_cb);
}

int zd_uvx_write(uv_write_t *req, uv_tcp_t *tcp, const uv_buf_t *bufs, unsigned count, uv_write_cb cb)
{
	FAULT("write");
	return uv_write(req, (uv_stream_t *)tcp, bufs, count, cb);
}

int zd_uvx_try_write_all(uv_tcp_t *tcp, const void *data, size_t len)
{
	uv_buf_t buf = {.base = (char *)(uintptr_t)data, .len = len};
	int rc;

	FAULT("try_write");
	rc = uv_try_write((uv_stream_t *)tcp, &buf, 1);
	if (rc < 0)
		return rc;
	return (size_t)rc == len ? 0 : UV_EAGAIN;
}

int zd_uvx_shutdown(uv_shutdown_t *req, uv_tcp_t *tcp, uv_shutdown_cb cb)
{
	FAULT("shutdown");
	return uv_shutdown(req, (uv_stream_t *)tcp, cb);
}

int zd_uvx_dup(const uv_tcp_t *tcp)
{
	uv_os_fd_t fd;
	int copy, rc;

	FAULT("dup");
	rc = uv_fileno((const uv_handle_t *)tcp, &fd);
	if (rc < 0)
		return rc;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return copy < 0 ? -errno : copy;
}

void *zd_uvx_calloc(size_t count, size_t size)
{
	if (fault("calloc") < 0)
		return NULL;
	return calloc(count, size);
}

void *zd_uvx_map(size_t bytes, size_t align)
{
	uint8_t *raw, *base;
	size_t before, after;

	if (fault("map") < 0 || bytes > SIZE_MAX - align)
		return NULL;
	raw = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	/* The mapping is cut to the aligned part, so that it can be given back by base and size alone. */
	before = (align - ((uintptr_t)raw & (align - 1))) & (align - 1);
	base = raw + before;
	after = align - before;
	if (before)
		munmap(raw, before);
	if (after)
		munmap(base + bytes, after);
	return base;
}

void zd_uvx_unmap(void *base, size_t bytes)
{
	if (base)
		munmap(base, bytes);
}
