// SPDX-License-Identifier: GPL-2.0
/* The endpoints of a bus: who opened them, and which are subscribers. */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "bus.h"
#include "trace.h"

/* Monitors use up no subscription; this bounds the time of a look at all cursors. */
#define MONITORS_MAX 16

/* ---- openers ---- */

struct sluice_bus_opener *sluice_bus_opener_create(struct sluice_bus *bus)
{
	struct sluice_bus_opener *opener = kzalloc(sizeof(*opener), SLUICE_QUOTA_GFP);

	if (!opener)
		return NULL;
	current_uid_gid(&opener->uid, &opener->gid);
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
	used = atomic64_read(&opener->end) > bus->tail_sequence;
	if (used)
		list_add_tail(&opener->departed, &bus->departed);
	spin_unlock(&bus->lock);
	if (!used)
		opener_free(opener);
}

void sluice_bus_openers_free(struct list_head *openers)
{
	struct sluice_bus_opener *opener, *next;

	list_for_each_entry_safe(opener, next, openers, departed)
		opener_free(opener);
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
	subscriber->flags = params->flags & (SLUICE_BUS_MAPPED | SLUICE_BUS_MONITOR);
	subscriber->limit = params->limit ?: bus->capacity / 2;
	sluice_wait_queue_init(&subscriber->readable);
	return subscriber;
}

static struct sluice_bus_subscriber *at(struct sluice_bus *bus, unsigned int index)
{
	return rcu_dereference_check(bus->subscribers[index], lockdep_is_held(&bus->lock));
}

unsigned int sluice_bus_table_size(unsigned int subscribers)
{
	return subscribers + MONITORS_MAX;
}

static unsigned int *count_of(struct sluice_bus *bus,
			      const struct sluice_bus_subscriber *subscriber)
{
	return subscriber->flags & SLUICE_BUS_MONITOR ? &bus->monitor_count :
							&bus->subscriber_count;
}

/* Under the lock. */
static void place(struct sluice_bus *bus, unsigned int index,
		  struct sluice_bus_subscriber *subscriber)
{
	WRITE_ONCE(subscriber->index, index);
	rcu_assign_pointer(bus->subscribers[index], subscriber);
}

/*
 * Under the lock, so that the tail is not moved between the look at the head and the addition.
 * Subscribers and monitors share the table.
 */
int sluice_bus_subscriber_add(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	unsigned int *count = count_of(bus, subscriber);
	bool monitors = subscriber->flags & SLUICE_BUS_MONITOR;
	u64 head;
	int err = 0;

	spin_lock(&bus->lock);
	if (*count == (monitors ? MONITORS_MAX : bus->room - MONITORS_MAX)) {
		err = -EUSERS;
	} else {
		head = sluice_bus_head_sequence(bus);
		subscriber->expected = head;
		subscriber->handed_out = head;
		atomic64_set(&subscriber->cursor, head << 1);
		place(bus, bus->subscriber_count + bus->monitor_count, subscriber);
		WRITE_ONCE(*count, *count + 1);
	}
	spin_unlock(&bus->lock);
	if (!err)
		trace_sluice_bus_subscribe(&bus->channel, subscriber->id);
	return err;
}

/* Under the lock: the last subscriber takes its place. */
static void remove_at(struct sluice_bus *bus, unsigned int index)
{
	struct sluice_bus_subscriber *subscriber = at(bus, index);
	unsigned int last = bus->subscriber_count + bus->monitor_count - 1;
	unsigned int *count = count_of(bus, subscriber);

	place(bus, index, at(bus, last));
	RCU_INIT_POINTER(bus->subscribers[last], NULL);
	WRITE_ONCE(*count, *count - 1);
	/* What was addressed to it and not received. */
	WRITE_ONCE(bus->lost, bus->lost + atomic64_read(&subscriber->unread));
}

void sluice_bus_remove_evicted(struct sluice_bus *bus)
{
	unsigned int i = bus->subscriber_count + bus->monitor_count;

	while (i--) {
		struct sluice_bus_subscriber *subscriber = at(bus, i);

		if (sluice_bus_cursor(subscriber) != SLUICE_BUS_EVICTED)
			continue;
		WRITE_ONCE(bus->evicted, bus->evicted + 1);
		trace_sluice_bus_evict(&bus->channel, subscriber->id);
		remove_at(bus, i);
		sluice_wait_wake_all(sluice_bus_readable(bus, subscriber), 0);
	}
}

void sluice_bus_subscriber_remove(struct sluice_bus *bus, struct sluice_bus_subscriber *subscriber)
{
	unsigned int i;

	spin_lock(&bus->lock);
	for (i = bus->subscriber_count + bus->monitor_count; i--;)
		if (at(bus, i) == subscriber)
			remove_at(bus, i);
	spin_unlock(&bus->lock);
	trace_sluice_bus_unsubscribe(&bus->channel, subscriber->id);
	/* It may have held the room that senders wait for. */
	sluice_wait_wake_all(&bus->writable, 0);
	kfree_rcu(subscriber, rcu);
}

static struct sluice_bus_subscriber *find(struct sluice_bus *bus, u64 id)
{
	unsigned int i;

	for (i = 0; i < bus->room; i++) {
		struct sluice_bus_subscriber *subscriber = at(bus, i);

		if (!subscriber)
			return NULL;
		if (subscriber->id == id && !(subscriber->flags & SLUICE_BUS_MONITOR))
			return subscriber;
	}
	return NULL;
}

/* Without the lock the search may miss a subscriber that takes the place of another one. */
struct sluice_bus_subscriber *sluice_bus_subscriber_find(struct sluice_bus *bus, u64 id)
{
	struct sluice_bus_subscriber *subscriber = find(bus, id);

	if (subscriber)
		return subscriber;
	spin_lock(&bus->lock);
	subscriber = find(bus, id);
	spin_unlock(&bus->lock);
	return subscriber;
}

struct sluice_bus_subscriber *sluice_bus_subscriber_at(struct sluice_bus *bus, u32 index, u64 id)
{
	struct sluice_bus_subscriber *subscriber = index < bus->room ? at(bus, index) : NULL;

	return subscriber && subscriber->id == id ? subscriber : find(bus, id);
}

int sluice_bus_subscriber_next(struct sluice_bus *bus, struct sluice_bus_subscriber **found)
{
	unsigned int count = READ_ONCE(bus->subscriber_count) + READ_ONCE(bus->monitor_count);
	u32 turn = atomic_inc_return(&bus->turn);
	unsigned int i;

	*found = NULL;
	if (!READ_ONCE(bus->subscriber_count))
		return -ENOTCONN;
	for (i = 0; i < count; i++) {
		struct sluice_bus_subscriber *subscriber = at(bus, (turn + i) % count);

		if (!subscriber || subscriber->flags & SLUICE_BUS_MONITOR)
			continue;
		if (!sluice_bus_is_full(subscriber)) {
			*found = subscriber;
			return 0;
		}
		if (subscriber->policy != SLUICE_BUS_DROP) {
			*found = subscriber;
			return -EAGAIN;
		}
	}
	return -EAGAIN;
}

bool sluice_bus_subscribers_are_full(struct sluice_bus *bus)
{
	bool full = false;
	unsigned int i;

	for (i = 0; i < bus->room; i++) {
		struct sluice_bus_subscriber *subscriber = at(bus, i);

		if (!subscriber)
			break;
		if (subscriber->flags & SLUICE_BUS_MONITOR)
			continue;
		full = sluice_bus_is_full(subscriber);
		if (!full || subscriber->policy == SLUICE_BUS_EVICT)
			return false;
	}
	return full;
}

void sluice_bus_wake_all(struct sluice_bus *bus)
{
	unsigned int i;

	sluice_wait_wake_all(&bus->readable, 0);
	sluice_wait_wake_all(&bus->writable, 0);
	if (bus->mode != SLUICE_BUS_MULTICAST)
		return;
	rcu_read_lock();
	for (i = 0; i < bus->room; i++) {
		struct sluice_bus_subscriber *subscriber = at(bus, i);

		if (!subscriber)
			break;
		sluice_wait_wake_all(&subscriber->readable, 0);
	}
	rcu_read_unlock();
}
