/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pipes. Needs the module. */
#include "test.h"

static const struct sluice_pipe_options create = {
	.size = sizeof(create),
	.channel = { .flags = SLUICE_CREATE },
	.flags = SLUICE_PIPE_NONBLOCK,
};

static void bytes_pass_through_descriptors(void)
{
	const char *name = unique_name();
	struct sluice_pipe_state state;
	char buffer[16];
	int reader, writer;

	EXPECT_EQ(sluice_pipe_open_reader(name, NULL), -ENOENT);
	reader = sluice_pipe_open_reader(name, &create);
	EXPECT(reader >= 0);
	writer = sluice_pipe_open_writer(name, &create);
	EXPECT(writer >= 0);
	EXPECT_EQ(write(writer, "hello", 5), 5);
	EXPECT_EQ(sluice_pipe_info(reader, &state), 0);
	EXPECT_EQ(state.bytes, 5);
	EXPECT_EQ(state.readers, 1);
	EXPECT_EQ(state.writers, 1);
	EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 5);
	EXPECT_EQ(read(reader, buffer, sizeof(buffer)), -1);
	EXPECT_EQ(errno, EAGAIN);
	EXPECT_EQ(sluice_pipe_set_capacity(writer, 20000), 32768);
	EXPECT_EQ(sluice_pipe_set_capacity(writer, 0), -EINVAL);
	EXPECT_TEXT(sluice_error_message(), "invalid pipe capacity 0");
	EXPECT(sluice_pipe_set_spin_limit(reader, 0) == 0);
	close(writer);
	EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 0);
	close(reader);
}

static void a_writer_needs_a_reader(void)
{
	const char *name = unique_name();

	EXPECT_EQ(sluice_pipe_open_writer(name, &create), -ENXIO);
	EXPECT_TEXT(sluice_error_hint(), "start the reader first in the same cgroup");
	EXPECT_EQ(sluice_pipe_create(name, NULL), 0);
	EXPECT_EQ(sluice_pipe_create(name, NULL), -EEXIST);
	EXPECT_EQ(sluice_channel_unlink(SLUICE_KIND_PIPE, name, NULL), 0);
}

static void the_pipe_of_the_cgroup_has_no_name(void)
{
	struct sluice_pipe_options nonblocking = SLUICE_PIPE_OPTIONS_INIT;
	char buffer[16];
	int reader, writer;

	nonblocking.flags = SLUICE_PIPE_NONBLOCK;
	reader = sluice_pipe_open_reader(NULL, &nonblocking);
	EXPECT(reader >= 0);
	writer = sluice_pipe_open_writer(NULL, &nonblocking);
	EXPECT(writer >= 0);
	EXPECT_EQ(write(writer, "x", 1), 1);
	EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 1);
	close(reader);
	close(writer);
}

const struct test pipe_tests[] = {
	TEST(bytes_pass_through_descriptors),
	TEST(a_writer_needs_a_reader),
	TEST(the_pipe_of_the_cgroup_has_no_name),
	{ NULL, NULL },
};
