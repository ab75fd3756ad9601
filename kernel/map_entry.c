// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/jhash.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "map.h"

/* ---- the table ---- */

/* The hash of the key is secret; the table adds its own seed, which changes when it must. */
static u32 hash_key(const void *data, u32 length, u32 seed)
{
	const struct sluice_map_key *key = data;

	return jhash_1word(key->hash, seed);
}

static u32 hash_entry(const void *data, u32 length, u32 seed)
{
	const struct sluice_map_entry *entry = data;

	return jhash_1word(entry->hash, seed);
}

/* 0: equal. */
static int compare(struct rhashtable_compare_arg *argument, const void *object)
{
	const struct sluice_map_key *key = argument->key;
	const struct sluice_map_entry *entry = object;

	if (entry->hash != key->hash || entry->key_length != key->length)
		return 1;
	return memcmp(entry->key, key->bytes, key->length);
}

static const struct rhashtable_params table_params = {
	.head_offset		= offsetof(struct sluice_map_entry, node),
	.hashfn			= hash_key,
	.obj_hashfn		= hash_entry,
	.obj_cmpfn		= compare,
	.automatic_shrinking	= true,
};

int sluice_map_table_init(struct sluice_map *map)
{
	get_random_bytes(&map->hash_key, sizeof(map->hash_key));
	return rhashtable_init(&map->table, &table_params);
}

void sluice_map_key_init(const struct sluice_map *map, struct sluice_map_key *key, const u8 *bytes,
			 u32 length)
{
	key->bytes = bytes;
	key->length = length;
	key->hash = hsiphash(bytes, length, &map->hash_key);
}

struct sluice_map_entry *sluice_map_find(struct sluice_map *map, const struct sluice_map_key *key)
{
	return rhashtable_lookup(&map->table, key, table_params);
}

int sluice_map_table_insert(struct sluice_map *map, struct sluice_map_entry *entry)
{
	return rhashtable_insert_fast(&map->table, &entry->node, table_params);
}

void sluice_map_table_remove(struct sluice_map *map, struct sluice_map_entry *entry)
{
	rhashtable_remove_fast(&map->table, &entry->node, table_params);
}

/* ---- memory ---- */

static size_t value_size(const struct sluice_map_value *value)
{
	return struct_size(value, bytes, value->length);
}

static size_t entry_size(const struct sluice_map_entry *entry)
{
	return SLUICE_MAP_ENTRY_BYTES + entry->key_length;
}

static int charge(struct sluice_map *map, size_t bytes)
{
	if (atomic64_add_return(bytes, &map->bytes) <= map->capacity)
		return 0;
	atomic64_sub(bytes, &map->bytes);
	return atomic64_read(&map->waiting) ? -EAGAIN : -ENOSPC;
}

/* Charged memory for an object, or an error. */
static void *allocate(struct sluice_map *map, size_t size, size_t charged)
{
	int err = charge(map, charged);
	void *memory;

	if (err)
		return ERR_PTR(err);
	memory = sluice_channel_kvmalloc(&map->channel, size);
	if (memory)
		return memory;
	atomic64_sub(charged, &map->bytes);
	return ERR_PTR(-ENOMEM);
}

static void free_charged(struct sluice_map *map, void *memory, size_t charged)
{
	kvfree(memory);
	atomic64_sub(charged, &map->bytes);
}

struct sluice_map_entry *sluice_map_entry_create(struct sluice_map *map,
						 const struct sluice_map_key *key)
{
	size_t size = offsetof(struct sluice_map_entry, key) + key->length;
	struct sluice_map_entry *entry;

	entry = allocate(map, size, SLUICE_MAP_ENTRY_BYTES + key->length);
	if (IS_ERR(entry))
		return entry;
	memset(entry, 0, sizeof(*entry));
	entry->hash = key->hash;
	entry->key_length = key->length;
	refcount_set(&entry->refs, 1);
	entry->map = map;
	memcpy(entry->key, key->bytes, key->length);
	return entry;
}

static u64 time_of_expiry(u64 ttl_ns)
{
	u64 now = ktime_get_boottime_ns();

	if (!ttl_ns || ttl_ns > KTIME_MAX - now)
		return SLUICE_MAP_FOREVER;
	return now + ttl_ns;
}

struct sluice_map_value *sluice_map_value_create(struct sluice_map *map, u32 length, u64 ttl_ns)
{
	struct sluice_map_value *value;
	size_t size = struct_size(value, bytes, length);

	value = allocate(map, size, size);
	if (IS_ERR(value))
		return value;
	value->version = 0;
	value->expires = time_of_expiry(ttl_ns);
	value->length = length;
	refcount_set(&value->refs, 1);
	value->map = map;
	return value;
}

/*
 * The last access to the map in each of the following two is the decrement of `waiting`: who then
 * finds 0 may free the map.
 */
static void free_entry(struct rcu_head *rcu)
{
	struct sluice_map_entry *entry = container_of(rcu, struct sluice_map_entry, rcu);
	struct sluice_map *map = entry->map;
	size_t size = entry_size(entry);

	free_charged(map, entry, size);
	atomic64_sub_return_release(size, &map->waiting);
}

static void free_value(struct rcu_head *rcu)
{
	struct sluice_map_value *value = container_of(rcu, struct sluice_map_value, rcu);
	struct sluice_map *map = value->map;
	size_t size = value_size(value);

	free_charged(map, value, size);
	atomic64_sub_return_release(size, &map->waiting);
}

void sluice_map_entry_put(struct sluice_map_entry *entry)
{
	if (!refcount_dec_and_test(&entry->refs))
		return;
	atomic64_add(entry_size(entry), &entry->map->waiting);
	call_rcu(&entry->rcu, free_entry);
}

void sluice_map_value_put(struct sluice_map_value *value)
{
	if (!refcount_dec_and_test(&value->refs))
		return;
	atomic64_add(value_size(value), &value->map->waiting);
	call_rcu(&value->rcu, free_value);
}

void sluice_map_value_free(struct sluice_map_value *value)
{
	free_charged(value->map, value, value_size(value));
}

void sluice_map_entry_free(struct sluice_map_entry *entry)
{
	free_charged(entry->map, entry, entry_size(entry));
}

void sluice_map_wait_for_memory(void)
{
	rcu_barrier();
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
