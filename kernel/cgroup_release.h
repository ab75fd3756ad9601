/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frees the persistent channels of a removed cgroup.
 *
 * Life: the probe exists from init to exit of the module. The only
 * interface for modules is a tracepoint. Its probe runs under locks of the kernel and, before 7.x,
 * with preemption off. It therefore only looks up the scope, under RCU, and
 * queues it, with a reference, for a work item, which frees the channels.
 */
#ifndef SLUICE_CGROUP_RELEASE_H
#define SLUICE_CGROUP_RELEASE_H

/**
 * sluice_cgroup_release_init() - registers the probe, when the module is loaded
 *
 * Return: 0; -EOPNOTSUPP: the kernel has no tracepoint cgroup_rmdir; an error of
 * tracepoint_probe_register().
 */
int sluice_cgroup_release_init(void);
/**
 * sluice_cgroup_release_exit() - unregisters the probe, when the module is unloaded
 *
 * Waits for probes that run, and for the work item.
 */
void sluice_cgroup_release_exit(void);

#endif
