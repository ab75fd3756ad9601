/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The inline functions of sluice.h: each does what the function of the library does. tests/build links with --wrap, to count calls. */
#include <pthread.h>
#include <stddef.h>

#include "memfd.h"
#include "test.h"

/* Part of the ABI: programs contain these offsets. */
_Static_assert(offsetof(struct sluice_ring_head, process) == 16 && offsetof(struct sluice_ring_head, attention) == 40, "");
_Static_assert(offsetof(struct sluice_ring_head, records) == 48 && sizeof(struct sluice_ring_head) == 56, "");
_Static_assert(offsetof(struct sluice_consumer_head, stride) == 56 && offsetof(struct sluice_consumer_head, alike) == 64, "");
_Static_assert(offsetof(struct sluice_consumer_head, position) == 72 && offsetof(struct sluice_consumer_head, released) == 80, "");
_Static_assert(offsetof(struct sluice_consumer_head, length_max) == 88, "");
_Static_assert(offsetof(struct sluice_producer_head, length_max) == 56 && offsetof(struct sluice_producer_head, reserved) == 64, "");
_Static_assert(offsetof(struct sluice_producer_head, waiting) == 72 && offsetof(struct sluice_producer_head, is_batching) == 80, "");
_Static_assert(offsetof(struct sluice_producer_head, published) == 88 && offsetof(struct sluice_producer_head, written) == 96, "");
_Static_assert(offsetof(struct sluice_producer_head, limit) == 104 && offsetof(struct sluice_producer_head, reserved_end) == 112, "");
_Static_assert(offsetof(struct sluice_producer_head, window) == 120 && offsetof(struct sluice_producer_head, zeroed_to) == 128, "");

#if defined(__OPTIMIZE__) && !defined(__clang__) && !defined(SLUICE_NO_INLINE)
#define IS_INLINE 1
#else
#define IS_INLINE 0
#endif

static int calls;

#define COUNT_CALLS(type, name, declared, passed) \
	extern type __real_##name declared;           \
	extern type __wrap_##name declared;           \
	type __wrap_##name declared                   \
	{                                             \
		calls++;                                  \
		return __real_##name passed;              \
	}

COUNT_CALLS(int, sluice_producer_send, (struct sluice_producer * producer, const void *record, size_t length, int timeout_ms),
	    (producer, record, length, timeout_ms))
COUNT_CALLS(int, sluice_producer_reserve, (struct sluice_producer * producer, size_t length, void **room, int timeout_ms),
	    (producer, length, room, timeout_ms))
COUNT_CALLS(int, sluice_producer_commit, (struct sluice_producer * producer, size_t length), (producer, length))
COUNT_CALLS(ssize_t, sluice_consumer_recv, (struct sluice_consumer * consumer, const void **record, int timeout_ms),
	    (consumer, record, timeout_ms))
COUNT_CALLS(ssize_t, sluice_consumer_recv_batch,
	    (struct sluice_consumer * consumer, struct iovec *records, size_t count, int timeout_ms), (consumer, records, count, timeout_ms))
COUNT_CALLS(int, sluice_consumer_release, (struct sluice_consumer * consumer), (consumer))

/* After a test that makes `expected` calls of the library if the functions are inlined. */
static void expect_calls(int expected)
{
	if (IS_INLINE)
		EXPECT_EQ(calls, expected);
	calls = 0;
}

static void what_needs_no_wait_makes_no_call(void)
{
	struct iovec records[8];
	const void *record;
	void *room;
	SIDES(NULL);

	for (int i = 0; i < 100; i++) {
		EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), 0);
		memcpy(room, "in place", 8);
		EXPECT_EQ(sluice_producer_commit(producer, 8), 0);
		EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 8);
		EXPECT(!memcmp(record, "in place", 8));
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
		expect_calls(0);
	}
	for (int i = 0; i < 100; i++) {
		EXPECT_EQ(sluice_producer_begin(producer), 0);
		EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
		EXPECT_EQ(sluice_producer_send(producer, "second", 6, 0), 0);
		EXPECT_EQ(sluice_producer_reserve(producer, 5, &room, 0), 0);
		memcpy(room, "third", 5);
		EXPECT_EQ(sluice_producer_commit(producer, 5), 0);
		EXPECT_EQ(sluice_producer_send(producer, "fourth", 6, 0), 0);
		EXPECT_EQ(sluice_producer_publish(producer), 0);
		EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 8, 0), 4);
		EXPECT(records[0].iov_len == 5 && !memcmp(records[0].iov_base, "first", 5));
		EXPECT(records[1].iov_len == 6 && !memcmp(records[1].iov_base, "second", 6));
		EXPECT(records[2].iov_len == 5 && !memcmp(records[2].iov_base, "third", 5));
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
		expect_calls(0);
	}
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_null_or_an_impossible_argument_is_refused(void)
{
	struct iovec records[2];
	void *room;
	SIDES(&small);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
	EXPECT_EQ(sluice_producer_send(NULL, "x", 1, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_send(producer, NULL, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_send(producer, NULL, 0, 0), 0);
	EXPECT_EQ(sluice_producer_reserve(NULL, 1, &room, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_reserve(producer, 1, NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_reserve(producer, sluice_producer_record_max(producer) + 1, &room, 0), -EMSGSIZE);
	for (size_t length = SIZE_MAX; length > SIZE_MAX - 32; length--)
		EXPECT_EQ(sluice_producer_reserve(producer, length, &room, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_producer_commit(NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_commit(producer, SIZE_MAX), -EINVAL);
	EXPECT_EQ(sluice_producer_publish(producer), 0);
	EXPECT_EQ(sluice_consumer_recv(NULL, (const void **)&room, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv(consumer, NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_batch(NULL, records, 2, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, NULL, 2, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 0, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_release(NULL), -EINVAL);
	EXPECT_EQ(sluice_consumer_release(consumer), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 2, 0), 2);
	EXPECT_EQ(records[1].iov_len, 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

/* Record `number`, of 0 to 300 bytes that are known. */
static size_t fill(uint32_t number, void *record)
{
	size_t length = number * 7919 % 301;

	memset(record, (int)(number % 255 + 1), length);
	return length;
}

static void expect_record(uint32_t number, const void *record, size_t length)
{
	unsigned char expected[301];

	EXPECT_EQ(length, fill(number, expected));
	EXPECT(!memcmp(record, expected, length));
}

/* Sends one record, in one of the ways: 0, or -EAGAIN if the ring is full. */
static int send_one(struct sluice_producer *producer, uint32_t number)
{
	unsigned char record[301];
	size_t length = fill(number, record);
	int result;
	void *room;

	if (number % 5 < 2)
		return sluice_producer_send(producer, record, length, 0);
	result = sluice_producer_reserve(producer, length + number % 3, &room, 0);
	if (result < 0)
		return result;
	/* Not the zeros that are there. */
	memset(room, 1, length + number % 3);
	memcpy(room, record, length);
	if (number % 5 == 2) {
		EXPECT_EQ(sluice_producer_cancel(producer), 0);
		return sluice_producer_send(producer, record, length, 0);
	}
	return sluice_producer_commit(producer, length);
}

/* Many times around a small ring, which is full each time. */
static void records_of_all_lengths_pass_the_end_of_the_ring(void)
{
	struct iovec records[7];
	uint32_t sent = 0, received = 0;
	const void *record;
	ssize_t got;
	int result;
	SIDES(&small);

	for (int lap = 0; lap < 2000; lap++) {
		if (lap % 2)
			EXPECT_EQ(sluice_producer_begin(producer), 0);
		while ((result = send_one(producer, sent)) == 0)
			sent++;
		EXPECT_EQ(result, -EAGAIN);
		if (lap % 2)
			EXPECT_EQ(sluice_producer_publish(producer), 0);
		while (received < sent) {
			if (lap % 3) {
				got = sluice_consumer_recv_batch(consumer, records, 1 + (size_t)lap % 7, 0);
				EXPECT(got > 0);
				for (ssize_t i = 0; i < got; i++)
					expect_record(received++, records[i].iov_base, records[i].iov_len);
			} else {
				got = sluice_consumer_recv(consumer, &record, 0);
				EXPECT(got >= 0);
				expect_record(received++, record, (size_t)got);
			}
			EXPECT_EQ(sluice_consumer_release(consumer), 0);
		}
		EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EAGAIN);
	}
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_full_ring_has_room_after_a_release(void)
{
	const void *record;
	void *room;
	int sent = 0;
	SIDES(&small);

	while (sluice_producer_reserve(producer, 56, &room, 0) == 0) {
		EXPECT_EQ(sluice_producer_commit(producer, 56), 0);
		sent++;
	}
	/* The header after the last record needs room, too. */
	EXPECT_EQ(sent, 4096 / 64 - 1);
	EXPECT(room == NULL);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 56);
	EXPECT_EQ(sluice_producer_reserve(producer, 56, &room, 0), -EAGAIN);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 56, &room, 0), 0);
	EXPECT_EQ(sluice_producer_commit(producer, 56), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 49, &room, 0), -EAGAIN);
	EXPECT_EQ(sluice_producer_reserve(producer, 48, &room, 0), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

/* The length is known to the compiler: by its words, and by a copy to the library where the ring is full or has room again. */
static void a_structure_arrives_by_either_way(void)
{
	struct {
		uint64_t number, nothing, twice;
	} sent = { .nothing = 0 };
	uint64_t received = 0;
	const void *record;
	int result;
	SIDES(&small);

	EXPECT_EQ(sluice_producer_send(producer, NULL, sizeof(sent), 0), -EINVAL);
	for (int lap = 0; lap < 100; lap++) {
		if (lap % 2)
			EXPECT_EQ(sluice_producer_begin(producer), 0);
		for (;;) {
			sent.twice = 2 * sent.number;
			result = sluice_producer_send(producer, &sent, sizeof(sent), 0);
			if (result < 0)
				break;
			sent.number++;
		}
		EXPECT_EQ(result, -EAGAIN);
		if (lap % 2)
			EXPECT_EQ(sluice_producer_publish(producer), 0);
		for (; received < sent.number; received++) {
			uint64_t expected[3] = { received, 0, 2 * received };

			EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), (ssize_t)sizeof(sent));
			EXPECT(!memcmp(record, expected, sizeof(expected)));
			EXPECT_EQ(sluice_consumer_release(consumer), 0);
		}
	}
	/* Each lap finds the ring full once, and room again once, by calls. */
	EXPECT(!IS_INLINE || (calls >= 200 && calls < (int)received));
	calls = 0;
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_closed_consumer_is_told_at_once(void)
{
	void *room;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
	EXPECT_EQ(sluice_producer_send(producer, "second", 6, 0), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), 0);
	sluice_consumer_close(consumer);
	EXPECT_EQ(sluice_producer_commit(producer, 8), 0);
	EXPECT_EQ(sluice_producer_send(producer, "third", 5, 0), -EPIPE);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), -EPIPE);
	EXPECT(room == NULL);
	sluice_producer_close(producer);
}

/* Over a socket, the death of a consumer is its hang-up. */
static void the_death_of_a_consumer_is_told_once_it_is_known(void)
{
	void *room;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
	sluice_consumer_abort(consumer);
	EXPECT_EQ(sluice_producer_send(producer, "second", 6, 0), 0);
	EXPECT_EQ(sluice_producer_is_closed(producer), 1);
	EXPECT_EQ(sluice_producer_send(producer, "third", 5, 0), -ECONNRESET);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), -ECONNRESET);
	sluice_producer_close(producer);

	connect_sides(NULL, &producer, &consumer);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), 0);
	EXPECT_EQ(sluice_producer_commit(producer, 8), 0);
	sluice_consumer_abort(consumer);
	EXPECT_EQ(sluice_producer_flush(producer, LONG), -ECONNRESET);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), -ECONNRESET);
	sluice_producer_close(producer);
}

static void what_is_held_excludes_inline_calls(void)
{
	struct iovec records[2];
	const void *record;
	void *room;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 64, &room, 0), 0);
	memset(room, 1, 64);
	EXPECT_EQ(sluice_producer_send(producer, "x", 1, 0), -EBUSY);
	EXPECT_EQ(sluice_producer_reserve(producer, 8, &room, 0), -EBUSY);
	EXPECT_EQ(sluice_producer_commit(producer, 65), -EINVAL);
	EXPECT_EQ(sluice_producer_cancel(producer), 0);
	EXPECT_EQ(sluice_producer_commit(producer, 64), -EINVAL);
	EXPECT_EQ(sluice_producer_reserve(producer, 2, &room, 0), 0);
	memset(room, 1, 2);
	EXPECT_EQ(sluice_producer_commit(producer, 2), 0);
	EXPECT_EQ(sluice_producer_publish(producer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 5);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EBUSY);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 2, 0), -EBUSY);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 2);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EAGAIN);

	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "second", 6, 0), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 64, &room, 0), 0);
	memset(room, 1, 64);
	EXPECT_EQ(sluice_producer_commit(producer, 1), 0);
	EXPECT_EQ(sluice_producer_publish(producer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 6);
	EXPECT(!memcmp(record, "second", 6));
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 1);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	/* What the reservations left is no record. */
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EAGAIN);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_child_cannot_add_to_a_batch(void)
{
	struct iovec records[8];
	const void *record;
	void *room;
	pid_t child;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_send(producer, "zero", 4, 0), 0);
	EXPECT_EQ(sluice_producer_begin(producer), 0);
	EXPECT_EQ(sluice_producer_send(producer, "first", 5, 0), 0);
	EXPECT_EQ(sluice_producer_reserve(producer, 6, &room, 0), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), 4);
	child = fork();
	if (child == 0) {
		EXPECT_EQ(sluice_producer_commit(producer, 6), -ENXIO);
		EXPECT_EQ(sluice_producer_send(producer, "child", 5, 0), -ENXIO);
		EXPECT_EQ(sluice_producer_reserve(producer, 5, &room, 0), -ENXIO);
		EXPECT_EQ(sluice_producer_publish(producer), 0);
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
		EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -ENXIO);
		EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 8, 0), -ENXIO);
		exit(0);
	}
	expect_success(child);
	memcpy(room, "second", 6);
	EXPECT_EQ(sluice_producer_commit(producer, 6), 0);
	child = fork();
	if (child == 0) {
		EXPECT_EQ(sluice_producer_send(producer, "child", 5, 0), -ENXIO);
		EXPECT_EQ(sluice_producer_reserve(producer, 5, &room, 0), -ENXIO);
		exit(0);
	}
	expect_success(child);
	EXPECT_EQ(sluice_producer_pending(producer), 16);
	EXPECT_EQ(sluice_producer_publish(producer), 0);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 8, 0), 2);
	EXPECT(records[1].iov_len == 6 && !memcmp(records[1].iov_base, "second", 6));
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

/* The header at the position of the next record that a producer writes, in its mapping. */
static uint32_t *next_header(struct sluice_producer *producer)
{
	const struct sluice_producer_head *head = (const void *)producer;

	return (uint32_t *)(void *)(head->ring.data + (head->written & head->ring.mask));
}

static void a_malicious_producer_is_told(void)
{
	struct iovec records[4096 / 8];
	const void *record;
	SIDES(&small);

	/* A record that is longer than permitted, after a valid one. */
	EXPECT_EQ(sluice_producer_send(producer, "valid", 5, 0), 0);
	next_header(producer)[0] = 4096 / 2 - 7;
	next_header(producer)[1] = 1;
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 2, 0), 1);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EPROTO);
	/* The violation is final. */
	next_header(producer)[0] = 0;
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EPROTO);
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 2, 0), -EPROTO);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);

	connect_sides(&small, &producer, &consumer);
	next_header(producer)[1] = 2;
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), -EPROTO);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);

	/* More records than the ring has room for. */
	connect_sides(&small, &producer, &consumer);
	for (int i = 0; i < 4096 / 8; i++)
		next_header(producer)[2 * i + 1] = 1;
	EXPECT_EQ(sluice_consumer_recv_batch(consumer, records, 4096 / 8, 0), 4096 / 8 - 1);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void *send_when_there_is_room(void *producer)
{
	static char record[1000];

	EXPECT_EQ(sluice_producer_send(producer, record, sizeof(record), LONG), 0);
	return NULL;
}

static void a_release_wakes_a_producer_that_sleeps(void)
{
	static char longest[2040];
	const void *record;
	pthread_t thread;
	SIDES(&small);

	for (int i = 0; i < 20; i++) {
		EXPECT_EQ(sluice_producer_send(producer, longest, sizeof(longest), 0), 0);
		EXPECT_EQ(sluice_producer_send(producer, longest, 1500, 0), 0);
		EXPECT_EQ(pthread_create(&thread, NULL, send_when_there_is_room, producer), 0);
		usleep(5000);
		EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), sizeof(longest));
		EXPECT_EQ(sluice_consumer_release(consumer), 0);
		EXPECT_EQ(pthread_join(thread, NULL), 0);
		for (int left = 0; left < 2; left++) {
			EXPECT_EQ(sluice_consumer_recv(consumer, &record, 0), left ? 1000 : 1500);
			EXPECT_EQ(sluice_consumer_release(consumer), 0);
		}
	}
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

/* For bindings, which call by address. */
static void the_address_is_that_of_the_function_of_the_library(void)
{
	ssize_t (*volatile recv)(struct sluice_consumer *, const void **, int) = sluice_consumer_recv;
	int (*volatile release)(struct sluice_consumer *) = sluice_consumer_release;
	const void *record;
	SIDES(NULL);

	EXPECT_EQ(sluice_producer_send(producer, "x", 1, 0), 0);
	calls = 0;
	EXPECT_EQ(recv(consumer, &record, 0), 1);
	EXPECT_EQ(release(consumer), 0);
	EXPECT_EQ(calls, 2);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

const struct test inline_tests[] = {
	TEST(what_needs_no_wait_makes_no_call),
	TEST(a_null_or_an_impossible_argument_is_refused),
	TEST(records_of_all_lengths_pass_the_end_of_the_ring),
	TEST(a_full_ring_has_room_after_a_release),
	TEST(a_structure_arrives_by_either_way),
	TEST(a_closed_consumer_is_told_at_once),
	TEST(the_death_of_a_consumer_is_told_once_it_is_known),
	TEST(what_is_held_excludes_inline_calls),
	TEST(a_child_cannot_add_to_a_batch),
	TEST(a_malicious_producer_is_told),
	TEST(a_release_wakes_a_producer_that_sleeps),
	TEST(the_address_is_that_of_the_function_of_the_library),
	{ NULL, NULL },
};
