/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* PROGRAM GROUP...: runs groups of tests, and prints "N passed, N failed". The groups errors, memfd and inline need no module, the others do. */
#include "test.h"

/* Of a test, in seconds. In an emulated VM everything takes longer. */
#define LIMIT 120

static const struct group {
	const char *name;
	const struct test *tests;
} groups[] = {
	{ "errors", errors_tests }, { "memfd", memfd_tests }, { "inline", inline_tests },
	{ "ring", ring_tests },     { "pipe", pipe_tests },   { "bus", bus_tests },
	{ "map", map_tests },       { "feed", feed_tests },   { "channel", channel_tests },
};

static int run(const char *group, const struct test *test)
{
	int status, passed;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		alarm(LIMIT);
		test->run();
		exit(0);
	}
	passed = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	printf("%s::%s %s\n", group, test->name, passed ? "ok" : "FAILED");
	return passed;
}

static const struct group *find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (!strcmp(groups[i].name, name))
			return &groups[i];
	fprintf(stderr, "there is no group '%s'\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0;

	for (int i = 1; i < argc; i++) {
		const struct group *group = find(argv[i]);

		for (const struct test *test = group->tests; test->name; test++)
			run(group->name, test) ? passed++ : failed++;
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0 || passed == 0;
}
