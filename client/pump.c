/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pump.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/conn.h"
#include "proto/assert.h"
#include "proto/descriptors.h"

/* Of libuv, to resolve names, unless UV_THREADPOOL_SIZE says otherwise.  It aborts where it cannot make them. */
#define POOL_THREADS 4u

struct slot {
	struct zd_conn *conn; /* NULL: none, or it is down */
	uint32_t gen;
	uint32_t first, last; /* of this step's SENDs, by link: 1 + index, 0 none */
};

struct zd_pump {
	pthread_t thread;
	uv_loop_t loop;
	uv_async_t wake;
	uv_timer_t timer;
	uv_work_t pool;
	zd_time armed;

	pthread_mutex_t lock;
	struct zd_op *queue, **queue_end; /* under lock */
	struct zd_pump_view view;	  /* under lock */
	uint8_t stop;			  /* under lock */

	struct zd_session *session;
	struct zd_session_actions *actions;
	struct zd_conn_owner owner;
	struct zd_endpoint *endpoints;
	struct slot *slots; /* ZD_LANES_MAX */
	uint32_t conns;	    /* not yet down */
	uint32_t failed_count, failed[ZD_LANES_MAX]; /* slots whose CONNECT found no memory: DOWN is owed */
	uint8_t stopping;

	/* scratch of carrying out */
	uint32_t next_send[ZD_SESSION_ACTIONS_MAX];
	uint32_t touched[ZD_SESSION_ACTIONS_MAX];
	uv_buf_t bufs[2 * ZD_SESSION_ACTIONS_MAX];
	uint8_t keep[2 * ZD_SESSION_ACTIONS_MAX];
	uint64_t tokens[ZD_SESSION_ACTIONS_MAX];
};

zd_time zd_pump_now(void)
{
	return uv_hrtime();
}

/* Buffers of weights are written and read from end to end in every step, which is 2 % faster in huge pages.  Only whole ones inside a
 * buffer, so that it takes no byte more. */
static void *aligned(void *ctx, size_t size)
{
	const size_t huge = (size_t)2 << 20;
	void *memory;

	(void)ctx;
	if (posix_memalign(&memory, size >= 2 * huge ? huge : 64, size ? size : 1) != 0)
		return NULL;
	if (size >= 2 * huge)
		(void)madvise(memory, size & ~(huge - 1), MADV_HUGEPAGE);
	return memory;
}

static void give_back(void *ctx, void *memory)
{
	(void)ctx;
	free(memory);
}

/* ---------------------------------------------------------------- actions */

static void connect_to(struct zd_pump *p, const struct zd_session_action *a)
{
	struct slot *slot = &p->slots[a->slot];

	slot->gen = a->gen;
	slot->conn = zd_conn_new(&p->owner, a->slot, a->gen, &p->endpoints[a->u.connect.daemon]);
	if (slot->conn)
		p->conns++;
	else
		p->failed[p->failed_count++] = a->slot;
}

static void note_send(struct zd_pump *p, uint32_t index, uint32_t *touched)
{
	struct slot *slot = &p->slots[p->actions->item[index].slot];

	p->next_send[index] = 0;
	if (slot->first == 0) {
		slot->first = index + 1;
		p->touched[(*touched)++] = p->actions->item[index].slot;
	} else {
		p->next_send[slot->last - 1] = index + 1;
	}
	slot->last = index + 1;
}

/* All SENDs of one connection in one write. */
static void write_slot(struct zd_pump *p, struct slot *slot)
{
	uint32_t count = 0, tokens = 0;

	for (uint32_t i = slot->first; i != 0; i = p->next_send[i - 1]) {
		const struct zd_session_action *a = &p->actions->item[i - 1];

		p->bufs[count] = uv_buf_init((char *)p->actions->bytes + a->u.send.frame, a->u.send.frame_len);
		p->keep[count++] = 0;
		if (a->u.send.payload_len == 0)
			continue;
		p->bufs[count] = uv_buf_init((char *)(uintptr_t)a->u.send.payload, a->u.send.payload_len);
		p->keep[count++] = 1;
		p->tokens[tokens++] = a->u.send.token;
	}
	slot->first = slot->last = 0;
	if (slot->conn)
		zd_conn_write(slot->conn, p->bufs, p->keep, count, p->tokens, tokens);
}

static void publish(struct zd_pump *p)
{
	pthread_mutex_lock(&p->lock);
	zd_session_view(p->session, &p->view.session);
	zd_session_result(p->session, &p->view.result);
	zd_session_stats(p->session, &p->view.stats);
	pthread_mutex_unlock(&p->lock);
}

static void carry_out(struct zd_pump *p)
{
	const struct zd_session_actions *actions = p->actions;
	uint32_t touched = 0;

	for (uint32_t i = 0; i < actions->count; i++)
		if (actions->item[i].type == ZD_SA_SEND && p->slots[actions->item[i].slot].gen == actions->item[i].gen)
			note_send(p, i, &touched);
	for (uint32_t i = 0; i < touched; i++)
		write_slot(p, &p->slots[p->touched[i]]);
	for (uint32_t i = 0; i < actions->count; i++) {
		const struct zd_session_action *a = &actions->item[i];
		struct slot *slot = &p->slots[a->slot];

		if (a->type == ZD_SA_CLOSE && slot->conn && slot->gen == a->gen)
			zd_conn_close(slot->conn);
		else if (a->type == ZD_SA_CONNECT)
			connect_to(p, a);
	}
	publish(p);
	for (uint32_t i = 0; i < actions->count; i++) {
		const struct zd_session_action *a = &actions->item[i];
		struct zd_op *op = (struct zd_op *)(uintptr_t)a->u.done.request;

		if (a->type == ZD_SA_DONE)
			op->finish(op, a->u.done.status, (const char *)actions->bytes + a->u.done.text, a->u.done.weights);
	}
}

static void on_timer(uv_timer_t *timer);

static void arm(struct zd_pump *p, zd_time now)
{
	zd_time at = zd_session_deadline(p->session);

	if (at == p->armed)
		return;
	p->armed = at;
	if (at == ZD_TIME_NEVER || p->stopping)
		uv_timer_stop(&p->timer);
	else {
		uv_update_time(&p->loop);
		uv_timer_start(&p->timer, on_timer, at <= now ? 0 : (at - now + 999999u) / 1000000u, 0);
	}
}

static void close_all(struct zd_pump *p)
{
	if (!p->stopping || p->conns > 0 || uv_is_closing((uv_handle_t *)&p->wake))
		return;
	uv_close((uv_handle_t *)&p->wake, NULL);
	uv_close((uv_handle_t *)&p->timer, NULL);
}

/* Before a TICK: what the kernel knows of ways on which nothing was answered. */
static void vouch(struct zd_pump *p)
{
	struct zd_session_event ev = {.type = ZD_SE_ACKED, .now = zd_pump_now()};

	for (ev.slot = 0; ev.slot < ZD_LANES_MAX; ev.slot++) {
		const struct slot *slot = &p->slots[ev.slot];

		if (!slot->conn || !zd_session_doubts(p->session, ev.slot, slot->gen, ev.now))
			continue;
		ev.gen = slot->gen;
		ev.u.acked.at = zd_conn_acked(slot->conn);
		zd_session_step(p->session, &ev, p->actions);
		carry_out(p);
	}
}

/* One event, and all that follows from it at once. */
static void feed(struct zd_pump *p, struct zd_session_event *ev)
{
	struct zd_session_event more;

	for (;;) {
		if (ev->type == ZD_SE_TICK)
			vouch(p);
		ev->now = zd_pump_now();
		zd_session_step(p->session, ev, p->actions);
		carry_out(p);
		more = (struct zd_session_event){.type = ZD_SE_TICK};
		if (p->failed_count > 0) {
			more.type = ZD_SE_DOWN;
			more.slot = p->failed[--p->failed_count];
			more.gen = p->slots[more.slot].gen;
			more.u.down.text = "no memory for a connection";
			more.u.down.own = 1;
		} else if (zd_session_deadline(p->session) > ev->now) {
			break;
		}
		ev = &more;
	}
	arm(p, ev->now);
	close_all(p);
}

/* ---------------------------------------------------------------- callbacks */

static void on_timer(uv_timer_t *timer)
{
	struct zd_pump *p = timer->data;
	struct zd_session_event tick = {.type = ZD_SE_TICK};

	p->armed = 0;
	feed(p, &tick);
}

static void up(void *arg, uint32_t slot, uint32_t gen)
{
	struct zd_session_event ev = {.type = ZD_SE_UP, .slot = slot, .gen = gen};

	feed(arg, &ev);
}

static struct zd_span window(void *arg, uint32_t slot, uint32_t gen)
{
	struct zd_pump *p = arg;

	return zd_session_window(p->session, slot, gen);
}

static void bytes(void *arg, uint32_t slot, uint32_t gen, size_t len)
{
	struct zd_session_event ev = {.type = ZD_SE_BYTES, .slot = slot, .gen = gen, .u.bytes.len = len};

	feed(arg, &ev);
}

static void sent(void *arg, uint32_t slot, uint32_t gen, const uint64_t *tokens, uint32_t count)
{
	struct zd_session_event ev = {.type = ZD_SE_SENT, .slot = slot, .gen = gen};

	for (uint32_t i = 0; i < count; i++) {
		ev.u.sent.token = tokens[i];
		feed(arg, &ev);
	}
}

static void down(void *arg, uint32_t slot, uint32_t gen, const char *text, int fatal, int own)
{
	struct zd_pump *p = arg;
	struct zd_session_event ev = {.type = ZD_SE_DOWN, .slot = slot, .gen = gen};

	if (p->slots[slot].gen == gen)
		p->slots[slot].conn = NULL;
	p->conns--;
	ev.u.down.text = text;
	ev.u.down.fatal = (uint8_t)fatal;
	ev.u.down.own = (uint8_t)own;
	feed(p, &ev);
}

static void on_wake(uv_async_t *wake)
{
	struct zd_pump *p = wake->data;
	struct zd_op *op, *next;

	pthread_mutex_lock(&p->lock);
	op = p->queue;
	p->queue = NULL;
	p->queue_end = &p->queue;
	if (p->stop)
		p->stopping = 1;
	pthread_mutex_unlock(&p->lock);
	for (; op; op = next) {
		enum zd_session_event_type type = op->event.type;
		struct zd_session_event ev = op->event;

		next = op->next;
		ev.request = (uint64_t)(uintptr_t)op;
		feed(p, &ev);
		if (type == ZD_SE_REQ_RELEASE || type == ZD_SE_REQ_PLAN)
			op->finish(op, ZEROD_OK, "", NULL);
	}
	if (p->stopping) {
		struct zd_session_event stop = {.type = ZD_SE_REQ_STOP};

		feed(p, &stop);
	}
}

static void *run(void *arg)
{
	struct zd_pump *p = arg;

	uv_run(&p->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* ---------------------------------------------------------------- life */

static void free_memory(struct zd_pump *p)
{
	zd_session_free(p->session);
	free(p->actions);
	free(p->endpoints);
	free(p->slots);
	free(p);
}

static void *stand(void *gate)
{
	pthread_mutex_lock(gate);
	pthread_mutex_unlock(gate);
	return NULL;
}

/* Can so many threads be there at once? */
static int have_room(uint32_t wanted)
{
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* none ends before all have begun */
	pthread_t threads[POOL_THREADS + 1];
	uint32_t n = 0;

	pthread_mutex_lock(&gate);
	while (n < wanted && pthread_create(&threads[n], NULL, stand, &gate) == 0)
		n++;
	pthread_mutex_unlock(&gate);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return n == wanted;
}

static void nothing(uv_work_t *work)
{
	(void)work;
}

/* The pump's, and libuv's for names: now, while it is known that they can be made.  At the first name there may be no room for them any more. */
static int start_threads(struct zd_pump *p)
{
	sigset_t all, before;
	int ok;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ok = have_room(POOL_THREADS + 1) && uv_queue_work(&p->loop, &p->pool, nothing, NULL) == 0 &&
	     pthread_create(&p->thread, NULL, run, p) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok ? 0 : -1;
}

static int start_loop(struct zd_pump *p, const char **ret_lacks)
{
	if (!zd_descriptors_free(ZD_LOOP_DESCRIPTORS)) {
		*ret_lacks = "fewer than 8 free file descriptors for a client; raise ulimit -n, or close some";
		return -1;
	}
	if (uv_loop_init(&p->loop) < 0)
		return -1;
	p->loop.data = p;
	p->wake.data = p->timer.data = p;
	if (uv_timer_init(&p->loop, &p->timer) < 0)
		goto close_loop;
	if (uv_async_init(&p->loop, &p->wake, on_wake) < 0)
		goto close_timer;
	pthread_mutex_init(&p->lock, NULL);
	if (start_threads(p) == 0)
		return 0;
	*ret_lacks = "no room for the threads of a client; raise ulimit -v or -u, or the control group's memory or pids.max";
	pthread_mutex_destroy(&p->lock);
	uv_close((uv_handle_t *)&p->wake, NULL);
close_timer:
	uv_close((uv_handle_t *)&p->timer, NULL);
	uv_run(&p->loop, UV_RUN_DEFAULT);
close_loop:
	uv_loop_close(&p->loop);
	return -1;
}

int zd_pump_new(struct zd_pump **ret_pump, const struct zd_session_config *session, const struct zd_endpoint *endpoints, const char **ret_lacks)
{
	struct zd_session_config config = *session;
	struct zd_pump *p = calloc(1, sizeof(*p));

	*ret_lacks = "no memory for a client";
	if (!p)
		return ZEROD_ERR_MEMORY;
	config.alloc = aligned;
	config.release = give_back;
	config.now = zd_pump_now();
	p->queue_end = &p->queue;
	p->owner = (struct zd_conn_owner){
		.loop = &p->loop, .arg = p, .up = up, .window = window, .bytes = bytes, .sent = sent, .down = down};
	p->actions = malloc(sizeof(*p->actions));
	p->endpoints = malloc(config.daemon_count * sizeof(*p->endpoints));
	p->slots = calloc(ZD_LANES_MAX, sizeof(*p->slots));
	p->session = p->actions && p->endpoints && p->slots ? zd_session_new(&config) : NULL;
	if (!p->session) {
		free_memory(p);
		return ZEROD_ERR_MEMORY;
	}
	memcpy(p->endpoints, endpoints, config.daemon_count * sizeof(*p->endpoints));
	zd_session_view(p->session, &p->view.session);
	zd_session_stats(p->session, &p->view.stats);
	if (start_loop(p, ret_lacks) < 0) {
		free_memory(p);
		return ZEROD_ERR_MEMORY;
	}
	*ret_pump = p;
	return ZEROD_OK;
}

int zd_pump_post(struct zd_pump *p, struct zd_op *op)
{
	op->next = NULL;
	pthread_mutex_lock(&p->lock);
	if (p->stop) {
		pthread_mutex_unlock(&p->lock);
		return -1;
	}
	*p->queue_end = op;
	p->queue_end = &op->next;
	pthread_mutex_unlock(&p->lock);
	uv_async_send(&p->wake);
	return 0;
}

void zd_pump_look(struct zd_pump *p, struct zd_pump_view *ret_view)
{
	pthread_mutex_lock(&p->lock);
	*ret_view = p->view;
	pthread_mutex_unlock(&p->lock);
}

int zd_pump_is_own_thread(const struct zd_pump *p)
{
	return pthread_equal(p->thread, pthread_self());
}

void zd_pump_free(struct zd_pump *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = 1;
	pthread_mutex_unlock(&p->lock);
	uv_async_send(&p->wake);
	pthread_join(p->thread, NULL);
	uv_loop_close(&p->loop);
	pthread_mutex_destroy(&p->lock);
	free_memory(p);
}
