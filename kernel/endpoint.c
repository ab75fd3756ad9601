// SPDX-License-Identifier: GPL-2.0
#include <linux/anon_inodes.h>
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string_helpers.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "compat.h"
#include "ctl.h"
#include "endpoint.h"
#include "kind.h"
#include "scope.h"

#define ENDPOINT_FLAGS (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_NONBLOCK)

/*
 * Closes the channel after a failed open and returns the error of the open. A call with EXCL must
 * not be restarted by a signal if the name remains: it would find the channel that it created.
 */
static int close_channel(struct sluice_channel *channel, u32 flags, bool created, int err)
{
	if (!created) {
		/* The others may have closed it meanwhile. */
		sluice_channel_close_deferred(channel);
		return err;
	}
	if (!sluice_channel_abandon(channel) || !(flags & SLUICE_OPEN_EXCL))
		return err;
	return err == -ERESTARTSYS ? -EINTR : err;
}

struct sluice_endpoint *sluice_endpoint_create(const struct sluice_channel_request *request,
					       bool *created)
{
	const struct sluice_kind *kind = request->kind;
	struct sluice_endpoint *endpoint = kzalloc(kind->endpoint_size, request->gfp);
	int err;

	if (!endpoint)
		return ERR_PTR(-ENOMEM);
	endpoint->flags = request->flags & ENDPOINT_FLAGS;
	endpoint->channel = sluice_channel_open(request, created);
	if (IS_ERR(endpoint->channel)) {
		err = PTR_ERR(endpoint->channel);
		goto free_endpoint;
	}
	err = kind->attach(endpoint, request->params);
	if (!err)
		return endpoint;
	err = close_channel(endpoint->channel, request->flags, *created, err);
free_endpoint:
	kfree(endpoint);
	return ERR_PTR(err);
}

void sluice_endpoint_close_deferred(struct sluice_endpoint *endpoint)
{
	endpoint->channel->kind->detach(endpoint);
	sluice_channel_close_deferred(endpoint->channel);
	kfree_rcu(endpoint, rcu);
}

static int file_flags(const struct sluice_kind *kind, u32 flags)
{
	int nonblock = flags & SLUICE_OPEN_NONBLOCK ? O_NONBLOCK : 0;

	if (kind->is_mapped)
		return O_RDWR | nonblock;
	if (!(flags & SLUICE_OPEN_WRITE))
		return O_RDONLY | nonblock;
	return (flags & SLUICE_OPEN_READ ? O_RDWR : O_WRONLY) | nonblock;
}

/* Makes the file a stream that supports RWF_NOWAIT and io_uring. */
static int set_up_file(struct file *file, struct sluice_endpoint *endpoint)
{
	file->private_data = endpoint;
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(file_inode(file), file);
}

struct file *sluice_endpoint_create_file(const struct sluice_channel_request *request)
{
	const struct sluice_kind *kind = request->kind;
	struct sluice_endpoint *endpoint;
	struct file *file;
	bool created;

	/*
	 * With an inode of its own a security module can label the endpoint, and its mappings do
	 * not share the tree and the lock of all anonymous files. The file is created before the
	 * endpoint, so that an open that a security module refuses has no effect on the channel.
	 */
	file = anon_inode_create_getfile(kind->file_name, kind->fops, NULL,
					 file_flags(kind, request->flags), NULL);
	if (IS_ERR(file))
		return file;
	endpoint = sluice_endpoint_create(request, &created);
	if (IS_ERR(endpoint)) {
		fput(file);
		return ERR_CAST(endpoint);
	}
	set_up_file(file, endpoint);
	return file;
}

static u32 open_flags(const struct file *file)
{
	return (file->f_mode & FMODE_READ ? SLUICE_OPEN_READ : 0) |
	       (file->f_mode & FMODE_WRITE ? SLUICE_OPEN_WRITE : 0) |
	       (file->f_flags & O_NONBLOCK ? SLUICE_OPEN_NONBLOCK : 0);
}

int sluice_endpoint_open_default(struct file *file, const struct sluice_kind *kind,
				 const struct sluice_scope_access *access, u32 flags)
{
	struct sluice_channel_request request = {
		.kind = kind,
		.access = *access,
		.key.kind = kind->number,
		.flags = open_flags(file) | flags,
		.mode = kind->node_mode,
		.gfp = SLUICE_QUOTA_GFP,
	};
	struct sluice_endpoint *endpoint;
	bool created;

	endpoint = sluice_endpoint_create(&request, &created);
	return IS_ERR(endpoint) ? PTR_ERR(endpoint) : set_up_file(file, endpoint);
}

int sluice_endpoint_open(struct inode *inode, struct file *file)
{
	struct sluice_scope_access access;
	int err;

	if (!(file->f_mode & (FMODE_READ | FMODE_WRITE)))
		return -EINVAL;
	err = sluice_scope_access_self(&access);
	if (err)
		return err;
	err = sluice_endpoint_open_default(file, sluice_kind_find(iminor(inode)), &access,
					   SLUICE_OPEN_CREATE);
	sluice_scope_put(access.scope);
	return err;
}

int sluice_endpoint_release(struct inode *inode, struct file *file)
{
	struct sluice_endpoint *endpoint = file->private_data;
	struct sluice_channel *channel;

	if (!endpoint)	/* the open has failed */
		return 0;
	channel = endpoint->channel;
	channel->kind->detach(endpoint);
	sluice_channel_close(channel);
	kfree_rcu(endpoint, rcu);
	return 0;
}

long sluice_endpoint_ioctl(struct file *file, unsigned int command, void __user *user)
{
	struct sluice_endpoint *endpoint = file->private_data;

	if (_IOC_NR(command) != _IOC_NR(SLUICE_ENDPOINT_INFO))
		return -ENOTTY;
	return sluice_ctl_write_info(endpoint->channel, user);
}

void sluice_endpoint_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct sluice_endpoint *endpoint = file->private_data;
	struct sluice_channel *channel = endpoint->channel;
	struct sluice_channel_info info = {};

	channel->kind->fill_info(channel, &info);
	seq_printf(seq, "sluice-kind:\t%s\nsluice-name:\t", channel->kind->name);
	seq_escape_str(seq, channel->key.name, ESCAPE_OCTAL | ESCAPE_NAP | ESCAPE_APPEND, "\\");
	seq_printf(seq, "\nsluice-access:\t%s%s", endpoint->flags & SLUICE_OPEN_READ ? "r" : "",
		   endpoint->flags & SLUICE_OPEN_WRITE ? "w" : "");
	seq_printf(seq, "\nsluice-cgroup:\t%llu\nsluice-uid:\t%u\n",
		   cgroup_id(channel->scope->cgroup),
		   from_kuid_munged(seq_user_ns(seq), channel->uid));
	seq_printf(seq, "sluice-readers:\t%u\nsluice-writers:\t%u\n", info.readers, info.writers);
	seq_printf(seq, "sluice-capacity:\t%llu\nsluice-bytes:\t%llu\n", info.capacity, info.bytes);
}
