/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer for sluice-conform, which docs/abi/conformance.md describes: commands in, results out. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define TABLE_SIZE (1 << 18)
#define LONGEST_WORD 64

static unsigned char table[TABLE_SIZE];

const char *word_of(const struct command *command, int place)
{
	return place < command->count ? command->words[place] : "";
}

uint64_t number_of(const struct command *command, int place)
{
	return strtoull(word_of(command, place), NULL, 10);
}

int time_of(const struct command *command, int place)
{
	return place < command->count ? (int)number_of(command, place) : -1;
}

int has_setting(const struct command *command, const char *name)
{
	for (int i = 2; i < command->count; i++)
		if (!strcmp(command->words[i], name))
			return 1;
	return 0;
}

const char *setting(const struct command *command, const char *name)
{
	size_t length = strlen(name);

	for (int i = 2; i < command->count; i++)
		if (!strncmp(command->words[i], name, length) && command->words[i][length] == '=')
			return command->words[i] + length + 1;
	return NULL;
}

uint64_t setting_number(const struct command *command, const char *name)
{
	const char *text = setting(command, name);

	return text ? strtoull(text, NULL, 10) : 0;
}

struct sluice_channel channel_of(const struct command *command)
{
	return (struct sluice_channel){
		.capacity = setting_number(command, "capacity"),
		.flags = (has_setting(command, "create") ? SLUICE_CREATE : 0) |
			 (has_setting(command, "exclusive") ? SLUICE_EXCLUSIVE : 0) |
			 (has_setting(command, "persistent") ? SLUICE_PERSISTENT : 0),
	};
}

unsigned char *bytes_of(const char *word, size_t *length)
{
	unsigned char *bytes;

	if (word[0] != '#') {
		*length = strlen(word);
		return (unsigned char *)strdup(word);
	}
	*length = strtoull(word + 1, NULL, 10);
	bytes = malloc(*length + 1);
	for (size_t i = 0; i < *length; i++)
		bytes[i] = table[i % TABLE_SIZE];
	return bytes;
}

static int is_text(const unsigned char *bytes, size_t length)
{
	if (!length || length > LONGEST_WORD || bytes[0] == '#')
		return 0;
	for (size_t i = 0; i < length; i++)
		if (bytes[i] <= ' ' || bytes[i] > '~')
			return 0;
	return 1;
}

void write_word(FILE *out, const void *start, size_t length)
{
	const unsigned char *bytes = start;
	size_t place = 0;

	if (is_text(bytes, length)) {
		fwrite(bytes, length, 1, out);
		return;
	}
	while (place < length && bytes[place] == table[place % TABLE_SIZE])
		place++;
	if (place == length)
		fprintf(out, "#%zu", length);
	else
		fprintf(out, "wrong");
}

void print_word(const void *bytes, size_t length)
{
	write_word(stdout, bytes, length);
}

const unsigned char *content(uint64_t number, size_t length)
{
	uint64_t start = number * 17 % 8191;

	return start + length <= TABLE_SIZE ? table + start : NULL;
}

void print_failure(int returned, const char *again)
{
	if (returned == -EAGAIN)
		printf("%s", again);
	else if (returned == -ETIMEDOUT)
		printf("timeout");
	else if (returned == -EMSGSIZE)
		printf("too-long");
	else
		print_refusal(returned);
}

void print_refusal(int returned)
{
	printf("refused %s", strerrorname_np(-returned));
}

static void print_done(int returned)
{
	if (returned < 0)
		print_refusal(returned);
	else
		printf(returned ? "unsupported" : "ok");
}

static int open_endpoint(const struct command *command)
{
	const char *name = word_of(command, 1), *side = word_of(command, 2);
	int returned = ring_open(name, side, command);

	if (returned == 1)
		returned = bus_open(name, side, command);
	if (returned == 1)
		returned = map_open(name, side, command);
	if (returned == 1)
		returned = pipe_open(name, side, command);
	return returned == 1 ? feed_open(name, side) : returned;
}

static int remove_channel(const struct command *command)
{
	static const struct {
		const char *name;
		uint32_t kind;
	} kinds[] = {
		{ "pipe", SLUICE_KIND_PIPE },
		{ "ring", SLUICE_KIND_RING },
		{ "bus", SLUICE_KIND_BUS },
		{ "map", SLUICE_KIND_MAP },
	};
	const char *name = word_of(command, 2);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(word_of(command, 1), kinds[i].name))
			continue;
		if (command->words[0][0] == 'u')
			return sluice_channel_unlink(kinds[i].kind, name, NULL);
		return sluice_channel_destroy(kinds[i].kind, name, NULL);
	}
	return 1;
}

static void leave(int aborts)
{
	ring_close(aborts);
	bus_close();
	map_close();
	pipe_close();
	feed_close();
	printf("ok");
}

static void execute(const struct command *command)
{
	const char *verb = command->words[0];

	if (!strcmp(verb, "open"))
		print_done(open_endpoint(command));
	else if (!strcmp(verb, "unlink") || !strcmp(verb, "destroy"))
		print_done(remove_channel(command));
	else if (!strcmp(verb, "close") || !strcmp(verb, "abort"))
		leave(verb[0] == 'a');
	else if (!ring_execute(command) && !bus_execute(command) && !map_execute(command) && !pipe_execute(command) &&
		 !feed_execute(command))
		printf("unsupported");
}

int main(void)
{
	char line[4096];

	/* A write to a pipe without a reader has a result. */
	signal(SIGPIPE, SIG_IGN);
	for (uint64_t place = 0; place < TABLE_SIZE; place++)
		table[place] = place * 2654435761 >> 16;
	while (fgets(line, sizeof(line), stdin)) {
		struct command command = { .count = 0 };
		char *rest = line, *word;

		while (command.count < 64 && (word = strtok_r(command.count ? NULL : line, " \n", &rest)))
			command.words[command.count++] = word;
		if (command.count)
			execute(&command);
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
