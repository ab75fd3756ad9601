/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An endpoint: an open file of a channel, or a handle of a netlink socket. The kind embeds this
 * structure in its own, which is the file's private_data.
 *
 * Life: an open creates it, finds or creates the channel, and calls the kind's attach(), which may
 * block as open(2) does on a FIFO. The release of the file, or the end of the handle, detaches it
 * and puts the channel. Its memory is freed after an RCU grace period, for wake-ups that find it
 * without a lock. The channel is looked up only at open, so a process that moves to another cgroup
 * keeps its endpoint.
 */
#ifndef SLUICE_ENDPOINT_H
#define SLUICE_ENDPOINT_H

#include <linux/fs.h>
#include <linux/types.h>

struct sluice_channel;
struct sluice_channel_request;
struct sluice_kind;
struct sluice_scope_access;

struct sluice_endpoint {
	struct sluice_channel *channel;
	u32 flags;			/* SLUICE_OPEN_READ, _WRITE and _NONBLOCK, as opened */
	struct rcu_head rcu;
};

/* Returns a new endpoint of the requested channel (@created), or an error of the open. */
struct sluice_endpoint *sluice_endpoint_create(const struct sluice_channel_request *request,
					       bool *created);
/* Ends an endpoint without a file. A worker frees the channel, if this was its last one. */
void sluice_endpoint_close_deferred(struct sluice_endpoint *endpoint);

/* As sluice_endpoint_create(), with a file. */
struct file *sluice_endpoint_create_file(const struct sluice_channel_request *request);

/*
 * For a kind with a node: opens the default channel of @kind in a scope for @file. @flags:
 * additional SLUICE_OPEN_*. Puts the scope.
 */
int sluice_endpoint_open_default(struct file *file, const struct sluice_kind *kind,
				 const struct sluice_scope_access *access, u32 flags);

/* For a kind's fops: the default channel of the caller's scope, created if necessary. */
int sluice_endpoint_open(struct inode *inode, struct file *file);
int sluice_endpoint_release(struct inode *inode, struct file *file);
/* The ioctls of all kinds. -ENOTTY: it is none of them. */
long sluice_endpoint_ioctl(struct file *file, unsigned int command, void __user *user);

#endif
