/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tests in C. Each test is a function that runs in a process of its own; a failed EXPECT ends it. */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sluice.h"

#define SECOND 1000 /* ms */
#define LONG (30 * SECOND)

struct test {
	const char *name;
	void (*run)(void);
};

/* Each ends with an entry without a name. */
extern const struct test errors_tests[], memfd_tests[], inline_tests[], ring_tests[], pipe_tests[], bus_tests[], map_tests[], feed_tests[],
	channel_tests[];

#define TEST(name) { #name, name }

/* The message of the library is that of its last failure, which need not be this one. */
#define EXPECT(condition)                                                                                   \
	do {                                                                                                    \
		if (!(condition)) {                                                                                 \
			fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition,         \
				sluice_error_message());                                                                    \
			exit(1);                                                                                        \
		}                                                                                                   \
	} while (0)

#define EXPECT_EQ(actual, expected)                                                                         \
	do {                                                                                                    \
		long long actual_value = (long long)(actual), expected_value = (long long)(expected);               \
		if (actual_value != expected_value) {                                                               \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld; last error: %s\n", __FILE__, __LINE__, #actual,   \
				actual_value, expected_value, sluice_error_message());                                      \
			exit(1);                                                                                        \
		}                                                                                                   \
	} while (0)

#define EXPECT_TEXT(actual, part) EXPECT(strstr((actual), (part)) != NULL)

/* A name that no other test has. */
static inline const char *unique_name(void)
{
	static char name[32];

	snprintf(name, sizeof(name), "c-test-%d", (int)getpid());
	return name;
}

static inline int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* As uv_poll_init(): the descriptor does not wait any more. */
static inline void set_nonblocking(int fd)
{
	EXPECT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

/* Waits for a child that must succeed. */
static inline void expect_success(pid_t child)
{
	int status;

	EXPECT_EQ(waitpid(child, &status, 0), child);
	EXPECT(WIFEXITED(status));
	EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif
