// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/wait.h>

#include <asm/ioctls.h>

#include <uapi/linux/sluice.h>

#include "user_struct.h"
#include "channel.h"
#include "compat.h"
#include "endpoint.h"
#include "kind.h"
#include "pipe.h"
#include "pipe_buffer.h"
#include "scope.h"
#include "wait.h"

#define CAPACITY_MAX SZ_1G
#define DEFAULT_SLOTS 16

static unsigned int pipe_max_size = SZ_1M;
module_param(pipe_max_size, uint, 0644);
MODULE_PARM_DESC(pipe_max_size, "Maximum capacity of a pipe in bytes without CAP_SYS_RESOURCE");

static struct kmem_cache *pipe_cache;

static bool pipe_is_nonblocking(const struct kiocb *iocb)
{
	return (iocb->ki_flags & IOCB_NOWAIT) || (iocb->ki_filp->f_flags & O_NONBLOCK);
}

/*
 * The holder may be in a page fault of any duration, so the wait is interruptible, and does not
 * begin if the pipe is destroyed. O_NONBLOCK waits, too, as with pipe(2): it concerns bytes and
 * room. An edge-triggered reader that got -EAGAIN while there are bytes would get no further event
 * for them.
 */
static int lock_side(struct sluice_pipe *pipe, struct mutex *mutex, const struct kiocb *iocb)
{
	bool nowait = iocb->ki_flags & IOCB_NOWAIT;

	if (!nowait)
		might_lock(mutex);
	if (mutex_trylock(mutex))
		return 0;
	if (READ_ONCE(pipe->destroyed))
		return -EPIPE;
	return nowait ? -EAGAIN : sluice_wait_for_mutex(mutex);
}

/* ---- read and write ---- */

/* One step of a read: number of bytes, 0: other readers got them first, or an error. */
static ssize_t read_some(struct sluice_pipe *pipe, const struct kiocb *iocb, struct iov_iter *to)
{
	ssize_t ret = lock_side(pipe, &pipe->read_mutex, iocb);

	if (ret)
		return ret;
	ret = sluice_pipe_drain(pipe, to);
	return sluice_pipe_unlock(pipe, &pipe->read_mutex) ? -EPIPE : ret;
}

static ssize_t pipe_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct sluice_pipe_endpoint *end = sluice_pipe_endpoint(iocb->ki_filp);
	struct sluice_pipe *pipe = end->pipe;
	bool waited = false;
	ssize_t ret = 0;

	if (!iov_iter_count(to))
		return 0;

	for (;;) {
		if (sluice_pipe_maybe_readable(pipe)) {
			ret = read_some(pipe, iocb, to);
			if (ret)
				break;
			continue;
		}
		if (!smp_load_acquire(&pipe->writers)) {	/* (pipe-C) */
			if (sluice_pipe_is_readable(pipe))
				continue;
			ret = READ_ONCE(pipe->destroyed) ? -EPIPE : 0;
			break;
		}
		if (pipe_is_nonblocking(iocb)) {
			ret = -EAGAIN;
			break;
		}
		ret = sluice_wait_until(pipe->readable,
					sluice_pipe_is_readable(pipe) || !READ_ONCE(pipe->writers),
					&end->spin);
		if (ret)
			break;
		waited = true;
	}

	if (waited)
		sluice_pipe_wake_next_reader(pipe);
	return ret;
}

/* One step of a write: number of bytes, 0: other writers used the room first, or an error. */
static ssize_t write_some(struct sluice_pipe *pipe, const struct kiocb *iocb,
			  struct iov_iter *from, size_t whole)
{
	ssize_t ret = lock_side(pipe, &pipe->write_mutex, iocb);

	if (ret)
		return ret;
	ret = sluice_pipe_fill(pipe, from, whole);
	return sluice_pipe_unlock(pipe, &pipe->write_mutex) ? -EPIPE : ret;
}

int sluice_pipe_epipe(bool signal)
{
	if (signal)
		send_sig(SIGPIPE, current, 0);
	return -EPIPE;
}

/*
 * Whether an atomic write fits into a partial page. Not with @whole == 1, the minimum of a longer
 * write, which would continue into the next page. An estimate, since others may move `head`.
 */
static bool fits_begun_page(const struct sluice_pipe *pipe, size_t whole)
{
	size_t begun = offset_in_page(READ_ONCE(pipe->head));

	return whole > 1 && begun && whole <= PAGE_SIZE - begun;
}

/*
 * Whether a write may use the room that there is now. While other writers sleep for room, a write
 * that can block uses the last PIPE_BUF bytes only to complete a page: otherwise short writes, for
 * which there is nearly always room, would starve longer ones. A writer therefore overtakes a
 * sleeping one only until the pipe is full, page by page as with pipe(2), and then queues behind
 * it.
 */
bool sluice_pipe_may_fill(struct sluice_pipe *pipe, size_t whole, bool nonblocking)
{
	if (sluice_pipe_maybe_writable(pipe, PIPE_BUF))
		return true;
	return sluice_pipe_maybe_writable(pipe, whole) &&
	       (nonblocking || !sluice_wait_has_sleepers(&pipe->writable) ||
		fits_begun_page(pipe, whole));
}

static ssize_t pipe_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct sluice_pipe_endpoint *end = sluice_pipe_endpoint(iocb->ki_filp);
	struct sluice_pipe *pipe = end->pipe;
	size_t count = iov_iter_count(from);
	size_t whole = count <= PIPE_BUF ? count : 1;	/* the minimum of one step */
	ssize_t written = 0, ret = 0;
	bool nonblocking = pipe_is_nonblocking(iocb), waited = false;

	while (iov_iter_count(from)) {
		if (!READ_ONCE(pipe->readers)) {
			ret = -EPIPE;
			break;
		}
		if (sluice_pipe_may_fill(pipe, whole, nonblocking)) {
			ret = write_some(pipe, iocb, from, whole);
			if (ret < 0)
				break;
			written += ret;
			/*
			 * A long write beside a quick reader need not wait for room. A nonblocking
			 * one ends only where there is none, as its poller expects.
			 */
			if (iov_iter_count(from) && !nonblocking && signal_pending(current)) {
				ret = -ERESTARTSYS;
				break;
			}
			continue;
		}
		if (nonblocking) {
			ret = -EAGAIN;
			break;
		}
		ret = sluice_wait_until(pipe->writable,
					sluice_pipe_is_writable(pipe) || !READ_ONCE(pipe->readers),
					&end->spin);
		if (ret)
			break;
		waited = true;
	}

	if (waited)
		sluice_pipe_wake_next_writer(pipe);
	if (ret == -EPIPE)
		sluice_pipe_epipe(!(iocb->ki_flags & IOCB_NOSIGNAL));
	return written ?: ret;
}

static __poll_t pipe_poll(struct file *file, poll_table *wait)
{
	struct sluice_pipe_endpoint *end = sluice_pipe_endpoint(file);
	struct sluice_pipe *pipe = end->pipe;
	__poll_t events = 0;

	if (file->f_mode & FMODE_READ)
		sluice_wait_poll(file, &pipe->readable, wait);
	if (file->f_mode & FMODE_WRITE)
		sluice_wait_poll(file, &pipe->writable, wait);
	if (READ_ONCE(pipe->destroyed))
		return EPOLLHUP | EPOLLERR;

	if (file->f_mode & FMODE_READ) {
		/* Before the check for bytes: a hang-up without POLLIN says that there are none. */
		if (!smp_load_acquire(&pipe->writers) &&	/* (pipe-C) */
		    READ_ONCE(pipe->writer_opens) != end->writer_opens_before)
			events |= EPOLLHUP;
		if (sluice_pipe_is_readable(pipe))
			events |= EPOLLIN | EPOLLRDNORM;
	}
	if (file->f_mode & FMODE_WRITE) {
		if (sluice_pipe_is_writable(pipe))
			events |= EPOLLOUT | EPOLLWRNORM;
		if (!READ_ONCE(pipe->readers))
			events |= EPOLLERR;
	}
	return events;
}

/* ---- settings and state ---- */

/* The number of slots of a capacity, or an error. The current capacity is always permitted. */
static long slots_for(u64 bytes, u64 bytes_now)
{
	if (!bytes || bytes > CAPACITY_MAX)
		return -EINVAL;
	bytes = roundup_pow_of_two(max_t(u64, bytes, PAGE_SIZE));
	if (bytes > READ_ONCE(pipe_max_size) && bytes > bytes_now && !capable(CAP_SYS_RESOURCE))
		return -EPERM;
	return bytes >> PAGE_SHIFT;
}

/* The pages that fill the capacity are charged to the creator, whoever writes. */
static bool may_grow(const struct sluice_pipe *pipe)
{
	return uid_eq(current_fsuid(), pipe->channel.uid) || capable(CAP_SYS_RESOURCE);
}

static long set_capacity(struct sluice_pipe *pipe, u64 bytes)
{
	long slots = slots_for(bytes, sluice_pipe_capacity(pipe));

	return slots < 0 ? slots : sluice_pipe_resize(pipe, slots, may_grow(pipe));
}

static long pipe_change_setting(struct sluice_pipe_endpoint *end, unsigned int number,
				struct sluice_setting __user *user)
{
	u64 value;
	long ret = sluice_user_setting_read(&value, user);

	if (ret)
		return ret;
	if (number == _IOC_NR(SLUICE_PIPE_SET_CAPACITY))
		ret = set_capacity(end->pipe, value);
	else
		ret = sluice_spin_set_limit(&end->spin, value);
	if (ret < 0)
		return ret;
	return put_user((u64)ret, &user->value);
}

static void fill_pipe_info(const struct sluice_pipe *pipe, struct sluice_pipe_info *info)
{
	*info = (struct sluice_pipe_info) {
		.readers = READ_ONCE(pipe->readers),
		.writers = READ_ONCE(pipe->writers),
		.capacity = sluice_pipe_capacity(pipe),
		.bytes = sluice_pipe_bytes(pipe),
		.pages_allocated = READ_ONCE(pipe->pages_allocated),
		.pages_spliced_in = READ_ONCE(pipe->pages_spliced_in),
		.pages_spliced_out = READ_ONCE(pipe->pages_spliced_out),
	};
}

static long pipe_get_info(struct sluice_pipe_endpoint *end, struct sluice_pipe_info __user *user)
{
	struct sluice_pipe_info info;
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_PIPE_INFO_SIZE_VER0, &user_size);

	if (err)
		return err;
	fill_pipe_info(end->pipe, &info);
	info.spin_limit_ns = READ_ONCE(end->spin.limit_ns);
	return sluice_user_struct_write(user, &info, sizeof(info), user_size);
}

static long pipe_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sluice_pipe_endpoint *end = sluice_pipe_endpoint(file);
	void __user *user = (void __user *)argument;

	if (command == FIONREAD)
		return put_user((int)sluice_pipe_bytes(end->pipe), (int __user *)user);
	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* Only by number: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_PIPE_SET_CAPACITY):
	case _IOC_NR(SLUICE_PIPE_SET_SPIN):
		return pipe_change_setting(end, _IOC_NR(command), user);
	case _IOC_NR(SLUICE_PIPE_INFO):
		return pipe_get_info(end, user);
	default:
		return sluice_endpoint_ioctl(file, command, user);
	}
}

static int pipe_fasync(int fd, struct file *file, int on)
{
	struct sluice_pipe *pipe = sluice_pipe_endpoint(file)->pipe;
	int ret = 0;

	if (file->f_mode & FMODE_READ)
		ret = fasync_helper(fd, file, on, &pipe->readers_async);
	if (ret >= 0 && (file->f_mode & FMODE_WRITE)) {
		ret = fasync_helper(fd, file, on, &pipe->writers_async);
		if (ret < 0 && (file->f_mode & FMODE_READ))
			fasync_helper(-1, file, 0, &pipe->readers_async);
	}
	return ret;
}

/* ---- lifetime of the channel ---- */

static struct sluice_pipe *pipe_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_pipe, channel);
}

static struct sluice_channel *pipe_create(const struct sluice_channel_request *request)
{
	long slots = request->capacity ? slots_for(request->capacity, 0) : DEFAULT_SLOTS;
	struct sluice_pipe *pipe;
	int err;

	if (slots < 0)
		return ERR_PTR(slots);
	pipe = kmem_cache_alloc(pipe_cache, request->gfp);
	if (!pipe)
		return ERR_PTR(-ENOMEM);
	err = sluice_channel_init(&pipe->channel, request, (u64)slots << PAGE_SHIFT);
	if (err)
		goto free_pipe;
	err = sluice_pipe_buffer_init(pipe, slots);
	if (err)
		goto exit_channel;
	pipe->destroyed = false;
	pipe->moves = 0;
	pipe->readers = 0;
	pipe->writers = 0;
	pipe->reader_opens = SLUICE_PIPE_FIRST_OPEN;
	pipe->writer_opens = SLUICE_PIPE_FIRST_OPEN;
	pipe->readers_async = NULL;
	pipe->writers_async = NULL;
	return &pipe->channel;

exit_channel:
	sluice_channel_exit(&pipe->channel);
free_pipe:
	kmem_cache_free(pipe_cache, pipe);
	return ERR_PTR(err);
}

static void pipe_free(struct sluice_channel *channel)
{
	struct sluice_pipe *pipe = pipe_of(channel);

	sluice_pipe_buffer_free(pipe);
	kmem_cache_free(pipe_cache, pipe);
}

static void pipe_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	const struct sluice_pipe *pipe = pipe_of(channel);

	info->readers = READ_ONCE(pipe->readers);
	info->writers = READ_ONCE(pipe->writers);
	info->capacity = sluice_pipe_capacity(pipe);
	info->bytes = sluice_pipe_bytes(pipe);
	info->total_bytes = READ_ONCE(pipe->head) - SLUICE_PIPE_FIRST;
	info->waiting = sluice_wait_count(&pipe->open_wait) + sluice_wait_count(&pipe->readable) +
			sluice_wait_count(&pipe->writable);
}

static void pipe_fill_state(struct sluice_channel *channel, void *state)
{
	fill_pipe_info(pipe_of(channel), state);
}

/* ---- lifetime of an endpoint ---- */

static void wake_all(struct sluice_pipe *pipe)
{
	sluice_wait_wake_all(&pipe->readable, 0);
	sluice_wait_wake_all(&pipe->writable, 0);
	kill_fasync(&pipe->readers_async, SIGIO, POLL_IN);
	kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
}

/*
 * Uncounts an endpoint. If only one side is left, all its waiters are woken: readers find end of
 * file, writers find no reader. Otherwise no waiter is woken, because no condition changed.
 */
static void leave(struct sluice_pipe *pipe, u32 flags)
{
	bool alone, unused;

	spin_lock(&pipe->lock);
	if (pipe->destroyed) {
		spin_unlock(&pipe->lock);
		return;
	}
	if (flags & SLUICE_OPEN_READ)
		WRITE_ONCE(pipe->readers, pipe->readers - 1);
	if (flags & SLUICE_OPEN_WRITE)
		smp_store_release(&pipe->writers, pipe->writers - 1);	/* (pipe-C) */
	alone = !pipe->readers != !pipe->writers;
	unused = !pipe->readers && !pipe->writers;
	spin_unlock(&pipe->lock);
	if (alone)
		wake_all(pipe);
	if (unused)
		sluice_pipe_trim(pipe);
}

/*
 * Counts an endpoint and, without NONBLOCK, waits until the other side has been opened, even if it
 * was closed again: a reader that opened and closed ends the wait of a writer, whose write then
 * fails with EPIPE. The open itself fails with EPIPE if the pipe is destroyed.
 */
static int join(struct sluice_pipe_endpoint *end, u32 flags)
{
	bool nonblock = flags & SLUICE_OPEN_NONBLOCK, reads = flags & SLUICE_OPEN_READ;
	struct sluice_pipe *pipe = end->pipe;
	unsigned int *opens = reads ? &pipe->writer_opens : &pipe->reader_opens;
	unsigned int opens_before;
	bool alone;
	int err;

	spin_lock(&pipe->lock);
	if (pipe->destroyed || (nonblock && !reads && !pipe->readers)) {
		err = pipe->destroyed ? -EPIPE : -ENXIO;
		spin_unlock(&pipe->lock);
		return err;
	}
	if (reads) {
		WRITE_ONCE(pipe->readers, pipe->readers + 1);
		WRITE_ONCE(pipe->reader_opens, pipe->reader_opens + 1);
	}
	if (flags & SLUICE_OPEN_WRITE) {
		WRITE_ONCE(pipe->writers, pipe->writers + 1);
		WRITE_ONCE(pipe->writer_opens, pipe->writer_opens + 1);
	}
	alone = !pipe->readers || !pipe->writers;
	opens_before = *opens;
	end->writer_opens_before = pipe->writer_opens - !(alone && nonblock);
	spin_unlock(&pipe->lock);
	sluice_wait_wake_all(&pipe->open_wait, 0);

	if (!alone || nonblock)
		return 0;
	err = sluice_wait_until_shared(pipe->open_wait, READ_ONCE(*opens) != opens_before ||
				       READ_ONCE(pipe->destroyed), NULL);
	if (!err && READ_ONCE(pipe->destroyed))
		err = -EPIPE;
	if (err)
		leave(pipe, flags);
	return err;
}

static int pipe_attach(struct sluice_endpoint *endpoint, const void *params)
{
	struct sluice_pipe_endpoint *end = sluice_pipe_endpoint_of(endpoint);

	end->pipe = pipe_of(endpoint->channel);
	sluice_spin_init(&end->spin);
	return join(end, endpoint->flags);
}

static void pipe_detach(struct sluice_endpoint *endpoint)
{
	leave(pipe_of(endpoint->channel), endpoint->flags);
}

/*
 * Ends all waits, except those for a mutex or a pipe(2), and discards the bytes as described in
 * pipe_buffer.h.
 */
static void pipe_destroy(struct sluice_channel *channel)
{
	struct sluice_pipe *pipe = pipe_of(channel);

	spin_lock(&pipe->lock);
	WRITE_ONCE(pipe->destroyed, true);
	WRITE_ONCE(pipe->readers, 0);
	smp_store_release(&pipe->writers, 0);	/* (pipe-C) */
	spin_unlock(&pipe->lock);
	sluice_wait_wake_all(&pipe->open_wait, 0);
	wake_all(pipe);
	if (sluice_pipe_discard(pipe))
		return;
	synchronize_rcu();	/* (pipe-E) */
	sluice_pipe_discard(pipe);
}

static const struct file_operations pipe_fops = {
	.owner		= THIS_MODULE,
	.open		= sluice_endpoint_open,
	.release	= sluice_endpoint_release,
	.show_fdinfo	= sluice_endpoint_show_fdinfo,
	.read_iter	= pipe_read_iter,
	.write_iter	= pipe_write_iter,
	.splice_read	= sluice_pipe_splice_read,
	.splice_write	= sluice_pipe_splice_write,
	.poll		= pipe_poll,
	.unlocked_ioctl	= pipe_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.fasync		= pipe_fasync,
};

/* Once per object of the cache: locks and queues of a freed pipe remain initialised. */
static void pipe_construct(void *memory)
{
	struct sluice_pipe *pipe = memory;

	spin_lock_init(&pipe->lock);
	mutex_init(&pipe->read_mutex);
	mutex_init(&pipe->write_mutex);
	sluice_wait_queue_init(&pipe->open_wait);
}

static int pipe_init(void)
{
	pipe_cache = kmem_cache_create("sluice_pipe", sizeof(struct sluice_pipe), 0,
				       SLAB_HWCACHE_ALIGN | SLAB_ACCOUNT, pipe_construct);
	return pipe_cache ? 0 : -ENOMEM;
}

static void pipe_exit(void)
{
	kmem_cache_destroy(pipe_cache);
}

const struct sluice_kind sluice_pipe_kind = {
	.number		= SLUICE_KIND_PIPE,
	.name		= "pipe",
	.file_name	= "[sluice-pipe]",
	.node_mode	= 0666,
	.fops		= &pipe_fops,
	.init		= pipe_init,
	.exit		= pipe_exit,
	.create		= pipe_create,
	.free		= pipe_free,
	.destroy	= pipe_destroy,
	.endpoint_size	= sizeof(struct sluice_pipe_endpoint),
	.attach		= pipe_attach,
	.detach		= pipe_detach,
	.fill_info	= pipe_fill_info,
	.state_size	= sizeof(struct sluice_pipe_info),
	.state_size_ver0 = SLUICE_PIPE_INFO_SIZE_VER0,
	.fill_state	= pipe_fill_state,
};
