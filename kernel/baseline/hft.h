/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface of hft.c, for comparison only: the ioctls of /dev/hft, and the layout of packets
 * and of the mapped memory. crates/sluice-testkit/src/hft.rs is the same in Rust.
 *
 * The memory is mapped with mmap() as MAP_SHARED, from offset 0, with exactly HFT_MAP_BYTES bytes,
 * readable and writable. HFT_START clears it, and chooses one of the layouts below. From offset
 * HFT_MAP_BYTES a second memory is mapped, for HFT_RING_PAGES.
 */
#ifndef HFT_H
#define HFT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define HFT_MAP_BYTES 32768
#define HFT_LINE 64
#define HFT_MIN_PACKET 64
#define HFT_MAX_PACKET 256
#define HFT_RING_BYTES 16384

#define HFT_MIN_INTERVAL_NS 50000ULL
#define HFT_MAX_INTERVAL_NS 10000000000ULL
#define HFT_DEFAULT_INTERVAL_NS 1000000ULL

/*
 * A packet, of which only the first size bytes exist. Sequence numbers begin with 1. tsc is the
 * time stamp counter, read after all other fields were filled in. Each byte of the payload is the
 * low byte of the sequence number.
 */
struct hft_packet {
	__u64 sequence;
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u64 tsc;
	__u32 cpu;		/* on which the simulator ran */
	__u32 size;
	__u8 payload[HFT_MAX_PACKET - 32];
};

/* How packets are published. */
#define HFT_READ 0		/* read(), which blocks and returns the newest packet */
#define HFT_SLOT 1		/* struct hft_slot at the beginning of the memory */
#define HFT_SLOT_UNALIGNED 2	/* struct hft_slot at HFT_UNALIGNED_OFFSET */
#define HFT_RING 3		/* struct hft_ring at the beginning of the memory */
#define HFT_RING_PAGES 4	/* HFT_RING in the second memory, whose pages are not contiguous */
#define HFT_VARIANTS 5

/*
 * "v2.0": one packet, which the next one overwrites, and the number of packets so far. A consumer
 * polls head and then reads the packet, which may change meanwhile.
 */
struct hft_slot {
	__u64 head;
	__u8 packet[HFT_MAX_PACKET];
} __packed;

/* Each half of head is then in another cache line, and a packet of 64 bytes ends in a third. */
#define HFT_UNALIGNED_OFFSET 60

/*
 * "v3.1": a ring for one consumer. Packet number n, counted from 0, is at n * size modulo
 * HFT_RING_BYTES. A consumer polls head, reads the packets before it, and then stores in tail how
 * many it has read, with a fence after polling and one before storing. A packet that finds the ring
 * full is dropped, and its sequence number with it.
 */
struct hft_ring {
	__u64 head;
	__u8 head_padding[HFT_LINE - 8];
	__u64 tail;
	__u8 tail_padding[HFT_LINE - 8];
	__u8 packets[HFT_RING_BYTES];
};

/* Zero means: 64 bytes, 1 ms. The size is a power of two. */
struct hft_start {
	__u32 variant;
	__u32 size;
	__u64 interval_ns;
	__s32 cpu;		/* that runs the simulator, or -1 */
	__u32 reserved;		/* 0 */
};

struct hft_stats {
	__u64 published;
	__u64 dropped;
};

/* "Mode 777": returns at once. Its duration is that of entering and leaving the kernel. */
#define HFT_NULL _IO('h', 0)
/*
 * "Mode 123": starts the simulator. EBUSY while it runs, EINVAL for invalid fields, ENXIO for a CPU
 * that is not online. It stops with HFT_STOP, or when the file that started it is closed and
 * unmapped.
 */
#define HFT_START _IOW('h', 1, struct hft_start)
#define HFT_STOP _IO('h', 2)
/* Packets since HFT_START. */
#define HFT_STATS _IOR('h', 3, struct hft_stats)

#endif
