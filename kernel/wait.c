// SPDX-License-Identifier: GPL-2.0
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/wait.h>

#include "wait.h"

#define WINDOW_FLOOR_NS 2000	/* from here a window grows, and below it there is none */
#define ITERATIONS_PER_CLOCK_READ 16	/* the clock is read once in so many turns */

static unsigned int spin_limit_us = 200;
module_param(spin_limit_us, uint, 0644);
MODULE_PARM_DESC(spin_limit_us, "The longest that any wait may spin before it sleeps, in microseconds; 0: never");

static u32 module_limit_ns(void)
{
	return min(READ_ONCE(spin_limit_us), 1000000u) * 1000u;
}

void sluice_spin_init(struct sluice_spin *spin)
{
	spin->limit_ns = module_limit_ns();
	spin->window_ns = spin->limit_ns;
}

u32 sluice_spin_set_limit(struct sluice_spin *spin, u64 limit_ns)
{
	u32 limit = min_t(u64, limit_ns, module_limit_ns());

	WRITE_ONCE(spin->limit_ns, limit);
	WRITE_ONCE(spin->window_ns, limit);
	return limit;
}

void sluice_wait_begin(struct sluice_wait *wait, struct sluice_spin *spin)
{
	init_wait_entry(&wait->entry, WQ_FLAG_EXCLUSIVE);
	wait->spin = spin;
	wait->queued = false;
	wait->spinning = READ_ONCE(spin->limit_ns) && single_task_running();
	if (!wait->spinning) {
		wait->began = 0;
		return;
	}
	wait->iterations = 0;
	wait->began = local_clock();
	wait->deadline = wait->began + min(READ_ONCE(spin->window_ns), module_limit_ns());
}

static bool spin_goes_on(struct sluice_wait *wait)
{
	if (need_resched() || !single_task_running())
		return false;
	if (wait->iterations++ % ITERATIONS_PER_CLOCK_READ)
		return true;
	return !signal_pending(current) && local_clock() < wait->deadline;
}

int sluice_wait_iterate(struct sluice_wait *wait, struct wait_queue_head *queue)
{
	if (wait->spinning) {
		wait->spinning = spin_goes_on(wait);
		cpu_relax();
		return 0;
	}
	if (!wait->queued) {
		wait->interrupted = prepare_to_wait_event(queue, &wait->entry, TASK_INTERRUPTIBLE);
		wait->queued = true;
		return 0;
	}
	if (wait->interrupted)
		return wait->interrupted;
	schedule();
	/* Who was woken finds its event, and need not queue up for a last look. */
	wait->queued = false;
	return 0;
}

static void adapt_window(struct sluice_spin *spin, u64 waited)
{
	u32 limit = READ_ONCE(spin->limit_ns), window = READ_ONCE(spin->window_ns);

	if (waited <= window)
		return;
	if (waited <= limit)
		window = clamp_t(u32, window * 2, WINDOW_FLOOR_NS, limit);
	else
		window = window / 2 < WINDOW_FLOOR_NS ? 0 : window / 2;
	WRITE_ONCE(spin->window_ns, window);
}

void sluice_wait_end(struct sluice_wait *wait, struct wait_queue_head *queue)
{
	finish_wait(queue, &wait->entry);
	if (wait->began)
		adapt_window(wait->spin, local_clock() - wait->began);
}

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
