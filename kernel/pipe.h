/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kind pipe: a byte stream with the semantics of fifo(7). Every cgroup that opens
 * /dev/sluice/pipe has one without a name; /dev/sluice/ctl opens named ones.
 *
 * Life: that of a channel (channel.h). An open that waits for its other side counts as an endpoint.
 * The last put frees the pipe with the bytes in it, as with a FIFO; a persistent pipe keeps its
 * bytes without endpoints. A destroyed pipe counts no endpoint: its readers and writers are 0,
 * which ends all waits and fails all writes, and its bytes are discarded (pipe_buffer.h).
 *
 * An endpoint contains the state of its file: the adaptive spin window, and whether poll reports a
 * hang-up. pipe_buffer.h contains the bytes, pipe_splice.c the transfer of whole pages to and from
 * pipe(2).
 */
#ifndef SLUICE_PIPE_H
#define SLUICE_PIPE_H

#include <linux/bits.h>
#include <linux/cache.h>
#include <linux/container_of.h>
#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

#include "channel.h"
#include "endpoint.h"
#include "start.h"
#include "wait.h"

struct fasync_struct;
struct sluice_slot;

/* Whole pages that splice moved in, and out, count as the capacity of the pipe each. */
#define SLUICE_PIPE_MOVES_IN	BIT(0)
#define SLUICE_PIPE_MOVES_OUT	BIT(1)

/*
 * The first position. A position wraps around: 2^64 bytes at 100 GB/s take 5 years. Page slots are
 * a power of two, so the next slot is the right one also then.
 */
#define SLUICE_PIPE_FIRST ((unsigned long)SLUICE_START(8 * PAGE_SIZE))

/* Opens are counted modulo 2^32 and compared for equality: a change since the last look. */
#define SLUICE_PIPE_FIRST_OPEN ((unsigned int)SLUICE_START(3))

/*
 * While no side waits, the fields that each side writes are on separate cache lines, and each mutex
 * is on another line than the count that the other side reads.
 */
struct sluice_pipe {
	struct sluice_channel channel;
	struct sluice_slot *slots;	/* read under either mutex, changed under both */
	unsigned long slot_count;	/* a power of two; changed under both mutexes */
	bool destroyed;			/* set under `lock`, for ever */

	spinlock_t lock;		/* protects stores to `destroyed` and the next fields */
	unsigned int moves;		/* SLUICE_PIPE_MOVES_*: for what it is counted */
	unsigned int readers, writers;	/* current endpoints */
	unsigned int reader_opens, writer_opens; /* opens ever; a blocked open waits for a change */
	struct sluice_wait_queue open_wait;	/* blocked opens */
	struct fasync_struct *readers_async, *writers_async;

	struct mutex read_mutex ____cacheline_aligned_in_smp;
	unsigned long cached_head;	/* `head` as last loaded; written under read_mutex */
	u64 pages_spliced_out;		/* under read_mutex */

	struct mutex write_mutex ____cacheline_aligned_in_smp;
	unsigned long cached_tail;	/* `tail` as last loaded; written under write_mutex */
	u64 pages_allocated;		/* under write_mutex */
	u64 pages_spliced_in;		/* under write_mutex */

	unsigned long head ____cacheline_aligned_in_smp;
	struct sluice_wait_queue readable;

	unsigned long tail ____cacheline_aligned_in_smp;
	struct sluice_wait_queue writable;
};

struct sluice_pipe_endpoint {
	struct sluice_endpoint endpoint;
	struct sluice_pipe *pipe;
	struct sluice_spin spin;
	/*
	 * The value of writer_opens at a nonblocking open without a writer: poll reports no hang-up
	 * until it changes. After any other open, a past value of writer_opens.
	 */
	unsigned int writer_opens_before;
};

extern const struct sluice_kind sluice_pipe_kind;

/**
 * sluice_pipe_endpoint_of() - returns the pipe endpoint that contains an endpoint
 * @endpoint: the endpoint, of a pipe
 *
 * Return: the pipe endpoint.
 */
static inline struct sluice_pipe_endpoint *sluice_pipe_endpoint_of(struct sluice_endpoint *endpoint)
{
	return container_of(endpoint, struct sluice_pipe_endpoint, endpoint);
}

/**
 * sluice_pipe_endpoint() - returns the pipe endpoint of a file
 * @file: the open file of a pipe
 *
 * Return: the pipe endpoint.
 */
static inline struct sluice_pipe_endpoint *sluice_pipe_endpoint(struct file *file)
{
	return sluice_pipe_endpoint_of(file->private_data);
}

/**
 * sluice_pipe_epipe() - fails a write to a pipe that has no readers or is destroyed
 * @signal: send SIGPIPE to the caller
 *
 * Return: -EPIPE.
 */
int sluice_pipe_epipe(bool signal);

/**
 * sluice_pipe_may_fill() - tests whether a write may use the room that there is now
 * @pipe: the pipe
 * @whole: the fewest bytes that the write accepts
 * @nonblocking: the write does not wait for room
 *
 * While other writers sleep for room, a write that can block uses the last PIPE_BUF bytes only to
 * complete a page (pipe.c).
 *
 * Context: without a lock.
 * Return: true if the write may use the room; may be outdated.
 */
bool sluice_pipe_may_fill(struct sluice_pipe *pipe, size_t whole, bool nonblocking);

/**
 * sluice_pipe_splice_read() - moves bytes from a pipe to a pipe(2)
 * @in: the open file of the pipe
 * @position: not used
 * @other_pipe: the pipe(2)
 * @length: maximum number of bytes
 * @flags: SPLICE_F_*
 *
 * Context: under the mutex of @other_pipe, which is released during waits.
 * Return: the number of bytes; 0: end of file; -EAGAIN: the call is nonblocking and there are no
 * bytes, or no space in @other_pipe; -EPIPE: the pipe is destroyed, or, with SIGPIPE, @other_pipe
 * has no readers; -ENOMEM; -ERESTARTSYS: a signal is pending.
 */
ssize_t sluice_pipe_splice_read(struct file *in, loff_t *position,
				struct pipe_inode_info *other_pipe, size_t length,
				unsigned int flags);

/**
 * sluice_pipe_splice_write() - moves bytes from a pipe(2) to a pipe
 * @other_pipe: the pipe(2)
 * @out: the open file of the pipe
 * @position: not used
 * @length: maximum number of bytes
 * @flags: SPLICE_F_*
 *
 * Context: takes the mutex of @other_pipe.
 * Return: the number of bytes; 0: @other_pipe has neither bytes nor writers; -EAGAIN: the call is
 * nonblocking and there is no room, or there are no bytes in @other_pipe; -EPIPE, with SIGPIPE: the
 * pipe has no readers or is destroyed; -ENOMEM; -ERESTARTSYS: a signal is pending; or an error of a
 * buffer of @other_pipe.
 */
ssize_t sluice_pipe_splice_write(struct pipe_inode_info *other_pipe, struct file *out,
				 loff_t *position, size_t length, unsigned int flags);

#endif
