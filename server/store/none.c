/* SPDX-License-Identifier: Apache-2.0 */
/* The store that keeps nothing: what is acknowledged lasts as long as the process. */
#include "server/store/store.h"

static void none_submit(struct zd_store *store, const struct zd_store_op *op)
{
	zd_store_complete(store, op->token, 0);
}

static int none_fd(const struct zd_store *store)
{
	(void)store;
	return -1;
}

static void none_fini(struct zd_store *store)
{
	store->count = 0;
}

static const struct zd_store_backend backend_none = {
	.name = "none",
	.submit = none_submit,
	.fd = none_fd,
	.fini = none_fini,
};

void zd_store_init_none(struct zd_store *store)
{
	store->backend = &backend_none;
	store->first = 0;
	store->count = 0;
}
