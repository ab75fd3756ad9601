/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The bytes of a pipe: two byte counts that only grow, `head` written and `tail` read, over a power
 * of two of page slots:
 *
 *      slots   0          1          2          3          ...   n-1
 *         +----------+----------+----------+----------+---   ---+----------+
 *         |          |      ####|##########|###       |         |          |   # not yet read
 *         +----------+----------+----------+----------+---   ---+----------+
 *                           ^ tail            ^ head
 *
 * Byte p lives in slot (p / PAGE_SIZE) mod n at offset p mod PAGE_SIZE. Short writes are therefore
 * always packed, and a page, once allocated by the first write that reaches its slot, is used again
 * and again: the steady state allocates nothing.
 *
 * Who writes what:
 * - `head` and what lies from it to `tail` + capacity belong to the holder of write_mutex;
 * - `tail` and what lies from it to `head` belong to the holder of read_mutex.
 *
 * So a reader and a writer never wait for each other's copy, nor for each other's page faults.
 *
 * A slot has up to three pages:
 * - `page` is the pipe's own, charged to the creator. Only here are bytes written. A slot that
 *   holds bytes always has one.
 * - `spliced` is a page that splice took in whole. It may belong to a file's cache and is only
 *   read: while it is set, the reader reads it instead of `page`. Its own charge is elsewhere; the
 *   unused `page` behind it is what it costs the creator.
 * - `lent` is an own page that splice handed out. It stays charged to the creator for as long as
 *   anybody holds it, and nothing tells us when that ends; so we keep a reference, and a page count
 *   of 1 says that the page is free to become `page` again. A slot has one lent page at most, and a
 *   pipe therefore at most twice its capacity in own pages; beyond that splice copies.
 *
 * Both sides are in one slot when less than a page of the ring is free: the reader at the end of
 * the slot, in the older lap, and the writer at its beginning, in the newer. Hence the rules for
 * the fields:
 * - `page` is changed only by a side that has the whole slot: by the writer if there is none (a
 *   slot without one holds no bytes), by the reader when it hands the page out. In a shared slot
 *   both only use it: the reader for the bytes from `tail` on, the writer for those up to `head`.
 * - `spliced` is set by the writer in a slot that it has as a whole. From the `head` that publishes
 *   it (A) to the `tail` that leaves the slot (B) it is the reader's, which clears it before that
 *   `tail`. In a shared slot the writer does not look at it and fills `page`.
 * - `lent` is changed only together with `page`, by the same side.
 * - A resize has both mutexes and so all fields. In a shared slot the bytes of the older lap are in
 *   `spliced`, if that is set, and those of the newer in `page` in any case.
 *
 * Barriers, in pairs:
 * - (A) The writer stores `head` with release after it filled the bytes; the reader loads it with
 *   acquire before it takes them.
 * - (B) The reader stores `tail` with release after it took the bytes; the writer loads it with
 *   acquire before it fills them again.
 * - (C) The last writer to leave stores `writers` = 0 with release after its last `head`; a reader
 *   loads it with acquire before it looks once more for bytes and, finding none, reports the end of
 *   the file.
 * - (D) Whoever else holds a lent page is done with its bytes before put_page(), which decrements
 *   the page count fully ordered; we load a count of 1 with acquire before the page is written to.
 *   Nobody reads it after that: who has no reference cannot make one to read through.
 * - Sleeping and waking: see wait.h. Conditions read `head` and `tail` without a lock; a stale
 *   value only errs towards looking again, since whoever made it stale looks at the queue
 *   afterwards.
 */
#ifndef SLUICE_PIPE_BUFFER_H
#define SLUICE_PIPE_BUFFER_H

#include <linux/cache.h>
#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/uio.h>

#include "channel.h"
#include "wait.h"

struct fasync_struct;

struct sluice_slot {
	struct page *page;	/* own, to write to; NULL where no write has been yet */
	struct page *spliced;	/* taken in, read-only: to be read instead of `page` */
	struct page *lent;	/* own, handed out, perhaps still in use */
};

/*
 * What the two sides write is on lines apart, each lock apart from the count that the other reads.
 */
struct sluice_pipe {
	struct sluice_channel channel;
	struct sluice_slot *slots;	/* under either mutex; both to change it */
	unsigned long slot_count;	/* a power of two; both mutexes to change it */

	spinlock_t lock;		/* protects the four counts; they are read without it */
	unsigned int readers, writers;	/* endpoints now */
	unsigned int reader_opens, writer_opens; /* ever; an open waits for one to move */
	struct sluice_wait_queue open_wait;	/* opens that wait for their other side */
	struct fasync_struct *readers_async, *writers_async;

	struct mutex read_mutex ____cacheline_aligned_in_smp;
	unsigned long cached_head;	/* written under read_mutex: `head` as last loaded */
	u64 pages_spliced_out;		/* under read_mutex */

	struct mutex write_mutex ____cacheline_aligned_in_smp;
	unsigned long cached_tail;	/* written under write_mutex: `tail` as last loaded */
	u64 pages_allocated;		/* under write_mutex */
	u64 pages_spliced_in;		/* under write_mutex */

	unsigned long head ____cacheline_aligned_in_smp;
	struct sluice_wait_queue readable;

	unsigned long tail ____cacheline_aligned_in_smp;
	struct sluice_wait_queue writable;
};

static inline unsigned long sluice_pipe_capacity(const struct sluice_pipe *pipe)
{
	return READ_ONCE(pipe->slot_count) << PAGE_SHIFT;
}

/*
 * Without a lock. `tail` first: a `head` that moved meanwhile makes the answer too large rather
 * than negative, and what cannot be is cut off.
 */
static inline size_t sluice_pipe_bytes(const struct sluice_pipe *pipe)
{
	unsigned long tail = smp_load_acquire(&pipe->tail);	/* before `head` */
	unsigned long head = READ_ONCE(pipe->head);

	return min(head - tail, sluice_pipe_capacity(pipe));
}

/*
 * A `tail` that moved meanwhile would make the answer too small, and a call that must not wait
 * would be turned away for nothing: hence once more. The capacity may change between two looks at
 * it, hence one.
 */
static inline size_t sluice_pipe_room(const struct sluice_pipe *pipe)
{
	unsigned long capacity = sluice_pipe_capacity(pipe);
	unsigned long tail, held;

	do {
		tail = smp_load_acquire(&pipe->tail);	/* before `head` */
		held = smp_load_acquire(&pipe->head) - tail;
	} while (READ_ONCE(pipe->tail) != tail);
	return held < capacity ? capacity - held : 0;
}

static inline bool sluice_pipe_is_readable(const struct sluice_pipe *pipe)
{
	unsigned long tail = smp_load_acquire(&pipe->tail);	/* before `head` */

	return READ_ONCE(pipe->head) != tail;
}

/*
 * Before a call takes its side's mutex: from what its side has last seen of the other, and only
 * when that is used up from the other's line. As long as both sides keep up with each other,
 * neither touches what the other writes. Without a lock; a yes may be outdated, a no is not.
 */
static inline bool sluice_pipe_maybe_readable(const struct sluice_pipe *pipe)
{
	return READ_ONCE(pipe->cached_head) != READ_ONCE(pipe->tail) ||
	       sluice_pipe_is_readable(pipe);
}

static inline bool sluice_pipe_maybe_writable(const struct sluice_pipe *pipe, size_t wanted)
{
	unsigned long held = READ_ONCE(pipe->head) - READ_ONCE(pipe->cached_tail);

	return held + wanted <= sluice_pipe_capacity(pipe) || sluice_pipe_room(pipe) >= wanted;
}

/* The promise of poll(2): a write of up to PIPE_BUF bytes would not wait. */
static inline bool sluice_pipe_is_writable(const struct sluice_pipe *pipe)
{
	return sluice_pipe_room(pipe) >= PIPE_BUF;
}

/* Ends a wait whose bytes or room were used; wakes the next waiter if some are left (wait.h). */
void sluice_pipe_wake_next_reader(struct sluice_pipe *pipe);
void sluice_pipe_wake_next_writer(struct sluice_pipe *pipe);

int sluice_pipe_buffer_init(struct sluice_pipe *pipe, unsigned long slot_count);
void sluice_pipe_buffer_free(struct sluice_pipe *pipe);

/*
 * Takes what is there, up to what @to holds; under read_mutex. Bytes, 0 when there are none,
 * -EFAULT when not even the first could be delivered.
 */
ssize_t sluice_pipe_drain(struct sluice_pipe *pipe, struct iov_iter *to);

/*
 * Writes what fits, at least @whole bytes or none; under write_mutex. Bytes, 0 when @whole does not
 * fit, or an error when none were published.
 */
ssize_t sluice_pipe_fill(struct sluice_pipe *pipe, struct iov_iter *from, size_t whole);

/*
 * Takes up to @most bytes, at the start of a page to which the caller gets a reference and must not
 * write; under read_mutex. A whole page moves, unless its slot has lent one that is still in use;
 * all else is copied. Bytes, 0 when there are none, -ENOMEM.
 */
ssize_t sluice_pipe_detach_page(struct sluice_pipe *pipe, size_t most, struct page **page);

/*
 * Takes over the caller's reference to @page, all of whose bytes are written by that; under
 * write_mutex. False, and the reference remains the caller's, when `head` is not at the start of a
 * slot, when there is no room, or no memory for the page that backs it.
 */
bool sluice_pipe_attach_page(struct sluice_pipe *pipe, struct page *page);

/*
 * Changes the capacity; takes both mutexes. Bytes; -EBUSY when fewer slots are asked for than hold
 * bytes, or than pages are lent; or another error.
 */
long sluice_pipe_resize(struct sluice_pipe *pipe, unsigned long slot_count);

#endif
