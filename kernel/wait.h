/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How every kind waits: it spins, briefly, while that promises something, and then it sleeps.
 *
 * Sleeping. A waiter queues itself and then looks at its condition; a waker changes what the
 * condition reads and then looks at the queue. Each side has a full barrier between its two steps,
 * so at least one sees the other: either the waiter finds the condition true or the waker finds the
 * waiter. (The waiter's barrier is in prepare(), the waker's in wq_has_sleeper().) Conditions
 * therefore need no lock.
 *
 * Waking one. A waiter is exclusive unless it asks otherwise: an event wakes one, in order of
 * arrival, and a waiter keeps its place until its wait ends, even if others were faster and it
 * sleeps again. At most one wake-up of a queue is under way: `woken` is set when an exclusive
 * waiter was woken and cleared when that waiter is done with what it was woken for, or sleeps
 * again; while it is set, sluice_wait_wake_one() wakes nobody else. So a waker that makes many
 * changes meanwhile pays for one wake-up. No event is lost by it:
 * - (W) A waker changes the condition, has a full barrier (wq_has_sleeper()) and reads `woken`; the
 *   woken waiter clears `woken`, has a full barrier (prepare(), sluice_wait_done()) and reads the
 *   condition. A waker that read `woken` as set comes before that clearing, so the woken waiter
 *   sees its change.
 * - `woken` is set and cleared under the queue's lock. It is set only after the waiter was made
 *   runnable, and cleared by exclusive waiters only, the one that it was set for or another that
 *   goes to sleep. Whoever clears it looks at the condition afterwards, behind a full barrier, and
 *   owes the next one a wake-up; a clearing by another waiter only permits one wake-up too many.
 * - A waiter whose condition came true owes the next one a wake-up if the condition still holds
 *   when it has used it: its caller calls sluice_wait_done(), looks once more and calls
 *   sluice_wait_wake_one(), whatever came of the use. Between the wait and that it waits for
 *   nothing but its side's mutex and the memory that it copies. This makes a chain, each link only
 *   once there is something for it to do.
 * - A waiter that a signal ends has left the queue and cleared `woken` before it looked for the
 *   last time, and so takes no event with it.
 *
 * Pollers are not exclusive (unless they asked, EPOLLEXCLUSIVE) and hear every event, as they may
 * be edge-triggered. An EPOLLEXCLUSIVE waiter passes nothing on. So once a queue has had a poller,
 * or a waiter that is not exclusive (`shared`), `woken` no longer keeps a waker from waking.
 * pipe(2) has the same rule for pollers.
 *
 * Spinning. A sleep and a wake-up across CPUs cost microseconds each; a peer that answers sooner is
 * better waited for awake. But spinning only helps while the peer runs elsewhere, so it stops as
 * soon as anything else wants this CPU, or another waiter sleeps in the queue: that one comes
 * first, and a spinner that is faster would make its wake-up a useless one. For how long it is
 * tried is learned per endpoint: the window doubles when a wait turned out short enough that
 * spinning would have met it, halves when it did not, and never exceeds the endpoint's limit nor
 * the module's (spin_limit_us). With a limit of 0 a wait costs one comparison more than without
 * this code.
 *
 * The limit must cover a wake-up and an answer: when both sides of a conversation have come to
 * sleep, each waits for the other to be woken, and neither would ever see a wait short enough to
 * spin again. Hence 200 microseconds, which is also the kernel's choice for a guest's idle CPU
 * (halt_poll_ns).
 */
#ifndef SLUICE_WAIT_H
#define SLUICE_WAIT_H

#include <linux/poll.h>
#include <linux/types.h>
#include <linux/wait.h>

struct sluice_wait_queue {
	wait_queue_head_t head;
	unsigned int sleepers;	/* exclusive waiters in it; written under head.lock */
	bool woken;	/* one of them was, and is not done yet; written under head.lock */
	bool shared;	/* has had pollers, or waiters that are not exclusive */
};

/* What an endpoint has learned. Two threads may share one; a lost update only costs a guess. */
struct sluice_spin {
	u32 limit_ns;
	u32 window_ns;
};

/* One wait in progress. */
struct sluice_wait {
	struct wait_queue_entry entry;
	struct sluice_wait_queue *queue;
	struct sluice_spin *spin;	/* NULL: do not spin */
	u64 began;
	u64 deadline;
	unsigned int iterations;
	bool spinning;			/* still awake, on no queue */
	bool slept;			/* has been in the queue */
	bool prepared;			/* to sleep, once the condition was looked at */
	int interrupted;		/* what a signal makes of it */
};

void sluice_spin_init(struct sluice_spin *spin);
/* Sets the limit, cut to the module's, and returns what it is now. */
u32 sluice_spin_set_limit(struct sluice_spin *spin, u64 limit_ns);

void __sluice_wait_queue_init(struct sluice_wait_queue *queue, const char *name,
			      struct lock_class_key *key);

/* A macro, so that lockdep tells the queues apart and calls each what the source calls it. */
#define sluice_wait_queue_init(queue)					\
do {									\
	static struct lock_class_key __key;				\
									\
	__sluice_wait_queue_init(queue, #queue, &__key);		\
} while (0)

/* Whether exclusive waiters sleep; may be outdated. */
static inline bool sluice_wait_has_sleepers(const struct sluice_wait_queue *queue)
{
	return READ_ONCE(queue->sleepers);
}

/* @flags: WQ_FLAG_EXCLUSIVE, or 0 for a waiter that every event wakes. */
void sluice_wait_begin(struct sluice_wait *wait, struct sluice_wait_queue *queue,
		       struct sluice_spin *spin, unsigned int flags);
/*
 * After a look at the condition, which was false: one turn of spinning, or into the queue, or to
 * sleep. 0 to look again, -ERESTARTSYS when a signal came.
 */
int sluice_wait_iterate(struct sluice_wait *wait);
/* However it ended. */
void sluice_wait_end(struct sluice_wait *wait);
/* Ends the wake-up under way, after an exclusive wait and the use of what was awaited. */
void sluice_wait_done(struct sluice_wait_queue *queue);

#define __sluice_wait_until(queue, condition, spin, flags)		\
({									\
	struct sluice_wait __wait;					\
	int __err = 0;							\
									\
	sluice_wait_begin(&__wait, &(queue), spin, flags);		\
	while (!(condition)) {						\
		__err = sluice_wait_iterate(&__wait);			\
		if (__err)						\
			break;						\
	}								\
	sluice_wait_end(&__wait);					\
	__err;								\
})

/*
 * Waits until @condition; 0, or -ERESTARTSYS when a signal came first. The condition is looked at
 * many times and must have no side effect, nor sleep. One event wakes one such waiter, which owes
 * sluice_wait_done() and the next a wake-up (see above).
 */
#define sluice_wait_until(queue, condition, spin)			\
	__sluice_wait_until(queue, condition, spin, WQ_FLAG_EXCLUSIVE)

/* The same for what concerns every waiter: each event wakes all of them, and nobody owes. */
#define sluice_wait_until_shared(queue, condition, spin)		\
	__sluice_wait_until(queue, condition, spin, 0)

/* poll_wait(), and then the barrier between queueing and the look at the condition. */
void sluice_wait_poll(struct file *file, struct sluice_wait_queue *queue, poll_table *table);

/* After a change: whether sluice_wait_wake_one() would wake anyone. A full barrier. */
bool sluice_wait_wakes_one(struct sluice_wait_queue *queue);

/* After a change: tells one exclusive waiter and every poller. Pollers filter by @events. */
void sluice_wait_wake_one(struct sluice_wait_queue *queue, __poll_t events);

/*
 * After a change that concerns all: end of file, no reader left. Pollers filter by @events, or all
 * hear it if there are none.
 */
void sluice_wait_wake_all(struct sluice_wait_queue *queue, __poll_t events);

#endif
