// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Buses through io_uring, for a C program: it knows the ABI header and liburing, nothing else.
 *
 *   bus_uring [--list | CHECK...]
 *
 * Runs these checks, by default all. Each runs once with each way to set up a ring, in a process of
 * its own, and prints a line for each. Exit status: 0; 1: one failed; 77: none could run, for the
 * printed reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "support.h"

#define ENTRY(name) { #name, name },

static const struct check {
	const char *name;
	void (*run)(void);
} checks[] = {
	FOR_EACH_CHECK(ENTRY)
};

static const struct setup setups[] = {
	{ "default ring", 0 },
	{ "single issuer, deferred", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN },
};

const struct setup *setup = setups;
const char *check_name;

/* How often each result occurred. */
struct totals {
	int passed, failed, skipped;
};

static void run_check(const struct check *check, struct totals *totals)
{
	int status;
	pid_t child;

	check_name = check->name;
	child = start();
	if (!child) {
		struct io_uring ring;

		done("setpgid", setpgid(0, 0));
		/* Skips the check if it cannot have one. */
		new_ring(&ring);
		io_uring_queue_exit(&ring);
		check->run();
		_exit(EXIT_SUCCESS);
	}
	done("waitpid", waitpid(child, &status, 0));
	if (!status) {
		totals->passed++;
		printf("ok %s (%s)\n", check->name, setup->name);
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
		totals->skipped++;
	} else {
		totals->failed++;
		printf("FAILED %s (%s): wait status %#x\n", check->name, setup->name, status);
	}
}

/* Ends the program if there is none. */
static const struct check *find_check(const char *name)
{
	int i;

	for (i = 0; i < LENGTH(checks); i++)
		if (!strcmp(checks[i].name, name))
			return &checks[i];
	fprintf(stderr, "bus_uring: there is no check '%s'; --list prints all\n", name);
	exit(EXIT_FAILURE);
}

static void run_with_each_setup(const struct check *check, struct totals *totals)
{
	int i;

	for (i = 0; i < LENGTH(setups); i++) {
		setup = &setups[i];
		run_check(check, totals);
	}
}

int main(int count, char **arguments)
{
	struct totals totals = {};
	int i;

	/* Children print, too. */
	setvbuf(stdout, NULL, _IONBF, 0);
	if (count > 1 && !strcmp(arguments[1], "--list")) {
		for (i = 0; i < LENGTH(checks); i++)
			puts(checks[i].name);
		return EXIT_SUCCESS;
	}
	for (i = 1; i < count; i++)
		find_check(arguments[i]);
	for (i = 1; i < count; i++)
		run_with_each_setup(find_check(arguments[i]), &totals);
	for (i = 0; count == 1 && i < LENGTH(checks); i++)
		run_with_each_setup(&checks[i], &totals);
	if (totals.failed)
		return EXIT_FAILURE;
	return totals.passed ? EXIT_SUCCESS : SKIPPED;
}
