/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Both sides of a ring over a socket, in one process. */
#ifndef MEMFD_H
#define MEMFD_H

#include <pthread.h>

#include "test.h"

struct setup {
	int fd;
	const struct sluice_socket_options *options;
	struct sluice_producer *producer;
	int result;
};

static inline void *set_up_producer(void *argument)
{
	struct setup *setup = argument;

	setup->result = sluice_socket_producer(setup->fd, setup->options, &setup->producer);
	return NULL;
}

/* Both sides wait for each other. */
static inline void connect_sides(const struct sluice_socket_options *options, struct sluice_producer **producer,
			  struct sluice_consumer **consumer)
{
	struct setup setup = { .options = options };
	pthread_t thread;
	int fds[2];

	EXPECT_EQ(sluice_socket_pair(fds), 0);
	setup.fd = fds[0];
	EXPECT_EQ(pthread_create(&thread, NULL, set_up_producer, &setup), 0);
	EXPECT_EQ(sluice_socket_consumer(fds[1], options, consumer), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(setup.result, 0);
	*producer = setup.producer;
}

static const struct sluice_socket_options small = { .size = sizeof(small), .capacity = 4096 };

#define SIDES(options)                \
	struct sluice_producer *producer; \
	struct sluice_consumer *consumer; \
	connect_sides(options, &producer, &consumer)

#endif
