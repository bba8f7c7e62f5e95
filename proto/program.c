/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/program.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What was printed for somebody has to arrive. */
static void check_output(int status, void *name)
{
	if ((fflush(stdout) == 0 && !ferror(stdout)) || status != EXIT_SUCCESS)
		return;
	fprintf(stderr, "%s: standard output cannot be written; check where it goes\n", (const char *)name);
	_exit(EXIT_FAILURE);
}

/* The next socket or pipe would take the number of a standard descriptor that is closed, and what is printed would go there.  This can neither be
 * read nor written, so that check_output still finds out, and is there in any root. */
static void keep_standard(void)
{
	int fd;

	do
		fd = open("/", O_PATH);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static const char *program;

void zd_program_begin(const char *name)
{
	program = name;
	keep_standard();
	on_exit(check_output, (void *)(uintptr_t)name);
}

int zd_program_help(int key, const char *examples, struct argp_state *state)
{
	switch (key) {
	case '?':
	case 'h':
		fputs(examples, stdout);
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 1;
	case ZD_PROGRAM_USAGE:
		argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
		return 1;
	case 'V':
		printf("%s %s\n", program, ZD_RELEASE);
		exit(EXIT_SUCCESS);
	default:
		return 0;
	}
}
