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
 * - A sender reserves a slot and its bytes by one compare-and-swap of `head`, or those of a run of
 *   short messages of a batch, copies the bytes, and commits the slot: (bus-S) stores its sequence
 *   in `stamp` with release. A receiver loads `stamp` with acquire, so it sees the bytes. Receivers
 *   stop at a slot that is not committed.
 * - A cursor is the sequence of the next message of a subscriber. It also protects the messages
 *   from there on: (bus-C) a receiver marks its cursor as claimed, copies, and stores the next
 *   sequence with release; `tail` never passes a cursor, and a cursor is moved past messages (the
 *   policy DROP) only while it is not claimed. So no message changes while it is copied. (bus-P) A
 *   look at the next message needs no claim: it loads the cursor, the slot, and after smp_rmb() the
 *   cursor again. If that has not moved, the slot was that of the message until then; if it is not
 *   claimed either, nobody was receiving the message.
 * - `tail` follows the cursors lazily: a sender that finds no room moves it as far as they permit
 *   (bus_ring.c), under `lock`. (bus-T) It is stored with release, and loaded with acquire by
 *   senders before they overwrite what it has passed.
 * - A sender without room stores the head in `wanted`, one word for each amount of room. A receiver
 *   wakes the senders when its cursor crosses a threshold, a fixed distance before that head. A
 *   full barrier is between the store of `wanted` and the load of the cursors. (bus-W) It pairs
 *   with the one between the store of a cursor and the load of `wanted`.
 *
 * A subscriber with the flag ADDRESSED takes no turn: it is a client, which sends requests to the
 * others and receives replies. (bus-N) It gets a notice when one of the others has ended, or it has
 * lost messages: `notice` is set by an exchange after the change, and taken by an exchange, so
 * that the taker sees the change.
 *
 * A reservation and a claim last only while preemption and page faults are disabled. So none is
 * held across a page fault, a sleep or a throttling of the CPU, and whoever meets one waits for no
 * more than the copy of one message, or of 8 KiB of short ones of a batch. A copy that would fault
 * is cancelled, and made from or to a buffer of the kernel; so are long copies, so that the time
 * without preemption is that of copying the longest message (SLUICE_BUS_COPY_MAX) in memory that is
 * present.
 */
#ifndef SLUICE_BUS_H
#define SLUICE_BUS_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/kconfig.h>
#include <linux/math.h>
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
#include "start.h"
#include "wait.h"

struct iov_iter;
struct kiocb;
struct pid;
struct sluice_ring_memory;

/* Positions in the ring of bytes are counted in units of this many bytes. */
#define SLUICE_BUS_UNIT_SHIFT 6
#define SLUICE_BUS_SLOT_BYTES 256	/* of the capacity per slot */

/* The longest message, which is copied without preemption: too long a time for PREEMPT_RT. */
#define SLUICE_BUS_COPY_MAX (IS_ENABLED(CONFIG_PREEMPT_RT) ? SZ_64K : SLUICE_BUS_MESSAGE_MAX)
/* Longer copies between the ring and user space go through a buffer of the kernel. */
#define SLUICE_BUS_DIRECT_MAX SZ_64K
/* Copies that may find pages not present; the second one after they were faulted in. */
#define SLUICE_BUS_DIRECT_ATTEMPTS 2

/* The cursor of a subscriber that was evicted. */
#define SLUICE_BUS_EVICTED (U64_MAX >> 1)

/*
 * The first sequence. A message takes more than 50 ns, so 2^63 - 1, the end of a cursor, comes
 * after 14,000 years. Positions in `head` and `tail` are modulo 2^32: a bus has less than 2^31
 * slots and units.
 */
#define SLUICE_BUS_FIRST SLUICE_START_ENDLESS(100)

/*
 * Who opened an endpoint. Slots refer to it; it is freed when the endpoint is closed and `tail` has
 * passed all messages that were sent before the close, if one of them may be from it. So each that
 * waits for that was open when the message at `tail` was sent, or has sent one since.
 */
struct sluice_bus_opener {
	u64 id;
	kuid_t uid;
	kgid_t gid;
	struct pid *pid;
	bool has_sent;
	u64 end;			/* of the messages before the close (L) */
	struct list_head departed;	/* in the list of the bus, after the close (L) */
};

/* One message. Written by its sender between the reservation and the commit. */
struct sluice_bus_slot {
	u64 stamp;			/* the sequence of the message, when committed (bus-S) */
	u32 start;			/* units; modulo 2^32 */
	u32 end;			/* units; modulo 2^32 */
	u32 length;			/* bytes */
	bool discarded;			/* the copy failed: not a message */
	u64 target;			/* id of the subscriber, or 0 */
	u64 tag;			/* the sender's */
	u32 messages_before;		/* in the current move of `tail` (L) */
	u32 to_all_before;		/* messages to all subscribers, in that move (L) */
	const struct sluice_bus_opener *sender;
} ____cacheline_aligned;

struct sluice_bus_subscriber {
	const struct sluice_bus_opener *opener;	/* NULL: the queue of a unicast bus */
	u64 id;				/* its opener's, or 0 */
	struct rcu_head rcu;
	u32 policy;			/* SLUICE_BUS_DROP and so on */
	u32 flags;			/* SLUICE_BUS_MAPPED, _MONITOR, _ADDRESSED */
	atomic_t notice;		/* ADDRESSED: 1 if it is unread (bus-N) */
	u64 limit;			/* of unread_bytes */
	u64 moved_from;			/* the cursor before the current move of `tail` (L) */

	/* The sequence of the next message << 1 | whether it is claimed (bus-C) */
	atomic64_t cursor ____cacheline_aligned_in_smp;
	u64 expected;			/* at the last release; used while claimed */
	u64 handed_out;			/* mapped: follows the last returned; used while claimed */
	atomic64_t untold;		/* lost messages that were not reported yet */
	u64 lost;			/* messages lost since its open (L) */

	/* Addressed to it: from before the reservation until they are received or lost */
	atomic64_t unread ____cacheline_aligned_in_smp;	/* messages */
	atomic64_t unread_bytes;	/* at least SLUICE_BUS_SLOT_BYTES of each */
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
	unsigned int room;		/* for subscribers, and separately for clients */
	bool destroyed;

	/* Sequence and unit of the next reservation: each modulo 2^32, in one word */
	atomic64_t head ____cacheline_aligned_in_smp;

	/* As head, of the oldest message that must be kept (bus-T) */
	atomic64_t tail ____cacheline_aligned_in_smp;
	unsigned int subscriber_count;		/* neither clients nor monitors (L) */
	unsigned int addressed_count;		/* (L) */
	unsigned int monitor_count;		/* (L) */
	/*
	 * The subscribers, from `room` on those with ADDRESSED, and from twice `room` on the
	 * monitors, each part dense; changed under the lock, read under it or, with gaps, under RCU
	 */
	struct sluice_bus_subscriber __rcu **table;
	struct xarray subscribers;		/* by id, without monitors */
	struct sluice_wait_queue readable;	/* all receivers, except in the mode multicast */
	struct sluice_wait_queue writable;	/* senders */
	/* The last head of a sender without room for: [0] a quarter; [1] the largest message */
	atomic64_t wanted[2];		/* (bus-W) */

	spinlock_t lock ____cacheline_aligned_in_smp;	/* (L) */
	u64 tail_sequence;		/* of tail, not modulo (L) */
	u64 last_id;			/* (L) */
	struct list_head departed;	/* openers of closed endpoints, in order (L) */
	u64 lost;			/* (L) */
	u64 reported;			/* messages since creation, as last reported (L) */
	u64 evicted;			/* (L) */
	unsigned int senders;		/* endpoints open for writing (L) */
	unsigned int receivers;		/* unicast: endpoints open for reading (L) */
	/*
	 * In the mode multicast: the next subscriber without ADDRESSED, modulo their number, which
	 * need not be a power of two. So it must not wrap around, as 32 bits do after minutes.
	 */
	atomic64_t turn;
	atomic64_t unsubscribed;
	atomic64_t discarded;		/* slots (bus-V) */
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

/**
 * sluice_bus_endpoint() - returns the bus endpoint of a file
 * @file: the open file of a bus
 *
 * Return: the bus endpoint.
 */
static inline struct sluice_bus_endpoint *sluice_bus_endpoint(const struct file *file)
{
	return container_of((struct sluice_endpoint *)file->private_data,
			    struct sluice_bus_endpoint, endpoint);
}

/**
 * sluice_bus_is_monitor() - tests whether a subscriber is a monitor
 * @subscriber: the subscriber
 *
 * Return: true if it is.
 */
static inline bool sluice_bus_is_monitor(const struct sluice_bus_subscriber *subscriber)
{
	return subscriber->flags & SLUICE_BUS_MONITOR;
}

/**
 * sluice_bus_readable() - returns the queue in which receivers of a subscriber sleep
 * @bus: the bus
 * @subscriber: the subscriber
 *
 * Return: the wait queue.
 */
static inline struct sluice_wait_queue *
sluice_bus_readable(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	bool own = bus->mode == SLUICE_BUS_MULTICAST && !sluice_bus_is_monitor(subscriber);

	return own ? &subscriber->readable : &bus->readable;
}

/**
 * sluice_bus_wake_senders() - wakes all senders, after a change that they may wait for
 * @bus: the bus
 */
static inline void sluice_bus_wake_senders(struct sluice_bus *bus)
{
	sluice_wait_wake_all(&bus->writable, EPOLLOUT | EPOLLWRNORM);
}

/**
 * sluice_bus_message_max() - returns the length of the largest message of a bus
 * @bus: the bus
 *
 * Return: the length in bytes.
 */
static inline u64 sluice_bus_message_max(const struct sluice_bus *bus)
{
	return min_t(u64, SLUICE_BUS_COPY_MAX,
		     bus->capacity / 2 - sizeof(struct sluice_bus_frame));
}

/**
 * sluice_bus_is_nonblocking() - tests whether a read or write must not block
 * @iocb: of the read or write
 *
 * Return: true if it must not.
 */
static inline bool sluice_bus_is_nonblocking(const struct kiocb *iocb)
{
	return iocb->ki_flags & IOCB_NOWAIT || iocb->ki_filp->f_flags & O_NONBLOCK;
}

/**
 * sluice_bus_check_killed() - checks for a fatal signal before an attempt without sleep
 *
 * Other signals do not interrupt the call: io_uring also sends and receives while it has work of
 * its own pending, which looks like a signal.
 *
 * Return: 0; -ERESTARTSYS: the process is killed.
 */
static inline int sluice_bus_check_killed(void)
{
	return fatal_signal_pending(current) ? -ERESTARTSYS : 0;
}

/* ---- bus_ring.c ---- */

/**
 * sluice_bus_ring_init() - allocates slots and bytes
 * @bus: the bus, whose capacity is set
 *
 * After a failure the caller calls sluice_bus_ring_exit().
 *
 * Return: 0; -ENOMEM; -EINTR: the process is killed.
 */
int sluice_bus_ring_init(struct sluice_bus *bus);

/**
 * sluice_bus_ring_exit() - frees slots and bytes
 * @bus: the bus, which nobody uses
 */
void sluice_bus_ring_exit(struct sluice_bus *bus);

/* Where the next of the reserved messages is. */
struct sluice_bus_place {
	u32 sequence;			/* modulo 2^32 */
	u32 unit;			/* modulo 2^32 */
};

/**
 * sluice_bus_units() - returns the units that a message uses
 * @length: of the message, in bytes
 *
 * Return: the number of units.
 */
static inline u32 sluice_bus_units(size_t length)
{
	return DIV_ROUND_UP(length, 1ul << SLUICE_BUS_UNIT_SHIFT);
}

/**
 * sluice_bus_reserve() - reserves slots for messages that follow one another
 * @bus: the bus
 * @slots: the number of messages
 * @units: of all of them
 * @first: out: the place of the first message
 *
 * The caller takes each slot by sluice_bus_next_slot(), sets `target`, `tag`, `sender` and
 * `discarded`, copies, and commits the slot, all before it enables preemption.
 *
 * Context: preemption is disabled.
 * Return: true; false: there is no room before the tail.
 */
bool sluice_bus_reserve(struct sluice_bus *bus, u32 slots, u32 units,
			struct sluice_bus_place *first);

/**
 * sluice_bus_commit() - makes a reserved slot visible to receivers
 * @bus: the bus
 * @slot: the slot
 *
 * Context: preemption has been disabled since the reservation.
 */
static inline void sluice_bus_commit(struct sluice_bus *bus, struct sluice_bus_slot *slot)
{
	/* A slot is used again by the message that is slot_count later. */
	smp_store_release(&slot->stamp, slot->stamp + bus->slot_count);	/* (bus-S) */
}

/**
 * sluice_bus_make_room() - moves the tail so that a message can be reserved
 * @bus: the bus
 * @length: of the message, in bytes
 *
 * Moves the tail as far as the policies of the subscribers permit.
 *
 * Return: true: try again; false: subscribers that block senders, or the queue of a unicast bus,
 * hold the room.
 */
bool sluice_bus_make_room(struct sluice_bus *bus, size_t length);

/**
 * sluice_bus_bytes() - returns the bytes between the oldest message that is held and the head
 * @bus: the bus
 *
 * Context: under bus->lock.
 * Return: the number of bytes, in whole units; 0 also if the oldest message is not committed yet.
 */
u64 sluice_bus_bytes(struct sluice_bus *bus);

/**
 * sluice_bus_has_room() - tests whether there is room for several messages
 * @bus: the bus
 * @length: total length of the messages, in bytes
 *
 * If there is none, stores the head in bus->wanted: room that appears later wakes a caller that
 * polls or sleeps. Wakes other senders if the room has appeared meanwhile.
 *
 * Return: true if the subscribers that block senders, and the queue of a unicast bus, leave room
 * for @length bytes, and for a quarter of the messages that the bus can have; also if the bounded
 * scan of the cursors did not find this out. May be outdated.
 */
bool sluice_bus_has_room(struct sluice_bus *bus, size_t length);

/* What a cursor has passed: sequences, and units. */
struct sluice_bus_passed {
	u64 from, to;
	u32 start, end;
};

/**
 * sluice_bus_frees_room() - tests whether a move of a cursor gives senders room
 * @bus: the bus
 * @passed: what the cursor has passed
 *
 * Return: true if the cursor crosses a threshold: a quarter of the capacity or of the slots, or the
 * largest message, has become free for senders that saw the head in `wanted`. The threshold does
 * not move with later heads, so each cursor crosses it once. A sender that replaces the head in
 * `wanted` wakes the others if it finds room; if it finds none, they have none either.
 */
bool sluice_bus_frees_room(const struct sluice_bus *bus, struct sluice_bus_passed passed);

/**
 * sluice_bus_evict() - ends a subscription
 * @bus: the bus
 * @subscriber: the subscriber
 *
 * Has no effect if a receiver has claimed the cursor and does not end the claim during a bounded
 * number of attempts.
 *
 * Context: under RCU. Takes bus->lock.
 */
void sluice_bus_evict(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber);

/**
 * sluice_bus_slot_at() - returns the place of a message in the ring
 * @bus: the bus
 * @sequence: of the message
 *
 * Return: the slot, which may have another message, or none.
 */
static inline struct sluice_bus_slot *sluice_bus_slot_at(const struct sluice_bus *bus, u64 sequence)
{
	return &bus->slots[sequence & (bus->slot_count - 1)];
}

/**
 * sluice_bus_next_slot() - takes the next of the reserved slots
 * @bus: the bus
 * @place: in, out: where it is
 * @length: of its message, in bytes
 *
 * Return: the slot.
 */
static inline struct sluice_bus_slot *
sluice_bus_next_slot(const struct sluice_bus *bus, struct sluice_bus_place *place, size_t length)
{
	struct sluice_bus_slot *slot = sluice_bus_slot_at(bus, place->sequence++);

	slot->start = place->unit;
	place->unit += sluice_bus_units(length);
	slot->end = place->unit;
	slot->length = length;
	return slot;
}

/**
 * sluice_bus_slot() - returns the slot of a message
 * @bus: the bus
 * @sequence: of the message, which a cursor protects
 *
 * Without such a cursor the slot may be used again at any time.
 *
 * Return: the slot, or NULL: the message is not committed yet.
 */
static inline struct sluice_bus_slot *sluice_bus_slot(const struct sluice_bus *bus, u64 sequence)
{
	struct sluice_bus_slot *slot = sluice_bus_slot_at(bus, sequence);

	return smp_load_acquire(&slot->stamp) == sequence ? slot : NULL;	/* (bus-S) */
}

/**
 * sluice_bus_data() - returns the bytes of a message
 * @bus: the bus
 * @slot: of the message
 *
 * Return: the bytes, contiguous.
 */
static inline void *sluice_bus_data(const struct sluice_bus *bus,
				    const struct sluice_bus_slot *slot)
{
	return bus->data + ((u64)(slot->start & (bus->units - 1)) << SLUICE_BUS_UNIT_SHIFT);
}

/**
 * sluice_bus_claim() - claims the cursor of a subscriber
 * @subscriber: the subscriber
 * @sequence: out: of the next message, or SLUICE_BUS_EVICTED
 *
 * Context: preemption is disabled, until the claim ends.
 * Return: true if it is claimed now; false: it was claimed already.
 */
static inline bool sluice_bus_claim(struct sluice_bus_subscriber *subscriber, u64 *sequence)
{
	s64 word = atomic64_read(&subscriber->cursor);

	do {
		if (word & 1)
			return false;
	} while (!atomic64_try_cmpxchg(&subscriber->cursor, &word, word | 1));
	*sequence = (u64)word >> 1;
	return true;
}

/**
 * sluice_bus_unclaim() - ends a claim as if there had been none
 * @subscriber: the subscriber
 * @sequence: at which the cursor was claimed
 */
static inline void sluice_bus_unclaim(struct sluice_bus_subscriber *subscriber, u64 sequence)
{
	atomic64_set_release(&subscriber->cursor, sequence << 1);	/* (bus-C) */
}

/**
 * sluice_bus_release() - moves a claimed cursor and ends the claim
 * @subscriber: the subscriber
 * @sequence: of the message that is now the next
 */
static inline void sluice_bus_release(struct sluice_bus_subscriber *subscriber, u64 sequence)
{
	subscriber->expected = sequence;
	sluice_bus_unclaim(subscriber, sequence);
}

/**
 * sluice_bus_cursor() - returns the cursor of a subscriber
 * @subscriber: the subscriber
 *
 * Return: the sequence of the next message, or SLUICE_BUS_EVICTED.
 */
static inline u64 sluice_bus_cursor(const struct sluice_bus_subscriber *subscriber)
{
	return (u64)atomic64_read(&subscriber->cursor) >> 1;
}

/**
 * sluice_bus_is_unclaimed_at() - tests whether a cursor has a place, and nobody has claimed it
 * @subscriber: the subscriber
 * @sequence: the place
 *
 * Return: true if so.
 */
static inline bool sluice_bus_is_unclaimed_at(const struct sluice_bus_subscriber *subscriber,
					      u64 sequence)
{
	return atomic64_read(&subscriber->cursor) == sequence << 1;
}

/**
 * sluice_bus_head_sequence() - returns the sequence that is reserved next
 * @bus: the bus
 *
 * Context: under bus->lock.
 * Return: the whole sequence.
 */
u64 sluice_bus_head_sequence(const struct sluice_bus *bus);

/**
 * sluice_bus_head() - returns the sequence that is reserved next, modulo 2^32
 * @bus: the bus
 *
 * Return: the sequence modulo 2^32.
 */
static inline u32 sluice_bus_head(const struct sluice_bus *bus)
{
	return (u64)atomic64_read(&bus->head) >> 32;
}

/* ---- bus_subscriber.c ---- */

/* Monitors use up no subscription; this bounds the time of a look at all cursors. */
#define SLUICE_BUS_MONITORS_MAX 16

/**
 * sluice_bus_nth() - returns a subscriber or a monitor by its number
 * @bus: the bus
 * @n: the number, from 0; those with ADDRESSED follow the others, and the monitors are last
 *
 * Context: under bus->lock, or under RCU, where some may be missing.
 * Return: the subscriber, or NULL: there are no more.
 */
static inline struct sluice_bus_subscriber *sluice_bus_nth(struct sluice_bus *bus, unsigned int n)
{
	unsigned int count = READ_ONCE(bus->subscriber_count);
	unsigned int addressed = READ_ONCE(bus->addressed_count);

	if (n >= count + addressed)
		n = n - count - addressed + 2 * bus->room;
	else if (n >= count)
		n = n - count + bus->room;
	if (n >= 2 * bus->room + SLUICE_BUS_MONITORS_MAX)
		return NULL;
	return rcu_dereference_check(bus->table[n], lockdep_is_held(&bus->lock));
}

#define sluice_bus_for_each_subscriber(bus, subscriber, n) \
	for (n = 0; ((subscriber) = sluice_bus_nth(bus, n)); n++)

/**
 * sluice_bus_opener_create() - makes the caller the opener of a new endpoint
 * @bus: the bus
 *
 * Return: the opener, with a new id; or NULL: no memory.
 */
struct sluice_bus_opener *sluice_bus_opener_create(struct sluice_bus *bus);

/**
 * sluice_bus_opener_depart() - ends the use of an opener, after the close of its endpoint
 * @bus: the bus
 * @opener: the opener, which is freed once no slot refers to it
 */
void sluice_bus_opener_depart(struct sluice_bus *bus, struct sluice_bus_opener *opener);

/**
 * sluice_bus_openers_free() - frees openers that no slot refers to
 * @openers: the list of them
 *
 * Context: may sleep.
 */
void sluice_bus_openers_free(struct list_head *openers);

/**
 * sluice_bus_subscriber_create() - creates a subscriber, which is not added yet
 * @bus: the bus
 * @opener: of its endpoint; NULL: it is the queue of a unicast bus
 * @params: its policy, flags and limit
 *
 * Return: the subscriber, or NULL: no memory.
 */
struct sluice_bus_subscriber *sluice_bus_subscriber_create(struct sluice_bus *bus,
							   const struct sluice_bus_opener *opener,
							   const struct sluice_bus_params *params);
/**
 * sluice_bus_subscriber_add() - adds a subscriber at the head of the bus
 * @bus: the bus
 * @subscriber: the subscriber; after a failure the caller frees it
 *
 * Return: 0; -EUSERS: there are as many as permitted; -ENOMEM.
 */
int sluice_bus_subscriber_add(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber);

/**
 * sluice_bus_subscriber_remove() - removes a subscriber, unless it was evicted, and frees it
 * @bus: the bus
 * @subscriber: the subscriber, which is freed after a grace period of RCU
 */
void sluice_bus_subscriber_remove(struct sluice_bus *bus,
				  struct sluice_bus_subscriber *subscriber);

/**
 * sluice_bus_remove_evicted() - removes the subscribers whose cursors are SLUICE_BUS_EVICTED
 * @bus: the bus
 *
 * Context: under bus->lock.
 */
void sluice_bus_remove_evicted(struct sluice_bus *bus);

/**
 * sluice_bus_subscriber_find() - returns the subscriber with an id
 * @bus: the bus
 * @id: the id
 *
 * Context: under RCU or bus->lock.
 * Return: the subscriber, or NULL: there is none, or it is a monitor.
 */
struct sluice_bus_subscriber *sluice_bus_subscriber_find(struct sluice_bus *bus, u64 id);

/**
 * sluice_bus_subscriber_next() - takes a turn: finds the next subscriber in the mode multicast
 * @bus: the bus
 * @found: out: the subscriber, or NULL
 *
 * Context: under RCU.
 * Return: 0; -EAGAIN: @found is full and its policy is not DROP; or @found is NULL, because all
 * subscribers are full; -ENOTCONN: there is no subscriber.
 */
int sluice_bus_subscriber_next(struct sluice_bus *bus, struct sluice_bus_subscriber **found);

/**
 * sluice_bus_take_notice() - takes the notice of a subscriber with ADDRESSED
 * @subscriber: the subscriber
 *
 * (bus-N) The exchange pairs with the one in sluice_bus_notify().
 *
 * Return: true if there was one: another subscriber has ended, or this one has lost messages.
 */
static inline bool sluice_bus_take_notice(struct sluice_bus_subscriber *subscriber)
{
	return atomic_read(&subscriber->notice) && atomic_xchg(&subscriber->notice, 0);
}

/**
 * sluice_bus_notify() - gives a subscriber a notice if it has the flag ADDRESSED
 * @subscriber: the subscriber
 *
 * Context: under bus->lock.
 */
void sluice_bus_notify(struct sluice_bus_subscriber *subscriber);

/**
 * sluice_bus_subscribers_are_full() - tests whether no subscriber can take a message
 * @bus: the bus, in the mode multicast
 *
 * Context: under RCU.
 * Return: true if there are subscribers, all are full, and none of them would be evicted.
 */
bool sluice_bus_subscribers_are_full(struct sluice_bus *bus);

/**
 * sluice_bus_wake_all() - wakes all receivers and senders
 * @bus: the bus
 */
void sluice_bus_wake_all(struct sluice_bus *bus);

/**
 * sluice_bus_is_full() - tests whether a subscriber has more unread bytes than its limit
 * @subscriber: the subscriber
 *
 * Return: true if it has.
 */
static inline bool sluice_bus_is_full(const struct sluice_bus_subscriber *subscriber)
{
	return atomic64_read(&subscriber->unread_bytes) > subscriber->limit;
}

/* What a message counts in `unread_bytes`: it uses a slot, however short it is. */
static inline u64 sluice_bus_unread_cost(u32 length)
{
	return max_t(u64, length, SLUICE_BUS_SLOT_BYTES);
}

/**
 * sluice_bus_unread_add() - counts a message that is addressed to a subscriber (bus-U)
 * @subscriber: the subscriber
 * @length: of the message, in bytes
 *
 * Called before the reservation of the message.
 */
static inline void sluice_bus_unread_add(struct sluice_bus_subscriber *subscriber, u32 length)
{
	atomic64_add(sluice_bus_unread_cost(length), &subscriber->unread_bytes);
	atomic64_inc_return(&subscriber->unread);
}

/**
 * sluice_bus_unread_sub() - ends the count of a message for a subscriber (bus-U)
 * @subscriber: the subscriber
 * @length: of the message, in bytes
 *
 * Called after the copy or the loss of the message, or after an attempt to send it that failed.
 *
 * Return: true if senders may wait for this change: the subscriber is not full any more, or has no
 * other message.
 */
static inline bool sluice_bus_unread_sub(struct sluice_bus_subscriber *subscriber, u32 length)
{
	u64 cost = sluice_bus_unread_cost(length);
	u64 bytes = atomic64_sub_return(cost, &subscriber->unread_bytes);
	bool none = !atomic64_dec_return_release(&subscriber->unread);

	return none || (bytes <= subscriber->limit && bytes + cost > subscriber->limit);
}

/* ---- bus_send.c ---- */

/**
 * sluice_bus_write_iter() - sends a message, or several unless the format is SLUICE_BUS_RAW
 * @iocb: of the write
 * @from: the messages, with their frames unless the format is SLUICE_BUS_RAW
 *
 * Waits for the first message only. After that one, an error ends the batch.
 *
 * Return: the bytes of @from, or those before the first frame that was not sent; -EAGAIN: the call
 * is nonblocking, and there is no room or the subscriber is full; -EPIPE: the bus is destroyed;
 * -ENOTCONN: a multicast bus has no subscriber; -ENOENT: the target does not exist; -EOPNOTSUPP:
 * the bus permits no target; -EMSGSIZE: the message is too long; -EINVAL, -E2BIG: the frame is
 * invalid; -EFAULT; -ENOMEM; -ERESTARTSYS: a signal is pending.
 */
ssize_t sluice_bus_write_iter(struct kiocb *iocb, struct iov_iter *from);

/**
 * sluice_bus_is_writable() - tests whether a sender need not wait
 * @end: the endpoint of the sender
 *
 * Return: true if a message of any length can be sent, and several short ones, or if the bus is
 * destroyed; may be outdated. For a server only the ring counts, not its own fullness.
 */
bool sluice_bus_is_writable(struct sluice_bus_endpoint *end);

/* ---- bus_receive.c ---- */

/**
 * sluice_bus_read_iter() - receives a message, or several in the format SLUICE_BUS_BATCHED
 * @iocb: of the read
 * @to: where the messages go, with their frames unless the format is SLUICE_BUS_RAW
 *
 * Return: the number of bytes; -EINVAL: the subscriber is mapped; -EPIPE: the bus is destroyed;
 * -EAGAIN: the call is nonblocking and there is no message; -ENOLINK: there is a notice (bus-N) and
 * no message; -ESHUTDOWN: the subscriber was evicted; -EMSGSIZE: the first message does not fit;
 * -EFAULT; -ENOMEM; -ERESTARTSYS: a signal is pending.
 */
ssize_t sluice_bus_read_iter(struct kiocb *iocb, struct iov_iter *to);

/**
 * sluice_bus_receive_mapped() - executes SLUICE_BUS_RECEIVE
 * @file: the open file of a bus
 * @user: the parameters
 *
 * Return: 0; -EINVAL: the subscriber is not mapped, or the parameters are invalid; -E2BIG: the
 * parameters have unknown fields; -EPIPE: the bus is destroyed; -EAGAIN: the file is nonblocking
 * and there is no message; -ESHUTDOWN: the subscriber was evicted; -EFAULT; -EINTR.
 */
long sluice_bus_receive_mapped(struct file *file, struct sluice_bus_receive __user *user);

/**
 * sluice_bus_next_length() - returns the length of the next message
 * @end: an endpoint with a subscriber
 *
 * Of a mapped subscriber it is the next message that was not handed out. Messages for other
 * subscribers are passed.
 *
 * Return: the length in bytes; -EAGAIN: there is no message; -ESHUTDOWN: the subscriber was
 * evicted.
 */
int sluice_bus_next_length(struct sluice_bus_endpoint *end);

#endif
