/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * poll NAME...: prints the records of several rings, waiting for all of them with poll(2), until their producers have closed them. A producer
 * is: sluice ring send --create NAME
 */
#include <errno.h>
#include <poll.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s; %s\n", what, sluice_error_message(), sluice_error_hint());
	return 1;
}

/* Prints what there is. Returns 0 if the ring is empty, or a negative errno. */
static ssize_t print_records(struct sluice_consumer *consumer)
{
	const void *record;
	ssize_t length;

	while ((length = sluice_consumer_recv(consumer, &record, 0)) >= 0) {
		fwrite(record, 1, (size_t)length, stdout);
		putchar('\n');
		sluice_consumer_release(consumer);
	}
	return length == -EAGAIN ? 0 : length;
}

/* Prints the records of a ring until it is empty and its descriptor tells of the next one. */
static ssize_t print_until_idle(struct sluice_consumer *consumer)
{
	ssize_t result;

	do {
		result = print_records(consumer);
		if (result < 0)
			return result;
		result = sluice_consumer_prepare_wait(consumer);
		if (result == 0)
			sluice_consumer_finish_wait(consumer);
	} while (result == 0);
	return result < 0 ? result : 0;
}

int main(int argc, char **argv)
{
	struct sluice_ring_options options = SLUICE_RING_OPTIONS_INIT;
	int count = argc - 1, open = 0;
	struct sluice_consumer **consumers = calloc((size_t)argc, sizeof(*consumers));
	struct pollfd *fds = calloc((size_t)argc, sizeof(*fds));

	options.channel.flags = SLUICE_CREATE;
	for (; open < count; open++) {
		if (sluice_ring_open_consumer(argv[open + 1], &options, &consumers[open]) < 0)
			return failed(argv[open + 1]);
		fds[open].fd = sluice_consumer_fd(consumers[open]);
		fds[open].events = fds[open].revents = POLLIN;
		/* The first turn of the loop ends this wait. */
		sluice_consumer_prepare_wait(consumers[open]);
	}
	while (open > 0) {
		for (int i = 0; i < count; i++) {
			ssize_t result;

			if (fds[i].fd < 0 || !fds[i].revents)
				continue;
			sluice_consumer_finish_wait(consumers[i]);
			result = print_until_idle(consumers[i]);
			if (result == 0)
				continue;
			if (result != -ENODATA)
				failed(argv[i + 1]);
			sluice_consumer_close(consumers[i]);
			fds[i].fd = -1; /* poll(2) ignores it */
			open--;
		}
		fflush(stdout);
		if (open > 0 && poll(fds, (nfds_t)count, -1) < 0 && errno != EINTR)
			return perror("poll"), 1;
	}
	free(consumers);
	free(fds);
	return 0;
}
