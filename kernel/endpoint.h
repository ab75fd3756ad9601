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
struct seq_file;

struct sluice_endpoint {
	struct sluice_channel *channel;
	u32 flags;			/* SLUICE_OPEN_READ, _WRITE and _NONBLOCK, as opened */
	struct rcu_head rcu;
};

/**
 * sluice_endpoint_create() - opens a channel without a file
 * @request: the parameters of the open
 * @created: out: whether the open created the channel; valid if there is no error
 *
 * A failed open removes the channel that it created, unless another open uses it or has made it
 * persistent.
 *
 * Context: may sleep; blocks as long as the kind's attach() does.
 * Return: the new endpoint, or the error of the open as an error pointer.
 */
struct sluice_endpoint *sluice_endpoint_create(const struct sluice_channel_request *request,
					       bool *created);
/**
 * sluice_endpoint_close_deferred() - ends an endpoint without a file
 * @endpoint: the endpoint
 *
 * A worker frees the channel, if this was its last reference.
 */
void sluice_endpoint_close_deferred(struct sluice_endpoint *endpoint);

/**
 * sluice_endpoint_create_file() - opens a channel with a file
 * @request: the parameters of the open
 *
 * Context: may sleep; blocks as long as the kind's attach() does.
 * Return: the new file, or the error of the open as an error pointer.
 */
struct file *sluice_endpoint_create_file(const struct sluice_channel_request *request);

/**
 * sluice_endpoint_open_default() - opens the default channel of a kind with a node
 * @file: the file of the node; its mode and O_NONBLOCK become flags of the open
 * @kind: the kind
 * @access: the scope and the caller's permissions; the caller keeps the reference
 * @flags: additional SLUICE_OPEN_*
 *
 * Return: 0, or the error of the open.
 */
int sluice_endpoint_open_default(struct file *file, const struct sluice_kind *kind,
				 const struct sluice_scope_access *access, u32 flags);

/**
 * sluice_endpoint_open() - opens the default channel of the caller's scope, for a kind's fops
 * @inode: the node, whose minor is the number of the kind
 * @file: the file of the node
 *
 * The channel is created if necessary.
 *
 * Return: 0; -EINVAL: @file is open neither for reading nor for writing; an error of
 * sluice_scope_access_self(), or the error of the open.
 */
int sluice_endpoint_open(struct inode *inode, struct file *file);
/**
 * sluice_endpoint_release() - ends the endpoint of a file, for a kind's fops
 * @inode: unused
 * @file: the file
 *
 * Return: 0.
 */
int sluice_endpoint_release(struct inode *inode, struct file *file);
/**
 * sluice_endpoint_ioctl() - the ioctls of all kinds
 * @file: the file of the endpoint
 * @command: the command, whose number alone is compared
 * @user: the argument
 *
 * Return: 0; -ENOTTY: the command is not an ioctl of all kinds; an error of
 * sluice_ctl_write_info().
 */
long sluice_endpoint_ioctl(struct file *file, unsigned int command, void __user *user);
/**
 * sluice_endpoint_show_fdinfo() - the lines of an endpoint of any kind in /proc/PID/fdinfo
 * @seq: where they are printed
 * @file: the endpoint
 */
void sluice_endpoint_show_fdinfo(struct seq_file *seq, struct file *file);

#endif
