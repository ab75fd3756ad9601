/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A side of a ring, over memfd or on the device. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

static struct sluice_listener *listener;
static struct sluice_producer *producer;
static struct sluice_consumer *consumer;
/* Of the next record. */
static uint64_t number;

/* EPIPE has two causes. */
static const char *end_of_ring(void)
{
	return strstr(sluice_error_message(), "destroyed") ? "destroyed" : "closed";
}

/* The result of a call that has returned this. */
static void print(int returned)
{
	switch (-returned) {
	case EPIPE:
		printf("%s", end_of_ring());
		break;
	case ECONNRESET:
		printf("died");
		break;
	case ENODATA:
		printf("end");
		break;
	case EPROTO:
		printf("violation");
		break;
	case ENXIO:
		printf("forked");
		break;
	default:
		if (returned < 0)
			print_failure(returned, producer ? "full" : "empty");
		else
			printf("ok");
	}
}

int ring_open(const char *name, const char *side, const struct command *command)
{
	struct sluice_ring_options options = SLUICE_RING_OPTIONS_INIT;

	options.channel = channel_of(command);
	number = 0;
	if (!strcmp(side, "producer"))
		return sluice_ring_open_producer(name, &options, &producer);
	if (!strcmp(side, "consumer"))
		return sluice_ring_open_consumer(name, &options, &consumer);
	return 1;
}

static void set_up(int fd, const char *side, uint64_t capacity)
{
	struct sluice_socket_options options = SLUICE_SOCKET_OPTIONS_INIT;
	int returned = fd;

	options.capacity = capacity;
	number = 0;
	if (fd >= 0 && !strcmp(side, "producer"))
		returned = sluice_socket_producer(fd, &options, &producer);
	else if (fd >= 0)
		returned = sluice_socket_consumer(fd, &options, &consumer);
	if (returned < 0)
		print_refusal(returned);
	else
		printf("ok");
}

static int send_one(size_t length, int timeout)
{
	const unsigned char *record = content(number, length);
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
	memcpy(room, content(number, bytes), bytes);
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
	*is_right = !memcmp(record, content(number, length), length);
	number++;
	sluice_consumer_release(consumer);
	return length;
}

static void print_record(ssize_t length, int is_right)
{
	if (length < 0)
		print(length);
	else if (is_right)
		printf("record %zd", length);
	else
		printf("wrong");
}

static void receive_into(size_t size)
{
	unsigned char *buffer = malloc(size ? size : 1);
	ssize_t length = sluice_consumer_recv_into(consumer, buffer, size, -1);
	const void *record;

	if (length == -EMSGSIZE) {
		printf("too-small %zd", sluice_consumer_recv(consumer, &record, 0));
		sluice_consumer_keep(consumer);
	} else {
		print_record(length, length >= 0 && !memcmp(buffer, content(number, length), length));
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
	printf("%s %" PRIu64, producer ? "sent" : "received", count);
}

static void call_in_child(void)
{
	const void *record;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		print(producer ? sluice_producer_send(producer, NULL, 0, 0) : (int)sluice_consumer_recv(consumer, &record, 0));
		putchar('\n');
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	printf("forked");
}

void ring_close(int aborts)
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
}

static void print_pending(int64_t bytes)
{
	if (bytes < 0)
		print(bytes);
	else
		printf("%" PRId64, bytes);
}

/* False: it is no command of a producer. */
static int produce(const struct command *command)
{
	const char *verb = command->words[0];

	if (!strcmp(verb, "send"))
		print(send_one(number_of(command, 1), time_of(command, 2)));
	else if (!strcmp(verb, "place"))
		print(place(number_of(command, 1), number_of(command, 2)));
	else if (!strcmp(verb, "cancel"))
		print(cancel(number_of(command, 1)));
	else if (!strcmp(verb, "batch"))
		print(batch(number_of(command, 1), number_of(command, 2)));
	else if (!strcmp(verb, "pending"))
		print_pending(sluice_producer_pending(producer));
	else
		return 0;
	return 1;
}

static int consume(const struct command *command)
{
	const char *verb = command->words[0];
	int is_right = 0;

	if (!strcmp(verb, "recv")) {
		ssize_t length = receive(time_of(command, 1), &is_right);

		print_record(length, is_right);
	} else if (!strcmp(verb, "recv-into")) {
		receive_into(number_of(command, 1));
	} else if (!strcmp(verb, "pending")) {
		print_pending(sluice_consumer_pending(consumer));
	} else {
		return 0;
	}
	return 1;
}

int ring_execute(const struct command *command)
{
	const char *verb = command->words[0];
	int returned;

	if (!strcmp(verb, "listen")) {
		returned = sluice_listener_bind(word_of(command, 1), &listener);
		if (returned < 0)
			print_refusal(returned);
		else
			printf("ok");
	} else if (!strcmp(verb, "accept") && command->count == 3) {
		set_up(sluice_listener_accept(listener, -1), command->words[1], number_of(command, 2));
	} else if (!strcmp(verb, "connect") && command->count == 4) {
		set_up(sluice_socket_connect(command->words[1], -1), command->words[2], number_of(command, 3));
	} else if (!producer && !consumer) {
		return 0;
	} else if (!strcmp(verb, "fork")) {
		call_in_child();
	} else if (!strcmp(verb, "stream")) {
		stream(number_of(command, 1));
	} else {
		return producer ? produce(command) : consume(command);
	}
	return 1;
}
