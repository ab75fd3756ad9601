/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The packet simulator: a high-resolution timer that publishes packets in the feed of
 * /dev/sluice/feed, to measure the way of a packet from an interrupt to a process.
 *
 * Life: one per module. An endpoint starts it with CAP_SYS_NICE; it runs until its count of packets
 * is reached, or that endpoint stops it or is closed.
 *
 * Limit: it leaves at least half of its CPU to others. After each packet it is idle for as long as
 * the packet took, and at least for half of the shortest interval; expiries that fall into that
 * time are skipped and counted.
 */
#ifndef SLUICE_FEED_SIMULATOR_H
#define SLUICE_FEED_SIMULATOR_H

#include <uapi/linux/sluice.h>

struct sluice_feed_endpoint;

/**
 * sluice_feed_simulator_start() - starts the simulator, for SLUICE_FEED_START
 * @end: the endpoint that starts it, of the simulator's feed
 * @user: the user's settings
 *
 * Return: 0, -EFAULT, -E2BIG; -EINVAL: a field is out of range, or the CPU is offline; -EPERM:
 * the caller has no CAP_SYS_NICE; -EBUSY: the simulator runs.
 */
long sluice_feed_simulator_start(struct sluice_feed_endpoint *end,
				 const struct sluice_feed_start __user *user);
/**
 * sluice_feed_simulator_stop() - stops the simulator, for SLUICE_FEED_STOP
 * @end: the endpoint of the caller
 *
 * Return: 0, also if the simulator does not run; -EPERM: another endpoint has started it.
 */
long sluice_feed_simulator_stop(struct sluice_feed_endpoint *end);
/**
 * sluice_feed_simulator_release() - stops the simulator if this endpoint has started it
 * @end: the endpoint, which is being closed
 */
void sluice_feed_simulator_release(struct sluice_feed_endpoint *end);

/**
 * sluice_feed_simulator_fill_info() - fills in the fields of the simulator
 * @info: out: running, cpu, interval_ns, expired, missed, elapsed_ns
 */
void sluice_feed_simulator_fill_info(struct sluice_feed_info *info);

/**
 * sluice_feed_simulator_init() - creates the feed of the simulator, when the module is loaded
 *
 * Return: 0, or an error of sluice_feed_create_as().
 */
int sluice_feed_simulator_init(void);
/**
 * sluice_feed_simulator_exit() - destroys the feed of the simulator, when no endpoint is open
 */
void sluice_feed_simulator_exit(void);

#endif
