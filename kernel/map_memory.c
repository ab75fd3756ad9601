// SPDX-License-Identifier: GPL-2.0
/* Memory for entries and values, within the limits of the map. */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/wait.h>

#include "compat.h"
#include "map.h"
#include "quota.h"
#include "short_copy.h"
#include "stream.h"
#include "trace.h"

/* ---- limits ---- */

/* The divisor of the capacity: how much of its log a full map frees at once. */
#define TRIM_SHARE 16

/* Adds @number unless the sum exceeds @most. */
static bool add_below(atomic64_t *counter, u64 number, u64 most)
{
	s64 now = atomic64_read(counter);

	do {
		if (number > most || now > most - number)
			return false;
	} while (!atomic64_try_cmpxchg(counter, &now, now + number));
	return true;
}

/*
 * Whether a limit is reached only until unused memory is freed. Memory that is freed meanwhile was
 * counted as waiting before the attempt to charge, hence @waiting from before.
 */
static int refuse(struct sluice_map *map, u64 waiting)
{
	if (waiting || sluice_map_expiry_is_due(map))
		return -EAGAIN;
	trace_sluice_map_full(&map->channel, atomic64_read(&map->bytes),
			      atomic64_read(&map->entries));
	return -ENOSPC;
}

static int charge(struct sluice_map *map, size_t bytes, bool waits)
{
	u64 waiting = atomic64_read_acquire(&map->waiting);
	s64 missing;

	if (add_below(&map->bytes, bytes, map->capacity))
		return 0;
	if (bytes + map->slot_count * sizeof(*map->slots) > map->capacity)
		return -ENOSPC;
	missing = atomic64_read(&map->bytes) + bytes - map->capacity - waiting;
	/* Frees more than is missing, because each attempt takes a grace period. */
	if (missing > 0 && !sluice_map_expiry_is_due(map) &&
	    sluice_map_log_trim(map, missing + map->capacity / TRIM_SHARE, waits))
		return -EAGAIN;
	return refuse(map, waiting);
}

int sluice_map_count_entry(struct sluice_map *map)
{
	u64 most = min_not_zero(map->entries_max, (u64)SLUICE_MAP_ENTRIES_MAX);

	return add_below(&map->entries, 1, most) ? 0 : refuse(map, 0);
}

/* The interval of checks for freed memory, in jiffies: RCU needs some milliseconds. */
#define LOOK_INTERVAL max(HZ / 20, 1)

static bool may_have_memory(struct sluice_map *map, size_t bytes)
{
	return atomic64_read(&map->bytes) + bytes <= map->capacity || !atomic64_read(&map->waiting);
}

int sluice_map_wait_for_memory(struct sluice_map *map, size_t bytes, unsigned long deadline)
{
	if (time_after(jiffies, deadline))
		return -ENOSPC;
	/* Does not wait for the worker: that may take long, and no signal would end the wait. */
	sluice_map_expiry_hasten(map);
	/*
	 * Without a wait the attempts would be a loop: @bytes is less than what is charged, and the
	 * workers that enlarge the table and remove entries wake nobody.
	 */
	if (may_have_memory(map, bytes))
		schedule_timeout_interruptible(1);
	wait_event_interruptible_timeout(map->freed, may_have_memory(map, bytes), LOOK_INTERVAL);
	return sluice_wait_check_signal();
}

/* ---- creation ---- */

/* The bytes that an allocation of @size takes. */
static size_t allocated_size(size_t size)
{
	return size > SLUICE_MAP_CONTIGUOUS_MAX ? PAGE_ALIGN(size) : kmalloc_size_roundup(size);
}

static void *map_memory_allocate(struct sluice_map *map, size_t size, gfp_t gfp)
{
	return sluice_channel_alloc(&map->channel, size, size > SLUICE_MAP_CONTIGUOUS_MAX, gfp);
}

/* Memory charged to the map and to the creator's memory cgroup, or an error. */
static void *allocate_charged(struct sluice_map *map, size_t size, size_t charged, gfp_t gfp)
{
	bool waits = gfpflags_allow_blocking(gfp);
	int err = charge(map, charged, waits);
	void *memory;

	if (err)
		return ERR_PTR(err);
	memory = map_memory_allocate(map, size, gfp);
	if (memory)
		return memory;
	atomic64_sub(charged, &map->bytes);
	/* A request that may not wait has memory reclaimed instead. */
	return ERR_PTR(waits && atomic64_read(&map->waiting) ? -EAGAIN : -ENOMEM);
}

/* The record of its removal. */
static bool add_removal(struct sluice_map_entry *entry, gfp_t gfp)
{
	entry->removal = map_memory_allocate(entry->map, sizeof(*entry->removal), gfp);
	return entry->removal;
}

static_assert(SLUICE_MAP_KEY_MAX <= U16_MAX);	/* key_length */

struct sluice_map_entry *sluice_map_entry_create(struct sluice_map *map,
						 const struct sluice_map_key *key, gfp_t gfp)
{
	struct sluice_map_entry *entry;
	size_t size = struct_size(entry, key, key->length);
	size_t removal = map->stream ? allocated_size(sizeof(*entry->removal)) : 0;
	size_t charged = allocated_size(size) + removal + SLUICE_MAP_TABLE_BYTES;

	entry = allocate_charged(map, size, charged, gfp);
	if (IS_ERR(entry))
		return entry;
	memset(entry, 0, sizeof(*entry));
	entry->hash = key->hash;
	entry->key_length = key->length;
	entry->charged = charged;
	refcount_set(&entry->refs, 1);
	entry->map = map;
	memcpy(entry->key, key->bytes, key->length);
	if (map->stream && !add_removal(entry, gfp)) {
		sluice_map_entry_free(entry);
		return ERR_PTR(-ENOMEM);
	}
	return entry;
}

/*
 * What can be written in place into an allocation of so many bytes: nothing if it is larger than
 * that of the longest short value, because it would keep its memory.
 */
static int room_of(size_t allocated)
{
	const size_t most = sizeof(struct sluice_map_value) + SLUICE_SHORT_COPY;

	if (allocated > kmalloc_size_roundup(most))
		return -1;
	return min_t(int, allocated - sizeof(struct sluice_map_value), SLUICE_SHORT_COPY);
}

struct sluice_map_value *sluice_map_value_create(struct sluice_map *map, u32 length, u64 expires,
						 gfp_t gfp)
{
	struct sluice_map_value *value;
	size_t charged = allocated_size(struct_size(value, bytes, length));

	value = allocate_charged(map, charged, charged, gfp);
	if (IS_ERR(value))
		return value;
	value->version = 0;
	value->expires = expires;
	value->room = room_of(charged);
	/* A get during an overwrite by a longer value may copy up to `room` to user memory. */
	if (value->room > (int)length)
		memset(value->bytes + length, 0, value->room - length);
	value->length = length;
	value->charged = charged;
	value->map = map;
	return value;
}
