// SPDX-License-Identifier: GPL-2.0
/*
 * The slots and bytes of a bus: reservation, commit, claims, and the tail.
 *
 * (bus-S), (bus-C), (bus-T): see bus.h.
 *
 * The tail is moved in two steps. First as far as all cursors are: nothing is lost by that. If this
 * is not enough, past messages that subscribers with the policy DROP or EVICT have not received.
 * Their cursors are moved with it, by compare-and-swap, so that each message is either received or
 * counted as lost. Both steps stop at a slot that is not committed, at a cursor that is claimed,
 * and at the cursor of a subscriber with the policy BLOCK.
 *
 * A subscriber in the mode multicast does not hold the messages of others: if it has no unread
 * message, its cursor is moved without a loss. (bus-U) A sender increments `unread` of its target
 * before it reserves. So if `unread` is 0 after `head` was read, no slot before that head has a
 * message for the subscriber.
 */
#include <linux/bits.h>
#include <linux/err.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/numa.h>
#include <linux/processor.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "bus.h"
#include "ring_memory.h"
#include "trace.h"

#define UNIT BIT(SLUICE_BUS_UNIT_SHIFT)
#define STEP_PARTS 16		/* this part of the ring is freed when messages are lost */
#define STEP_MAX 4096		/* slots that a scan or a move passes under the lock at a time */
#define DEPARTED_MAX (2 * STEP_MAX)	/* openers per move: as many as it may have passed slots */
#define UNITS_BEFORE 400	/* in a build for tests, to the end of a counter */
#define TURNS_BEFORE 5
#define IDS_BEFORE 3
#define ATTEMPTS_MAX 1000	/* to move cursors that are claimed, under the lock at a time */

/* ---- head and tail ---- */

static u64 pack(u32 sequence, u32 unit)
{
	return (u64)sequence << 32 | unit;
}

static u32 sequence_of(u64 word)
{
	return word >> 32;
}

static u32 unit_of(u64 word)
{
	return (u32)word;
}

/* Whether @slots messages of @units altogether fit between @head and @tail. */
static bool bus_fits(const struct sluice_bus *bus, u64 head, u64 tail, u32 slots, u32 units)
{
	return sequence_of(head) - sequence_of(tail) + slots <= bus->slot_count &&
	       unit_of(head) - unit_of(tail) + units <= bus->units;
}

bool sluice_bus_reserve(struct sluice_bus *bus, u32 slots, u32 units,
			struct sluice_bus_place *first)
{
	s64 head = atomic64_read(&bus->head);

	do {
		/* (bus-T) */
		if (!bus_fits(bus, head, atomic64_read_acquire(&bus->tail), slots, units))
			return false;
	} while (!atomic64_try_cmpxchg(&bus->head, &head,
				       pack(sequence_of(head) + slots, unit_of(head) + units)));
	first->sequence = sequence_of(head);
	first->unit = unit_of(head);
	return true;
}

/* The sequence of a head, given one that is less than 2^32 before it. */
static u64 extend(u64 sequence, u64 head)
{
	return sequence + (u32)(sequence_of(head) - (u32)sequence);
}

u64 sluice_bus_head_sequence(const struct sluice_bus *bus)
{
	return extend(bus->tail_sequence, atomic64_read_acquire(&bus->head));	/* (bus-U) */
}

/* ---- cursors ---- */

static u64 cursor_of(u64 word)
{
	return word >> 1;
}

static bool is_claimed(u64 word)
{
	return word & 1;
}

/* ---- the first step: what all permit ---- */

/* Whether it is no message of this subscriber, in the mode multicast. */
static bool is_others(const struct sluice_bus_slot *slot, u64 id)
{
	/* A sender may be using the slot again; the cursor of the subscriber has then moved. */
	return data_race(slot->discarded || slot->target != id);
}

/*
 * A scan of the cursors. In the mode multicast it passes the messages of others, for all
 * subscribers together at most STEP_MAX: cursors that it has moved are nearer at the next scan.
 */
struct scan {
	u64 head;			/* read before */
	unsigned int left;		/* slots that it may still pass */
	bool unsure;			/* subscribers may hold less than was found */
};

/*
 * In the mode multicast: the first message of the subscriber from @sequence on, as far as it is
 * known, at most the head.
 */
static u64 first_own(const struct sluice_bus *bus, const struct sluice_bus_subscriber *subscriber,
		     u64 sequence, struct scan *scan)
{
	if (!atomic64_read_acquire(&subscriber->unread))	/* (bus-U) */
		return scan->head;
	for (; sequence < scan->head; sequence++) {
		const struct sluice_bus_slot *slot = sluice_bus_slot(bus, sequence);

		if (!slot || !is_others(slot, subscriber->id))
			break;
		if (!scan->left) {
			scan->unsure = true;
			break;
		}
		scan->left--;
	}
	return sequence;
}

/*
 * The oldest sequence that the subscriber holds, at most the head. In the mode multicast its cursor
 * is first moved past the messages of others. Unsure: also if that takes the end of a claim.
 */
static u64 held_by(const struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber,
		   struct scan *scan)
{
	s64 word = atomic64_read_acquire(&subscriber->cursor);	/* (bus-C) */

	if (bus->mode != SLUICE_BUS_MULTICAST || sluice_bus_is_monitor(subscriber))
		return cursor_of(word);
	while (cursor_of(word) < scan->head) {
		u64 before = cursor_of(word), own = first_own(bus, subscriber, before, scan);

		if (own == before)
			break;
		if (is_claimed(word)) {
			scan->unsure = true;
			break;
		}
		if (atomic64_try_cmpxchg(&subscriber->cursor, &word, own << 1))
			return own;
	}
	return cursor_of(word);
}

/*
 * The oldest sequence that subscribers with these policies hold, at most @head. Sets @unsure if
 * they may hold less.
 */
static u64 oldest_held(struct sluice_bus *bus, u32 policies, u64 head, bool *unsure)
{
	struct scan scan = { .head = head, .left = STEP_MAX };
	struct sluice_bus_subscriber *subscriber;
	u64 oldest = head;
	unsigned int i;

	sluice_bus_for_each_subscriber(bus, subscriber, i)
		if (subscriber->policy & policies)
			oldest = min(oldest, held_by(bus, subscriber, &scan));
	if (bus->queue)
		oldest = min(oldest, held_by(bus, bus->queue, &scan));
	*unsure = scan.unsure;
	return oldest;
}

/* The end of the committed slots from @sequence on, at most @end, and their end in units. */
static u64 committed_until(const struct sluice_bus *bus, u64 sequence, u64 end, u32 *unit)
{
	for (; sequence < end; sequence++) {
		const struct sluice_bus_slot *slot = sluice_bus_slot(bus, sequence);

		if (!slot)
			break;
		*unit = slot->end;
	}
	return sequence;
}

/* Under the lock: moves the tail to @end, or to the first slot before it that is not committed. */
static void move_tail(struct sluice_bus *bus, u64 end)
{
	u32 unit = unit_of(atomic64_read(&bus->tail));

	end = committed_until(bus, bus->tail_sequence, end, &unit);
	smp_store_release(&bus->tail_sequence, end);	/* after the head that was read */
	atomic64_set_release(&bus->tail, pack(end, unit));	/* (bus-T) */
}

/* ---- the second step: messages are lost ---- */

/*
 * Under the lock: moves a cursor to @to, or to the end of the subscription. Waits for the end of a
 * claim, for @attempts at most. False: they did not suffice. Sets moved_from to its former place,
 * or to @to if it was not before that.
 */
static bool move_cursor(struct sluice_bus_subscriber *subscriber, u64 to, unsigned int *attempts)
{
	u64 moved = subscriber->policy == SLUICE_BUS_EVICT ? SLUICE_BUS_EVICTED : to;
	s64 word = atomic64_read_acquire(&subscriber->cursor);	/* (bus-C) */

	subscriber->moved_from = to;
	while (*attempts) {
		if (cursor_of(word) >= to)
			return true;
		if (is_claimed(word)) {
			--*attempts;
			cpu_relax();
			word = atomic64_read_acquire(&subscriber->cursor);	/* (bus-C) */
		} else if (atomic64_try_cmpxchg(&subscriber->cursor, &word, moved << 1)) {
			subscriber->moved_from = cursor_of(word);
			return true;
		}
	}
	return false;
}

/* Under the lock: how far the tail may follow, which is less than @to if a cursor is claimed. */
static u64 move_cursors(struct sluice_bus *bus, u64 to)
{
	unsigned int attempts = ATTEMPTS_MAX, i;
	struct sluice_bus_subscriber *subscriber;
	u64 end = to;

	sluice_bus_for_each_subscriber(bus, subscriber, i)
		if (!move_cursor(subscriber, to, &attempts))
			end = min(end, sluice_bus_cursor(subscriber));
	return max(end, bus->tail_sequence);
}

static void bus_count_lost(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber,
			   u64 count)
{
	if (!count)
		return;
	trace_sluice_bus_lost(&bus->channel, subscriber->id, count);
	atomic64_add(count, &subscriber->untold);
	WRITE_ONCE(subscriber->lost, subscriber->lost + count);
	if (!sluice_bus_is_monitor(subscriber))
		WRITE_ONCE(bus->lost, bus->lost + count);
	sluice_bus_notify(subscriber);
}

/* A message for one subscriber, which has lost it if its cursor was moved past it. */
static void count_addressed(struct sluice_bus *bus, const struct sluice_bus_slot *slot,
			    u64 sequence)
{
	struct sluice_bus_subscriber *target = sluice_bus_subscriber_find(bus, slot->target);

	if (!target || target->moved_from > sequence)
		return;
	sluice_bus_unread_sub(target, slot->length);
	bus_count_lost(bus, target, 1);
}

/*
 * Under the lock: counts what the subscribers whose cursors were moved to @to have lost. A monitor
 * loses all messages, others those to every subscriber, and those addressed to them.
 */
static void count_losses(struct sluice_bus *bus, u64 to)
{
	struct sluice_bus_subscriber *subscriber;
	u32 to_all = 0, messages = 0;
	unsigned int i;
	u64 sequence;

	for (sequence = bus->tail_sequence; sequence < to; sequence++) {
		struct sluice_bus_slot *slot = sluice_bus_slot_at(bus, sequence);

		slot->to_all_before = to_all;
		slot->messages_before = messages;
		if (slot->discarded)
			continue;
		messages++;
		if (slot->target)
			count_addressed(bus, slot, sequence);
		else
			to_all++;
	}
	sluice_bus_for_each_subscriber(bus, subscriber, i) {
		struct sluice_bus_slot *slot = sluice_bus_slot_at(bus, subscriber->moved_from);

		if (subscriber->moved_from == to)
			continue;
		if (sluice_bus_is_monitor(subscriber))
			bus_count_lost(bus, subscriber, messages - slot->messages_before);
		else
			bus_count_lost(bus, subscriber, to_all - slot->to_all_before);
	}
}

/* Where the tail must be for a message of @units, and for a part of the ring besides. */
static u64 end_for(const struct sluice_bus *bus, u32 units, u64 most)
{
	u64 head = atomic64_read(&bus->head), sequence;
	u32 wanted_units = max(units, bus->units / STEP_PARTS);
	u32 wanted_slots = bus->slot_count / STEP_PARTS;

	most = min(most, bus->tail_sequence + STEP_MAX);
	for (sequence = bus->tail_sequence; sequence < most; sequence++) {
		const struct sluice_bus_slot *slot = sluice_bus_slot(bus, sequence);

		if (!slot)
			break;
		if (unit_of(head) - slot->start + wanted_units <= bus->units &&
		    sequence_of(head) - (u32)sequence + wanted_slots <= bus->slot_count)
			break;
	}
	return sequence;
}

/* As bus_fits() at @head, if the tail were at @sequence. */
static bool would_fit(const struct sluice_bus *bus, u64 head, u64 sequence, u32 slots, u32 units)
{
	const struct sluice_bus_slot *slot = sluice_bus_slot(bus, sequence);

	/* Without a slot it is the head, or its sender commits it soon. */
	return !slot || bus_fits(bus, head, pack(sequence, READ_ONCE(slot->start)), slots, units);
}

/*
 * Under the lock: makes subscribers lose messages. False: not, since it would not suffice, because
 * of a subscriber that blocks.
 */
static bool lose(struct sluice_bus *bus, u32 units)
{
	bool unsure;
	u64 most = oldest_held(bus, SLUICE_BUS_BLOCK, sluice_bus_head_sequence(bus), &unsure);
	u64 to = end_for(bus, units, most), end;

	if (!would_fit(bus, atomic64_read(&bus->head), most, 1, units))
		return unsure;
	end = move_cursors(bus, to);
	count_losses(bus, to);
	sluice_bus_remove_evicted(bus);
	move_tail(bus, end);
	return true;
}

/* ---- room ---- */

/* Under the lock: openers that no slot refers to. A later move takes what is left. */
static void take_departed(struct sluice_bus *bus, struct list_head *gone)
{
	struct sluice_bus_opener *opener, *next;
	unsigned int taken = 0;

	list_for_each_entry_safe(opener, next, &bus->departed, departed) {
		if (opener->end > bus->tail_sequence || taken++ == DEPARTED_MAX)
			break;
		list_move_tail(&opener->departed, gone);
	}
}

/* Under the lock. False: a subscriber that blocks holds the room. */
static bool make_room(struct sluice_bus *bus, u32 units)
{
	bool unsure;
	u64 held = oldest_held(bus, ~0u, sluice_bus_head_sequence(bus), &unsure);
	u64 step = bus->tail_sequence + STEP_MAX;

	move_tail(bus, min(held, step));
	if (unsure || held > step ||
	    bus_fits(bus, atomic64_read(&bus->head), atomic64_read(&bus->tail), 1, units))
		return true;
	return lose(bus, units);
}

bool sluice_bus_make_room(struct sluice_bus *bus, size_t length)
{
	LIST_HEAD(gone);
	u64 lost;
	bool makes;

	spin_lock(&bus->lock);
	lost = bus->lost;
	makes = make_room(bus, sluice_bus_units(length));
	lost = bus->lost - lost;
	take_departed(bus, &gone);
	spin_unlock(&bus->lock);
	sluice_bus_openers_free(&gone);
	/* A subscriber that has lost messages may not be full any more. */
	if (lost && bus->mode == SLUICE_BUS_MULTICAST)
		sluice_bus_wake_senders(bus);
	return makes;
}

u64 sluice_bus_bytes(struct sluice_bus *bus)
{
	bool unsure;
	u64 held = oldest_held(bus, ~0u, sluice_bus_head_sequence(bus), &unsure);
	const struct sluice_bus_slot *slot = sluice_bus_slot(bus, held);
	u32 unit = unit_of(atomic64_read(&bus->head));

	return slot ? (u64)(unit - slot->start) << SLUICE_BUS_UNIT_SHIFT : 0;
}

void sluice_bus_evict(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	unsigned int attempts = ATTEMPTS_MAX;

	spin_lock(&bus->lock);
	if (move_cursor(subscriber, SLUICE_BUS_EVICTED, &attempts))
		sluice_bus_remove_evicted(bus);
	spin_unlock(&bus->lock);
}

/* Whether the cursors leave room for this at @head. @tail: a sequence not after @head. */
static bool leaves_room(struct sluice_bus *bus, u64 tail, u64 head, u32 slots, u32 units)
{
	bool room, unsure;
	u64 held;

	rcu_read_lock();
	held = oldest_held(bus, SLUICE_BUS_BLOCK, extend(tail, head), &unsure);
	room = would_fit(bus, head, held, slots, units);
	rcu_read_unlock();
	return room || unsure;
}

/*
 * Stores the current head in @wanted, and returns it. @moved: @wanted was another head. Followed by
 * a full barrier, before the caller loads the cursors (bus-W).
 */
static u64 want_room(const struct sluice_bus *bus, atomic64_t *wanted, bool *moved)
{
	u64 before, head;

	for (;;) {
		/* The head is not older than the one that another sender has stored. */
		before = atomic64_read_acquire(wanted);
		head = atomic64_read_acquire(&bus->head);
		*moved = head != before;
		if (!*moved) {
			smp_mb();	/* (bus-W) */
			return head;
		}
		/* (bus-W) */
		if ((u64)atomic64_cmpxchg(wanted, before, head) == before)
			return head;
		cpu_relax();
	}
}

bool sluice_bus_has_room(struct sluice_bus *bus, size_t length)
{
	u64 tail = smp_load_acquire(&bus->tail_sequence);	/* before `head` */
	u64 head = atomic64_read_acquire(&bus->head);
	u32 slots = bus->slot_count / 4, units = sluice_bus_units(length);
	bool room, moved;

	if (bus_fits(bus, head, atomic64_read(&bus->tail), slots, units) ||
	    leaves_room(bus, tail, head, slots, units))
		return true;
	/* Preempted here, this sender would delay those that wait at the former head. */
	preempt_disable();
	head = want_room(bus, &bus->wanted[units > bus->units / 4], &moved);
	room = leaves_room(bus, tail, head, slots, units);
	preempt_enable();
	/* Receivers no longer test the former head: wake the senders that wait for it. */
	if (room && moved)
		sluice_bus_wake_senders(bus);
	return room;
}

/* Distances to a head that the cursor may have passed: negative ones. */
static bool crosses(s32 before, s32 after, s32 most)
{
	return before > most && after <= most;
}

/* Whether senders who want @units, and have seen the head in @wanted, may have room now. */
static bool frees_units(const struct sluice_bus *bus, const atomic64_t *wanted, u32 units,
			struct sluice_bus_passed passed)
{
	u64 head = atomic64_read(wanted);
	u32 unit = unit_of(head), sequence = sequence_of(head);

	return crosses(unit - passed.start, unit - passed.end, bus->units - units) ||
	       crosses(sequence - (u32)passed.from, sequence - (u32)passed.to,
		       bus->slot_count / 4 * 3);
}

bool sluice_bus_frees_room(const struct sluice_bus *bus, struct sluice_bus_passed passed)
{
	u32 largest = sluice_bus_units(sluice_bus_message_max(bus));

	return frees_units(bus, &bus->wanted[0], bus->units / 4, passed) ||
	       frees_units(bus, &bus->wanted[1], largest, passed);
}

/* ---- memory ---- */

static void positions_init(struct sluice_bus *bus)
{
	u64 word = pack((u32)SLUICE_BUS_FIRST, (u32)SLUICE_START(UNITS_BEFORE));

	atomic64_set(&bus->head, word);
	atomic64_set(&bus->tail, word);
	atomic64_set(&bus->wanted[0], word);
	atomic64_set(&bus->wanted[1], word);
	bus->tail_sequence = SLUICE_BUS_FIRST;
	bus->last_id = SLUICE_START_BEFORE(1ULL << 32, IDS_BEFORE);
	atomic64_set(&bus->turn, SLUICE_START_ENDLESS(TURNS_BEFORE));
}

/* The stamps are those of a message one lap before the first one of each slot. */
static int slots_init(struct sluice_bus *bus)
{
	u64 first = SLUICE_BUS_FIRST;
	u32 i;

	bus->slot_count = bus->capacity / SLUICE_BUS_SLOT_BYTES;
	bus->slots = sluice_channel_kvcalloc(&bus->channel, bus->slot_count, sizeof(*bus->slots),
					     SLUICE_QUOTA_GFP);
	if (!bus->slots)
		return -ENOMEM;
	for (i = 0; i < bus->slot_count; i++)
		sluice_bus_slot_at(bus, first + i)->stamp = first + i - bus->slot_count;
	return 0;
}

/*
 * The pages come first: what is beyond the limit of the memory cgroup then fails page by page, and
 * is freed and uncharged at once. Newer kernels free a large allocation that failed only later.
 */
int sluice_bus_ring_init(struct sluice_bus *bus)
{
	bus->units = bus->capacity >> SLUICE_BUS_UNIT_SHIFT;
	positions_init(bus);
	bus->memory = sluice_ring_memory_create(&bus->channel, bus->capacity, NUMA_NO_NODE,
						SLUICE_QUOTA_GFP);
	if (IS_ERR(bus->memory)) {
		int err = PTR_ERR(bus->memory);

		bus->memory = NULL;
		return err;
	}
	bus->data = sluice_ring_memory_vmap(bus->memory);
	return bus->data ? slots_init(bus) : -ENOMEM;
}

void sluice_bus_ring_exit(struct sluice_bus *bus)
{
	vunmap(bus->data);
	if (bus->memory)
		sluice_ring_memory_free(bus->memory);
	kvfree(bus->slots);
}

#ifdef CONFIG_SLUICE_KUNIT_TEST
#include "bus_ring_test.h"
#endif
