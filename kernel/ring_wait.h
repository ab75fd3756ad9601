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

/**
 * sluice_ring_wait() - sleeps in a queue until a condition holds, for SLUICE_RING_WAIT
 * @queue: the queue, which the peer wakes
 * @ends: the condition: whether the wait of a side ends; called with @side and the seq of @user
 * @side: the side that waits, in the type that @ends expects
 * @user: the user's structure
 *
 * A signal results in -EINTR, because a restarted call would begin its timeout again.
 *
 * Return: 0: the condition holds; -ETIMEDOUT, -EINTR; -EFAULT, -EINVAL, -E2BIG: @user is invalid.
 */
long sluice_ring_wait(wait_queue_head_t *queue, bool (*ends)(const void *side, u32 seq),
		      const void *side, const struct sluice_ring_wait __user *user);

#endif
