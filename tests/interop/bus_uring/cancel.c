// SPDX-License-Identifier: MIT OR Apache-2.0
/* Requests that are cancelled: a message is received or sent once, or not at all. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "checks.h"
#include "support.h"

#define CANCELS 300	/* messages of a race */

void a_cancelled_read_receives_nothing(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;
	char bytes[16];

	new_ring(&ring);
	submit_read(&ring, subscriber, bytes, sizeof(bytes), READ);
	expect_pending(&ring);
	cancel(&ring, READ);
	send_bytes(bus.sender, "mine", 4);
	expect_pending(&ring);
	expect_received(subscriber, "mine");
}

void a_cancelled_write_sends_nothing(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;

	new_ring(&ring);
	fill(bus.sender);
	submit_write(&ring, bus.sender, "never", 5);
	expect_pending(&ring);
	cancel(&ring, WRITE);
	drain(subscriber);
	expect_nothing(subscriber);
	expect_pending(&ring);
	send_bytes(bus.sender, "mine", 4);
	expect_received(subscriber, "mine");
	expect_nothing(subscriber);
	expect("messages sent", state(bus.sender).sent, HELD + 1);
}

/* Submits it, and cancels it after up to 50 us. Returns its result. */
static int cancelled_soon(struct io_uring *ring, struct io_uring_sqe *sqe, __u64 name, int attempt)
{
	int cancellation;

	/* Every second one by a worker of io_uring. */
	if (attempt % 2)
		sqe->flags |= IOSQE_ASYNC;
	io_uring_sqe_set_data64(sqe, name);
	submit(ring, 1);
	if (attempt % 3)
		usleep(attempt % 50);
	submit_cancel(ring, name);
	return cancelled_result(ring, name, &cancellation);
}

static bool was_cancelled(int result)
{
	return result == -ECANCELED || result == -EINTR;
}

static void cancel_reads(unsigned int mode, unsigned int policy)
{
	struct bus bus = new_bus(mode);
	int subscriber = subscribe(&bus, policy, SLUICE_BUS_RAW);
	int number, attempt = 0;
	struct io_uring ring;
	pid_t sender = start();

	if (!sender) {
		for (number = 0; number < CANCELS; number++) {
			send_content(bus.sender, 5, number);
			usleep(number % 200);
		}
		_exit(EXIT_SUCCESS);
	}
	new_ring(&ring);
	for (number = 0; number < CANCELS; attempt++) {
		struct io_uring_sqe *sqe = request(&ring);
		struct content content;
		int length;

		io_uring_prep_read(sqe, subscriber, &content, sizeof(content), -1);
		length = cancelled_soon(&ring, sqe, READ, attempt);
		if (!was_cancelled(length))
			expect_content(&content, length, 5, number++);
	}
	expect_success("the sender", sender);
	expect_nothing(subscriber);
}

void a_read_cancelled_as_a_message_arrives_loses_nothing(void)
{
	cancel_reads(SLUICE_BUS_BROADCAST, SLUICE_BUS_BLOCK);
	cancel_reads(SLUICE_BUS_MULTICAST, SLUICE_BUS_BLOCK);
	cancel_reads(SLUICE_BUS_UNICAST, 0);
}

static void cancel_writes(unsigned int mode, unsigned int policy)
{
	struct bus bus = new_bus(mode);
	int subscriber = subscribe(&bus, policy, SLUICE_BUS_RAW);
	int number, attempt = 0;
	struct content content;
	struct io_uring ring;
	pid_t receiver = start();

	if (!receiver) {
		for (number = 0; number < CANCELS; number++) {
			ssize_t length = read(subscriber, &content, sizeof(content));

			expect_content(&content, done("read", length), 6, number);
			usleep(number % 200);
		}
		_exit(EXIT_SUCCESS);
	}
	new_ring(&ring);
	for (number = 0; number < CANCELS; attempt++) {
		int length = make_content(&content, 6, number), sent;
		struct io_uring_sqe *sqe = request(&ring);

		io_uring_prep_write(sqe, bus.sender, &content, length, -1);
		sent = cancelled_soon(&ring, sqe, WRITE, attempt);
		if (was_cancelled(sent))
			continue;
		expect("bytes sent", sent, length);
		number++;
	}
	expect_success("the receiver", receiver);
	expect_nothing(subscriber);
	expect("messages sent", state(bus.sender).sent, CANCELS);
}

void a_write_cancelled_as_room_appears_sends_once_or_nothing(void)
{
	cancel_writes(SLUICE_BUS_BROADCAST, SLUICE_BUS_BLOCK);
	cancel_writes(SLUICE_BUS_MULTICAST, SLUICE_BUS_BLOCK);
	cancel_writes(SLUICE_BUS_UNICAST, 0);
}
