// SPDX-License-Identifier: GPL-2.0
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/wait.h>

#include "wait.h"

/*
 * The wake-up is "sync": the waker is likely to sleep soon, so the scheduler need not preempt it
 * nor look far for a CPU.
 */
void sluice_wait_wake_one(struct wait_queue_head *queue, __poll_t events)
{
	if (wq_has_sleeper(queue))
		wake_up_interruptible_sync_poll(queue, events);
}

void sluice_wait_wake_all(struct wait_queue_head *queue)
{
	if (wq_has_sleeper(queue))
		wake_up_interruptible_all(queue);
}
