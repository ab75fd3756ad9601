/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that Sluice builds on, and nothing else. No other file looks at
 * LINUX_VERSION_CODE: the rest of the module is written against the newest interface, and this
 * header gives older kernels its shape.
 */
#ifndef SLUICE_COMPAT_H
#define SLUICE_COMPAT_H

#include <linux/device.h>
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/version.h>

/* The class stopped naming its owner. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
#define sluice_compat_class_create(name) class_create(THIS_MODULE, name)
#else
#define sluice_compat_class_create(name) class_create(name)
#endif

/* devnode() promises not to change its device. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define SLUICE_COMPAT_DEVNODE_CONST
#else
#define SLUICE_COMPAT_DEVNODE_CONST const
#endif

/* Whether a poll queues itself; the kernel had poll_does_not_wait() for that. */
static inline bool sluice_compat_poll_queues(const poll_table *table)
{
	return table && table->_qproc;
}

/* A write that asked for no SIGPIPE (RWF_NOSIGNAL). */
#ifndef IOCB_NOSIGNAL
#define IOCB_NOSIGNAL 0
#endif

#endif
