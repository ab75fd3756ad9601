/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mapped table of a map: a copy of its entries that processes read without a system call.
 *
 *   header   the producer's control page (ring_memory.h): struct sluice_map_header
 *   table    blocks of 16 cells. The first cell of a block begins with its bucket, which has the
 *            tags of the 15 others. A cell has a key and a value.
 *
 * The hash of a key determines its home block, and which cell of a block is tried first. An entry
 * is placed in a free cell of its home block or of one of the next blocks, SLUICE_MAP_PROBES
 * altogether, and stays there until it is removed.
 * The bucket of the home block counts the entries that are not in it. So a reader passes at most
 * SLUICE_MAP_PROBES buckets, whatever keys others choose, and asks the kernel for a key that it did
 * not find and that may have no cell. A value that is too long for the cell has only its key there,
 * and the reader asks the kernel, too.
 *
 * Life of a table: it is created with its map, with its final size, and freed with it, or by the
 * open of a map that the keeper has refused, when nobody else uses the table. A mapping holds its
 * file, whose endpoint holds the map. The pages are never used again (ring_memory.h).
 *
 * Life of a cell: it is free, with the tag 0 and no content. The first change of an entry takes
 * it, by compare-and-swap of its tag, so that entries of different shards need no common lock. Each
 * change of the entry changes its content, under the lock of the entry's shard. The removal of the
 * entry clears it, so that readers do not find what was removed, and then stores the tag 0. The
 * sequence of a cell is never reset: a reader notices that a cell has another entry.
 *
 * Only the kernel writes to the table, and reads what it has written; no process can. No change
 * waits for a reader.
 *
 * Barriers:
 * (map-M) The sequence of a cell becomes odd, followed by smp_wmb(), before a change takes effect
 *     for other readers, and even, by smp_store_release(), after the content is complete. A reader
 *     of the table loads the sequence, an acquire fence, the content, an acquire fence, and the
 *     sequence again; it repeats that, or asks the kernel, unless the sequence was even and the
 *     same. So it finds a change as soon as other readers do. The tag becomes 0 by a release and is
 *     taken by cmpxchg(), so the next user of the cell loads its last sequence. `elsewhere` is
 *     incremented before a change takes effect, ordered by smp_wmb(), or for an entry without a
 *     cell by rcu_assign_pointer() of its value; it is decremented after the effect, ordered by
 *     smp_mb__before_atomic(). A lookup begins with an acquire fence, and a lookup without a result
 *     ends with one: later lookups and calls of a thread do not return older states.
 */
#ifndef SLUICE_MAP_MAPPED_H
#define SLUICE_MAP_MAPPED_H

#include <linux/types.h>

#include <uapi/linux/sluice.h>

#include "map.h"

struct vm_area_struct;

/**
 * sluice_map_mapped_is_valid() - tests the parameters of a table
 * @params: the parameters of a map
 *
 * Return: true if they are valid, also for a map without a table.
 */
bool sluice_map_mapped_is_valid(const struct sluice_map_params *params);

/**
 * sluice_map_mapped_cell_size() - returns the bytes of a cell of the table that parameters request
 * @params: the parameters of a map
 *
 * Return: the bytes; 0: the map has no table.
 */
u32 sluice_map_mapped_cell_size(const struct sluice_map_params *params);

/**
 * sluice_map_mapped_size() - returns the bytes of a table that the limits of channels count
 * @params: the parameters of a map, which are valid
 *
 * Return: the bytes; 0: the map has no table.
 */
u64 sluice_map_mapped_size(const struct sluice_map_params *params);

/**
 * sluice_map_mapped_create() - creates the table of a new map, if the parameters request one
 * @map: the map, whose creator is charged
 * @params: the parameters, which are valid
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Commits the charge of the channel first.
 *
 * Context: may sleep.
 * Return: 0; -ENOSPC: a limit of a scope; -EDQUOT: a limit of a user; -ENOMEM; -EINTR: a fatal
 * signal is pending.
 */
int sluice_map_mapped_create(struct sluice_map *map, const struct sluice_map_params *params,
			     gfp_t gfp);

/**
 * sluice_map_mapped_free() - frees the table of a map, if it has one, which nobody uses any more
 * @map: the map
 *
 * Context: may sleep.
 */
void sluice_map_mapped_free(struct sluice_map *map);

/**
 * sluice_map_mapped_begin() - begins a change of the cell of an entry
 * @entry: the entry, of a map with a table
 *
 * Inline, because a set of a short value takes little more time than some calls.
 *
 * Context: under the shard's lock, before the change takes effect.
 * Return: the cell, or NULL: the entry has none.
 */
static inline struct sluice_map_cell *sluice_map_mapped_begin(const struct sluice_map_entry *entry)
{
	struct sluice_map_cell *cell = entry->cell;

	if (!cell)
		return NULL;
	WRITE_ONCE(cell->sequence, cell->sequence + 1);
	smp_wmb();	/* (map-M) */
	return cell;
}

/**
 * sluice_map_mapped_begin_new() - begins the change that creates an entry
 * @map: the map, with a table
 * @entry: the entry, which takes a cell, if one is free
 *
 * Context: under the shard's lock, before the change takes effect.
 * Return: the cell, or NULL: the entry has none.
 */
struct sluice_map_cell *sluice_map_mapped_begin_new(struct sluice_map *map,
						    struct sluice_map_entry *entry);

/**
 * sluice_map_mapped_end() - ends a change of the value of an entry
 * @map: the map, with a table
 * @cell: what the begin of the change has returned
 * @value: the value
 *
 * Context: under the shard's lock, after the change has taken effect.
 */
void sluice_map_mapped_end(struct sluice_map *map, struct sluice_map_cell *cell,
			   const struct sluice_map_value *value);

/**
 * sluice_map_mapped_end_removal() - ends the removal of an entry
 * @map: the map, with a table
 * @cell: what sluice_map_mapped_begin() has returned
 * @entry: the entry
 *
 * Context: under the shard's lock, after the removal has taken effect.
 */
void sluice_map_mapped_end_removal(struct sluice_map *map, struct sluice_map_cell *cell,
				   const struct sluice_map_entry *entry);

/**
 * sluice_map_mapped_destroy() - tells readers that the map is destroyed
 * @map: the map, with or without a table
 */
void sluice_map_mapped_destroy(struct sluice_map *map);

/**
 * sluice_map_mapped_table() - returns the bytes of a table
 * @map: the map
 *
 * Return: the bytes; 0: the map has no table.
 */
u64 sluice_map_mapped_table(const struct sluice_map *map);

/**
 * sluice_map_mapped_cell() - returns the bytes of a cell of a table
 * @map: the map
 *
 * Return: the bytes; 0: the map has no table.
 */
u32 sluice_map_mapped_cell(const struct sluice_map *map);

/**
 * sluice_map_mapped_is_as() - tests whether a map has the table that parameters describe
 * @map: the map
 * @params: the parameters, which are valid
 *
 * Return: true if it has, also if both are without a table.
 */
bool sluice_map_mapped_is_as(const struct sluice_map *map, const struct sluice_map_params *params);

/**
 * sluice_map_mapped_mmap() - maps the header or the table, read-only
 * @map: the map
 * @vma: the mapping
 *
 * Return: 0; -ENODEV: the map has no table; or an error of sluice_ring_memory_mmap().
 */
int sluice_map_mapped_mmap(const struct sluice_map *map, struct vm_area_struct *vma);

#endif
