/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rings over Unix sockets, without the module. */
#include <poll.h>
#include <pthread.h>

#include "memfd.h"
#include "test.h"

static void records_arrive_copied_and_in_place(void)
{
	char buffer[64];
	const void *record;
	void *room;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_send(producer, "one", 3, -1), 0);
	EXPECT_EQ(sluice_producer_send(producer, NULL, 0, -1), 0);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), -1), 3);
	EXPECT(!memcmp(buffer, "one", 3));
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), -1), 0);

	EXPECT_EQ(sluice_producer_reserve(producer, 64, &room, -1), 0);
	EXPECT_EQ((uintptr_t)room % 8, 0);
	memcpy(room, "two", 3);
	EXPECT_EQ(sluice_producer_commit(producer, 65), -EINVAL);
	EXPECT_EQ(sluice_producer_commit(producer, 3), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 64, &room, -1), 0);
	EXPECT_EQ(sluice_producer_cancel(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "three", 5, -1), 0);

	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), 3);
	EXPECT(!memcmp(record, "two", 3));
	EXPECT_EQ(sluice_consumer_keep(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), 3);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), 5);
	EXPECT_EQ((uintptr_t)record % 8, 0);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_producer_flush(producer, LONG), 0);
	EXPECT_EQ(sluice_producer_pending(producer), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_closed_ring_has_an_end(void)
{
	char buffer[8];
	const void *record;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_send(producer, "last", 4, -1), 0);
	sluice_producer_close(producer);
	EXPECT_EQ(sluice_consumer_is_closed(consumer), 1);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), -1), 4);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), -ENODATA);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), 0), -ENODATA);
	EXPECT_TEXT(sluice_error_message(), "end of the stream");
	sluice_consumer_close(consumer);

	connect_sides(NULL, &producer, &consumer);
	sluice_consumer_close(consumer);
	EXPECT_EQ(sluice_producer_is_closed(producer), 1);
	EXPECT_EQ(sluice_producer_send(producer, "x", 1, -1), -EPIPE);
	EXPECT_TEXT(sluice_error_message(), "closed the ring");
	EXPECT_TEXT(sluice_error_hint(), "set up the ring again");
	sluice_producer_close(producer);
}

static void an_aborted_ring_ends_with_an_error(void)
{
	const void *record;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_send(producer, "last", 4, -1), 0);
	sluice_producer_abort(producer);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), 4);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), -ECONNRESET);
	sluice_consumer_close(consumer);

	connect_sides(NULL, &producer, &consumer);
	EXPECT_EQ(sluice_producer_send(producer, "last", 4, -1), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), 4);
	sluice_consumer_abort(consumer);
	EXPECT_EQ(sluice_producer_flush(producer, LONG), -ECONNRESET);
	sluice_producer_close(producer);
}

/* Sets up the other side in a child, which is killed. */
static pid_t fork_producer(int fd)
{
	struct sluice_producer *producer;
	pid_t child = fork();

	if (child != 0)
		return child;
	EXPECT_EQ(sluice_socket_producer(fd, NULL, &producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "last", 4, -1), 0);
	pause();
	exit(1);
}

static void the_death_of_a_producer_is_told_after_its_records(void)
{
	struct sluice_consumer *consumer;
	const void *record;
	int fds[2];
	pid_t child;

	EXPECT_EQ(sluice_socket_pair(fds), 0);
	child = fork_producer(fds[0]);
	close(fds[0]);
	EXPECT_EQ(sluice_socket_consumer(fds[1], NULL, &consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), 4);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(kill(child, SIGKILL), 0);
	EXPECT_EQ(waitpid(child, NULL, 0), child);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), -ECONNRESET);
	EXPECT_TEXT(sluice_error_message(), "died");
	sluice_consumer_close(consumer);
}

static void the_death_of_a_consumer_ends_a_wait_for_room(void)
{
	struct sluice_consumer *consumer;
	struct sluice_producer *producer;
	int fds[2], result;
	pid_t child;

	EXPECT_EQ(sluice_socket_pair(fds), 0);
	child = fork();
	if (child == 0) {
		EXPECT_EQ(sluice_socket_consumer(fds[1], NULL, &consumer), 0);
		usleep(100 * 1000);
		kill(getpid(), SIGKILL);
	}
	close(fds[1]);
	EXPECT_EQ(sluice_socket_producer(fds[0], &small, &producer), 0);
	do
		result = sluice_producer_send(producer, "record", 6, LONG);
	while (!result);
	EXPECT_EQ(result, -ECONNRESET);
	EXPECT_EQ(waitpid(child, NULL, 0), child);
	sluice_producer_close(producer);
}

static void waits_have_limits(void)
{
	char buffer[8];
	const void *record;
	void *room;
	int64_t began;
	SIDES(&small);

	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EAGAIN);
	EXPECT(record == NULL);
	EXPECT(!strcmp(sluice_error_message(), "the ring is empty"));
	began = now_ms();
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 30), -ETIMEDOUT);
	EXPECT(now_ms() - began >= 30);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), 1), -ETIMEDOUT);
	while (sluice_producer_send(producer, "record", 6, 0) == 0)
		;
	EXPECT_EQ(sluice_producer_send(producer, "record", 6, 0), -EAGAIN);
	EXPECT(!strcmp(sluice_error_message(), "the ring is full"));
	EXPECT_EQ(sluice_producer_send(producer, "record", 6, 1), -ETIMEDOUT);
	EXPECT_EQ(sluice_producer_reserve(producer, 6, &room, 0), -EAGAIN);
	EXPECT(room == NULL);
	EXPECT_EQ(sluice_producer_reserve(producer, 6, &room, 1), -ETIMEDOUT);
	EXPECT_EQ(sluice_producer_flush(producer, 0), -EAGAIN);
	EXPECT(!strcmp(sluice_error_message(), "the consumer has not released all records"));
	EXPECT_EQ(sluice_producer_flush(producer, 1), -ETIMEDOUT);
	EXPECT(sluice_producer_pending(producer) > 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void lengths_have_limits(void)
{
	static char long_record[8192];
	char buffer[4];
	void *room;
	SIDES(&small);
	size_t max = sluice_producer_record_max(producer);

	EXPECT_EQ(sluice_producer_capacity(producer), 4096);
	EXPECT_EQ(sluice_consumer_capacity(consumer), 4096);
	EXPECT_EQ(sluice_consumer_record_max(consumer), max);
	EXPECT_EQ(sluice_producer_send(producer, long_record, max, 0), 0);
	EXPECT_EQ(sluice_producer_send(producer, long_record, max + 1, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_producer_reserve(producer, max + 1, &room, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_producer_reserve(producer, SIZE_MAX, &room, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_producer_send(producer, long_record, SIZE_MAX, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_send(producer, NULL, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), 0), -EMSGSIZE);
	EXPECT_TEXT(sluice_error_hint(), "larger buffer");
	EXPECT_EQ(sluice_consumer_recv_into(consumer, NULL, 4, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, long_record, max, 0), max);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void what_is_held_excludes_other_calls(void)
{
	struct iovec records[2];
	char buffer[8];
	const void *record;
	void *room, *other;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_commit(producer, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_cancel(producer), -EINVAL);
	EXPECT_EQ(sluice_consumer_release(consumer), -EINVAL);
	EXPECT_EQ(sluice_consumer_keep(consumer), -EINVAL);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &other, 0), -EBUSY);
	EXPECT_EQ(sluice_producer_send(producer, "x", 1, 0), -EBUSY);
	EXPECT_TEXT(sluice_error_message(), "is held");
	EXPECT_EQ(sluice_producer_begin(producer), -EBUSY);
	EXPECT_EQ(sluice_producer_publish(producer), -EBUSY);
	EXPECT_EQ(sluice_producer_flush(producer, 0), -EBUSY);
	EXPECT_EQ(sluice_producer_pending(producer), -EBUSY);
	EXPECT_EQ(sluice_producer_is_closed(producer), -EBUSY);
	EXPECT_EQ(sluice_producer_prepare_wait(producer, 1), -EBUSY);
	EXPECT(sluice_producer_fd(producer) >= 0);
	EXPECT_EQ(sluice_producer_commit(producer, 8), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 8);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EBUSY);
	EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), 0), -EBUSY);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 2, 0), -EBUSY);
	EXPECT_EQ(sluice_consumer_pending(consumer), -EBUSY);
	EXPECT_EQ(sluice_consumer_prepare_wait(consumer), -EBUSY);
	EXPECT(sluice_consumer_fd(consumer) >= 0);
	/* Closed with what is held: the record counts as not received, the reservation as cancelled. */
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), 0);
	sluice_consumer_close(consumer);
	sluice_producer_close(producer);
}

static void an_array_of_records_is_sent_as_a_batch(void)
{
	static char longest[4096];
	struct iovec records[] = { { "one", 3 }, { NULL, 0 }, { "three", 5 } }, received[8], full[3];
	SIDES(&small);
	size_t max = sluice_producer_record_max(producer);

	EXPECT_EQ(sluice_producer_send_batch(producer, NULL, 0, 0), 0);
	EXPECT_EQ(sluice_producer_send_batch(producer, NULL, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_send_batch(producer, records, 3, 0), 3);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, received, 8, 0), 3);
	EXPECT(received[1].iov_len == 0 && !memcmp(received[2].iov_base, "three", 5));
	EXPECT_EQ(sluice_consumer_release(consumer), 0);

	/* What precedes a record that cannot be sent is sent, and the next call tells why. */
	records[1].iov_len = 1;
	EXPECT_EQ(sluice_producer_send_batch(producer, records, 3, 0), 1);
	EXPECT_EQ(sluice_producer_send_batch(producer, records + 1, 2, 0), -EINVAL);
	EXPECT(max < sizeof(longest));
	full[0] = full[1] = full[2] = (struct iovec){ longest, max };
	EXPECT_EQ(sluice_producer_send_batch(producer, full, 3, 0), 1);
	EXPECT_EQ(sluice_producer_send_batch(producer, full, 3, 0), -EAGAIN);
	full[0].iov_len++;
	EXPECT_EQ(sluice_producer_send_batch(producer, full, 1, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, received, 8, 0), 2);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);

	/* Within a batch that goes on nothing is published. */
	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send_batch(producer, records, 1, 0), 1);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, received, 8, 0), -EAGAIN);
	EXPECT_EQ(sluice_producer_publish(producer), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, received, 8, 0), 1);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_batch_is_published_and_released_at_once(void)
{
	struct iovec records[16];
	const void *record;
	void *room;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	for (char i = 0; i < 10; i++)
		EXPECT_EQ(sluice_producer_send(producer, &i, 1, i % 2 ? -1 : 0), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 4, &room, 5), 0);
	memcpy(room, "room", 4);
	EXPECT_EQ(sluice_producer_commit(producer, 4), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EAGAIN);
	EXPECT_EQ(sluice_producer_publish(producer), 0);

	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 0, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 4, 0), 4);
	EXPECT_EQ(sluice_consumer_keep(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 4, 0), 4);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 16, 0), 7);
	for (int i = 0; i < 6; i++) {
		EXPECT_EQ(records[i].iov_len, 1);
		EXPECT_EQ(*(const char *)records[i].iov_base, i + 4);
	}
	EXPECT(!memcmp(records[6].iov_base, "room", 4));
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 16, 0), -EAGAIN);

	/* After the end of the batch records are published one by one. */
	EXPECT_EQ(sluice_producer_send(producer, "x", 1, 0), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 16, 0), 1);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	/* A close publishes what is left. */
	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "left", 4, 0), 0);
	sluice_producer_close(producer);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 16, 0), 1);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 16, -1), -ENODATA);
	sluice_consumer_close(consumer);
}

static void a_batch_that_fills_the_ring_is_published(void)
{
	struct iovec records[1024];
	int sent = 0, received;
	SIDES(&small);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	while (sluice_producer_send(producer, "record", 6, 0) == 0)
		sent++;
	EXPECT_EQ(sluice_producer_send(producer, "record", 6, 1), -ETIMEDOUT);
	received = (int)sluice_consumer_recv_batch(consumer, records, 1024, 0);
	EXPECT_EQ(received, sent);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "record", 6, 0), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_child_cannot_use_a_side(void)
{
	const void *record;
	void *room;
	pid_t child;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 5);
	EXPECT_EQ(sluice_producer_reserve(producer, 6, &room, 0), 0);
	child = fork();
	if (child == 0) {
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
		EXPECT_EQ(sluice_producer_commit(producer, 6), -ENXIO);
		EXPECT_EQ(sluice_producer_cancel(producer), -EINVAL);
		EXPECT_EQ(sluice_producer_send(producer, "child", 5, 0), -ENXIO);
		EXPECT_EQ(sluice_producer_reserve(producer, 5, &room, 0), -ENXIO);
		EXPECT_EQ(sluice_producer_flush(producer, 0), -ENXIO);
		EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -ENXIO);
		EXPECT_EQ(sluice_consumer_prepare_wait(consumer), -ENXIO);
		EXPECT_TEXT(sluice_error_message(), "child");
		sluice_producer_close(producer);
		sluice_consumer_close(consumer);
		exit(0);
	}
	expect_success(child);
	memcpy(room, "second", 6);
	EXPECT_EQ(sluice_producer_commit(producer, 6), 0);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 6);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_is_closed(consumer), 0);
	sluice_producer_close(producer);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, -1), -ENODATA);
	sluice_consumer_close(consumer);
}

static void count_signal(int number)
{
	(void)number;
}

static void a_wait_continues_after_a_signal(void)
{
	struct sigaction action = { .sa_handler = count_signal };
	const void *record;
	int64_t began;
	pid_t child, parent = getpid();
	SIDES(NULL);

	EXPECT_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	began = now_ms();
	child = fork();
	if (child == 0) {
		for (int i = 0; i < 5; i++) {
			usleep(10 * 1000);
			kill(parent, SIGUSR1);
		}
		_exit(0);
	}
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 200), -ETIMEDOUT);
	EXPECT(now_ms() - began >= 200);
	expect_success(child);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void *send_later(void *producer)
{
	usleep(20 * 1000);
	EXPECT_EQ(sluice_producer_send(producer, "late", 4, 0), 0);
	return NULL;
}

static void a_descriptor_tells_of_a_record(void)
{
	struct pollfd asked;
	const void *record;
	pthread_t thread;
	SIDES(NULL);

	asked = (struct pollfd){ .fd = sluice_consumer_fd(consumer), .events = POLLIN };
	EXPECT_EQ(sluice_consumer_prepare_wait(consumer), 1);
	EXPECT_EQ(pthread_create(&thread, NULL, send_later, producer), 0);
	EXPECT_EQ(poll(&asked, 1, LONG), 1);
	EXPECT_EQ(sluice_consumer_finish_wait(consumer), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(sluice_consumer_prepare_wait(consumer), 0);
	EXPECT_EQ(sluice_consumer_finish_wait(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 4);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(poll(&asked, 1, 0), 0);
	EXPECT_EQ(sluice_producer_prepare_wait(producer, 8), 0);
	EXPECT_EQ(sluice_producer_finish_wait(producer), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_producer_waits_for_room_by_its_descriptor(void)
{
	struct pollfd asked;
	const void *record;
	SIDES(&small);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	while (sluice_producer_send(producer, "record", 6, 0) == 0)
		;
	EXPECT_EQ(sluice_producer_prepare_wait(producer, 6), 1);
	asked = (struct pollfd){ .fd = sluice_producer_fd(producer), .events = POLLIN };
	EXPECT_EQ(poll(&asked, 1, 0), 0);
	while (sluice_consumer_recv(consumer, &record, 0) >= 0)
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(poll(&asked, 1, LONG), 1);
	EXPECT_EQ(sluice_producer_finish_wait(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "record", 6, 0), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

#define RECORDS 200000

/* Records of 4 to 67 bytes, whose content is known. */
static size_t make_record(uint32_t number, unsigned char *record)
{
	size_t length = sizeof(number) + number % 64;

	memset(record, (int)number, length);
	memcpy(record, &number, sizeof(number));
	return length;
}

static void *produce(void *producer)
{
	unsigned char record[128];
	void *room;

	for (uint32_t i = 0; i < RECORDS; i++) {
		size_t length = make_record(i, record);

		if (i % 1000 == 0)
			EXPECT_EQ(sluice_producer_begin(producer), 0);
		if (i % 3 == 0) {
			EXPECT_EQ(sluice_producer_reserve(producer, sizeof(record), &room, -1), 0);
			memcpy(room, record, length);
			EXPECT_EQ(sluice_producer_commit(producer, length), 0);
		} else {
			EXPECT_EQ(sluice_producer_send(producer, record, length, i % 3 == 1 ? -1 : LONG), 0);
		}
		if (i % 1000 == 500)
			EXPECT_EQ(sluice_producer_publish(producer), 0);
	}
	sluice_producer_close(producer);
	return NULL;
}

static void check_record(uint32_t number, const void *record, size_t length)
{
	unsigned char expected[128];

	EXPECT_EQ(length, make_record(number, expected));
	EXPECT(!memcmp(record, expected, length));
}

static void two_threads_transfer_many_records(void)
{
	struct sluice_socket_options options = SLUICE_SOCKET_OPTIONS_INIT;
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	struct iovec records[32];
	const void *record;
	uint32_t received = 0;
	pthread_t thread;
	ssize_t got;

	options.capacity = 64 << 10;
	connect_sides(&options, &producer, &consumer);
	/* The producer is handed to another thread. */
	EXPECT_EQ(pthread_create(&thread, NULL, produce, producer), 0);
	for (;;) {
		got = sluice_consumer_recv_batch(consumer, records, 32, LONG);
		if (got == -ENODATA)
			break;
		EXPECT(got > 0);
		for (ssize_t i = 0; i < got; i++)
			check_record(received++, records[i].iov_base, records[i].iov_len);
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
		got = sluice_consumer_recv(consumer, &record, 0);
		if (got >= 0) {
			check_record(received++, record, (size_t)got);
			EXPECT_EQ(sluice_consumer_release(consumer), 0);
		}
	}
	EXPECT_EQ(received, RECORDS);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	sluice_consumer_close(consumer);
}

static void a_ring_is_set_up_over_a_path(void)
{
	char path[64];
	struct sluice_listener *listener, *second;
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	char buffer[8];
	pid_t child;
	int fd;

	snprintf(path, sizeof(path), "/tmp/%s.socket", unique_name());
	EXPECT_EQ(sluice_socket_connect(path, 0), -ENOENT);
	EXPECT_EQ(sluice_listener_bind(path, &listener), 0);
	EXPECT_EQ(sluice_listener_bind(path, &second), -EADDRINUSE);
	EXPECT(second == NULL);
	EXPECT_EQ(sluice_listener_accept(listener, 0), -EAGAIN);
	EXPECT_EQ(sluice_listener_accept(listener, 20), -ETIMEDOUT);
	child = fork();
	if (child == 0) {
		/* This does not remove the path. */
		sluice_listener_close(listener);
		fd = sluice_socket_connect(path, LONG);
		EXPECT(fd >= 0);
		EXPECT(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		EXPECT_EQ(sluice_socket_consumer(fd, NULL, &consumer), 0);
		EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), LONG), 5);
		sluice_consumer_close(consumer);
		exit(0);
	}
	fd = sluice_listener_accept(listener, LONG);
	EXPECT(fd >= 0);
	EXPECT_EQ(sluice_socket_producer(fd, NULL, &producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "hello", 5, LONG), 0);
	EXPECT_EQ(sluice_producer_has_consumer(producer), 1);
	expect_success(child);
	sluice_producer_close(producer);
	sluice_listener_close(listener);
	EXPECT_EQ(access(path, F_OK), -1);
}

static void a_connection_continues_after_a_signal(void)
{
	struct sigaction action = { .sa_handler = count_signal };
	struct sluice_listener *listener;
	pid_t child, parent = getpid();
	char path[64];

	snprintf(path, sizeof(path), "/tmp/%s.socket", unique_name());
	EXPECT_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	EXPECT_EQ(sluice_listener_bind(path, &listener), 0);
	while (sluice_socket_connect(path, 0) >= 0)
		;
	child = fork();
	if (child == 0) {
		for (int i = 0; i < 5; i++) {
			usleep(10 * 1000);
			kill(parent, SIGUSR1);
		}
		/* Room for a connection. */
		EXPECT(sluice_listener_accept(listener, LONG) >= 0);
		exit(0);
	}
	EXPECT(sluice_socket_connect(path, -1) >= 0);
	expect_success(child);
	sluice_listener_close(listener);
}

static void a_listener_removes_its_own_path(void)
{
	char directory[] = "/tmp/c-test-XXXXXX", other[] = "/tmp/c-test-XXXXXX";
	struct sluice_listener *listener;
	int fd;

	EXPECT_EQ(sluice_socket_connect("", 0), -EINVAL);
	EXPECT_EQ(sluice_listener_bind("", &listener), -EINVAL);
	EXPECT(listener == NULL);
	EXPECT(mkdtemp(directory) != NULL && mkdtemp(other) != NULL);
	EXPECT_EQ(chdir(directory), 0);
	EXPECT_EQ(sluice_listener_bind("socket", &listener), 0);
	EXPECT_EQ(chdir(other), 0);
	fd = open("socket", O_CREAT | O_WRONLY, 0600);
	EXPECT(fd >= 0);
	sluice_listener_close(listener);
	EXPECT_EQ(unlink("socket"), 0);
	EXPECT_EQ(rmdir(directory), 0);
	EXPECT_EQ(rmdir(other), 0);
}

static void a_passed_descriptor_is_closed_by_execve(void)
{
	struct setup setup = { 0 };
	struct sluice_consumer *consumer;
	pthread_t thread;
	int fds[2];

	EXPECT_EQ(sluice_socket_pair(fds), 0);
	for (int i = 0; i < 2; i++)
		EXPECT_EQ(fcntl(fds[i], F_SETFD, 0), 0);
	setup.fd = fds[0];
	EXPECT_EQ(pthread_create(&thread, NULL, set_up_producer, &setup), 0);
	EXPECT_EQ(sluice_socket_consumer(fds[1], NULL, &consumer), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(fcntl(sluice_producer_fd(setup.producer), F_GETFD), FD_CLOEXEC);
	EXPECT_EQ(fcntl(sluice_consumer_fd(consumer), F_GETFD), FD_CLOEXEC);
	sluice_producer_close(setup.producer);
	sluice_consumer_close(consumer);
	EXPECT_EQ(sluice_socket_consumer(fds[1], NULL, &consumer), -EBADF);
	EXPECT(consumer == NULL);
}

static void a_handshake_has_a_limit(void)
{
	struct sluice_socket_options options = SLUICE_SOCKET_OPTIONS_INIT;
	struct sluice_producer *producer = (struct sluice_producer *)&options;
	int fds[2];

	options.handshake_timeout_ms = 20;
	EXPECT_EQ(sluice_socket_pair(fds), 0);
	EXPECT_EQ(sluice_socket_producer(fds[0], &options, &producer), -ETIMEDOUT);
	EXPECT(producer == NULL);
	/* The descriptor belonged to the library. */
	EXPECT_EQ(fcntl(fds[0], F_GETFD), -1);
	options.flags = SLUICE_RING_HUGE_PAGES | SLUICE_RING_UNSEALED;
	EXPECT_EQ(sluice_socket_producer(fds[1], &options, &producer), -EINVAL);
	EXPECT_EQ(fcntl(fds[1], F_GETFD), -1);
	EXPECT_EQ(sluice_socket_pair(fds), 0);
	EXPECT_EQ(sluice_socket_producer(fds[1], NULL, NULL), -EINVAL);
	EXPECT_EQ(fcntl(fds[1], F_GETFD), -1);
}

static void a_reply_cannot_choose_the_result(void)
{
	/* {number in the reply, result} */
	static const uint32_t results[][2] = {
		{ EPERM, EPERM }, { EPROTO, EPROTO }, { EAGAIN, ECONNREFUSED }, { ENODATA, ECONNREFUSED },
		{ 4096, ECONNREFUSED }, { 0x80000000, ECONNREFUSED }, { UINT32_MAX, ECONNREFUSED },
	};
	struct sluice_consumer *consumer;
	struct sluice_producer *producer;
	int fds[2];

	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		/* The magic of a reply, and an error. */
		uint32_t reply[] = { 0x474e5253, results[i][0] };

		EXPECT_EQ(sluice_socket_pair(fds), 0);
		EXPECT_EQ(write(fds[1], reply, sizeof(reply)), sizeof(reply));
		EXPECT_EQ(sluice_socket_producer(fds[0], NULL, &producer), -(int64_t)results[i][1]);
		EXPECT(producer == NULL);
		close(fds[1]);
		EXPECT_EQ(sluice_socket_pair(fds), 0);
		EXPECT_EQ(write(fds[1], reply, sizeof(reply)), sizeof(reply));
		EXPECT_EQ(sluice_socket_consumer(fds[0], NULL, &consumer), -(int64_t)results[i][1]);
		EXPECT(consumer == NULL);
		close(fds[1]);
	}
}

static void options_reach_the_ring(void)
{
	uint32_t users[] = { getuid(), 4711 };
	struct sluice_socket_options options = {
		.size = sizeof(options),
		.capacity = 10000,
		.max_capacity = 16384,
		.spin_limit_ns = -1,
		.allowed_users = users,
		.allowed_user_count = 2,
	};
	struct sluice_socket_options less = SLUICE_SOCKET_OPTIONS_INIT;
	struct setup setup;
	pthread_t thread;
	int fds[2];
	SIDES(&options);

	EXPECT_EQ(sluice_producer_capacity(producer), 16384);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);

	/* A consumer that accepts less than the producer has. */
	EXPECT_EQ(sluice_socket_pair(fds), 0);
	setup = (struct setup){ .fd = fds[0], .options = &options };
	EXPECT_EQ(pthread_create(&thread, NULL, set_up_producer, &setup), 0);
	less.max_capacity = 8192;
	EXPECT_EQ(sluice_socket_consumer(fds[1], &less, &consumer), -ERANGE);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(setup.result, -ERANGE);
}

const struct test memfd_tests[] = {
	TEST(records_arrive_copied_and_in_place),
	TEST(a_closed_ring_has_an_end),
	TEST(an_aborted_ring_ends_with_an_error),
	TEST(the_death_of_a_producer_is_told_after_its_records),
	TEST(the_death_of_a_consumer_ends_a_wait_for_room),
	TEST(waits_have_limits),
	TEST(lengths_have_limits),
	TEST(what_is_held_excludes_other_calls),
	TEST(an_array_of_records_is_sent_as_a_batch),
	TEST(a_batch_is_published_and_released_at_once),
	TEST(a_batch_that_fills_the_ring_is_published),
	TEST(a_child_cannot_use_a_side),
	TEST(a_wait_continues_after_a_signal),
	TEST(a_descriptor_tells_of_a_record),
	TEST(a_producer_waits_for_room_by_its_descriptor),
	TEST(two_threads_transfer_many_records),
	TEST(a_ring_is_set_up_over_a_path),
	TEST(a_connection_continues_after_a_signal),
	TEST(a_listener_removes_its_own_path),
	TEST(a_passed_descriptor_is_closed_by_execve),
	TEST(a_handshake_has_a_limit),
	TEST(a_reply_cannot_choose_the_result),
	TEST(options_reach_the_ring),
	{ NULL, NULL },
};
