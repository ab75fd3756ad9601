/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The call SLUICE_RING_WAIT: a side of a mapped ring sleeps until its peer wakes it.
 *
 * Life: one call. The peer increments its wake_seq, and then wakes the queue after a full barrier;
 * the sleeper queues itself and has a full barrier before it reads wake_seq.
 */
#ifndef SLUICE_RING_WAIT_H
#define SLUICE_RING_WAIT_H

#include <linux/types.h>
#include <linux/wait.h>

#include <uapi/linux/sluice.h>

/*
 * Sleeps in @queue until @ends(@side, seq). 0, -ETIMEDOUT, -EINTR: a restarted call would begin its
 * timeout again; -EFAULT, -EINVAL, -E2BIG.
 */
long sluice_ring_wait(wait_queue_head_t *queue, bool (*ends)(const void *side, u32 seq),
		      const void *side, const struct sluice_ring_wait __user *user);

#endif
