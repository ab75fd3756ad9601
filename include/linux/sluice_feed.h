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

/**
 * sluice_feed_create() - creates a feed
 * @name: the name: 1 to 63 bytes, without '/', neither "." nor ".."
 * @mode: permission bits, of which only the bits for reading matter
 * @capacity: bytes of the ring; 0: 1 MiB, or the limit if that is less
 *
 * The feed is in the root scope, where its name is unique among feeds. It is owned by the caller's
 * filesystem user and group.
 *
 * The capacity is rounded up to a power of two, and is at least 16 KiB and a page. Its limit is the
 * module parameter feed_max_bytes, rounded down to a power of two. The pages are allocated when an
 * endpoint becomes the consumer, and charged to its process.
 *
 * Context: Process context. May sleep.
 *
 * Return: The feed, to be destroyed with sluice_feed_destroy(), or an error pointer:
 *
 * * -EINVAL: the name is invalid, or the capacity is above the limit.
 * * -EEXIST: a feed of this name exists.
 * * -ENOMEM: there is no memory.
 */
struct sluice_feed *sluice_feed_create(const char *name, umode_t mode, size_t capacity);

/**
 * sluice_feed_publish() - publishes a packet
 * @feed: the feed
 * @data: the bytes of the packet, which can be read without a page fault
 * @length: the number of bytes, at most SLUICE_FEED_PACKET_MAX
 *
 * Copies the bytes to the ring, and wakes the consumer by irq_work if it sleeps. Waits neither for
 * the consumer nor for memory.
 *
 * The bytes reach user space unchanged, so all of them must be initialised, padding included.
 *
 * Code that publishing itself runs, such as a probe of memcpy() or of lock events, must not call
 * this function: it would wait for its own lock.
 *
 * Context: Any context in which RCU is watching, also hard interrupts and NMI, and on several
 * processors at once.
 *
 * Return:
 *
 * * 0: the packet is delivered, or there is no consumer, or this call has ended the consumer, which
 *   had stored an invalid position.
 * * -ENOBUFS: the packet is lost, because the ring is full or, in NMI, because the feed is in use.
 *   The consumer learns the number of lost packets with the next packet.
 * * -EMSGSIZE: the packet is longer than SLUICE_FEED_PACKET_MAX.
 */
int sluice_feed_publish(struct sluice_feed *feed, const void *data, size_t length);

/**
 * sluice_feed_destroy() - ends a feed
 * @feed: the feed, which is invalid afterwards
 *
 * Removes the name. A consumer that is left sees the end of the stream after the remaining packets;
 * this function does not wait for it. Every call of sluice_feed_publish() must have returned
 * before.
 *
 * Context: Process context. May sleep.
 */
void sluice_feed_destroy(struct sluice_feed *feed);

#endif
