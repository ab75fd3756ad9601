/* SPDX-License-Identifier: GPL-2.0 */
/* KUnit: positions of a bus, whose 32-bit halves wrap around. Included at the end of bus_ring.c. */
#include <kunit/test.h>

static void a_position_keeps_its_halves(struct kunit *test)
{
	u64 word = pack(U32_MAX, 7);

	KUNIT_EXPECT_EQ(test, sequence_of(word), U32_MAX);
	KUNIT_EXPECT_EQ(test, unit_of(word), 7);
}

static void a_length_takes_whole_units(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, sluice_bus_units(0), 0);
	KUNIT_EXPECT_EQ(test, sluice_bus_units(1), 1);
	KUNIT_EXPECT_EQ(test, sluice_bus_units(UNIT), 1);
	KUNIT_EXPECT_EQ(test, sluice_bus_units(UNIT + 1), 2);
}

/* The tail is @before slots and units before the wrap to 0. */
static void expect_fit(struct kunit *test, u32 before)
{
	static const struct sluice_bus bus = { .slot_count = 16, .units = 64 };
	u64 tail = pack(-before, -before), head = pack(10 - before, 60 - before);

	KUNIT_EXPECT_TRUE(test, bus_fits(&bus, head, tail, 6, 4));
	KUNIT_EXPECT_FALSE(test, bus_fits(&bus, head, tail, 7, 4));
	KUNIT_EXPECT_FALSE(test, bus_fits(&bus, head, tail, 6, 5));
}

static void room_is_the_same_at_every_position(struct kunit *test)
{
	u32 before;

	for (before = 0; before <= 64; before++)
		expect_fit(test, before);
}

static void a_sequence_is_extended_across_the_wrap(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, extend(5, pack(9, 0)), 9);
	KUNIT_EXPECT_EQ(test, extend(U32_MAX, pack(3, 0)), (u64)U32_MAX + 4);
	KUNIT_EXPECT_EQ(test, extend((u64)U32_MAX + 1, pack(0, 0)), (u64)U32_MAX + 1);
}

static void a_threshold_is_crossed_once(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, crosses(9, 8, 8));
	KUNIT_EXPECT_FALSE(test, crosses(8, 7, 8));
	KUNIT_EXPECT_FALSE(test, crosses(10, 9, 8));
}

/* The slot threshold is 12 slots before the stored head, whatever the current head is. */
static void a_sender_is_woken_at_the_threshold_of_its_head(struct kunit *test)
{
	static struct sluice_bus bus = { .slot_count = 16, .units = 64, .capacity = 4096 };
	struct sluice_bus_passed before = { .from = 3, .to = 4 };
	struct sluice_bus_passed after = { .from = 4, .to = 12 };
	struct sluice_bus_passed all = { .from = 3, .to = 17 };
	struct sluice_bus_passed later = { .from = 17, .to = 18 };

	atomic64_set(&bus.wanted[0], pack(16, 0));
	atomic64_set(&bus.head, pack(17, 0));
	KUNIT_EXPECT_TRUE(test, sluice_bus_frees_room(&bus, before));
	KUNIT_EXPECT_FALSE(test, sluice_bus_frees_room(&bus, after));
	KUNIT_EXPECT_TRUE(test, sluice_bus_frees_room(&bus, all));
	KUNIT_EXPECT_FALSE(test, sluice_bus_frees_room(&bus, later));
}

/* Also if the sequence has wrapped since the stored head. */
static void the_current_head_is_stored_as_wanted(struct kunit *test)
{
	static struct sluice_bus bus;
	bool moved;

	atomic64_set(&bus.head, pack(2, 9));
	atomic64_set(&bus.wanted[0], pack(U32_MAX, 3));
	KUNIT_EXPECT_EQ(test, want_room(&bus, &bus.wanted[0], &moved), pack(2, 9));
	KUNIT_EXPECT_TRUE(test, moved);
	KUNIT_EXPECT_EQ(test, want_room(&bus, &bus.wanted[0], &moved), pack(2, 9));
	KUNIT_EXPECT_FALSE(test, moved);
}

static struct kunit_case bus_ring_cases[] = {
	KUNIT_CASE(a_position_keeps_its_halves),
	KUNIT_CASE(a_length_takes_whole_units),
	KUNIT_CASE(room_is_the_same_at_every_position),
	KUNIT_CASE(a_sequence_is_extended_across_the_wrap),
	KUNIT_CASE(a_threshold_is_crossed_once),
	KUNIT_CASE(a_sender_is_woken_at_the_threshold_of_its_head),
	KUNIT_CASE(the_current_head_is_stored_as_wanted),
	{}
};

static struct kunit_suite bus_ring_suite = {
	.name = "sluice_bus_ring",
	.test_cases = bus_ring_cases,
};

kunit_test_suite(bus_ring_suite);
