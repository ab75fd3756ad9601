/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The ABI of Sluice: the C form of the structures and numbers of docs/abi/, which is normative
 * and defines the meaning of each field and each error.
 *
 * The structure of a call begins with its own size in bytes, filled in by the caller, so that it
 * can grow. The kernel accepts sizes from that of the first version (*_SIZE_VER0; EINVAL below it)
 * to a page (E2BIG above it). In: fields beyond the caller's size are zero; bytes beyond the
 * kernel's size must be zero (E2BIG); reserved fields and unknown flags must be zero (EINVAL). Out:
 * the kernel reads only size, fills in the smaller of both sizes and stores that number in size.
 * The entries of a bus have the entry_size of the call instead; packets and the memory of a ring do
 * not grow. Fields have the same layout for 32 and 64 bit.
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
#define SLUICE_KIND_RING 2
#define SLUICE_KIND_FEED 3
#define SLUICE_KIND_BUS 4
#define SLUICE_KIND_MAP 5

/* Values of scope_fd: the caller's own cgroup, and the root of the hierarchy. */
#define SLUICE_SCOPE_SELF (-1)
#define SLUICE_SCOPE_ROOT (-2)

#define SLUICE_OPEN_READ	0x01
#define SLUICE_OPEN_WRITE	0x02
#define SLUICE_OPEN_CREATE	0x04	/* create the channel if it does not exist */
#define SLUICE_OPEN_EXCL	0x08	/* with CREATE: fail with EEXIST if it exists */
#define SLUICE_OPEN_PERSIST	0x10	/* with CREATE: keep the channel without endpoints */
#define SLUICE_OPEN_NONBLOCK	0x20	/* as O_NONBLOCK in open(2) */
#define SLUICE_OPEN_ANY_OWNER	0x40	/* with CREATE: also if another user has created it */

/*
 * Opens a channel and returns an endpoint: a new file descriptor, closed on exec. In: all fields.
 * mode (permission bits, 0 to 0777), capacity (bytes, 0: default) and params apply to a channel
 * that this call creates. A call that fails removes the channel that it created, unless another
 * call has it open or has made it persistent.
 *
 * EACCES: CREATE is set without ANY_OWNER, and the channel exists but belongs neither to the
 * caller, nor to root of the host or of the caller's user namespace, nor to the owner of the
 * directory scope_fd. This prevents that another user takes the name first.
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
	__u64 messages;			/* since creation: messages, packets, changes; else 0 */
	__u64 total_bytes;		/* pipe: written since creation; ring: position; else 0 */
	__u64 lost;			/* since creation: of messages, packets, changes */
	__u64 lag;			/* messages not received, or changes not stored; else 0 */
	__u32 waiting;			/* calls that sleep on it */
	__u32 reserved;
};

#define SLUICE_CHANNEL_INFO_SIZE_VER0 112

/* Of an endpoint of any kind: the state of its channel, which may have lost its name. */
#define SLUICE_ENDPOINT_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x17, struct sluice_channel_info)

/* The state of one channel. In: all fields. Out: the structures at info and state. */
struct sluice_info {
	__u32 size;
	__u32 kind;
	__u32 flags;			/* 0 */
	__s32 scope_fd;
	__u8 name[SLUICE_NAME_SIZE];
	__u64 info;			/* address of a struct sluice_channel_info, or 0 */
	__u64 state;			/* address of the kind's state structure, or 0 */
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
 * endpoints fail with EPIPE.
 */
#define SLUICE_CTL_DESTROY _IOW(SLUICE_IOCTL_TYPE, 0x15, struct sluice_unlink)

/*
 * What the limits count: in a scope, and of the caller in its cgroup namespace.
 * In: size, flags (0), scope_fd. Out: all fields. EACCES: outside the scope.
 */
struct sluice_usage {
	__u32 size;
	__u32 flags;			/* 0 */
	__s32 scope_fd;
	__u32 reserved;
	__u64 scope_channels;
	__u64 scope_channels_max;	/* 2^64 - 1: no limit */
	__u64 scope_bytes;
	__u64 scope_bytes_max;		/* 2^64 - 1: no limit */
	__u64 user_channels;
	__u64 user_channels_max;	/* 2^64 - 1: no limit */
	__u64 user_bytes;
	__u64 user_bytes_max;		/* 2^64 - 1: no limit */
};

#define SLUICE_USAGE_SIZE_VER0 80
#define SLUICE_CTL_USAGE _IOWR(SLUICE_IOCTL_TYPE, 0x18, struct sluice_usage)

/*
 * ---- Rings: records through shared memory ----
 *
 * The memory is that of two memfds, without the module, or of a channel of the kind
 * SLUICE_KIND_RING. docs/abi/ring.md is normative: it defines the stores of each side and their
 * order.
 *
 * Over memfd:
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
#define SLUICE_RING_WAKE_FD	0x02	/* wake by a byte on the socket, or by SLUICE_RING_WAKE */
#define SLUICE_RING_NEED_FENCE	0x04	/* the waker: full barrier, then load this word again */
#define SLUICE_RING_WAIT_SEQ_SHIFT	3

/* Precedes the bytes of each record. Written by the producer. */
struct sluice_ring_header {
	__u32 length;			/* bytes, without header and padding */
	__u32 state;			/* 0 or SLUICE_RING_RECORD_READY; stored last */
};

/*
 * At the beginning of each memfd, or of the control page of a side, written by its owner. The field
 * that changes with each record and the fields that the peer reads with each record are on separate
 * pairs of cache lines, because processors prefetch lines in pairs.
 */
struct sluice_ring_ctrl {
	__u64 pos;			/* end of the published, or of the released, records */
	__u64 reserved0[15];
	__u32 wait_flags;		/* SLUICE_RING_WAKE_*, _NEED_FENCE, and the wait sequence */
	__u32 wake_seq;			/* incremented when its owner wakes the peer */
	__u32 closed;			/* not 0: its owner publishes or releases nothing more */
	__u32 wake_ack;			/* channel: the peer's wake_seq that was acknowledged */
	__u32 features;			/* channel: SLUICE_RING_F_MEMBARRIER */
	__u32 reserved1[27];
};

/* Values of closed. Its owner stores _CLOSED; the module, for a channel, each of them. */
#define SLUICE_RING_CLOSED	1
#define SLUICE_RING_DIED	2	/* the last reference to the endpoint is gone */
#define SLUICE_RING_DESTROYED	3	/* the channel was destroyed */
#define SLUICE_RING_REJECTED	4	/* a feed: this consumer stored an invalid position */

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
	__u32 error;			/* 0, or an errno, see docs/abi/ring-memfd.md */
};

/*
 * ---- Rings as channels: SLUICE_KIND_RING ----
 *
 * An endpoint opened with SLUICE_OPEN_READ is the consumer, one opened with SLUICE_OPEN_WRITE the
 * producer. mmap() maps each region as a whole: one page per control page, and the data twice in a
 * row. A region of the peer can be mapped for reading only.
 */
#define SLUICE_RING_MMAP_PRODUCER	0x000000	/* the producer's struct sluice_ring_ctrl */
#define SLUICE_RING_MMAP_CONSUMER	0x100000	/* the consumer's struct sluice_ring_ctrl */
#define SLUICE_RING_MMAP_DATA		0x200000	/* the data: 2 * capacity bytes */

/* Value of node: any memory node. */
#define SLUICE_RING_NODE_ANY (-1)

/* The parameters of a ring that SLUICE_CTL_OPEN creates. In: all fields. */
struct sluice_ring_params {
	__u32 size;
	__u32 flags;			/* 0 */
	__s32 node;			/* memory node of all pages, or SLUICE_RING_NODE_ANY */
	__u32 reserved;			/* 0 */
};

#define SLUICE_RING_PARAMS_SIZE_VER0 16

/* Values of producer and consumer in struct sluice_ring_info. */
#define SLUICE_RING_ROLE_VACANT		0
#define SLUICE_RING_ROLE_TAKEN		1
#define SLUICE_RING_ROLE_CLOSED		2
#define SLUICE_RING_ROLE_DIED		3
#define SLUICE_RING_ROLE_DESTROYED	4

/* The state of a ring. In: size. Out: all fields. */
struct sluice_ring_info {
	__u32 size;
	__u32 role;			/* of this endpoint; 0 in SLUICE_CTL_INFO */
	__u32 producer;			/* SLUICE_RING_ROLE_* */
	__u32 consumer;			/* SLUICE_RING_ROLE_* */
	__s32 node;			/* as in struct sluice_ring_params */
	__u32 reserved;
	__u64 capacity;			/* bytes */
	__u64 published;		/* pos of the producer, as it reports it */
	__u64 released;			/* pos of the consumer, as it reports it */
};

#define SLUICE_RING_INFO_SIZE_VER0 48

/* A wait. In: all fields. */
struct sluice_ring_wait {
	__u32 size;
	__u32 flags;			/* 0 */
	__u32 seq;			/* the peer's wake_seq, from before the last check */
	__u32 reserved;			/* 0 */
	__u64 timeout_ns;		/* relative; 2^63 - 1 and more: none */
};

#define SLUICE_RING_WAIT_SIZE_VER0 24

/* Wakes the peer, whether it waits in SLUICE_RING_WAIT or polls. EPIPE: this role has ended. */
#define SLUICE_RING_WAKE _IO(SLUICE_IOCTL_TYPE, 0x20)

/*
 * Waits while the peer's wake_seq equals seq and the peer has not ended. ETIMEDOUT; EINTR, never
 * restarted; EPIPE: this role has ended. On a feed EPROTO: this consumer was rejected; EINVAL also:
 * this endpoint has not mapped the feed.
 */
#define SLUICE_RING_WAIT _IOW(SLUICE_IOCTL_TYPE, 0x21, struct sluice_ring_wait)

/* Ends this role: closes it and wakes the peer. Mappings stay. EPIPE: it has ended. */
#define SLUICE_RING_DETACH _IO(SLUICE_IOCTL_TYPE, 0x22)

/* Returns the state of the ring. */
#define SLUICE_RING_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x23, struct sluice_ring_info)

/*
 * ---- Feeds: packets from the kernel, SLUICE_KIND_FEED ----
 *
 * A feed belongs to a kernel module, which creates it with a name in the root scope and publishes
 * packets. /dev/sluice/feed is the feed of the packet simulator. One consumer at a time receives
 * packets, either through mapped memory, as the consumer of a ring (the regions are those of
 * SLUICE_KIND_RING, all records begin with struct sluice_feed_packet), or with read(2), which
 * returns one packet per call. An endpoint claims the feed by SLUICE_FEED_CLAIM, or by its first
 * mmap(2) or read(2): EBUSY if another endpoint has it, or if this one has claimed it in the other
 * way. A claim allocates the ring; so a read that must not block (RWF_NOWAIT) makes none: EAGAIN.
 */

/* Precedes the bytes of each packet, in a record and in the result of read(2). */
struct sluice_feed_packet {
	__u64 sequence;			/* number of the packet; lost ones are counted */
	__u64 lost;			/* packets lost directly before this one */
	__u64 time_ns;			/* CLOCK_MONOTONIC, before the copy to the ring */
	__u64 cycles;			/* processor's counter (x86: TSC), read after it */
};

#define SLUICE_FEED_PACKET_MAX 4096	/* bytes after struct sluice_feed_packet */

/*
 * Starts the packet simulator: a timer that publishes packets. In: all fields. It stops after count
 * expiries, by SLUICE_FEED_STOP, or when this endpoint is closed. EBUSY: it runs already. EPERM:
 * without CAP_SYS_NICE. EINVAL: interval, length or cpu out of range. ENOTTY: not the simulator's
 * feed.
 */
struct sluice_feed_start {
	__u32 size;
	__u32 flags;			/* 0 */
	__u64 interval_ns;		/* 10000 (10 us) to 10^10 */
	__u64 count;			/* expiries of the timer; 0: no limit */
	__u32 length;			/* of a packet, bytes after its header */
	__s32 cpu;			/* of the timer; SLUICE_FEED_CPU_ANY: the caller's */
};

#define SLUICE_FEED_CPU_ANY (-1)
#define SLUICE_FEED_START_SIZE_VER0 32

/* Values of consumer in struct sluice_feed_info. */
#define SLUICE_FEED_CONSUMER_NONE	0
#define SLUICE_FEED_CONSUMER_READS	1
#define SLUICE_FEED_CONSUMER_MAPS	2

/* The state of a feed. In: size. Out: all fields. Counts are since the creation of the feed. */
struct sluice_feed_info {
	__u32 size;
	__u32 consumer;			/* SLUICE_FEED_CONSUMER_* */
	__u64 capacity;			/* bytes of the ring */
	__u64 sequence;			/* of the next packet */
	__u64 published;		/* packets delivered into the ring */
	__u64 lost;			/* packets lost because the ring was full or busy */
	__u64 violations;		/* consumers that were ended because of their position */
	__u64 spin_limit_ns;		/* of read(2) on this endpoint; 0 in SLUICE_CTL_INFO */
	__u32 running;			/* the simulator: 1 while it runs */
	__s32 cpu;			/* the simulator's, or SLUICE_FEED_CPU_ANY: never started */
	__u64 interval_ns;		/* of the last start */
	__u64 expired;			/* expiries since the last start */
	__u64 missed;			/* expiries that were skipped since the last start */
	__u64 elapsed_ns;		/* from the last start to the last expiry */
};

#define SLUICE_FEED_INFO_SIZE_VER0 96

#define SLUICE_FEED_START _IOW(SLUICE_IOCTL_TYPE, 0x30, struct sluice_feed_start)

/* Stops the simulator, which this endpoint has started. EPERM: another one has. */
#define SLUICE_FEED_STOP _IO(SLUICE_IOCTL_TYPE, 0x31)

/* Returns the state of the feed. */
#define SLUICE_FEED_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x32, struct sluice_feed_info)

/* As SLUICE_PIPE_SET_SPIN, for read(2). */
#define SLUICE_FEED_SET_SPIN _IOWR(SLUICE_IOCTL_TYPE, 0x33, struct sluice_setting)

/*
 * Claims the feed, and allocates its ring. In: value, SLUICE_FEED_CONSUMER_READS or _MAPS. 0 also
 * if this endpoint has claimed it in this way. EBUSY. EPIPE: the feed is destroyed.
 */
#define SLUICE_FEED_CLAIM _IOW(SLUICE_IOCTL_TYPE, 0x34, struct sluice_setting)

/*
 * ---- Buses: SLUICE_KIND_BUS ----
 *
 * Messages from many senders to many receivers. An endpoint opened with SLUICE_OPEN_READ is a
 * subscriber, one opened with SLUICE_OPEN_WRITE sends; one may do both. write(2) sends one message,
 * or several with frames; read(2) receives one, or several.
 */
#define SLUICE_BUS_CAPACITY_MIN 0x1000		/* 4 KiB */
#define SLUICE_BUS_CAPACITY_MAX 0x10000000	/* 256 MiB */
#define SLUICE_BUS_MESSAGE_MAX 0x100000		/* 1 MiB; see message_max for less */

/* Values of mode. */
#define SLUICE_BUS_BROADCAST	0	/* to every subscriber */
#define SLUICE_BUS_MULTICAST	1	/* to one subscriber, in turn */
#define SLUICE_BUS_UNICAST	2	/* to the first that receives: one queue */

/* What happens to a subscriber that does not keep up; a mask in policies. */
#define SLUICE_BUS_DROP		0x01	/* loses its oldest messages and is told their number */
#define SLUICE_BUS_BLOCK	0x02	/* senders wait for it */
#define SLUICE_BUS_EVICT	0x04	/* loses its subscription */

/* Flags in struct sluice_bus_params. */
#define SLUICE_BUS_MAPPABLE	0x01	/* the bus: subscribers may map its memory */
#define SLUICE_BUS_MAPPED	0x02	/* this subscriber: receives through mapped memory */
#define SLUICE_BUS_MONITOR	0x04	/* this subscriber: sees all messages, delays none */
#define SLUICE_BUS_ADDRESSED	0x08	/* this subscriber: a client, takes no turn; multicast */

/* Values of format: what read(2) and write(2) of an endpoint carry. */
#define SLUICE_BUS_RAW		0	/* the bytes of one message */
#define SLUICE_BUS_FRAMED	1	/* a struct sluice_bus_frame, and the bytes */
#define SLUICE_BUS_BATCHED	2	/* as _FRAMED; read(2) returns as many messages as fit */

/*
 * Parameters of SLUICE_CTL_OPEN. mode, policies and _MAPPABLE apply to a bus that the call creates,
 * the others to the endpoint.
 */
struct sluice_bus_params {
	__u32 size;
	__u32 flags;			/* SLUICE_BUS_MAPPABLE, _MAPPED, _MONITOR, _ADDRESSED */
	__u32 mode;			/* SLUICE_BUS_BROADCAST, _MULTICAST, _UNICAST */
	__u32 policies;			/* permitted; 0: _DROP and _EVICT. Unicast: only 0 */
	__u32 policy;			/* of this subscriber, one bit; 0: the first permitted */
	__u32 format;			/* SLUICE_BUS_RAW, _FRAMED, _BATCHED */
	__u64 limit;			/* unread bytes for it alone; 0: half the capacity */
};

#define SLUICE_BUS_PARAMS_SIZE_VER0 32

/*
 * Precedes the bytes of a message in the formats _FRAMED and _BATCHED. In: size, length, target,
 * tag; the rest is 0. Out: all fields. If there are several, each begins at a multiple of 8 bytes.
 */
struct sluice_bus_frame {
	__u32 size;			/* of this structure; out: 64 */
	__u32 length;			/* bytes of the message */
	__u64 target;			/* the subscriber that it is for alone, or 0 */
	__u64 sender;			/* id of the endpoint that sent it */
	__u64 sequence;			/* of the bus: 0 for its first message */
	__u64 lost;			/* messages lost since the frame received before */
	__u32 pid;			/* of the opener of the sender; 0: not visible here */
	__u32 uid;			/* of that opener, in the receiver's user namespace */
	__u32 gid;			/* of that opener, in the receiver's user namespace */
	__u32 reserved;
	__u64 tag;			/* what the sender gave, such as the number of a request */
};

#define SLUICE_BUS_FRAME_SIZE_VER0 64

/* Sets the format of this endpoint. EINVAL: unknown, or mapped. */
#define SLUICE_BUS_SET_FORMAT _IOWR(SLUICE_IOCTL_TYPE, 0x40, struct sluice_setting)

/* As SLUICE_PIPE_SET_SPIN. */
#define SLUICE_BUS_SET_SPIN _IOWR(SLUICE_IOCTL_TYPE, 0x41, struct sluice_setting)

/*
 * The state of a bus, and of an endpoint (0 in SLUICE_CTL_INFO). In: size. Out: all fields. The
 * counts since creation never decrease.
 */
struct sluice_bus_info {
	__u32 size;
	__u32 flags;			/* _MAPPABLE; the endpoint: _MAPPED, _MONITOR, _ADDRESSED */
	__u32 mode;
	__u32 policies;			/* unicast: 0 */
	__u64 capacity;			/* bytes */
	__u64 message_max;		/* the largest message, bytes */
	__u32 subscribers;		/* without monitors and those with _ADDRESSED */
	__u32 senders;
	__u64 sent;			/* messages since creation */
	__u64 unsubscribed;		/* since creation: broadcast without a subscriber */
	__u64 lost;			/* since creation: by all but monitors */
	__u64 evicted;			/* since creation: subscribers */
	__u64 lag;			/* messages, of the subscriber furthest behind */
	__u64 id;			/* of this endpoint */
	__u32 policy;			/* of this subscriber */
	__u32 format;			/* of this endpoint */
	__u64 own_lost;			/* since it was opened: by this subscriber */
	__u64 own_lag;			/* messages that this subscriber has not received */
	__u64 spin_limit_ns;		/* of this endpoint */
};

#define SLUICE_BUS_INFO_SIZE_VER0 120

/* Returns the state of the bus and of this endpoint. */
#define SLUICE_BUS_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x42, struct sluice_bus_info)

/* Where a subscriber with _MAPPED maps the data, read-only: 2 * capacity bytes, twice in a row. */
#define SLUICE_BUS_MMAP_DATA 0x200000

/* One message in the mapped memory. Out: as many bytes as both sides know. */
struct sluice_bus_entry {
	__u64 offset;			/* bytes in the mapping; contiguous */
	__u64 sequence;
	__u64 sender;
	__u32 length;			/* bytes */
	__u32 reserved;
};

#define SLUICE_BUS_RECEIVE_MAX 32

/*
 * Releases messages, and returns the next ones, in order. In: all fields. Out: count. Blocks while
 * there is none, unless O_NONBLOCK is set or count is 0.
 */
struct sluice_bus_receive {
	__u32 size;
	__u32 count;			/* in: room, at most _RECEIVE_MAX. Out: entries */
	__u64 entries;			/* address of an array of struct sluice_bus_entry */
	__u64 released;			/* all messages before this sequence are released */
	__u32 entry_size;		/* sizeof(struct sluice_bus_entry) of the caller */
	__u32 reserved;			/* 0 */
};

#define SLUICE_BUS_ENTRY_SIZE_VER0 32
#define SLUICE_BUS_RECEIVE_SIZE_VER0 32
#define SLUICE_BUS_RECEIVE _IOWR(SLUICE_IOCTL_TYPE, 0x43, struct sluice_bus_receive)

/* One subscriber of a bus. */
struct sluice_bus_subscriber_info {
	__u64 id;
	__u32 policy;
	__u32 flags;			/* SLUICE_BUS_MAPPED, _MONITOR, _ADDRESSED */
	__u64 lag;			/* messages not yet received */
	__u64 lost;			/* messages since it was opened */
	__u32 pid;			/* of its opener; 0: not visible here */
	__u32 uid;			/* of its opener, in the caller's user namespace */
};

#define SLUICE_BUS_SUBSCRIBERS_MAX 64

/*
 * Lists the subscribers after the one with the id `after`, by id. In: all fields. Out: count. Fewer
 * than requested means the end, unless more than _SUBSCRIBERS_MAX were requested.
 */
struct sluice_bus_subscribers {
	__u32 size;
	__u32 count;
	__u64 after;
	__u64 entries;			/* address of an array of the structure above */
	__u32 entry_size;		/* sizeof(entry) of the caller */
	__u32 reserved;			/* 0 */
};

#define SLUICE_BUS_SUBSCRIBER_INFO_SIZE_VER0 40
#define SLUICE_BUS_SUBSCRIBERS_SIZE_VER0 32
#define SLUICE_BUS_SUBSCRIBERS _IOWR(SLUICE_IOCTL_TYPE, 0x44, struct sluice_bus_subscribers)

/*
 * Takes a turn without sending a message. In: value 0. Out: value, the id of the next server, a
 * subscriber without _ADDRESSED. EAGAIN: all are full, with _DROP. ENOTCONN: no server. EOPNOTSUPP:
 * not multicast. EBADF: not open for writing. EPIPE.
 *
 * A client, a subscriber with _ADDRESSED, chooses its server in this way. Its read(2) fails with
 * ENOLINK, once and after its last message, when another subscriber has ended or it has lost
 * messages; poll(2) has POLLIN and POLLPRI until then.
 */
#define SLUICE_BUS_TURN _IOWR(SLUICE_IOCTL_TYPE, 0x45, struct sluice_setting)

/*
 * ---- Maps: SLUICE_KIND_MAP ----
 *
 * Keys of 1 to 4096 bytes with values of 0 to 1 MiB, any bytes. An endpoint opened with
 * SLUICE_OPEN_READ gets and dumps entries, and watches; one opened with SLUICE_OPEN_WRITE sets and
 * deletes. Each change has a number of the map's sequence, which begins with 1; that of its last
 * change is the version of an entry.
 */
#define SLUICE_MAP_KEY_MAX	4096		/* bytes */
#define SLUICE_MAP_VALUE_MAX	0x100000	/* 1 MiB */
#define SLUICE_MAP_EVENTS_MAX	0x10000
#define SLUICE_MAP_CAPACITY_MAX	0x1000000000	/* 64 GiB */

/* The parameters of a map that SLUICE_CTL_OPEN creates. In: all fields. */
struct sluice_map_params {
	__u32 size;
	__u32 flags;			/* SLUICE_MAP_DURABLE, _INTERVAL, _REFUSE, _MAPPED */
	__u64 entries;			/* the most that it may have; 0: no limit but the bytes */
	__u32 events;			/* changes kept for watchers, a power of two; 0: 1024 */
	__u32 deadline_ms;		/* durable: of each wait for the store; 0: 30,000 */
	__u32 interval_ms;		/* with _INTERVAL: between commits; 0: 1000 */
	__u32 cell;			/* with _MAPPED: bytes, a power of two; 0: 128 */
	__u64 table;			/* with _MAPPED: bytes, a power of two */
};

#define SLUICE_MAP_PARAMS_SIZE_VER0 24

/* Flags of a map. _INTERVAL and _REFUSE require _DURABLE. */
#define SLUICE_MAP_DURABLE	0x01	/* a keeper stores its changes */
#define SLUICE_MAP_INTERVAL	0x02	/* changes do not wait until they are stored */
#define SLUICE_MAP_REFUSE	0x04	/* changes that would wait to be admitted: EAGAIN */
#define SLUICE_MAP_MAPPED	0x08	/* readers may map its table */

/* Flags of an operation. */
#define SLUICE_MAP_IF_VERSION	0x01	/* set, delete: only if the entry has this version */
#define SLUICE_MAP_NOWAIT	0x02	/* set, delete: do not wait for the store */

/*
 * One operation. A get fills in value, value_length, version and ttl_ns; a set and a delete only
 * version. The other fields are in.
 */
struct sluice_map_op {
	__u32 size;
	__u32 flags;			/* SLUICE_MAP_IF_VERSION, _NOWAIT */
	__u64 key;			/* address */
	__u64 value;			/* address; a delete: 0 */
	__u32 key_length;		/* bytes */
	__u32 value_length;		/* bytes. A get: in: room, out: of the value */
	__u64 version;			/* in: with _IF_VERSION, 0: no entry. Out: of the entry */
	__u64 ttl_ns;			/* time to live, CLOCK_BOOTTIME; 0: no limit */
};

#define SLUICE_MAP_OP_SIZE_VER0 48

/*
 * Returns a value. ENOENT: there is no entry. EMSGSIZE: the value exceeds the room; value_length is
 * its length. EBADF: not open for reading.
 */
#define SLUICE_MAP_GET _IOWR(SLUICE_IOCTL_TYPE, 0x50, struct sluice_map_op)

/*
 * Sets a value: returns 1 if it created the entry, 0 if it replaced a value. EEXIST: the required
 * version is 0, and there is an entry. ESTALE: it has another version, which is then in version.
 * ENOENT: a version is required, and there is no entry. ENOSPC: a limit of the map. Also ENOMEM.
 *
 * A durable map: EAGAIN, an error of the store (ENOSPC, EIO, EROFS), EIDRM: refused, nothing has
 * changed. ETIMEDOUT, or EINTR with another version than was passed: the change is made, its number
 * is in version, and it is not known whether it is stored yet (SLUICE_MAP_SYNC). EINTR with the
 * version that was passed: nothing has changed.
 */
#define SLUICE_MAP_SET _IOWR(SLUICE_IOCTL_TYPE, 0x51, struct sluice_map_op)

/*
 * Deletes an entry. The version is the number of the change; ESTALE: that of the entry. ENOENT. A
 * durable map: as a set.
 */
#define SLUICE_MAP_DELETE _IOWR(SLUICE_IOCTL_TYPE, 0x52, struct sluice_map_op)

/* One operation of a batch. The fields are those of struct sluice_map_op. */
struct sluice_map_step {
	__u32 command;			/* SLUICE_MAP_STEP_* */
	__s32 result;			/* out: as of the single call, or a negative errno */
	__u32 flags;
	__u32 reserved;			/* 0 */
	__u64 key;
	__u64 value;
	__u32 key_length;
	__u32 value_length;
	__u64 version;
	__u64 ttl_ns;
};

#define SLUICE_MAP_STEP_GET	0
#define SLUICE_MAP_STEP_SET	1
#define SLUICE_MAP_STEP_DELETE	2

#define SLUICE_MAP_STEP_SIZE_VER0 56
#define SLUICE_MAP_BATCH_MAX 256

/*
 * Several operations, one after the other; together they are not atomic. In: all fields. Out:
 * count, the operations that were executed: those before a signal, at most _BATCH_MAX.
 */
struct sluice_map_batch {
	__u32 size;
	__u32 count;
	__u64 steps;			/* address of an array of struct sluice_map_step */
	__u32 step_size;		/* sizeof(struct sluice_map_step) of the caller */
	__u32 reserved;			/* 0 */
};

#define SLUICE_MAP_BATCH_SIZE_VER0 24
#define SLUICE_MAP_BATCH _IOWR(SLUICE_IOCTL_TYPE, 0x53, struct sluice_map_batch)

/* Where a dump goes on; all zeros: at the beginning. Not to be interpreted or changed. */
struct sluice_map_cursor {
	__u64 since;
	__u64 id;
	__u32 shard;
	__u32 reserved;
};

#define SLUICE_MAP_KEYS 0x01		/* flag of a dump: without the values */

/* Precedes the key and the value of an entry in a dump. The next one begins after size bytes. */
struct sluice_map_record {
	__u32 size;			/* bytes with key, value and padding, a multiple of 8 */
	__u32 value_length;
	__u64 version;
	__u64 ttl_ns;			/* as in struct sluice_map_op */
	__u16 key_length;
	__u16 header;			/* bytes before the key: 32 */
	__u32 reserved;
};

/*
 * Returns entries, in no order. Each entry that exists from the first call to the last is returned
 * once, a later one not at all, a deleted one once or not at all. In: all fields. Out: length,
 * count, cursor. A count of 0 is the end. EMSGSIZE: the next entry exceeds the room; length is what
 * it needs.
 */
struct sluice_map_dump {
	__u32 size;
	__u32 flags;			/* SLUICE_MAP_KEYS */
	__u64 records;			/* address */
	__u32 length;			/* in: room in bytes, out: bytes filled in */
	__u32 count;			/* out: records */
	struct sluice_map_cursor cursor;
};

#define SLUICE_MAP_DUMP_SIZE_VER0 48
#define SLUICE_MAP_DUMP _IOWR(SLUICE_IOCTL_TYPE, 0x54, struct sluice_map_dump)

/*
 * Watches: read(2) on this endpoint returns the changes after the sequence in value, or after the
 * last one if value is SLUICE_MAP_NOW; poll(2) waits for them. Out: that sequence. EINVAL: there is
 * no such change yet. EBADF: not open for reading.
 */
#define SLUICE_MAP_WATCH _IOWR(SLUICE_IOCTL_TYPE, 0x55, struct sluice_setting)
#define SLUICE_MAP_NOW 0xffffffffffffffffULL

/* Values of change. */
#define SLUICE_MAP_CREATED	1
#define SLUICE_MAP_UPDATED	2
#define SLUICE_MAP_DELETED	3
#define SLUICE_MAP_EXPIRED	4

/* What read(2) returns: whole events, each followed by its key. */
struct sluice_map_event {
	__u32 size;			/* bytes with key and padding, a multiple of 8 */
	__u16 change;			/* SLUICE_MAP_CREATED, _UPDATED, _DELETED, _EXPIRED */
	__u16 key_length;
	__u64 sequence;			/* of the change */
	__u64 version;			/* of the entry; deleted, expired: that it had */
	__u64 missed;			/* changes directly before this one that are lost */
};

/* The state of a map, and of an endpoint (0 in SLUICE_CTL_INFO). In: size. Out: all fields. */
struct sluice_map_info {
	__u32 size;
	__u32 flags;			/* SLUICE_MAP_DURABLE, _INTERVAL, _REFUSE, _MAPPED */
	__u64 capacity;			/* bytes */
	__u64 bytes;			/* used: entries with their overhead, and the log */
	__u64 entries_max;		/* 0: no limit but the bytes */
	__u64 entries;
	__u64 sequence;			/* of the last change */
	__u64 expired;			/* entries, since creation */
	__u64 missed;			/* changes, since creation, by all watchers */
	__u32 events;			/* changes kept for watchers */
	__u32 watchers;
	__u64 watched;			/* this endpoint: of the last event that it has read */
	__u64 stored;			/* durable: all changes up to this number are stored */
	__u64 pending;			/* durable: bytes of changes that are not stored */
	__u32 deadline_ms;		/* durable */
	__u32 interval_ms;		/* with _INTERVAL */
	__u32 error;			/* durable: errno of the store; 0: it works */
	__u32 cell;			/* with _MAPPED: bytes */
	__u64 table;			/* with _MAPPED: bytes */
};

#define SLUICE_MAP_INFO_SIZE_VER0 80
#define SLUICE_MAP_INFO _IOWR(SLUICE_IOCTL_TYPE, 0x56, struct sluice_map_info)

/*
 * Waits until all changes of a durable map up to the number in value are stored, or up to its last
 * change if value is SLUICE_MAP_NOW. Out: the number up to which they are. EINVAL: there is no such
 * change yet. EOPNOTSUPP: the map is not durable. ETIMEDOUT: the deadline of the map. EINTR. EIDRM:
 * the map was unlinked.
 */
#define SLUICE_MAP_SYNC _IOWR(SLUICE_IOCTL_TYPE, 0x57, struct sluice_setting)

/*
 * ---- The mapped table of a map ----
 *
 * An endpoint opened with SLUICE_OPEN_READ maps the header, a page, and the table, both read-only:
 * mmap(2) at these offsets, with MAP_SHARED. The table has blocks of 16 cells. The first cell of a
 * block begins with its bucket; the 15 others have an entry each or are free. ENODEV: the map has
 * no table. docs/abi/map-mapped.md defines how a reader finds an entry.
 */
#define SLUICE_MAP_MMAP_HEADER	0x000000
#define SLUICE_MAP_MMAP_TABLE	0x200000

#define SLUICE_MAP_TABLE_MAX	0x400000000	/* 16 GiB */
#define SLUICE_MAP_CELL_MIN	64		/* bytes */
#define SLUICE_MAP_CELL_MAX	4096		/* bytes */
#define SLUICE_MAP_BUCKET_CELLS	15
#define SLUICE_MAP_PROBES	4		/* blocks in which an entry may be */
#define SLUICE_MAP_HASH_FACTOR	0x9e3779b97f4a7c15ULL

struct sluice_map_header {
	__u64 seed;			/* of the hash of keys */
	__u64 table;			/* bytes */
	__u32 cell;			/* bytes */
	__u32 destroyed;		/* 1: the map is destroyed */
	__u64 reserved[5];
	__u64 unplaced;			/* entries that have no cell */
};

struct sluice_map_bucket {
	__u32 tags[SLUICE_MAP_BUCKET_CELLS];	/* of the entries in the cells after it; 0: free */
	__u32 elsewhere;		/* entries whose home block it is, and that are not in it */
};

/* The key follows it, then the value, at a multiple of 8 bytes from the beginning of the cell. */
struct sluice_map_cell {
	__u64 sequence;			/* odd: the cell is being changed */
	__u64 version;
	__u64 expires_ns;		/* CLOCK_BOOTTIME; all bits set: never */
	__u32 value_length;		/* bytes, or SLUICE_MAP_CELL_ASK */
	__u16 key_length;		/* bytes; 0: none */
	__u16 reserved;
};

#define SLUICE_MAP_CELL_ASK 0xffffffff	/* the value is not in the cell: SLUICE_MAP_GET */

/*
 * ---- The keeper of durable maps ----
 *
 * One process of the host stores the changes of all durable maps, and restores the maps. It has a
 * descriptor of its own: read(2) returns messages, and calls answer them. docs/abi/map-keeper.md
 * defines the order of both.
 *
 * A durable map has a stream, which has a number that is not used again until the module is loaded
 * anew. A keeper that begins is told of each stream again (SLUICE_KEEP_RESUME), and each change
 * that was not acknowledged is delivered again.
 */

/* The descriptor of the keeper. In: all fields. EPERM: no CAP_SYS_ADMIN. EBUSY: another. */
struct sluice_keep {
	__u32 size;
	__u32 flags;			/* SLUICE_KEEP_TABLES */
};

#define SLUICE_KEEP_SIZE_VER0 8
#define SLUICE_CTL_KEEP _IOW(SLUICE_IOCTL_TYPE, 0x16, struct sluice_keep)

#define SLUICE_KEEP_TABLES 0x01		/* the keeper stores cell and table of a map */

/* Values of type. */
#define SLUICE_KEEP_OPEN	1	/* a map is opened that is not there: _CREATE, _READY */
#define SLUICE_KEEP_RESUME	2	/* a stream that exists, for a new keeper */
#define SLUICE_KEEP_SET		3	/* store it, then _ACK */
#define SLUICE_KEEP_DELETE	4	/* as above */
#define SLUICE_KEEP_EXPIRE	5	/* as above */
#define SLUICE_KEEP_UNLINK	6	/* delete the stored map, then _END */
#define SLUICE_KEEP_CLOSED	7	/* the stream has ended; the stored map stays */
#define SLUICE_KEEP_SYNC	8	/* store the changes up to sequence soon */

/*
 * What read(2) returns: whole messages, each followed by its key and its value, and by zeros up to
 * a multiple of 8. _OPEN and _RESUME: the key is a struct sluice_keep_map, the value the path of
 * the cgroup from the root of the hierarchy, without a final NUL.
 */
struct sluice_keep_message {
	__u32 size;			/* bytes with key, value and padding, a multiple of 8 */
	__u32 type;			/* SLUICE_KEEP_OPEN, … */
	__u64 stream;
	__u64 sequence;			/* number of the change; _RESUME: the last acknowledged */
	__u64 expires_ns;		/* _SET: CLOCK_BOOTTIME; 0: never */
	__u32 key_length;		/* bytes */
	__u32 value_length;		/* bytes */
	__u32 header;			/* bytes before the key */
	__u32 reserved;
};

/* A durable map: what is stored of it but for entries. In a message: out; in a call: in. */
struct sluice_keep_map {
	__u32 size;
	__u32 flags;			/* SLUICE_MAP_DURABLE, _INTERVAL, _REFUSE, _MAPPED */
	__u32 open_flags;		/* _OPEN: SLUICE_OPEN_*; else 0 */
	__u32 administrator;		/* _OPEN: 1: the opener has CAP_SYS_ADMIN; else 0 */
	__u32 uid;			/* of the owner, in the initial user namespace */
	__u32 gid;			/* as above */
	__u32 mode;			/* permission bits */
	__u32 events;
	__u8 name[SLUICE_NAME_SIZE];
	__u64 capacity;			/* bytes */
	__u64 entries;
	__u32 deadline_ms;
	__u32 interval_ms;
	__u32 cell;			/* with _MAPPED: bytes */
	__u32 reserved;
	__u64 table;			/* with _MAPPED: bytes */
};

#define SLUICE_KEEP_MAP_SIZE_VER0 120

/*
 * Begins to restore a map: that of an _OPEN if stream is not 0; else one in the scope of scope_fd,
 * whose new stream is then in stream. Nobody else finds it before SLUICE_KEEP_READY. Changes up to
 * sequence count as acknowledged. ENOENT: there is no such stream, or the cgroup is removed.
 * EEXIST: there is a map of this name. ENOSPC, EDQUOT: a limit of channels. ESTALE: the open has
 * allocated another table, and asks anew with this one after _READY with ESTALE. EINVAL, ENOMEM.
 */
struct sluice_keep_create {
	__u32 size;
	__s32 scope_fd;			/* as in struct sluice_open; with a stream: -1 */
	__u64 stream;
	__u64 map;			/* address of a struct sluice_keep_map */
	__u64 sequence;			/* no change has had a greater number */
	__u64 limit;			/* the greatest number that a change may have */
};

#define SLUICE_KEEP_CREATE_SIZE_VER0 40
#define SLUICE_KEEP_CREATE _IOWR(SLUICE_IOCTL_TYPE, 0x60, struct sluice_keep_create)

/* An entry to restore. */
struct sluice_keep_entry {
	__u64 key;			/* address */
	__u64 value;			/* address */
	__u32 key_length;
	__u32 value_length;
	__u64 version;			/* at most sequence */
	__u64 expires_ns;		/* CLOCK_BOOTTIME; 0: never */
};

#define SLUICE_KEEP_RESTORE_MAX 256

/*
 * Restores entries, in any order. In: all fields. Out: count, those restored and those whose time
 * has passed. EEXIST: a key was restored before. ENOSPC: the map is full. EINVAL: not between
 * _CREATE and _READY. EINTR: a signal. Also E2BIG, EFAULT, ENOENT, ENOMEM. An error is that of the
 * first entry.
 */
struct sluice_keep_restore {
	__u32 size;
	__u32 count;
	__u64 stream;
	__u64 entries;			/* address of an array of struct sluice_keep_entry */
	__u32 entry_size;		/* sizeof(struct sluice_keep_entry) of the caller */
	__u32 reserved;			/* 0 */
};

#define SLUICE_KEEP_ENTRY_SIZE_VER0 40
#define SLUICE_KEEP_RESTORE_SIZE_VER0 32
#define SLUICE_KEEP_RESTORE _IOWR(SLUICE_IOCTL_TYPE, 0x61, struct sluice_keep_restore)

/*
 * The answer to an _OPEN, and the end of a restoration. error 0: the map is complete. Else the open
 * fails with this errno, or looks again if it is ESTALE; and the stream is gone. EEXIST: there is a
 * map of this name by now, and the stream is gone. ENOENT, EINVAL.
 */
struct sluice_keep_ready {
	__u32 size;
	__u32 error;
	__u64 stream;
};

#define SLUICE_KEEP_READY_SIZE_VER0 16
#define SLUICE_KEEP_READY _IOW(SLUICE_IOCTL_TYPE, 0x62, struct sluice_keep_ready)

/*
 * All changes up to sequence are stored, and numbers up to limit are reserved. New changes are
 * refused with this error, until an _ACK has another. ENOENT: no such stream. EINVAL: sequence
 * exceeds what was delivered; or sequence or limit (but for 0: unchanged) is below that of _CREATE
 * or of an earlier _ACK, also of another keeper; or error is not 0, ENOSPC, EIO or EROFS.
 */
struct sluice_keep_ack {
	__u32 size;
	__u32 error;
	__u64 stream;
	__u64 sequence;
	__u64 limit;
};

#define SLUICE_KEEP_ACK_SIZE_VER0 32
#define SLUICE_KEEP_ACK _IOW(SLUICE_IOCTL_TYPE, 0x63, struct sluice_keep_ack)

#define SLUICE_KEEP_UNLINKED 0x01

/*
 * With _UNLINKED: the stored map is deleted, the answer to an _UNLINK; or, with an error, it is
 * not, and the unlink fails with it. EINVAL: nobody unlinks it. Without (detach): the map loses its
 * name, and its stream is gone; open endpoints go on reading. EBUSY: changes are made or not
 * acknowledged, the map is being unlinked, or its first open is about to return. Of a stream that
 * has ended: the rest of its records is dropped. ENOENT.
 */
struct sluice_keep_end {
	__u32 size;
	__u32 flags;			/* SLUICE_KEEP_UNLINKED */
	__u64 stream;
	__u32 error;
	__u32 reserved;			/* 0 */
};

#define SLUICE_KEEP_END_SIZE_VER0 24
#define SLUICE_KEEP_END _IOW(SLUICE_IOCTL_TYPE, 0x64, struct sluice_keep_end)

/*
 * ---- Maps over generic netlink: the family "sluice" ----
 *
 * spec/sluice.yaml describes the commands and attributes. Nothing waits inside a request: what
 * would wait is EAGAIN.
 */
#define SLUICE_NL_FAMILY	"sluice"
#define SLUICE_NL_VERSION	1
#define SLUICE_NL_VALUE_MAX	0x4000	/* 16 KiB; longer values only by the calls of an endpoint */
#define SLUICE_NL_HANDLES_MAX	64	/* of a socket */
#define SLUICE_NL_STEPS_MAX	64	/* of a batch */

enum {
	SLUICE_NL_CMD_UNSPEC,
	SLUICE_NL_CMD_MAP_OPEN,		/* returns a handle of this socket */
	SLUICE_NL_CMD_MAP_CLOSE,	/* also when the socket is closed */
	SLUICE_NL_CMD_MAP_GET,
	SLUICE_NL_CMD_MAP_SET,
	SLUICE_NL_CMD_MAP_DELETE,
	SLUICE_NL_CMD_MAP_BATCH,
	SLUICE_NL_CMD_MAP_DUMP,
	SLUICE_NL_CMD_MAP_WATCH,	/* of a handle: MAP_EVENT messages follow */
	SLUICE_NL_CMD_MAP_INFO,
	SLUICE_NL_CMD_MAP_EVENT,	/* from the kernel */

	__SLUICE_NL_CMD_AFTER_LAST,
	SLUICE_NL_CMD_MAX = __SLUICE_NL_CMD_AFTER_LAST - 1
};

enum {
	SLUICE_NL_A_UNSPEC,
	SLUICE_NL_A_PAD,
	SLUICE_NL_A_NAME,		/* string: of a persistent map, or with MAP_OPEN of any */
	SLUICE_NL_A_SCOPE_FD,		/* s32: as in struct sluice_open; absent: own */
	SLUICE_NL_A_HANDLE,		/* u32: instead of a name */
	SLUICE_NL_A_FLAGS,		/* u32: MAP_OPEN: SLUICE_OPEN_* */
	SLUICE_NL_A_MODE,		/* u32: MAP_OPEN */
	SLUICE_NL_A_CAPACITY,		/* u64: MAP_OPEN, bytes; MAP_INFO */
	SLUICE_NL_A_ENTRIES_MAX,	/* u64: MAP_OPEN; MAP_INFO */
	SLUICE_NL_A_EVENTS,		/* u32: MAP_OPEN; MAP_INFO */
	SLUICE_NL_A_KEY,		/* binary: 1 to 4096 bytes */
	SLUICE_NL_A_VALUE,		/* binary: 0 to 16 KiB */
	SLUICE_NL_A_VALUE_LENGTH,	/* u32: bytes, of a value that is not in the message */
	SLUICE_NL_A_VERSION,		/* u64 */
	SLUICE_NL_A_IF_VERSION,		/* u64: as version with SLUICE_MAP_IF_VERSION */
	SLUICE_NL_A_TTL_NS,		/* u64 */
	SLUICE_NL_A_CREATED,		/* flag: a set created the entry */
	SLUICE_NL_A_KEYS,		/* flag: MAP_DUMP without values */
	SLUICE_NL_A_STEP,		/* nest: MAP_BATCH, one for each operation */
	SLUICE_NL_A_COMMAND,		/* u32: of a step, SLUICE_MAP_STEP_* */
	SLUICE_NL_A_RESULT,		/* s32: of a step */
	SLUICE_NL_A_AFTER,		/* u64: MAP_WATCH: the sequence; absent: SLUICE_MAP_NOW */
	SLUICE_NL_A_SEQUENCE,		/* u64 */
	SLUICE_NL_A_CHANGE,		/* u32: SLUICE_MAP_CREATED, … */
	SLUICE_NL_A_MISSED,		/* u64 */
	SLUICE_NL_A_BYTES,		/* u64: MAP_INFO, used */
	SLUICE_NL_A_ENTRIES,		/* u64: MAP_INFO */
	SLUICE_NL_A_EXPIRED,		/* u64: MAP_INFO */
	SLUICE_NL_A_WATCHERS,		/* u32: MAP_INFO */
	SLUICE_NL_A_DESTROYED,		/* flag: MAP_EVENT: the map is destroyed; the last event */
	SLUICE_NL_A_STORED,		/* u64: MAP_INFO, of a durable map */
	SLUICE_NL_A_PENDING,		/* u64: MAP_INFO, of a durable map, bytes */

	__SLUICE_NL_A_AFTER_LAST,
	SLUICE_NL_A_MAX = __SLUICE_NL_A_AFTER_LAST - 1
};

#endif
