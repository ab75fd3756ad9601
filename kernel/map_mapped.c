// SPDX-License-Identifier: GPL-2.0
#include <linux/atomic.h>
#include <linux/build_bug.h>
#include <linux/err.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/numa.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "map.h"
#include "map_mapped.h"
#include "quota.h"
#include "ring_memory.h"
#include "short_copy.h"

#define DEFAULT_CELL 128
/* Cells of a block, with that of the bucket. */
#define BLOCK_SHIFT 4
#define HEADER_BYTES (2 * PAGE_SIZE)

static_assert(SLUICE_MAP_MMAP_HEADER == SLUICE_RING_MMAP_PRODUCER);
static_assert(SLUICE_MAP_MMAP_TABLE == SLUICE_RING_MMAP_DATA);

struct sluice_map_mapped {
	struct sluice_ring_memory *memory;
	struct sluice_map_header *header;
	u64 seed;
	u32 block_mask;
	unsigned int cell_shift;
};

/* ---- the table ---- */

static u32 map_mapped_cell_size(const struct sluice_map_params *params)
{
	return params->cell ?: DEFAULT_CELL;
}

u64 sluice_map_mapped_size(const struct sluice_map_params *params)
{
	return params->flags & SLUICE_MAP_MAPPED ? HEADER_BYTES + params->table : 0;
}

bool sluice_map_mapped_is_valid(const struct sluice_map_params *params)
{
	u32 cell = map_mapped_cell_size(params);

	if (!(params->flags & SLUICE_MAP_MAPPED))
		return !params->table && !params->cell;
	return is_power_of_2(params->table) && is_power_of_2(cell) && cell >= SLUICE_MAP_CELL_MIN &&
	       cell <= SLUICE_MAP_CELL_MAX && params->table <= SLUICE_MAP_TABLE_MAX &&
	       params->table >= max_t(u64, PAGE_SIZE, (u64)cell << BLOCK_SHIFT);
}

static void map_mapped_init(struct sluice_map_mapped *mapped,
			    const struct sluice_map_params *params)
{
	u32 cell = map_mapped_cell_size(params);

	mapped->header = (void *)sluice_ring_memory_ctrl(mapped->memory, SLUICE_RING_SIDE_PRODUCER);
	mapped->seed = get_random_u64();
	mapped->cell_shift = ilog2(cell);
	mapped->block_mask = (params->table >> mapped->cell_shift >> BLOCK_SHIFT) - 1;
	*mapped->header = (struct sluice_map_header) {
		.seed = mapped->seed,
		.table = params->table,
		.cell = cell,
	};
}

int sluice_map_mapped_create(struct sluice_map *map, const struct sluice_map_params *params,
			     gfp_t gfp)
{
	struct sluice_map_mapped *mapped;
	int err;

	if (!(params->flags & SLUICE_MAP_MAPPED))
		return 0;
	/* A creator over its limit must not cause reclaim for pages that are freed at once. */
	err = sluice_quota_commit(map->channel.charge);
	if (err)
		return err;
	mapped = kzalloc(sizeof(*mapped), gfp);
	if (!mapped)
		return -ENOMEM;
	mapped->memory = sluice_ring_memory_create(&map->channel, params->table, NUMA_NO_NODE,
						   gfp);
	if (IS_ERR(mapped->memory)) {
		err = PTR_ERR(mapped->memory);
		kfree(mapped);
		return err;
	}
	mapped->memory->times = 1;
	map_mapped_init(mapped, params);
	map->mapped = mapped;
	return 0;
}

void sluice_map_mapped_free(struct sluice_map *map)
{
	if (!map->mapped)
		return;
	sluice_ring_memory_free(map->mapped->memory);
	kfree(map->mapped);
	map->mapped = NULL;
}

void sluice_map_mapped_destroy(struct sluice_map *map)
{
	if (map->mapped)
		WRITE_ONCE(map->mapped->header->destroyed, 1);
}

u64 sluice_map_mapped_table(const struct sluice_map *map)
{
	return map->mapped ? map->mapped->header->table : 0;
}

u32 sluice_map_mapped_cell(const struct sluice_map *map)
{
	return map->mapped ? map->mapped->header->cell : 0;
}

bool sluice_map_mapped_is_as(const struct sluice_map *map, const struct sluice_map_params *params)
{
	if (!map->mapped || !(params->flags & SLUICE_MAP_MAPPED))
		return !map->mapped && !(params->flags & SLUICE_MAP_MAPPED);
	return sluice_map_mapped_table(map) == params->table &&
	       sluice_map_mapped_cell(map) == map_mapped_cell_size(params);
}

int sluice_map_mapped_mmap(const struct sluice_map *map, struct vm_area_struct *vma)
{
	if (!map->mapped)
		return -ENODEV;
	if (vma->vm_pgoff != SLUICE_MAP_MMAP_HEADER >> PAGE_SHIFT &&
	    vma->vm_pgoff != SLUICE_MAP_MMAP_TABLE >> PAGE_SHIFT)
		return -EINVAL;
	return sluice_ring_memory_mmap(map->mapped->memory, vma, SLUICE_RING_SIDE_CONSUMER);
}

/* ---- the hash ---- */

static u64 map_mapped_mix(u64 hash)
{
	return hash * SLUICE_MAP_HASH_FACTOR ^ mul_u64_u64_shr(hash, SLUICE_MAP_HASH_FACTOR, 64);
}

static u64 map_mapped_hash(const struct sluice_map_mapped *mapped,
			   const struct sluice_map_entry *entry)
{
	u64 hash = mapped->seed ^ entry->key_length, word;
	const u8 *key = entry->key;
	u32 left;

	for (left = entry->key_length; left >= sizeof(word); left -= sizeof(word)) {
		memcpy(&word, key, sizeof(word));
		hash = map_mapped_mix(hash ^ word);
		key += sizeof(word);
	}
	word = 0;
	memcpy(&word, key, left);
	return map_mapped_mix(map_mapped_mix(hash ^ word) ^ mapped->seed);
}

static u32 map_mapped_home(const struct sluice_map_mapped *mapped, u64 hash)
{
	return hash >> 32 & mapped->block_mask;
}

/* ---- buckets: which entry has which cell ---- */

static void *map_mapped_at(const struct sluice_map_mapped *mapped, u32 cell)
{
	return sluice_ring_memory_data(mapped->memory, (u64)cell << mapped->cell_shift);
}

static struct sluice_map_bucket *map_mapped_bucket(const struct sluice_map_mapped *mapped,
						   u32 block)
{
	return map_mapped_at(mapped, block << BLOCK_SHIFT);
}

/* Entries of this home block that are not in it. */
static void map_mapped_count_elsewhere(const struct sluice_map_mapped *mapped, u32 home, int number)
{
	atomic_add(number, (atomic_t *)&map_mapped_bucket(mapped, home)->elsewhere);
}

static void map_mapped_count_unplaced(const struct sluice_map_mapped *mapped, int number)
{
	atomic64_add(number, (atomic64_t *)&mapped->header->unplaced);
}

/*
 * The number of a cell of the block that the caller has taken, or 0. Readers read the cell first
 * that is tried first here, and then usually do not need the cache line of the bucket.
 */
static u32 map_mapped_take_cell_of(const struct sluice_map_mapped *mapped, u32 block, u32 tag)
{
	struct sluice_map_bucket *bucket = map_mapped_bucket(mapped, block);
	u32 first = mul_u32_u32(tag, SLUICE_MAP_BUCKET_CELLS) >> 32, i;

	for (i = 0; i < SLUICE_MAP_BUCKET_CELLS; i++) {
		u32 index = (first + i) % SLUICE_MAP_BUCKET_CELLS;

		if (!READ_ONCE(bucket->tags[index]) && !cmpxchg(&bucket->tags[index], 0, tag))
			return (block << BLOCK_SHIFT) + index + 1;
	}
	return 0;
}

static u32 map_mapped_take_cell(const struct sluice_map_mapped *mapped, u32 home, u32 tag)
{
	u32 probes = min_t(u32, SLUICE_MAP_PROBES - 1, mapped->block_mask) + 1, probe, cell = 0;

	for (probe = 0; probe < probes && !cell; probe++)
		cell = map_mapped_take_cell_of(mapped, (home + probe) & mapped->block_mask, tag);
	return cell;
}

static bool map_mapped_key_fits(const struct sluice_map_mapped *mapped,
				const struct sluice_map_entry *entry)
{
	return sizeof(struct sluice_map_cell) + entry->key_length <= BIT(mapped->cell_shift);
}

/* Not inline: it would slow down the changes of entries that have a cell. */
static noinline void map_mapped_place(const struct sluice_map_mapped *mapped,
				      struct sluice_map_entry *entry)
{
	u64 hash = map_mapped_hash(mapped, entry);
	u32 home = map_mapped_home(mapped, hash);

	if (map_mapped_key_fits(mapped, entry))
		entry->cell = map_mapped_take_cell(mapped, home, (u32)hash ?: 1);
	if (!entry->cell)
		map_mapped_count_unplaced(mapped, 1);
	if (entry->cell >> BLOCK_SHIFT != home || !entry->cell)
		map_mapped_count_elsewhere(mapped, home, 1);
}

/* Not inline: see map_mapped_place(). */
static noinline void map_mapped_displace(const struct sluice_map_mapped *mapped,
					 struct sluice_map_entry *entry)
{
	u32 home = map_mapped_home(mapped, map_mapped_hash(mapped, entry));
	u32 block = entry->cell >> BLOCK_SHIFT, i = (entry->cell & (BIT(BLOCK_SHIFT) - 1)) - 1;

	if (entry->cell) {
		struct sluice_map_bucket *bucket = map_mapped_bucket(mapped, block);

		smp_store_release(&bucket->tags[i], 0);	/* (map-M) */
	} else {
		map_mapped_count_unplaced(mapped, -1);
	}
	smp_mb__before_atomic();	/* (map-M) */
	if (block != home || !entry->cell)
		map_mapped_count_elsewhere(mapped, home, -1);
}

/* ---- cells ---- */

/* Where the value begins. */
static u32 map_mapped_value_at(u32 key_length)
{
	return sizeof(struct sluice_map_cell) + ALIGN(key_length, sizeof(u64));
}

static u32 map_mapped_end_of(const struct sluice_map_cell *cell)
{
	u32 length = cell->value_length == SLUICE_MAP_CELL_ASK ? 0 : cell->value_length;

	return map_mapped_value_at(cell->key_length) + length;
}

static void map_mapped_store_value(const struct sluice_map_mapped *mapped,
				   struct sluice_map_cell *cell,
				   const struct sluice_map_value *value)
{
	u32 at = map_mapped_value_at(cell->key_length);

	cell->version = value->version;
	cell->expires_ns = value->expires;
	cell->value_length = SLUICE_MAP_CELL_ASK;
	if (value->length > BIT(mapped->cell_shift) - at)
		return;
	cell->value_length = value->length;
	sluice_copy((u8 *)cell + at, value->bytes, value->length);
}

static void map_mapped_store(const struct sluice_map_mapped *mapped, struct sluice_map_cell *cell,
			     const struct sluice_map_entry *entry,
			     const struct sluice_map_value *value)
{
	u32 end = map_mapped_end_of(cell), now;

	/* Behind the key the cell is zero, on which readers rely. */
	if (!cell->key_length) {
		cell->key_length = entry->key_length;
		memcpy(cell + 1, entry->key, entry->key_length);
	}
	map_mapped_store_value(mapped, cell, value);
	now = map_mapped_end_of(cell);
	if (now < end)
		memset((u8 *)cell + now, 0, end - now);
}

/* All but the sequence. */
static void map_mapped_clear(struct sluice_map_cell *cell)
{
	u32 end = map_mapped_end_of(cell);

	memset(&cell->version, 0, end - offsetof(struct sluice_map_cell, version));
}

struct sluice_map_cell *sluice_map_mapped_begin(struct sluice_map *map,
						struct sluice_map_entry *entry, bool is_new)
{
	struct sluice_map_cell *cell;

	if (is_new)
		map_mapped_place(map->mapped, entry);
	if (!entry->cell)
		return NULL;
	cell = map_mapped_at(map->mapped, entry->cell);
	WRITE_ONCE(cell->sequence, cell->sequence + 1);
	smp_wmb();	/* (map-M) */
	return cell;
}

void sluice_map_mapped_end(struct sluice_map *map, struct sluice_map_entry *entry,
			   struct sluice_map_cell *cell, const struct sluice_map_value *value)
{
	struct sluice_map_mapped *mapped = map->mapped;

	if (cell) {
		if (value)
			map_mapped_store(mapped, cell, entry, value);
		else
			map_mapped_clear(cell);
		smp_store_release(&cell->sequence, cell->sequence + 1);	/* (map-M) */
	}
	if (!value)
		map_mapped_displace(mapped, entry);
}
