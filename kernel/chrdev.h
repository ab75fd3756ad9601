/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The nodes in /dev/sluice: ctl, and one for each kind that has a node.
 *
 * Life: they exist from init to exit of the module. They are minors of one character device. Misc
 * devices are unsuitable: misc_open() holds a system-wide mutex across ->open, and the open of a
 * pipe blocks until its other side is opened.
 *
 * ctl and the nodes of most kinds have mode 0666, as /dev/null has, because access follows from the
 * cgroup and from the mode of the channel. An administrator can restrict the mode with udev.
 */
#ifndef SLUICE_CHRDEV_H
#define SLUICE_CHRDEV_H

/**
 * sluice_chrdev_init() - creates the nodes, when the module is loaded
 *
 * Its last step permits opens; until then an open of a node fails with ENXIO.
 *
 * Return: 0, or a negative error; then there are no nodes.
 */
int sluice_chrdev_init(void);
/**
 * sluice_chrdev_exit() - removes the nodes, when no endpoint is open
 */
void sluice_chrdev_exit(void);

#endif
