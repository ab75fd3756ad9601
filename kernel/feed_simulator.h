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

/* The errors are those of SLUICE_FEED_START and SLUICE_FEED_STOP. */
long sluice_feed_simulator_start(struct sluice_feed_endpoint *end,
				 const struct sluice_feed_start __user *user);
long sluice_feed_simulator_stop(struct sluice_feed_endpoint *end);
/* Stops it if this endpoint has started it. */
void sluice_feed_simulator_release(struct sluice_feed_endpoint *end);

/* Fills in the fields of the simulator. */
void sluice_feed_simulator_fill_info(struct sluice_feed_info *info);

int sluice_feed_simulator_init(void);
void sluice_feed_simulator_exit(void);

#endif
