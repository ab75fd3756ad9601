// SPDX-License-Identifier: GPL-2.0
/* Keys, the table, and the end of entries and values. */
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "compat.h"
#include "map.h"
#include "short_copy.h"

/* ---- keys of the caller ---- */

int sluice_map_copy_key(const struct sluice_map *map, u64 address, u32 length,
			struct sluice_map_key_copy *copy, struct sluice_map_key *key, gfp_t gfp)
{
	if (!length || length > SLUICE_MAP_KEY_MAX)
		return -EINVAL;
	copy->bytes = copy->on_stack;
	if (length > sizeof(copy->on_stack))
		copy->bytes = kmalloc(length, gfp);
	if (!copy->bytes)
		return -ENOMEM;
	if (!sluice_copy_from_user(copy->bytes, u64_to_user_ptr(address), length)) {
		sluice_map_free_key(copy);
		return -EFAULT;
	}
	sluice_map_key_init(map, key, copy->bytes, length);
	return 0;
}

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

/* ---- memory ---- */

static void free_charged(struct sluice_map *map, void *memory, size_t charged)
{
	kvfree(memory);
	atomic64_sub(charged, &map->bytes);
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
