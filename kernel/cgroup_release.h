/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The removal of a cgroup frees its persistent channels.
 *
 * The kernel has no hook for modules, but a tracepoint. Its probe runs with preemption off and
 * under locks of the kernel, so all that it does is to look up the scope (under a raw lock, see
 * scope.c) and to hand it, with a reference, to a work. A cgroup without a scope costs one look-up.
 */
#ifndef SLUICE_CGROUP_RELEASE_H
#define SLUICE_CGROUP_RELEASE_H

int sluice_cgroup_release_init(void);
void sluice_cgroup_release_exit(void);

#endif
