/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rings with names. Needs the module. */
#include <poll.h>

#include "test.h"

static const struct sluice_ring_options create = {
	.size = sizeof(create),
	.channel = { .flags = SLUICE_CREATE, .capacity = 65536 },
};

static void both_sides_open_a_ring_by_its_name(void)
{
	const char *name = unique_name();
	struct sluice_producer *producer, *second;
	struct sluice_consumer *consumer;
	struct sluice_ring_state state;
	const void *record;

	EXPECT_EQ(sluice_ring_open_producer(name, NULL, &producer), -ENOENT);
	EXPECT_TEXT(sluice_error_hint(), "sluice ring create");
	EXPECT_EQ(sluice_ring_open_producer(name, &create, &producer), 0);
	EXPECT_EQ(sluice_producer_has_consumer(producer), 0);
	EXPECT_EQ(sluice_ring_open_producer(name, &create, &second), -EBUSY);
	EXPECT_EQ(sluice_ring_open_consumer(name, NULL, &consumer), 0);
	EXPECT_EQ(sluice_producer_has_consumer(producer), 1);
	EXPECT_EQ(sluice_producer_send(producer, "hello", 5, 0), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), 5);
	EXPECT(!memcmp(record, "hello", 5));
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_ring_query(name, NULL, &state), 0);
	EXPECT_EQ(state.producer, SLUICE_RING_ROLE_TAKEN);
	EXPECT_EQ(state.consumer, SLUICE_RING_ROLE_TAKEN);
	EXPECT_EQ(state.capacity, 65536);
	EXPECT(state.published > 0);
	sluice_producer_close(producer);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), -ENODATA);
	sluice_consumer_close(consumer);
}

static void a_timeout_without_a_peer_names_the_scope(void)
{
	struct sluice_consumer *consumer;
	const void *record;

	EXPECT_EQ(sluice_ring_open_consumer(unique_name(), &create, &consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, 10), -ETIMEDOUT);
	EXPECT_TEXT(sluice_error_message(), "no producer has the ring");
	EXPECT_TEXT(sluice_error_message(), "this process's scope");
	EXPECT_TEXT(sluice_error_hint(), "same cgroup");
	sluice_consumer_close(consumer);
}

static void the_death_of_a_side_is_told(void)
{
	const char *name = unique_name();
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	const void *record;
	pid_t child;

	EXPECT_EQ(sluice_ring_open_consumer(name, &create, &consumer), 0);
	child = fork();
	if (child == 0) {
		sluice_consumer_close(consumer);
		EXPECT_EQ(sluice_ring_open_producer(name, NULL, &producer), 0);
		EXPECT_EQ(sluice_producer_send(producer, "last", 4, 0), 0);
		kill(getpid(), SIGKILL);
	}
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), 4);
	EXPECT_EQ(sluice_consumer_release(consumer), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), -ECONNRESET);
	EXPECT_EQ(waitpid(child, NULL, 0), child);
	sluice_consumer_close(consumer);
}

static void a_destroyed_ring_ends_both_sides(void)
{
	const char *name = unique_name();
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	const void *record;

	EXPECT_EQ(sluice_ring_open_producer(name, &create, &producer), 0);
	EXPECT_EQ(sluice_ring_open_consumer(name, &create, &consumer), 0);
	EXPECT_EQ(sluice_channel_destroy(SLUICE_KIND_RING, name, NULL), 0);
	EXPECT_EQ(sluice_consumer_recv(consumer, &record, LONG), -EPIPE);
	EXPECT_EQ(sluice_producer_send(producer, "x", 1, LONG), -EPIPE);
	EXPECT_TEXT(sluice_error_message(), "destroyed");
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void a_descriptor_tells_of_a_record(void)
{
	const char *name = unique_name();
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	struct pollfd asked;

	EXPECT_EQ(sluice_ring_open_producer(name, &create, &producer), 0);
	EXPECT_EQ(sluice_ring_open_consumer(name, &create, &consumer), 0);
	EXPECT_EQ(sluice_consumer_prepare_wait(consumer), 1);
	asked = (struct pollfd){ .fd = sluice_consumer_fd(consumer), .events = POLLIN };
	EXPECT_EQ(poll(&asked, 1, 0), 0);
	EXPECT_EQ(sluice_producer_send(producer, "x", 1, 0), 0);
	EXPECT_EQ(poll(&asked, 1, LONG), 1);
	EXPECT_EQ(sluice_consumer_finish_wait(consumer), 0);
	EXPECT_EQ(sluice_consumer_prepare_wait(consumer), 0);
	EXPECT_EQ(sluice_consumer_finish_wait(consumer), 0);
	sluice_producer_close(producer);
	sluice_consumer_close(consumer);
}

static void another_process_attaches_an_endpoint(void)
{
	const char *name = unique_name();
	struct sluice_producer *producer;
	struct sluice_consumer *consumer;
	char buffer[8];
	pid_t child;
	int fd = sluice_ring_consumer_endpoint(name, &create);

	EXPECT(fd >= 0);
	EXPECT_EQ(sluice_ring_open_producer(name, NULL, &producer), 0);
	child = fork();
	if (child == 0) {
		EXPECT_EQ(sluice_ring_attach_consumer(fd, NULL, &consumer), 0);
		EXPECT_EQ(sluice_consumer_recv_into(consumer, buffer, sizeof(buffer), LONG), 5);
		sluice_consumer_close(consumer);
		exit(0);
	}
	close(fd);
	EXPECT_EQ(sluice_producer_send(producer, "hello", 5, LONG), 0);
	expect_success(child);
	fd = sluice_ring_consumer_endpoint("a/b", &create);
	EXPECT_EQ(fd, -EINVAL);
	sluice_producer_close(producer);
}

static void a_persistent_ring_exists_until_it_is_unlinked(void)
{
	const char *name = unique_name();
	struct sluice_ring_state state;

	EXPECT_EQ(sluice_ring_create(name, NULL), 0);
	EXPECT_EQ(sluice_ring_create(name, NULL), -EEXIST);
	EXPECT_EQ(sluice_ring_query(name, NULL, &state), 0);
	EXPECT_EQ(state.producer, SLUICE_RING_ROLE_VACANT);
	EXPECT_EQ(sluice_channel_unlink(SLUICE_KIND_RING, name, NULL), 0);
	EXPECT_EQ(sluice_ring_query(name, NULL, &state), -ENOENT);
}

const struct test ring_tests[] = {
	TEST(both_sides_open_a_ring_by_its_name),
	TEST(a_timeout_without_a_peer_names_the_scope),
	TEST(the_death_of_a_side_is_told),
	TEST(a_destroyed_ring_ends_both_sides),
	TEST(a_descriptor_tells_of_a_record),
	TEST(another_process_attaches_an_endpoint),
	TEST(a_persistent_ring_exists_until_it_is_unlinked),
	{ NULL, NULL },
};
