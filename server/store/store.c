/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/store.h"

#include "proto/assert.h"

void zd_store_fini(struct zd_store *store)
{
	store->backend->fini(store);
}

const char *zd_store_name(const struct zd_store *store)
{
	return store->backend->name;
}

int zd_store_fd(const struct zd_store *store)
{
	return store->backend->fd(store);
}

void zd_store_submit(struct zd_store *store, const struct zd_store_op *op)
{
	store->backend->submit(store, op);
}

void zd_store_complete(struct zd_store *store, uint64_t token, int status)
{
	struct zd_store_completion *c;

	ZD_ASSERT(store->count < ZD_STORE_OPEN_MAX);
	c = &store->done[(store->first + store->count) % ZD_STORE_OPEN_MAX];
	c->token = token;
	c->status = status;
	store->count++;
}

int zd_store_next(struct zd_store *store, struct zd_store_completion *ret_completion)
{
	if (store->count == 0)
		return 0;
	*ret_completion = store->done[store->first];
	store->first = (store->first + 1) % ZD_STORE_OPEN_MAX;
	store->count--;
	return 1;
}
