/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile_peers PORT SECONDS: sixteen peers on loopback, each bad in a way of its own, over and over; ends with 0 and a line that says how often
 * each was bad.  Prints "begun" once all of them are at it.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/bytes.h"
#include "proto/crc32c.h"
#include "tests/fuzz/rng.h"
#include "tests/unit/raw_peer.h"

#define PEERS 16u
#define CROWD 1000u
#define HELLO_BYTES (ZD_HEADER_BYTES + 256)

static uint16_t port;
static atomic_int over, begun;
static pthread_barrier_t barrier;

struct peer {
	uint32_t kind;
	uint64_t times;
	struct zd_rng rng;
	struct raw_peer raw;
	uint8_t frame[ZD_HEADER_BYTES + ZD_HEAD_OPEN_MAX];
	uint8_t noise[65536];
};

static int ended[2]; /* a pipe: its end wakes all that rest */

/* The pace of an attack: nothing that is checked depends on it. */
static void rest(uint32_t ms)
{
	struct pollfd end = {.fd = ended[0], .events = POLLIN};

	(void)poll(&end, 1, (int)ms);
}

static void make_noise(struct peer *p)
{
	for (size_t i = 0; i < sizeof(p->noise); i += 8) {
		uint64_t r = zd_rng_next(&p->rng);

		memcpy(p->noise + i, &r, 8);
	}
}

/* What the daemon has to say about it, up to its end of the connection. */
static void hear_out(struct peer *p)
{
	while (raw_receive(&p->raw) > 0)
		;
}

static size_t hello(struct peer *p, enum zd_role role)
{
	return raw_hello_frame(p->frame, sizeof(p->frame), role, 0);
}

static void fix(uint8_t *frame, size_t head)
{
	zd_put32(frame + 16, 0);
	zd_put32(frame + 16, zd_crc32c(0, frame, ZD_HEADER_BYTES + head));
}

/* HELLO with a number of its header changed, and a checksum that is right. */
static void wrong_header(struct peer *p, uint32_t at, uint32_t value)
{
	size_t n = hello(p, ZD_ROLE_WORKER);

	zd_put32(p->frame + at, value);
	fix(p->frame, n - ZD_HEADER_BYTES);
	raw_bytes(&p->raw, p->frame, n);
	hear_out(p);
}

/* As long as it is let: many requests whose answers are never read. */
static void flood(struct peer *p)
{
	Zd__Pb__Status status = ZD__PB__STATUS__INIT;
	size_t n;

	if (!raw_hello(&p->raw, ZD_ROLE_ADMIN, 0))
		return;
	n = raw_frame(p->frame, sizeof(p->frame), ZD_MSG_STATUS, 1, &status.base, NULL, 0);
	while (n + ZD_HEADER_BYTES < 4000)
		n += raw_frame(p->frame + n, sizeof(p->frame) - n, ZD_MSG_STATUS, 1, &status.base, NULL, 0);
	while (!atomic_load(&over) && raw_bytes(&p->raw, p->frame, n) == 0)
		;
}

static void drip(struct peer *p)
{
	size_t n = hello(p, ZD_ROLE_WORKER);

	for (size_t i = 0; i < n && !atomic_load(&over); i++) {
		if (raw_bytes(&p->raw, p->frame + i, 1) < 0)
			return;
		rest(200);
	}
}

static void after_hello(struct peer *p, enum zd_role role, int sealed)
{
	if (!raw_hello(&p->raw, role, 0))
		return;
	make_noise(p);
	if (sealed) { /* a frame that is one, of a head that is not */
		zd_put32(p->noise, ZD_MAGIC);
		zd_put32(p->noise + 4, ZD_VERSION | (uint32_t)(ZD_MSG_OPEN + zd_rng_below(&p->rng, 30)) << 16);
		zd_put32(p->noise + 8, 16);
		zd_put32(p->noise + 12, 0);
		fix(p->noise, 16);
	}
	raw_bytes(&p->raw, p->noise, sizeof(p->noise));
	hear_out(p);
}

static void crowd(struct peer *p)
{
	static int fds[CROWD];
	uint32_t n = 0;

	for (; n < CROWD && !atomic_load(&over); n++) {
		if (raw_open(&p->raw, port) < 0)
			break;
		fds[n] = p->raw.fd;
	}
	rest(100);
	while (n > 0)
		close(fds[--n]);
	p->raw.fd = -1;
}

static void be_bad(struct peer *p)
{
	struct linger reset = {.l_onoff = 1};
	uint32_t big = (uint32_t[]){257, 131073, 0x7fffffff, UINT32_MAX}[zd_rng_below(&p->rng, 4)];

	switch (p->kind) {
	case 0:
		make_noise(p);
		raw_bytes(&p->raw, p->noise, sizeof(p->noise));
		break;
	case 1: raw_bytes(&p->raw, p->frame, zd_rng_below(&p->rng, hello(p, ZD_ROLE_WORKER))); break;
	case 2: wrong_header(p, 8, big); break;
	case 3: wrong_header(p, 12, big); break;
	case 4: wrong_header(p, 4, ZD_VERSION | (uint32_t)zd_rng_below(&p->rng, 65536) << 16); break;
	case 5: wrong_header(p, 4, (uint32_t)(2 + zd_rng_below(&p->rng, 65000)) | ZD_MSG_HELLO << 16); break;
	case 6: hear_out(p); break; /* says nothing at all */
	case 7: drip(p); break;
	case 8: after_hello(p, ZD_ROLE_WORKER, 0); break;
	case 9: after_hello(p, ZD_ROLE_READER, 1); break;
	case 10: after_hello(p, ZD_ROLE_ADMIN, 1); break;
	case 11: flood(p); break;
	case 12: (void)setsockopt(p->raw.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)); break;
	case 13:
		if (raw_hello(&p->raw, ZD_ROLE_WORKER, 0))
			(void)setsockopt(p->raw.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		break;
	case 14: /* greets and then says nothing for a while */
		if (raw_hello(&p->raw, ZD_ROLE_WORKER, 0))
			rest(500);
		break;
	default: crowd(p); break;
	}
}

static void *run(void *arg)
{
	struct peer *p = arg;

	pthread_barrier_wait(&barrier);
	while (!atomic_load(&over)) {
		if (raw_open(&p->raw, port) < 0) {
			rest(10);
			continue;
		}
		be_bad(p);
		raw_close(&p->raw);
		if (p->times++ == 0)
			atomic_fetch_add(&begun, 1);
		rest(5);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct rlimit files = {.rlim_cur = 2 * CROWD, .rlim_max = 2 * CROWD};
	static struct peer *peers[PEERS];
	pthread_t threads[PEERS];

	if (argc != 3) {
		fprintf(stderr, "usage: %s PORT SECONDS\n", argv[0]);
		return 2;
	}
	port = (uint16_t)strtoul(argv[1], NULL, 10);
	if (pipe(ended) < 0)
		return 1;
	(void)setrlimit(RLIMIT_NOFILE, &files);
	pthread_barrier_init(&barrier, NULL, PEERS + 1);
	for (uint32_t i = 0; i < PEERS; i++) {
		peers[i] = calloc(1, sizeof(*peers[i]));
		if (!peers[i])
			return 1;
		peers[i]->kind = i;
		peers[i]->rng.state = i;
		if (pthread_create(&threads[i], NULL, run, peers[i]) != 0)
			return 1;
	}
	pthread_barrier_wait(&barrier);
	printf("begun\n");
	fflush(stdout);
	rest(1000 * (uint32_t)strtoul(argv[2], NULL, 10));
	atomic_store(&over, 1);
	close(ended[1]);
	for (uint32_t i = 0; i < PEERS; i++) {
		pthread_join(threads[i], NULL);
		printf("%s%llu", i ? " " : "", (unsigned long long)peers[i]->times);
		free(peers[i]);
	}
	printf("\n");
	return 0;
}
