// SPDX-License-Identifier: GPL-2.0
#include <linux/cache.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/limits.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/refcount.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/wait.h>

#include <asm/ioctls.h>

#include "compat.h"
#include "pipe.h"
#include "scope.h"
#include "wait.h"

#define DEFAULT_SLOTS 16

/*
 * What the two sides write is on lines apart, each lock apart from the count that the other reads.
 */
struct sluice_pipe {
	struct sluice_scope *scope;
	struct mem_cgroup *payer;	/* the creator's: pages are charged to it whoever writes */
	struct page **slots;		/* NULL where no write has been yet */
	unsigned long slot_count;	/* a power of two */
	refcount_t refs;		/* under scope->lock */

	spinlock_t lock;		/* protects the four counts; they are read without it */
	unsigned int readers, writers;	/* endpoints now */
	unsigned int readers_joined, writers_joined; /* ever; an open waits for one to move */
	wait_queue_head_t partners;	/* opens that wait for their other side */
	struct fasync_struct *readers_async, *writers_async;

	struct mutex read_mutex ____cacheline_aligned_in_smp;
	unsigned long head_seen;	/* under read_mutex: `head` as last loaded */

	struct mutex write_mutex ____cacheline_aligned_in_smp;
	unsigned long tail_seen;	/* under write_mutex: `tail` as last loaded */

	unsigned long head ____cacheline_aligned_in_smp;
	wait_queue_head_t readable;

	unsigned long tail ____cacheline_aligned_in_smp;
	wait_queue_head_t writable;
};

/* One open file. */
struct endpoint {
	struct sluice_pipe *pipe;
	/*
	 * What writers_joined was when this end was opened without waiting and found no writer:
	 * until it moves, poll does not report a hang-up. Otherwise a number that it no longer is.
	 */
	unsigned int writers_joined_before;
};

static struct kmem_cache *pipe_cache;

static struct endpoint *endpoint_of(struct file *file)
{
	return file->private_data;
}

static bool never_waits(const struct kiocb *iocb)
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

/* ---- the ring ---- */

static unsigned long capacity(const struct sluice_pipe *pipe)
{
	return pipe->slot_count << PAGE_SHIFT;
}

static struct page **slot_at(const struct sluice_pipe *pipe, unsigned long position)
{
	return &pipe->slots[(position >> PAGE_SHIFT) & (pipe->slot_count - 1)];
}

static size_t left_in_page(unsigned long position)
{
	return PAGE_SIZE - offset_in_page(position);
}

/*
 * Without a lock. `tail` first: a `head` that moved meanwhile makes the answer too large rather
 * than negative, and what cannot be is cut off.
 */
static size_t bytes_held(const struct sluice_pipe *pipe)
{
	unsigned long tail = smp_load_acquire(&pipe->tail);	/* before `head` */
	unsigned long head = READ_ONCE(pipe->head);

	return min(head - tail, capacity(pipe));
}

static size_t room(const struct sluice_pipe *pipe)
{
	return capacity(pipe) - bytes_held(pipe);
}

static bool is_readable(const struct sluice_pipe *pipe)
{
	return bytes_held(pipe) > 0;
}

/* The promise of poll(2): a write of up to PIPE_BUF bytes would not wait. */
static bool is_writable(const struct sluice_pipe *pipe)
{
	return room(pipe) >= PIPE_BUF;
}

static void publish_head(struct sluice_pipe *pipe, unsigned long head)
{
	smp_store_release(&pipe->head, head);	/* (A) */
	sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
	kill_fasync(&pipe->readers_async, SIGIO, POLL_IN);
}

/* A writer that sleeps wants room for a whole short write: less is no news to it. */
static void publish_tail(struct sluice_pipe *pipe, unsigned long tail)
{
	smp_store_release(&pipe->tail, tail);	/* (B) */
	if (!is_writable(pipe))
		return;
	sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
	kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
}

/*
 * Bytes from @tail on; under read_mutex. `head` is loaded only when what was seen of it is used up.
 */
static size_t bytes_from(struct sluice_pipe *pipe, unsigned long tail)
{
	if (pipe->head_seen == tail)
		pipe->head_seen = smp_load_acquire(&pipe->head);	/* (A) */
	return pipe->head_seen - tail;
}

/*
 * Room from @head on, looking at `tail` afresh where there seems to be less than @wanted; under
 * write_mutex.
 */
static size_t room_from(struct sluice_pipe *pipe, unsigned long head, size_t wanted)
{
	if (capacity(pipe) - (head - pipe->tail_seen) < wanted)
		pipe->tail_seen = smp_load_acquire(&pipe->tail);	/* (B) */
	return capacity(pipe) - (head - pipe->tail_seen);
}

/*
 * The page that @head is in. Charged to the creator of the pipe: a stranger's write costs the
 * stranger nothing.
 */
static struct page *page_for(struct sluice_pipe *pipe, unsigned long head)
{
	struct page **slot = slot_at(pipe, head);
	struct mem_cgroup *old;

	if (likely(*slot))
		return *slot;
	old = set_active_memcg(pipe->payer);
	*slot = alloc_page(GFP_HIGHUSER | __GFP_ACCOUNT);
	set_active_memcg(old);
	return *slot;
}

/*
 * Takes what is there, up to what @to holds; under read_mutex. The room is given back page by page,
 * so that a writer works while we go on. Bytes, 0 when there are none, -EFAULT when not even the
 * first could be delivered.
 */
static ssize_t drain(struct sluice_pipe *pipe, struct iov_iter *to)
{
	unsigned long tail = pipe->tail;
	ssize_t drained = 0;

	while (iov_iter_count(to)) {
		size_t chunk = min3(bytes_from(pipe, tail), left_in_page(tail),
				    iov_iter_count(to));
		size_t copied;

		if (!chunk)
			break;
		copied = copy_page_to_iter(*slot_at(pipe, tail), offset_in_page(tail), chunk, to);
		if (copied) {
			tail += copied;
			drained += copied;
			publish_tail(pipe, tail);
		}
		if (copied < chunk)
			return drained ?: -EFAULT;
	}
	return drained;
}

/*
 * Writes what fits, at least @whole bytes or none; under write_mutex. More than @whole is published
 * page by page, so that a reader works while we go on. Bytes, 0 when @whole does not fit, or an
 * error when none were published.
 */
static ssize_t fill(struct sluice_pipe *pipe, struct iov_iter *from, size_t whole)
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
		page = page_for(pipe, head);
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

/* ---- read and write ---- */

/* One step of a read: bytes, 0 when others took them first, or an error. */
static ssize_t read_some(struct sluice_pipe *pipe, const struct kiocb *iocb, struct iov_iter *to)
{
	ssize_t ret = lock_side(&pipe->read_mutex, iocb);

	if (ret)
		return ret;
	ret = drain(pipe, to);
	mutex_unlock(&pipe->read_mutex);
	return ret;
}

static ssize_t pipe_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct sluice_pipe *pipe = endpoint_of(iocb->ki_filp)->pipe;
	bool waited = false;
	ssize_t ret = 0;

	if (!iov_iter_count(to))
		return 0;

	for (;;) {
		if (is_readable(pipe)) {
			ret = read_some(pipe, iocb, to);
			if (ret)
				break;
			continue;
		}
		if (!smp_load_acquire(&pipe->writers)) {	/* (C) */
			if (is_readable(pipe))
				continue;
			break;
		}
		if (never_waits(iocb)) {
			ret = -EAGAIN;
			break;
		}
		ret = sluice_wait_until(pipe->readable,
					is_readable(pipe) || !READ_ONCE(pipe->writers));
		if (ret)
			break;
		waited = true;
	}

	if (waited && is_readable(pipe))
		sluice_wait_wake_one(&pipe->readable, EPOLLIN | EPOLLRDNORM);
	return ret;
}

/* One step of a write: bytes, 0 when others took the room first, or an error. */
static ssize_t write_some(struct sluice_pipe *pipe, const struct kiocb *iocb, struct iov_iter *from,
			  size_t whole)
{
	ssize_t ret = lock_side(&pipe->write_mutex, iocb);

	if (ret)
		return ret;
	ret = fill(pipe, from, whole);
	mutex_unlock(&pipe->write_mutex);
	return ret;
}

static int broken_pipe(const struct kiocb *iocb)
{
	if (!(iocb->ki_flags & IOCB_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return -EPIPE;
}

static ssize_t pipe_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct sluice_pipe *pipe = endpoint_of(iocb->ki_filp)->pipe;
	size_t count = iov_iter_count(from);
	size_t whole = count <= PIPE_BUF ? count : 1;	/* the least that goes in at once */
	ssize_t written = 0, ret = 0;
	bool waited = false;

	while (iov_iter_count(from)) {
		size_t wanted = min_t(size_t, iov_iter_count(from), PIPE_BUF);

		if (!READ_ONCE(pipe->readers)) {
			ret = broken_pipe(iocb);
			break;
		}
		if (room(pipe) >= whole) {
			ret = write_some(pipe, iocb, from, whole);
			if (ret < 0)
				break;
			written += ret;
			continue;
		}
		if (never_waits(iocb)) {
			ret = -EAGAIN;
			break;
		}
		ret = sluice_wait_until(pipe->writable,
					room(pipe) >= wanted || !READ_ONCE(pipe->readers));
		if (ret)
			break;
		waited = true;
	}

	if (waited && is_writable(pipe))
		sluice_wait_wake_one(&pipe->writable, EPOLLOUT | EPOLLWRNORM);
	return written ?: ret;
}

static __poll_t pipe_poll(struct file *file, poll_table *wait)
{
	struct endpoint *end = endpoint_of(file);
	struct sluice_pipe *pipe = end->pipe;
	__poll_t events = 0;

	if (file->f_mode & FMODE_READ)
		poll_wait(file, &pipe->readable, wait);
	if (file->f_mode & FMODE_WRITE)
		poll_wait(file, &pipe->writable, wait);
	/*
	 * Queue first, then look: the other half of wq_has_sleeper(), which poll_wait() has only
	 * lately.
	 */
	smp_mb();

	if (file->f_mode & FMODE_READ) {
		if (is_readable(pipe))
			events |= EPOLLIN | EPOLLRDNORM;
		if (!READ_ONCE(pipe->writers) &&
		    READ_ONCE(pipe->writers_joined) != end->writers_joined_before)
			events |= EPOLLHUP;
	}
	if (file->f_mode & FMODE_WRITE) {
		if (is_writable(pipe))
			events |= EPOLLOUT | EPOLLWRNORM;
		if (!READ_ONCE(pipe->readers))
			events |= EPOLLERR;
	}
	return events;
}

static long pipe_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	if (command == FIONREAD)
		return put_user((int)bytes_held(endpoint_of(file)->pipe),
				(int __user *)argument);
	return -ENOTTY;
}

static int pipe_fasync(int fd, struct file *file, int on)
{
	struct sluice_pipe *pipe = endpoint_of(file)->pipe;
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

static struct sluice_pipe *pipe_create(struct sluice_scope *scope)
{
	struct sluice_pipe *pipe = kmem_cache_alloc(pipe_cache, GFP_KERNEL);

	if (!pipe)
		return NULL;
	pipe->slots = kcalloc(DEFAULT_SLOTS, sizeof(*pipe->slots), GFP_KERNEL_ACCOUNT);
	if (!pipe->slots) {
		kmem_cache_free(pipe_cache, pipe);
		return NULL;
	}
	pipe->slot_count = DEFAULT_SLOTS;
	pipe->scope = scope;
	pipe->payer = get_mem_cgroup_from_mm(current->mm);
	refcount_set(&pipe->refs, 1);
	pipe->readers = 0;
	pipe->writers = 0;
	pipe->readers_joined = 0;
	pipe->writers_joined = 0;
	pipe->readers_async = NULL;
	pipe->writers_async = NULL;
	pipe->head = 0;
	pipe->head_seen = 0;
	pipe->tail = 0;
	pipe->tail_seen = 0;
	return pipe;
}

static void pipe_free(struct sluice_pipe *pipe)
{
	unsigned long i;

	for (i = 0; i < pipe->slot_count; i++)
		if (pipe->slots[i])
			__free_page(pipe->slots[i]);
	kfree(pipe->slots);
	mem_cgroup_put(pipe->payer);
	kmem_cache_free(pipe_cache, pipe);
}

/* The scope's pipe with a reference, or NULL; @fresh takes the place if there is none. */
static struct sluice_pipe *find_or_set(struct sluice_scope *scope, struct sluice_pipe *fresh)
{
	struct sluice_pipe *pipe;

	spin_lock(&scope->lock);
	pipe = scope->pipe;
	if (pipe)
		refcount_inc(&pipe->refs);
	else
		scope->pipe = fresh;
	spin_unlock(&scope->lock);
	return pipe ?: fresh;
}

/* The pipe of the caller's scope, made if need be. */
static struct sluice_pipe *pipe_get_self(void)
{
	struct sluice_scope *scope = sluice_scope_get_self();
	struct sluice_pipe *pipe, *fresh;

	if (IS_ERR(scope))
		return ERR_CAST(scope);
	pipe = find_or_set(scope, NULL);
	if (pipe)
		goto put_scope;

	fresh = pipe_create(scope);
	if (!fresh) {
		pipe = ERR_PTR(-ENOMEM);
		goto put_scope;
	}
	pipe = find_or_set(scope, fresh);
	if (pipe == fresh)
		return pipe;	/* it keeps our reference to the scope */
	pipe_free(fresh);
put_scope:
	sluice_scope_put(scope);
	return pipe;
}

static void pipe_put(struct sluice_pipe *pipe)
{
	struct sluice_scope *scope = pipe->scope;

	bool last;

	spin_lock(&scope->lock);
	last = refcount_dec_and_test(&pipe->refs);
	if (last)
		scope->pipe = NULL;
	spin_unlock(&scope->lock);
	if (!last)
		return;
	pipe_free(pipe);
	sluice_scope_put(scope);
}

/*
 * Counts an endpoint out. When that leaves one side alone, all of it have to look: readers find the
 * end of the file, writers a broken pipe. Otherwise nobody is woken, for a sleeper that wakes for
 * nothing loses its place in the queue.
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

	sluice_wait_wake_all(&pipe->readable);
	sluice_wait_wake_all(&pipe->writable);
	kill_fasync(&pipe->readers_async, SIGIO, POLL_IN);
	kill_fasync(&pipe->writers_async, SIGIO, POLL_OUT);
}

/*
 * Counts an endpoint in and, unless @nonblock, waits until the other side has been there. That it
 * has been is enough: a reader that came and went lets a waiting writer go, which then learns of
 * the broken pipe by writing.
 */
static int join(struct endpoint *end, fmode_t mode, bool nonblock)
{
	struct sluice_pipe *pipe = end->pipe;
	unsigned int *joined = mode & FMODE_READ ? &pipe->writers_joined : &pipe->readers_joined;
	unsigned int joined_before;
	bool alone;

	spin_lock(&pipe->lock);
	if (nonblock && !(mode & FMODE_READ) && !pipe->readers) {
		spin_unlock(&pipe->lock);
		return -ENXIO;
	}
	if (mode & FMODE_READ) {
		WRITE_ONCE(pipe->readers, pipe->readers + 1);
		WRITE_ONCE(pipe->readers_joined, pipe->readers_joined + 1);
	}
	if (mode & FMODE_WRITE) {
		WRITE_ONCE(pipe->writers, pipe->writers + 1);
		WRITE_ONCE(pipe->writers_joined, pipe->writers_joined + 1);
	}
	alone = !pipe->readers || !pipe->writers;
	joined_before = *joined;
	end->writers_joined_before = pipe->writers_joined - !(alone && nonblock);
	spin_unlock(&pipe->lock);
	sluice_wait_wake_all(&pipe->partners);

	if (!alone || nonblock)
		return 0;
	if (wait_event_interruptible(pipe->partners, READ_ONCE(*joined) != joined_before)) {
		leave(pipe, mode);
		return -ERESTARTSYS;
	}
	return 0;
}

static int pipe_open(struct inode *inode, struct file *file)
{
	struct endpoint *end;
	int err;

	if (!(file->f_mode & (FMODE_READ | FMODE_WRITE)))
		return -EINVAL;

	end = kmalloc(sizeof(*end), GFP_KERNEL_ACCOUNT);
	if (!end)
		return -ENOMEM;
	end->pipe = pipe_get_self();
	if (IS_ERR(end->pipe)) {
		err = PTR_ERR(end->pipe);
		goto free_end;
	}
	err = join(end, file->f_mode, file->f_flags & O_NONBLOCK);
	if (err)
		goto put_pipe;

	file->private_data = end;
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(inode, file);

put_pipe:
	pipe_put(end->pipe);
free_end:
	kfree(end);
	return err;
}

static int pipe_release(struct inode *inode, struct file *file)
{
	struct endpoint *end = endpoint_of(file);

	leave(end->pipe, file->f_mode);
	pipe_put(end->pipe);
	kfree(end);
	return 0;
}

const struct file_operations sluice_pipe_fops = {
	.owner		= THIS_MODULE,
	.open		= pipe_open,
	.release	= pipe_release,
	.read_iter	= pipe_read_iter,
	.write_iter	= pipe_write_iter,
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
	init_waitqueue_head(&pipe->partners);
	init_waitqueue_head(&pipe->readable);
	init_waitqueue_head(&pipe->writable);
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
