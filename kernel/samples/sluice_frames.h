/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* The packets of the feed "frames", see sluice_frames.c. */
#ifndef SLUICE_FRAMES_H
#define SLUICE_FRAMES_H

#include <linux/types.h>

/* A frame that the network stack has received. Follows struct sluice_feed_packet. */
struct sluice_frame {
	__u32 length;		/* bytes after the link-layer header */
	__u32 ifindex;		/* of the network device */
	__u32 cpu;		/* the processor that received it */
	__be16 protocol;	/* ETH_P_*, in network byte order */
	__u16 reserved;		/* 0 */
};

#endif
