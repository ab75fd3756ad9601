/* SPDX-License-Identifier: GPL-2.0 */
/* KUnit: which pages an offset of the file designates. Included at the end of ring_memory.c. */
#include <kunit/test.h>

#define TEST_PAGES 4

/* The page pointers are compared, never dereferenced. */
static struct sluice_ring_memory *test_memory(struct kunit *test)
{
	struct sluice_ring_memory *memory;
	unsigned long i;

	memory = kunit_kzalloc(test, struct_size(memory, pages, CTRL_PAGES + TEST_PAGES),
			       GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, memory);
	memory->data_pages = TEST_PAGES;
	memory->times = 2;
	for (i = 0; i < CTRL_PAGES + TEST_PAGES; i++)
		memory->pages[i] = (struct page *)(i + 1);
	return memory;
}

static void the_data_is_mapped_twice_in_a_row(struct kunit *test)
{
	struct sluice_ring_memory *memory = test_memory(test);
	unsigned long i, count;

	for (i = 0; i < 2 * TEST_PAGES; i++) {
		struct page **pages = pages_at(memory, DATA_PGOFF + i, &count);

		KUNIT_EXPECT_PTR_EQ(test, pages, &memory->pages[CTRL_PAGES + i % TEST_PAGES]);
		KUNIT_EXPECT_EQ(test, count, TEST_PAGES - i % TEST_PAGES);
	}
}

static void the_data_of_a_map_is_mapped_once(struct kunit *test)
{
	struct sluice_ring_memory *memory = test_memory(test);
	unsigned long count;

	memory->times = 1;
	KUNIT_EXPECT_PTR_EQ(test, pages_at(memory, DATA_PGOFF, &count),
			    &memory->pages[CTRL_PAGES]);
	KUNIT_EXPECT_EQ(test, count, TEST_PAGES);
	KUNIT_EXPECT_NULL(test, pages_at(memory, DATA_PGOFF + TEST_PAGES, &count));
}

static void a_control_region_has_one_page(struct kunit *test)
{
	struct sluice_ring_memory *memory = test_memory(test);
	unsigned long count;

	KUNIT_EXPECT_PTR_EQ(test, pages_at(memory, CONSUMER_PGOFF, &count),
			    &memory->pages[SLUICE_RING_SIDE_CONSUMER]);
	KUNIT_EXPECT_EQ(test, count, 1);
}

static void no_page_is_outside_of_the_regions(struct kunit *test)
{
	struct sluice_ring_memory *memory = test_memory(test);
	unsigned long count;

	KUNIT_EXPECT_NULL(test, pages_at(memory, DATA_PGOFF - 1, &count));
	KUNIT_EXPECT_NULL(test, pages_at(memory, DATA_PGOFF + 2 * TEST_PAGES, &count));
	KUNIT_EXPECT_NULL(test, pages_at(memory, ULONG_MAX, &count));
}

static void a_region_has_one_size(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, region_pages(TEST_PAGES, PRODUCER_PGOFF), 1);
	KUNIT_EXPECT_EQ(test, region_pages(TEST_PAGES, CONSUMER_PGOFF), 1);
	KUNIT_EXPECT_EQ(test, region_pages(TEST_PAGES, DATA_PGOFF), TEST_PAGES);
	KUNIT_EXPECT_EQ(test, region_pages(TEST_PAGES, DATA_PGOFF + 1), 0);
}

static void a_role_writes_only_to_its_regions(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, may_write(PRODUCER_PGOFF, SLUICE_RING_SIDE_PRODUCER));
	KUNIT_EXPECT_TRUE(test, may_write(DATA_PGOFF, SLUICE_RING_SIDE_PRODUCER));
	KUNIT_EXPECT_FALSE(test, may_write(CONSUMER_PGOFF, SLUICE_RING_SIDE_PRODUCER));
	KUNIT_EXPECT_TRUE(test, may_write(CONSUMER_PGOFF, SLUICE_RING_SIDE_CONSUMER));
	KUNIT_EXPECT_FALSE(test, may_write(PRODUCER_PGOFF, SLUICE_RING_SIDE_CONSUMER));
	KUNIT_EXPECT_FALSE(test, may_write(DATA_PGOFF, SLUICE_RING_SIDE_CONSUMER));
}

static struct kunit_case ring_memory_cases[] = {
	KUNIT_CASE(the_data_is_mapped_twice_in_a_row),
	KUNIT_CASE(the_data_of_a_map_is_mapped_once),
	KUNIT_CASE(a_control_region_has_one_page),
	KUNIT_CASE(no_page_is_outside_of_the_regions),
	KUNIT_CASE(a_region_has_one_size),
	KUNIT_CASE(a_role_writes_only_to_its_regions),
	{}
};

static struct kunit_suite ring_memory_suite = {
	.name = "sluice_ring_memory",
	.test_cases = ring_memory_cases,
};

kunit_test_suite(ring_memory_suite);
