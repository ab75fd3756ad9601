/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Maps. Needs the module. */
#include <poll.h>
#include <pthread.h>

#include "test.h"

static const struct sluice_map_options create = {
	.size = sizeof(create),
	.channel = { .flags = SLUICE_CREATE },
};

static struct sluice_map *open_map(void)
{
	struct sluice_map *map;

	EXPECT_EQ(sluice_map_open(unique_name(), &create, &map), 0);
	return map;
}

static int set(const struct sluice_map *map, const char *key, const char *value)
{
	return sluice_map_set(map, key, strlen(key), value, strlen(value), NULL, NULL);
}

static void entries_are_set_got_and_deleted(void)
{
	struct sluice_map *map = open_map();
	struct sluice_entry entry;
	struct sluice_map_state state;
	char buffer[16];
	uint64_t version, number;

	EXPECT_EQ(sluice_map_get(map, "key", 3, buffer, sizeof(buffer), NULL), -ENOENT);
	EXPECT_EQ(sluice_map_set(map, "key", 3, "value", 5, NULL, &version), 1);
	EXPECT_EQ(sluice_map_get(map, "key", 3, buffer, sizeof(buffer), &entry), 5);
	EXPECT(!memcmp(buffer, "value", 5));
	EXPECT_EQ(entry.version, version);
	EXPECT_EQ(entry.value_length, 5);
	EXPECT_EQ(entry.time_to_live_ns, 0);
	EXPECT_EQ(sluice_map_get(map, "key", 3, buffer, 4, &entry), -EMSGSIZE);
	EXPECT_EQ(entry.value_length, 5);
	EXPECT_EQ(set(map, "key", ""), 0);
	EXPECT_EQ(sluice_map_get(map, "key", 3, NULL, 0, NULL), 0);
	EXPECT_EQ(sluice_map_info(map, &state), 0);
	EXPECT_EQ(state.entries, 1);
	EXPECT_EQ(state.durability, SLUICE_VOLATILE);
	EXPECT_EQ(sluice_map_delete(map, "key", 3, NULL, &number), 1);
	EXPECT_EQ(number, version + 2);
	EXPECT_EQ(sluice_map_delete(map, "key", 3, NULL, NULL), 0);
	EXPECT_EQ(sluice_map_get(map, "", 0, buffer, sizeof(buffer), NULL), -EINVAL);
	EXPECT_EQ(sluice_map_sync(map, 0, NULL), -EOPNOTSUPP);
	sluice_map_close(map);
}

static void a_change_requires_a_version(void)
{
	struct sluice_map *map = open_map();
	struct sluice_change_options options = SLUICE_CHANGE_OPTIONS_INIT;
	uint64_t version, found;

	options.flags = SLUICE_IF_VERSION;
	EXPECT_EQ(sluice_map_set(map, "key", 3, "1", 1, &options, &version), 1);
	EXPECT_EQ(sluice_map_set(map, "key", 3, "2", 1, &options, NULL), -EEXIST);
	options.version = version;
	EXPECT_EQ(sluice_map_set(map, "key", 3, "2", 1, &options, NULL), 0);
	EXPECT_EQ(sluice_map_set(map, "key", 3, "3", 1, &options, &found), -ESTALE);
	EXPECT_EQ(found, version + 1);
	EXPECT_EQ(sluice_map_delete(map, "key", 3, &options, &found), -ESTALE);
	options.version = found;
	EXPECT_EQ(sluice_map_delete(map, "key", 3, &options, NULL), 1);
	EXPECT_EQ(sluice_map_set(map, "key", 3, "4", 1, &options, NULL), -ENOENT);
	options.time_to_live_ns = 1;
	EXPECT_EQ(sluice_map_delete(map, "key", 3, &options, NULL), -EINVAL);
	sluice_map_close(map);
}

static void an_entry_expires(void)
{
	struct sluice_map *map = open_map();
	struct sluice_change_options options = SLUICE_CHANGE_OPTIONS_INIT;
	struct sluice_entry entry;
	char buffer[8];

	options.time_to_live_ns = 3600000000000;
	EXPECT_EQ(sluice_map_set(map, "key", 3, "1", 1, &options, NULL), 1);
	EXPECT_EQ(sluice_map_get(map, "key", 3, buffer, sizeof(buffer), &entry), 1);
	EXPECT(entry.time_to_live_ns > 0 && entry.time_to_live_ns <= options.time_to_live_ns);
	options.time_to_live_ns = 1;
	EXPECT_EQ(sluice_map_set(map, "key", 3, "1", 1, &options, NULL), 0);
	usleep(1000);
	EXPECT_EQ(sluice_map_get(map, "key", 3, buffer, sizeof(buffer), &entry), -ENOENT);
	sluice_map_close(map);
}

static void a_batch_has_a_result_for_each_operation(void)
{
	struct sluice_map *map = open_map();
	char first[8], second[2];
	struct sluice_operation operations[] = {
		{ .action = SLUICE_SET, .key = "a", .key_length = 1, .value = "value", .value_length = 5 },
		{ .action = SLUICE_GET, .key = "a", .key_length = 1, .buffer = first, .buffer_size = sizeof(first) },
		{ .action = SLUICE_GET, .key = "a", .key_length = 1, .buffer = second, .buffer_size = sizeof(second) },
		{ .action = SLUICE_SET, .flags = SLUICE_IF_VERSION, .key = "a", .key_length = 1, .version = 99 },
		{ .action = SLUICE_DELETE, .key = "a", .key_length = 1 },
		{ .action = SLUICE_DELETE, .key = "a", .key_length = 1 },
		{ .action = SLUICE_GET, .key = "a", .key_length = 1, .buffer = first, .buffer_size = sizeof(first) },
	};

	EXPECT_EQ(sluice_map_batch(map, operations, 7), 3);
	EXPECT_EQ(operations[0].result, 1);
	EXPECT_EQ(operations[1].result, 5);
	EXPECT(!memcmp(first, "value", 5));
	EXPECT_EQ(operations[1].version, operations[0].version);
	EXPECT_EQ(operations[2].result, -EMSGSIZE);
	EXPECT_EQ(operations[2].value_length, 5);
	EXPECT_EQ(operations[3].result, -ESTALE);
	EXPECT_EQ(operations[3].version, operations[0].version);
	EXPECT_EQ(operations[4].result, 1);
	EXPECT_EQ(operations[5].result, 0);
	EXPECT_EQ(operations[6].result, -ENOENT);
	operations[6].action = 4;
	EXPECT_EQ(sluice_map_batch(map, operations, 7), -EINVAL);
	operations[6].action = SLUICE_GET;
	operations[6].reserved[1] = 1;
	EXPECT_EQ(sluice_map_batch(map, operations, 7), -EINVAL);
	EXPECT_EQ(sluice_map_batch(map, NULL, 0), 0);
	sluice_map_close(map);
}

static void an_iteration_outlives_its_map(void)
{
	struct sluice_map *map = open_map();
	struct sluice_entries *entries, *keys;
	struct sluice_entry entry;
	int count = 0;
	char key[16];

	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "key %d", i);
		EXPECT_EQ(set(map, key, key), 1);
	}
	EXPECT_EQ(sluice_map_iterate(map, 0, &entries), 0);
	EXPECT_EQ(sluice_map_iterate(map, SLUICE_KEYS_ONLY, &keys), 0);
	sluice_map_close(map);
	for (; sluice_entries_next(entries, &entry) == 1; count++) {
		EXPECT_EQ(entry.key_length, entry.value_length);
		EXPECT(!memcmp(entry.key, entry.value, entry.key_length));
		EXPECT(entry.version > 0);
	}
	EXPECT_EQ(count, 1000);
	EXPECT_EQ(sluice_entries_next(entries, &entry), 0);
	for (count = 0; sluice_entries_next(keys, &entry) == 1; count++)
		EXPECT(entry.value == NULL && entry.value_length == entry.key_length);
	EXPECT_EQ(count, 1000);
	sluice_entries_close(entries);
	sluice_entries_close(keys);
}

static void a_watcher_receives_changes(void)
{
	struct sluice_map *map = open_map();
	struct sluice_watcher *watcher, *second;
	struct sluice_event event;
	struct pollfd asked;

	EXPECT_EQ(set(map, "a", "1"), 1);
	EXPECT_EQ(sluice_map_watch(map, SLUICE_WATCH_NOW, &watcher), 0);
	EXPECT_EQ(sluice_map_watch(map, 0, &second), -EBUSY);
	EXPECT_EQ(sluice_watcher_since(watcher), 1);
	EXPECT_EQ(sluice_watcher_recv(watcher, &event, 0), -EAGAIN);
	EXPECT_EQ(sluice_watcher_recv(watcher, &event, 10), -ETIMEDOUT);
	EXPECT_EQ(set(map, "a", "2"), 0);
	EXPECT_EQ(sluice_map_delete(map, "a", 1, NULL, NULL), 1);
	asked = (struct pollfd){ .fd = sluice_watcher_fd(watcher), .events = POLLIN };
	EXPECT_EQ(poll(&asked, 1, LONG), 1);
	EXPECT_EQ(sluice_watcher_recv(watcher, &event, LONG), 0);
	EXPECT_EQ(event.change, SLUICE_MAP_UPDATED);
	EXPECT_EQ(event.key_length, 1);
	EXPECT(!memcmp(event.key, "a", 1));
	EXPECT_EQ(event.sequence, 2);
	EXPECT_EQ(sluice_watcher_recv(watcher, &event, 0), 0);
	EXPECT_EQ(event.change, SLUICE_MAP_DELETED);
	sluice_watcher_close(watcher);
	EXPECT_EQ(sluice_map_watch(map, 0, &watcher), 0);
	sluice_map_close(map);
	EXPECT_EQ(sluice_watcher_recv(watcher, &event, LONG), 0);
	EXPECT_EQ(event.change, SLUICE_MAP_CREATED);
	sluice_watcher_close(watcher);
}

static void *set_later(void *map)
{
	usleep(20 * 1000);
	EXPECT_EQ(set(map, "late", "1"), 1);
	return NULL;
}

/* libuv sets O_NONBLOCK of a descriptor that it polls. */
static void a_watch_without_limit_ignores_o_nonblock(void)
{
	struct sluice_map *map = open_map();
	struct sluice_watcher *watcher;
	struct sluice_event event;
	pthread_t thread;

	EXPECT_EQ(sluice_map_watch(map, SLUICE_WATCH_NOW, &watcher), 0);
	set_nonblocking(sluice_watcher_fd(watcher));
	EXPECT_EQ(pthread_create(&thread, NULL, set_later, map), 0);
	EXPECT_EQ(sluice_watcher_recv(watcher, &event, -1), 0);
	EXPECT_EQ(pthread_join(thread, NULL), 0);
	sluice_watcher_close(watcher);
	sluice_map_close(map);
}

static void access_is_that_of_the_open(void)
{
	const char *name = unique_name();
	struct sluice_map *map = open_map(), *reader, *writer, *attached;
	struct sluice_map_state state;
	char buffer[8];

	EXPECT_EQ(sluice_map_open_reader(name, NULL, &reader), 0);
	EXPECT_EQ(sluice_map_open_writer(name, NULL, &writer), 0);
	EXPECT_EQ(set(reader, "a", "1"), -EBADF);
	EXPECT_EQ(set(writer, "a", "1"), 1);
	EXPECT_EQ(sluice_map_get(writer, "a", 1, buffer, sizeof(buffer), NULL), -EBADF);
	EXPECT_EQ(sluice_map_get(reader, "a", 1, buffer, sizeof(buffer), NULL), 1);
	EXPECT_EQ(sluice_map_attach(dup(sluice_map_fd(reader)), &attached), 0);
	EXPECT_EQ(sluice_map_get(attached, "a", 1, buffer, sizeof(buffer), NULL), 1);
	EXPECT_EQ(sluice_map_query(name, NULL, &state), 0);
	EXPECT_EQ(state.entries, 1);
	EXPECT_EQ(sluice_channel_destroy(SLUICE_KIND_MAP, name, NULL), 0);
	EXPECT_EQ(sluice_map_get(reader, "a", 1, buffer, sizeof(buffer), NULL), -EPIPE);
	sluice_map_close(attached);
	sluice_map_close(reader);
	sluice_map_close(writer);
	sluice_map_close(map);
}

const struct test map_tests[] = {
	TEST(entries_are_set_got_and_deleted),
	TEST(a_change_requires_a_version),
	TEST(an_entry_expires),
	TEST(a_batch_has_a_result_for_each_operation),
	TEST(an_iteration_outlives_its_map),
	TEST(a_watcher_receives_changes),
	TEST(a_watch_without_limit_ignores_o_nonblock),
	TEST(access_is_that_of_the_open),
	{ NULL, NULL },
};
