// SPDX-License-Identifier: MIT OR Apache-2.0
/* Several receivers on one ring, and several senders. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "checks.h"
#include "support.h"

#define MESSAGES 200	/* of a sender */

#define RECEIVERS 4

/* Every receiver has a READ in flight in the same ring. */
static void receive_on_one_ring(unsigned int mode, unsigned int policy)
{
	struct bus bus = new_bus(mode);
	bool to_all = mode == SLUICE_BUS_BROADCAST;
	int ends[RECEIVERS], received[RECEIVERS] = {}, seen[MESSAGES] = {}, i, left;
	__u32 next[RECEIVERS] = {};
	struct content contents[RECEIVERS];
	struct io_uring ring;
	pid_t sender;

	new_ring(&ring);
	for (i = 0; i < RECEIVERS; i++) {
		ends[i] = subscribe(&bus, policy, SLUICE_BUS_RAW);
		submit_read(&ring, ends[i], &contents[i], sizeof(contents[i]), i);
	}
	expect_pending(&ring);
	sender = start();
	if (!sender) {
		for (i = 0; i < MESSAGES; i++)
			send_content(bus.sender, 7, i);
		_exit(EXIT_SUCCESS);
	}
	for (left = to_all ? RECEIVERS * MESSAGES : MESSAGES; left; left--) {
		struct completion last = completion(&ring);
		__u32 number;

		i = last.name;
		if (last.result < 0)
			fail("READ of receiver %d: %s", i, strerror(-last.result));
		number = contents[i].number;
		if (number < next[i] || number >= MESSAGES)
			fail("receiver %d: message %u after %u", i, number, next[i]);
		expect_content(&contents[i], last.result, 7, number);
		next[i] = number + 1;
		received[i]++;
		seen[number]++;
		submit_read(&ring, ends[i], &contents[i], sizeof(contents[i]), i);
	}
	for (i = 0; i < MESSAGES; i++)
		expect("receivers of a message", seen[i], to_all ? RECEIVERS : 1);
	for (i = 0; mode == SLUICE_BUS_MULTICAST && i < RECEIVERS; i++)
		expect("messages of a receiver", received[i], MESSAGES / RECEIVERS);
	expect_success("the sender", sender);
	expect_pending(&ring);
}

void receivers_on_one_ring_get_all_messages_of_a_broadcast(void)
{
	receive_on_one_ring(SLUICE_BUS_BROADCAST, SLUICE_BUS_BLOCK);
}

void receivers_on_one_ring_take_turns_in_a_multicast(void)
{
	receive_on_one_ring(SLUICE_BUS_MULTICAST, SLUICE_BUS_BLOCK);
}

void receivers_on_one_ring_share_a_queue(void)
{
	receive_on_one_ring(SLUICE_BUS_UNICAST, 0);
}

#define SENDERS 3
#define CHAIN 8

/* Sends its messages in chains of linked requests, each of which waits for the one before it. */
static void send_chains(const struct bus *bus, __u32 name)
{
	int sender = add_sender(bus, SLUICE_BUS_RAW), first, i;
	struct content contents[CHAIN];
	size_t lengths[CHAIN];
	struct io_uring ring;

	new_ring(&ring);
	for (first = 0; first < MESSAGES; first += CHAIN) {
		for (i = 0; i < CHAIN; i++) {
			struct io_uring_sqe *sqe = request(&ring);

			lengths[i] = make_content(&contents[i], name, first + i);
			io_uring_prep_write(sqe, sender, &contents[i], lengths[i], -1);
			io_uring_sqe_set_data64(sqe, i);
			if (i < CHAIN - 1)
				sqe->flags |= IOSQE_IO_LINK;
		}
		submit(&ring, CHAIN);
		for (i = 0; i < CHAIN; i++)
			expect("WRITE of a chain", result(&ring, i), lengths[i]);
	}
}

void messages_of_each_sender_stay_in_order(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	__u32 next[RECEIVERS][SENDERS] = {}, sequences[RECEIVERS] = {};
	struct framed messages[RECEIVERS];
	int ends[RECEIVERS], i, left;
	pid_t senders[SENDERS];
	struct io_uring ring;

	new_ring(&ring);
	for (i = 0; i < RECEIVERS; i++) {
		ends[i] = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
		submit_read(&ring, ends[i], &messages[i], sizeof(messages[i]), i);
	}
	for (i = 0; i < SENDERS; i++) {
		senders[i] = start();
		if (!senders[i]) {
			send_chains(&bus, i);
			_exit(EXIT_SUCCESS);
		}
	}
	for (left = RECEIVERS * SENDERS * MESSAGES; left; left--) {
		struct completion last = completion(&ring);
		struct framed *in;
		__u32 sender;

		i = last.name;
		in = &messages[i];
		if (last.result < (int)(sizeof(in->frame) + offsetof(struct content, rest)))
			fail("READ of receiver %d: %d", i, last.result);
		sender = in->content.sender;
		if (sender >= SENDERS)
			fail("receiver %d: a message of sender %u", i, sender);
		expect("sequence", in->frame.sequence, sequences[i]++);
		expect("losses", in->frame.lost, 0);
		expect_content(&in->content, in->frame.length, sender, next[i][sender]++);
		submit_read(&ring, ends[i], in, sizeof(*in), i);
	}
	for (i = 0; i < SENDERS; i++)
		expect_success("a sender", senders[i]);
	expect_pending(&ring);
}
