/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * bench-c WORKLOAD COUNT: sends COUNT records of 64 bytes and prints the nanoseconds per record. main.rs has the same workloads in Rust and
 * compares. A sender writes the number of the record to its first and last 8 bytes, and a receiver checks both.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice.h>

#define LENGTH 64
#define BATCH 16

static void fail(const char *what, long long result)
{
	fprintf(stderr, "bench-c: %s: %lld; %s; %s\n", what, result, sluice_error_message(), strerror(errno));
	exit(1);
}

#define CHECK(call)                            \
	({                                         \
		__typeof__(call) result_ = (call);     \
		if (__builtin_expect(result_ < 0, 0))  \
			fail(#call, result_);              \
		result_;                               \
	})

static void write_number(void *record, uint64_t number)
{
	memcpy(record, &number, sizeof(number));
	memcpy((char *)record + LENGTH - sizeof(number), &number, sizeof(number));
}

static void check_number(const void *record, size_t length, uint64_t expected)
{
	uint64_t first, last;

	memcpy(&first, record, sizeof(first));
	memcpy(&last, (const char *)record + LENGTH - sizeof(last), sizeof(last));
	if (length != LENGTH || first != expected || last != expected)
		fail("another record than expected", (long long)first);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Both ends of a channel: a ring, or two descriptors. */
struct channel {
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	int from, to;
};

/* Transfers the records from `first` on, before `end`. Inlined, so that the compiler sees all of a loop, as that of Rust does. */
typedef void transfer_fn(struct channel *channel, uint64_t first, uint64_t end);
#define TRANSFER(name) static inline __attribute__((always_inline)) void name(struct channel *channel, uint64_t first, uint64_t end)

TRANSFER(send_copies)
{
	char record[LENGTH] = { 0 };

	for (uint64_t number = first; number < end; number++) {
		write_number(record, number);
		CHECK(sluice_producer_send(channel->producer, record, sizeof(record), -1));
	}
}

TRANSFER(send_in_place)
{
	void *room;

	for (uint64_t number = first; number < end; number++) {
		CHECK(sluice_producer_reserve(channel->producer, LENGTH, &room, -1));
		write_number(room, number);
		CHECK(sluice_producer_commit(channel->producer, LENGTH));
	}
}

/* At most BATCH records. */
TRANSFER(send_batches)
{
	char record[LENGTH] = { 0 };

	CHECK(sluice_producer_begin(channel->producer));
	for (uint64_t number = first; number < end; number++) {
		write_number(record, number);
		CHECK(sluice_producer_send(channel->producer, record, sizeof(record), -1));
	}
	CHECK(sluice_producer_publish(channel->producer));
}

/* At most BATCH records, which are there before. */
TRANSFER(send_array)
{
	static char record[BATCH][LENGTH];

	for (uint64_t number = first; number < end; number++)
		write_number(record[number % BATCH], number);
	CHECK(sluice_producer_begin(channel->producer));
	for (uint64_t number = first; number < end; number++)
		CHECK(sluice_producer_send(channel->producer, record[number % BATCH], LENGTH, -1));
	CHECK(sluice_producer_publish(channel->producer));
}

/* The same in one call. */
TRANSFER(send_iovecs)
{
	static char record[BATCH][LENGTH];
	struct iovec records[BATCH];

	for (uint64_t number = first; number < end; number++) {
		write_number(record[number % BATCH], number);
		records[number - first] = (struct iovec){ record[number % BATCH], LENGTH };
	}
	CHECK(sluice_producer_send_batch(channel->producer, records, end - first, -1));
}

TRANSFER(receive_in_place)
{
	const void *record;

	for (uint64_t number = first; number < end; number++) {
		size_t length = (size_t)CHECK(sluice_consumer_recv(channel->consumer, &record, -1));

		check_number(record, length, number);
		CHECK(sluice_consumer_release(channel->consumer));
	}
}

TRANSFER(receive_copies)
{
	char record[LENGTH];

	for (uint64_t number = first; number < end; number++) {
		size_t length = (size_t)CHECK(sluice_consumer_recv_into(channel->consumer, record, sizeof(record), -1));

		check_number(record, length, number);
	}
}

TRANSFER(receive_batches)
{
	struct iovec records[BATCH];

	for (uint64_t number = first; number < end;) {
		ssize_t count = CHECK(sluice_consumer_recv_batch(channel->consumer, records, BATCH, -1));

		for (ssize_t i = 0; i < count; i++)
			check_number(records[i].iov_base, records[i].iov_len, number++);
		CHECK(sluice_consumer_release(channel->consumer));
	}
}

TRANSFER(write_records)
{
	char record[LENGTH] = { 0 };

	for (uint64_t number = first; number < end; number++) {
		write_number(record, number);
		CHECK(write(channel->to, record, sizeof(record)));
	}
}

/* A pipe and a socket of this type return whole records, because all are equally long. */
TRANSFER(read_records)
{
	char record[LENGTH];

	for (uint64_t number = first; number < end; number++) {
		size_t length = (size_t)CHECK(read(channel->from, record, sizeof(record)));

		check_number(record, length, number);
	}
}

/* One thread sends so many records, then receives them. */
#define ALTERNATE(name, ahead, send, receive)                               \
	static void name(struct channel *channel, uint64_t first, uint64_t end) \
	{                                                                       \
		for (uint64_t number = first; number < end; number += (ahead)) {    \
			send(channel, number, number + (ahead));                        \
			receive(channel, number, number + (ahead));                     \
		}                                                                   \
	}

ALTERNATE(alternate_copied, 1, send_copies, receive_copies)
ALTERNATE(alternate_received_in_place, 1, send_copies, receive_in_place)
ALTERNATE(alternate_in_place, 1, send_in_place, receive_in_place)
ALTERNATE(alternate_batches, BATCH, send_batches, receive_batches)
ALTERNATE(alternate_array, BATCH, send_array, receive_batches)
ALTERNATE(alternate_iovecs, BATCH, send_iovecs, receive_batches)
ALTERNATE(alternate_descriptors, 1, write_records, read_records)

static void *set_up_producer(void *argument)
{
	struct channel *channel = argument;

	CHECK(sluice_socket_producer(channel->to, NULL, &channel->producer));
	return NULL;
}

static void set_up_consumer(struct channel *channel)
{
	CHECK(sluice_socket_consumer(channel->from, NULL, &channel->consumer));
}

static void connect_ring(struct channel *channel)
{
	int fds[2];

	CHECK(sluice_socket_pair(fds));
	channel->to = fds[0];
	channel->from = fds[1];
}

static void connect_pipe(struct channel *channel)
{
	int fds[2];

	CHECK(pipe(fds));
	channel->from = fds[0];
	channel->to = fds[1];
}

static void connect_socket(struct channel *channel)
{
	int fds[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	channel->from = fds[0];
	channel->to = fds[1];
}

enum place { TWO_THREADS, TWO_PROCESSES };

/* In one thread if it alternates. */
struct workload {
	const char *name;
	void (*connect)(struct channel *channel);
	transfer_fn *alternate;
	enum place place;
	transfer_fn *send, *receive;
};

static const struct workload workloads[] = {
	{ "copied", connect_ring, .alternate = alternate_copied },
	{ "received-in-place", connect_ring, .alternate = alternate_received_in_place },
	{ "in-place", connect_ring, .alternate = alternate_in_place },
	{ "batches", connect_ring, .alternate = alternate_batches },
	{ "array", connect_ring, .alternate = alternate_array },
	{ "iovecs", connect_ring, .alternate = alternate_iovecs },
	{ "threads", connect_ring, NULL, TWO_THREADS, send_copies, receive_in_place },
	{ "threads-in-place", connect_ring, NULL, TWO_THREADS, send_in_place, receive_in_place },
	{ "processes", connect_ring, NULL, TWO_PROCESSES, send_copies, receive_in_place },
	{ "processes-in-place", connect_ring, NULL, TWO_PROCESSES, send_in_place, receive_in_place },
	{ "pipe", connect_pipe, .alternate = alternate_descriptors },
	{ "socket", connect_socket, .alternate = alternate_descriptors },
	{ "pipe-processes", connect_pipe, NULL, TWO_PROCESSES, write_records, read_records },
	{ "socket-processes", connect_socket, NULL, TWO_PROCESSES, write_records, read_records },
};

struct run {
	const struct workload *workload;
	struct channel channel;
	uint64_t count;
};

static int is_ring(const struct run *run)
{
	return run->workload->connect == connect_ring;
}

static void *send_all(void *argument)
{
	struct run *run = argument;

	if (is_ring(run))
		set_up_producer(&run->channel);
	run->workload->send(&run->channel, 0, run->count + 1);
	if (is_ring(run))
		CHECK(sluice_producer_flush(run->channel.producer, -1));
	return NULL;
}

/* The time begins with the first record, which comes when both sides are set up. */
static uint64_t receive_all(struct run *run)
{
	uint64_t began, end;

	if (is_ring(run))
		set_up_consumer(&run->channel);
	run->workload->receive(&run->channel, 0, 1);
	began = now();
	run->workload->receive(&run->channel, 1, run->count + 1);
	end = now();
	return end - began;
}

static uint64_t in_one_thread(struct run *run)
{
	pthread_t thread;
	uint64_t began, warm_up = run->count / 10 / BATCH * BATCH;

	if (is_ring(run)) {
		CHECK(-pthread_create(&thread, NULL, set_up_producer, &run->channel));
		set_up_consumer(&run->channel);
		CHECK(-pthread_join(thread, NULL));
	}
	run->workload->alternate(&run->channel, 0, warm_up);
	began = now();
	run->workload->alternate(&run->channel, warm_up, warm_up + run->count);
	return now() - began;
}

static uint64_t in_two_threads(struct run *run)
{
	pthread_t thread;
	uint64_t elapsed;

	CHECK(-pthread_create(&thread, NULL, send_all, run));
	elapsed = receive_all(run);
	CHECK(-pthread_join(thread, NULL));
	return elapsed;
}

static uint64_t in_two_processes(struct run *run)
{
	uint64_t elapsed;
	int status;
	pid_t child = CHECK(fork());

	if (child == 0) {
		close(run->channel.from);
		send_all(run);
		_exit(0);
	}
	close(run->channel.to);
	elapsed = receive_all(run);
	CHECK(waitpid(child, &status, 0));
	if (status != 0)
		fail("the sender has failed", status);
	return elapsed;
}

int main(int argc, char **argv)
{
	struct run run = { .workload = NULL };
	uint64_t elapsed;

	for (size_t i = 0; argc == 3 && i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		if (!strcmp(workloads[i].name, argv[1]))
			run.workload = &workloads[i];
	}
	if (!run.workload || (run.count = strtoull(argv[2], NULL, 10) / BATCH * BATCH) == 0) {
		fprintf(stderr, "usage: bench-c WORKLOAD COUNT\n");
		return 2;
	}
	run.workload->connect(&run.channel);
	if (run.workload->alternate)
		elapsed = in_one_thread(&run);
	else if (run.workload->place == TWO_THREADS)
		elapsed = in_two_threads(&run);
	else
		elapsed = in_two_processes(&run);
	printf("%.3f\n", (double)elapsed / (double)run.count);
}
