// SPDX-License-Identifier: GPL-2.0
/*
 * A sample publisher: each frame that the network stack receives becomes a packet of 16 bytes
 * (sluice_frames.h) in the feed "frames".
 *
 *   vm/build-module 6.12			builds the module sluice, whose symbols it needs
 *   vm/build-module 6.12 sluice_frames		builds this one, and prints its path
 *   insmod sluice.ko; insmod sluice_frames.ko
 *
 * A consumer opens the kind SLUICE_KIND_FEED in the scope SLUICE_SCOPE_ROOT with SLUICE_CTL_OPEN.
 * The mode of the feed permits that to root only, because frames of all network namespaces are
 * published.
 *
 * The events come from the tracepoint netif_receive_skb: it exists on every machine, since the
 * loopback device is enough, and has had the same argument since 6.1. It is not exported to
 * modules, so it is found by its name. Its probe runs in a softirq on any processor.
 *
 * The order of the exit matters: sluice_feed_destroy() comes after the last publish has returned,
 * so the probe is unregistered first, and tracepoint_synchronize_unregister() waits for those that
 * run.
 */
#include <linux/err.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <trace/events/net.h>

#include <linux/sluice_feed.h>

#include "sluice_frames.h"

#define FEED_NAME "frames"
#define FEED_MODE 0400

static struct tracepoint *receive;
static struct sluice_feed *feed;

/* A lost frame needs no action here: the feed counts it. */
static void publish_frame(void *unused, struct sk_buff *skb)
{
	struct sluice_frame frame = {
		.length = skb->len,
		.ifindex = skb->dev->ifindex,
		.cpu = raw_smp_processor_id(),
		.protocol = skb->protocol,
	};

	sluice_feed_publish(feed, &frame, sizeof(frame));
}

static void note_tracepoint(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "netif_receive_skb"))
		receive = tracepoint;
}

static int __init frames_init(void)
{
	int err;

	/* Does not compile if the arguments of the tracepoint are others. */
	check_trace_callback_type_netif_receive_skb(publish_frame);
	for_each_kernel_tracepoint(note_tracepoint, NULL);
	if (!receive)
		return -EOPNOTSUPP;
	feed = sluice_feed_create(FEED_NAME, FEED_MODE, 0);
	if (IS_ERR(feed))
		return PTR_ERR(feed);
	err = tracepoint_probe_register(receive, publish_frame, NULL);
	if (err)
		sluice_feed_destroy(feed);
	return err;
}

static void __exit frames_exit(void)
{
	tracepoint_probe_unregister(receive, publish_frame, NULL);
	tracepoint_synchronize_unregister();
	sluice_feed_destroy(feed);
}

module_init(frames_init);
module_exit(frames_exit);

MODULE_DESCRIPTION("Sample: received network frames as a feed");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
