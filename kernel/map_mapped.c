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
#include "start.h"

#define DEFAULT_CELL 128
/* Cells of a block, with that of the bucket. */
#define BLOCK_SHIFT 4
#define CELL_FIRST SLUICE_START(8)	/* even: nobody changes the cell */
#define HEADER_BYTES (2 * PAGE_SIZE)

static_assert(SLUICE_MAP_MMAP_HEADER == SLUICE_RING_MMAP_PRODUCER);
static_assert(SLUICE_MAP_MMAP_TABLE == SLUICE_RING_MMAP_DATA);

struct sluice_map_mapped {
	struct sluice_ring_memory *memory;
	struct sluice_map_header *header;
	u64 seed;
	u32 block_mask;
	u32 cell_size;
	unsigned int cell_shift;
};

/* ---- the table ---- */

u32 sluice_map_mapped_cell_size(const struct sluice_map_params *params)
{
	return params->flags & SLUICE_MAP_MAPPED ? params->cell ?: DEFAULT_CELL : 0;
}

u64 sluice_map_mapped_size(const struct sluice_map_params *params)
{
	return params->flags & SLUICE_MAP_MAPPED ? HEADER_BYTES + params->table : 0;
}

bool sluice_map_mapped_is_valid(const struct sluice_map_params *params)
{
	u32 cell = sluice_map_mapped_cell_size(params);

	if (!(params->flags & SLUICE_MAP_MAPPED))
		return !params->table && !params->cell;
	return is_power_of_2(params->table) && is_power_of_2(cell) && cell >= SLUICE_MAP_CELL_MIN &&
	       cell <= SLUICE_MAP_CELL_MAX && params->table <= SLUICE_MAP_TABLE_MAX &&
	       params->table >= max_t(u64, PAGE_SIZE, (u64)cell << BLOCK_SHIFT);
}

/*
 * The sequence of a cell wraps around: readers look at its lowest bit and compare it for equality,
 * and a look takes less time than 2^64 changes.
 */
static void map_mapped_start_cells(const struct sluice_map_mapped *mapped)
{
	u32 cell, cells = (mapped->block_mask + 1) << BLOCK_SHIFT;

	for (cell = 0; cell < cells; cell++) {
		void *at = sluice_ring_memory_data(mapped->memory, (u64)cell << mapped->cell_shift);

		/* The first of a block is its bucket. */
		if (cell % (1 << BLOCK_SHIFT))
			((struct sluice_map_cell *)at)->sequence = CELL_FIRST;
	}
}

static void map_mapped_init(struct sluice_map_mapped *mapped,
			    const struct sluice_map_params *params)
{
	u32 cell = sluice_map_mapped_cell_size(params);

	mapped->header = (void *)sluice_ring_memory_ctrl(mapped->memory, SLUICE_RING_SIDE_PRODUCER);
	mapped->seed = get_random_u64();
	mapped->cell_size = cell;
	mapped->cell_shift = ilog2(cell);
	mapped->block_mask = (params->table >> mapped->cell_shift >> BLOCK_SHIFT) - 1;
	*mapped->header = (struct sluice_map_header) {
		.seed = mapped->seed,
		.table = params->table,
		.cell = cell,
	};
	if (CELL_FIRST)
		map_mapped_start_cells(mapped);
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
	       sluice_map_mapped_cell(map) == sluice_map_mapped_cell_size(params);
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

/* The cell of the tag with this index in the bucket. */
static struct sluice_map_cell *map_mapped_cell(const struct sluice_map_mapped *mapped, u32 block,
					       u32 index)
{
	return map_mapped_at(mapped, (block << BLOCK_SHIFT) + index + 1);
}

/*
 * A cell of the block that the caller has taken, or NULL. Readers read the cell first that is tried
 * first here, and then usually do not need the cache line of the bucket.
 */
static struct sluice_map_cell *map_mapped_take_cell_of(const struct sluice_map_mapped *mapped,
						       u32 block, u32 tag)
{
	struct sluice_map_bucket *bucket = map_mapped_bucket(mapped, block);
	u32 first = mul_u32_u32(tag, SLUICE_MAP_BUCKET_CELLS) >> 32, i;

	for (i = 0; i < SLUICE_MAP_BUCKET_CELLS; i++) {
		u32 index = (first + i) % SLUICE_MAP_BUCKET_CELLS;

		if (!READ_ONCE(bucket->tags[index]) && !cmpxchg(&bucket->tags[index], 0, tag))
			return map_mapped_cell(mapped, block, index);
	}
	return NULL;
}

/* Frees the cell if it is in this block. Returns whether it was. */
static bool map_mapped_free_cell_of(const struct sluice_map_mapped *mapped, u32 block, u32 tag,
				    const struct sluice_map_cell *cell)
{
	struct sluice_map_bucket *bucket = map_mapped_bucket(mapped, block);
	u32 i;

	for (i = 0; i < SLUICE_MAP_BUCKET_CELLS; i++) {
		if (READ_ONCE(bucket->tags[i]) != tag || map_mapped_cell(mapped, block, i) != cell)
			continue;
		smp_store_release(&bucket->tags[i], 0);	/* (map-M) */
		return true;
	}
	return false;
}

static u32 map_mapped_tag(u64 hash)
{
	return (u32)hash ?: 1;
}

/* How many blocks may have the entry. */
static u32 map_mapped_probes(const struct sluice_map_mapped *mapped,
			     const struct sluice_map_entry *entry)
{
	if (sizeof(struct sluice_map_cell) + entry->key_length > mapped->cell_size)
		return 0;
	return min_t(u32, SLUICE_MAP_PROBES - 1, mapped->block_mask) + 1;
}

/* Gives the entry a cell, if one is free. */
static void map_mapped_place(const struct sluice_map_mapped *mapped, struct sluice_map_entry *entry)
{
	u32 probes = map_mapped_probes(mapped, entry), probe;
	u64 hash = map_mapped_hash(mapped, entry);
	u32 home = map_mapped_home(mapped, hash);

	for (probe = 0; probe < probes && !entry->cell; probe++)
		entry->cell = map_mapped_take_cell_of(mapped, (home + probe) & mapped->block_mask,
						      map_mapped_tag(hash));
	if (!entry->cell)
		map_mapped_count_unplaced(mapped, 1);
	if (!entry->cell || probe > 1)
		map_mapped_count_elsewhere(mapped, home, 1);
}

static void map_mapped_displace(const struct sluice_map_mapped *mapped,
				const struct sluice_map_entry *entry)
{
	u32 probes = map_mapped_probes(mapped, entry), probe;
	u64 hash = map_mapped_hash(mapped, entry);
	u32 home = map_mapped_home(mapped, hash);
	bool is_free = !entry->cell;

	if (!entry->cell)
		map_mapped_count_unplaced(mapped, -1);
	for (probe = 0; probe < probes && !is_free; probe++)
		is_free = map_mapped_free_cell_of(mapped, (home + probe) & mapped->block_mask,
						  map_mapped_tag(hash), entry->cell);
	WARN_ON_ONCE(!is_free);
	smp_mb__before_atomic();	/* (map-M) */
	if (!entry->cell || probe > 1)
		map_mapped_count_elsewhere(mapped, home, -1);
}

/* ---- cells ---- */

/* Where the value begins. */
static u32 map_mapped_value_at(u32 key_length)
{
	return sizeof(struct sluice_map_cell) + ALIGN(key_length, sizeof(u64));
}

/* The bytes of the value that are in the cell. */
static u32 map_mapped_length(const struct sluice_map_cell *cell)
{
	return cell->value_length == SLUICE_MAP_CELL_ASK ? 0 : cell->value_length;
}

static void map_mapped_store(const struct sluice_map_mapped *mapped, struct sluice_map_cell *cell,
			     const struct sluice_map_value *value)
{
	u32 at = map_mapped_value_at(cell->key_length), before = map_mapped_length(cell);
	bool fits = value->length <= mapped->cell_size - at;
	u32 now = fits ? value->length : 0;

	cell->version = value->version;
	cell->expires_ns = value->expires;
	cell->value_length = fits ? now : SLUICE_MAP_CELL_ASK;
	sluice_copy((u8 *)cell + at, value->bytes, now);
	if (now < before)
		memset((u8 *)cell + at + now, 0, before - now);
}

/* All but the sequence. */
static void map_mapped_clear(struct sluice_map_cell *cell)
{
	u32 end = map_mapped_value_at(cell->key_length) + map_mapped_length(cell);

	memset(&cell->version, 0, end - offsetof(struct sluice_map_cell, version));
}

struct sluice_map_cell *sluice_map_mapped_begin_new(struct sluice_map *map,
						    struct sluice_map_entry *entry)
{
	struct sluice_map_cell *cell;

	map_mapped_place(map->mapped, entry);
	cell = sluice_map_mapped_begin(entry);
	if (!cell)
		return NULL;
	/* Behind the key the cell is zero, on which readers rely. */
	cell->key_length = entry->key_length;
	memcpy(cell + 1, entry->key, entry->key_length);
	return cell;
}

static void map_mapped_end_change(struct sluice_map_cell *cell)
{
	smp_store_release(&cell->sequence, cell->sequence + 1);	/* (map-M) */
}

void sluice_map_mapped_end(struct sluice_map *map, struct sluice_map_cell *cell,
			   const struct sluice_map_value *value)
{
	if (!cell)
		return;
	map_mapped_store(map->mapped, cell, value);
	map_mapped_end_change(cell);
}

void sluice_map_mapped_end_removal(struct sluice_map *map, struct sluice_map_cell *cell,
				   const struct sluice_map_entry *entry)
{
	if (cell) {
		map_mapped_clear(cell);
		map_mapped_end_change(cell);
	}
	map_mapped_displace(map->mapped, entry);
}
