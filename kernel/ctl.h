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

/* A key of this kind and name, of SLUICE_NAME_SIZE bytes. 0, -EINVAL. */
int sluice_ctl_parse_name(struct sluice_channel_key *key, u32 kind, const u8 *name);
/* The scope of a scope_fd, see scope.h. */
int sluice_ctl_access_scope(struct sluice_scope_access *access, int fd);
/* Writes the state of a channel. 0, -EFAULT, -EINVAL, -E2BIG. */
int sluice_ctl_write_info(struct sluice_channel *channel, struct sluice_channel_info __user *user);
/* Whether an open of this kind may have these SLUICE_OPEN_*. */
bool sluice_ctl_are_open_flags(const struct sluice_kind *kind, u32 flags);

#endif
