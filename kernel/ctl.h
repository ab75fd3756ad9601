/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/sluice/ctl: channels by name. An open file of it holds nothing and grants nothing: it is the
 * way to the ioctls, each of which judges its own caller.
 */
#ifndef SLUICE_CTL_H
#define SLUICE_CTL_H

#include <linux/fs.h>

extern const struct file_operations sluice_ctl_fops;

#endif
