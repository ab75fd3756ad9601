/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What becomes of persistent channels when their cgroup is removed: they go, without anyone
 * touching them.
 *
 * The kernel offers modules no call for this, but a tracepoint. It fires with interrupts off and
 * locks held, so all that is done there is to find the scope and to hand it, with a reference, to a
 * work. A cgroup without a scope costs one look-up.
 */
#ifndef SLUICE_CGROUP_RELEASE_H
#define SLUICE_CGROUP_RELEASE_H

int sluice_cgroup_release_init(void);
void sluice_cgroup_release_exit(void);

#endif
