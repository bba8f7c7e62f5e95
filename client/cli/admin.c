/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/admin.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_BYTES = 4096 }; /* administrative requests are small */

uint64_t zd_admin_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits for `events`; 0, ZD_CTL_TIMEOUT or ZD_CTL_FAILED. */
static int wait_for(struct zd_admin *a, short events, const char *what)
{
	for (;;) {
		uint64_t now = zd_admin_now_ns();
		struct pollfd p = {.fd = a->fd, .events = events};
		int ms = now >= a->deadline_ns ? 0 : (int)((a->deadline_ns - now) / 1000000u + 1);
		int n = poll(&p, 1, ms);
		if (n > 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		snprintf(a->detail, sizeof a->detail, "%s did not %s in time; is it a zerod daemon, and is the network open?", a->endpoint, what);
		return ZD_CTL_TIMEOUT;
	}
}

static int is_port(const char *text)
{
	size_t len = strspn(text, "0123456789");
	long port = len >= 1 && len <= 5 && text[len] == 0 ? strtol(text, NULL, 10) : 0;
	return port >= 1 && port <= 65535;
}

static int split_endpoint(struct zd_admin *a, const char *endpoint, char host[256], char port[16])
{
	const char *colon = strrchr(endpoint, ':');
	size_t host_len = colon ? (size_t)(colon - endpoint) : 0;
	snprintf(a->endpoint, sizeof a->endpoint, "%.290s", endpoint);
	if (!colon || host_len == 0 || host_len > 255 || !is_port(colon + 1)) {
		snprintf(a->detail, sizeof a->detail, "--endpoints: expected host:port with a port from 1 to 65535, as in 127.0.0.1:7410, found '%.200s'",
			 endpoint);
		return ZD_CTL_USAGE;
	}
	/* [::1]:port */
	if (endpoint[0] == '[' && host_len > 2 && endpoint[host_len - 1] == ']') {
		endpoint++;
		host_len -= 2;
	}
	memcpy(host, endpoint, host_len);
	host[host_len] = 0;
	snprintf(port, 16, "%s", colon + 1);
	return 0;
}

static int connect_one(struct zd_admin *a, const struct addrinfo *ai)
{
	int err = 0;
	socklen_t len = sizeof err;
	a->fd = socket(ai->ai_family, ai->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_protocol);
	if (a->fd < 0)
		err = errno;
	else if (connect(a->fd, ai->ai_addr, ai->ai_addrlen) < 0)
		err = errno;
	if (err == EINPROGRESS) {
		int rc = wait_for(a, POLLOUT, "answer");
		if (rc)
			return rc;
		if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
			err = errno;
	}
	if (!err)
		return 0;
	snprintf(a->detail, sizeof a->detail, "cannot connect to %s: %s; is zerod running there (systemctl status 'zerod@*')?", a->endpoint,
		 strerror(err));
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	return ZD_CTL_CONNECT;
}

static int connect_any(struct zd_admin *a, const char *endpoint)
{
	char host[256], port[16];
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	int rc = split_endpoint(a, endpoint, host, port);
	if (rc)
		return rc;
	int gai = getaddrinfo(host, port, &hints, &list);
	if (gai) {
		snprintf(a->detail, sizeof a->detail, "cannot resolve %s: %s", a->endpoint, gai_strerror(gai));
		return ZD_CTL_CONNECT;
	}
	rc = ZD_CTL_CONNECT;
	for (struct addrinfo *ai = list; ai && rc == ZD_CTL_CONNECT; ai = ai->ai_next)
		rc = connect_one(a, ai);
	freeaddrinfo(list);
	return rc;
}

static int send_all(struct zd_admin *a, const uint8_t *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(a->fd, data, len, MSG_NOSIGNAL);
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			int rc = wait_for(a, POLLOUT, "read the request");
			if (rc)
				return rc;
		} else {
			snprintf(a->detail, sizeof a->detail, "connection to %s broke while sending: %s", a->endpoint, strerror(errno));
			return ZD_CTL_CONNECT;
		}
	}
	return 0;
}

/* Reads until a whole frame is there. */
static int read_frame(struct zd_admin *a)
{
	for (;;) {
		int st = zd_reader_next(&a->reader);
		if (st == ZD_READER_FRAME)
			return 0;
		if (st == ZD_READER_HEAD) {
			if (a->reader.header.payload_len > 0)
				zd_reader_skip(&a->reader);
			continue;
		}
		if (st < 0) {
			char why[256];
			zd_header_explain(why, sizeof why, -st, &a->reader.header);
			snprintf(a->detail, sizeof a->detail, "%s does not speak this protocol: %s", a->endpoint, why);
			return ZD_CTL_CONNECT;
		}
		uint8_t sink[512];
		struct zd_span w = zd_reader_window(&a->reader, (struct zd_span){sink, sizeof sink});
		ssize_t n = recv(a->fd, w.base, w.len, 0);
		if (n > 0) {
			zd_reader_advance(&a->reader, (size_t)n);
		} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			int rc = wait_for(a, POLLIN, "answer");
			if (rc)
				return rc;
		} else {
			snprintf(a->detail, sizeof a->detail, "%s closed the connection%s%s; see its log", a->endpoint, n < 0 ? ": " : "",
				 n < 0 ? strerror(errno) : "");
			return ZD_CTL_CONNECT;
		}
	}
}

int zd_admin_ask(struct zd_admin *a, uint16_t type, const ProtobufCMessage *msg, uint16_t want, const ProtobufCMessage **ret_answer,
		 uint32_t *ret_code)
{
	uint8_t *frame = a->memory + ZD_HEAD_OPEN_MAX + ZD_ARENA_BYTES;
	const ProtobufCMessage *answer;
	size_t len = zd_wire_encode(frame, FRAME_BYTES, type, 1, msg, 0, 0);
	int rc = send_all(a, frame, len);
	if (!rc)
		rc = read_frame(a);
	if (rc)
		return rc;
	zd_arena_reset(&a->arena);
	const struct zd_header *h = &a->reader.header;
	if (zd_wire_decode(&a->arena, h->type, a->reader.head, h->head_len, &answer, a->detail, sizeof a->detail) < 0)
		return ZD_CTL_FAILED;
	if (h->type == ZD_MSG_ERROR) {
		const Zd__Pb__Error *e = (const Zd__Pb__Error *)answer;
		snprintf(a->detail, sizeof a->detail, "%s: %s (%s)", a->endpoint, e->text, zd_err_name((int)e->code));
		if (ret_code)
			*ret_code = e->code;
		return ZD_CTL_REFUSED;
	}
	if (h->type != want) {
		snprintf(a->detail, sizeof a->detail, "%s answered %s with %s; expected %s: are daemon and zeroctl of one version?", a->endpoint,
			 zd_msg_name(type), zd_msg_name(h->type), zd_msg_name(want));
		return ZD_CTL_FAILED;
	}
	*ret_answer = answer;
	return 0;
}

int zd_admin_open(struct zd_admin *a, const char *endpoint, uint32_t lane, uint64_t deadline_ns)
{
	Zd__Pb__Hello hello = ZD__PB__HELLO__INIT;
	const ProtobufCMessage *answer;
	char agent[64];
	memset(a, 0, sizeof *a);
	a->fd = -1;
	a->deadline_ns = deadline_ns;
	a->lane = lane;
	a->memory = malloc(ZD_HEAD_OPEN_MAX + ZD_ARENA_BYTES + FRAME_BYTES);
	if (!a->memory) {
		snprintf(a->detail, sizeof a->detail, "out of memory");
		return ZD_CTL_FAILED;
	}
	zd_reader_init(&a->reader, ZD_SIDE_SERVER, a->memory, ZD_HEAD_OPEN_MAX);
	zd_arena_init(&a->arena, a->memory + ZD_HEAD_OPEN_MAX, ZD_ARENA_BYTES);
	int rc = connect_any(a, endpoint);
	if (rc)
		return rc;
	snprintf(agent, sizeof agent, "zeroctl/%s", ZD_RELEASE);
	hello.version = ZD_VERSION;
	hello.features = ZD_FEATURE_PAYLOAD_CRC;
	hello.role = ZD_ROLE_ADMIN;
	hello.lane = lane;
	hello.agent = agent;
	rc = zd_admin_ask(a, ZD_MSG_HELLO, &hello.base, ZD_MSG_WELCOME, &answer, NULL);
	if (rc)
		return rc;
	const Zd__Pb__Welcome *w = (const Zd__Pb__Welcome *)answer;
	a->lane_count = w->lane_count;
	snprintf(a->daemon, sizeof a->daemon, "%.63s", w->daemon);
	return 0;
}

void zd_admin_close(struct zd_admin *a)
{
	if (a->fd >= 0)
		close(a->fd);
	free(a->memory);
	a->fd = -1;
	a->memory = NULL;
}
