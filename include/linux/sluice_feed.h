/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Feeds: a kernel module publishes packets to one consumer in user space, without a system call per
 * packet. See docs/feed.md, and kernel/samples/ for an example.
 *
 * Life: a module creates a feed, publishes from any context, and destroys the feed before it is
 * unloaded and after its last publish has returned. A consumer that is left then sees the end of
 * the stream; it holds the module sluice, not the publisher's.
 */
#ifndef _LINUX_SLUICE_FEED_H
#define _LINUX_SLUICE_FEED_H

#include <linux/types.h>

struct sluice_feed;

/*
 * Creates the feed @name (1 to 63 bytes, without '/') in the root scope, owned by the caller's user
 * and group. @mode: permission bits, of which only those for reading matter. @capacity: bytes of
 * the ring, rounded up to a power of two, at least 16 KiB and a page, at most the module parameter
 * feed_max_bytes, rounded down to a power of two; 0: 1 MiB, or that limit if it is less. The pages
 * are allocated when a consumer claims the feed. May sleep. Otherwise an error pointer: -EINVAL,
 * -EEXIST, -ENOMEM.
 */
struct sluice_feed *sluice_feed_create(const char *name, umode_t mode, size_t capacity);

/*
 * Publishes a packet of @length bytes. In any context, also in hard interrupts and NMI, and on
 * several processors at once. 0: delivered, or there is no consumer. -ENOBUFS: the packet is lost,
 * because the ring is full or, in NMI, because the feed is in use; the consumer learns the number
 * of lost packets with the next one. -EMSGSIZE: longer than SLUICE_FEED_PACKET_MAX. Not from code
 * that publishing itself runs, such as a probe of memcpy() or of lock events: it would wait for its
 * own lock.
 */
int sluice_feed_publish(struct sluice_feed *feed, const void *data, size_t length);

/* Ends the feed. May sleep. */
void sluice_feed_destroy(struct sluice_feed *feed);

#endif
