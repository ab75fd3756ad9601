/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The feed of the packet simulator. Needs the module and CAP_SYS_NICE. */
#include <linux/sluice.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "test.h"

/* The library has no call for the simulator; it is started through a descriptor of the feed. */
static void start(int fd, uint64_t count)
{
	struct sluice_feed_start start = {
		.size = sizeof(start),
		.cpu = SLUICE_FEED_CPU_ANY,
		.interval_ns = 1000000,
		.count = count,
		.length = 64,
	};

	EXPECT_EQ(ioctl(fd, SLUICE_FEED_START, &start), 0);
}

static void packets_are_received_in_place(void)
{
	struct sluice_feed_consumer *consumer;
	struct sluice_feed_reader *reader;
	struct sluice_packet packet;
	struct pollfd asked;
	int wait;

	EXPECT_EQ(sluice_feed_open_consumer(NULL, &consumer), 0);
	EXPECT_EQ(sluice_feed_open_reader(NULL, &reader), -EBUSY);
	EXPECT_EQ(sluice_feed_consumer_recv(consumer, &packet, 0), -EAGAIN);
	EXPECT_EQ(sluice_feed_consumer_recv(consumer, &packet, 10), -ETIMEDOUT);
	EXPECT_EQ(sluice_feed_consumer_set_spin_limit(consumer, -1), 0);
	wait = sluice_feed_consumer_prepare_wait(consumer);
	EXPECT_EQ(wait, 1);
	start(sluice_feed_consumer_fd(consumer), 10);
	asked = (struct pollfd){ .fd = sluice_feed_consumer_fd(consumer), .events = POLLIN };
	EXPECT_EQ(poll(&asked, 1, LONG), 1);
	EXPECT_EQ(sluice_feed_consumer_finish_wait(consumer), 0);
	for (int i = 0; i < 5; i++) {
		EXPECT_EQ(sluice_feed_consumer_recv(consumer, &packet, LONG), 0);
		EXPECT_EQ(packet.length, 64);
		EXPECT(packet.time_ns > 0);
		EXPECT_EQ(sluice_feed_consumer_recv(consumer, &packet, 0), -EBUSY);
		EXPECT_EQ(sluice_feed_consumer_release(consumer), 0);
	}
	EXPECT_EQ(sluice_feed_consumer_release(consumer), -EINVAL);
	sluice_feed_consumer_close(consumer);
}

static void packets_are_copied(void)
{
	struct sluice_feed_reader *reader;
	struct sluice_packet packet;
	uint64_t next = 0;

	EXPECT_EQ(sluice_feed_open_reader(NULL, &reader), 0);
	EXPECT_EQ(sluice_feed_reader_recv(reader, &packet, 0), -EAGAIN);
	start(sluice_feed_reader_fd(reader), 10);
	for (int i = 0; i < 5; i++) {
		EXPECT_EQ(sluice_feed_reader_recv(reader, &packet, i % 2 ? LONG : -1), 0);
		EXPECT_EQ(packet.length, 64);
		EXPECT(i == 0 || packet.sequence == next + packet.lost);
		next = packet.sequence + 1;
	}
	/* A wait without a limit, of a descriptor that does not wait. */
	set_nonblocking(sluice_feed_reader_fd(reader));
	while (sluice_feed_reader_recv(reader, &packet, 100) == 0)
		;
	start(sluice_feed_reader_fd(reader), 1);
	EXPECT_EQ(sluice_feed_reader_recv(reader, &packet, -1), 0);
	sluice_feed_reader_close(reader);
}

static void a_feed_without_publisher_is_not_found(void)
{
	struct sluice_feed_consumer *consumer;
	struct sluice_feed_state state;

	EXPECT_EQ(sluice_feed_open_consumer(unique_name(), &consumer), -ENOENT);
	EXPECT(consumer == NULL);
	EXPECT_EQ(sluice_feed_query(unique_name(), &state), -ENOENT);
}

const struct test feed_tests[] = {
	TEST(packets_are_received_in_place),
	TEST(packets_are_copied),
	TEST(a_feed_without_publisher_is_not_found),
	{ NULL, NULL },
};
