/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kind feed: packets from a kernel module to one consumer in user space. include/linux/
 * sluice_feed.h is the interface for publishers, feed_simulator.h a publisher for measurements.
 *
 * Life: sluice_feed_create() creates the channel, in the root scope, and sluice_feed_destroy()
 * removes its name and its reference; endpoints that are left keep it until they are closed. Users
 * can neither create nor unlink a feed.
 *
 * A session is one consumer and the ring that it receives from. SLUICE_FEED_CLAIM, or the first
 * mmap(2) or read(2), of an endpoint claims the feed: it allocates the session with fresh pages,
 * charged to the caller, so that a consumer never sees what another one left, and starts with the
 * next packet. The session belongs to the endpoint and is freed with it, by a worker after an RCU
 * grace period: publishers reach it and the endpoint's wait queue through the feed, under the
 * feed's lock or RCU.
 *
 * The kernel is the producer of the ring. If the consumer maps it, the kernel follows the protocol
 * of docs/abi/feed.md, and ends a session whose consumer stores an invalid position. If the
 * consumer reads, the same ring is not mapped, and read(2) copies out of it.
 *
 * Publishing (feed_publish.c) takes only the feed's raw lock with interrupts off, for the copy of
 * one packet. It wakes the consumer by irq_work, because the publisher may hold locks of the
 * scheduler; the simulator, whose context is known, wakes it directly.
 */
#ifndef SLUICE_FEED_H
#define SLUICE_FEED_H

#include <linux/atomic.h>
#include <linux/irq_work.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <linux/sluice_feed.h>

#include "channel.h"
#include "endpoint.h"
#include "ring_memory.h"
#include "start.h"
#include "wait.h"

/*
 * The first position of a consumer that reads; that of one that maps is 0 by its ABI. 2^63 bytes at
 * 10 GB/s take 29 years of one session, so positions are compared with <.
 */
#define SLUICE_FEED_FIRST SLUICE_START_ENDLESS(2 * PAGE_SIZE)

struct sluice_feed_session {
	bool maps;			/* the consumer maps the ring; otherwise it reads */
	struct sluice_ring_memory *memory;
	struct sluice_wait_queue *wait;	/* the endpoint's */
	struct rcu_work freeing;

	/* stored under feed.lock */
	u64 head;			/* end of the published records (feed-H) */
	u64 released;			/* a past position of the consumer */
	u64 lost;			/* packets since the last published one */
	u32 answered;			/* wait_flags of the consumer at its last wake-up */
	u32 ended;			/* SLUICE_RING_CLOSED or _REJECTED (feed-G) */

	struct mutex read_mutex;	/* protects `tail` */
	u64 tail;			/* end of the records that were read (feed-T) */
};

struct sluice_feed {
	struct sluice_channel channel;
	u64 capacity;
	struct irq_work wake;		/* wakes the consumer */
	atomic_t contended;		/* packets lost in NMI and not counted yet */
	bool simulated;			/* the simulator publishes */

	/*
	 * Protects `session` and `destroyed`, in process context, so that an enquiry need not take
	 * `lock` and delay publishers. Before `lock`, which changes of `session` take, too.
	 */
	spinlock_t session_lock;
	struct sluice_feed_session *session;	/* the consumer's, or NULL */
	bool destroyed;

	raw_spinlock_t lock;		/* protects what follows, and sessions; in any context */
	bool active;			/* there is a session that has not ended */
	u64 sequence, published, lost, violations; /* as in sluice_feed_info */
};

struct sluice_feed_endpoint {
	struct sluice_endpoint endpoint;
	struct sluice_feed_session *session;	/* NULL until the claim */
	struct sluice_wait_queue wait;
	struct sluice_spin spin;
};

extern const struct sluice_kind sluice_feed_kind;

/**
 * sluice_feed_create_as() - creates a feed, for sluice_feed_create() and the simulator
 * @name: the name; "": the default channel
 * @mode: permission bits
 * @capacity: bytes of the ring, or 0; see sluice_feed_create()
 * @simulated: whether the simulator publishes
 *
 * Context: may sleep.
 * Return: the feed, or an error pointer: -EINVAL, -EEXIST, -ENOMEM.
 */
struct sluice_feed *sluice_feed_create_as(const char *name, umode_t mode, u64 capacity,
					  bool simulated);

/**
 * sluice_feed_publish_and_wake() - publishes a packet and wakes the consumer directly
 * @feed: the feed
 * @data: the bytes of the packet
 * @length: the number of bytes
 *
 * On PREEMPT_RT it wakes the consumer by irq_work, because the locks of wait queues sleep.
 *
 * Context: any context that may wake a process.
 * Return: 0: the packet is delivered, there is no consumer, or the call has ended the consumer
 * because of an invalid position; -ENOBUFS: the packet is lost, because the ring is full or, in
 * NMI, because the feed is in use; -EMSGSIZE: longer than SLUICE_FEED_PACKET_MAX.
 */
int sluice_feed_publish_and_wake(struct sluice_feed *feed, const void *data, size_t length);

/**
 * sluice_feed_session_end() - ends the session of a feed
 * @feed: the feed, which has a session
 * @reason: SLUICE_RING_CLOSED or SLUICE_RING_REJECTED
 *
 * The caller wakes the consumer.
 *
 * Context: under feed.lock.
 */
void sluice_feed_session_end(struct sluice_feed *feed, u32 reason);

/**
 * sluice_feed_publish_init() - prepares the wake-up of the consumer of a new feed
 * @feed: the feed
 */
void sluice_feed_publish_init(struct sluice_feed *feed);

#endif
