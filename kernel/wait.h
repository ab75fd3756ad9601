/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How every kind waits: it spins, briefly, while that promises something, and then it sleeps.
 *
 * Sleeping. A waiter queues itself exclusively and then looks at its condition; a waker changes
 * what the condition reads and then looks at the queue. Each side has a full barrier between its
 * two steps, so at least one sees the other: either the waiter finds the condition true or the
 * waker finds the waiter. (The waiter's barrier is in prepare_to_wait_event(), the waker's in
 * wq_has_sleeper().) Conditions therefore need no lock.
 *
 * One event wakes one exclusive waiter, in order of arrival. The one that was woken owes the next a
 * wake-up if, when it leaves for whatever reason, the condition still holds: so it goes on as a
 * chain, each link only once there is something for it to do. A waiter that a signal ends has left
 * the queue before it looked for the last time, and so takes no event with it. Pollers are not
 * exclusive (unless they asked, EPOLLEXCLUSIVE) and hear every event.
 *
 * Spinning. A sleep and a wake-up across CPUs cost microseconds each; a peer that answers sooner is
 * better waited for awake. But spinning only helps while the peer runs elsewhere, so it stops as
 * soon as anything else wants this CPU. For how long it is tried is learned per endpoint: the
 * window doubles when a wait turned out short enough that spinning would have met it, halves when
 * it did not, and never exceeds the endpoint's limit nor the module's (spin_limit_us). With a limit
 * of 0 a wait costs one comparison more than without this code.
 *
 * The limit must cover a wake-up and an answer: when both sides of a conversation have come to
 * sleep, each waits for the other to be woken, and neither would ever see a wait short enough to
 * spin again. Hence 200 microseconds, which is also the kernel's choice for a guest's idle CPU
 * (halt_poll_ns).
 */
#ifndef SLUICE_WAIT_H
#define SLUICE_WAIT_H

#include <linux/types.h>
#include <linux/wait.h>

/* What an endpoint has learned. Two threads may share one; a lost update only costs a guess. */
struct sluice_spin {
	u32 limit_ns;
	u32 window_ns;
};

/* One wait in progress. */
struct sluice_wait {
	struct wait_queue_entry entry;
	struct sluice_spin *spin;
	u64 began;
	u64 deadline;
	unsigned int iterations;
	bool spinning;			/* still awake, on no queue */
	bool queued;
	int interrupted;		/* what a signal makes of it */
};

void sluice_spin_init(struct sluice_spin *spin);
/* Sets the limit, cut to the module's, and returns what it is now. */
u32 sluice_spin_set_limit(struct sluice_spin *spin, u64 limit_ns);

void sluice_wait_begin(struct sluice_wait *wait, struct sluice_spin *spin);
/*
 * After a look at the condition, which was false: one turn of spinning, or into the queue, or to
 * sleep. 0 to look again, -ERESTARTSYS when a signal came.
 */
int sluice_wait_iterate(struct sluice_wait *wait, struct wait_queue_head *queue);
/* However it ended. */
void sluice_wait_end(struct sluice_wait *wait, struct wait_queue_head *queue);

/*
 * Waits until @condition; 0, or -ERESTARTSYS when a signal came first. The condition is looked at
 * many times and must have no side effect, nor sleep.
 */
#define sluice_wait_until(queue, condition, spin)			\
({									\
	struct sluice_wait __wait;					\
	int __err = 0;							\
									\
	sluice_wait_begin(&__wait, spin);				\
	while (!(condition)) {						\
		__err = sluice_wait_iterate(&__wait, &(queue));		\
		if (__err)						\
			break;						\
	}								\
	sluice_wait_end(&__wait, &(queue));				\
	__err;								\
})

/* After a change: tells one exclusive waiter and every poller. Pollers filter by @events. */
void sluice_wait_wake_one(struct wait_queue_head *queue, __poll_t events);

/* After a change that concerns all: end of file, no reader left. */
void sluice_wait_wake_all(struct wait_queue_head *queue);

#endif
