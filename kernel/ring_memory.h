/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pages of a ring that user space maps.
 *
 *   page     content                       offset in the file
 *   0        producer's control structure  SLUICE_RING_MMAP_PRODUCER
 *   1        consumer's control structure  SLUICE_RING_MMAP_CONSUMER
 *   2 ...    data                          SLUICE_RING_MMAP_DATA, mapped twice in a row
 *
 * Life: created zeroed for one session, that is one producer and one consumer, and freed with it.
 * mmap(2) maps all pages of a region, so that their first accesses do not fault. A mapping holds
 * its file, whose endpoint holds the session, so the pages outlive every mapping. They are never
 * used again: each goes back to the kernel when its last user (a page table, a pinning driver, a
 * pipe(2)) puts it.
 *
 * Access: each role can write to its own control page, and the producer to the data. A mapping
 * covers a whole region; mprotect(2) cannot make a foreign region writable or any executable.
 * User space can write to these pages at any time, so the kernel reads each word once.
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
	struct page *pages[];
};

/*
 * Charged to the creator of @channel, or, with NULL, to the caller. @node: the memory node of the
 * pages, or NUMA_NO_NODE. -ENOMEM, or -EINTR: a fatal signal is pending.
 */
struct sluice_ring_memory *sluice_ring_memory_create(const struct sluice_channel *channel,
						     u64 capacity, int node);
void sluice_ring_memory_free(struct sluice_ring_memory *memory);

struct sluice_ring_ctrl *sluice_ring_memory_ctrl(const struct sluice_ring_memory *memory,
						 enum sluice_ring_role role);

/* Maps the data for the kernel, twice in a row; vunmap() ends it. NULL: no memory. */
void *sluice_ring_memory_vmap(const struct sluice_ring_memory *memory);

/* The address of the data at a position; contiguous up to the end of the page. */
void *sluice_ring_memory_data(const struct sluice_ring_memory *memory, u64 pos);

/* The errors of sluice_ring_memory_mmap() for a ring of this capacity. */
int sluice_ring_memory_check_mmap(struct vm_area_struct *vma, u64 capacity,
				  enum sluice_ring_role role);

/*
 * Maps the region that @vma designates for a side with @role. The caller's file keeps @memory. 0,
 * -EINVAL: not a whole region, or private, -EACCES: a foreign region for writing, or executable.
 */
int sluice_ring_memory_mmap(struct sluice_ring_memory *memory, struct vm_area_struct *vma,
			    enum sluice_ring_role role);

#endif
