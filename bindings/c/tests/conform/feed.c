/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The consumer of a feed. */
#include <errno.h>
#include <inttypes.h>
#include <linux/sluice.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "peer.h"

static struct sluice_feed_reader *reader;
static struct sluice_feed_consumer *consumer;

int feed_open(const char *name, const char *side)
{
	/* The feed of the packet simulator has no name. */
	if (!strcmp(name, "simulator"))
		name = NULL;
	if (!strcmp(side, "feed-reader"))
		return sluice_feed_open_reader(name, &reader);
	if (!strcmp(side, "feed-consumer"))
		return sluice_feed_open_consumer(name, &consumer);
	return 1;
}

void feed_close(void)
{
	sluice_feed_reader_close(reader);
	sluice_feed_consumer_close(consumer);
	reader = NULL;
	consumer = NULL;
}

/* The library has no call for the simulator. */
static void start(uint64_t count, uint32_t length)
{
	struct sluice_feed_start start = {
		.size = sizeof(start),
		.cpu = SLUICE_FEED_CPU_ANY,
		.interval_ns = 1000000,
		.count = count,
		.length = length,
	};

	if (ioctl(reader ? sluice_feed_reader_fd(reader) : sluice_feed_consumer_fd(consumer), SLUICE_FEED_START, &start))
		print_refusal(-errno);
	else
		printf("ok");
}

static void receive(int timeout)
{
	struct sluice_packet packet;
	int returned = reader ? sluice_feed_reader_recv(reader, &packet, timeout) :
				sluice_feed_consumer_recv(consumer, &packet, timeout);

	if (returned < 0) {
		print_failure(returned, "empty");
		return;
	}
	printf("packet %zu", packet.length);
	if (packet.lost)
		printf(" lost %" PRIu64, packet.lost);
	if (consumer)
		sluice_feed_consumer_release(consumer);
}

int feed_execute(const struct command *command)
{
	const char *verb = command->words[0];

	if (!reader && !consumer)
		return 0;
	if (!strcmp(verb, "start"))
		start(number_of(command, 1), number_of(command, 2));
	else if (!strcmp(verb, "packet"))
		receive(time_of(command, 1));
	else
		return 0;
	return 1;
}
