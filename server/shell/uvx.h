/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of libuv and of the system that can fail, in one place, so that a test can make any of them fail.
 *
 * Each wrapper asks zd_uvx_fault, if there is one, before it calls: a negative answer is returned as if the call had failed, and the
 * call is not made.  In production the pointer is NULL and costs one predicted branch.  What cannot fail (timers, idle and prepare
 * handles, uv_read_stop, uv_close) is called directly.
 *
 * Threads: the hook is set before a daemon starts and cleared after it ended; it is called from every thread of the shell.
 */
#ifndef ZD_SHELL_UVX_H
#define ZD_SHELL_UVX_H

#include <stddef.h>
#include <stdint.h>

#include <uv.h>

/* call: the name of the call, for tests that aim at one.  0: go on; negative: a UV_E* to return instead. */
typedef int zd_uvx_fault_fn(const char *call);
extern zd_uvx_fault_fn *zd_uvx_fault;

int zd_uvx_loop_init(uv_loop_t *loop);
int zd_uvx_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb cb);
int zd_uvx_signal_start(uv_signal_t *signal, uv_signal_cb cb, int signum);
int zd_uvx_thread_create(uv_thread_t *thread, uv_thread_cb entry, void *arg);
int zd_uvx_mutex_init(uv_mutex_t *mutex);

int zd_uvx_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp);
int zd_uvx_tcp_bind(uv_tcp_t *tcp, const struct sockaddr *addr, unsigned flags);
int zd_uvx_tcp_open(uv_tcp_t *tcp, int fd);
int zd_uvx_listen(uv_tcp_t *tcp, int backlog, uv_connection_cb cb);
int zd_uvx_accept(uv_tcp_t *server, uv_tcp_t *client);
int zd_uvx_getsockname(const uv_tcp_t *tcp, struct sockaddr_storage *ret_addr);
int zd_uvx_read_start(uv_tcp_t *tcp, uv_alloc_cb alloc, uv_read_cb read);
int zd_uvx_write(uv_write_t *req, uv_tcp_t *tcp, const uv_buf_t *bufs, unsigned count, uv_write_cb cb);
/* All of it or a negative error: UV_EAGAIN where the socket took less. */
int zd_uvx_try_write_all(uv_tcp_t *tcp, const void *data, size_t len);
int zd_uvx_shutdown(uv_shutdown_t *req, uv_tcp_t *tcp, uv_shutdown_cb cb);

/* A second descriptor of the connection, close-on-exec, or a negative error.  The caller owns it. */
int zd_uvx_dup(const uv_tcp_t *tcp);

/* Zeroed memory or NULL; freed with free(). */
void *zd_uvx_calloc(size_t count, size_t size);
/* Private zeroed pages, not reserved and not touched; NULL on failure.  align is a power of two, at least a page. */
void *zd_uvx_map(size_t bytes, size_t align);
void zd_uvx_unmap(void *base, size_t bytes);

#endif
