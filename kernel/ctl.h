/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/sluice/ctl: channels by name. It holds nothing: an open file of it is only the way to the
 * ioctls, each of which judges its own caller.
 */
#ifndef SLUICE_CTL_H
#define SLUICE_CTL_H

int sluice_ctl_init(void);
void sluice_ctl_exit(void);

#endif
