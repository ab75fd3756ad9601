/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The differences between the supported kernels, and nothing else. No other file uses
 * LINUX_VERSION_CODE: the rest of the module uses the newest interface, and this header defines it
 * for older kernels.
 */
#ifndef SLUICE_COMPAT_H
#define SLUICE_COMPAT_H

#include <linux/anon_inodes.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/version.h>

/* Kconfig has no effect outside of the kernel tree. */
#if !defined(CONFIG_64BIT) || !defined(CONFIG_MMU) || !defined(CONFIG_NET) || \
	!defined(CONFIG_CGROUPS) || !defined(CONFIG_MEMCG) || \
	!defined(CONFIG_SOCK_CGROUP_DATA) || !defined(CONFIG_TRACEPOINTS) || \
	!defined(CONFIG_IRQ_WORK) || defined(CONFIG_CPU_CACHE_ALIASING)
#error "This kernel lacks an option that Sluice depends on; kernel/Kconfig lists them"
#endif

/* Since 6.4 class_create() has no owner parameter. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
#define sluice_compat_class_create(name) class_create(THIS_MODULE, name)
#else
#define sluice_compat_class_create(name) class_create(name)
#endif

/* Since 6.2 the device of devnode() is const. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define SLUICE_COMPAT_DEVNODE_CONST
#else
#define SLUICE_COMPAT_DEVNODE_CONST const
#endif

/* Since 6.13 an hrtimer gets its function when it is set up. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
/**
 * hrtimer_setup() - initialises a timer with its function
 * @timer: the timer
 * @function: what the timer calls when it expires
 * @clock: CLOCK_*
 * @mode: HRTIMER_MODE_*
 */
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* Since 6.8 modules can create an anonymous file with an inode of its own. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
/**
 * anon_inode_create_getfile() - a new anonymous file, with the inode that all of them share
 * @name: of the file, in /proc/PID/fd
 * @fops: its operations
 * @data: its private_data
 * @flags: O_*
 * @context: unused
 *
 * Return: the file, or an error.
 */
static inline struct file *
anon_inode_create_getfile(const char *name, const struct file_operations *fops, void *data,
			  int flags, const struct inode *context)
{
	return anon_inode_getfile(name, fops, data, flags);
}
#endif

/* Since 6.3 vm_flags is only changed by functions. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
/**
 * vm_flags_set() - sets flags of a mapping
 * @vma: the mapping
 * @flags: VM_*, to set
 */
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

/**
 * vm_flags_clear() - clears flags of a mapping
 * @vma: the mapping
 * @flags: VM_*, to clear
 */
static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* Since 6.9, and in some stable kernels, for variables that a kernel need not clear. */
#ifndef __uninitialized
#define __uninitialized
#endif

/* Since 6.2 call_rcu() may be late by seconds, and this is not. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define call_rcu_hurry call_rcu
#endif

/* Since 6.18 the unbound workqueue of the system has this name. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
#define system_dfl_wq system_unbound_wq
#endif

/* Since 6.7 the attributes of a dump are in its struct genl_info. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
#define sluice_compat_dump_attrs(cb) (genl_dumpit_info(cb)->attrs)
#else
#define sluice_compat_dump_attrs(cb) (genl_dumpit_info(cb)->info.attrs)
#endif

/**
 * sluice_compat_poll_queues() - tests whether a poll queues itself
 * @table: of the poll, or NULL
 *
 * Newer kernels lack poll_does_not_wait().
 *
 * Return: true if it does.
 */
static inline bool sluice_compat_poll_queues(const poll_table *table)
{
	return table && table->_qproc;
}

/* A write without SIGPIPE (RWF_NOSIGNAL), which older kernels lack. */
#ifndef IOCB_NOSIGNAL
#define IOCB_NOSIGNAL 0
#endif

#endif
