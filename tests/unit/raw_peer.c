/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/raw_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "proto/crc32c.h"

/* A signal for the daemon in this process may interrupt connect(), which goes on by itself. */
static int connects(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLOUT};
	int error = 0;
	socklen_t len = sizeof(error);

	while (poll(&wait, 1, RAW_PEER_LIMIT_S * 1000) < 0)
		if (errno != EINTR)
			return 0;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0 && wait.revents & POLLOUT;
}

int raw_open(struct raw_peer *p, uint16_t port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {.tv_sec = RAW_PEER_LIMIT_S};

	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->fd < 0)
		abort();
	(void)setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	zd_reader_init(&p->reader, ZD_SIDE_SERVER, p->head_mem, sizeof(p->head_mem));
	zd_arena_init(&p->arena, p->arena_mem, sizeof(p->arena_mem));
	if (connect(p->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || (errno == EINTR && connects(p->fd)))
		return 0;
	close(p->fd);
	p->fd = -1;
	return -1;
}

void raw_close(struct raw_peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

int raw_bytes(struct raw_peer *p, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len) {
		ssize_t n = send(p->fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

size_t raw_frame(uint8_t *out, size_t size, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload,
		 uint32_t payload_len)
{
	return zd_wire_encode(out, size, type, stream, msg, payload_len, payload_len ? zd_crc32c(0, payload, payload_len) : 0);
}

void raw_send(struct raw_peer *p, uint16_t type, uint64_t stream, const ProtobufCMessage *msg, const void *payload, uint32_t payload_len)
{
	size_t size = ZD_HEADER_BYTES + ZD_HEAD_OPEN_MAX, len;
	uint8_t *frame = malloc(size);

	if (!frame)
		abort();
	len = raw_frame(frame, size, type, stream, msg, payload, payload_len);
	raw_bytes(p, frame, len);
	raw_bytes(p, payload, payload_len);
	free(frame);
}

/* Reads until the reader has something: its status, or one of RAW_*. */
static int advance(struct raw_peer *p)
{
	for (;;) {
		int rc = zd_reader_next(&p->reader);
		struct zd_span w;
		ssize_t n;

		if (rc != ZD_READER_MORE)
			return rc < 0 ? RAW_BROKEN : rc;
		w = zd_reader_window(&p->reader, (struct zd_span){NULL, 0});
		n = recv(p->fd, w.base, w.len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? RAW_TIMED_OUT : RAW_RESET;
		if (n == 0)
			return RAW_CLOSED;
		zd_reader_advance(&p->reader, (size_t)n);
	}
}

int raw_receive(struct raw_peer *p)
{
	char text[ZD_TEXT_MAX + 1];
	int rc = advance(p);

	if (rc != ZD_READER_HEAD)
		return rc;
	zd_arena_reset(&p->arena);
	if (zd_wire_decode(&p->arena, p->reader.header.type, p->reader.head, p->reader.header.head_len, &p->msg, text, sizeof(text)) < 0)
		return RAW_BROKEN;
	if (p->reader.header.payload_len)
		zd_reader_payload(&p->reader, p->payload);
	rc = advance(p);
	return rc == ZD_READER_FRAME ? p->reader.header.type : rc;
}

size_t raw_hello_frame(uint8_t *out, size_t size, enum zd_role role, uint32_t lane)
{
	Zd__Pb__Hello hello = ZD__PB__HELLO__INIT;

	hello.version = ZD_VERSION;
	hello.features = ZD_FEATURE_PAYLOAD_CRC;
	hello.role = role;
	hello.lane = lane;
	return raw_frame(out, size, ZD_MSG_HELLO, 1, &hello.base, NULL, 0);
}

int raw_hello(struct raw_peer *p, enum zd_role role, uint32_t lane)
{
	uint8_t frame[ZD_HEADER_BYTES + 256];

	raw_bytes(p, frame, raw_hello_frame(frame, sizeof(frame), role, lane));
	return raw_receive(p) == ZD_MSG_WELCOME;
}
