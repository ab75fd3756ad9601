/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An endpoint of a map, with its watcher. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define VALUE_MAX (1 << 20)
#define ENTRIES_MAX 64
/* For the value of each operation of a batch. */
#define BATCH_ROOM 64

static struct sluice_map *map;
static struct sluice_watcher *watcher;

int map_open(const char *name, const char *side, const struct command *command)
{
	struct sluice_map_options options = SLUICE_MAP_OPTIONS_INIT;

	options.channel = channel_of(command);
	options.entries = setting_number(command, "entries");
	options.events = setting_number(command, "events");
	if (has_setting(command, "durable"))
		options.durability = setting(command, "interval") ? SLUICE_DURABLE_INTERVAL : SLUICE_DURABLE;
	options.interval_ms = setting_number(command, "interval");
	options.deadline_ms = setting_number(command, "deadline");
	if (!strcmp(side, "map"))
		return sluice_map_open(name, &options, &map);
	if (!strcmp(side, "reader"))
		return sluice_map_open_reader(name, &options, &map);
	if (!strcmp(side, "writer"))
		return sluice_map_open_writer(name, &options, &map);
	return 1;
}

void map_close(void)
{
	sluice_watcher_close(watcher);
	sluice_map_close(map);
	watcher = NULL;
	map = NULL;
}

static void print_got(ssize_t returned, const void *value, size_t length, uint64_t version, uint64_t time_to_live)
{
	if (returned == -ENOENT) {
		printf("none");
	} else if (returned == -EMSGSIZE) {
		printf("too-small %zu", length);
	} else if (returned < 0) {
		print_failure(returned, "full");
	} else {
		printf("value ");
		print_word(value, returned);
		printf(" %" PRIu64 "%s", version, time_to_live ? " expires" : "");
	}
}

static void print_set(int returned, uint64_t version)
{
	if (returned >= 0)
		printf("%s %" PRIu64, returned ? "created" : "updated", version);
	else
		print_failure(returned, "full");
	if (returned == -ESTALE)
		printf(" %" PRIu64, version);
}

static void print_deleted(int returned, uint64_t number)
{
	if (returned == 0)
		printf("none");
	else if (returned > 0)
		printf("deleted %" PRIu64, number);
	else
		print_set(returned, number);
}

static void get(const char *word, size_t room)
{
	struct sluice_entry entry;
	size_t length;
	unsigned char *key = bytes_of(word, &length), *value = malloc(room + 1);
	ssize_t returned = sluice_map_get(map, key, length, value, room, &entry);

	print_got(returned, value, entry.value_length, entry.version, entry.time_to_live_ns);
	free(value);
	free(key);
}

static void change(const struct command *command, int is_set)
{
	struct sluice_change_options options = SLUICE_CHANGE_OPTIONS_INIT;
	size_t key_length, value_length;
	unsigned char *key = bytes_of(word_of(command, 1), &key_length);
	unsigned char *value = bytes_of(word_of(command, 2), &value_length);
	uint64_t version = 0;
	int returned;

	options.flags = (has_setting(command, "nowait") ? SLUICE_NOWAIT : 0) | (setting(command, "if") ? SLUICE_IF_VERSION : 0);
	options.version = setting_number(command, "if");
	options.time_to_live_ns = setting_number(command, "ttl") * 1000000;
	if (is_set) {
		returned = sluice_map_set(map, key, key_length, value, value_length, &options, &version);
		print_set(returned, version);
	} else {
		returned = sluice_map_delete(map, key, key_length, &options, &version);
		print_deleted(returned, version);
	}
	free(value);
	free(key);
}

/* The keys are numbers. */
static void fill(uint64_t count, const char *word)
{
	size_t length;
	unsigned char *value = bytes_of(word, &length);
	int returned = 0;
	uint64_t done;

	for (done = 0; done < count && returned >= 0; done++) {
		char key[24];
		int key_length = snprintf(key, sizeof(key), "%" PRIu64, done);

		returned = sluice_map_set(map, key, key_length, value, length, NULL, NULL);
	}
	if (returned < 0) {
		printf("set %" PRIu64 " ", done - 1);
		print_set(returned, 0);
	} else {
		printf("set %" PRIu64, done);
	}
	free(value);
}

static int compare(const void *first, const void *second)
{
	return strcmp(*(char *const *)first, *(char *const *)second);
}

/* An entry as a word, to be freed. */
static char *text_of(const struct sluice_entry *entry)
{
	char *text;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	fprintf(out, " ");
	write_word(out, entry->key, entry->key_length);
	fprintf(out, "=");
	write_word(out, entry->value, entry->value_length);
	fclose(out);
	return text;
}

static void dump(void)
{
	struct sluice_entries *entries;
	struct sluice_entry entry;
	char *texts[ENTRIES_MAX];
	int count = 0, returned = sluice_map_iterate(map, 0, &entries);

	while (returned >= 0 && count < ENTRIES_MAX && (returned = sluice_entries_next(entries, &entry)) == 1)
		texts[count++] = text_of(&entry);
	sluice_entries_close(entries);
	qsort(texts, count, sizeof(texts[0]), compare);
	if (returned < 0)
		print_failure(returned, "full");
	else
		printf("entries");
	for (int i = 0; i < count; i++) {
		printf("%s", texts[i]);
		free(texts[i]);
	}
}

static void count_entries(void)
{
	struct sluice_entries *entries;
	struct sluice_entry entry;
	int count = 0, returned = sluice_map_iterate(map, SLUICE_KEYS_ONLY, &entries);

	while (returned >= 0 && (returned = sluice_entries_next(entries, &entry)) == 1)
		count++;
	sluice_entries_close(entries);
	if (returned < 0)
		print_failure(returned, "full");
	else
		printf("entries %d", count);
}

/* Of a word such as set:KEY:VALUE:VERSION. */
static struct sluice_operation operation_of(char *word, void *buffer)
{
	struct sluice_operation operation = { .buffer = buffer, .buffer_size = buffer ? BATCH_ROOM : 0 };
	char *rest, *action = strtok_r(word, ":", &rest), *value, *version;

	operation.action = !strcmp(action, "get") ? SLUICE_GET : !strcmp(action, "set") ? SLUICE_SET : SLUICE_DELETE;
	operation.key = strtok_r(NULL, ":", &rest);
	operation.key_length = strlen(operation.key);
	value = strtok_r(NULL, ":", &rest);
	version = strtok_r(NULL, ":", &rest);
	if (value) {
		operation.value = value;
		operation.value_length = strlen(value);
	}
	if (version) {
		operation.flags = SLUICE_IF_VERSION;
		operation.version = strtoull(version, NULL, 10);
	}
	return operation;
}

static void batch(const struct command *command)
{
	struct sluice_operation operations[64];
	static char buffers[64][BATCH_ROOM];
	int count = command->count - 1;

	for (int i = 0; i < count; i++)
		operations[i] = operation_of(command->words[i + 1], buffers[i]);
	sluice_map_batch(map, operations, count);
	for (int i = 0; i < count; i++) {
		const struct sluice_operation *done = &operations[i];

		if (i)
			printf(" ; ");
		if (done->action == SLUICE_GET)
			print_got(done->result, done->buffer, done->value_length, done->version, done->time_to_live_ns);
		else if (done->action == SLUICE_SET)
			print_set(done->result, done->version);
		else
			print_deleted(done->result, done->version);
	}
}

static void sync_to(const char *number)
{
	uint64_t stored;
	int returned = sluice_map_sync(map, strcmp(number, "now") ? strtoull(number, NULL, 10) : 0, &stored);

	if (returned < 0)
		print_failure(returned, "full");
	else
		printf("stored %" PRIu64, stored);
}

static void watch(const char *after)
{
	int returned;

	sluice_watcher_close(watcher);
	returned = sluice_map_watch(map, strcmp(after, "now") ? strtoull(after, NULL, 10) : SLUICE_WATCH_NOW, &watcher);
	if (returned < 0)
		print_refusal(returned);
	else
		printf("watching %" PRIu64, sluice_watcher_since(watcher));
}

static void receive_event(int timeout)
{
	static const char *const changes[] = { "?", "created", "updated", "deleted", "expired" };
	struct sluice_event event;
	int returned = sluice_watcher_recv(watcher, &event, timeout);

	if (returned < 0) {
		print_failure(returned, "empty");
		return;
	}
	printf("%s ", event.change <= SLUICE_MAP_EXPIRED ? changes[event.change] : changes[0]);
	print_word(event.key, event.key_length);
	printf(" %" PRIu64 " %" PRIu64, event.sequence, event.version);
	if (event.missed)
		printf(" missed %" PRIu64, event.missed);
}

int map_execute(const struct command *command)
{
	const char *verb = command->words[0];

	if (!map)
		return 0;
	if (!strcmp(verb, "get"))
		get(word_of(command, 1), VALUE_MAX);
	else if (!strcmp(verb, "get-into"))
		get(word_of(command, 1), number_of(command, 2));
	else if (!strcmp(verb, "set") || !strcmp(verb, "delete"))
		change(command, verb[0] == 's');
	else if (!strcmp(verb, "fill"))
		fill(number_of(command, 1), word_of(command, 2));
	else if (!strcmp(verb, "dump"))
		dump();
	else if (!strcmp(verb, "count"))
		count_entries();
	else if (!strcmp(verb, "batch"))
		batch(command);
	else if (!strcmp(verb, "sync"))
		sync_to(word_of(command, 1));
	else if (!strcmp(verb, "watch"))
		watch(word_of(command, 1));
	else if (watcher && !strcmp(verb, "event"))
		receive_event(time_of(command, 1));
	else
		return 0;
	return 1;
}
