/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pages of a ring, a bus or a map that user space maps.
 *
 *   page     content                       offset in the file
 *   0        producer's control structure  SLUICE_RING_MMAP_PRODUCER
 *   1        consumer's control structure  SLUICE_RING_MMAP_CONSUMER
 *   2 ...    data                          SLUICE_RING_MMAP_DATA, mapped twice in a row, of a
 *                                          map once
 *
 * Life: created zeroed for a session of a ring, that is one producer and one consumer, for a bus or
 * for a map, and freed with it.
 * Most data pages are in compound pages of 8. mmap(2) maps up to the first 128 pages of a region,
 * a page fault up to 128 more. A mapping holds its file, whose endpoint holds the session, so the
 * pages outlive every mapping. They are never used again: a page, or compound page, goes back to
 * the kernel when its last user (a page table, a pinning driver, a pipe(2)) puts it.
 *
 * Access: each role can write to its own control page, and the producer to the data. A mapping
 * covers a whole region; mprotect(2) cannot make a foreign region writable or any executable.
 * User space can write to the pages of a ring at any time, so the kernel reads each word once. Only
 * the kernel writes to those of a bus and of a map.
 */
#ifndef SLUICE_RING_MEMORY_H
#define SLUICE_RING_MEMORY_H

#include <linux/types.h>

#include <uapi/linux/sluice.h>

struct page;
struct sluice_channel;
struct vm_area_struct;

enum sluice_ring_role {
	SLUICE_RING_SIDE_PRODUCER,
	SLUICE_RING_SIDE_CONSUMER,
};

struct sluice_ring_memory {
	unsigned long data_pages;	/* a power of two */
	unsigned int times;		/* the data are mapped in a row: 2; of a map 1 */
	struct page *pages[];
};

/**
 * sluice_ring_memory_create() - allocates the pages of a ring, zeroed
 * @channel: the channel, whose creator is charged; NULL: the caller is charged
 * @capacity: bytes of the data: a power of two, at least a page
 * @node: the memory node of the pages, or NUMA_NO_NODE
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Context: may sleep.
 * Return: the memory, or an error pointer: -ENOMEM, or -EINTR: a fatal signal is pending.
 */
struct sluice_ring_memory *sluice_ring_memory_create(const struct sluice_channel *channel,
						     u64 capacity, int node, gfp_t gfp);
/**
 * sluice_ring_memory_free() - frees the memory of a ring, which is not mapped
 * @memory: the memory
 *
 * A page that has other users, such as a pipe(2), is freed when the last of them puts it, with the
 * others of its compound page.
 *
 * Context: may sleep.
 */
void sluice_ring_memory_free(struct sluice_ring_memory *memory);

/**
 * sluice_ring_memory_ctrl() - the control structure of a role
 * @memory: the memory
 * @role: the role
 *
 * Return: its address in the kernel. User space can write to it at any time.
 */
struct sluice_ring_ctrl *sluice_ring_memory_ctrl(const struct sluice_ring_memory *memory,
						 enum sluice_ring_role role);

/**
 * sluice_ring_memory_vmap() - maps the data for the kernel, twice in a row
 * @memory: the memory
 *
 * Context: may sleep.
 * Return: the address, to be unmapped with vunmap(); NULL: there is no memory.
 */
void *sluice_ring_memory_vmap(const struct sluice_ring_memory *memory);

/**
 * sluice_ring_memory_data() - the data at a position
 * @memory: the memory
 * @pos: the position
 *
 * Return: the address in the kernel; contiguous up to the end of the page.
 */
void *sluice_ring_memory_data(const struct sluice_ring_memory *memory, u64 pos);

/**
 * sluice_ring_memory_check_mmap() - tests whether sluice_ring_memory_mmap() permits a mapping
 * @vma: the mapping
 * @capacity: the capacity of the ring
 * @role: the role of the endpoint
 *
 * Return: 0; -EINVAL: not a whole region, or private; -EACCES: a foreign region for writing, or
 * executable.
 */
int sluice_ring_memory_check_mmap(struct vm_area_struct *vma, u64 capacity,
				  enum sluice_ring_role role);

/**
 * sluice_ring_memory_mmap() - maps a region; a first access maps what is behind the first block
 * @memory: the memory, which the caller's file keeps
 * @vma: the mapping, whose offset designates the region
 * @role: the role of the endpoint
 *
 * Context: may sleep; under mmap_lock, in mmap(2).
 * Return: 0; -EINVAL: not a whole region, or private; -EACCES: a foreign region for writing, or
 * executable; -ENOMEM: there is no memory, or a page has too many references.
 */
int sluice_ring_memory_mmap(struct sluice_ring_memory *memory, struct vm_area_struct *vma,
			    enum sluice_ring_role role);

#endif
