// SPDX-License-Identifier: GPL-2.0
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
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
#include "pipe.h"
#include "pipe_buffer.h"
#include "scope.h"
#include "wait.h"

#define CAPACITY_MAX SZ_1G
#define DEFAULT_SLOTS 16

static unsigned int pipe_max_size = SZ_1M;
module_param(pipe_max_size, uint, 0644);
MODULE_PARM_DESC(pipe_max_size, "The largest capacity of a pipe without CAP_SYS_RESOURCE, in bytes");

static struct kmem_cache *pipe_cache;

static bool is_nonblocking(const struct kiocb *iocb)
{
	return (iocb->ki_flags & IOCB_NOWAIT) || (iocb->ki_filp->f_flags & O_NONBLOCK);
}

/*
 * The holder may be in a page fault for as long as a user pleases, so the wait can be interrupted.
 * O_NONBLOCK waits too, as it does for pipe(2): it is about bytes and space, and an edge-triggered
 * reader that was turned away while there are bytes would never be told again.
 */
static int lock_side(struct mutex *mutex, const struct kiocb *iocb)
{
	if (iocb->ki_flags & IOCB_NOWAIT)
		return mutex_trylock(mutex) ? 0 : -EAGAIN;
	return mutex_lock_interruptible(mutex) ? -ERESTARTSYS : 0;
}

/* ---- read and write ---- */

/* One step of a read: bytes, 0 when others took them first, or an error. */
static ssize_t read_some(struct sluice_pipe *pipe, const struct kiocb *iocb, struct iov_iter *to)
{
	ssize_t ret = lock_side(&pipe->read_mutex, iocb);

	if (ret)
		return ret;
	ret = sluice_pipe_drain(pipe, to);
	mutex_unlock(&pipe->read_mutex);
	return ret;
}

static ssize_t pipe_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct sluice_endpoint *end = sluice_pipe_endpoint(iocb->ki_filp);
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
		if (!smp_load_acquire(&pipe->writers)) {	/* (C) */
			if (sluice_pipe_is_readable(pipe))
				continue;
			break;
		}
		if (is_nonblocking(iocb)) {
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

	if (waited && sluice_pipe_is_readable(pipe))
		sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
	return ret;
}

/* One step of a write: bytes, 0 when others took the room first, or an error. */
static ssize_t write_some(struct sluice_pipe *pipe, const struct kiocb *iocb,
			  struct iov_iter *from, size_t whole)
{
	ssize_t ret = lock_side(&pipe->write_mutex, iocb);

	if (ret)
		return ret;
	ret = sluice_pipe_fill(pipe, from, whole);
	mutex_unlock(&pipe->write_mutex);
	return ret;
}

int sluice_pipe_epipe(bool signal)
{
	if (signal)
		send_sig(SIGPIPE, current, 0);
	return -EPIPE;
}

/*
 * Whether a write should try to take room now. While others sleep for room, one that could wait for
 * it too does not take the last PIPE_BUF bytes: short writes, for which there nearly always is
 * room, would otherwise keep longer ones out for ever. So a writer passes a sleeping one only until
 * the pipe is full, and is behind it then.
 */
static bool may_fill(struct sluice_pipe *pipe, size_t whole, bool nonblocking)
{
	if (sluice_pipe_maybe_writable(pipe, PIPE_BUF))
		return true;
	return sluice_pipe_maybe_writable(pipe, whole) &&
	       (nonblocking || !sluice_wait_has_sleepers(&pipe->writable));
}

static ssize_t pipe_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct sluice_endpoint *end = sluice_pipe_endpoint(iocb->ki_filp);
	struct sluice_pipe *pipe = end->pipe;
	size_t count = iov_iter_count(from);
	size_t whole = count <= PIPE_BUF ? count : 1;	/* the least that goes in at once */
	ssize_t written = 0, ret = 0;
	bool nonblocking = is_nonblocking(iocb), waited = false;

	while (iov_iter_count(from)) {
		if (!READ_ONCE(pipe->readers)) {
			ret = sluice_pipe_epipe(!(iocb->ki_flags & IOCB_NOSIGNAL));
			break;
		}
		if (may_fill(pipe, whole, nonblocking)) {
			ret = write_some(pipe, iocb, from, whole);
			if (ret < 0)
				break;
			written += ret;
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

	if (waited && sluice_pipe_is_writable(pipe))
		sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
	return written ?: ret;
}

static __poll_t pipe_poll(struct file *file, poll_table *wait)
{
	struct sluice_endpoint *end = sluice_pipe_endpoint(file);
	struct sluice_pipe *pipe = end->pipe;
	__poll_t events = 0;

	if (file->f_mode & FMODE_READ)
		sluice_wait_poll(file, &pipe->readable, wait);
	if (file->f_mode & FMODE_WRITE)
		sluice_wait_poll(file, &pipe->writable, wait);

	if (file->f_mode & FMODE_READ) {
		if (sluice_pipe_is_readable(pipe))
			events |= EPOLLIN | EPOLLRDNORM;
		if (!READ_ONCE(pipe->writers) &&
		    READ_ONCE(pipe->writer_opens) != end->writer_opens_before)
			events |= EPOLLHUP;
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

/* The number of pages that a capacity takes, or an error. What is there already may stay. */
static long slots_for(u64 bytes, u64 bytes_now)
{
	if (!bytes || bytes > CAPACITY_MAX)
		return -EINVAL;
	bytes = roundup_pow_of_two(max_t(u64, bytes, PAGE_SIZE));
	if (bytes > READ_ONCE(pipe_max_size) && bytes > bytes_now && !capable(CAP_SYS_RESOURCE))
		return -EPERM;
	return bytes >> PAGE_SHIFT;
}

static long set_capacity(struct sluice_pipe *pipe, u64 bytes)
{
	long slots = slots_for(bytes, sluice_pipe_capacity(pipe));

	return slots < 0 ? slots : sluice_pipe_resize(pipe, slots);
}

static long change_setting(struct sluice_endpoint *end, unsigned int number,
			   struct sluice_setting __user *user)
{
	struct sluice_setting setting;
	long ret = sluice_user_struct_copy(&setting, sizeof(setting), user);

	if (ret)
		return ret;
	if (setting.flags || setting.size < sizeof(setting))
		return -EINVAL;
	if (number == _IOC_NR(SLUICE_PIPE_SET_CAPACITY))
		ret = set_capacity(end->pipe, setting.value);
	else
		ret = sluice_spin_set_limit(&end->spin, setting.value);
	if (ret < 0)
		return ret;
	return put_user((u64)ret, &user->value);
}

static long get_info(struct sluice_endpoint *end, struct sluice_pipe_info __user *user)
{
	struct sluice_pipe *pipe = end->pipe;
	struct sluice_pipe_info info;
	u32 size;
	int err = sluice_user_struct_copy(&info, sizeof(info), user);

	if (err)
		return err;
	if (info.reserved)
		return -EINVAL;
	size = min_t(u32, info.size, sizeof(info));
	info = (struct sluice_pipe_info) {
		.size = size,
		.readers = READ_ONCE(pipe->readers),
		.writers = READ_ONCE(pipe->writers),
		.capacity = sluice_pipe_capacity(pipe),
		.bytes = sluice_pipe_bytes(pipe),
		.spin_limit_ns = READ_ONCE(end->spin.limit_ns),
		.pages_allocated = READ_ONCE(pipe->pages_allocated),
		.pages_spliced_in = READ_ONCE(pipe->pages_spliced_in),
		.pages_spliced_out = READ_ONCE(pipe->pages_spliced_out),
	};
	return sluice_user_struct_return(user, &info, sizeof(info), size);
}

static long pipe_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sluice_endpoint *end = sluice_pipe_endpoint(file);
	void __user *user = (void __user *)argument;

	if (command == FIONREAD)
		return put_user((int)sluice_pipe_bytes(end->pipe), (int __user *)user);
	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* By number alone: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_PIPE_SET_CAPACITY):
	case _IOC_NR(SLUICE_PIPE_SET_SPIN):
		return change_setting(end, _IOC_NR(command), user);
	case _IOC_NR(SLUICE_PIPE_INFO):
		return get_info(end, user);
	default:
		return -ENOTTY;
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

/* ---- life ---- */

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
	pipe = kmem_cache_alloc(pipe_cache, SLUICE_QUOTA_GFP);
	if (!pipe)
		return ERR_PTR(-ENOMEM);
	err = sluice_pipe_buffer_init(pipe, slots);
	if (err)
		goto free_pipe;
	err = sluice_channel_init(&pipe->channel, request, sluice_pipe_capacity(pipe));
	if (err)
		goto free_ring;
	pipe->readers = 0;
	pipe->writers = 0;
	pipe->reader_opens = 0;
	pipe->writer_opens = 0;
	pipe->readers_async = NULL;
	pipe->writers_async = NULL;
	return &pipe->channel;

free_ring:
	sluice_pipe_buffer_free(pipe);
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

static void pipe_fill_info(const struct sluice_channel *channel, struct sluice_channel_info *info)
{
	const struct sluice_pipe *pipe = pipe_of(channel);

	info->readers = READ_ONCE(pipe->readers);
	info->writers = READ_ONCE(pipe->writers);
	info->capacity = sluice_pipe_capacity(pipe);
	info->bytes = sluice_pipe_bytes(pipe);
}

const struct sluice_channel_kind sluice_pipe_kind = {
	.number	= SLUICE_KIND_PIPE,
	.create	= pipe_create,
	.free	= pipe_free,
	.fill_info	= pipe_fill_info,
};

/*
 * Counts an endpoint out. When that leaves one side alone, all of it have to look: readers find the
 * end of the file, writers a broken pipe. Otherwise nobody is woken, since no sleeper's condition
 * changed.
 */
static void leave(struct sluice_pipe *pipe, fmode_t mode)
{
	bool alone;

	spin_lock(&pipe->lock);
	if (mode & FMODE_READ)
		WRITE_ONCE(pipe->readers, pipe->readers - 1);
	if (mode & FMODE_WRITE)
		smp_store_release(&pipe->writers, pipe->writers - 1);	/* (C) */
	alone = !pipe->readers != !pipe->writers;
	spin_unlock(&pipe->lock);
	if (!alone)
		return;

	sluice_wait_wake_all(&pipe->readable, 0);
	sluice_wait_wake_all(&pipe->writable, 0);
	kill_fasync(&pipe->readers_async, SIGIO, POLL_IN);
	kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
}

/*
 * Counts an endpoint in and, unless @nonblock, waits until the other side has been there. That it
 * has been is enough: a reader that came and went lets a waiting writer go, which then learns of
 * the broken pipe by writing.
 */
static int join(struct sluice_endpoint *end, fmode_t mode, bool nonblock)
{
	struct sluice_pipe *pipe = end->pipe;
	unsigned int *joined = mode & FMODE_READ ? &pipe->writer_opens : &pipe->reader_opens;
	unsigned int opens_before;
	bool alone;

	spin_lock(&pipe->lock);
	if (nonblock && !(mode & FMODE_READ) && !pipe->readers) {
		spin_unlock(&pipe->lock);
		return -ENXIO;
	}
	if (mode & FMODE_READ) {
		WRITE_ONCE(pipe->readers, pipe->readers + 1);
		WRITE_ONCE(pipe->reader_opens, pipe->reader_opens + 1);
	}
	if (mode & FMODE_WRITE) {
		WRITE_ONCE(pipe->writers, pipe->writers + 1);
		WRITE_ONCE(pipe->writer_opens, pipe->writer_opens + 1);
	}
	alone = !pipe->readers || !pipe->writers;
	opens_before = *joined;
	end->writer_opens_before = pipe->writer_opens - !(alone && nonblock);
	spin_unlock(&pipe->lock);
	sluice_wait_wake_all(&pipe->open_wait, 0);

	if (!alone || nonblock)
		return 0;
	if (sluice_wait_until_shared(pipe->open_wait, READ_ONCE(*joined) != opens_before, NULL)) {
		leave(pipe, mode);
		return -ERESTARTSYS;
	}
	return 0;
}

/* An endpoint that has joined. */
static struct sluice_endpoint *endpoint_open(const struct sluice_channel_request *request,
					     fmode_t mode, bool nonblock)
{
	struct sluice_channel *channel;
	struct sluice_endpoint *end;
	int err;

	end = kmalloc(sizeof(*end), SLUICE_QUOTA_GFP);
	if (!end)
		return ERR_PTR(-ENOMEM);
	channel = sluice_channel_open(request);
	if (IS_ERR(channel)) {
		err = PTR_ERR(channel);
		goto free_end;
	}
	end->pipe = pipe_of(channel);
	sluice_spin_init(&end->spin);
	err = join(end, mode, nonblock);
	if (err)
		goto put_channel;
	return end;

put_channel:
	sluice_channel_put(channel);
free_end:
	kfree(end);
	return ERR_PTR(err);
}

static void endpoint_close(struct sluice_endpoint *end, fmode_t mode)
{
	leave(end->pipe, mode);
	sluice_channel_put(&end->pipe->channel);
	kfree(end);
}

static int set_up_file(struct file *file, struct sluice_endpoint *end)
{
	file->private_data = end;
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(file_inode(file), file);
}

/* Of /dev/sluice/pipe: the pipe without a name, which is for everyone in the cgroup. */
static int pipe_open(struct inode *inode, struct file *file)
{
	struct sluice_channel_request request = {
		.kind = &sluice_pipe_kind,
		.key.kind = SLUICE_KIND_PIPE,
		.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
		.mode = 0666,
	};
	struct sluice_endpoint *end;
	int err;

	if (!(file->f_mode & (FMODE_READ | FMODE_WRITE)))
		return -EINVAL;
	err = sluice_scope_access_self(&request.access);
	if (err)
		return err;
	end = endpoint_open(&request, file->f_mode, file->f_flags & O_NONBLOCK);
	sluice_scope_put(request.access.scope);
	return IS_ERR(end) ? PTR_ERR(end) : set_up_file(file, end);
}

static int file_flags(u32 flags)
{
	int nonblock = flags & SLUICE_OPEN_NONBLOCK ? O_NONBLOCK : 0;

	if (!(flags & SLUICE_OPEN_WRITE))
		return O_RDONLY | nonblock;
	return (flags & SLUICE_OPEN_READ ? O_RDWR : O_WRONLY) | nonblock;
}

struct file *sluice_pipe_open_channel(const struct sluice_channel_request *request)
{
	int flags = file_flags(request->flags);
	fmode_t mode = OPEN_FMODE(flags);
	struct sluice_endpoint *end = endpoint_open(request, mode, flags & O_NONBLOCK);
	struct file *file;

	if (IS_ERR(end))
		return ERR_CAST(end);
	file = anon_inode_getfile("[sluice-pipe]", &sluice_pipe_fops, end, flags);
	if (IS_ERR(file))
		endpoint_close(end, mode);
	else
		set_up_file(file, end);
	return file;
}

static int pipe_release(struct inode *inode, struct file *file)
{
	endpoint_close(sluice_pipe_endpoint(file), file->f_mode);
	return 0;
}

const struct file_operations sluice_pipe_fops = {
	.owner		= THIS_MODULE,
	.open		= pipe_open,
	.release	= pipe_release,
	.read_iter	= pipe_read_iter,
	.write_iter	= pipe_write_iter,
	.splice_read	= sluice_pipe_splice_read,
	.splice_write	= sluice_pipe_splice_write,
	.poll		= pipe_poll,
	.unlocked_ioctl	= pipe_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.fasync		= pipe_fasync,
};

/*
 * Runs once for each piece of memory in the cache: a freed pipe leaves its locks and queues as they
 * were born.
 */
static void pipe_construct(void *memory)
{
	struct sluice_pipe *pipe = memory;

	spin_lock_init(&pipe->lock);
	mutex_init(&pipe->read_mutex);
	mutex_init(&pipe->write_mutex);
	sluice_wait_queue_init(&pipe->open_wait);
}

int sluice_pipe_init(void)
{
	pipe_cache = kmem_cache_create("sluice_pipe", sizeof(struct sluice_pipe), 0,
				       SLAB_HWCACHE_ALIGN | SLAB_ACCOUNT, pipe_construct);
	return pipe_cache ? 0 : -ENOMEM;
}

void sluice_pipe_exit(void)
{
	kmem_cache_destroy(pipe_cache);
}
