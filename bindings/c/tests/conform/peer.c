/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer for sluice-conform, which docs/abi/conformance.md describes: commands in, results out. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluice.h"

#define TABLE_SIZE (1 << 18)

static unsigned char table[TABLE_SIZE];
static struct sluice_listener *listener;
static struct sluice_producer *producer;
static struct sluice_consumer *consumer;
/* Of the next record. */
static uint64_t number;

static const unsigned char *content(size_t length)
{
	uint64_t start = number * 17 % 8191;

	return start + length <= TABLE_SIZE ? table + start : NULL;
}

static const char *errno_name(int error)
{
	static const struct {
		int error;
		const char *name;
	} names[] = {
		{ EPROTO, "EPROTO" }, { EPROTONOSUPPORT, "EPROTONOSUPPORT" }, { EALREADY, "EALREADY" },
		{ ERANGE, "ERANGE" }, { EACCES, "EACCES" }, { EPERM, "EPERM" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].error == error)
			return names[i].name;
	return sluice_error_message();
}

/* The result of a call that has returned this. */
static void print(int returned)
{
	switch (-returned) {
	case EAGAIN:
		puts(producer ? "full" : "empty");
		break;
	case ETIMEDOUT:
		puts("timeout");
		break;
	case EMSGSIZE:
		puts("too-long");
		break;
	case EPIPE:
		puts("closed");
		break;
	case ECONNRESET:
		puts("died");
		break;
	case ENODATA:
		puts("end");
		break;
	case EPROTO:
		puts("violation");
		break;
	case ENXIO:
		puts("forked");
		break;
	default:
		if (returned < 0)
			printf("error %s\n", sluice_error_message());
		else
			puts("ok");
	}
}

static int set_up(int fd, const char *side, uint64_t capacity)
{
	struct sluice_socket_options options = SLUICE_SOCKET_OPTIONS_INIT;

	options.capacity = capacity;
	number = 0;
	if (fd < 0)
		return fd;
	if (!strcmp(side, "producer"))
		return sluice_socket_producer(fd, &options, &producer);
	return sluice_socket_consumer(fd, &options, &consumer);
}

static void print_set_up(int returned)
{
	if (returned < 0)
		printf("refused %s\n", errno_name(-returned));
	else
		puts("ok");
}

static int send_one(size_t length, int timeout)
{
	const unsigned char *record = content(length);
	void *zeros = record ? NULL : calloc(1, length);
	int returned = sluice_producer_send(producer, record ? record : zeros, length, timeout);

	free(zeros);
	number += returned == 0;
	return returned;
}

static int place(size_t length, size_t bytes)
{
	void *room;
	int returned = sluice_producer_reserve(producer, length, &room, -1);

	if (returned)
		return returned;
	memcpy(room, content(bytes), bytes);
	number++;
	return sluice_producer_commit(producer, bytes);
}

static int cancel(size_t length)
{
	void *room;
	int returned = sluice_producer_reserve(producer, length, &room, -1);

	return returned ? returned : sluice_producer_cancel(producer);
}

static int batch(size_t length, uint64_t count)
{
	int returned = sluice_producer_begin(producer);

	while (!returned && count--)
		returned = send_one(length, -1);
	return returned ? returned : sluice_producer_publish(producer);
}

/* Receives a record in place and compares it. */
static ssize_t receive(int timeout, int *is_right)
{
	const void *record;
	ssize_t length = sluice_consumer_recv(consumer, &record, timeout);

	if (length < 0)
		return length;
	*is_right = !memcmp(record, content(length), length);
	number++;
	sluice_consumer_release(consumer);
	return length;
}

static void print_record(ssize_t length, int is_right)
{
	if (length < 0)
		print(length);
	else if (is_right)
		printf("record %zd\n", length);
	else
		puts("wrong");
}

static void receive_into(size_t size)
{
	unsigned char *buffer = malloc(size ? size : 1);
	ssize_t length = sluice_consumer_recv_into(consumer, buffer, size, -1);
	const void *record;

	if (length == -EMSGSIZE) {
		printf("too-small %zd\n", sluice_consumer_recv(consumer, &record, 0));
		sluice_consumer_keep(consumer);
	} else {
		print_record(length, length >= 0 && !memcmp(buffer, content(length), length));
		number += length >= 0;
	}
	free(buffer);
}

static void stream(uint64_t count)
{
	size_t longest = producer ? sluice_producer_record_max(producer) : sluice_consumer_record_max(consumer);

	for (uint64_t done = 0; done < count; done++) {
		size_t length = number * 7919 % (longest + 1);
		int is_right = 1;
		ssize_t returned = producer ? send_one(length, -1) : receive(-1, &is_right);

		if (returned < 0 || !is_right || (consumer && (size_t)returned != length)) {
			printf("%s %" PRIu64 " ", producer ? "sent" : "received", done);
			print_record(returned, is_right);
			return;
		}
	}
	printf("%s %" PRIu64 "\n", producer ? "sent" : "received", count);
}

static void call_in_child(void)
{
	const void *record;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		print(producer ? sluice_producer_send(producer, NULL, 0, 0) : (int)sluice_consumer_recv(consumer, &record, 0));
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	puts("forked");
}

static void leave(int aborts)
{
	if (aborts) {
		sluice_producer_abort(producer);
		sluice_consumer_abort(consumer);
	} else {
		sluice_producer_close(producer);
		sluice_consumer_close(consumer);
	}
	producer = NULL;
	consumer = NULL;
	puts("ok");
}

static void print_pending(int64_t bytes)
{
	if (bytes < 0)
		print(bytes);
	else
		printf("%" PRId64 "\n", bytes);
}

/* False: it is no command of a producer. */
static int produce(const char *command, char **words, int count)
{
	uint64_t first = count > 1 ? strtoull(words[1], NULL, 10) : 0;
	uint64_t second = count > 2 ? strtoull(words[2], NULL, 10) : 0;

	if (!strcmp(command, "send"))
		print(send_one(first, count > 2 ? (int)second : -1));
	else if (!strcmp(command, "place"))
		print(place(first, second));
	else if (!strcmp(command, "cancel"))
		print(cancel(first));
	else if (!strcmp(command, "batch"))
		print(batch(first, second));
	else if (!strcmp(command, "pending"))
		print_pending(sluice_producer_pending(producer));
	else
		return 0;
	return 1;
}

static int consume(const char *command, char **words, int count)
{
	int is_right = 0;
	ssize_t length;

	if (!strcmp(command, "recv")) {
		length = receive(count > 1 ? atoi(words[1]) : -1, &is_right);
		print_record(length, is_right);
	} else if (!strcmp(command, "recv-into") && count > 1) {
		receive_into(strtoull(words[1], NULL, 10));
	} else if (!strcmp(command, "pending")) {
		print_pending(sluice_consumer_pending(consumer));
	} else {
		return 0;
	}
	return 1;
}

static void execute(char **words, int count)
{
	const char *command = words[0];

	if (!strcmp(command, "listen") && count == 2)
		print_set_up(sluice_listener_bind(words[1], &listener));
	else if (!strcmp(command, "accept") && count == 3)
		print_set_up(set_up(sluice_listener_accept(listener, -1), words[1], strtoull(words[2], NULL, 10)));
	else if (!strcmp(command, "connect") && count == 4)
		print_set_up(set_up(sluice_socket_connect(words[1], -1), words[2], strtoull(words[3], NULL, 10)));
	else if (!strcmp(command, "die"))
		raise(SIGKILL);
	else if (!strcmp(command, "close") || !strcmp(command, "abort"))
		leave(command[0] == 'a');
	else if (!strcmp(command, "fork"))
		call_in_child();
	else if (!strcmp(command, "stream") && count == 2)
		stream(strtoull(words[1], NULL, 10));
	else if (!(producer ? produce(command, words, count) : consume(command, words, count)))
		puts("unsupported");
}

int main(void)
{
	char line[4096];

	for (uint64_t place = 0; place < TABLE_SIZE; place++)
		table[place] = place * 2654435761 >> 16;
	while (fgets(line, sizeof(line), stdin)) {
		char *words[8], *rest = line, *word;
		int count = 0;

		while (count < 8 && (word = strtok_r(count ? NULL : line, " \n", &rest)))
			words[count++] = word;
		if (count)
			execute(words, count);
		fflush(stdout);
	}
	return 0;
}
