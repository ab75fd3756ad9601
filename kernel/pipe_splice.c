// SPDX-License-Identifier: GPL-2.0
/*
 * Moving bytes between our pipe and pipe(2), which splice(2) and sendfile(2) do.
 *
 * Whole pages move by reference. Two locks are in play, the mutex of one side of ours and the mutex
 * of theirs, and users of both may be made to wait. So neither is waited for while the other is
 * held: theirs first, ours only tried, and when that fails theirs is let go before waiting.
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
#include "wait.h"

/*
 * Nobody may steal a page that we hand out: our own are charged as the kernel's memory, and those
 * that only passed through may not have been for stealing.
 */
static const struct pipe_buf_operations page_operations = {
	.release	= generic_pipe_buf_release,
	.get		= generic_pipe_buf_get,
};

static bool refuses_to_wait(const struct file *file, unsigned int flags)
{
	return (flags & SPLICE_F_NONBLOCK) || (file->f_flags & O_NONBLOCK);
}

/* Waits for the holder of @mutex to leave it. */
static int wait_for_turn(struct mutex *mutex)
{
	if (signal_pending(current) || mutex_lock_interruptible(mutex))
		return -ERESTARTSYS;
	mutex_unlock(mutex);
	return 0;
}

static bool has_space(const struct pipe_inode_info *theirs)
{
	return !pipe_full(READ_ONCE(theirs->head), READ_ONCE(theirs->tail),
			  READ_ONCE(theirs->max_usage));
}

/* Hands over what is there, page by page; both mutexes are held. */
static ssize_t hand_over(struct sluice_pipe *pipe, struct pipe_inode_info *theirs, size_t length)
{
	size_t moved = 0;

	while (moved < length && has_space(theirs)) {
		struct pipe_buffer buffer = { .ops = &page_operations };
		ssize_t bytes = sluice_pipe_take_page(pipe, length - moved, &buffer.page);
		ssize_t err;

		if (bytes <= 0)
			return moved ?: bytes;
		buffer.len = bytes;
		err = add_to_pipe(theirs, &buffer);
		if (err < 0)
			return moved ?: err;
		moved += bytes;
	}
	return moved;
}

/* Who has waited for bytes and leaves some, or does not come to take any, tells the next. */
static void pass_on_bytes(struct sluice_pipe *pipe, bool waited)
{
	if (waited && sluice_pipe_is_readable(pipe))
		sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
}

/*
 * Waits, with no mutex held, for whatever kept hand_over() from moving anything. For space in
 * theirs not exclusively, since the kernel's own waiters do not pass a wake-up on for us.
 */
static int wait_to_hand_over(struct sluice_endpoint *end, struct pipe_inode_info *theirs,
			     bool *waited)
{
	struct sluice_pipe *pipe = end->pipe;

	if (!has_space(theirs)) {
		pass_on_bytes(pipe, *waited);
		*waited = false;
		return wait_event_interruptible(theirs->wr_wait, has_space(theirs) ||
						!READ_ONCE(theirs->readers));
	}
	if (sluice_pipe_is_readable(pipe))
		return wait_for_turn(&pipe->read_mutex);
	*waited = true;
	return sluice_wait_until(pipe->readable,
				 sluice_pipe_is_readable(pipe) || !READ_ONCE(pipe->writers),
				 &end->spin);
}

static ssize_t splice_out(struct sluice_endpoint *end, struct pipe_inode_info *theirs,
			  size_t length, bool never_waits, bool *waited)
{
	struct sluice_pipe *pipe = end->pipe;

	for (;;) {
		ssize_t ret;

		if (!theirs->readers)
			return sluice_pipe_broken(true);
		if (mutex_trylock(&pipe->read_mutex)) {
			ret = hand_over(pipe, theirs, length);
			mutex_unlock(&pipe->read_mutex);
			if (ret)
				return ret;
		}
		if (!smp_load_acquire(&pipe->writers) &&	/* (C) */
		    !sluice_pipe_is_readable(pipe))
			return 0;
		/* To wait for one's turn is not to wait for bytes or for space. */
		if (never_waits && !(sluice_pipe_is_readable(pipe) && has_space(theirs)))
			return -EAGAIN;

		pipe_unlock(theirs);
		ret = wait_to_hand_over(end, theirs, waited);
		pipe_lock(theirs);
		if (ret)
			return ret;
	}
}

/*
 * Called with their mutex held, and returns so. (Not called by sendfile(2), which wants a file that
 * can seek and has a pipe of its own that it does not lock.)
 */
ssize_t sluice_pipe_splice_read(struct file *in, loff_t *position, struct pipe_inode_info *theirs,
				size_t length, unsigned int flags)
{
	struct sluice_endpoint *end = sluice_pipe_endpoint(in);
	bool waited = false;
	ssize_t ret = splice_out(end, theirs, length, refuses_to_wait(in, flags), &waited);

	pass_on_bytes(end->pipe, waited);
	return ret;
}

static ssize_t copy_buffer(struct sluice_pipe *pipe, const struct pipe_buffer *buffer,
			   size_t length)
{
	struct bio_vec vector;
	struct iov_iter from;

	bvec_set_page(&vector, buffer->page, length, buffer->offset);
	iov_iter_bvec(&from, ITER_SOURCE, &vector, 1, length);
	return sluice_pipe_fill(pipe, &from, 1);
}

struct transfer {
	struct sluice_pipe *pipe;
	bool stalled;		/* it ended because our side would have had to wait */
};

/* Takes over one buffer of theirs, whose mutex is held. Bytes, or -EAGAIN and stalled. */
static int take_over(struct pipe_inode_info *theirs, struct pipe_buffer *buffer,
		     struct splice_desc *sd)
{
	struct transfer *transfer = sd->u.data;
	struct sluice_pipe *pipe = transfer->pipe;
	size_t length = min_t(size_t, buffer->len, sd->total_len);
	ssize_t ret = 0;

	if (!READ_ONCE(pipe->readers))
		return sluice_pipe_broken(true);
	if (mutex_trylock(&pipe->write_mutex)) {
		if (length == PAGE_SIZE && !buffer->offset &&
		    sluice_pipe_give_page(pipe, buffer->page))
			ret = length;
		else
			ret = copy_buffer(pipe, buffer, length);
		mutex_unlock(&pipe->write_mutex);
	}
	if (!ret)
		transfer->stalled = true;
	return ret ?: -EAGAIN;
}

/* Waits, with no mutex held, for whatever kept take_over() from moving anything. */
static int wait_to_take_over(struct sluice_endpoint *end, bool *waited)
{
	struct sluice_pipe *pipe = end->pipe;

	if (sluice_pipe_room(pipe))
		return wait_for_turn(&pipe->write_mutex);
	*waited = true;
	return sluice_wait_until(pipe->writable,
				 sluice_pipe_is_writable(pipe) || !READ_ONCE(pipe->readers),
				 &end->spin);
}

/* Goes on until theirs is empty: what it held can all be had, if need be by waiting for room. */
ssize_t sluice_pipe_splice_write(struct pipe_inode_info *theirs, struct file *out,
				 loff_t *position, size_t length, unsigned int flags)
{
	struct sluice_endpoint *end = sluice_pipe_endpoint(out);
	struct sluice_pipe *pipe = end->pipe;
	struct transfer transfer = { .pipe = pipe };
	struct splice_desc sd = {
		.total_len = length,
		.flags = flags,
		.u.data = &transfer,
	};
	bool waited = false;
	ssize_t ret, moved = 0;

	do {
		transfer.stalled = false;
		pipe_lock(theirs);
		ret = __splice_from_pipe(theirs, &sd, take_over);
		pipe_unlock(theirs);
		if (ret > 0) {
			moved += ret;
			sd.flags |= SPLICE_F_NONBLOCK;	/* no longer worth waiting for more */
		}
		if (!transfer.stalled)
			break;
		/* To wait for one's turn is not to wait for room. */
		if (refuses_to_wait(out, flags) && !sluice_pipe_room(pipe))
			break;
		ret = wait_to_take_over(end, &waited);
	} while (!ret);

	if (waited && sluice_pipe_is_writable(pipe))
		sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
	return moved ?: ret;
}
