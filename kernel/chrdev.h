/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/sluice/pipe, a character device of its own.
 *
 * Not a misc device: misc_open() holds a mutex of the whole system across ->open, and opening a
 * pipe waits for its other side; a single waiting reader would lock every program out of /dev/fuse.
 *
 * The node is open to all (0666), as /dev/null is: it is the cgroup that says who meets whom, and
 * an administrator who wants fewer guests changes the mode with udev.
 */
#ifndef SLUICE_CHRDEV_H
#define SLUICE_CHRDEV_H

int sluice_chrdev_init(void);
void sluice_chrdev_exit(void);

#endif
