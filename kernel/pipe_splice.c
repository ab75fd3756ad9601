// SPDX-License-Identifier: GPL-2.0
/*
 * Moves bytes between this pipe and pipe(2), for splice(2) and sendfile(2).
 *
 * Whole pages are moved by reference. Two locks are involved, the mutex of one side of this pipe
 * and that of other_pipe, and users can delay the holders of both. A call therefore never waits for
 * one while it holds the other: it takes that of other_pipe first and only tries that of this pipe;
 * if that fails, it releases other_pipe before it waits.
 */
#include <linux/bvec.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/pipe_fs_i.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/splice.h>
#include <linux/uio.h>

#include "compat.h"
#include "pipe.h"
#include "pipe_buffer.h"
#include "wait.h"

static bool pipe_splice_is_nonblocking(const struct file *file, unsigned int flags)
{
	return (flags & SPLICE_F_NONBLOCK) || (file->f_flags & O_NONBLOCK);
}

/* Waits until @mutex is released. */
static int wait_mutex(struct sluice_pipe *pipe, struct mutex *mutex)
{
	int err = sluice_wait_check_signal() ?: sluice_wait_for_mutex(mutex);

	if (!err)
		sluice_pipe_unlock(pipe, mutex);
	return err;
}

/*
 * Without the mutex of other_pipe. If `tail` moved between the loads, the pipe would look full, and
 * its readers only wake waiters of a pipe that was full: hence the loop. The kernel stores both
 * plainly; a wrong result is corrected by the wake-up that follows the store.
 */
static bool has_space(const struct pipe_inode_info *other_pipe)
{
	unsigned int head, tail;

	do {
		tail = smp_load_acquire(&other_pipe->tail);	/* before `head` */
		head = smp_load_acquire(&other_pipe->head);
	} while (READ_ONCE(other_pipe->tail) != tail);
	return !pipe_full(head, tail, READ_ONCE(other_pipe->max_usage));
}

/*
 * Moves the available bytes, page by page; both mutexes are held.
 *
 * A buffer in other_pipe holds no reference to this module, so its operations are the kernel's.
 * They must not permit stealing the page: own pages are charged as kernel memory and remain in use
 * here, and pages that were moved in may not be stealable.
 */
static ssize_t splice_out(struct sluice_pipe *pipe, struct pipe_inode_info *other_pipe,
			  size_t length)
{
	size_t moved = 0;

	while (moved < length && has_space(other_pipe)) {
		struct pipe_buffer buffer = { .ops = &nosteal_pipe_buf_ops };
		ssize_t bytes = sluice_pipe_detach_page(pipe, length - moved, &buffer.page);
		ssize_t err;

		if (bytes <= 0)
			return moved ?: bytes;
		buffer.len = bytes;
		err = add_to_pipe(other_pipe, &buffer);
		if (err < 0)
			return moved ?: err;
		moved += bytes;
	}
	return moved;
}

/*
 * Waits, without a mutex, until splice_out() can make progress; a nonblocking call waits only
 * for the mutex. The wait for space in other_pipe is not exclusive, because the kernel's waiters
 * would not wake the next one. After a wait for bytes the next reader is woken at once (wait.h),
 * because the caller may have to wait for other_pipe before it reads any.
 */
static int wait_to_splice_out(struct sluice_pipe_endpoint *end, struct pipe_inode_info *other_pipe,
			      bool nonblocking)
{
	struct sluice_pipe *pipe = end->pipe;
	int err;

	if (nonblocking)
		return wait_mutex(pipe, &pipe->read_mutex);
	if (!has_space(other_pipe))
		return wait_event_interruptible(other_pipe->wr_wait, has_space(other_pipe) ||
						!READ_ONCE(other_pipe->readers));
	if (sluice_pipe_is_readable(pipe))
		return wait_mutex(pipe, &pipe->read_mutex);
	err = sluice_wait_until(pipe->readable,
				sluice_pipe_is_readable(pipe) || !READ_ONCE(pipe->writers),
				&end->spin);
	sluice_pipe_wake_next_reader(pipe);
	return err;
}

static ssize_t splice_out_wait(struct sluice_pipe_endpoint *end, struct pipe_inode_info *other_pipe,
			       size_t length, bool nonblocking)
{
	struct sluice_pipe *pipe = end->pipe;

	for (;;) {
		ssize_t ret;

		if (!other_pipe->readers)
			return sluice_pipe_epipe(true);
		if (READ_ONCE(pipe->destroyed))
			return -EPIPE;
		if (mutex_trylock(&pipe->read_mutex)) {
			ret = splice_out(pipe, other_pipe, length);
			sluice_pipe_unlock(pipe, &pipe->read_mutex);
			if (ret)
				return ret;
		}
		if (!smp_load_acquire(&pipe->writers) &&	/* (pipe-C) */
		    !sluice_pipe_is_readable(pipe))
			return READ_ONCE(pipe->destroyed) ? -EPIPE : 0;
		/* O_NONBLOCK applies to bytes and space, not to the mutex. */
		if (nonblocking && !(sluice_pipe_is_readable(pipe) && has_space(other_pipe)))
			return -EAGAIN;

		pipe_unlock(other_pipe);
		ret = wait_to_splice_out(end, other_pipe, nonblocking);
		pipe_lock(other_pipe);
		if (ret)
			return ret;
	}
}

/*
 * Called and returns with the mutex of other_pipe held, by splice(2), and by sendfile(2) to a
 * pipe(2). sendfile(2) to any other file requires a seekable input and does not get here.
 */
ssize_t sluice_pipe_splice_read(struct file *in, loff_t *position,
				struct pipe_inode_info *other_pipe, size_t length,
				unsigned int flags)
{
	return splice_out_wait(sluice_pipe_endpoint(in), other_pipe, length,
			       pipe_splice_is_nonblocking(in, flags));
}

static ssize_t pipe_splice_copy_buffer(struct sluice_pipe *pipe, const struct pipe_buffer *buffer,
				       size_t length)
{
	struct bio_vec vector;
	struct iov_iter from;

	bvec_set_page(&vector, buffer->page, length, buffer->offset);
	iov_iter_bvec(&from, ITER_SOURCE, &vector, 1, length);
	return sluice_pipe_fill(pipe, &from, 1);
}

/*
 * Moves a whole page in by reference. Only if a reference to the buffer is one to its page, because
 * it is put as such; some operations count something else. pipe_buf_get() fails if the page has too
 * many references. All else is copied.
 */
static bool splice_page_in(struct sluice_pipe *pipe, struct pipe_inode_info *other_pipe,
			   struct pipe_buffer *buffer, size_t length)
{
	if (length != PAGE_SIZE || buffer->offset || buffer->ops->get != generic_pipe_buf_get)
		return false;
	if (!pipe_buf_get(other_pipe, buffer))
		return false;
	if (sluice_pipe_give_page(pipe, buffer->page))
		return true;
	put_page(buffer->page);
	return false;
}

struct transfer {
	struct sluice_pipe *pipe;
	bool nonblocking;
	bool stalled;		/* it ended because this pipe had no room, or its mutex was taken */
};

/* Moves one buffer of other_pipe, whose mutex is held. Number of bytes, or -EAGAIN and stalled. */
static int splice_in(struct pipe_inode_info *other_pipe, struct pipe_buffer *buffer,
		     struct splice_desc *sd)
{
	struct transfer *transfer = sd->u.data;
	struct sluice_pipe *pipe = transfer->pipe;
	size_t length = min_t(size_t, buffer->len, sd->total_len);
	ssize_t ret = 0;

	if (!READ_ONCE(pipe->readers))
		return sluice_pipe_epipe(true);
	if (sluice_pipe_may_fill(pipe, 1, transfer->nonblocking) &&
	    mutex_trylock(&pipe->write_mutex)) {
		if (splice_page_in(pipe, other_pipe, buffer, length))
			ret = length;
		else
			ret = pipe_splice_copy_buffer(pipe, buffer, length);
		sluice_pipe_unlock(pipe, &pipe->write_mutex);
	}
	if (!ret)
		transfer->stalled = true;
	return ret ?: -EAGAIN;
}

/* Waits, without a mutex, until splice_in() can make progress, as wait_to_splice_out(). */
static int wait_to_splice_in(struct sluice_pipe_endpoint *end, bool nonblocking)
{
	struct sluice_pipe *pipe = end->pipe;
	int err;

	if (nonblocking || sluice_pipe_may_fill(pipe, 1, false))
		return wait_mutex(pipe, &pipe->write_mutex);
	err = sluice_wait_until(pipe->writable,
				sluice_pipe_is_writable(pipe) || !READ_ONCE(pipe->readers),
				&end->spin);
	sluice_pipe_wake_next_writer(pipe);
	return err;
}

/* Moves bytes until the other pipe is empty, and waits for room if necessary. */
ssize_t sluice_pipe_splice_write(struct pipe_inode_info *other_pipe, struct file *out,
				 loff_t *position, size_t length, unsigned int flags)
{
	struct sluice_pipe_endpoint *end = sluice_pipe_endpoint(out);
	struct sluice_pipe *pipe = end->pipe;
	struct transfer transfer = {
		.pipe = pipe,
		.nonblocking = pipe_splice_is_nonblocking(out, flags),
	};
	struct splice_desc sd = {
		.total_len = length,
		.flags = flags,
		.u.data = &transfer,
	};
	ssize_t ret, moved = 0;

	do {
		transfer.stalled = false;
		pipe_lock(other_pipe);
		ret = __splice_from_pipe(other_pipe, &sd, splice_in);
		pipe_unlock(other_pipe);
		if (ret > 0) {
			moved += ret;
			sd.flags |= SPLICE_F_NONBLOCK;	/* do not wait for more */
		}
		if (!transfer.stalled)
			break;
		/* Waiting for the mutex is not waiting for room. */
		if (transfer.nonblocking && !sluice_pipe_room(pipe))
			break;
		ret = wait_to_splice_in(end, transfer.nonblocking);
	} while (!ret);
	return moved ?: ret;
}
