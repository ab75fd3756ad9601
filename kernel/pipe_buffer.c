// SPDX-License-Identifier: GPL-2.0
#include <linux/bitops.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/log2.h>
#include <linux/poll.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "channel.h"
#include "pipe_buffer.h"
#include "quota.h"
#include "wait.h"

#define RESCHED_BYTES SZ_256K
#define PAGE_GFP (SLUICE_QUOTA_GFP | __GFP_HIGHMEM)

static struct sluice_slot *pipe_slot_at(const struct sluice_pipe *pipe, unsigned long position)
{
	return &pipe->slots[(position >> PAGE_SHIFT) & (pipe->slot_count - 1)];
}

static size_t left_in_page(unsigned long position)
{
	return PAGE_SIZE - offset_in_page(position);
}

static void publish_head(struct sluice_pipe *pipe, unsigned long head)
{
	smp_store_release(&pipe->head, head);	/* (pipe-A) */
	sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
	kill_fasync(&pipe->readers_async, SIGIO, POLL_IN);
}

/*
 * Whether the pipe has become writable by the move of its tail to @tail from @before; under
 * read_mutex. A single load of `head`, after the store of `tail` and a barrier: a writer whose
 * `head` it misses sees that `tail`.
 */
static bool has_become_writable(const struct sluice_pipe *pipe, unsigned long before,
				unsigned long tail)
{
	unsigned long full = sluice_pipe_capacity(pipe) - PIPE_BUF;
	unsigned long head = READ_ONCE(pipe->head);

	return head - before > full && head - tail <= full;
}

/*
 * Writers that sleep are woken at PIPE_BUF bytes of room, enough for any short write, as with
 * pipe(2), which frees whole pages. As there, a read of a pipe that is not full is no edge for
 * epoll; but while a writer sleeps, each read is one, because an exclusive poller may have taken
 * the wake-up for itself. Checking that loads `head`, a cache line of the writers, and is therefore
 * done only if there is a writer to wake.
 */
static void publish_tail(struct sluice_pipe *pipe, unsigned long tail)
{
	unsigned long before = pipe->tail;

	smp_store_release(&pipe->tail, tail);	/* (pipe-B) */
	if (!sluice_wait_wakes_one(&pipe->writable) && !READ_ONCE(pipe->writers_async))
		return;
	if (!has_become_writable(pipe, before, tail) &&
	    !(sluice_wait_has_sleepers(&pipe->writable) && sluice_pipe_is_writable(pipe)))
		return;
	sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
	kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
}

void sluice_pipe_wake_next_reader(struct sluice_pipe *pipe)
{
	sluice_wait_done(&pipe->readable);
	if (sluice_pipe_is_readable(pipe))
		sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
}

void sluice_pipe_wake_next_writer(struct sluice_pipe *pipe)
{
	sluice_wait_done(&pipe->writable);
	if (sluice_pipe_is_writable(pipe))
		sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
}

/* Loads `head` only when the cached one is used up. */
static size_t bytes_from(struct sluice_pipe *pipe, unsigned long tail)
{
	if (pipe->cached_head == tail)
		WRITE_ONCE(pipe->cached_head, smp_load_acquire(&pipe->head));	/* (pipe-A) */
	return pipe->cached_head - tail;
}

/* Loads `tail` only when the cached one leaves less room than @wanted. */
static size_t room_from(struct sluice_pipe *pipe, unsigned long head, size_t wanted)
{
	unsigned long capacity = sluice_pipe_capacity(pipe);

	if (capacity - (head - pipe->cached_tail) < wanted)
		WRITE_ONCE(pipe->cached_tail, smp_load_acquire(&pipe->tail));	/* (pipe-B) */
	return capacity - (head - pipe->cached_tail);
}

/* Returns the slot's lent page and clears the field, if there is no other reference to the page. */
static struct page *reclaim_lent_page(struct sluice_slot *slot)
{
	struct page *page = slot->lent;

	if (!page || page_count(page) != 1)
		return NULL;
	smp_acquire__after_ctrl_dep();	/* (pipe-D) */
	slot->lent = NULL;
	return page;
}

/* Returns the slot's own page. If there is none, uses the lent page if it is free, or a new one. */
static struct page *page_to_fill(struct sluice_pipe *pipe, unsigned long head)
{
	struct sluice_slot *slot = pipe_slot_at(pipe, head);

	if (likely(slot->page))
		return slot->page;
	slot->page = reclaim_lent_page(slot);
	if (slot->page)
		return slot->page;
	slot->page = sluice_channel_page_alloc(&pipe->channel, PAGE_GFP, NUMA_NO_NODE);
	WRITE_ONCE(pipe->pages_allocated, pipe->pages_allocated + !!slot->page);
	return slot->page;
}

static struct page *page_to_read(const struct sluice_slot *slot)
{
	return unlikely(slot->spliced) ? slot->spliced : slot->page;
}

/* Releases @bytes from @tail on. Puts a spliced page when `tail` leaves its slot. */
static void release_bytes(struct sluice_pipe *pipe, unsigned long tail, size_t bytes)
{
	struct sluice_slot *slot = pipe_slot_at(pipe, tail);

	if (unlikely(slot->spliced) && bytes == left_in_page(tail)) {
		put_page(slot->spliced);
		slot->spliced = NULL;
	}
	publish_tail(pipe, tail + bytes);
}

/*
 * Lets other tasks run during a long copy, which may take many calls, and has copied @last bytes up
 * to @pos. Not after each page: that would switch to the task that the page has woken, for one page
 * each time.
 */
static void resched_after(unsigned long pos, size_t last)
{
	if (pos % RESCHED_BYTES < last)
		cond_resched();
}

/* Releases room page by page, so that a writer can run concurrently. */
ssize_t sluice_pipe_drain(struct sluice_pipe *pipe, struct iov_iter *to)
{
	size_t left = min(iov_iter_count(to), sluice_pipe_capacity(pipe));
	ssize_t drained = 0;

	while (left) {
		unsigned long tail = pipe->tail;
		size_t chunk = min3(bytes_from(pipe, tail), left_in_page(tail), left);
		size_t copied;

		if (!chunk)
			break;
		copied = copy_page_to_iter(page_to_read(pipe_slot_at(pipe, tail)),
					   offset_in_page(tail), chunk, to);
		if (copied)
			release_bytes(pipe, tail, copied);
		drained += copied;
		left -= copied;
		if (copied < chunk)
			return drained ?: -EFAULT;
		resched_after(tail + copied, copied);
	}
	return drained;
}

/* Publishes bytes beyond @whole page by page, so that a reader can run concurrently. */
ssize_t sluice_pipe_fill(struct sluice_pipe *pipe, struct iov_iter *from, size_t whole)
{
	size_t left = min(iov_iter_count(from), sluice_pipe_capacity(pipe));
	unsigned long head = pipe->head;
	size_t filled = 0;

	if (room_from(pipe, head, whole) < whole)
		return 0;

	while (left) {
		size_t chunk = min3(room_from(pipe, head, 1), left_in_page(head), left);
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
		left -= copied;
		if (filled >= whole && copied)
			publish_head(pipe, head);
		if (copied < chunk)
			return filled >= whole ? filled : -EFAULT;
		resched_after(head, copied);
	}
	return filled;
}

/* How often the capacity is counted. */
static unsigned int times_counted(unsigned int moves)
{
	return 1 + hweight32(moves);
}

/* Under the pipe's lock, with slots that do not change: counts it as one that moves these pages. */
static int count_moves(struct sluice_pipe *pipe, unsigned long slot_count, unsigned int moves)
{
	u64 bytes = (u64)slot_count << PAGE_SHIFT;
	int err = sluice_quota_change_as_prepared(pipe->channel.charge,
						  bytes * times_counted(moves));

	if (!err)
		WRITE_ONCE(pipe->moves, moves);
	return err;
}

/* Under the mutex of one side. False: a limit does not permit to keep pages that are moved so. */
static bool may_move(struct sluice_pipe *pipe, unsigned int direction)
{
	int err = 0;

	if (likely(READ_ONCE(pipe->moves) & direction))
		return true;
	spin_lock(&pipe->lock);
	if (!(pipe->moves & direction))
		err = count_moves(pipe, pipe->slot_count, pipe->moves | direction);
	spin_unlock(&pipe->lock);
	return !err;
}

/*
 * Returns the whole page of a slot that the reader has as a whole, with a reference for the caller:
 * of a spliced page the slot's reference, of an own page a new one, and the page is lent. NULL if
 * the slot's lent page is still in use, so that a pipe never has more lent pages than slots, or if
 * a limit does not permit to lend pages.
 */
static struct page *move_page_out(struct sluice_pipe *pipe, struct sluice_slot *slot)
{
	struct page *page = slot->spliced, *reclaimed;

	if (page) {
		slot->spliced = NULL;
		return page;
	}
	if (!may_move(pipe, SLUICE_PIPE_MOVES_OUT))
		return NULL;
	reclaimed = reclaim_lent_page(slot);
	if (slot->lent)
		return NULL;
	page = slot->page;
	get_page(page);
	slot->lent = page;
	slot->page = reclaimed;
	return page;
}

/* Charged to the caller, because the copy is not a page of the pipe. */
static struct page *copy_page_part(struct page *from, size_t offset, size_t bytes)
{
	struct page *copy = alloc_page(GFP_HIGHUSER | SLUICE_QUOTA_GFP);

	if (copy)
		memcpy_page(copy, 0, from, offset, bytes);
	return copy;
}

ssize_t sluice_pipe_detach_page(struct sluice_pipe *pipe, size_t most, struct page **page)
{
	unsigned long tail = pipe->tail;
	struct sluice_slot *slot = pipe_slot_at(pipe, tail);
	size_t bytes;

	WRITE_ONCE(pipe->cached_head, smp_load_acquire(&pipe->head));	/* (pipe-A) */
	bytes = min3(pipe->cached_head - tail, left_in_page(tail), most);
	if (!bytes)
		return 0;
	*page = bytes == PAGE_SIZE ? move_page_out(pipe, slot) : NULL;
	if (*page)
		WRITE_ONCE(pipe->pages_spliced_out, pipe->pages_spliced_out + 1);
	else
		*page = copy_page_part(page_to_read(slot), offset_in_page(tail), bytes);
	if (!*page)
		return -ENOMEM;
	release_bytes(pipe, tail, bytes);
	return bytes;
}

bool sluice_pipe_give_page(struct sluice_pipe *pipe, struct page *page)
{
	unsigned long head = pipe->head;

	if (offset_in_page(head) || room_from(pipe, head, PAGE_SIZE) < PAGE_SIZE)
		return false;
	if (!may_move(pipe, SLUICE_PIPE_MOVES_IN) || !page_to_fill(pipe, head))
		return false;
	pipe_slot_at(pipe, head)->spliced = page;
	WRITE_ONCE(pipe->pages_spliced_in, pipe->pages_spliced_in + 1);
	publish_head(pipe, head + PAGE_SIZE);
	return true;
}

static struct sluice_slot *slots_alloc(const struct sluice_pipe *pipe, unsigned long count)
{
	return sluice_channel_kvcalloc(&pipe->channel, count, sizeof(struct sluice_slot),
				       SLUICE_QUOTA_GFP);
}

static void page_put(struct page *page)
{
	if (page)
		put_page(page);
}

static void slots_clear(struct sluice_slot *slots, unsigned long count)
{
	unsigned long i;

	for (i = 0; i < count; i++) {
		page_put(slots[i].page);
		page_put(slots[i].spliced);
		page_put(slots[i].lent);
		slots[i] = (struct sluice_slot) {};
		cond_resched();
	}
}

static void slots_free(struct sluice_slot *slots, unsigned long count)
{
	slots_clear(slots, count);
	kvfree(slots);
}

/* The number of pages from `tail` to `head`. */
static unsigned long live_pages(const struct sluice_pipe *pipe)
{
	unsigned long bytes = pipe->head - pipe->tail;

	return bytes ? (offset_in_page(pipe->tail) + bytes + PAGE_SIZE - 1) >> PAGE_SHIFT : 0;
}

static bool is_still_lent(const struct sluice_slot *slot)
{
	return slot->lent && page_count(slot->lent) != 1;
}

/* The number of lent pages that are still in use. */
static unsigned long lent_pages(const struct sluice_pipe *pipe)
{
	unsigned long i, pages = 0;

	for (i = 0; i < pipe->slot_count; i++) {
		pages += is_still_lent(&pipe->slots[i]);
		cond_resched();
	}
	return pages;
}

/*
 * In a full ring with `tail` inside a slot, that slot has the bytes of two laps. Moves the @bytes
 * of the newer lap, at the beginning of the own page, to the slot @to; the older ones remain in
 * @from. If the older ones are in a spliced page, the own page is moved.
 */
static void split_slot(struct sluice_slot *from, struct sluice_slot *to, size_t bytes,
		       struct page **spare)
{
	to->page = *spare;
	*spare = NULL;
	if (from->spliced)
		swap(to->page, from->page);
	else
		memcpy_page(to->page, 0, from->page, 0, bytes);
}

/* Moves pages that hold bytes to their slots of the new slot count. */
static void move_live_pages(struct sluice_pipe *pipe, struct sluice_slot *new,
			    unsigned long count, struct page **spare)
{
	unsigned long pages = live_pages(pipe), first = pipe->tail >> PAGE_SHIFT, i;

	if (pages > pipe->slot_count)
		split_slot(pipe_slot_at(pipe, pipe->head), &new[(first + --pages) & (count - 1)],
			   offset_in_page(pipe->head), spare);
	for (i = 0; i < pages; i++) {
		struct sluice_slot *from = &pipe->slots[(first + i) & (pipe->slot_count - 1)];
		struct sluice_slot *to = &new[(first + i) & (count - 1)];

		swap(to->page, from->page);
		swap(to->spliced, from->spliced);
		cond_resched();
	}
}

/*
 * A lent page holds no bytes of the pipe, so any slot is suitable. The page counts may have changed
 * since lent_pages(), hence the limit. The reference to a page without a new slot is put: the page
 * is then no longer counted.
 */
static void move_lent_pages(struct sluice_pipe *pipe, struct sluice_slot *new, unsigned long count)
{
	unsigned long i, to = 0;

	for (i = 0; i < pipe->slot_count && to < count; i++) {
		if (is_still_lent(&pipe->slots[i])) {
			swap(new[to].lent, pipe->slots[i].lent);
			to++;
		}
		cond_resched();
	}
}

/* Afterwards the caller frees @slots, of length @count, and @spare. */
static int swap_slots(struct sluice_pipe *pipe, struct sluice_slot **slots,
		      unsigned long *count, struct page **spare)
{
	int err;

	if (*count == pipe->slot_count)
		return 0;
	if (live_pages(pipe) > *count || lent_pages(pipe) > *count)
		return -EBUSY;
	spin_lock(&pipe->lock);
	err = sluice_quota_change(pipe->channel.charge,
				  ((u64)*count << PAGE_SHIFT) * times_counted(pipe->moves));
	spin_unlock(&pipe->lock);
	if (err)
		return err;
	move_live_pages(pipe, *slots, *count, spare);
	move_lent_pages(pipe, *slots, *count);
	/* The distance to an older value could exceed a smaller capacity. */
	WRITE_ONCE(pipe->cached_tail, pipe->tail);
	swap(pipe->slots, *slots);
	*count = xchg(&pipe->slot_count, *count);
	return 0;
}

/* Waits for neither mutex while it holds the other: the calls of one side never delay the other. */
static int lock_both(struct sluice_pipe *pipe)
{
	struct mutex *first = &pipe->read_mutex, *second = &pipe->write_mutex;

	for (;;) {
		/* An uncontended mutex_lock_interruptible() ignores signals. */
		int err = sluice_wait_check_signal() ?: sluice_wait_for_mutex(first);

		if (err || mutex_trylock(second))
			return err;
		if (sluice_pipe_unlock(pipe, first))
			return -EPIPE;
		swap(first, second);
	}
}

static int swap_slots_locked(struct sluice_pipe *pipe, struct sluice_slot **slots,
			     unsigned long *count, struct page **spare, bool may_grow)
{
	int err = lock_both(pipe);

	if (err)
		return err;
	if (*count > pipe->slot_count && !may_grow)
		err = -EPERM;
	else
		err = swap_slots(pipe, slots, count, spare);
	mutex_unlock(&pipe->write_mutex);
	return sluice_pipe_unlock(pipe, &pipe->read_mutex) ? -EPIPE : err;
}

long sluice_pipe_resize(struct sluice_pipe *pipe, unsigned long slot_count, bool may_grow)
{
	unsigned long count = slot_count;
	struct sluice_slot *slots;
	struct page *spare;
	int err = -ENOMEM;

	if (READ_ONCE(pipe->destroyed))
		return -EPIPE;
	/* Setting the current capacity must not allocate; swap_slots() checks again, locked. */
	if (slot_count == READ_ONCE(pipe->slot_count))
		return slot_count << PAGE_SHIFT;
	slots = slots_alloc(pipe, slot_count);
	spare = sluice_channel_page_alloc(&pipe->channel, PAGE_GFP, NUMA_NO_NODE);
	if (slots && spare)
		err = swap_slots_locked(pipe, &slots, &count, &spare, may_grow);
	if (!err && sluice_pipe_is_writable(pipe)) {
		sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
		kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
	}
	page_put(spare);
	if (slots)
		slots_free(slots, count);
	return err ?: (long)(slot_count << PAGE_SHIFT);
}

/* Under both mutexes. The slots remain, because a write that has begun may yet use them. */
static void pipe_buffer_discard(struct sluice_pipe *pipe)
{
	slots_clear(pipe->slots, pipe->slot_count);
	WRITE_ONCE(pipe->cached_head, pipe->head);
	WRITE_ONCE(pipe->cached_tail, pipe->head);
	WRITE_ONCE(pipe->tail, pipe->head);
}

bool sluice_pipe_discard(struct sluice_pipe *pipe)
{
	for (;;) {
		/* (pipe-F): after the caller, or the previous attempt, has unlocked a mutex. */
		smp_mb();
		if (mutex_is_locked(&pipe->write_mutex) || !mutex_trylock(&pipe->read_mutex))
			return false;
		if (mutex_trylock(&pipe->write_mutex))
			break;
		mutex_unlock(&pipe->read_mutex);
	}
	pipe_buffer_discard(pipe);
	mutex_unlock(&pipe->write_mutex);
	mutex_unlock(&pipe->read_mutex);
	return true;
}

/* Whether the slot of this index has bytes. Under both mutexes. */
static bool is_live(const struct sluice_pipe *pipe, unsigned long index)
{
	unsigned long from_tail = index - (pipe->tail >> PAGE_SHIFT);

	return (from_tail & (pipe->slot_count - 1)) < live_pages(pipe);
}

/* Under both mutexes. Fewer bytes are counted afterwards, which does not fail. */
static void trim(struct sluice_pipe *pipe)
{
	unsigned int moves = 0;
	unsigned long i;

	for (i = 0; i < pipe->slot_count; i++) {
		struct sluice_slot *slot = &pipe->slots[i];

		if (!is_live(pipe, i)) {
			page_put(slot->page);
			slot->page = NULL;
		}
		page_put(reclaim_lent_page(slot));
		moves |= (slot->spliced ? SLUICE_PIPE_MOVES_IN : 0) |
			 (slot->lent ? SLUICE_PIPE_MOVES_OUT : 0);
		cond_resched();
	}
	spin_lock(&pipe->lock);
	count_moves(pipe, pipe->slot_count, moves);
	spin_unlock(&pipe->lock);
}

void sluice_pipe_trim(struct sluice_pipe *pipe)
{
	if (!mutex_trylock(&pipe->read_mutex))
		return;
	if (mutex_trylock(&pipe->write_mutex)) {
		trim(pipe);
		mutex_unlock(&pipe->write_mutex);
	}
	sluice_pipe_unlock(pipe, &pipe->read_mutex);
}

int sluice_pipe_buffer_init(struct sluice_pipe *pipe, unsigned long slot_count)
{
	pipe->slots = slots_alloc(pipe, slot_count);
	if (!pipe->slots)
		return -ENOMEM;
	pipe->slot_count = slot_count;
	sluice_wait_queue_init(&pipe->readable);
	sluice_wait_queue_init(&pipe->writable);
	pipe->head = SLUICE_PIPE_FIRST;
	pipe->cached_head = SLUICE_PIPE_FIRST;
	pipe->tail = SLUICE_PIPE_FIRST;
	pipe->cached_tail = SLUICE_PIPE_FIRST;
	pipe->pages_allocated = 0;
	pipe->pages_spliced_in = 0;
	pipe->pages_spliced_out = 0;
	return 0;
}

void sluice_pipe_buffer_free(struct sluice_pipe *pipe)
{
	slots_free(pipe->slots, pipe->slot_count);
}
