/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the counters of the module begin: at 0.
 *
 * In a build for tests (SLUICE_NEAR is 32 or 64, see vm/build-module) they begin shortly before
 * 2^32 or before their end, so that tests pass it. The module that is installed has no such
 * setting.
 */
#ifndef SLUICE_START_H
#define SLUICE_START_H

#ifndef SLUICE_NEAR
#define SLUICE_NEAR 0
#endif

#define SLUICE_START_BEFORE(end, steps) \
	(!SLUICE_NEAR ? 0ULL : SLUICE_NEAR == 32 ? (1ULL << 32) - (steps) : (end) - (steps))

/**
 * SLUICE_START() - the first value of a counter that wraps around
 * @steps: in a build for tests: how far it is from 2^32 or 2^64
 *
 * Return: 0 in the module that is installed
 */
#define SLUICE_START(steps) SLUICE_START_BEFORE(0ULL, steps)

/**
 * SLUICE_START_ENDLESS() - the first value of a counter that never gets to its end
 * @steps: in a build for tests: how far it is from 2^32, or from 2^63 - 2^40
 *
 * At one step in a nanosecond 2^63 steps take 292 years, so such a counter is compared with <, and
 * its top bit may serve another purpose. A build for tests leaves 2^40 steps to 2^63, which no test
 * makes.
 *
 * Return: 0 in the module that is installed
 */
#define SLUICE_START_ENDLESS(steps) SLUICE_START_BEFORE((1ULL << 63) - (1ULL << 40), steps)

#endif
