// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/random.h>
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

/* ---- the table ---- */

/* The hash of the key is uniform, and secret; so the table's own seed has little to add. */
static u32 hash_key(const void *data, u32 length, u32 seed)
{
	const struct sluice_map_key *key = data;

	return key->hash ^ seed;
}

static u32 hash_entry(const void *data, u32 length, u32 seed)
{
	const struct sluice_map_entry *entry = data;

	return entry->hash ^ seed;
}

/* 0: equal. */
static int map_entry_compare(struct rhashtable_compare_arg *argument, const void *object)
{
	const struct sluice_map_key *key = argument->key;
	const struct sluice_map_entry *entry = object;

	if (entry->hash != key->hash || entry->key_length != key->length)
		return 1;
	return !sluice_is_equal(entry->key, key->bytes, key->length);
}

static const struct rhashtable_params table_params = {
	.head_offset		= offsetof(struct sluice_map_entry, node),
	.hashfn			= hash_key,
	.obj_hashfn		= hash_entry,
	.obj_cmpfn		= map_entry_compare,
	.max_size		= SLUICE_MAP_ENTRIES_MAX,
	.automatic_shrinking	= true,
};

int sluice_map_table_init(struct sluice_map *map)
{
	get_random_bytes(&map->hash_key, sizeof(map->hash_key));
	return rhashtable_init(&map->table, &table_params);
}

/* Flat, since a get takes little more time than some calls. */
__flatten
struct sluice_map_entry *sluice_map_find(struct sluice_map *map, const struct sluice_map_key *key)
{
	return rhashtable_lookup(&map->table, key, table_params);
}

int sluice_map_table_insert(struct sluice_map *map, struct sluice_map_entry *entry)
{
	int err = rhashtable_insert_fast(&map->table, &entry->node, table_params);

	/* A worker enlarges the table, also after a failure to allocate it here. */
	if (err == -EBUSY || err == -ENOMEM)
		return -EAGAIN;
	return err == -E2BIG ? -ENOSPC : err;
}

void sluice_map_table_remove(struct sluice_map *map, struct sluice_map_entry *entry)
{
	rhashtable_remove_fast(&map->table, &entry->node, table_params);
}

/* ---- limits ---- */

/* Of the capacity: what a full map frees of its log at once. */
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

static int charge(struct sluice_map *map, size_t bytes)
{
	u64 waiting = atomic64_read_acquire(&map->waiting);
	s64 missing;

	if (add_below(&map->bytes, bytes, map->capacity))
		return 0;
	if (bytes + map->slot_count * sizeof(*map->slots) > map->capacity)
		return -ENOSPC;
	missing = atomic64_read(&map->bytes) + bytes - map->capacity - waiting;
	/* Somewhat more, because each time takes a grace period. */
	if (missing > 0 && !sluice_map_expiry_is_due(map) &&
	    sluice_map_log_trim(map, missing + map->capacity / TRIM_SHARE))
		return -EAGAIN;
	return refuse(map, waiting);
}

int sluice_map_count_entry(struct sluice_map *map)
{
	u64 most = min_not_zero(map->entries_max, (u64)SLUICE_MAP_ENTRIES_MAX);

	return add_below(&map->entries, 1, most) ? 0 : refuse(map, 0);
}

/* Between two looks, in jiffies: RCU needs some milliseconds. */
#define LOOK_INTERVAL max(HZ / 20, 1)

int sluice_map_wait_for_memory(struct sluice_map *map, size_t bytes, unsigned long deadline)
{
	if (time_after(jiffies, deadline))
		return -ENOSPC;
	sluice_map_expiry_flush(map);
	/* The worker that enlarges the table tells nobody. */
	if (!atomic64_read(&map->waiting))
		schedule_timeout_interruptible(1);
	wait_event_interruptible_timeout(map->freed,
					 atomic64_read(&map->bytes) + bytes <= map->capacity ||
					 !atomic64_read(&map->waiting), LOOK_INTERVAL);
	return sluice_wait_check_signal();
}

/* ---- memory ---- */

/* The bytes that an allocation of @size takes. */
static size_t allocated_size(size_t size)
{
	return size > SLUICE_MAP_CONTIGUOUS_MAX ? PAGE_ALIGN(size) : kmalloc_size_roundup(size);
}

static void *map_entry_allocate(struct sluice_map *map, size_t size, gfp_t gfp)
{
	return sluice_channel_alloc(&map->channel, size, size > SLUICE_MAP_CONTIGUOUS_MAX, gfp);
}

/* Memory charged to the map and to the creator's memory cgroup, or an error. */
static void *allocate_charged(struct sluice_map *map, size_t size, size_t charged, gfp_t gfp)
{
	int err = charge(map, charged);
	void *memory;
	bool waits;

	if (err)
		return ERR_PTR(err);
	memory = map_entry_allocate(map, size, gfp);
	if (memory)
		return memory;
	atomic64_sub(charged, &map->bytes);
	/* A request that may not wait has memory reclaimed instead. */
	waits = gfpflags_allow_blocking(gfp) && atomic64_read(&map->waiting);
	return ERR_PTR(waits ? -EAGAIN : -ENOMEM);
}

static void free_charged(struct sluice_map *map, void *memory, size_t charged)
{
	kvfree(memory);
	atomic64_sub(charged, &map->bytes);
}

/* The record of its removal. */
static bool add_removal(struct sluice_map_entry *entry, gfp_t gfp)
{
	entry->removal = map_entry_allocate(entry->map, sizeof(*entry->removal), gfp);
	return entry->removal;
}

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
		free_charged(map, entry, charged);
		return ERR_PTR(-ENOMEM);
	}
	return entry;
}

u64 sluice_map_time_of_expiry(u64 ttl_ns)
{
	u64 now;

	if (!ttl_ns)
		return SLUICE_MAP_FOREVER;
	now = ktime_get_boottime_ns();
	return ttl_ns > KTIME_MAX - now ? SLUICE_MAP_FOREVER : now + ttl_ns;
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

struct sluice_map_value *sluice_map_value_create(struct sluice_map *map, u32 length, u64 ttl_ns,
						 gfp_t gfp)
{
	struct sluice_map_value *value;
	size_t charged = allocated_size(struct_size(value, bytes, length));

	value = allocate_charged(map, charged, charged, gfp);
	if (IS_ERR(value))
		return value;
	value->version = 0;
	value->expires = sluice_map_time_of_expiry(ttl_ns);
	value->room = room_of(charged);
	value->length = length;
	value->charged = charged;
	value->map = map;
	return value;
}

/* The last access to the map: who then finds `waiting` to be 0 may free it. */
static void end_waiting(struct sluice_map *map, size_t charged)
{
	if (wq_has_sleeper(&map->freed))
		wake_up_all(&map->freed);
	atomic64_sub_return_release(charged, &map->waiting);
}

static void free_entry(struct rcu_head *rcu)
{
	struct sluice_map_entry *entry = container_of(rcu, struct sluice_map_entry, rcu);
	struct sluice_map *map = entry->map;
	size_t charged = entry->charged;

	free_charged(map, entry, charged);
	end_waiting(map, charged);
}

static void free_value(struct rcu_head *rcu)
{
	struct sluice_map_value *value = container_of(rcu, struct sluice_map_value, rcu);
	struct sluice_map *map = value->map;
	size_t charged = value->charged;

	free_charged(map, value, charged);
	end_waiting(map, charged);
}

struct sluice_map_entry *sluice_map_pin_removed(struct sluice_map_entry *entry)
{
	refcount_inc(&entry->refs);
	atomic64_add(entry->charged, &entry->map->waiting);
	return entry;
}

void sluice_map_unpin_removed(struct sluice_map_entry *entry)
{
	struct sluice_map *map = entry->map;
	size_t charged = entry->charged;

	sluice_map_entry_put(entry);
	end_waiting(map, charged);
}

bool sluice_map_entry_put(struct sluice_map_entry *entry)
{
	if (!refcount_dec_and_test(&entry->refs))
		return false;
	atomic64_add(entry->charged, &entry->map->waiting);
	call_rcu_hurry(&entry->rcu, free_entry);
	return true;
}

void sluice_map_value_retire(struct sluice_map_value *value)
{
	atomic64_add(value->charged, &value->map->waiting);
	call_rcu_hurry(&value->rcu, free_value);
}

void sluice_map_value_free(struct sluice_map_value *value)
{
	free_charged(value->map, value, value->charged);
}

void sluice_map_entry_release(struct sluice_map_entry *entry)
{
	if (refcount_dec_and_test(&entry->refs))
		sluice_map_entry_free(entry);
}

void sluice_map_entry_free(struct sluice_map_entry *entry)
{
	kfree(entry->removal);
	free_charged(entry->map, entry, entry->charged);
}

/* Nobody looks for it any more, and no event has it. */
static void free_unused(void *object, void *unused)
{
	struct sluice_map_entry *entry = object;

	sluice_map_value_free(rcu_dereference_protected(entry->value, true));
	sluice_map_entry_free(entry);
}

void sluice_map_table_exit(struct sluice_map *map)
{
	rhashtable_free_and_destroy(&map->table, free_unused, NULL);
	if (atomic64_read_acquire(&map->waiting))
		rcu_barrier();
}
