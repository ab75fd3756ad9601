/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Buses, and requests over them. Needs the module. */
#include <poll.h>
#include <pthread.h>

#include "test.h"

static const struct sluice_bus_options create = {
	.size = sizeof(create),
	.channel = { .flags = SLUICE_CREATE },
};

static void a_message_has_the_credentials_of_its_sender(void)
{
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_subscriber *subscriber;
	struct sluice_message message;
	struct sluice_bus_state state;
	struct sluice_subscriber_state subscribers[2];
	char buffer[4];

	EXPECT_EQ(sluice_bus_open_sender(name, NULL, &sender), -ENOENT);
	EXPECT_EQ(sluice_bus_open_sender(name, &create, &sender), 0);
	EXPECT_EQ(sluice_bus_open_subscriber(name, NULL, &subscriber), 0);
	EXPECT_EQ(sluice_sender_info(sender, &state), 0);
	EXPECT_EQ(state.subscribers, 1);
	EXPECT(state.endpoint.id != 0);
	EXPECT(state.message_max > 0);

	EXPECT_EQ(sluice_sender_send(sender, "hello", 5, LONG), 0);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, LONG), 0);
	EXPECT_EQ(message.length, 5);
	EXPECT(!memcmp(message.bytes, "hello", 5));
	EXPECT_EQ(message.sender, state.endpoint.id);
	EXPECT_EQ(message.pid, getpid());
	EXPECT_EQ(message.uid, getuid());
	EXPECT_EQ(message.gid, getgid());
	EXPECT_EQ(message.lost, 0);
	EXPECT_EQ(message.target, 0);

	EXPECT_EQ(sluice_sender_subscribers(sender, subscribers, 2), 1);
	EXPECT_EQ(subscribers[0].pid, getpid());
	EXPECT_EQ(sluice_sender_subscribers(sender, NULL, 0), 1);
	EXPECT_EQ(sluice_sender_send_to(sender, subscribers[0].id, "long one", 8, 0), 0);
	EXPECT_EQ(sluice_sender_send_to(sender, 4711, "x", 1, 0), -ENOENT);
	EXPECT_EQ(sluice_subscriber_recv_into(subscriber, buffer, sizeof(buffer), &message, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 0), 0);
	EXPECT_EQ(message.target, subscribers[0].id);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 0), -EAGAIN);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 20), -ETIMEDOUT);
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
}

static void a_batch_is_returned_in_parts(void)
{
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_subscriber *subscriber;
	struct sluice_message messages[4], message;
	struct pollfd asked;
	char buffer[1];

	EXPECT_EQ(sluice_bus_open_sender(name, &create, &sender), 0);
	EXPECT_EQ(sluice_bus_open_subscriber(name, &create, &subscriber), 0);
	for (char i = 0; i < 10; i++)
		EXPECT_EQ(sluice_sender_send(sender, &i, 1, 0), 0);
	asked = (struct pollfd){ .fd = sluice_subscriber_fd(subscriber), .events = POLLIN };
	EXPECT_EQ(poll(&asked, 1, LONG), 1);
	EXPECT_EQ(sluice_subscriber_recv_batch(subscriber, messages, 4, 0), 4);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(*(const char *)messages[i].bytes, i);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 0), 0);
	EXPECT_EQ(*(const char *)message.bytes, 4);
	EXPECT_EQ(sluice_subscriber_recv_into(subscriber, buffer, 0, NULL, 0), -EMSGSIZE);
	EXPECT_EQ(sluice_subscriber_recv_into(subscriber, buffer, 1, &message, 0), 1);
	EXPECT_EQ(buffer[0], 5);
	EXPECT(message.bytes == NULL);
	EXPECT_EQ(sluice_subscriber_recv_batch(subscriber, messages, 4, 0), 4);
	EXPECT_EQ(*(const char *)messages[3].bytes, 9);
	EXPECT_EQ(sluice_subscriber_recv_batch(subscriber, messages, 4, 0), -EAGAIN);
	EXPECT_EQ(sluice_subscriber_recv_batch(subscriber, messages, 0, 0), -EINVAL);
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
}

static void losses_are_told(void)
{
	struct sluice_bus_options options = create;
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_subscriber *subscriber;
	struct sluice_message message;
	char record[512] = { 0 };

	options.channel.capacity = 65536;
	EXPECT_EQ(sluice_bus_open_sender(name, &options, &sender), 0);
	EXPECT_EQ(sluice_bus_open_subscriber(name, &options, &subscriber), 0);
	for (int i = 0; i < 1000; i++)
		EXPECT_EQ(sluice_sender_send(sender, record, sizeof(record), 0), 0);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 0), 0);
	EXPECT(message.lost > 0);
	EXPECT_EQ(message.sequence, message.lost);
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
}

static void a_subscriber_that_blocks_delays_senders(void)
{
	struct sluice_bus_options options = create;
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_subscriber *subscriber;
	char record[512] = { 0 };
	int result;

	options.policies = options.policy = SLUICE_POLICY_BLOCK;
	EXPECT_EQ(sluice_bus_open_subscriber(name, &options, &subscriber), 0);
	options.policy = 0;
	EXPECT_EQ(sluice_bus_open_sender(name, &options, &sender), 0);
	do
		result = sluice_sender_send(sender, record, sizeof(record), 0);
	while (!result);
	EXPECT_EQ(result, -EAGAIN);
	EXPECT_EQ(sluice_sender_send(sender, record, sizeof(record), 10), -ETIMEDOUT);
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
}

static void messages_are_received_in_place(void)
{
	struct sluice_bus_options options = create;
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_mapped_subscriber *subscriber;
	struct sluice_message message, other;
	struct sluice_bus_state state;

	options.policies = SLUICE_POLICY_BLOCK;
	options.flags = SLUICE_MAPPABLE;
	EXPECT_EQ(sluice_bus_open_sender(name, &options, &sender), 0);
	EXPECT_EQ(sluice_bus_open_mapped_subscriber(name, &options, &subscriber), 0);
	EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &message, 0), -EAGAIN);
	EXPECT_EQ(sluice_sender_send(sender, "one", 3, 0), 0);
	EXPECT_EQ(sluice_sender_send(sender, "two", 3, 0), 0);
	EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &message, LONG), 0);
	EXPECT(!memcmp(message.bytes, "one", 3));
	EXPECT_EQ((uintptr_t)message.bytes % 8, 0);
	EXPECT_EQ(message.uid, UINT32_MAX);
	EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &other, 0), -EBUSY);
	EXPECT_EQ(sluice_mapped_subscriber_flush(subscriber), -EBUSY);
	EXPECT_EQ(sluice_mapped_subscriber_release(subscriber), 0);
	EXPECT_EQ(sluice_mapped_subscriber_release(subscriber), -EINVAL);
	EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &message, 0), 0);
	EXPECT(!memcmp(message.bytes, "two", 3));
	EXPECT_EQ(sluice_mapped_subscriber_release(subscriber), 0);
	EXPECT_EQ(sluice_mapped_subscriber_flush(subscriber), 0);
	EXPECT_EQ(sluice_mapped_subscriber_info(subscriber, &state), 0);
	EXPECT_EQ(state.endpoint.mapped, 1);
	EXPECT_EQ(state.endpoint.lag, 0);
	sluice_mapped_subscriber_close(subscriber);
	sluice_sender_close(sender);
}

static void *answer(void *server)
{
	struct sluice_request *request;
	struct sluice_message message;
	int result;

	while ((result = sluice_server_recv(server, &request, LONG)) == 0) {
		EXPECT_EQ(sluice_request_message(request, &message), 0);
		EXPECT_EQ(message.uid, getuid());
		if (message.length == 4 && !memcmp(message.bytes, "drop", 4))
			sluice_request_drop(request);
		else
			EXPECT_EQ(sluice_request_reply(request, message.bytes, message.length, LONG), 0);
	}
	EXPECT_EQ(result, -EPIPE);
	return NULL;
}

static void a_request_has_a_reply(void)
{
	const char *name = unique_name();
	struct sluice_server *server;
	struct sluice_client *client;
	struct sluice_request *request;
	struct sluice_message reply;
	pthread_t thread;

	EXPECT_EQ(sluice_bus_open_client(name, NULL, &client), -ENOENT);
	EXPECT_EQ(sluice_bus_open_server(name, &create, &server), 0);
	EXPECT_EQ(sluice_bus_open_client(name, NULL, &client), 0);
	EXPECT_EQ(sluice_server_recv(server, &request, 0), -EAGAIN);
	EXPECT(request == NULL);
	EXPECT_EQ(pthread_create(&thread, NULL, answer, server), 0);
	EXPECT_EQ(sluice_client_call(client, "ping", 4, &reply, LONG), 0);
	EXPECT_EQ(reply.length, 4);
	EXPECT(!memcmp(reply.bytes, "ping", 4));
	EXPECT_EQ(sluice_client_call(client, "drop", 4, &reply, 50), -ETIMEDOUT);
	/* It was sent: -EAGAIN would ask for a repetition. */
	EXPECT_EQ(sluice_client_call(client, "drop", 4, &reply, 0), -ETIMEDOUT);
	EXPECT_EQ(sluice_client_call(client, "pong", 4, &reply, -1), 0);
	EXPECT_EQ(sluice_channel_destroy(SLUICE_KIND_BUS, name, NULL), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(sluice_client_call(client, "ping", 4, &reply, LONG), -EPIPE);
	sluice_server_close(server);
	sluice_client_close(client);
}

static void the_death_of_a_server_ends_a_call(void)
{
	const char *name = unique_name();
	struct sluice_server *server;
	struct sluice_client *client;
	struct sluice_request *request;
	struct sluice_message reply;
	struct sluice_bus_state state;
	pid_t child;

	EXPECT_EQ(sluice_bus_create(name, NULL), 0);
	EXPECT_EQ(sluice_channel_unlink(SLUICE_KIND_BUS, name, NULL), 0);
	child = fork();
	if (child == 0) {
		EXPECT_EQ(sluice_bus_open_server(name, &create, &server), 0);
		EXPECT_EQ(sluice_server_recv(server, &request, LONG), 0);
		kill(getpid(), SIGKILL);
	}
	while (sluice_bus_open_client(name, NULL, &client) < 0)
		usleep(1000);
	/* The open of the server creates the bus before it subscribes. */
	while (!sluice_client_info(client, &state) && !state.subscribers)
		usleep(1000);
	EXPECT_EQ(sluice_client_call(client, "ping", 4, &reply, LONG), -ECONNRESET);
	EXPECT_EQ(waitpid(child, NULL, 0), child);
	EXPECT_EQ(sluice_client_call(client, "ping", 4, &reply, LONG), -ENOTCONN);
	EXPECT_EQ(sluice_client_info(client, &state), 0);
	EXPECT_EQ(state.endpoint.client, 1);
	EXPECT_EQ(state.mode, SLUICE_BUS_MULTICAST);
	sluice_client_close(client);
}

static void one_endpoint_sends_and_receives(void)
{
	const char *name = unique_name();
	struct sluice_sender *sender, *attached;
	struct sluice_subscriber *subscriber;
	struct sluice_message message;
	struct sluice_bus_state sends, receives;

	EXPECT_EQ(sluice_bus_open_endpoint(name, &create, &sender, &subscriber), 0);
	EXPECT_EQ(sluice_sender_info(sender, &sends), 0);
	EXPECT_EQ(sluice_subscriber_info(subscriber, &receives), 0);
	EXPECT_EQ(sends.endpoint.id, receives.endpoint.id);
	EXPECT_EQ(sluice_sender_attach(dup(sluice_sender_fd(sender)), &attached), 0);
	EXPECT_EQ(sluice_sender_send(attached, "x", 1, 0), 0);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 0), 0);
	EXPECT_EQ(message.sender, sends.endpoint.id);
	sluice_sender_close(attached);
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
}

static void *send_later(void *sender)
{
	usleep(20 * 1000);
	EXPECT_EQ(sluice_sender_send(sender, "late", 4, LONG), 0);
	return NULL;
}

static void *receive_later(void *subscriber)
{
	struct sluice_message message;

	usleep(20 * 1000);
	while (sluice_subscriber_recv(subscriber, &message, 0) == 0)
		;
	return NULL;
}

static pthread_t start(void *(*later)(void *), void *argument)
{
	pthread_t thread;

	EXPECT_EQ(pthread_create(&thread, NULL, later, argument), 0);
	return thread;
}

/* libuv sets O_NONBLOCK of a descriptor that it polls. */
static void a_wait_without_limit_ignores_o_nonblock(void)
{
	struct sluice_bus_options options = create;
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_subscriber *subscriber;
	struct sluice_message message, messages[2];
	char buffer[8], record[512] = { 0 };
	pthread_t thread;

	options.policies = options.policy = SLUICE_POLICY_BLOCK;
	EXPECT_EQ(sluice_bus_open_subscriber(name, &options, &subscriber), 0);
	options.policy = 0;
	EXPECT_EQ(sluice_bus_open_sender(name, &options, &sender), 0);
	set_nonblocking(sluice_subscriber_fd(subscriber));
	set_nonblocking(sluice_sender_fd(sender));

	thread = start(send_later, sender);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, -1), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	thread = start(send_later, sender);
	EXPECT_EQ(sluice_subscriber_recv_into(subscriber, buffer, sizeof(buffer), NULL, -1), 4);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	thread = start(send_later, sender);
	EXPECT_EQ(sluice_subscriber_recv_batch(subscriber, messages, 2, -1), 1);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	EXPECT_EQ(sluice_subscriber_recv(subscriber, &message, 0), -EAGAIN);

	while (sluice_sender_send(sender, record, sizeof(record), 0) == 0)
		;
	thread = start(receive_later, subscriber);
	EXPECT_EQ(sluice_sender_send(sender, record, sizeof(record), -1), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
}

static void a_mapped_subscriber_ignores_o_nonblock(void)
{
	struct sluice_bus_options options = create;
	const char *name = unique_name();
	struct sluice_sender *sender;
	struct sluice_mapped_subscriber *subscriber;
	struct sluice_message message;
	pthread_t thread;

	options.policies = SLUICE_POLICY_BLOCK;
	options.flags = SLUICE_MAPPABLE;
	EXPECT_EQ(sluice_bus_open_sender(name, &options, &sender), 0);
	EXPECT_EQ(sluice_bus_open_mapped_subscriber(name, &options, &subscriber), 0);
	for (int i = 0; i < 3; i++) {
		set_nonblocking(sluice_mapped_subscriber_fd(subscriber));
		thread = start(send_later, sender);
		EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &message, -1), 0);
		EXPECT_EQ(sluice_mapped_subscriber_release(subscriber), 0);
		EXPECT_EQ(pthread_join(thread, NULL), 0);
		/* Neither does it trust the flags of its last call. */
		EXPECT_EQ(fcntl(sluice_mapped_subscriber_fd(subscriber), F_SETFL, 0), 0);
		EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &message, 0), -EAGAIN);
		EXPECT_EQ(fcntl(sluice_mapped_subscriber_fd(subscriber), F_SETFL, 0), 0);
		EXPECT_EQ(sluice_mapped_subscriber_recv(subscriber, &message, 10), -ETIMEDOUT);
	}
	sluice_mapped_subscriber_close(subscriber);
	sluice_sender_close(sender);
}

static void *request_later(void *client)
{
	struct sluice_message reply;

	usleep(20 * 1000);
	EXPECT_EQ(sluice_client_call(client, "ping", 4, &reply, LONG), 0);
	return NULL;
}

static void a_server_ignores_o_nonblock(void)
{
	const char *name = unique_name();
	struct sluice_server *server;
	struct sluice_client *client;
	struct sluice_request *request;
	pthread_t thread;

	EXPECT_EQ(sluice_bus_open_server(name, &create, &server), 0);
	EXPECT_EQ(sluice_bus_open_client(name, NULL, &client), 0);
	set_nonblocking(sluice_server_fd(server));
	thread = start(request_later, client);
	EXPECT_EQ(sluice_server_recv(server, &request, -1), 0);
	EXPECT_EQ(sluice_request_reply(request, "pong", 4, -1), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	sluice_client_close(client);
	sluice_server_close(server);
}

const struct test bus_tests[] = {
	TEST(a_message_has_the_credentials_of_its_sender),
	TEST(a_batch_is_returned_in_parts),
	TEST(losses_are_told),
	TEST(a_subscriber_that_blocks_delays_senders),
	TEST(messages_are_received_in_place),
	TEST(a_request_has_a_reply),
	TEST(the_death_of_a_server_ends_a_call),
	TEST(one_endpoint_sends_and_receives),
	TEST(a_wait_without_limit_ignores_o_nonblock),
	TEST(a_mapped_subscriber_ignores_o_nonblock),
	TEST(a_server_ignores_o_nonblock),
	{ NULL, NULL },
};
