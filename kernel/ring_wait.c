// SPDX-License-Identifier: GPL-2.0
#include <linux/errno.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/wait.h>

#include "ring_wait.h"
#include "user_struct.h"

long sluice_ring_wait(wait_queue_head_t *queue, bool (*ends)(const void *side, u32 seq),
		      const void *side, const struct sluice_ring_wait __user *user)
{
	struct sluice_ring_wait wait;
	ktime_t timeout;
	long ret;

	ret = sluice_user_struct_read(&wait, sizeof(wait), SLUICE_RING_WAIT_SIZE_VER0, user);
	if (ret)
		return ret;
	if (wait.flags || wait.reserved)
		return -EINVAL;
	timeout = min_t(u64, wait.timeout_ns, KTIME_MAX);
	ret = wait_event_interruptible_hrtimeout(*queue, ends(side, wait.seq), timeout);
	if (ret == -ETIME)
		return -ETIMEDOUT;
	return ret == -ERESTARTSYS ? -EINTR : ret;
}
