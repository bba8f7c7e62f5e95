/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/help.h"

#include <stddef.h>
#include <string.h>

#define OPTIONS                                                                                              \
	"\nOptions, before or after the command:\n"                                                          \
	"  -e, --endpoints HOST:PORT,...  daemons to ask (default 127.0.0.1:7410)\n"                         \
	"  -o, --output table|json|csv    how the answer is written (default table)\n"                       \
	"  -t, --timeout SECONDS          bound on the whole command (default 10)\n"

static const struct {
	const char *noun, *verb, *text;
} topics[] = {
	{"status", NULL,
	 "Examples:\n"
	 "  zeroctl status\n"
	 "  zeroctl -e a:7410,b:7410 status -o json\n"
	 "\n"
	 "zeroctl status: one line per daemon: state, jobs, memory, connections\n" OPTIONS
	 "                                 (of status: for each daemon)\n"
	 "\n"
	 "Exit status 3 or 124: a daemon does not answer; the others are shown. 5: a daemon drains.\n"},
	{"job", NULL,
	 "Examples:\n"
	 "  zeroctl job list\n"
	 "  zeroctl job show llama-7b -o json\n"
	 "  zeroctl --yes job drop old-run\n"
	 "\n"
	 "Commands:\n"
	 "  zeroctl job list        one line per job over all daemons\n"
	 "  zeroctl job show NAME   a job's specification, units and progress\n"
	 "  zeroctl job drop NAME   destroys a job's state; needs --yes\n"
	 "\n"
	 "zeroctl job COMMAND --help says more about one.\n"},
	{"job", "list",
	 "Examples:\n"
	 "  zeroctl job list\n"
	 "  zeroctl -e a:7410,b:7410 job list -o csv\n"
	 "\n"
	 "zeroctl job list: one line per job over all daemons: state of the round, step, workers, memory, traffic\n" OPTIONS},
	{"job", "show",
	 "Examples:\n"
	 "  zeroctl job show llama-7b\n"
	 "  zeroctl -o json job show llama-7b\n"
	 "\n"
	 "zeroctl job show NAME: a job's specification, units and progress\n" OPTIONS
	 "\n"
	 "Exit status 4: there is no such job.\n"},
	{"job", "drop",
	 "Examples:\n"
	 "  zeroctl --yes job drop old-run\n"
	 "  zeroctl -e a:7410,b:7410 job drop old-run --yes\n"
	 "\n"
	 "zeroctl job drop NAME: destroys the weights and moments of a job on every daemon of --endpoints\n" OPTIONS
	 "  -y, --yes                      needed, because nothing brings the state back\n"
	 "\n"
	 "Exit status 4: there is no such job.\n"},
	{"lane", NULL,
	 "Examples:\n"
	 "  zeroctl lane list\n"
	 "\n"
	 "Commands:\n"
	 "  zeroctl lane list   one line per lane of every daemon\n"
	 "\n"
	 "zeroctl lane COMMAND --help says more about one.\n"},
	{"lane", "list",
	 "Examples:\n"
	 "  zeroctl lane list\n"
	 "  zeroctl -e a:7410,b:7410 lane list -o csv\n"
	 "\n"
	 "zeroctl lane list: one line per lane of every daemon: jobs, memory, connections, bytes and frames\n" OPTIONS},
	{"doctor", NULL,
	 "Examples:\n"
	 "  zeroctl doctor\n"
	 "  zeroctl -e a:7410,b:7410 doctor\n"
	 "\n"
	 "zeroctl doctor: checks this host for what zerod needs, one line each with the remedy, and the daemons if\n"
	 "--endpoints or ZEROCTL_ENDPOINTS names them\n" OPTIONS
	 "\n"
	 "Exit status 5: something is missing without which zerod does not start.\n"},
	{"bench", NULL,
	 "Examples:\n"
	 "  zeroctl bench\n"
	 "  zeroctl -e a:7410,b:7410 bench -n 1e6 --steps 100\n"
	 "\n"
	 "zeroctl bench: measures push, step and fetch with a job of its own, which it drops at the end\n" OPTIONS
	 "                                 (of bench: on each of its waits)\n"
	 "  -n PARAMETERS                  size of the job, 16 bytes each on the daemons (default 16e6)\n"
	 "      --steps N                  steps to measure (default 10)\n"},
};

const char *zd_ctl_help(const char *noun, const char *verb)
{
	const char *of_noun = NULL;
	for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
		if (strcmp(noun, topics[i].noun) != 0)
			continue;
		if (!topics[i].verb)
			of_noun = topics[i].text;
		else if (verb && strcmp(verb, topics[i].verb) == 0)
			return topics[i].text;
	}
	return of_noun;
}
