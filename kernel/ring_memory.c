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
#define PAGES_PER_CHECK 256	/* pages between two checks for a signal and for other tasks */

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
		put_page(memory->pages[end]);
		if (end % PAGES_PER_CHECK == 0)
			cond_resched();
	}
	kvfree(memory);
}

struct sluice_ring_memory *sluice_ring_memory_create(const struct sluice_channel *channel,
						     u64 capacity, int node)
{
	unsigned long data_pages = capacity >> PAGE_SHIFT, i;
	struct sluice_ring_memory *memory;

	memory = sluice_channel_kvcalloc(channel, 1,
					 struct_size(memory, pages, CTRL_PAGES + data_pages));
	if (!memory)
		return ERR_PTR(-ENOMEM);
	memory->data_pages = data_pages;
	for (i = 0; i < pages_of(memory); i++) {
		bool killed = i % PAGES_PER_CHECK == 0 && fatal_signal_pending(current);

		/* The kernel accesses control pages and records by their kernel addresses. */
		memory->pages[i] = killed ? NULL :
			sluice_channel_page_alloc(channel, __GFP_ZERO, node);
		if (!memory->pages[i]) {
			free_pages_before(memory, i);
			return ERR_PTR(killed ? -EINTR : -ENOMEM);
		}
		if (i % PAGES_PER_CHECK == 0)
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
	struct page **pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
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

/* The page at an offset of the file, or NULL. */
static struct page *page_at(const struct sluice_ring_memory *memory, pgoff_t offset)
{
	if (offset == PRODUCER_PGOFF)
		return memory->pages[SLUICE_RING_SIDE_PRODUCER];
	if (offset == CONSUMER_PGOFF)
		return memory->pages[SLUICE_RING_SIDE_CONSUMER];
	if (offset < DATA_PGOFF || offset - DATA_PGOFF >= 2 * memory->data_pages)
		return NULL;
	return memory->pages[CTRL_PAGES + (offset - DATA_PGOFF) % memory->data_pages];
}

/* A user who maps a page often enough could make its count overflow, hence try_get_page(). */
static vm_fault_t ring_fault(struct vm_fault *vmf)
{
	struct page *page = page_at(vmf->vma->vm_private_data, vmf->pgoff);

	if (!page || !try_get_page(page))
		return VM_FAULT_SIGBUS;
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct ring_vm_ops = {
	.fault = ring_fault,
};

/* The size in pages of the region that begins at an offset of the file, or 0. */
static unsigned long region_pages(u64 capacity, pgoff_t offset)
{
	switch (offset) {
	case PRODUCER_PGOFF:
	case CONSUMER_PGOFF:
		return 1;
	case DATA_PGOFF:
		return 2 * (capacity >> PAGE_SHIFT);
	default:
		return 0;
	}
}

/* Whether @role writes to the region that begins at this offset. */
static bool may_write(pgoff_t offset, enum sluice_ring_role role)
{
	return (offset == CONSUMER_PGOFF) == (role == SLUICE_RING_SIDE_CONSUMER);
}

int sluice_ring_memory_check_mmap(struct vm_area_struct *vma, u64 capacity,
				  enum sluice_ring_role role)
{
	unsigned long pages = region_pages(capacity, vma->vm_pgoff);

	/* Of a file that is not open for writing, a shared mapping has no VM_SHARED. */
	if (!(vma->vm_flags & VM_MAYSHARE) || !pages || vma_pages(vma) != pages)
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	return vma->vm_flags & VM_WRITE && !may_write(vma->vm_pgoff, role) ? -EACCES : 0;
}

int sluice_ring_memory_mmap(struct sluice_ring_memory *memory, struct vm_area_struct *vma,
			    enum sluice_ring_role role)
{
	u64 capacity = (u64)memory->data_pages << PAGE_SHIFT;
	int err = sluice_ring_memory_check_mmap(vma, capacity, role);

	if (err)
		return err;
	if (!may_write(vma->vm_pgoff, role))
		vm_flags_clear(vma, VM_MAYWRITE);
	vm_flags_clear(vma, VM_MAYEXEC);
	vm_flags_set(vma, VM_DONTEXPAND);
	vma->vm_ops = &ring_vm_ops;
	vma->vm_private_data = memory;
	return 0;
}
