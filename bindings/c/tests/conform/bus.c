/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An endpoint of a bus: a sender, a subscriber or both, a client, or a server. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "peer.h"

static struct sluice_sender *sender;
static struct sluice_subscriber *subscriber;
static struct sluice_mapped_subscriber *mapped;
static struct sluice_client *client;
static struct sluice_server *server;
/* The server's last request, unless it has a reply. */
static struct sluice_request *request;
/* The last message, without its bytes. */
static struct sluice_message last;

static uint32_t policies_of(const char *names)
{
	uint32_t policies = 0;

	if (names && strstr(names, "drop"))
		policies |= SLUICE_POLICY_DROP;
	if (names && strstr(names, "block"))
		policies |= SLUICE_POLICY_BLOCK;
	if (names && strstr(names, "evict"))
		policies |= SLUICE_POLICY_EVICT;
	return policies;
}

static uint32_t mode_of(const char *name)
{
	if (name && !strcmp(name, "multicast"))
		return SLUICE_BUS_MULTICAST;
	return name && !strcmp(name, "unicast") ? SLUICE_BUS_UNICAST : SLUICE_BUS_BROADCAST;
}

int bus_open(const char *name, const char *side, const struct command *command)
{
	struct sluice_bus_options options = SLUICE_BUS_OPTIONS_INIT;

	options.channel = channel_of(command);
	options.mode = mode_of(setting(command, "mode"));
	options.policies = policies_of(setting(command, "policies"));
	options.policy = policies_of(setting(command, "policy"));
	options.limit = setting_number(command, "limit");
	options.flags = has_setting(command, "mappable") ? SLUICE_MAPPABLE : 0;
	if (!strcmp(side, "sender"))
		return sluice_bus_open_sender(name, &options, &sender);
	if (!strcmp(side, "subscriber"))
		return sluice_bus_open_subscriber(name, &options, &subscriber);
	if (!strcmp(side, "endpoint"))
		return sluice_bus_open_endpoint(name, &options, &sender, &subscriber);
	if (!strcmp(side, "mapped"))
		return sluice_bus_open_mapped_subscriber(name, &options, &mapped);
	if (!strcmp(side, "client"))
		return sluice_bus_open_client(name, &options, &client);
	if (!strcmp(side, "server"))
		return sluice_bus_open_server(name, &options, &server);
	return 1;
}

void bus_close(void)
{
	sluice_sender_close(sender);
	sluice_subscriber_close(subscriber);
	sluice_mapped_subscriber_close(mapped);
	sluice_client_close(client);
	sluice_request_drop(request);
	sluice_server_close(server);
	sender = NULL;
	subscriber = NULL;
	mapped = NULL;
	client = NULL;
	request = NULL;
	server = NULL;
}

static void print_sent(int returned)
{
	if (returned < 0)
		print_failure(returned, "full");
	else
		printf("ok");
}

/* Without waiting. */
static void send_batch(const void *message, size_t length, uint64_t count)
{
	for (uint64_t sent = 0; sent < count; sent++) {
		int returned = sluice_sender_send(sender, message, length, 0);

		if (returned < 0) {
			printf("sent %" PRIu64 " ", sent);
			print_sent(returned);
			return;
		}
	}
	printf("sent %" PRIu64, count);
}

static int execute_send(const struct command *command)
{
	const char *verb = command->words[0];
	int is_addressed = !strcmp(verb, "send-to"), is_batch = !strcmp(verb, "batch");
	unsigned char *message;
	size_t length;

	if (!is_addressed && !is_batch && strcmp(verb, "send"))
		return 0;
	message = bytes_of(word_of(command, is_addressed ? 2 : 1), &length);
	if (is_addressed)
		print_sent(sluice_sender_send_to(sender, number_of(command, 1), message, length, 0));
	else if (is_batch)
		send_batch(message, length, number_of(command, 2));
	else
		print_sent(sluice_sender_send(sender, message, length, time_of(command, 2)));
	free(message);
	return 1;
}

static void print_message(int returned, const void *bytes, size_t length)
{
	if (returned < 0) {
		print_failure(returned, "empty");
		return;
	}
	printf("message ");
	print_word(bytes, length);
	if (last.lost)
		printf(" lost %" PRIu64, last.lost);
}

static void receive_into(size_t size)
{
	unsigned char *buffer = malloc(size ? size : 1);
	ssize_t length = sluice_subscriber_recv_into(subscriber, buffer, size, &last, -1);
	int available;

	if (length == -EMSGSIZE && !ioctl(sluice_subscriber_fd(subscriber), FIONREAD, &available))
		printf("too-small %d", available);
	else
		print_message(length, buffer, length);
	free(buffer);
}

/* So many, or those that there are. */
static void receive_many(uint64_t count, int timeout)
{
	uint64_t received, lost = 0;

	for (received = 0; received < count; received++) {
		int returned = sluice_subscriber_recv(subscriber, &last, timeout);

		if (returned == -EAGAIN)
			break;
		if (returned < 0) {
			print_failure(returned, "empty");
			return;
		}
		lost += last.lost;
	}
	printf("received %" PRIu64, received);
	if (lost)
		printf(" lost %" PRIu64 " of %" PRIu64, lost, received + lost);
}

static int execute_receive(const struct command *command)
{
	const char *verb = command->words[0];

	if (!strcmp(verb, "recv")) {
		int returned = sluice_subscriber_recv(subscriber, &last, time_of(command, 1));

		print_message(returned, last.bytes, last.length);
	} else if (!strcmp(verb, "recv-into")) {
		receive_into(number_of(command, 1));
	} else if (!strcmp(verb, "take")) {
		receive_many(number_of(command, 1), -1);
	} else if (!strcmp(verb, "drain")) {
		receive_many(UINT64_MAX, 0);
	} else if (!strcmp(verb, "from")) {
		printf("%" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32, last.sender, last.pid, last.uid, last.gid);
	} else {
		return 0;
	}
	return 1;
}

static void receive_in_place(int timeout)
{
	int returned = sluice_mapped_subscriber_recv(mapped, &last, timeout);

	print_message(returned, last.bytes, last.length);
	if (returned == 0)
		sluice_mapped_subscriber_release(mapped);
}

static void print_own_credentials(void)
{
	struct sluice_bus_state state;
	int returned = sender ? sluice_sender_info(sender, &state) : sluice_subscriber_info(subscriber, &state);

	if (returned < 0)
		print_refusal(returned);
	else
		printf("%" PRIu64 " %d %d %d", state.endpoint.id, (int)getpid(), (int)geteuid(), (int)getegid());
}

static void call(const struct command *command)
{
	struct sluice_message reply;
	size_t length;
	unsigned char *message = bytes_of(word_of(command, 1), &length);
	int returned = sluice_client_call(client, message, length, &reply, time_of(command, 2));

	if (returned < 0) {
		print_failure(returned, "full");
	} else {
		printf("reply ");
		print_word(reply.bytes, reply.length);
		}
	free(message);
}

static void receive_request(int timeout)
{
	struct sluice_message message;
	int returned;

	sluice_request_drop(request);
	returned = sluice_server_recv(server, &request, timeout);
	if (returned < 0) {
		print_failure(returned, "empty");
		return;
	}
	sluice_request_message(request, &message);
	printf("request ");
	print_word(message.bytes, message.length);
}

static void reply(const char *word)
{
	size_t length;
	unsigned char *message = bytes_of(word, &length);

	print_sent(sluice_request_reply(request, message, length, -1));
	request = NULL;
	free(message);
}

int bus_execute(const struct command *command)
{
	const char *verb = command->words[0];

	if ((sender || subscriber) && !strcmp(verb, "whoami"))
		print_own_credentials();
	else if (mapped && !strcmp(verb, "recv"))
		receive_in_place(time_of(command, 1));
	else if (mapped && !strcmp(verb, "release"))
		print_sent(sluice_mapped_subscriber_flush(mapped));
	else if (client && !strcmp(verb, "call"))
		call(command);
	else if (server && !strcmp(verb, "request"))
		receive_request(time_of(command, 1));
	else if (request && !strcmp(verb, "reply"))
		reply(word_of(command, 1));
	else
		return (sender && execute_send(command)) || (subscriber && execute_receive(command));
	return 1;
}
