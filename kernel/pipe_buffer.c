// SPDX-License-Identifier: GPL-2.0
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/log2.h>
#include <linux/memcontrol.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "pipe_buffer.h"
#include "wait.h"

static struct sluice_slot *slot_at(const struct sluice_pipe *pipe, unsigned long position)
{
	return &pipe->slots[(position >> PAGE_SHIFT) & (pipe->slot_count - 1)];
}

static size_t left_in_page(unsigned long position)
{
	return PAGE_SIZE - offset_in_page(position);
}

static void publish_head(struct sluice_pipe *pipe, unsigned long head)
{
	smp_store_release(&pipe->head, head);	/* (A) */
	sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
	kill_fasync(&pipe->readers_async, SIGIO, POLL_IN);
}

/*
 * Who sleeps for room is told when there is PIPE_BUF of it, which serves any short write, as with
 * pipe(2), which frees whole pages. How much there is only `head` tells, a line of the writers',
 * which is left alone while nobody is to be woken.
 */
static void publish_tail(struct sluice_pipe *pipe, unsigned long tail)
{
	smp_store_release(&pipe->tail, tail);	/* (B) */
	if (!sluice_wait_wakes_one(&pipe->writable) && !READ_ONCE(pipe->writers_async))
		return;
	if (!sluice_pipe_is_writable(pipe))
		return;
	sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
	kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
}

/* `head` is loaded only when what was seen of it is used up. */
static size_t bytes_from(struct sluice_pipe *pipe, unsigned long tail)
{
	if (pipe->cached_head == tail)
		WRITE_ONCE(pipe->cached_head, smp_load_acquire(&pipe->head));	/* (A) */
	return pipe->cached_head - tail;
}

/* `tail` is loaded only when, by what was seen of it, there is less room than @wanted. */
static size_t room_from(struct sluice_pipe *pipe, unsigned long head, size_t wanted)
{
	unsigned long capacity = sluice_pipe_capacity(pipe);

	if (capacity - (head - pipe->cached_tail) < wanted)
		WRITE_ONCE(pipe->cached_tail, smp_load_acquire(&pipe->tail));	/* (B) */
	return capacity - (head - pipe->cached_tail);
}

/*
 * Charged to the creator of the pipe: a stranger's write costs the stranger nothing. When the
 * creator has no more, the stranger is refused, and nobody of the creator's killed.
 */
static struct page *page_alloc(struct sluice_pipe *pipe)
{
	struct mem_cgroup *old = set_active_memcg(pipe->memcg);
	struct page *page = alloc_page(GFP_HIGHUSER | __GFP_ACCOUNT | __GFP_RETRY_MAYFAIL);

	set_active_memcg(old);
	return page;
}

static struct page *page_to_fill(struct sluice_pipe *pipe, unsigned long head)
{
	struct sluice_slot *slot = slot_at(pipe, head);

	if (likely(slot->page))
		return slot->page;
	slot->page = page_alloc(pipe);
	pipe->pages_allocated += !!slot->page;
	return slot->page;
}

/* The reader is done with @bytes from @tail on, of a spliced page with all of it. */
static void release_bytes(struct sluice_pipe *pipe, unsigned long tail, size_t bytes)
{
	struct sluice_slot *slot = slot_at(pipe, tail);

	if (unlikely(slot->spliced)) {
		put_page(slot->page);
		slot->page = NULL;
		slot->spliced = false;
	}
	publish_tail(pipe, tail + bytes);
}

/*
 * Before a part of a spliced page is read. Once `tail` is inside a slot, what lies before it is
 * room, and the next that comes around writes into the slot's page.
 */
static int unshare_page(struct sluice_pipe *pipe, struct sluice_slot *slot)
{
	struct page *own = page_alloc(pipe);

	if (!own)
		return -ENOMEM;
	memcpy_page(own, 0, slot->page, 0, PAGE_SIZE);
	put_page(slot->page);
	slot->page = own;
	slot->spliced = false;
	return 0;
}

/* The room is given back page by page, so that a writer works while we go on. */
ssize_t sluice_pipe_drain(struct sluice_pipe *pipe, struct iov_iter *to)
{
	ssize_t drained = 0;

	while (iov_iter_count(to)) {
		unsigned long tail = pipe->tail;
		size_t chunk = min3(bytes_from(pipe, tail), left_in_page(tail),
				    iov_iter_count(to));
		struct sluice_slot *slot = slot_at(pipe, tail);
		size_t copied;

		if (!chunk)
			break;
		if (unlikely(slot->spliced) && chunk < PAGE_SIZE && unshare_page(pipe, slot))
			return drained ?: -ENOMEM;
		copied = copy_page_to_iter(slot->page, offset_in_page(tail), chunk, to);
		if (unlikely(slot->spliced) && copied < chunk) {
			iov_iter_revert(to, copied);
			copied = 0;
		}
		if (copied)
			release_bytes(pipe, tail, copied);
		drained += copied;
		if (copied < chunk)
			return drained ?: -EFAULT;
	}
	return drained;
}

/* More than @whole is published page by page, so that a reader works while we go on. */
ssize_t sluice_pipe_fill(struct sluice_pipe *pipe, struct iov_iter *from, size_t whole)
{
	unsigned long head = pipe->head;
	size_t filled = 0;

	if (room_from(pipe, head, whole) < whole)
		return 0;

	while (iov_iter_count(from)) {
		size_t chunk = min3(room_from(pipe, head, 1), left_in_page(head),
				    iov_iter_count(from));
		struct page *page;
		size_t copied;

		if (!chunk)
			break;
		page = page_to_fill(pipe, head);
		if (!page)
			return filled >= whole ? filled : -ENOMEM;
		copied = copy_page_from_iter(page, offset_in_page(head), chunk, from);
		head += copied;
		filled += copied;
		if (filled >= whole && copied)
			publish_head(pipe, head);
		if (copied < chunk)
			return filled >= whole ? filled : -EFAULT;
	}
	return filled;
}

ssize_t sluice_pipe_detach_page(struct sluice_pipe *pipe, size_t most, struct page **page)
{
	unsigned long tail = pipe->tail;
	struct sluice_slot *slot = slot_at(pipe, tail);
	size_t bytes;

	WRITE_ONCE(pipe->cached_head, smp_load_acquire(&pipe->head));	/* (A) */
	bytes = min3(pipe->cached_head - tail, left_in_page(tail), most);
	if (!bytes)
		return 0;
	if (bytes == PAGE_SIZE) {
		*page = slot->page;
		slot->page = NULL;
		slot->spliced = false;
		pipe->pages_spliced_out++;
	} else {
		if (slot->spliced && unshare_page(pipe, slot))
			return -ENOMEM;
		*page = alloc_page(GFP_KERNEL_ACCOUNT);
		if (!*page)
			return -ENOMEM;
		memcpy_page(*page, 0, slot->page, offset_in_page(tail), bytes);
	}
	release_bytes(pipe, tail, bytes);
	return bytes;
}

bool sluice_pipe_attach_page(struct sluice_pipe *pipe, struct page *page)
{
	unsigned long head = pipe->head;
	struct sluice_slot *slot = slot_at(pipe, head);

	if (offset_in_page(head) || room_from(pipe, head, PAGE_SIZE) < PAGE_SIZE)
		return false;
	if (slot->page)
		put_page(slot->page);
	get_page(page);
	slot->page = page;
	slot->spliced = true;
	pipe->pages_spliced_in++;
	publish_head(pipe, head + PAGE_SIZE);
	return true;
}

static struct sluice_slot *slots_alloc(unsigned long count)
{
	return kvcalloc(count, sizeof(struct sluice_slot), SLUICE_QUOTA_GFP);
}

static void slots_free(struct sluice_slot *slots, unsigned long count)
{
	unsigned long i;

	for (i = 0; i < count; i++)
		if (slots[i].page)
			put_page(slots[i].page);
	kvfree(slots);
}

/* How many pages the bytes from `tail` to `head` touch. */
static unsigned long live_pages(const struct sluice_pipe *pipe)
{
	unsigned long bytes = pipe->head - pipe->tail;

	return bytes ? (offset_in_page(pipe->tail) + bytes + PAGE_SIZE - 1) >> PAGE_SHIFT : 0;
}

/*
 * Pages that hold bytes go to where the new slot count looks for them; the others stay behind. When
 * the ring is full and `tail` inside a page, `head` is in the same slot, before it: those bytes
 * move to the spare page, which is then no longer the caller's.
 */
static void move_live_pages(struct sluice_pipe *pipe, struct sluice_slot *new,
			    unsigned long count, struct page **spare)
{
	unsigned long pages = live_pages(pipe), first = pipe->tail >> PAGE_SHIFT, i;

	if (pages > pipe->slot_count) {
		memcpy_page(*spare, 0, slot_at(pipe, pipe->head)->page, 0,
			    offset_in_page(pipe->head));
		new[(first + --pages) & (count - 1)].page = *spare;
		*spare = NULL;
	}
	for (i = 0; i < pages; i++) {
		struct sluice_slot *slot = &pipe->slots[(first + i) & (pipe->slot_count - 1)];

		new[(first + i) & (count - 1)] = *slot;
		slot->page = NULL;
		slot->spliced = false;
	}
}

static int swap_slots(struct sluice_pipe *pipe, struct sluice_slot **slots,
			  unsigned long *count, struct page **spare)
{
	int err;

	if (live_pages(pipe) > *count)
		return -EBUSY;
	err = sluice_quota_change(&pipe->channel.charge, (u64)*count << PAGE_SHIFT);
	if (err)
		return err;
	move_live_pages(pipe, *slots, *count, spare);
	/* An older one could exceed a smaller capacity. */
	WRITE_ONCE(pipe->cached_tail, pipe->tail);
	swap(pipe->slots, *slots);
	*count = xchg(&pipe->slot_count, *count);
	return 0;
}

static int swap_slots_locked(struct sluice_pipe *pipe, struct sluice_slot **slots,
			   unsigned long *count, struct page **spare)
{
	int err = -ERESTARTSYS;

	if (mutex_lock_interruptible(&pipe->read_mutex))
		return err;
	if (!mutex_lock_interruptible(&pipe->write_mutex)) {
		err = swap_slots(pipe, slots, count, spare);
		mutex_unlock(&pipe->write_mutex);
	}
	mutex_unlock(&pipe->read_mutex);
	return err;
}

long sluice_pipe_resize(struct sluice_pipe *pipe, unsigned long slot_count)
{
	struct sluice_slot *slots = slots_alloc(slot_count);
	struct page *spare = page_alloc(pipe);
	unsigned long count = slot_count;
	int err = -ENOMEM;

	if (slots && spare)
		err = swap_slots_locked(pipe, &slots, &count, &spare);
	if (!err && sluice_pipe_is_writable(pipe)) {
		sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
		kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
	}
	if (spare)
		put_page(spare);
	if (slots)
		slots_free(slots, count);
	return err ?: (long)(slot_count << PAGE_SHIFT);
}

int sluice_pipe_buffer_init(struct sluice_pipe *pipe, unsigned long slot_count)
{
	pipe->slots = slots_alloc(slot_count);
	if (!pipe->slots)
		return -ENOMEM;
	pipe->slot_count = slot_count;
	sluice_wait_queue_init(&pipe->readable);
	sluice_wait_queue_init(&pipe->writable);
	pipe->memcg = get_mem_cgroup_from_mm(current->mm);
	pipe->head = 0;
	pipe->cached_head = 0;
	pipe->tail = 0;
	pipe->cached_tail = 0;
	pipe->pages_allocated = 0;
	pipe->pages_spliced_in = 0;
	pipe->pages_spliced_out = 0;
	return 0;
}

void sluice_pipe_buffer_free(struct sluice_pipe *pipe)
{
	slots_free(pipe->slots, pipe->slot_count);
	mem_cgroup_put(pipe->memcg);
}
