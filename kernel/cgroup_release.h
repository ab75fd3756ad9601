/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frees the persistent channels of a removed cgroup.
 *
 * Life: the probe exists from init to exit of the module. The kernel has no hook for modules here,
 * but a tracepoint. Its probe runs with preemption off and under locks of the kernel. It therefore
 * only looks up the scope (under a raw lock, see scope.c) and queues it, with a reference, for a
 * work, which frees the channels. A cgroup without a scope costs one look-up.
 */
#ifndef SLUICE_CGROUP_RELEASE_H
#define SLUICE_CGROUP_RELEASE_H

int sluice_cgroup_release_init(void);
void sluice_cgroup_release_exit(void);

#endif
