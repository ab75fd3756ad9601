// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "channel.h"
#include "compat.h"
#include "ring_memory.h"

#define CTRL_PAGES 2
#define PAGES_PER_CHECK 256	/* pages that are freed between two checks for other tasks */
#define COMPOUND_ORDER 3	/* fewer allocations and frees than single pages need */
#define BLOCK_PAGES 128		/* mapped by one fault, at most; counted from the data */
#define REFS_MAX (INT_MAX / 2)	/* a page with more references is not mapped again */

/* The regions of the file, in pages. */
#define PRODUCER_PGOFF	(SLUICE_RING_MMAP_PRODUCER >> PAGE_SHIFT)
#define CONSUMER_PGOFF	(SLUICE_RING_MMAP_CONSUMER >> PAGE_SHIFT)
#define DATA_PGOFF	(SLUICE_RING_MMAP_DATA >> PAGE_SHIFT)

static unsigned long pages_of(const struct sluice_ring_memory *memory)
{
	return CTRL_PAGES + memory->data_pages;
}

static void free_pages_before(struct sluice_ring_memory *memory, unsigned long end)
{
	while (end--) {
		if (!PageTail(memory->pages[end]))
			put_page(memory->pages[end]);
		if (end % PAGES_PER_CHECK == 0)
			cond_resched();
	}
	kvfree(memory);
}

/*
 * Allocates the next pages, from number @at on: their number, or 0 without memory. @compound:
 * whether to try a compound page. Control pages stay single, so that who pins one keeps no data.
 */
static unsigned long alloc_pages_at(struct sluice_ring_memory *memory, unsigned long at,
				    const struct sluice_channel *channel, int node, gfp_t gfp,
				    bool *compound)
{
	struct page *first = NULL;
	unsigned long i;

	if (*compound && at >= CTRL_PAGES && pages_of(memory) - at >= BIT(COMPOUND_ORDER)) {
		first = sluice_channel_pages_alloc(channel, __GFP_ZERO, node, COMPOUND_ORDER);
		*compound = first;
	}
	if (!first) {
		memory->pages[at] = sluice_channel_page_alloc(channel, gfp | __GFP_ZERO, node);
		return memory->pages[at] ? 1 : 0;
	}
	for (i = 0; i < BIT(COMPOUND_ORDER); i++)
		memory->pages[at + i] = first + i;
	return BIT(COMPOUND_ORDER);
}

struct sluice_ring_memory *sluice_ring_memory_create(const struct sluice_channel *channel,
						     u64 capacity, int node, gfp_t gfp)
{
	unsigned long data_pages = capacity >> PAGE_SHIFT, i, added;
	struct sluice_ring_memory *memory;
	bool compound = true;

	memory = sluice_channel_kvcalloc(channel, 1,
					 struct_size(memory, pages, CTRL_PAGES + data_pages),
					 gfp);
	if (!memory)
		return ERR_PTR(-ENOMEM);
	memory->data_pages = data_pages;
	memory->times = 2;
	/* The kernel accesses control pages and records by their addresses: no high memory. */
	for (i = 0; i < pages_of(memory); i += added) {
		bool killed = fatal_signal_pending(current);

		added = killed ? 0 : alloc_pages_at(memory, i, channel, node, gfp, &compound);
		if (!added) {
			free_pages_before(memory, i);
			return ERR_PTR(killed ? -EINTR : -ENOMEM);
		}
		cond_resched();
	}
	return memory;
}

void sluice_ring_memory_free(struct sluice_ring_memory *memory)
{
	free_pages_before(memory, pages_of(memory));
}

struct sluice_ring_ctrl *sluice_ring_memory_ctrl(const struct sluice_ring_memory *memory,
						 enum sluice_ring_role role)
{
	return page_address(memory->pages[role]);
}

void *sluice_ring_memory_data(const struct sluice_ring_memory *memory, u64 pos)
{
	unsigned long page = (pos >> PAGE_SHIFT) & (memory->data_pages - 1);

	return page_address(memory->pages[CTRL_PAGES + page]) + offset_in_page(pos);
}

void *sluice_ring_memory_vmap(const struct sluice_ring_memory *memory)
{
	unsigned long i, count = 2 * memory->data_pages;
	struct page **pages = kvmalloc_array(count, sizeof(*pages), SLUICE_QUOTA_GFP);
	void *address;

	if (!pages)
		return NULL;
	for (i = 0; i < count; i++)
		pages[i] = memory->pages[CTRL_PAGES + i % memory->data_pages];
	address = vmap(pages, count, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	return address;
}

/* ---- mappings ---- */

/*
 * The pages from an offset of the file on, and how many of them follow each other in the file and
 * in the array; NULL: none is there.
 */
static struct page **pages_at(struct sluice_ring_memory *memory, pgoff_t offset,
			      unsigned long *count)
{
	unsigned long at = offset - DATA_PGOFF;

	*count = 1;
	if (offset == PRODUCER_PGOFF)
		return &memory->pages[SLUICE_RING_SIDE_PRODUCER];
	if (offset == CONSUMER_PGOFF)
		return &memory->pages[SLUICE_RING_SIDE_CONSUMER];
	if (offset < DATA_PGOFF || at >= memory->times * memory->data_pages)
		return NULL;
	at %= memory->data_pages;
	*count = memory->data_pages - at;
	return &memory->pages[CTRL_PAGES + at];
}

/*
 * Maps up to BLOCK_PAGES pages from @address on, because a fault for each page would slow down both
 * sides. Stops at the end of the block, of the page table and of the array, at a page that is
 * mapped, and at one with too many references. Their number, or -EBUSY: the first one is mapped;
 * -EFAULT: there is no page table: another thread has freed it, or there is no memory for one above
 * it; -ENOMEM; -EINVAL: no page is at @offset, or the first one has too many references.
 */
static long insert_block(struct vm_area_struct *vma, unsigned long address, pgoff_t offset)
{
	unsigned long in_table = (pmd_addr_end(address, vma->vm_end) - address) >> PAGE_SHIFT;
	unsigned long in_block = BLOCK_PAGES - (offset - DATA_PGOFF) % BLOCK_PAGES;
	unsigned long in_array, count, left;
	struct page **pages = pages_at(vma->vm_private_data, offset, &in_array);
	int err;

	if (!pages)
		return -EINVAL;
	in_array = min3(in_array, in_table, in_block);
	for (count = 0; count < in_array && page_count(pages[count]) <= REFS_MAX; count++)
		;
	if (!count)
		return -EINVAL;
	left = count;
	err = vm_insert_pages(vma, address, pages, &left);
	return left < count ? count - left : err;
}

static vm_fault_t ring_fault(struct vm_fault *vmf)
{
	/* A marker of userfaultfd(2), which some kernels permit, would be -EBUSY for ever. */
	if (vmf->flags & FAULT_FLAG_ORIG_PTE_VALID && !pte_none(vmf->orig_pte))
		return VM_FAULT_SIGBUS;
	switch (insert_block(vmf->vma, vmf->address & PAGE_MASK, vmf->pgoff)) {
	case -EINVAL:
		return VM_FAULT_SIGBUS;
	case -ENOMEM:
		return VM_FAULT_OOM;
	default:	/* if another thread has mapped it or freed its table, it is repeated */
		return VM_FAULT_NOPAGE;
	}
}

static const struct vm_operations_struct ring_vm_ops = {
	.fault = ring_fault,
};

/* The size in pages of the region that begins at an offset of the file, or 0. */
static unsigned long region_pages(unsigned long mapped_data, pgoff_t offset)
{
	switch (offset) {
	case PRODUCER_PGOFF:
	case CONSUMER_PGOFF:
		return 1;
	case DATA_PGOFF:
		return mapped_data;
	default:
		return 0;
	}
}

/* Whether @role writes to the region that begins at this offset. */
static bool may_write(pgoff_t offset, enum sluice_ring_role role)
{
	return (offset == CONSUMER_PGOFF) == (role == SLUICE_RING_SIDE_CONSUMER);
}

/* As sluice_ring_memory_check_mmap(). @mapped_data: pages of the region of the data. */
static int check_mmap(struct vm_area_struct *vma, unsigned long mapped_data,
		      enum sluice_ring_role role)
{
	unsigned long pages = region_pages(mapped_data, vma->vm_pgoff);

	/* Of a file that is not open for writing, a shared mapping has no VM_SHARED. */
	if (!(vma->vm_flags & VM_MAYSHARE) || !pages || vma_pages(vma) != pages)
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	return vma->vm_flags & VM_WRITE && !may_write(vma->vm_pgoff, role) ? -EACCES : 0;
}

int sluice_ring_memory_check_mmap(struct vm_area_struct *vma, u64 capacity,
				  enum sluice_ring_role role)
{
	return check_mmap(vma, 2 * (capacity >> PAGE_SHIFT), role);
}

int sluice_ring_memory_mmap(struct sluice_ring_memory *memory, struct vm_area_struct *vma,
			    enum sluice_ring_role role)
{
	int err = check_mmap(vma, memory->times * memory->data_pages, role);

	if (err)
		return err;
	if (!may_write(vma->vm_pgoff, role))
		vm_flags_clear(vma, VM_MAYWRITE);
	vm_flags_clear(vma, VM_MAYEXEC);
	/* VM_MIXEDMAP: vm_insert_pages() needs it, and a fault may not set it. */
	vm_flags_set(vma, VM_DONTEXPAND | VM_MIXEDMAP);
	vma->vm_ops = &ring_vm_ops;
	vma->vm_private_data = memory;
	return insert_block(vma, vma->vm_start, vma->vm_pgoff) < 0 ? -ENOMEM : 0;
}

#ifdef CONFIG_SLUICE_KUNIT_TEST
#include "ring_memory_test.h"
#endif
