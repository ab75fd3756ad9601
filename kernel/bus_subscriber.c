// SPDX-License-Identifier: GPL-2.0
/* The endpoints of a bus: who opened them, and which are subscribers. */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "bus.h"
#include "trace.h"

/* ---- openers ---- */

struct sluice_bus_opener *sluice_bus_opener_create(struct sluice_bus *bus)
{
	struct sluice_bus_opener *opener = kzalloc(sizeof(*opener), SLUICE_QUOTA_GFP);

	if (!opener)
		return NULL;
	opener->uid = current_euid();
	opener->gid = current_egid();
	opener->pid = get_pid(task_tgid(current));
	spin_lock(&bus->lock);
	opener->id = ++bus->last_id;
	spin_unlock(&bus->lock);
	return opener;
}

static void opener_free(struct sluice_bus_opener *opener)
{
	put_pid(opener->pid);
	kfree(opener);
}

void sluice_bus_opener_depart(struct sluice_bus *bus, struct sluice_bus_opener *opener)
{
	bool used;

	spin_lock(&bus->lock);
	opener->end = opener->has_sent ? sluice_bus_head_sequence(bus) : 0;
	used = opener->end > bus->tail_sequence;
	if (used)
		list_add_tail(&opener->departed, &bus->departed);
	spin_unlock(&bus->lock);
	if (!used)
		opener_free(opener);
}

void sluice_bus_openers_free(struct list_head *openers)
{
	struct sluice_bus_opener *opener, *next;

	list_for_each_entry_safe(opener, next, openers, departed) {
		opener_free(opener);
		cond_resched();
	}
}

/* ---- subscribers ---- */

struct sluice_bus_subscriber *sluice_bus_subscriber_create(struct sluice_bus *bus,
							   const struct sluice_bus_opener *opener,
							   const struct sluice_bus_params *params)
{
	struct sluice_bus_subscriber *subscriber = kzalloc(sizeof(*subscriber), SLUICE_QUOTA_GFP);

	if (!subscriber)
		return NULL;
	subscriber->opener = opener;
	subscriber->id = opener ? opener->id : 0;
	subscriber->policy = params->policy;
	subscriber->flags = params->flags & ~SLUICE_BUS_MAPPABLE;
	subscriber->limit = params->limit ?: bus->capacity / 2;
	subscriber->expected = SLUICE_BUS_FIRST;
	atomic64_set(&subscriber->cursor, SLUICE_BUS_FIRST << 1);
	sluice_wait_queue_init(&subscriber->readable);
	return subscriber;
}

/* Under the lock: the part of the table for subscribers like this one. */
struct part {
	struct sluice_bus_subscriber __rcu **places;
	unsigned int *count;
	unsigned int room;
};

static struct part part_for(struct sluice_bus *bus, const struct sluice_bus_subscriber *subscriber)
{
	if (sluice_bus_is_monitor(subscriber))
		return (struct part) {
			bus->table + 2 * bus->room, &bus->monitor_count, SLUICE_BUS_MONITORS_MAX
		};
	if (subscriber->flags & SLUICE_BUS_ADDRESSED)
		return (struct part) {
			bus->table + bus->room, &bus->addressed_count, bus->room
		};
	return (struct part) { bus->table, &bus->subscriber_count, bus->room };
}

/* ---- notices ---- */

/* Wakes only when the flag changes: losses come by the thousand, and the first one has woken. */
void sluice_bus_notify(struct sluice_bus_subscriber *subscriber)
{
	if (!(subscriber->flags & SLUICE_BUS_ADDRESSED) ||
	    atomic_xchg(&subscriber->notice, 1))	/* (bus-N) */
		return;
	sluice_wait_wake_all(&subscriber->readable, EPOLLIN | EPOLLRDNORM | EPOLLPRI);
}

/* Under the lock, after others have ended: requests that they have not answered get no reply. */
static void notify_clients(struct sluice_bus *bus)
{
	struct sluice_bus_subscriber *subscriber;
	unsigned int i;

	for (i = bus->subscriber_count; (subscriber = sluice_bus_nth(bus, i)); i++)
		sluice_bus_notify(subscriber);
}

/* ---- addition and removal ---- */

/* Under the lock, so that the tail does not move between the look at the head and the addition. */
static int bus_subscriber_add(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	struct part part = part_for(bus, subscriber);
	u64 head = sluice_bus_head_sequence(bus);

	if (*part.count == part.room)
		return -EUSERS;
	subscriber->expected = head;
	subscriber->handed_out = head;
	atomic64_set(&subscriber->cursor, head << 1);
	/* Without an allocation, because the entry is reserved. */
	if (!sluice_bus_is_monitor(subscriber))
		xa_store(&bus->subscribers, subscriber->id, subscriber, 0);
	rcu_assign_pointer(part.places[*part.count], subscriber);
	WRITE_ONCE(*part.count, *part.count + 1);
	return 0;
}

int sluice_bus_subscriber_add(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	int err = 0;

	if (!sluice_bus_is_monitor(subscriber))
		err = xa_reserve(&bus->subscribers, subscriber->id, SLUICE_QUOTA_GFP);
	if (err)
		return err;
	spin_lock(&bus->lock);
	err = bus_subscriber_add(bus, subscriber);
	spin_unlock(&bus->lock);
	if (err) {
		xa_release(&bus->subscribers, subscriber->id);
		return err;
	}
	trace_sluice_bus_subscribe(&bus->channel, subscriber->id);
	/* Senders may wait for a subscriber that is not full. */
	sluice_bus_wake_senders(bus);
	return 0;
}

/* Under the lock: the last one of its part takes its place. */
static void remove_at(struct sluice_bus *bus, struct part part, unsigned int index)
{
	struct sluice_bus_subscriber *subscriber =
		rcu_dereference_protected(part.places[index], lockdep_is_held(&bus->lock));
	unsigned int last = *part.count - 1;

	rcu_assign_pointer(part.places[index],
			   rcu_dereference_protected(part.places[last],
						     lockdep_is_held(&bus->lock)));
	RCU_INIT_POINTER(part.places[last], NULL);
	WRITE_ONCE(*part.count, last);
	if (sluice_bus_is_monitor(subscriber))
		return;
	xa_erase(&bus->subscribers, subscriber->id);
	/* What was addressed to it and not received. */
	WRITE_ONCE(bus->lost, bus->lost + atomic64_read(&subscriber->unread));
}

void sluice_bus_remove_evicted(struct sluice_bus *bus)
{
	unsigned int addressed = bus->addressed_count, others = bus->subscriber_count;
	unsigned int i = others + addressed;

	/* From the end, because the last one of a part takes the place of one that is removed. */
	while (i--) {
		struct sluice_bus_subscriber *subscriber = sluice_bus_nth(bus, i);

		if (sluice_bus_cursor(subscriber) != SLUICE_BUS_EVICTED)
			continue;
		WRITE_ONCE(bus->evicted, bus->evicted + 1);
		trace_sluice_bus_evict(&bus->channel, subscriber->id);
		remove_at(bus, part_for(bus, subscriber), i < others ? i : i - others);
		if (sluice_bus_readable(bus, subscriber) != &bus->readable)
			sluice_wait_wake_all(&subscriber->readable, 0);
	}
	if (bus->subscriber_count == others)
		return;
	sluice_wait_wake_all(&bus->readable, 0);
	notify_clients(bus);
}

void sluice_bus_subscriber_remove(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	struct part part = part_for(bus, subscriber);
	unsigned int i;

	spin_lock(&bus->lock);
	for (i = 0; i < *part.count; i++) {
		if (rcu_access_pointer(part.places[i]) != subscriber)
			continue;
		remove_at(bus, part, i);
		if (part.count == &bus->subscriber_count)
			notify_clients(bus);
		break;
	}
	spin_unlock(&bus->lock);
	trace_sluice_bus_unsubscribe(&bus->channel, subscriber->id);
	/* It may have held the room that senders wait for. */
	sluice_wait_wake_all(&bus->writable, 0);
	kfree_rcu(subscriber, rcu);
}

struct sluice_bus_subscriber *sluice_bus_subscriber_find(struct sluice_bus *bus, u64 id)
{
	return xa_load(&bus->subscribers, id);
}

int sluice_bus_subscriber_next(struct sluice_bus *bus, struct sluice_bus_subscriber **found)
{
	unsigned int count = READ_ONCE(bus->subscriber_count);
	u64 turn = atomic64_inc_return(&bus->turn);
	unsigned int i, first;

	*found = NULL;
	if (!count)
		return -ENOTCONN;
	first = turn % count;
	for (i = 0; i < count; i++) {
		struct sluice_bus_subscriber *subscriber =
			rcu_dereference(bus->table[(first + i) % count]);

		if (!subscriber)
			continue;
		*found = subscriber;
		if (!sluice_bus_is_full(subscriber))
			return 0;
		if (subscriber->policy != SLUICE_BUS_DROP)
			return -EAGAIN;
	}
	*found = NULL;
	return -EAGAIN;
}

bool sluice_bus_subscribers_are_full(struct sluice_bus *bus)
{
	unsigned int i, count = READ_ONCE(bus->subscriber_count);

	for (i = 0; i < count; i++) {
		const struct sluice_bus_subscriber *subscriber = rcu_dereference(bus->table[i]);

		if (!subscriber || !sluice_bus_is_full(subscriber) ||
		    subscriber->policy == SLUICE_BUS_EVICT)
			return false;
	}
	return count;
}

/* Under the lock, because otherwise it could miss subscribers. */
void sluice_bus_wake_all(struct sluice_bus *bus)
{
	struct sluice_bus_subscriber *subscriber;
	unsigned int i;

	sluice_wait_wake_all(&bus->readable, 0);
	sluice_wait_wake_all(&bus->writable, 0);
	if (bus->mode != SLUICE_BUS_MULTICAST)
		return;
	spin_lock(&bus->lock);
	sluice_bus_for_each_subscriber(bus, subscriber, i)
		sluice_wait_wake_all(&subscriber->readable, 0);
	spin_unlock(&bus->lock);
}
