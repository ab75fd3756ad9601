// SPDX-License-Identifier: GPL-2.0
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/wait.h>

#include "compat.h"
#include "wait.h"

#define WINDOW_FLOOR_NS 2000u	/* the smallest window that halving leaves; then 0 */
#define ITERATIONS_PER_CLOCK_READ 16	/* iterations per read of the clock */
#define EXAMINED_MAX 64			/* entries of a queue */

static unsigned int spin_limit_us = 200;
module_param(spin_limit_us, uint, 0644);
MODULE_PARM_DESC(spin_limit_us, "Maximum time in microseconds that a wait spins before it sleeps (at most 1000000; 0: no spinning)");

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

void __sluice_wait_queue_init(struct sluice_wait_queue *queue, const char *name,
			      struct lock_class_key *key)
{
	__init_waitqueue_head(&queue->head, name, key);
	queue->sleepers = 0;
	queue->shared_sleepers = 0;
	queue->woken = false;
	queue->shared = false;
}

/*
 * Unlike autoremove_wake_function() it leaves the waiter in the queue. Called with the queue's lock
 * held.
 */
static int wake_exclusive(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct sluice_wait *wait = container_of(entry, struct sluice_wait, entry);

	if (!default_wake_function(entry, mode, flags, key))
		return 0;
	WRITE_ONCE(wait->queue->woken, true);	/* before the waiter can take the lock to end */
	return 1;
}

/*
 * With the queue's lock held. Unlike an exclusive waiter it leaves the queue: before it has run,
 * further events need not wake it. Without the lock sluice_wait_end() sees that it has left, and
 * frees the entry then, so that comes last.
 */
static int wake_shared(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct sluice_wait *wait = container_of(entry, struct sluice_wait, entry);

	if (!default_wake_function(entry, mode, flags, key))
		return 0;
	WRITE_ONCE(wait->queue->shared_sleepers, wait->queue->shared_sleepers - 1);
	list_del_init_careful(&entry->entry);
	return 1;
}

void sluice_wait_begin(struct sluice_wait *wait, struct sluice_wait_queue *queue,
		       struct sluice_spin *spin, unsigned int flags)
{
	init_wait_entry(&wait->entry, flags);
	wait->entry.func = flags & WQ_FLAG_EXCLUSIVE ? wake_exclusive : wake_shared;
	wait->queue = queue;
	wait->spin = spin;
	wait->slept = false;
	wait->prepared = false;
	wait->interrupted = 0;
	wait->spinning = spin && READ_ONCE(spin->limit_ns) && single_task_running() &&
			 !sluice_wait_has_sleepers(queue);
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
	if (need_resched() || !single_task_running() || sluice_wait_has_sleepers(wait->queue))
		return false;
	if (wait->iterations++ % ITERATIONS_PER_CLOCK_READ)
		return true;
	return !signal_pending(current) && local_clock() < wait->deadline;
}

/* With the queue's lock held. After a spurious wake-up the waiter keeps its place. */
static void join_queue(struct sluice_wait *wait)
{
	struct sluice_wait_queue *queue = wait->queue;

	if (!list_empty(&wait->entry.entry))
		return;
	if (wait->entry.flags & WQ_FLAG_EXCLUSIVE) {
		__add_wait_queue_entry_tail(&queue->head, &wait->entry);
		WRITE_ONCE(queue->sleepers, queue->sleepers + 1);
	} else {
		WRITE_ONCE(queue->shared, true);
		__add_wait_queue(&queue->head, &wait->entry);
		WRITE_ONCE(queue->shared_sleepers, queue->shared_sleepers + 1);
	}
}

/* With the queue's lock held. */
static void leave_queue(struct sluice_wait *wait)
{
	struct sluice_wait_queue *queue = wait->queue;

	if (list_empty(&wait->entry.entry))
		return;
	list_del_init(&wait->entry.entry);
	if (wait->entry.flags & WQ_FLAG_EXCLUSIVE)
		WRITE_ONCE(queue->sleepers, queue->sleepers - 1);
	else
		WRITE_ONCE(queue->shared_sleepers, queue->shared_sleepers - 1);
}

/* ---- interruption by a signal ---- */

/*
 * With the queue's lock held, before the waiter sleeps. True: a signal ends the wait. The waiter
 * has left the queue, so the caller's last check of the condition loses no wake-up.
 */
static bool end_on_signal(struct sluice_wait *wait)
{
	wait->interrupted = sluice_wait_check_signal();
	if (wait->interrupted)
		leave_queue(wait);
	return wait->interrupted;
}

/* ---- sleep ---- */

/*
 * With the queue's lock held: whether there may be pollers, or waiters that are not exclusive. Most
 * of them precede the exclusive waiters.
 */
static bool may_be_shared(const struct sluice_wait_queue *queue)
{
	const struct wait_queue_entry *entry;
	unsigned int examined = 0;

	list_for_each_entry(entry, &queue->head.head, entry)
		if (entry->func != wake_exclusive || ++examined == EXAMINED_MAX)
			return true;
	return false;
}

/*
 * With the queue's lock held, before an exclusive waiter sleeps. A poller that joins later sets
 * `shared` after that.
 */
static void begin_exclusive(struct sluice_wait_queue *queue)
{
	WRITE_ONCE(queue->woken, false);	/* (wait-W) */
	if (queue->shared && !may_be_shared(queue))
		WRITE_ONCE(queue->shared, false);
}

/* Queues the waiter, or removes it if a signal is pending. The caller then checks the condition. */
static void prepare(struct sluice_wait *wait)
{
	struct sluice_wait_queue *queue = wait->queue;
	unsigned long flags;

	spin_lock_irqsave(&queue->head.lock, flags);
	if (wait->entry.flags & WQ_FLAG_EXCLUSIVE)
		begin_exclusive(queue);
	if (!end_on_signal(wait)) {
		join_queue(wait);
		__set_current_state(TASK_INTERRUPTIBLE);
	}
	spin_unlock_irqrestore(&queue->head.lock, flags);
	smp_mb();	/* (wait-W); pairs with wq_has_sleeper() */
	wait->slept = true;
	wait->prepared = true;
}

int sluice_wait_iterate(struct sluice_wait *wait)
{
	if (wait->spinning) {
		wait->spinning = spin_goes_on(wait);
		cpu_relax();
		return 0;
	}
	if (wait->interrupted)
		return wait->interrupted;
	if (!wait->prepared) {
		prepare(wait);
		return 0;
	}
	schedule();
	/* Most woken waiters find their event, so prepare() is not repeated before the check. */
	wait->prepared = false;
	return 0;
}

static void adapt_window(struct sluice_spin *spin, u64 waited)
{
	u32 limit = READ_ONCE(spin->limit_ns), window = READ_ONCE(spin->window_ns);

	if (waited <= window)
		return;
	if (waited <= limit)
		window = min(max(window * 2, WINDOW_FLOOR_NS), limit);
	else
		window = window / 2 < WINDOW_FLOOR_NS ? 0 : window / 2;
	WRITE_ONCE(spin->window_ns, window);
}

void sluice_wait_end(struct sluice_wait *wait)
{
	struct sluice_wait_queue *queue = wait->queue;
	unsigned long flags;

	if (wait->began)
		adapt_window(wait->spin, local_clock() - wait->began);
	if (!wait->slept)
		return;
	__set_current_state(TASK_RUNNING);
	if (list_empty_careful(&wait->entry.entry))
		return;
	spin_lock_irqsave(&queue->head.lock, flags);
	leave_queue(wait);
	spin_unlock_irqrestore(&queue->head.lock, flags);
}

/*
 * If `woken` is already clear, either an exclusive waiter cleared it, which checks the condition
 * afterwards and wakes the next one; or no wake-up was in progress, because the wait did not sleep.
 */
void sluice_wait_done(struct sluice_wait_queue *queue)
{
	unsigned long flags;

	if (!READ_ONCE(queue->woken))
		return;
	spin_lock_irqsave(&queue->head.lock, flags);
	WRITE_ONCE(queue->woken, false);	/* (wait-W) */
	spin_unlock_irqrestore(&queue->head.lock, flags);
	smp_mb();	/* (wait-W) */
}

void sluice_wait_poll(struct file *file, struct sluice_wait_queue *queue, poll_table *table)
{
	poll_wait(file, &queue->head, table);
	if (sluice_compat_poll_queues(table) && !READ_ONCE(queue->shared))
		WRITE_ONCE(queue->shared, true);
	smp_mb();	/* pairs with wq_has_sleeper(), after which `shared` is read */
}

void sluice_wait_add_shared(struct sluice_wait_queue *queue, struct wait_queue_entry *entry)
{
	add_wait_queue(&queue->head, entry);
	WRITE_ONCE(queue->shared, true);
	smp_mb();	/* pairs with wq_has_sleeper(), after which `shared` is read */
}

bool sluice_wait_wakes_one(struct sluice_wait_queue *queue)
{
	return wq_has_sleeper(&queue->head) &&
	       (!READ_ONCE(queue->woken) || READ_ONCE(queue->shared));	/* (wait-W) */
}

/*
 * A "sync" wake-up: the waker is likely to sleep soon, so the scheduler need not preempt it or
 * search for a distant CPU.
 */
void sluice_wait_wake_one(struct sluice_wait_queue *queue, __poll_t events)
{
	if (sluice_wait_wakes_one(queue))
		wake_up_interruptible_sync_poll(&queue->head, events);
}

void sluice_wait_wake_all(struct sluice_wait_queue *queue, __poll_t events)
{
	if (wq_has_sleeper(&queue->head))
		__wake_up(&queue->head, TASK_INTERRUPTIBLE, 0,
			  events ? poll_to_key(events) : NULL);
}
