// SPDX-License-Identifier: MIT OR Apache-2.0
/* READ_MULTISHOT with a ring of provided buffers, where the kernel has it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"
#include "support.h"

/* Since Linux 6.7. The header of liburing may be older than the kernel. */
#define OP_READ_MULTISHOT 49

#define BUFFERS 4
#define GROUP 1

static struct framed buffers[BUFFERS];
static struct io_uring_buf_ring *buffer_ring;

static void return_buffer(int number)
{
	io_uring_buf_ring_add(buffer_ring, &buffers[number], sizeof(*buffers), number,
			      io_uring_buf_ring_mask(BUFFERS), 0);
	io_uring_buf_ring_advance(buffer_ring, 1);
}

static void return_buffers(void)
{
	int number;

	for (number = 0; number < BUFFERS; number++)
		return_buffer(number);
}

/* Skips the check unless kernel and ring can receive in this way. */
static void provide_buffers(struct io_uring *ring)
{
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = GROUP };
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	void *memory;

	if (!probe || !io_uring_opcode_supported(probe, OP_READ_MULTISHOT))
		skip("this kernel does not have READ_MULTISHOT");
	io_uring_free_probe(probe);
	memory = aligned_alloc(sysconf(_SC_PAGESIZE), sysconf(_SC_PAGESIZE));
	if (!memory)
		fail("no memory");
	reg.ring_addr = (unsigned long)memory;
	expect("io_uring_register_buf_ring", io_uring_register_buf_ring(ring, &reg, 0), 0);
	buffer_ring = memory;
	io_uring_buf_ring_init(buffer_ring);
	return_buffers();
}

static void submit_multishot_read(struct io_uring *ring, int subscriber)
{
	struct io_uring_sqe *sqe = request(ring);

	io_uring_prep_rw(OP_READ_MULTISHOT, sqe, subscriber, NULL, 0, -1);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	io_uring_sqe_set_data64(sqe, READ);
	submit(ring, 1);
}

/* The buffer of the next message; its length is stored. */
static struct framed *multishot_buffer(struct io_uring *ring, int *length)
{
	struct completion last = armed_completion(ring, READ);
	unsigned int number = last.flags >> IORING_CQE_BUFFER_SHIFT;

	if (last.result < 0)
		fail("READ_MULTISHOT: %s", strerror(-last.result));
	if (!(last.flags & IORING_CQE_F_BUFFER) || number >= BUFFERS)
		fail("READ_MULTISHOT without a buffer");
	*length = last.result;
	return &buffers[number];
}

/* Returns the number of its buffer. */
static int expect_multishot(struct io_uring *ring, __u32 number)
{
	int length;
	struct framed *in = multishot_buffer(ring, &length);

	expect("sequence", in->frame.sequence, number);
	expect("losses", in->frame.lost, 0);
	expect("length in the frame", in->frame.length, length - (int)sizeof(in->frame));
	expect_content(&in->content, in->frame.length, 4, number);
	return in - buffers;
}

void a_multishot_read_receives_each_message(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
	struct io_uring ring;
	__u32 number, i;

	new_ring(&ring);
	provide_buffers(&ring);
	submit_multishot_read(&ring, subscriber);
	expect_pending(&ring);
	for (number = 0; number < 2 * BUFFERS; number++) {
		send_content(bus.sender, 4, number);
		return_buffer(expect_multishot(&ring, number));
	}
	/* Several at once; one buffer is left. */
	for (i = 0; i < BUFFERS - 1; i++)
		send_content(bus.sender, 4, number + i);
	for (i = 0; i < BUFFERS - 1; i++)
		expect_multishot(&ring, number++);
	cancel(&ring, READ);
	send_content(bus.sender, 4, number);
	expect("after the cancellation", state(subscriber).own_lag, 1);
}

void a_multishot_read_without_buffers_loses_nothing(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
	struct io_uring ring;
	__u32 number;

	new_ring(&ring);
	provide_buffers(&ring);
	submit_multishot_read(&ring, subscriber);
	for (number = 0; number <= BUFFERS; number++)
		send_content(bus.sender, 4, number);
	for (number = 0; number < BUFFERS; number++)
		expect_multishot(&ring, number);
	expect("without buffers", result(&ring, READ), -ENOBUFS);
	return_buffers();
	submit_multishot_read(&ring, subscriber);
	expect_multishot(&ring, BUFFERS);
}

void a_multishot_read_with_small_buffers_is_emsgsize(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	static const char large[sizeof(struct framed) + 1];
	char bytes[CAPACITY];
	struct io_uring ring;

	new_ring(&ring);
	provide_buffers(&ring);
	submit_multishot_read(&ring, subscriber);
	expect_pending(&ring);
	send_bytes(bus.sender, large, sizeof(large));
	expect("a message that is too large", result(&ring, READ), -EMSGSIZE);
	expect("the message", receive_now(subscriber, bytes, sizeof(bytes)), sizeof(large));
	expect_nothing(subscriber);
}

/* io_uring takes a result of 0 bytes for the end of the file, so the request may end with it. */
void a_multishot_read_receives_empty_messages(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int framed = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
	int raw = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct completion last;
	struct io_uring ring;
	int length;

	new_ring(&ring);
	provide_buffers(&ring);
	submit_multishot_read(&ring, framed);
	send_bytes(bus.sender, "", 0);
	multishot_buffer(&ring, &length);
	expect("a frame without bytes", length, sizeof(struct sluice_bus_frame));
	cancel(&ring, READ);
	submit_multishot_read(&ring, raw);
	last = completion(&ring);
	expect("no bytes", last.result, 0);
	if (!(last.flags & IORING_CQE_F_MORE))
		submit_multishot_read(&ring, raw);
	expect_pending(&ring);
	send_bytes(bus.sender, "x", 1);
	multishot_buffer(&ring, &length);
	expect("the next message", length, 1);
}

void a_destroyed_bus_ends_a_multishot_read(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_FRAMED);
	struct io_uring ring;

	new_ring(&ring);
	provide_buffers(&ring);
	submit_multishot_read(&ring, subscriber);
	expect_pending(&ring);
	destroy(&bus);
	expect("READ_MULTISHOT", result(&ring, READ), -EPIPE);
}
