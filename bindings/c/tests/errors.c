/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What needs neither a peer nor the module: texts of errors, NULL, and options. */
#include <pthread.h>
#include <stddef.h>

#include "test.h"
#ifdef __has_include
#if __has_include(<linux/sluice.h>)
/* Both headers can be included. */
#include <linux/sluice.h>
#endif
#endif

static void *text_of_another_thread(void *text)
{
	EXPECT_EQ(strlen(sluice_error_message()), 0);
	EXPECT_EQ(sluice_producer_fd(NULL), -EINVAL);
	return text;
}

static void each_thread_has_its_own_text(void)
{
	pthread_t thread;
	char before[256];

	EXPECT_EQ(strlen(sluice_error_message()), 0);
	EXPECT_EQ(sluice_socket_connect("/nowhere/socket", 0), -ENOENT);
	EXPECT_TEXT(sluice_error_message(), "/nowhere/socket");
	EXPECT_TEXT(sluice_error_hint(), "start the listening side first");
	EXPECT(strstr(sluice_error_message(), sluice_error_hint()) == NULL);
	snprintf(before, sizeof(before), "%s", sluice_error_message());
	EXPECT_EQ(pthread_create(&thread, NULL, text_of_another_thread, NULL), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT(!strcmp(sluice_error_message(), before));
	/* A success keeps it, also one that closes. */
	sluice_producer_close(NULL);
	EXPECT(!strcmp(sluice_error_message(), before));
}

static void numbers_have_a_general_text(void)
{
	EXPECT_TEXT(sluice_strerror(-ENODATA), "end of the stream");
	EXPECT(!strcmp(sluice_strerror(EAGAIN), sluice_strerror(-EAGAIN)));
	EXPECT(!strcmp(sluice_strerror(0), "success"));
	EXPECT_TEXT(sluice_strerror(-EINTR), "a signal");
	EXPECT(strlen(sluice_strerror(12345)) > 0);
	EXPECT(strlen(sluice_strerror(INT32_MIN)) > 0);
	EXPECT(sluice_version()[0] >= '0' && sluice_version()[0] <= '9');
}

static void null_is_an_invalid_argument(void)
{
	struct sluice_message message;
	struct sluice_packet packet;
	struct sluice_entry entry;
	struct sluice_event event;
	struct sluice_bus_state bus;
	struct sluice_map_state map;
	struct sluice_channel_state channel;
	const void *record;
	void *room;
	struct iovec records[1];
	char byte;

	EXPECT_EQ(sluice_producer_send(NULL, "x", 1, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_reserve(NULL, 1, &room, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_commit(NULL, 1), -EINVAL);
	EXPECT_EQ(sluice_producer_cancel(NULL), -EINVAL);
	EXPECT_EQ(sluice_producer_send_batch(NULL, records, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_begin(NULL), -EINVAL);
	EXPECT_EQ(sluice_producer_publish(NULL), -EINVAL);
	EXPECT_EQ(sluice_producer_flush(NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_producer_pending(NULL), -EINVAL);
	EXPECT_EQ(sluice_producer_is_closed(NULL), -EINVAL);
	EXPECT_EQ(sluice_producer_has_consumer(NULL), -EINVAL);
	EXPECT_EQ(sluice_producer_capacity(NULL), 0);
	EXPECT_EQ(sluice_producer_record_max(NULL), 0);
	EXPECT_EQ(sluice_producer_prepare_wait(NULL, 1), -EINVAL);
	EXPECT_EQ(sluice_producer_finish_wait(NULL), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv(NULL, &record, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_batch(NULL, records, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_recv_into(NULL, &byte, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_consumer_release(NULL), -EINVAL);
	EXPECT_EQ(sluice_consumer_keep(NULL), -EINVAL);
	EXPECT_EQ(sluice_consumer_pending(NULL), -EINVAL);
	EXPECT_EQ(sluice_consumer_fd(NULL), -EINVAL);
	EXPECT_EQ(sluice_consumer_prepare_wait(NULL), -EINVAL);
	EXPECT_EQ(sluice_listener_accept(NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_socket_pair(NULL), -EINVAL);
	EXPECT_EQ(sluice_socket_connect(NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_sender_send(NULL, "x", 1, 0), -EINVAL);
	EXPECT_EQ(sluice_sender_info(NULL, &bus), -EINVAL);
	EXPECT_EQ(sluice_subscriber_recv(NULL, &message, 0), -EINVAL);
	EXPECT_EQ(sluice_subscriber_recv_batch(NULL, &message, 1, 0), -EINVAL);
	EXPECT_EQ(sluice_mapped_subscriber_recv(NULL, &message, 0), -EINVAL);
	EXPECT_EQ(sluice_client_call(NULL, "x", 1, &message, 0), -EINVAL);
	EXPECT_EQ(sluice_request_reply(NULL, "x", 1, 0), -EINVAL);
	EXPECT_EQ(sluice_map_get(NULL, "k", 1, &byte, 1, &entry), -EINVAL);
	EXPECT_EQ(sluice_map_set(NULL, "k", 1, "v", 1, NULL, NULL), -EINVAL);
	EXPECT_EQ(sluice_map_delete(NULL, "k", 1, NULL, NULL), -EINVAL);
	EXPECT_EQ(sluice_map_info(NULL, &map), -EINVAL);
	EXPECT_EQ(sluice_map_batch(NULL, NULL, 0), -EINVAL);
	EXPECT_EQ(sluice_entries_next(NULL, &entry), -EINVAL);
	EXPECT_EQ(sluice_watcher_recv(NULL, &event, 0), -EINVAL);
	EXPECT_EQ(sluice_feed_consumer_recv(NULL, &packet, 0), -EINVAL);
	EXPECT_EQ(sluice_channel_list_next(NULL, &channel), -EINVAL);
	EXPECT_EQ(sluice_channel_query(SLUICE_KIND_MAP, NULL, NULL, &channel), -EINVAL);
	EXPECT_EQ(sluice_channel_query(SLUICE_KIND_MAP, "name", NULL, NULL), -EINVAL);
	EXPECT_EQ(sluice_map_open("name", NULL, NULL), -EINVAL);
	EXPECT_EQ(sluice_pipe_set_capacity(-1, 4096), -EBADF);
	sluice_consumer_close(NULL);
	sluice_consumer_abort(NULL);
	sluice_producer_abort(NULL);
	sluice_request_drop(NULL);
	sluice_map_close(NULL);
}

static void options_have_a_known_size_and_known_fields(void)
{
	struct {
		struct sluice_map_options options;
		uint64_t later;
	} larger = { .options = SLUICE_MAP_OPTIONS_INIT };
	struct sluice_map *map = (struct sluice_map *)&larger;
	struct sluice_pipe_options pipe = SLUICE_PIPE_OPTIONS_INIT;
	struct sluice_ring_options ring = SLUICE_RING_OPTIONS_INIT;
	struct sluice_producer *producer;

	larger.options.size = 0;
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT(map == NULL);
	EXPECT_TEXT(sluice_error_message(), "unknown size");
	larger.options.size = sizeof(larger.options) - 1;
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "unknown size");
	larger.options.size = SIZE_MAX;
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "unknown size");
	/* A later version of the structure: its fields are not used. The name is the next error. */
	larger.options.size = sizeof(larger);
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "invalid channel name 'a/b'");
	EXPECT_TEXT(sluice_error_hint(), "1 to 63 bytes");
	larger.later = 1;
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "does not know");
	larger.options.size = sizeof(larger.options);
	larger.options.reserved[3] = 1;
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "does not know");
	larger.options.reserved[3] = 0;
	larger.options.channel.flags = 1 << 30;
	EXPECT_EQ(sluice_map_open("a/b", &larger.options, &map), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "a flag");
	pipe.channel.reserved[1] = 1;
	EXPECT_EQ(sluice_pipe_open_reader("a/b", &pipe), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "does not know");
	EXPECT_EQ(sluice_pipe_open_reader(NULL, &pipe), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "does not know");
	ring.channel.reserved[0] = 1;
	EXPECT_EQ(sluice_ring_attach_producer(dup(0), &ring, &producer), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "does not know");
}

/* Programs that were compiled with the first release have these sizes and places. */
_Static_assert(sizeof(struct sluice_channel) == 40, "");
_Static_assert(sizeof(struct sluice_pipe_options) == 88, "");
_Static_assert(sizeof(struct sluice_ring_options) == 104, "");
_Static_assert(sizeof(struct sluice_socket_options) == 96, "");
_Static_assert(sizeof(struct sluice_bus_options) == 104, "");
_Static_assert(sizeof(struct sluice_map_options) == 112, "");
_Static_assert(sizeof(struct sluice_change_options) == 48, "");
_Static_assert(offsetof(struct sluice_pipe_options, flags) == 48, "");
_Static_assert(offsetof(struct sluice_ring_options, flags) == 64, "");
_Static_assert(offsetof(struct sluice_socket_options, allowed_users) == 48, "");
_Static_assert(offsetof(struct sluice_bus_options, limit) == 64, "");
_Static_assert(offsetof(struct sluice_map_options, deadline_ms) == 72, "");
_Static_assert(offsetof(struct sluice_change_options, time_to_live_ns) == 24, "");
_Static_assert(sizeof(struct sluice_message) == 88, "");
_Static_assert(offsetof(struct sluice_message, uid) == 60, "");
_Static_assert(sizeof(struct sluice_packet) == 64, "");
_Static_assert(sizeof(struct sluice_operation) == 96, "");
_Static_assert(offsetof(struct sluice_operation, result) == 72, "");
_Static_assert(sizeof(struct sluice_entry) == 64, "");
_Static_assert(sizeof(struct sluice_event) == 64, "");
_Static_assert(sizeof(struct sluice_channel_state) == 176, "");
_Static_assert(sizeof(struct sluice_pipe_state) == 88, "");
_Static_assert(sizeof(struct sluice_ring_state) == 72, "");
_Static_assert(sizeof(struct sluice_bus_state) == 184, "");
_Static_assert(sizeof(struct sluice_subscriber_state) == 72, "");
_Static_assert(sizeof(struct sluice_map_state) == 136, "");
_Static_assert(sizeof(struct sluice_feed_state) == 112, "");

static void options_that_contradict_each_other_are_refused(void)
{
	struct sluice_map_options map = SLUICE_MAP_OPTIONS_INIT;
	struct sluice_bus_options bus = SLUICE_BUS_OPTIONS_INIT;
	struct sluice_pipe_options pipe = SLUICE_PIPE_OPTIONS_INIT;
	struct sluice_sender *sender;
	struct sluice_map *opened;

	map.interval_ms = 5;
	EXPECT_EQ(sluice_map_open("name", &map, &opened), -EINVAL);
	map.durability = SLUICE_DURABLE;
	EXPECT_EQ(sluice_map_open("name", &map, &opened), -EINVAL);
	bus.mode = 7;
	EXPECT_EQ(sluice_bus_open_sender("name", &bus, &sender), -EINVAL);
	EXPECT(sender == NULL);
	bus.mode = SLUICE_BUS_BROADCAST;
	bus.policy = SLUICE_POLICY_DROP | SLUICE_POLICY_BLOCK;
	EXPECT_EQ(sluice_bus_open_sender("name", &bus, &sender), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "one policy");
	pipe.channel.permissions = 0660;
	EXPECT_EQ(sluice_pipe_open_reader(NULL, &pipe), -EINVAL);
	EXPECT_EQ(sluice_sender_attach(-1, &sender), -EBADF);
}

static void a_descriptor_of_another_file_is_no_endpoint(void)
{
	struct sluice_subscriber *subscriber;
	struct sluice_producer *producer;
	struct sluice_map *map;
	int fds[2];

	EXPECT_EQ(pipe(fds), 0);
	EXPECT_EQ(sluice_subscriber_attach(fds[0], &subscriber), -ENOTTY);
	EXPECT(subscriber == NULL);
	/* It was closed. */
	EXPECT_EQ(write(fds[1], "x", 1), -1);
	EXPECT_EQ(sluice_map_attach(dup(fds[1]), &map), -ENOTTY);
	EXPECT_EQ(sluice_ring_attach_producer(fds[1], NULL, &producer), -ENOTTY);
	EXPECT_EQ(close(fds[1]), -1);
}

static void without_the_module_a_channel_is_not_found(void)
{
	struct sluice_map *map;

	if (access("/dev/sluice/ctl", F_OK) == 0)
		return;
	EXPECT_EQ(sluice_map_open("name", NULL, &map), -ENOENT);
	EXPECT_TEXT(sluice_error_message(), "/dev/sluice/ctl");
	EXPECT_TEXT(sluice_error_hint(), "modprobe sluice");
	EXPECT_EQ(sluice_module_version(), -ENOENT);
	EXPECT_EQ(sluice_module_has_kind(SLUICE_KIND_RING), -ENOENT);
}

static void ignore_sigpipe(void)
{
	signal(SIGPIPE, SIG_IGN);
	a_descriptor_of_another_file_is_no_endpoint();
}

const struct test errors_tests[] = {
	TEST(each_thread_has_its_own_text),
	TEST(numbers_have_a_general_text),
	TEST(null_is_an_invalid_argument),
	TEST(options_have_a_known_size_and_known_fields),
	TEST(options_that_contradict_each_other_are_refused),
	{ "a_descriptor_of_another_file_is_no_endpoint", ignore_sigpipe },
	TEST(without_the_module_a_channel_is_not_found),
	{ NULL, NULL },
};
