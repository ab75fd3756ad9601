/* SPDX-License-Identifier: GPL-2.0 */
/* KUnit: the arithmetic of limits. Included at the end of quota.c. */
#include <kunit/test.h>

static void expect_usage(struct kunit *test, const struct sluice_quota_usage *usage, s64 channels,
			 s64 bytes)
{
	KUNIT_EXPECT_EQ(test, atomic64_read(&usage->channels), channels);
	KUNIT_EXPECT_EQ(test, atomic64_read(&usage->bytes), bytes);
}

static void a_charge_up_to_the_limit_fits(struct kunit *test)
{
	struct sluice_quota_usage usage = {};

	KUNIT_EXPECT_TRUE(test, try_charge(&usage, 1, 4096, 2, 8192));
	KUNIT_EXPECT_TRUE(test, try_charge(&usage, 1, 4096, 2, 8192));
	expect_usage(test, &usage, 2, 8192);
}

static void a_charge_that_fails_leaves_nothing(struct kunit *test)
{
	struct sluice_quota_usage usage = {};

	KUNIT_EXPECT_TRUE(test, try_charge(&usage, 1, 4096, 2, 8192));
	KUNIT_EXPECT_FALSE(test, try_charge(&usage, 1, 4097, 2, 8192));
	KUNIT_EXPECT_FALSE(test, try_charge(&usage, 2, 1, 2, 8192));
	expect_usage(test, &usage, 1, 4096);
}

static void an_amount_that_does_not_grow_ignores_a_lowered_limit(struct kunit *test)
{
	struct sluice_quota_usage usage = {};

	KUNIT_EXPECT_TRUE(test, try_charge(&usage, 2, 8192, 2, 8192));
	KUNIT_EXPECT_TRUE(test, try_charge(&usage, -1, 0, 2, 1));
	KUNIT_EXPECT_TRUE(test, try_charge(&usage, 0, -4096, 0, 8192));
	expect_usage(test, &usage, 1, 4096);
}

static void the_greatest_capacity_does_not_wrap_around(struct kunit *test)
{
	struct sluice_quota_usage usage = {};

	KUNIT_EXPECT_TRUE(test, try_charge(&usage, 1, S64_MAX, U64_MAX, S64_MAX));
	KUNIT_EXPECT_FALSE(test, try_charge(&usage, 1, S64_MAX, U64_MAX, S64_MAX));
	expect_usage(test, &usage, 1, S64_MAX);
}

static struct kunit_case quota_cases[] = {
	KUNIT_CASE(a_charge_up_to_the_limit_fits),
	KUNIT_CASE(a_charge_that_fails_leaves_nothing),
	KUNIT_CASE(an_amount_that_does_not_grow_ignores_a_lowered_limit),
	KUNIT_CASE(the_greatest_capacity_does_not_wrap_around),
	{}
};

static struct kunit_suite quota_suite = {
	.name = "sluice_quota",
	.test_cases = quota_cases,
};

kunit_test_suite(quota_suite);
