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

extern const struct file_operations sluice_ctl_fops;

#endif
