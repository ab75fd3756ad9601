// SPDX-License-Identifier: GPL-2.0
/*
 * The log of changes. Change n has the place n % slot_count; a later change takes it over, so the
 * log keeps the last ones. Places are filled in any order: a watcher whose next change has a number
 * but not yet its place waits, because the thread that took the number fills it without sleeping.
 *
 * A watcher is a number: that of the last event that it has read. It costs the changes nothing.
 */
#include <linux/err.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "map.h"
#include "trace.h"
#include "user_struct.h"

#define SEARCH_MAX 1024		/* changes that a request over netlink searches at a time */

static struct sluice_map_slot *slot_of(struct sluice_map *map, u64 sequence)
{
	return &map->slots[sequence & (map->slot_count - 1)];
}

/* The oldest change that may have its place, if @last is the last one. */
static u64 map_watch_oldest(const struct sluice_map *map, u64 last)
{
	return last < map->slot_count ? 1 : last - map->slot_count + 1;
}

/* The first change after @sequence that may be in the log. */
static u64 map_watch_first_after(struct sluice_map *map, u64 sequence)
{
	u64 oldest = map_watch_oldest(map, atomic64_read(&map->sequence));

	return max3(sequence + 1, oldest, (u64)atomic64_read(&map->trimmed) + 1);
}

/* A thread that was late finds its place taken by a later change, and its event is lost. */
void sluice_map_log(struct sluice_map *map, u64 sequence, u32 change, u64 version,
		    struct sluice_map_entry *entry)
{
	struct sluice_map_slot *slot = slot_of(map, sequence);
	struct sluice_map_entry *old = NULL;

	trace_sluice_map_change(&map->channel, sequence, change, version);
	spin_lock(&slot->lock);
	if (slot->sequence < sequence) {
		old = slot->entry;
		refcount_inc(&entry->refs);
		slot->entry = entry;
		slot->change = change;
		slot->version = version;
		WRITE_ONCE(slot->sequence, sequence);
	}
	spin_unlock(&slot->lock);
	if (old)
		sluice_map_entry_put(old);
}

int sluice_map_log_init(struct sluice_map *map, u32 events, gfp_t gfp)
{
	size_t size = array_size(events, sizeof(*map->slots));
	u32 i;

	map->slots = sluice_channel_alloc(&map->channel, size, size > SLUICE_MAP_CONTIGUOUS_MAX,
					  gfp | __GFP_ZERO);
	if (!map->slots)
		return -ENOMEM;
	map->slot_count = events;
	for (i = 0; i < events; i++)
		spin_lock_init(&map->slots[i].lock);
	return 0;
}

/* Events up to this one are lost. Under the lock of its slot, while it has its entry. */
static void raise_trimmed(struct sluice_map *map, u64 sequence)
{
	s64 trimmed = atomic64_read(&map->trimmed);

	while (trimmed < (s64)sequence)
		if (atomic64_try_cmpxchg(&map->trimmed, &trimmed, sequence))
			break;
}

/* The entry of change @sequence, whose event is then lost, if it has been removed. */
static struct sluice_map_entry *take_removed(struct sluice_map *map, u64 sequence)
{
	struct sluice_map_slot *slot = slot_of(map, sequence);
	struct sluice_map_entry *entry = NULL;

	spin_lock(&slot->lock);
	/* An entry has its value before it is logged, until it is removed. */
	if (slot->sequence == sequence && slot->entry &&
	    !rcu_access_pointer(slot->entry->value)) {
		raise_trimmed(map, sequence);
		swap(entry, slot->entry);
	}
	spin_unlock(&slot->lock);
	return entry;
}

/* Puts an event's reference to its entry. Returns the number of bytes that this frees. */
static size_t map_watch_put_entry(struct sluice_map_entry *entry)
{
	size_t bytes = entry->charged;

	return sluice_map_entry_put(entry) ? bytes : 0;
}

/*
 * Moves @sequence to the end of the last search over netlink. Returns the number of the last change
 * when that began at the oldest place: an entry that was removed since may be in places before.
 */
static u64 continue_search(struct sluice_map *map, u64 last, u64 *sequence)
{
	u64 searched = READ_ONCE(map->searched);

	if (searched <= *sequence)
		WRITE_ONCE(map->search_began, last);
	else
		*sequence = searched;
	return READ_ONCE(map->search_began);
}

bool sluice_map_log_trim(struct sluice_map *map, size_t bytes, bool waits)
{
	u64 last = atomic64_read(&map->sequence), end = last, began = last;
	u64 sequence = map_watch_oldest(map, last);
	size_t trimmed = 0;

	if (!waits) {
		began = continue_search(map, last, &sequence);
		end = min(last, sequence + SEARCH_MAX);
	}
	/* The last event remains, so that every watcher learns what it has missed. */
	for (; sequence < end && trimmed < bytes; sequence++) {
		struct sluice_map_entry *entry = take_removed(map, sequence);

		if (entry)
			trimmed += map_watch_put_entry(entry);
		cond_resched();
	}
	if (!waits)
		WRITE_ONCE(map->searched, sequence < last ? sequence : 0);
	return trimmed || sequence < last || began != last;
}

void sluice_map_log_exit(struct sluice_map *map)
{
	u32 i;

	for (i = 0; i < map->slot_count; i++)
		if (map->slots[i].entry)
			sluice_map_entry_release(map->slots[i].entry);
	kvfree(map->slots);
	map->slots = NULL;
	map->slot_count = 0;
}

/* ---- reading ---- */

static void fill_event(struct sluice_map_taken *event, const struct sluice_map_slot *slot)
{
	event->entry = slot->entry;
	refcount_inc(&event->entry->refs);
	event->event = (struct sluice_map_event) {
		.size = ALIGN(sizeof(event->event) + slot->entry->key_length, sizeof(u64)),
		.change = slot->change,
		.key_length = slot->entry->key_length,
		.sequence = slot->sequence,
		.version = slot->version,
	};
}

/* The event of change @sequence. -EAGAIN: it is not there yet, -ENODATA: it is lost. */
static int get_event(struct sluice_map *map, u64 sequence, struct sluice_map_taken *event)
{
	struct sluice_map_slot *slot = slot_of(map, sequence);
	int err = 0;

	spin_lock(&slot->lock);
	if (slot->sequence < sequence)
		err = -EAGAIN;
	else if (slot->sequence > sequence || !slot->entry)
		err = -ENODATA;
	else
		fill_event(event, slot);
	spin_unlock(&slot->lock);
	return err;
}

/* The first event after @watched. 0 or -EAGAIN. */
static int next_event(struct sluice_map *map, u64 watched, struct sluice_map_taken *event)
{
	u64 sequence = map_watch_first_after(map, watched);
	int err;

	while ((err = get_event(map, sequence, event)) == -ENODATA)
		sequence = map_watch_first_after(map, sequence);
	if (!err)
		event->event.missed = sequence - watched - 1;
	return err;
}

bool sluice_map_has_event(struct sluice_map_endpoint *end)
{
	u64 sequence = map_watch_first_after(end->map, atomic64_read(&end->watched));
	struct sluice_map_slot *slot = slot_of(end->map, sequence);

	return READ_ONCE(slot->sequence) >= sequence;
}

/* 0, -EFAULT; -EMSGSIZE: it does not fit. */
static int copy_event(const struct sluice_map_taken *event, struct iov_iter *to)
{
	const struct sluice_map_event *header = &event->event;
	size_t padding = header->size - sizeof(*header) - header->key_length;

	if (header->size > iov_iter_count(to))
		return -EMSGSIZE;
	if (copy_to_iter(header, sizeof(*header), to) != sizeof(*header) ||
	    copy_to_iter(event->entry->key, header->key_length, to) != header->key_length ||
	    iov_iter_zero(padding, to) != padding)
		return -EFAULT;
	return 0;
}

int sluice_map_event_get(struct sluice_map_endpoint *end, struct sluice_map_taken *taken)
{
	return next_event(end->map, atomic64_read(&end->watched), taken);
}

bool sluice_map_event_put(struct sluice_map_endpoint *end, struct sluice_map_taken *taken,
			  bool take)
{
	s64 watched = taken->event.sequence - taken->event.missed - 1;

	sluice_map_entry_put(taken->entry);
	take = take && atomic64_try_cmpxchg(&end->watched, &watched, taken->event.sequence);
	if (take && taken->event.missed) {
		atomic64_add(taken->event.missed, &end->map->missed);
		trace_sluice_map_missed(&end->map->channel, taken->event.sequence,
					taken->event.missed);
	}
	return take;
}

/*
 * Copies the next event and then takes it; another thread that was faster makes the copy void.
 * Returns its size, or -EAGAIN, -EMSGSIZE, -EFAULT.
 */
static ssize_t read_event(struct sluice_map_endpoint *end, struct iov_iter *to)
{
	size_t before = iov_iter_count(to);
	struct sluice_map_taken event;
	int err;

	for (;;) {
		err = sluice_map_event_get(end, &event);
		if (err)
			return err;
		err = copy_event(&event, to);
		if (sluice_map_event_put(end, &event, !err))
			return event.event.size;
		iov_iter_revert(to, before - iov_iter_count(to));
		if (err)
			return err;
	}
}

static ssize_t read_events(struct sluice_map_endpoint *end, struct iov_iter *to)
{
	ssize_t total = 0, ret;

	do {
		ret = read_event(end, to);
		if (ret > 0)
			total += ret;
		cond_resched();
	} while (ret > 0 && iov_iter_count(to) && !fatal_signal_pending(current));
	return total ?: ret;
}

ssize_t sluice_map_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct sluice_map_endpoint *end = iocb->ki_filp->private_data;
	struct sluice_map *map = end->map;
	ssize_t ret;

	if (!sluice_map_watches(end))
		return -EINVAL;
	if (!iov_iter_count(to))
		return 0;
	for (;;) {
		if (READ_ONCE(map->destroyed))
			return -EPIPE;
		ret = read_events(end, to);
		if (ret != -EAGAIN)
			return ret;
		if ((iocb->ki_flags & IOCB_NOWAIT) || (iocb->ki_filp->f_flags & O_NONBLOCK))
			return -EAGAIN;
		ret = sluice_wait_until_shared(map->changed,
					       sluice_map_has_event(end) ||
					       READ_ONCE(map->destroyed), &end->spin);
		if (ret)
			return ret;
	}
}

/* Changes whose numbers were taken before are visible afterwards. */
static void settle(struct sluice_map *map)
{
	unsigned int i;

	for (i = 0; i < SLUICE_MAP_SHARDS; i++) {
		spin_lock(&map->shards[i].lock);	/* (map-N) */
		spin_unlock(&map->shards[i].lock);
	}
}

int sluice_map_watch_after(struct sluice_map_endpoint *end, u64 *sequence)
{
	u64 last = atomic64_read(&end->map->sequence);

	if (*sequence == SLUICE_MAP_NOW)
		*sequence = last;
	if (*sequence > last)
		return -EINVAL;
	atomic64_set(&end->watched, *sequence);
	if (!xchg(&end->watches, 1))	/* (map-S) */
		atomic_inc(&end->map->watchers);
	trace_sluice_map_watch(&end->map->channel, *sequence);
	settle(end->map);
	/* Those that wait with the number of before. */
	sluice_wait_wake_all(&end->map->changed, EPOLLIN | EPOLLRDNORM);
	return 0;
}

long sluice_map_watch(struct sluice_map_endpoint *end, struct sluice_setting __user *user)
{
	u64 sequence;
	int err = sluice_user_setting_read(&sequence, user);

	err = err ?: sluice_map_watch_after(end, &sequence);
	return err ?: put_user(sequence, &user->value);
}
