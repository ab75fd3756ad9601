/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kind bus: messages from many senders to many subscribers, each written once.
 *
 * Life: that of a channel (channel.h). Every endpoint has an id, which is never used again. An
 * endpoint open for reading is a subscriber from its open to its last close, or until it is
 * evicted; a subscriber that a sender still examines is freed after an RCU grace period. In the
 * mode unicast all endpoints share the one queue of the bus, which lives as long as the bus.
 *
 * Messages are in a ring of slots, one per message, and a ring of bytes. The kernel alone writes to
 * both; subscribers may map the bytes read-only.
 *
 *   slots            tail          oldest cursor            head
 *   +----------------+-------------+------------------------+---------------+
 *   | free           | free soon   | messages, and holes    | free          |
 *   +----------------+-------------+------------------------+---------------+
 *
 * - A sender reserves a slot and its bytes by one compare-and-swap of `head`, copies the bytes,
 *   and commits the slot: (S) stores its sequence in `stamp` with release. A receiver loads `stamp`
 *   with acquire, so it sees the bytes. Receivers stop at a slot that is not committed.
 * - A cursor is the sequence of the next message of a subscriber. It also protects the messages
 *   from there on: (C) a receiver marks its cursor as claimed, copies, and stores the next sequence
 *   with release; `tail` never passes a cursor, and a cursor is moved past messages (the policy
 *   DROP) only while it is not claimed. So no message changes while it is copied.
 * - `tail` follows the cursors lazily: a sender that finds no room moves it as far as they permit
 *   (bus_ring.c), under `lock`. (T) It is stored with release, and loaded with acquire by senders
 *   before they overwrite what it has passed.
 *
 * A reservation and a claim last only while preemption and page faults are disabled. So none is
 * held across a page fault, a sleep or a throttling of the CPU, and whoever meets one waits for no
 * more than the copy of one message. A copy that would fault is cancelled, and made from or to a
 * buffer of the kernel; so are long copies, so that the time without preemption is that of copying
 * the longest message (SLUICE_BUS_COPY_MAX) in memory that is present.
 */
#ifndef SLUICE_BUS_H
#define SLUICE_BUS_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/kconfig.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "endpoint.h"
#include "wait.h"

struct iov_iter;
struct kiocb;
struct pid;
struct sluice_ring_memory;

/* Positions in the ring of bytes are counted in units of this many bytes. */
#define SLUICE_BUS_UNIT_SHIFT 6

/* The longest message, which is copied without preemption: too long a time for PREEMPT_RT. */
#define SLUICE_BUS_COPY_MAX (IS_ENABLED(CONFIG_PREEMPT_RT) ? SZ_64K : SLUICE_BUS_MESSAGE_MAX)
/* Longer copies between the ring and user space go through a buffer of the kernel. */
#define SLUICE_BUS_DIRECT_MAX SZ_64K
/* Copies that may find pages not present; the second one after they were faulted in. */
#define SLUICE_BUS_DIRECT_ATTEMPTS 2

/* The cursor of a subscriber that was evicted. */
#define SLUICE_BUS_EVICTED (U64_MAX >> 1)

/*
 * Who opened an endpoint. Slots refer to it; it is freed when the endpoint is closed and `tail` has
 * passed the last message sent by it.
 */
struct sluice_bus_opener {
	u64 id;
	kuid_t uid;
	kgid_t gid;
	struct pid *pid;
	atomic64_t end;			/* follows the sequence of its last message */
	struct list_head departed;	/* in the list of the bus, after the close (L) */
};

/* One message. Written by its sender between the reservation and the commit. */
struct sluice_bus_slot {
	u64 stamp;			/* the sequence of the message, when committed (S) */
	u32 start;			/* units; modulo 2^32 */
	u32 end;			/* units; modulo 2^32 */
	u32 length;			/* bytes */
	bool discarded;			/* the copy failed: not a message */
	u64 target;			/* id of the subscriber, or 0 */
	u32 messages_before;		/* in the current move of `tail` (L) */
	u32 to_all_before;		/* messages to all subscribers, in that move (L) */
	const struct sluice_bus_opener *sender;
} ____cacheline_aligned;

struct sluice_bus_subscriber {
	const struct sluice_bus_opener *opener;	/* NULL: the queue of a unicast bus */
	u64 id;				/* its opener's, or 0 */
	struct rcu_head rcu;
	u32 policy;			/* SLUICE_BUS_DROP and so on */
	u32 flags;			/* SLUICE_BUS_MAPPED, _MONITOR */
	u64 limit;			/* unread bytes that are addressed to it */
	u64 moved_from;			/* the cursor before the current move of `tail` (L) */

	/* The sequence of the next message << 1 | whether it is claimed (C) */
	atomic64_t cursor ____cacheline_aligned_in_smp;
	u64 expected;			/* at the last release; used while claimed */
	u64 handed_out;			/* mapped: follows the last returned; used while claimed */
	atomic64_t untold;		/* lost messages that were not reported yet */
	u64 lost;			/* messages lost since its open (L) */

	/* Addressed to it: from before the reservation until they are received or lost */
	atomic64_t unread ____cacheline_aligned_in_smp;	/* messages */
	atomic64_t unread_bytes;
	struct sluice_wait_queue readable;	/* in the mode multicast */
};

struct sluice_bus {
	struct sluice_channel channel;
	u32 mode;
	u32 policies;
	bool mappable;
	u64 capacity;
	u32 units;			/* of the capacity */
	u32 slot_count;			/* a power of two */
	struct sluice_bus_slot *slots;
	struct sluice_ring_memory *memory;
	void *data;			/* the bytes, mapped twice in a row */
	struct sluice_bus_subscriber *queue;	/* of a unicast bus, or NULL */
	unsigned int room;		/* subscribers, without monitors */
	bool destroyed;

	/* Sequence and unit of the next reservation: each modulo 2^32, in one word */
	atomic64_t head ____cacheline_aligned_in_smp;

	/* As head, of the oldest message that must be kept (T) */
	atomic64_t tail ____cacheline_aligned_in_smp;
	unsigned int subscriber_count;		/* without monitors (L) */
	unsigned int monitor_count;		/* (L) */
	/*
	 * First the subscribers, then, from `room` on, the monitors, each dense; changed under the
	 * lock, read under it or, with gaps, under RCU
	 */
	struct sluice_bus_subscriber __rcu **table;
	struct xarray subscribers;		/* by id, without monitors */
	struct sluice_wait_queue readable;	/* all receivers, except in the mode multicast */
	struct sluice_wait_queue writable;	/* senders */

	spinlock_t lock ____cacheline_aligned_in_smp;	/* (L) */
	u64 tail_sequence;		/* of tail, not modulo (L) */
	u64 last_id;			/* (L) */
	struct list_head departed;	/* openers of closed endpoints, in order (L) */
	u64 lost;			/* (L) */
	u64 evicted;			/* (L) */
	unsigned int senders;		/* endpoints open for writing (L) */
	unsigned int receivers;		/* unicast: endpoints open for reading (L) */
	atomic_t turn;			/* multicast: the next subscriber */
	atomic64_t unsubscribed;
	atomic64_t discarded;		/* slots */
};

extern const struct sluice_kind sluice_bus_kind;

struct sluice_bus_endpoint {
	struct sluice_endpoint endpoint;
	struct sluice_bus *bus;
	struct sluice_bus_opener *opener;
	struct sluice_bus_subscriber *subscriber;	/* open for reading, or NULL */
	u32 format;
	struct sluice_spin spin;
};

static inline struct sluice_bus_endpoint *sluice_bus_endpoint(const struct file *file)
{
	return container_of((struct sluice_endpoint *)file->private_data,
			    struct sluice_bus_endpoint, endpoint);
}

static inline bool sluice_bus_is_monitor(const struct sluice_bus_subscriber *subscriber)
{
	return subscriber->flags & SLUICE_BUS_MONITOR;
}

/* The queue in which receivers of this subscriber sleep. */
static inline struct sluice_wait_queue *
sluice_bus_readable(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	bool own = bus->mode == SLUICE_BUS_MULTICAST && !sluice_bus_is_monitor(subscriber);

	return own ? &subscriber->readable : &bus->readable;
}

/* After a change that senders may wait for. */
static inline void sluice_bus_wake_senders(struct sluice_bus *bus)
{
	sluice_wait_wake_all(&bus->writable, EPOLLOUT | EPOLLWRNORM);
}

/* The largest message of the bus, in bytes. */
static inline u64 sluice_bus_message_max(const struct sluice_bus *bus)
{
	return min_t(u64, SLUICE_BUS_COPY_MAX,
		     bus->capacity / 2 - sizeof(struct sluice_bus_frame));
}

static inline bool sluice_bus_is_nonblocking(const struct kiocb *iocb)
{
	return iocb->ki_flags & IOCB_NOWAIT || iocb->ki_filp->f_flags & O_NONBLOCK;
}

/*
 * Before an attempt is repeated without sleep, -ERESTARTSYS to a process that is killed. Other
 * signals do not interrupt it: io_uring also sends and receives while it has work of its own
 * pending, which looks like a signal.
 */
static inline int sluice_bus_check_killed(void)
{
	return fatal_signal_pending(current) ? -ERESTARTSYS : 0;
}

/* ---- bus_ring.c ---- */

/* Allocates slots and bytes for a bus whose capacity is set. -ENOMEM, -EINTR. */
int sluice_bus_ring_init(struct sluice_bus *bus);
void sluice_bus_ring_exit(struct sluice_bus *bus);

/*
 * With preemption disabled: reserves a slot for @length bytes, or NULL: there is no room before the
 * tail. The caller sets the slot's fields, copies, and commits it before it enables preemption.
 */
struct sluice_bus_slot *sluice_bus_reserve(struct sluice_bus *bus, size_t length);
void sluice_bus_commit(struct sluice_bus *bus, struct sluice_bus_slot *slot);

/*
 * Moves the tail so that @length bytes can be reserved, as far as the policies of the subscribers
 * permit. True: try again. False: subscribers that block senders hold the room.
 */
bool sluice_bus_make_room(struct sluice_bus *bus, size_t length);

/* Under the lock: the bytes between the oldest message that is held and the head. */
u64 sluice_bus_bytes(struct sluice_bus *bus);

/*
 * Whether the subscribers that block senders leave room for @length bytes, and for a quarter of the
 * messages that the bus can have; may be outdated.
 */
bool sluice_bus_has_room(struct sluice_bus *bus, size_t length);

/* What a cursor has passed: sequences, and units. */
struct sluice_bus_passed {
	u64 from, to;
	u32 start, end;
};

/*
 * After that: whether sluice_bus_has_room() may have become true, as far as this cursor is
 * concerned, for a quarter of the capacity or for the largest message.
 */
bool sluice_bus_frees_room(const struct sluice_bus *bus, const struct sluice_bus_passed *passed);

/* Ends a subscription, unless a receiver has claimed its cursor. */
void sluice_bus_evict(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber);

/* The slot of a sequence that a cursor protects, or NULL: it is not committed yet. */
struct sluice_bus_slot *sluice_bus_slot(const struct sluice_bus *bus, u64 sequence);

/* The bytes of the message, contiguous. */
static inline void *sluice_bus_data(const struct sluice_bus *bus,
				    const struct sluice_bus_slot *slot)
{
	return bus->data + ((u64)(slot->start & (bus->units - 1)) << SLUICE_BUS_UNIT_SHIFT);
}

/* With preemption disabled: claims the cursor at @sequence. False: it is claimed already. */
bool sluice_bus_claim(struct sluice_bus_subscriber *subscriber, u64 *sequence);
void sluice_bus_release(struct sluice_bus_subscriber *subscriber, u64 sequence);
/* As if it had not been claimed. */
void sluice_bus_unclaim(struct sluice_bus_subscriber *subscriber, u64 sequence);
u64 sluice_bus_cursor(const struct sluice_bus_subscriber *subscriber);

/* The sequence that is reserved next: whole, and under the lock; or modulo 2^32. */
u64 sluice_bus_head_sequence(const struct sluice_bus *bus);
u32 sluice_bus_head(const struct sluice_bus *bus);

/* ---- bus_subscriber.c ---- */

/* Monitors use up no subscription; this bounds the time of a look at all cursors. */
#define SLUICE_BUS_MONITORS_MAX 16

/* The subscribers and monitors, by numbers from 0. Under RCU some may be missing. */
static inline struct sluice_bus_subscriber *sluice_bus_nth(struct sluice_bus *bus, unsigned int n)
{
	unsigned int count = READ_ONCE(bus->subscriber_count);

	if (n >= count)
		n = n - count + bus->room;
	if (n >= bus->room + SLUICE_BUS_MONITORS_MAX)
		return NULL;
	return rcu_dereference_check(bus->table[n], lockdep_is_held(&bus->lock));
}

#define sluice_bus_for_each_subscriber(bus, subscriber, n) \
	for (n = 0; ((subscriber) = sluice_bus_nth(bus, n)); n++)

struct sluice_bus_opener *sluice_bus_opener_create(struct sluice_bus *bus);
/* After the close of its endpoint. */
void sluice_bus_opener_depart(struct sluice_bus *bus, struct sluice_bus_opener *opener);
void sluice_bus_openers_free(struct list_head *openers);

struct sluice_bus_subscriber *sluice_bus_subscriber_create(struct sluice_bus *bus,
							   const struct sluice_bus_opener *opener,
							   const struct sluice_bus_params *params);
/* Adds it at the head of the bus. -EUSERS: there are as many as permitted. */
int sluice_bus_subscriber_add(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber);
/* Removes it, unless it was evicted, and frees it after a grace period. */
void sluice_bus_subscriber_remove(struct sluice_bus *bus,
				  struct sluice_bus_subscriber *subscriber);
/* Under the lock: removes the subscribers whose cursors are SLUICE_BUS_EVICTED. */
void sluice_bus_remove_evicted(struct sluice_bus *bus);
/* Under RCU or the lock: the subscriber of this id that is no monitor, or NULL. */
struct sluice_bus_subscriber *sluice_bus_subscriber_find(struct sluice_bus *bus, u64 id);
/*
 * Under RCU: the next subscriber in turn, in the mode multicast. 0. -EAGAIN: @found is full, and
 * not skipped because of its policy; or all are full (NULL). -ENOTCONN: there is none.
 */
int sluice_bus_subscriber_next(struct sluice_bus *bus, struct sluice_bus_subscriber **found);
/* Under RCU: whether all are full, and none of them would be evicted. */
bool sluice_bus_subscribers_are_full(struct sluice_bus *bus);
/* Wakes all receivers and senders. */
void sluice_bus_wake_all(struct sluice_bus *bus);

/* Whether it holds more unread bytes than its limit. */
static inline bool sluice_bus_is_full(const struct sluice_bus_subscriber *subscriber)
{
	return atomic64_read(&subscriber->unread_bytes) > subscriber->limit;
}

/* (U) A message addressed to it: before the reservation, and after the copy or the loss. */
static inline void sluice_bus_unread_add(struct sluice_bus_subscriber *subscriber, u32 length)
{
	atomic64_add(length, &subscriber->unread_bytes);
	atomic64_inc_return(&subscriber->unread);
}

/* Returns whether senders may wait for that: it is not full any more, or has no other message. */
static inline bool sluice_bus_unread_sub(struct sluice_bus_subscriber *subscriber, u32 length)
{
	u64 bytes = atomic64_sub_return(length, &subscriber->unread_bytes);
	bool none = !atomic64_dec_return_release(&subscriber->unread);

	return none || (bytes <= subscriber->limit && bytes + length > subscriber->limit);
}

/* ---- bus_send.c ---- */

ssize_t sluice_bus_write_iter(struct kiocb *iocb, struct iov_iter *from);
/* Whether a message of any length can be sent, and several short ones. */
bool sluice_bus_is_writable(struct sluice_bus *bus);

/* ---- bus_receive.c ---- */

ssize_t sluice_bus_read_iter(struct kiocb *iocb, struct iov_iter *to);
long sluice_bus_receive_mapped(struct file *file, struct sluice_bus_receive __user *user);
/* The length of the next message; mapped: not handed out. -EAGAIN: there is none, -ESHUTDOWN. */
int sluice_bus_next_length(struct sluice_bus_endpoint *end);

#endif
