/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The ABI of Sluice: the C form of the structures and numbers of docs/abi.md, which is normative
 * and defines the meaning of each field and each error.
 *
 * Every structure begins with its own size in bytes, filled in by the caller, so that it can grow.
 * The kernel accepts sizes from that of the first version (*_SIZE_VER0) to a page, otherwise
 * EINVAL. In: fields beyond the caller's size are zero; bytes beyond the kernel's size must be zero
 * (E2BIG); reserved fields and unknown flags must be zero (EINVAL). Out: the kernel reads only
 * size, fills in the smaller of both sizes and stores that number in size. Fields have the same
 * layout for 32 and 64 bit.
 *
 * The structures of /dev/sluice/ctl are common to all kinds. Parameters and state of one kind are a
 * structure of that kind, with its own size; a pointer field contains its address, and a null
 * pointer omits it.
 */
#ifndef _UAPI_LINUX_SLUICE_H
#define _UAPI_LINUX_SLUICE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SLUICE_IOCTL_TYPE 0xC7

/* One setting. In: size, flags (0), value. Out: the value in force. */
struct sluice_setting {
	__u32 size;
	__u32 flags;
	__u64 value;
};

#define SLUICE_SETTING_SIZE_VER0 16

/*
 * The state of a pipe. In: size. Out: all fields. The counts since creation never decrease; a rate
 * is the difference of two samples.
 */
struct sluice_pipe_info {
	__u32 size;
	__u32 readers;			/* endpoints open for reading, blocked opens included */
	__u32 writers;			/* endpoints open for writing, blocked opens included */
	__u32 reserved;
	__u64 capacity;			/* bytes */
	__u64 bytes;			/* bytes written and not yet read */
	__u64 spin_limit_ns;		/* of this endpoint (_SET_SPIN); 0 in SLUICE_CTL_INFO */
	__u64 pages_allocated;		/* since creation: pages allocated for bytes */
	__u64 pages_spliced_in;		/* since creation: moved in without a copy */
	__u64 pages_spliced_out;	/* since creation: moved out without a copy */
};

#define SLUICE_PIPE_INFO_SIZE_VER0 64

/*
 * Sets the capacity in bytes, rounded up to a power of two of pages. EBUSY: the pages that hold
 * bytes, or the pages moved out by splice and still in use, exceed it. EPERM: it exceeds the
 * module's pipe_max_size and the current capacity, without CAP_SYS_RESOURCE. EINVAL: 0, or more
 * than 1 GiB. ENOSPC, EDQUOT: a limit. EPIPE: destroyed. Also EINTR, ENOMEM.
 */
#define SLUICE_PIPE_SET_CAPACITY _IOWR(SLUICE_IOCTL_TYPE, 0x00, struct sluice_setting)

/*
 * Sets the time in nanoseconds for which calls on this endpoint may spin before they sleep; 0
 * disables spinning. The module's spin_limit_us is the upper limit.
 */
#define SLUICE_PIPE_SET_SPIN _IOWR(SLUICE_IOCTL_TYPE, 0x01, struct sluice_setting)

/* Returns the state of the pipe. */
#define SLUICE_PIPE_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x02, struct sluice_pipe_info)

/*
 * ---- /dev/sluice/ctl: channels by name ----
 *
 * A channel is identified by its kind, scope and name. The scope is a cgroup (v2): the caller's
 * own, or the one whose directory is open as scope_fd. The name is 1 to 63 bytes without '/' and
 * NUL, neither "." nor "..", followed by zeros to the end of the array.
 *
 * Every call is checked against the credentials of its caller, never of the opener of ctl.
 */
#define SLUICE_NAME_SIZE 64

#define SLUICE_KIND_PIPE 1

/* Value of scope_fd: the caller's own cgroup. */
#define SLUICE_SCOPE_SELF (-1)

#define SLUICE_OPEN_READ	0x01
#define SLUICE_OPEN_WRITE	0x02
#define SLUICE_OPEN_CREATE	0x04	/* create the channel if it does not exist */
#define SLUICE_OPEN_EXCL	0x08	/* with CREATE: fail with EEXIST if it exists */
#define SLUICE_OPEN_PERSIST	0x10	/* with CREATE: keep the channel without endpoints */
#define SLUICE_OPEN_NONBLOCK	0x20	/* as O_NONBLOCK in open(2) */

/*
 * Opens a channel and returns an endpoint: a new file descriptor, closed on exec. In: all fields.
 * mode (permission bits, 0 to 0777), capacity (bytes, 0: default) and params apply to a channel
 * that this call creates. A call that fails removes the channel that it created, unless another
 * call has it open or has made it persistent.
 */
struct sluice_open {
	__u32 size;
	__u32 kind;
	__u32 flags;
	__s32 scope_fd;
	__u8 name[SLUICE_NAME_SIZE];
	__u32 mode;
	__u32 reserved;
	__u64 capacity;
	__u64 params;			/* address of the kind's parameters, or 0 */
};

#define SLUICE_OPEN_SIZE_VER0 104
#define SLUICE_CTL_OPEN _IOW(SLUICE_IOCTL_TYPE, 0x10, struct sluice_open)

/* The channel to unlink or destroy. In: all fields. */
struct sluice_unlink {
	__u32 size;
	__u32 kind;
	__u32 flags;			/* 0 */
	__s32 scope_fd;
	__u8 name[SLUICE_NAME_SIZE];
};

#define SLUICE_UNLINK_SIZE_VER0 80

/* Removes the name. Endpoints stay connected. Frees a persistent channel without endpoints. */
#define SLUICE_CTL_UNLINK _IOW(SLUICE_IOCTL_TYPE, 0x11, struct sluice_unlink)

#define SLUICE_CHANNEL_PERSISTENT 0x01

/* The state common to all kinds. In: size (not in a list). Out: all fields. */
struct sluice_channel_info {
	__u32 size;			/* out: bytes that the kernel filled in */
	__u32 kind;
	__u32 flags;			/* SLUICE_CHANNEL_* */
	__u32 mode;			/* permission bits */
	__u8 name[SLUICE_NAME_SIZE];
	__u32 uid;			/* in the caller's user namespace */
	__u32 gid;			/* in the caller's user namespace */
	__u32 readers;			/* open for reading, blocked opens included */
	__u32 writers;			/* open for writing, blocked opens included */
	__u64 capacity;			/* bytes, as counted by the limits */
	__u64 bytes;			/* bytes written and not yet read */
};

#define SLUICE_CHANNEL_INFO_SIZE_VER0 112

/* The state of one channel. In: all fields. Out: the structures at info and state. */
struct sluice_info {
	__u32 size;
	__u32 kind;
	__u32 flags;			/* 0 */
	__s32 scope_fd;
	__u8 name[SLUICE_NAME_SIZE];
	__u64 info;			/* address of a struct sluice_channel_info, or 0 */
	__u64 state;			/* address of the kind's state (sluice_pipe_info), or 0 */
};

#define SLUICE_INFO_SIZE_VER0 96
#define SLUICE_CTL_INFO _IOW(SLUICE_IOCTL_TYPE, 0x12, struct sluice_info)

/*
 * The channels of a scope, in the order of kind and name. In: room for count entries of entry_size
 * bytes at entries; the list begins after {kind, name}, or at the beginning if both are zero. Out:
 * the number of entries in count. Fewer than requested means the end of the list, unless more than
 * SLUICE_LIST_MAX were requested.
 */
#define SLUICE_LIST_MAX 64

struct sluice_list {
	__u32 size;
	__u32 kind;
	__u32 flags;			/* 0 */
	__s32 scope_fd;
	__u8 name[SLUICE_NAME_SIZE];
	__u64 entries;			/* address of an array of struct sluice_channel_info */
	__u32 count;
	__u32 entry_size;		/* sizeof(struct sluice_channel_info) of the caller */
};

#define SLUICE_LIST_SIZE_VER0 96
#define SLUICE_CTL_LIST _IOWR(SLUICE_IOCTL_TYPE, 0x13, struct sluice_list)

/* What this module supports. In: size. Out: all fields. */
struct sluice_features {
	__u32 size;
	__u32 abi;			/* SLUICE_ABI of the module */
	__u64 kinds;			/* bit n: kind n can be opened */
	__u64 open_flags;		/* mask of the supported SLUICE_OPEN_* */
};

#define SLUICE_FEATURES_SIZE_VER0 24
#define SLUICE_ABI 1
#define SLUICE_CTL_FEATURES _IOWR(SLUICE_IOCTL_TYPE, 0x14, struct sluice_features)

/*
 * As SLUICE_CTL_UNLINK, and ends the channel under its users: bytes are discarded, and calls on its
 * endpoints fail. Of a pipe: read, write, splice and blocked opens fail with EPIPE.
 */
#define SLUICE_CTL_DESTROY _IOW(SLUICE_IOCTL_TYPE, 0x15, struct sluice_unlink)

/*
 * ---- Rings over memfd: records through shared memory, without the module ----
 *
 * docs/abi.md is normative: it defines the stores of each side and their order.
 *
 *   the producer's memfd                       the consumer's memfd
 *   0            data                          0
 *   +------------+--------------------+        +---------------+
 *   | sluice_    | data               |        | sluice_       |
 *   | ring_ctrl  | capacity bytes     |        | ring_ctrl     |
 *   +------------+--------------------+        +---------------+
 *
 * The data is mapped twice in a row, so that a record that wraps is contiguous:
 *
 *   +--------------------+--------------------+
 *   | data               | the same data      |
 *   +--------------------+--------------------+
 *                  ^ position % capacity
 *                  +---------+----------------+
 *                  | header  | length bytes … | up to the next multiple of 8
 *                  +---------+----------------+
 */
#define SLUICE_RING_VERSION 1

/* A capacity is also at least one page of the memfd. */
#define SLUICE_RING_CAPACITY_MIN 0x1000		/* 4 KiB */
#define SLUICE_RING_CAPACITY_MAX 0x10000000	/* 256 MiB */

#define SLUICE_RING_RECORD_READY 1	/* sluice_ring_header.state of a published record */

/* Bits of wait_flags; the bits above are the wait sequence. */
#define SLUICE_RING_WAKE_FUTEX	0x01	/* wake by FUTEX_WAKE on the waker's own wake_seq */
#define SLUICE_RING_WAKE_SOCKET	0x02	/* wake by a message of one byte on the socket */
#define SLUICE_RING_NEED_FENCE	0x04	/* the waker: full barrier, then load this word again */
#define SLUICE_RING_WAIT_SEQ_SHIFT	3

/* Precedes the bytes of each record. Written by the producer. */
struct sluice_ring_header {
	__u32 length;			/* bytes, without header and padding */
	__u32 state;			/* 0 or SLUICE_RING_RECORD_READY; stored last */
};

/*
 * At the beginning of each memfd, written by its owner. The field that changes with each record and
 * the fields that the peer reads with each record are on separate pairs of cache lines, because
 * processors prefetch lines in pairs.
 */
struct sluice_ring_ctrl {
	__u64 pos;			/* end of the published, or of the released, records */
	__u64 reserved0[15];
	__u32 wait_flags;		/* SLUICE_RING_WAKE_*, _NEED_FENCE, and the wait sequence */
	__u32 wake_seq;			/* incremented when its owner wakes the peer */
	__u32 closed;			/* not 0: its owner publishes or releases nothing more */
	__u32 reserved1[29];
};

#define SLUICE_RING_PRODUCER 1
#define SLUICE_RING_CONSUMER 2

#define SLUICE_RING_F_MEMBARRIER 0x01	/* registered with membarrier(2) */
#define SLUICE_RING_F_UNSEALED 0x02	/* the producer's memfd lacks F_SEAL_FUTURE_WRITE */

#define SLUICE_RING_MAGIC 0x474e5253	/* "SRNG" */

/*
 * The first message of each side, with its memfd. In every version it has at least 12 bytes and
 * begins with magic, size and version.
 */
struct sluice_ring_hello {
	__u32 magic;
	__u32 size;			/* of this structure: 32 */
	__u32 version;			/* SLUICE_RING_VERSION */
	__u32 role;			/* SLUICE_RING_PRODUCER or SLUICE_RING_CONSUMER */
	__u32 flags;
	__u32 data;			/* producer: offset of the data. Consumer: 0 */
	__u64 capacity;			/* producer: bytes of data, a power of two. Consumer: 0 */
};

/* The second message: the result of validating the peer's hello. The same in every version. */
struct sluice_ring_reply {
	__u32 magic;
	__u32 error;			/* 0, or an errno, see docs/abi.md */
};

#endif
