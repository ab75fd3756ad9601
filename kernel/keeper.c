// SPDX-License-Identifier: GPL-2.0
/*
 * The descriptor of the keeper: messages by read(2), answers by calls. There is one at a time, so
 * its state is in this file.
 *
 * All reads and calls take the keeper's mutex, which no other process ever waits for: while they
 * copy, what they copy is not freed, because only they free it. A new map is created without it.
 */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/uio.h>

#include "compat.h"
#include "map.h"
#include "stream.h"
#include "user_struct.h"

static DEFINE_MUTEX(keeper_mutex);	/* reads and calls */
static DEFINE_MUTEX(begin_mutex);	/* the beginning and the end of a keeper */

/* ---- read ---- */

/* 0, -EMSGSIZE: it does not fit, -EFAULT. */
static int keeper_copy_message(const struct sluice_stream_message *message, struct iov_iter *to)
{
	const struct sluice_keep_message *header = &message->header;
	size_t length = sizeof(*header) + header->key_length + header->value_length;
	size_t padding = header->size - length;

	if (header->size > iov_iter_count(to))
		return -EMSGSIZE;
	if (copy_to_iter(header, sizeof(*header), to) != sizeof(*header) ||
	    copy_to_iter(message->key, header->key_length, to) != header->key_length ||
	    copy_to_iter(message->value, header->value_length, to) != header->value_length ||
	    iov_iter_zero(padding, to) != padding)
		return -EFAULT;
	return 0;
}

/* Its size; or -EAGAIN: there is none, -EMSGSIZE, -EFAULT. */
static ssize_t read_message(struct iov_iter *to)
{
	size_t before = iov_iter_count(to);
	struct sluice_stream_message message;
	ssize_t size;
	int err;

	if (!sluice_stream_next_message(&message))
		return -EAGAIN;
	err = keeper_copy_message(&message, to);
	size = message.header.size;
	sluice_stream_end_message(&message, !err);
	if (!err)
		return size;
	iov_iter_revert(to, before - iov_iter_count(to));
	return err;
}

static ssize_t read_messages(struct iov_iter *to)
{
	ssize_t total = 0, ret;

	do {
		ret = read_message(to);
		if (ret > 0)
			total += ret;
		cond_resched();
	} while (ret > 0 && iov_iter_count(to) && !signal_pending(current));
	return total ?: ret;
}

/* 0, -EAGAIN, -ERESTARTSYS. */
static int lock_for_read(const struct kiocb *iocb)
{
	if (iocb->ki_flags & IOCB_NOWAIT)
		return mutex_trylock(&keeper_mutex) ? 0 : -EAGAIN;
	return sluice_wait_for_mutex(&keeper_mutex);
}

static ssize_t keeper_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	bool nowait = iocb->ki_flags & IOCB_NOWAIT || iocb->ki_filp->f_flags & O_NONBLOCK;
	ssize_t ret;

	if (!iov_iter_count(to))
		return 0;
	for (;;) {
		ret = lock_for_read(iocb);
		if (ret)
			return ret;
		ret = read_messages(to);
		mutex_unlock(&keeper_mutex);
		if (ret != -EAGAIN || nowait)
			return ret;
		ret = wait_event_interruptible(sluice_stream_ready_wait,
					       sluice_streams_have_message());
		if (ret)
			return ret;
	}
}

static __poll_t keeper_poll(struct file *file, poll_table *table)
{
	poll_wait(file, &sluice_stream_ready_wait, table);
	smp_mb();	/* with wq_has_sleeper() in sluice_stream_wake_keeper() */
	return sluice_streams_have_message() ? EPOLLIN | EPOLLRDNORM : 0;
}

/* ---- calls ---- */

/* Takes the mutex itself: the pages of a large table would delay the other calls. */
static long keeper_create(struct sluice_keep_create __user *user)
{
	struct sluice_keep_create create;
	struct sluice_keep_map map;
	long ret;

	ret = sluice_user_struct_read(&create, sizeof(create), SLUICE_KEEP_CREATE_SIZE_VER0, user);
	if (!ret)
		ret = sluice_user_struct_read(&map, sizeof(map), SLUICE_KEEP_MAP_SIZE_VER0,
					      u64_to_user_ptr(create.map));
	/* Nothing is created whose number cannot be written. */
	if (!ret && put_user(create.stream, &user->stream))
		ret = -EFAULT;
	if (!ret)
		ret = sluice_map_begin_restoring(&create, &map, &keeper_mutex);
	return ret ?: put_user(create.stream, &user->stream);
}

/* As sluice_map_restore(), with the user's entry. */
static int restore_entry(struct sluice_map *map, const struct sluice_keep_restore *restore, u32 i)
{
	u8 __user *user = u64_to_user_ptr(restore->entries);
	struct sluice_keep_entry entry;
	int err;

	err = copy_struct_from_user(&entry, sizeof(entry), user + (u64)i * restore->entry_size,
				    restore->entry_size);
	return err ?: sluice_map_restore(map, &entry);
}

/* 0, or why no further entry is restored. */
static int may_restore(struct sluice_stream *stream)
{
	if (sluice_stream_state(stream) == SLUICE_STREAM_RESTORING)
		return signal_pending(current) ? -EINTR : 0;
	return sluice_stream_has_ended(stream) ? -ENOENT : -EINVAL;
}

/* Those restored, or the error of the first. */
static int restore_entries(struct sluice_stream *stream, const struct sluice_keep_restore *restore)
{
	u32 count = min_t(u32, restore->count, SLUICE_KEEP_RESTORE_MAX), done = 0;
	int err = may_restore(stream);

	while (!err && done < count) {
		err = restore_entry(stream->map, restore, done);
		if (err)
			break;
		done++;
		cond_resched();
		err = may_restore(stream);
	}
	return done ?: err;
}

static long keeper_restore(struct sluice_keep_restore __user *user)
{
	struct sluice_keep_restore restore;
	struct sluice_stream *stream;
	long ret;

	ret = sluice_user_struct_read(&restore, sizeof(restore), SLUICE_KEEP_RESTORE_SIZE_VER0,
				      user);
	if (ret)
		return ret;
	if (restore.reserved ||
	    !sluice_user_is_entry_size(restore.entry_size, SLUICE_KEEP_ENTRY_SIZE_VER0))
		return -EINVAL;
	stream = sluice_stream_get(restore.stream);
	if (!stream)
		return -ENOENT;
	ret = restore_entries(stream, &restore);
	sluice_stream_put(stream);
	return ret < 0 ? ret : put_user((u32)ret, &user->count);
}

/* Whether it can be an errno, or none. */
static bool is_errno(u32 error)
{
	return error <= MAX_ERRNO;
}

static long keeper_ready(struct sluice_keep_ready __user *user)
{
	struct sluice_keep_ready ready;
	struct sluice_stream *stream;
	long ret;

	ret = sluice_user_struct_read(&ready, sizeof(ready), SLUICE_KEEP_READY_SIZE_VER0, user);
	if (ret)
		return ret;
	if (!is_errno(ready.error))
		return -EINVAL;
	stream = sluice_stream_get(ready.stream);
	if (!stream)
		return -ENOENT;
	ret = sluice_stream_ready(stream, -(int)ready.error);
	sluice_stream_put(stream);
	return ret;
}

static long keeper_acknowledge(struct sluice_keep_ack __user *user)
{
	struct sluice_stream *stream;
	struct sluice_keep_ack ack;
	long ret;

	ret = sluice_user_struct_read(&ack, sizeof(ack), SLUICE_KEEP_ACK_SIZE_VER0, user);
	if (ret)
		return ret;
	if (!is_errno(ack.error))
		return -EINVAL;
	stream = sluice_stream_get(ack.stream);
	if (!stream)
		return -ENOENT;
	ret = sluice_stream_acknowledge(stream, ack.sequence, ack.limit, -(int)ack.error);
	sluice_stream_put(stream);
	return ret;
}

static long end_stream(struct sluice_stream *stream, const struct sluice_keep_end *end)
{
	if (end->flags & SLUICE_KEEP_UNLINKED)
		return sluice_stream_unlinked(stream, -(int)end->error);
	return end->error ? -EINVAL : sluice_stream_detach(stream);
}

static long keeper_end(struct sluice_keep_end __user *user)
{
	struct sluice_stream *stream;
	struct sluice_keep_end end;
	long ret;

	ret = sluice_user_struct_read(&end, sizeof(end), SLUICE_KEEP_END_SIZE_VER0, user);
	if (ret)
		return ret;
	if (end.reserved || end.flags & ~SLUICE_KEEP_UNLINKED || !is_errno(end.error))
		return -EINVAL;
	stream = sluice_stream_get(end.stream);
	if (!stream)
		return -ENOENT;
	ret = end_stream(stream, &end);
	sluice_stream_put(stream);
	return ret;
}

static long call(unsigned int number, void __user *user)
{
	switch (number) {
	case _IOC_NR(SLUICE_KEEP_RESTORE):
		return keeper_restore(user);
	case _IOC_NR(SLUICE_KEEP_READY):
		return keeper_ready(user);
	case _IOC_NR(SLUICE_KEEP_ACK):
		return keeper_acknowledge(user);
	case _IOC_NR(SLUICE_KEEP_END):
		return keeper_end(user);
	default:
		return -ENOTTY;
	}
}

static long keeper_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	long ret;

	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;
	if (_IOC_NR(command) == _IOC_NR(SLUICE_KEEP_CREATE))
		return keeper_create((void __user *)argument);
	ret = sluice_wait_for_mutex(&keeper_mutex);
	if (ret)
		return ret;
	ret = call(_IOC_NR(command), (void __user *)argument);
	mutex_unlock(&keeper_mutex);
	return ret;
}

/* ---- beginning and end ---- */

static int keeper_release(struct inode *inode, struct file *file)
{
	mutex_lock(&begin_mutex);
	sluice_streams_forget_keeper();
	mutex_unlock(&begin_mutex);
	return 0;
}

static const struct file_operations keeper_fops = {
	.owner		= THIS_MODULE,
	.release	= keeper_release,
	.read_iter	= keeper_read_iter,
	.poll		= keeper_poll,
	.unlocked_ioctl	= keeper_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/* Under begin_mutex. */
static struct file *keeper_begin(u32 flags)
{
	struct file *file;

	if (!sluice_streams_lack_keeper(0))
		return ERR_PTR(-EBUSY);
	file = anon_inode_create_getfile("[sluice-keeper]", &keeper_fops, NULL, O_RDONLY, NULL);
	if (IS_ERR(file))
		return file;
	file->f_mode |= FMODE_NOWAIT;
	stream_open(file_inode(file), file);
	sluice_streams_begin_keeper(flags);
	return file;
}

struct file *sluice_keeper_open(u32 flags)
{
	struct file *file;

	if (!capable(CAP_SYS_ADMIN))
		return ERR_PTR(-EPERM);
	if (mutex_lock_interruptible(&begin_mutex))
		return ERR_PTR(-ERESTARTSYS);
	file = keeper_begin(flags);
	mutex_unlock(&begin_mutex);
	return file;
}
