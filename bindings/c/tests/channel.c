/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Channels of all kinds. Needs the module. */
#include "test.h"

static void channels_are_listed(void)
{
	const char *name = unique_name();
	struct sluice_channel_list *list;
	struct sluice_channel_state state;
	int found = 0, result;

	EXPECT_EQ(sluice_map_create(name, NULL), 0);
	EXPECT_EQ(sluice_bus_create(name, NULL), 0);
	EXPECT_EQ(sluice_channel_list_open(NULL, &list), 0);
	while ((result = sluice_channel_list_next(list, &state)) == 1)
		found += !strcmp(state.name, name);
	EXPECT_EQ(result, 0);
	EXPECT_EQ(sluice_channel_list_next(list, &state), 0);
	EXPECT_EQ(found, 2);
	sluice_channel_list_close(list);

	EXPECT_EQ(sluice_channel_query(SLUICE_KIND_MAP, name, NULL, &state), 0);
	EXPECT_EQ(state.kind, SLUICE_KIND_MAP);
	EXPECT_EQ(state.permissions, 0600);
	EXPECT_EQ(state.uid, getuid());
	EXPECT_EQ(state.persistent, 1);
	EXPECT_EQ(sluice_channel_unlink(SLUICE_KIND_MAP, name, NULL), 0);
	EXPECT_EQ(sluice_channel_unlink(SLUICE_KIND_MAP, name, NULL), -ENOENT);
	EXPECT_EQ(sluice_channel_destroy(SLUICE_KIND_BUS, name, NULL), 0);
	EXPECT_EQ(sluice_channel_query(99, name, NULL, &state), -EINVAL);
}

/* The directory of the cgroup of this process. */
static const char *own_directory(void)
{
	static char path[4096];
	FILE *file = fopen("/proc/self/cgroup", "r");
	char line[4000];

	EXPECT(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "0::", 3))
			snprintf(path, sizeof(path), "/sys/fs/cgroup%.3900s", strtok(line + 3, "\n"));
	fclose(file);
	return path;
}

static void a_scope_is_the_directory_of_a_cgroup(void)
{
	struct sluice_map_options options = SLUICE_MAP_OPTIONS_INIT;
	const char *name = unique_name();
	struct sluice_map *map;
	struct sluice_map_state state;

	options.channel = (struct sluice_channel){ .scope = own_directory(), .flags = SLUICE_CREATE, .permissions = 0640 };
	EXPECT_EQ(sluice_map_open(name, &options, &map), 0);
	EXPECT_EQ(sluice_map_query(name, NULL, &state), 0);
	EXPECT_EQ(sluice_map_query(name, "/proc/self/status", &state), -EBADF);
	EXPECT_EQ(sluice_map_query(name, "/proc", &state), -EBADF);
	EXPECT_EQ(sluice_map_query(name, "/nowhere", &state), -ENOENT);
	sluice_map_close(map);
}

static void the_module_has_all_kinds(void)
{
	EXPECT(sluice_module_version() > 0);
	for (uint32_t kind = SLUICE_KIND_PIPE; kind <= SLUICE_KIND_MAP; kind++)
		EXPECT_EQ(sluice_module_has_kind(kind), 1);
	EXPECT_EQ(sluice_module_has_kind(63), 0);
	EXPECT_EQ(sluice_module_has_kind(UINT32_MAX), 0);
}

const struct test channel_tests[] = {
	TEST(channels_are_listed),
	TEST(a_scope_is_the_directory_of_a_cgroup),
	TEST(the_module_has_all_kinds),
	{ NULL, NULL },
};
