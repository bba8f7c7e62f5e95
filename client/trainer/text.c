/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainer/random.h"
#include "proto/assert.h"

/* Any number will do that no other user of the seed takes: initial weights take the units' numbers. */
#define TEXT_STREAM 0x74657874u

struct zd_text {
	int fd;
	uint32_t context;
	uint64_t bytes;
	char path[];
};

static const char *kind_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a pipe";
	if (S_ISSOCK(mode))
		return "a socket";
	return "a device";
}

/* What open and fstat found; 0 if it will do. */
static int check_file(const char *path, const struct stat *status, uint32_t context, char *text, size_t text_size)
{
	if (!S_ISREG(status->st_mode)) {
		(void)snprintf(text, text_size, "text %s: expected a file, found %s; write the text to a file and name that", path,
			       kind_of(status->st_mode));
		return -1;
	}
	if (status->st_size == 0) {
		(void)snprintf(text, text_size, "text %s: expected at least %" PRIu32 " bytes (context + 1), found an empty file; choose another",
			       path, context + 1);
		return -1;
	}
	if ((uint64_t)status->st_size < (uint64_t)context + 1) {
		(void)snprintf(text, text_size,
			       "text %s: expected at least %" PRIu32 " bytes (context + 1), found %" PRIu64
			       "; choose a longer text or a context of at most %" PRIu64,
			       path, context + 1, (uint64_t)status->st_size, (uint64_t)status->st_size - 1);
		return -1;
	}
	return 0;
}

/* An open file that will do, or -1. Non-blocking, for a pipe would wait for its writer before it could be refused. */
static int open_file(const char *path, uint32_t context, uint64_t *ret_bytes, char *text, size_t text_size)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &status) < 0) {
		const char *advice = errno == ENOENT ? "; check the path" : errno == EACCES ? "; check its permissions" : "";

		(void)snprintf(text, text_size, "text %s: expected a readable file, found: %s%s", path, strerror(errno), advice);
	} else if (check_file(path, &status, context, text, text_size) == 0) {
		*ret_bytes = (uint64_t)status.st_size;
		return fd;
	}
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

int zd_text_open(const char *path, uint32_t context, struct zd_text **ret_text, char *text, size_t text_size)
{
	uint64_t bytes;
	int fd = open_file(path, context, &bytes, text, text_size);
	if (fd < 0)
		return -1;

	size_t path_size = strlen(path) + 1;
	struct zd_text *handle = malloc(sizeof(*handle) + path_size);
	if (handle == NULL) {
		(void)close(fd);
		(void)snprintf(text, text_size, "text %s: out of memory", path);
		return -1;
	}
	handle->fd = fd;
	handle->context = context;
	handle->bytes = bytes;
	memcpy(handle->path, path, path_size);
	*ret_text = handle;
	return 0;
}

void zd_text_close(struct zd_text *handle)
{
	if (handle == NULL)
		return;
	(void)close(handle->fd);
	free(handle);
}

uint64_t zd_text_bytes(const struct zd_text *handle)
{
	return handle->bytes;
}

uint64_t zd_text_offset(const struct zd_text *handle, const struct zd_text_place *place, uint32_t index)
{
	ZD_ASSERT(place->rank < place->world && place->micro_batch < place->micro_batches && index < place->batch);
	uint64_t g = place->step * place->micro_batches + place->micro_batch;
	g = (g * place->world + place->rank) * place->batch + index;
	return zd_random_below(zd_random_stream(place->seed, TEXT_STREAM), g, handle->bytes - handle->context);
}

static int read_row(const struct zd_text *handle, uint64_t offset, uint8_t *row, char *text, size_t text_size)
{
	size_t want = (size_t)handle->context + 1, have = 0;

	while (have < want) {
		ssize_t n = pread(handle->fd, row + have, want - have, (off_t)(offset + have));

		if (n > 0) {
			have += (size_t)n;
		} else if (n == 0) {
			(void)snprintf(text, text_size,
				       "text %s: expected the %" PRIu64 " bytes it had at the start, found its end at %" PRIu64
				       "; it must not change while it is trained on",
				       handle->path, handle->bytes, offset + have);
			return -1;
		} else if (errno != EINTR) {
			(void)snprintf(text, text_size, "text %s: reading %zu bytes at %" PRIu64 ": %s", handle->path, want - have,
				       offset + have, strerror(errno));
			return -1;
		}
	}
	return 0;
}

int zd_text_batch(const struct zd_text *handle, const struct zd_text_place *place, uint8_t *tokens, char *text, size_t text_size)
{
	for (uint32_t index = 0; index < place->batch; index++) {
		if (read_row(handle, zd_text_offset(handle, place, index), tokens, text, text_size) < 0)
			return -1;
		tokens += (size_t)handle->context + 1;
	}
	return 0;
}
