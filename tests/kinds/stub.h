/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A kind for tests alone: a channel counts the bytes that are written to it, and a read returns the
 * count as a number of 8 bytes. It shows that a kind needs no change in any other file.
 */
#ifndef SLUICE_STUB_H
#define SLUICE_STUB_H

#include <linux/types.h>

#define SLUICE_KIND_STUB 40

struct sluice_stub_params {
	__u32 size;
	__u32 initial;			/* the count at first */
	__u64 step;			/* what a byte adds to the count; 0 for 1 */
};

/* As if step were a later addition. */
#define SLUICE_STUB_PARAMS_SIZE_VER0 8

struct sluice_stub_state {
	__u32 size;
	__u32 endpoints;
	__u64 count;
	__u64 step;
};

#define SLUICE_STUB_STATE_SIZE_VER0 16

struct sluice_kind;

extern const struct sluice_kind sluice_stub_kind;

#endif
