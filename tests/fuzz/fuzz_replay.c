/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over every file of the directories named: the corpus as a test, under any compiler. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

/* 1 replayed, 0 not a file, -1 error. */
static int replay(const char *path)
{
	struct stat st;
	uint8_t *data;
	FILE *file;
	size_t size;
	int rc = -1;

	if (stat(path, &st) < 0) {
		perror(path);
		return -1;
	}
	if (!S_ISREG(st.st_mode))
		return 0;
	size = (size_t)st.st_size;
	file = fopen(path, "rb");
	data = malloc(size > 0 ? size : 1);
	if (file && data && fread(data, 1, size, file) == size) {
		LLVMFuzzerTestOneInput(data, size);
		rc = 1;
	} else {
		perror(path);
	}
	free(data);
	if (file)
		fclose(file);
	return rc;
}

/* Number of files, or -1. */
static int replay_all(const char *directory)
{
	char path[4096];
	struct dirent *entry;
	DIR *dir = opendir(directory);
	int count = 0;

	if (!dir) {
		perror(directory);
		return -1;
	}
	while (count >= 0 && (entry = readdir(dir)) != NULL) {
		int one;

		if (snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name) >= (int)sizeof(path))
			one = -1;
		else
			one = replay(path);
		count = one < 0 ? -1 : count + one;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s directory...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		int count = replay_all(argv[i]);

		if (count <= 0) {
			fprintf(stderr, "%s: nothing replayed\n", argv[i]);
			return 1;
		}
		printf("%s: %d inputs\n", argv[i], count);
	}
	return 0;
}
