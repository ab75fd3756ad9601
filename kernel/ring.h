/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kind ring: records through mapped memory, from one producer to one consumer. The two
 * processes exchange records without the kernel, by the protocol of docs/abi/ring.md. The kernel
 * provides the memory (ring_memory.h), wakes a side that sleeps, and tells each side when the other
 * one ends.
 *
 * Life: that of a channel (channel.h). A session is one use of the ring: one producer, one consumer
 * and the pages between them. It begins with an open of the channel that finds none, and ends
 * - when both roles have ended, or both were given back;
 * - when one role has ended and the other is vacant, unless the producer leaves records: they
 *   remain for the consumer that opens the channel next;
 * - when the channel is destroyed or freed.
 * The ring holds a reference to its current session, and so does every endpoint to the session that
 * it joined. The memory of a session that has ended stays as long as endpoints of it are open; then
 * at most one further session begins, so that a ring occupies at most twice its capacity.
 *
 * A role is taken once in a session: no second consumer continues at the position where
 * the first one stopped. An endpoint that maps nothing gives its role back.
 *
 * A role ends by DETACH, by the last close of its endpoint (which mappings hold open), or because
 * the channel is destroyed. The kernel stores the reason in the control page of that role, where
 * the peer finds it without a system call, and wakes the peer.
 */
#ifndef SLUICE_RING_H
#define SLUICE_RING_H

#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "channel.h"
#include "endpoint.h"
#include "ring_memory.h"
#include "wait.h"

/* One role of a session. */
struct sluice_ring_side {
	u32 state;			/* SLUICE_RING_ROLE_*; stored under ring.lock */
	struct sluice_wait_queue wait;	/* where this side sleeps */
};

struct sluice_ring_session {
	refcount_t refs;
	struct sluice_ring *ring;	/* that counts it; NULL: it never was current */
	struct sluice_ring_memory *memory;
	struct sluice_ring_side sides[2];	/* by enum sluice_ring_role */
};

struct sluice_ring {
	struct sluice_channel channel;
	u64 capacity;
	int node;				/* of the memory, or NUMA_NO_NODE */
	struct mutex begin_mutex;		/* one open at a time allocates a session */
	spinlock_t lock;			/* protects what follows, and the states */
	struct sluice_ring_session *session;	/* the current one, or NULL */
	unsigned int session_count;		/* it, and ended ones with endpoints */
	bool destroyed;
};

struct sluice_ring_endpoint {
	struct sluice_endpoint endpoint;
	struct sluice_ring_session *session;
	enum sluice_ring_role role;
	bool attached;			/* has not ended its role; stored under ring.lock */
	bool mapped;			/* under ring.lock */
};

extern const struct sluice_kind sluice_ring_kind;

#endif
