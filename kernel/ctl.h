/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/sluice/ctl: the ioctls for channels by name.
 *
 * Life: an open file of it has no state and no reference, and grants nothing. Each ioctl is checked
 * against its caller.
 */
#ifndef SLUICE_CTL_H
#define SLUICE_CTL_H

#include <linux/fs.h>

struct sluice_channel;
struct sluice_channel_info;
struct sluice_channel_key;
struct sluice_kind;
struct sluice_scope_access;

extern const struct file_operations sluice_ctl_fops;

/**
 * sluice_ctl_parse_name() - makes a key of a kind and a name
 * @key: out: the key
 * @kind: the number of the kind
 * @name: the name, SLUICE_NAME_SIZE bytes, padded with zeros
 *
 * Return: 0; -EINVAL: there is no such kind, or the name is invalid.
 */
int sluice_ctl_parse_name(struct sluice_channel_key *key, u32 kind, const u8 *name);
/**
 * sluice_ctl_access_scope() - finds or creates the scope of a scope_fd
 * @access: out: the scope with a reference, and the caller's permissions
 * @fd: SLUICE_SCOPE_SELF, SLUICE_SCOPE_ROOT, or a descriptor of a cgroup's directory
 *
 * Return: 0, or an error of the sluice_scope_access_*() for @fd (scope.h).
 */
int sluice_ctl_access_scope(struct sluice_scope_access *access, int fd);
/**
 * sluice_ctl_write_info() - writes the state of a channel to the user
 * @channel: the channel
 * @user: the user's structure, whose first word is its size
 *
 * Return: 0, -EFAULT; -EINVAL: the user's structure is too small; -E2BIG: it is larger than a page.
 */
int sluice_ctl_write_info(struct sluice_channel *channel, struct sluice_channel_info __user *user);
/**
 * sluice_ctl_are_open_flags() - tests the flags of an open
 * @kind: the kind of the channel
 * @flags: SLUICE_OPEN_*
 *
 * Return: true if an open of this kind may have these flags.
 */
bool sluice_ctl_are_open_flags(const struct sluice_kind *kind, u32 flags);

#endif
