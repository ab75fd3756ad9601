/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How every kind sleeps and wakes.
 *
 * A waiter queues itself exclusively and then looks at its condition; a waker changes what the
 * condition reads and then looks at the queue. Each side has a full barrier between its two steps,
 * so at least one sees the other: either the waiter finds the condition true or the waker finds the
 * waiter. (The waiter's barrier is in prepare_to_wait_event(), the waker's in wq_has_sleeper().)
 * Conditions therefore need no lock.
 *
 * One event wakes one exclusive waiter, in order of arrival. The one that was woken owes the next a
 * wake-up if, when it leaves for whatever reason, the condition still holds: so it goes on as a
 * chain, each link only once there is something for it to do. Pollers are not exclusive (unless
 * they asked, EPOLLEXCLUSIVE) and hear every event.
 */
#ifndef SLUICE_WAIT_H
#define SLUICE_WAIT_H

#include <linux/wait.h>

/* Sleeps until @condition; 0, or -ERESTARTSYS when a signal came first. */
#define sluice_wait_until(queue, condition) wait_event_interruptible_exclusive(queue, condition)

/*
 * After a change: tells one exclusive waiter and every poller. @events is what pollers filter by.
 */
void sluice_wait_wake_one(struct wait_queue_head *queue, __poll_t events);

/* After a change that concerns all: end of file, no reader left. */
void sluice_wait_wake_all(struct wait_queue_head *queue);

#endif
