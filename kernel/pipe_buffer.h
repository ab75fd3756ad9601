/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The bytes of a pipe: two free-running byte counts, `head` (written) and `tail` (read), over
 * a power of two of page slots:
 *
 *      slots   0          1          2          3          ...   n-1
 *         +----------+----------+----------+----------+---   ---+----------+
 *         |          |      ####|##########|###       |         |          |   # not yet read
 *         +----------+----------+----------+----------+---   ---+----------+
 *                           ^ tail            ^ head
 *
 * Byte p is in slot (p / PAGE_SIZE) mod n at offset p mod PAGE_SIZE. Short writes are therefore
 * always packed.
 *
 * Life: the buffer exists as long as its pipe. The first write that reaches a slot allocates its
 * page, which is reused until the capacity changes or splice moves it out: the steady state of read
 * and write allocates nothing. A pipe without endpoints, which a persistent one may be for ever,
 * keeps only the pages that hold bytes, those behind them, and those that are lent and in use.
 *
 * Limits: the capacity of the pipe is counted once from its creation on, for `page` of each slot;
 * once more from the first page that is moved in, for `spliced`; and once more from the first page
 * that is moved out, for `lent`. If a limit does not permit that, splice copies.
 *
 * Ownership:
 * - `head` and the bytes from it to `tail` + capacity belong to the holder of write_mutex;
 * - `tail` and the bytes from it to `head` belong to the holder of read_mutex.
 *
 * A reader and a writer therefore never wait for each other's copy or page faults.
 *
 * A slot has up to three pages:
 * - `page` is owned by the pipe and charged to the creator. Writes go only to this page. A slot
 *   that holds bytes always has one.
 * - `spliced` is a whole page that splice moved in. It may belong to a page cache and is read-only.
 *   While it is set, the reader reads it instead of `page`. Its charge is elsewhere; it costs the
 *   creator the unused `page` behind it.
 * - `lent` is a page owned by the pipe that splice moved out. It remains charged to the creator
 *   while anything references it. No event reports the last put, so the slot keeps a reference: a
 *   page count of 1 means that the page can become `page` again. A slot has at most one lent page,
 *   and a pipe therefore at most twice its capacity in own pages; beyond that splice copies.
 *
 * Both sides are in one slot when less than a page of the ring is free: the reader at the end of
 * the slot, in the older lap, and the writer at its beginning, in the newer lap. Such a slot is
 * shared. Hence these rules for the fields:
 * - `page` is changed only by a side that has the whole slot: by the writer if it is NULL (such a
 *   slot holds no bytes), by the reader when it moves the page out. In a shared slot both only use
 *   it: the reader the bytes from `tail` on, the writer those up to `head`.
 * - `spliced` is set by the writer in a slot that it has as a whole. From the `head` that publishes
 *   it (pipe-A) to the `tail` that leaves the slot (pipe-B) it belongs to the reader, which clears
 *   it before that `tail`. In a shared slot the writer does not read it and fills `page`.
 * - `lent` is changed only together with `page`, by the same side.
 * - A resize holds both mutexes and so owns all fields. In a shared slot the bytes of the older lap
 *   are in `spliced`, if it is set, and those of the newer lap always in `page`.
 *
 * Barrier pairs:
 * - (pipe-A) The writer stores `head` with release after it has filled the bytes; the reader loads
 *   it with acquire before it reads them.
 * - (pipe-B) The reader stores `tail` with release after it has read the bytes; the writer loads it
 *   with acquire before it overwrites them.
 * - (pipe-C) The last writer to leave stores `writers` = 0 with release after its last `head`, the
 *   destruction after `destroyed`; a reader or poller loads it with acquire before it checks for
 *   bytes once more and, without bytes, reports end of file or a hang-up, or loads `destroyed`.
 * - (pipe-D) Any other holder of a lent page finishes with its bytes before put_page(), which
 *   decrements the page count fully ordered; the slot's side loads a count of 1 with acquire before
 *   the page is written to. Only holders of a reference read the bytes. Temporary references that
 *   the kernel takes by page frame number only delay the reuse.
 * - (pipe-E), (pipe-F): see below.
 * - Sleep and wake-up: see wait.h. Conditions read `head` and `tail` without a lock. A stale value
 *   only causes another check, because the side that changed it checks the queue afterwards.
 *
 * Destruction. Bytes and pages are discarded under both mutexes. The holder of a mutex may be in a
 * page fault of any duration, so nobody waits for a mutex to discard: sluice_pipe_discard() only
 * tries both. Whoever unlocks one of them then loads `destroyed` and, if it is set, calls
 * sluice_pipe_discard() too. Each failed attempt therefore relies on a holder that makes a later
 * one:
 * - (pipe-E) The destruction stores `destroyed` and tries the mutexes; a holder unlocks its mutex
 *   and loads `destroyed`. At least one must see the other's store. The holder has no barrier
 *   between its two steps: the destruction has it for both, by a grace period of RCU, in which
 *   every CPU executes a full barrier. After a failed attempt it waits for a grace period and tries
 *   again. A mutex that is then still taken is unlocked after that barrier, and `destroyed` is
 *   loaded later still. A mutex that was unlocked before it, by a holder that loaded `destroyed`
 *   too early, is free in the second attempt.
 * - (pipe-F) An attempt that locked the first mutex and not the second unlocks the first, has a
 *   full barrier and looks at the second again; the holder of the second unlocks it, has a full
 *   barrier and tries the first. At least one finds the other's mutex free.
 * - A mutex that is locked after the discarding is locked after the `destroyed` that caused it, so
 *   its holder discards what it wrote. No call locks one for bytes or room any more once it has
 *   seen `destroyed` or the counts of 0, so the attempts end.
 */
#ifndef SLUICE_PIPE_BUFFER_H
#define SLUICE_PIPE_BUFFER_H

#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/uio.h>

#include "pipe.h"

struct page;

struct sluice_slot {
	struct page *page;	/* own, writable; NULL before a write to the slot */
	struct page *spliced;	/* moved in, read-only: read instead of `page` */
	struct page *lent;	/* own, moved out, possibly still in use */
};

/**
 * sluice_pipe_capacity() - returns the capacity of a pipe
 * @pipe: the pipe
 *
 * Return: the capacity in bytes.
 */
static inline unsigned long sluice_pipe_capacity(const struct sluice_pipe *pipe)
{
	return READ_ONCE(pipe->slot_count) << PAGE_SHIFT;
}

/**
 * sluice_pipe_bytes() - returns how many bytes a pipe holds
 * @pipe: the pipe
 *
 * `tail` is loaded first, so the difference is never negative. If `tail` moves between the loads,
 * the result is too large; it is limited to the capacity. The bytes of a destroyed pipe that its
 * last call has yet to discard do not count.
 *
 * Context: without a lock.
 * Return: the number of bytes.
 */
static inline size_t sluice_pipe_bytes(const struct sluice_pipe *pipe)
{
	unsigned long tail = smp_load_acquire(&pipe->tail);	/* (pipe-B), before `head` */
	unsigned long head = READ_ONCE(pipe->head);

	return READ_ONCE(pipe->destroyed) ? 0 : min(head - tail, sluice_pipe_capacity(pipe));
}

/**
 * sluice_pipe_room() - returns how many bytes fit into a pipe
 * @pipe: the pipe
 *
 * If `tail` moved between the loads, the result would be too small, and a nonblocking call would
 * fail for no reason: hence the loop. The capacity may change between two loads: hence one load.
 *
 * Context: without a lock.
 * Return: the number of bytes.
 */
static inline size_t sluice_pipe_room(const struct sluice_pipe *pipe)
{
	unsigned long capacity = sluice_pipe_capacity(pipe);
	unsigned long tail, held;

	do {
		tail = smp_load_acquire(&pipe->tail);	/* (pipe-B), before `head` */
		held = smp_load_acquire(&pipe->head) - tail;	/* before `tail` again */
	} while (READ_ONCE(pipe->tail) != tail);
	return held < capacity ? capacity - held : 0;
}

/**
 * sluice_pipe_is_readable() - tests whether a pipe holds bytes
 * @pipe: the pipe
 *
 * Context: without a lock.
 * Return: true if it does.
 */
static inline bool sluice_pipe_is_readable(const struct sluice_pipe *pipe)
{
	unsigned long tail = smp_load_acquire(&pipe->tail);	/* (pipe-B), before `head` */

	return READ_ONCE(pipe->head) != tail;
}

/**
 * sluice_pipe_maybe_readable() - tests whether a read needs to take read_mutex
 * @pipe: the pipe
 *
 * Checks the cached head first, and loads the cache line of the writers only when the cached head
 * is used up. While neither side has to wait, neither accesses a line that the other writes.
 *
 * Context: without a lock.
 * Return: true if the pipe holds bytes. True may be outdated, false is not.
 */
static inline bool sluice_pipe_maybe_readable(const struct sluice_pipe *pipe)
{
	return READ_ONCE(pipe->cached_head) != READ_ONCE(pipe->tail) ||
	       sluice_pipe_is_readable(pipe);
}

/**
 * sluice_pipe_maybe_writable() - tests whether a write needs to take write_mutex
 * @pipe: the pipe
 * @wanted: bytes of room that the write needs
 *
 * Checks the cached tail first, and loads the cache line of the readers only when the cached tail
 * leaves less room. While neither side has to wait, neither accesses a line that the other writes.
 *
 * Context: without a lock.
 * Return: true if there is room for @wanted bytes. True may be outdated, false is not.
 */
static inline bool sluice_pipe_maybe_writable(const struct sluice_pipe *pipe, size_t wanted)
{
	unsigned long held = READ_ONCE(pipe->head) - READ_ONCE(pipe->cached_tail);

	return held + wanted <= sluice_pipe_capacity(pipe) || sluice_pipe_room(pipe) >= wanted;
}

/**
 * sluice_pipe_is_writable() - tests whether a write of up to PIPE_BUF bytes would not block
 * @pipe: the pipe
 *
 * This is the condition of POLLOUT.
 *
 * Context: without a lock.
 * Return: true if it would not.
 */
static inline bool sluice_pipe_is_writable(const struct sluice_pipe *pipe)
{
	return sluice_pipe_room(pipe) >= PIPE_BUF;
}

/**
 * sluice_pipe_wake_next_reader() - ends a wait for bytes and wakes the next reader
 * @pipe: the pipe
 *
 * Wakes the next reader if bytes are left (wait.h). A read calls it after its operation, splice
 * before it.
 */
void sluice_pipe_wake_next_reader(struct sluice_pipe *pipe);

/**
 * sluice_pipe_wake_next_writer() - ends a wait for room and wakes the next writer
 * @pipe: the pipe
 *
 * Wakes the next writer if room for PIPE_BUF bytes is left (wait.h). A write calls it after its
 * operation, splice before it.
 */
void sluice_pipe_wake_next_writer(struct sluice_pipe *pipe);

/**
 * sluice_pipe_buffer_init() - initialises the buffer of a new pipe, without pages
 * @pipe: the pipe, whose channel is initialised
 * @slot_count: the number of slots, a power of two
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_pipe_buffer_init(struct sluice_pipe *pipe, unsigned long slot_count);

/**
 * sluice_pipe_buffer_free() - frees the slots and puts their pages
 * @pipe: the pipe, which nobody uses
 */
void sluice_pipe_buffer_free(struct sluice_pipe *pipe);

/**
 * sluice_pipe_discard() - tries to discard the bytes of a destroyed pipe and to free its pages
 * @pipe: the pipe
 *
 * Pages that splice moved out remain valid.
 *
 * Context: the caller holds neither mutex; the function uses mutex_trylock() on both. May sleep.
 * Return: true if they are discarded; false: another call holds a mutex, and will try when it has
 * unlocked it (pipe-E).
 */
bool sluice_pipe_discard(struct sluice_pipe *pipe);

/**
 * sluice_pipe_trim() - frees the pages of a pipe that hold no bytes
 * @pipe: the pipe, whose last endpoint has left
 *
 * Does nothing if another call holds a mutex. Lent pages that are in use remain. Afterwards a quota
 * counts lent and spliced-in pages only if such pages are left.
 */
void sluice_pipe_trim(struct sluice_pipe *pipe);

/**
 * sluice_pipe_unlock() - unlocks the mutex of one side
 * @pipe: the pipe
 * @mutex: its read_mutex or write_mutex
 *
 * Return: true if the pipe is destroyed; the bytes that the caller moved under the mutex are then
 * discarded.
 */
static inline bool sluice_pipe_unlock(struct sluice_pipe *pipe, struct mutex *mutex)
{
	mutex_unlock(mutex);
	if (likely(!READ_ONCE(pipe->destroyed)))	/* (pipe-E) */
		return false;
	sluice_pipe_discard(pipe);
	return true;
}

/**
 * sluice_pipe_drain() - moves the available bytes from a pipe to a caller
 * @pipe: the pipe
 * @to: where the bytes go
 *
 * Moves at most as many bytes as the capacity: with a fast writer an unbounded call would hold the
 * mutex forever.
 *
 * Context: under read_mutex. May sleep.
 * Return: the number of bytes; 0: there are none; -EFAULT: not even the first could be copied.
 */
ssize_t sluice_pipe_drain(struct sluice_pipe *pipe, struct iov_iter *to);

/**
 * sluice_pipe_fill() - moves the bytes of a caller that fit into a pipe
 * @pipe: the pipe
 * @from: the bytes
 * @whole: the fewest bytes to move
 *
 * Moves at least @whole bytes or none, and at most as many as the capacity.
 *
 * Context: under write_mutex. May sleep.
 * Return: the number of bytes; 0: there is no room for @whole; if no bytes were published, -ENOMEM
 * or -EFAULT.
 */
ssize_t sluice_pipe_fill(struct sluice_pipe *pipe, struct iov_iter *from, size_t whole);

/**
 * sluice_pipe_detach_page() - takes bytes of at most one page from a pipe
 * @pipe: the pipe
 * @most: maximum number of bytes
 * @page: out: a page with the bytes at its start
 *
 * The caller gets a reference to the page and must not write to it. A whole page is moved. An own
 * page is copied instead if its slot has a lent page that is still in use, or if a limit does not
 * permit to lend pages. All else is copied, too. A copy is charged to the caller.
 *
 * Context: under read_mutex. May sleep.
 * Return: the number of bytes; 0: there are none; -ENOMEM.
 */
ssize_t sluice_pipe_detach_page(struct sluice_pipe *pipe, size_t most, struct page **page);

/**
 * sluice_pipe_give_page() - moves a page with all of its bytes into a pipe
 * @pipe: the pipe
 * @page: the page, with a reference of the caller
 *
 * Context: under write_mutex. May sleep.
 * Return: true if the page was moved, with the reference; false: the caller keeps the reference,
 * because `head` is not at the start of a slot, there is no room, a limit does not permit it, or
 * there is no memory for the page behind it.
 */
bool sluice_pipe_give_page(struct sluice_pipe *pipe, struct page *page);

/**
 * sluice_pipe_resize() - changes the capacity of a pipe
 * @pipe: the pipe
 * @slot_count: the new number of slots, a power of two
 * @may_grow: the caller may enlarge the pipe
 *
 * Context: takes both mutexes.
 * Return: the new capacity in bytes; -EPERM: it would grow, and @may_grow is false; -EPIPE: the
 * pipe is destroyed; -EBUSY: more pages than @slot_count hold bytes, or are lent and in use;
 * -ENOSPC, -EDQUOT: a limit of a scope, or of a user; -ENOMEM; -ERESTARTSYS: a signal is pending.
 */
long sluice_pipe_resize(struct sluice_pipe *pipe, unsigned long slot_count, bool may_grow);

#endif
