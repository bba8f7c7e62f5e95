/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the seeds that are checked in under corpus/: make_corpus DIRECTORY.  What a fuzzer found is kept beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/limits.h"
#include "tests/fuzz/vectors.h"

static const char *root;
static uint8_t buffer[2 * ZD_HEAD_OPEN_MAX];

static void put(const char *target, const char *name, const uint8_t *data, size_t size)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, target);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", root, target, name);
	file = fopen(path, "wb");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

/* All small frames of one side, as one connection would carry them. */
static void put_conversation(const struct zd_vector *v, size_t count, enum zd_side side, const char *name)
{
	size_t at = 1;

	buffer[0] = (uint8_t)(4 | (side == ZD_SIDE_SERVER));
	for (size_t i = 0; i < count; i++)
		if (zd_vector_side(v[i].type) == side && v[i].payload_len < 8192)
			at += zd_vector_frame(&v[i], i, buffer + at, sizeof(buffer) - at);
	put("frame", name, buffer, at);
}

static void put_scripts(void)
{
#define SCRIPT(target, name, bytes) put(#target, #name, (const uint8_t *)(bytes), sizeof(bytes) - 1);
#include "tests/fuzz/scripts.def"
#undef SCRIPT
}

int main(int argc, char **argv)
{
	size_t count, small = zd_vectors_small();
	const struct zd_vector *v = zd_vectors(&count);

	if (argc != 2) {
		fprintf(stderr, "usage: %s directory\n", argv[0]);
		return 2;
	}
	root = argv[1];
	mkdir(root, 0777);
	put_conversation(v, small, ZD_SIDE_CLIENT, "client");
	put_conversation(v, small, ZD_SIDE_SERVER, "server");
	put_scripts();
	for (size_t i = 0; i < count; i++) {
		size_t size = zd_wire_size(v[i].msg);

		if (size > 8192)
			continue;
		zd_wire_encode(buffer, sizeof(buffer), v[i].type, i, v[i].msg, v[i].payload_len, 0);
		buffer[ZD_HEADER_BYTES - 1] = (uint8_t)v[i].type;
		put("wire", v[i].name, buffer + ZD_HEADER_BYTES - 1, size - ZD_HEADER_BYTES + 1);
		if (v[i].type == ZD_MSG_OPEN)
			put("spec", v[i].name, buffer + ZD_HEADER_BYTES, size - ZD_HEADER_BYTES);
		if (i < small && v[i].payload_len < 8192) {
			buffer[0] = (uint8_t)(2 | (zd_vector_side(v[i].type) == ZD_SIDE_SERVER));
			put("frame", v[i].name, buffer, 1 + zd_vector_frame(&v[i], i, buffer + 1, sizeof(buffer) - 1));
		}
	}
	return 0;
}
