// SPDX-License-Identifier: MIT OR Apache-2.0
/* READ, WRITE and POLL_ADD. */
#include <errno.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "checks.h"
#include "support.h"

void a_read_waits_for_a_message(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct content content;
	struct io_uring ring;

	new_ring(&ring);
	submit_read(&ring, subscriber, &content, sizeof(content), READ);
	expect_pending(&ring);
	send_content(bus.sender, 1, 5);
	expect_content(&content, result(&ring, READ), 1, 5);
	submit_read(&ring, subscriber, &content, sizeof(content), READ);
	expect_pending(&ring);
	send_bytes(bus.sender, "", 0);
	expect("an empty message", result(&ring, READ), 0);
	send_content(bus.sender, 1, 6);
	submit_read(&ring, subscriber, &content, sizeof(content), READ);
	expect_content(&content, result(&ring, READ), 1, 6);
}

void a_write_is_received(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;

	new_ring(&ring);
	submit_write(&ring, bus.sender, "some", 4);
	expect("WRITE", result(&ring, WRITE), 4);
	expect_received(subscriber, "some");
	submit_write(&ring, bus.sender, "", 0);
	expect("WRITE of an empty message", result(&ring, WRITE), 0);
	expect_received(subscriber, "");
	expect_nothing(subscriber);
}

void a_write_waits_for_room(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;

	new_ring(&ring);
	fill(bus.sender);
	submit_write(&ring, bus.sender, "later", 5);
	expect_pending(&ring);
	drain(subscriber);
	expect("WRITE", result(&ring, WRITE), 5);
	expect_received(subscriber, "later");
}

/* READ and WRITE of endpoints that frame their messages, to all and to one subscriber. */
void frames_are_read_and_written(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int sender = add_sender(&bus, SLUICE_BUS_FRAMED);
	int target = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
	int other = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	__u64 targets[] = { 0, state(target).id, 0 };
	struct framed out, in;
	struct io_uring ring;
	int i;

	new_ring(&ring);
	for (i = 0; i < LENGTH(targets); i++) {
		/* The last one is empty. */
		int length = i < 2 ? (int)make_content(&out.content, 2, i) : 0;

		out.frame = (struct sluice_bus_frame) {
			.size = sizeof(out.frame),
			.length = length,
			.target = targets[i],
		};
		submit_write(&ring, sender, &out, sizeof(out.frame) + length);
		expect("WRITE", result(&ring, WRITE), sizeof(out.frame) + length);
		submit_read(&ring, target, &in, sizeof(in), READ);
		expect("READ", result(&ring, READ), sizeof(in.frame) + length);
		expect("size", in.frame.size, sizeof(in.frame));
		expect("length", in.frame.length, length);
		expect("target", in.frame.target, targets[i]);
		expect("sender", in.frame.sender, state(sender).id);
		expect("sequence", in.frame.sequence, i);
		expect("pid", in.frame.pid, getpid());
		expect("uid", in.frame.uid, geteuid());
		expect("gid", in.frame.gid, getegid());
		if (length)
			expect_content(&in.content, length, 2, i);
	}
	expect_content(&in.content, receive_now(other, &in.content, sizeof(in.content)), 2, 0);
	expect_received(other, "");
	expect_nothing(other);
}

void a_message_beyond_the_maximum_is_emsgsize(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	int framed = add_sender(&bus, SLUICE_BUS_FRAMED);
	static struct {
		struct sluice_bus_frame frame;
		char bytes[LARGEST + 1];
	} message = { .frame = { .size = sizeof(message.frame), .length = LARGEST + 1 } };
	char bytes[CAPACITY];
	struct io_uring ring;

	new_ring(&ring);
	submit_write(&ring, bus.sender, message.bytes, LARGEST + 1);
	expect("one byte more", result(&ring, WRITE), -EMSGSIZE);
	submit_write(&ring, framed, &message, sizeof(message.frame) + LARGEST + 1);
	expect("one byte more, framed", result(&ring, WRITE), -EMSGSIZE);
	expect_nothing(subscriber);
	submit_write(&ring, bus.sender, message.bytes, LARGEST);
	expect("the largest message", result(&ring, WRITE), LARGEST);
	submit_read(&ring, subscriber, bytes, sizeof(bytes), READ);
	expect("the message", result(&ring, READ), LARGEST);
}

void a_message_for_a_small_buffer_stays(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int raw = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	int framed = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
	struct framed in;
	struct io_uring ring;

	new_ring(&ring);
	submit_read(&ring, raw, &in, 4, READ);
	expect_pending(&ring);
	send_bytes(bus.sender, "large", 5);
	expect("a pending READ", result(&ring, READ), -EMSGSIZE);
	submit_read(&ring, raw, &in, 4, READ);
	expect("a READ", result(&ring, READ), -EMSGSIZE);
	submit_read(&ring, raw, &in, 5, READ);
	expect("a READ with room", result(&ring, READ), 5);
	expect_nothing(raw);
	submit_read(&ring, framed, &in, sizeof(in.frame) + 4, READ);
	expect("a framed READ", result(&ring, READ), -EMSGSIZE);
	submit_read(&ring, framed, &in, sizeof(in.frame) + 5, READ);
	expect("a framed READ with room", result(&ring, READ), sizeof(in.frame) + 5);
	expect("losses", in.frame.lost, 0);
	expect_nothing(framed);
}

/* A request with RWF_NOWAIT does not wait. */
void a_nowait_request_is_eagain(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	char byte;

	new_ring(&ring);
	sqe = request(&ring);
	io_uring_prep_read(sqe, subscriber, &byte, 1, -1);
	sqe->rw_flags = RWF_NOWAIT;
	io_uring_sqe_set_data64(sqe, READ);
	submit(&ring, 1);
	expect("a READ without a message", result(&ring, READ), -EAGAIN);
	fill(bus.sender);
	sqe = request(&ring);
	io_uring_prep_write(sqe, bus.sender, "x", 1, -1);
	sqe->rw_flags = RWF_NOWAIT;
	io_uring_sqe_set_data64(sqe, WRITE);
	submit(&ring, 1);
	expect("a WRITE without room", result(&ring, WRITE), -EAGAIN);
	drain(subscriber);
	expect_nothing(subscriber);
}

/* READ_FIXED and WRITE_FIXED, with registered files. */
void registered_files_and_buffers_are_used(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	const int files[] = { bus.sender, subscriber };
	/* Not static: with Linux 6.1 a buffer in memory that maps a file is EOPNOTSUPP. */
	struct content out, in;
	const struct iovec buffers[] = { { &out, sizeof(out) }, { &in, sizeof(in) } };
	size_t length = make_content(&out, 3, 33);
	struct io_uring_sqe *sqe;
	struct io_uring ring;

	new_ring(&ring);
	expect("io_uring_register_files", io_uring_register_files(&ring, files, 2), 0);
	expect("io_uring_register_buffers", io_uring_register_buffers(&ring, buffers, 2), 0);
	sqe = request(&ring);
	io_uring_prep_read_fixed(sqe, 1, &in, sizeof(in), -1, 1);
	sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data64(sqe, READ);
	submit(&ring, 1);
	expect_pending(&ring);
	sqe = request(&ring);
	io_uring_prep_write_fixed(sqe, 0, &out, length, -1, 0);
	sqe->flags |= IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS;
	io_uring_sqe_set_data64(sqe, WRITE);
	submit(&ring, 1);
	expect_content(&in, result(&ring, READ), 3, 33);
}

/* ---- POLL_ADD ---- */

void a_poll_completes_with_a_message(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;

	new_ring(&ring);
	submit_poll(&ring, subscriber, POLLIN, false);
	expect_pending(&ring);
	send_bytes(bus.sender, "", 0);
	expect("POLL_ADD", result(&ring, POLL), POLLIN);
	submit_poll(&ring, subscriber, POLLIN, false);
	expect("POLL_ADD with a message", result(&ring, POLL), POLLIN);
}

void a_poll_completes_with_room(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;

	new_ring(&ring);
	fill(bus.sender);
	submit_poll(&ring, bus.sender, POLLOUT, false);
	expect_pending(&ring);
	drain(subscriber);
	expect("POLL_ADD", result(&ring, POLL), POLLOUT);
	submit_poll(&ring, bus.sender, POLLOUT, false);
	expect("POLL_ADD with room", result(&ring, POLL), POLLOUT);
}

void a_multishot_poll_reports_each_message(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring;
	int round;

	new_ring(&ring);
	submit_poll(&ring, subscriber, POLLIN, true);
	expect_pending(&ring);
	for (round = 0; round < 3; round++) {
		send_bytes(bus.sender, "a", 1);
		expect("events", armed_completion(&ring, POLL).result, POLLIN);
		/* The first message is still there. */
		send_bytes(bus.sender, "b", 1);
		expect("events", armed_completion(&ring, POLL).result, POLLIN);
		expect_received(subscriber, "a");
		expect_received(subscriber, "b");
		expect_pending(&ring);
	}
	cancel(&ring, POLL);
	send_bytes(bus.sender, "c", 1);
	expect_pending(&ring);
}

void a_multishot_poll_reports_room_each_time(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int round;

	new_ring(&ring);
	fill(bus.sender);
	submit_poll(&ring, bus.sender, POLLOUT, true);
	for (round = 0; round < 3; round++) {
		expect_pending(&ring);
		drain(subscriber);
		expect("events", armed_completion(&ring, POLL).result, POLLOUT);
		/* More room may be one more event. */
		while (!io_uring_peek_cqe(&ring, &cqe))
			armed_completion(&ring, POLL);
		fill(bus.sender);
	}
}
