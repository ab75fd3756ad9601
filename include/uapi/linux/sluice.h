/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface between Sluice's kernel module and its users: the only definition of it.
 *
 * Every structure starts with its own size, filled in by the caller, so that it can grow: a kernel
 * that knows less refuses what it does not know (E2BIG when the rest is not zero), a kernel that
 * knows more takes zero for what the caller did not know. Fields have one layout for 32 and 64 bit.
 * Reserved fields and unknown flags must be zero (EINVAL).
 */
#ifndef _UAPI_LINUX_SLUICE_H
#define _UAPI_LINUX_SLUICE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SLUICE_IOCTL_TYPE 0xC7

/* One number to set. In: size, flags (0), value. Out: the value that is now in force. */
struct sluice_setting {
	__u32 size;
	__u32 flags;
	__u64 value;
};

/*
 * The state of a pipe. In: size. Out: everything else. The counts since creation only grow; a
 * reader who wants a rate takes two samples.
 */
struct sluice_pipe_info {
	__u32 size;
	__u32 readers;			/* endpoints open for reading, waiting opens included */
	__u32 writers;			/* endpoints open for writing, waiting opens included */
	__u32 reserved;
	__u64 capacity;			/* bytes */
	__u64 bytes;			/* bytes written and not yet read */
	__u64 spin_limit_ns;		/* of this endpoint, see SLUICE_PIPE_SET_SPIN */
	__u64 pages_allocated;		/* since creation */
	__u64 pages_moved_in;		/* since creation: taken by splice without a copy */
	__u64 pages_moved_out;		/* since creation: given by splice without a copy */
};

/*
 * Sets the capacity in bytes, rounded up to a power of two of pages. EBUSY when the bytes held
 * would not fit, EPERM above the module's pipe_max_size without CAP_SYS_RESOURCE, EINVAL for 0 or
 * more than 1 GiB, ENOMEM.
 */
#define SLUICE_PIPE_SET_CAPACITY _IOWR(SLUICE_IOCTL_TYPE, 0x00, struct sluice_setting)

/*
 * Sets for how long, in nanoseconds, calls on this endpoint may spin before they sleep; 0 turns it
 * off. What exceeds the module's spin_limit_us is cut to it.
 */
#define SLUICE_PIPE_SET_SPIN _IOWR(SLUICE_IOCTL_TYPE, 0x01, struct sluice_setting)

/* Reads the state of the pipe. */
#define SLUICE_PIPE_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x02, struct sluice_pipe_info)

#endif
