/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An endpoint of a pipe. Its descriptor does not block: the calls wait with poll(2), which has a limit. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

static int fd = -1;

int pipe_open(const char *name, const char *side, const struct command *command)
{
	struct sluice_pipe_options options = SLUICE_PIPE_OPTIONS_INIT;

	options.channel = channel_of(command);
	options.flags = has_setting(command, "nowait") ? SLUICE_PIPE_NONBLOCK : 0;
	if (!strcmp(side, "pipe-reader"))
		fd = sluice_pipe_open_reader(name, &options);
	else if (!strcmp(side, "pipe-writer"))
		fd = sluice_pipe_open_writer(name, &options);
	else
		return 1;
	return fd < 0 ? fd : fcntl(fd, F_SETFL, O_NONBLOCK);
}

void pipe_close(void)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
}

/* Whether the descriptor is ready after a call that would block; prints why it is not. */
static int is_ready(short events, int timeout)
{
	struct pollfd asked = { .fd = fd, .events = events };

	if (errno != EAGAIN) {
		print_refusal(-errno);
		return 0;
	}
	if (poll(&asked, 1, timeout) != 0)
		return 1;
	printf("timeout");
	return 0;
}

static void read_bytes(size_t length, int timeout)
{
	unsigned char *buffer = malloc(length + 1);
	ssize_t count;

	while ((count = read(fd, buffer, length)) < 0 && is_ready(POLLIN, timeout))
		;
	if (count == 0) {
		printf("end");
	} else if (count > 0) {
		printf("bytes ");
		print_word(buffer, count);
	}
	free(buffer);
}

static void write_bytes(const char *word, int timeout)
{
	size_t length, done = 0;
	unsigned char *bytes = bytes_of(word, &length);

	while (done < length) {
		ssize_t count = write(fd, bytes + done, length - done);

		if (count >= 0)
			done += count;
		else if (!is_ready(POLLOUT, timeout))
			break;
	}
	if (done == length)
		printf("ok");
	free(bytes);
}

int pipe_execute(const struct command *command)
{
	const char *verb = command->words[0];

	if (fd < 0)
		return 0;
	if (!strcmp(verb, "read"))
		read_bytes(number_of(command, 1), time_of(command, 2));
	else if (!strcmp(verb, "write"))
		write_bytes(word_of(command, 1), time_of(command, 2));
	else
		return 0;
	return 1;
}
