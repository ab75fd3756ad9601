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
#define TURNS_PER_LOOK 16	/* the clock is read once in so many turns */

static unsigned int spin_limit_us = 50;
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

void sluice_spin_begin(struct sluice_spell *spell, struct sluice_spin *spin)
{
	spell->spin = spin;
	spell->turns = 0;
	spell->began = local_clock();
	spell->deadline = spell->began + min(READ_ONCE(spin->window_ns), module_limit_ns());
}

bool sluice_spin_goes_on(struct sluice_spell *spell)
{
	if (need_resched() || !single_task_running())
		return false;
	if (spell->turns++ % TURNS_PER_LOOK)
		return true;
	return !signal_pending(current) && local_clock() < spell->deadline;
}

void sluice_spin_learn(struct sluice_spell *spell)
{
	struct sluice_spin *spin = spell->spin;
	u32 limit = READ_ONCE(spin->limit_ns), window = READ_ONCE(spin->window_ns);
	u64 waited = local_clock() - spell->began;

	if (waited <= window)
		return;
	if (waited <= limit)
		window = clamp_t(u32, window * 2, WINDOW_FLOOR_NS, limit);
	else
		window = window / 2 < WINDOW_FLOOR_NS ? 0 : window / 2;
	WRITE_ONCE(spin->window_ns, window);
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
