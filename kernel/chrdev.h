/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The nodes in /dev/sluice: ctl, and one for each kind that has a node.
 *
 * They are minors of one character device of our own. Misc devices would not do: misc_open() holds
 * a mutex of the whole system across ->open, and the open of a pipe waits for its other side.
 *
 * All nodes are open to all (0666), as /dev/null is: the cgroup decides who meets whom, and an
 * administrator who wants fewer users changes the mode with udev.
 */
#ifndef SLUICE_CHRDEV_H
#define SLUICE_CHRDEV_H

int sluice_chrdev_init(void);
void sluice_chrdev_exit(void);

#endif
