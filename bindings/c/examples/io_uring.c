/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * io_uring BUS: prints the messages of a bus, waiting for them with io_uring, until it is destroyed. Send one with:
 * echo hello | sluice bus pub BUS
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <sluice.h>
#include <stdio.h>
#include <string.h>

static int failed(void)
{
	fprintf(stderr, "%s; %s\n", sluice_error_message(), sluice_error_hint());
	return 1;
}

/* Prints what there is. Returns 0 if there is nothing more, or a negative errno. */
static int print_messages(struct sluice_subscriber *subscriber)
{
	struct sluice_message messages[32];
	ssize_t count;

	while ((count = sluice_subscriber_recv_batch(subscriber, messages, 32, 0)) > 0) {
		for (ssize_t i = 0; i < count; i++) {
			if (messages[i].lost > 0)
				printf("%llu messages lost\n", (unsigned long long)messages[i].lost);
			printf("user %u: ", messages[i].uid);
			fwrite(messages[i].bytes, 1, messages[i].length, stdout);
			putchar('\n');
		}
	}
	fflush(stdout);
	return count == -EAGAIN ? 0 : (int)count;
}

/* Waits until the descriptor is readable. A program with other operations would handle their completions here, too. */
static int wait_readable(struct io_uring *ring, int fd)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int result;

	io_uring_prep_poll_add(sqe, fd, POLLIN);
	result = io_uring_submit_and_wait(ring, 1);
	if (result < 0)
		return result == -EINTR ? 0 : result;
	while (io_uring_peek_cqe(ring, &cqe) == 0)
		io_uring_cqe_seen(ring, cqe);
	return 0;
}

int main(int argc, char **argv)
{
	struct sluice_bus_options options = SLUICE_BUS_OPTIONS_INIT;
	struct sluice_subscriber *subscriber = NULL;
	struct io_uring ring;
	int result;

	if (argc != 2)
		return fprintf(stderr, "usage: io_uring BUS\n"), 1;
	result = io_uring_queue_init(8, &ring, 0);
	if (result < 0)
		return fprintf(stderr, "io_uring: %s\n", strerror(-result)), 1;
	options.channel.flags = SLUICE_CREATE;
	if (sluice_bus_open_subscriber(argv[1], &options, &subscriber) < 0)
		return failed();
	while ((result = print_messages(subscriber)) == 0) {
		result = wait_readable(&ring, sluice_subscriber_fd(subscriber));
		if (result < 0)
			return fprintf(stderr, "io_uring: %s\n", strerror(-result)), 1;
	}
	if (result != -EPIPE)
		failed();
	sluice_subscriber_close(subscriber);
	io_uring_queue_exit(&ring);
	return result == -EPIPE ? 0 : 1;
}
