/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits of all kinds: adaptive spinning, then sleep.
 *
 * Life: a wait queue exists as long as its object, a wait only during one sluice_wait_until(), a
 * spin window as long as its endpoint.
 *
 * Sleeping. A waiter queues itself and then checks its condition; a waker changes the state of the
 * condition and then checks the queue. Each has a full barrier between its two steps, so at least
 * one sees the other: either the waiter finds the condition true or the waker finds the waiter.
 * (The waiter's barrier is in prepare(), the poller's in sluice_wait_poll(), the waker's in
 * wq_has_sleeper().) Conditions therefore need no lock.
 *
 * Waking one. A waiter is exclusive by default: an event wakes one, in order of arrival. A waiter
 * keeps its place until its wait ends, even if another call used the event before its check and it
 * sleeps again. Normally at most one wake-up of a queue is in progress (concurrent wakers and
 * wake_all() can cause more, which are superfluous): `woken` is set when an exclusive waiter was
 * woken, and cleared when that waiter has finished the operation for which it was woken, or sleeps
 * again. While it is set, sluice_wait_wake_one() wakes no other waiter, so many changes cost one
 * wake-up. No event is lost:
 * - (wait-W) A waker changes the condition, has a full barrier (wq_has_sleeper()) and reads
 *   `woken`; the woken waiter clears `woken`, has a full barrier (prepare(), sluice_wait_done())
 *   and reads the condition. A waker that read `woken` as set precedes that clearing, so the woken
 *   waiter sees its change.
 * - `woken` is set and cleared under the queue's lock. It is set only after the waiter was made
 *   runnable, and cleared only by exclusive waiters: the one for which it was set, or another one
 *   that goes to sleep or finishes its operation. A waiter that clears it checks the condition
 *   after a full barrier, and must wake the next one; a clearing by another waiter permits at most
 *   one superfluous wake-up.
 * - A waiter whose condition became true must wake the next one if the condition still holds after
 *   its operation: its caller calls sluice_wait_done(), checks the condition and calls
 *   sluice_wait_wake_one(), whatever the result of the operation. Between the wait and these calls
 *   it waits only for the mutex of its side and for the memory that it copies. The wake-ups
 *   therefore form a chain, each only when there is something to do.
 * - A waiter that a signal ends has left the queue and cleared `woken` before its last check, and
 *   so does not consume an event.
 *
 * A waiter that is not exclusive leaves the queue when it is woken: an event before it has run does
 * not wake it again, and takes the queue's lock only for others that are in the queue. If its
 * condition is false then, it queues itself again and checks the condition after that, as the first
 * time.
 *
 * Pollers are not exclusive (except with EPOLLEXCLUSIVE) and are woken by every event, because they
 * may be edge-triggered. An EPOLLEXCLUSIVE waiter does not wake the next one. Therefore `woken`
 * prevents no wake-up while `shared` is set: while the queue has pollers, or waiters that are not
 * exclusive, and after that until an exclusive waiter sleeps and finds none of them, of at most
 * EXAMINED_MAX entries. pipe(2) keeps this rule once it has been polled. `shared` is cleared
 * under the queue's lock and set after the entry is in the queue, so it is set while there is one.
 * A poller that sets it has a full barrier before it checks its condition: a waker that read it as
 * clear has changed the condition before.
 *
 * Spinning. A sleep and a wake-up across CPUs cost microseconds each; for a peer that replies
 * sooner spinning is faster. It only helps while the peer runs on another CPU, so it stops as soon
 * as another task needs this CPU, or another waiter sleeps in the queue: that waiter has
 * precedence, and a faster spinner would make its wake-up superfluous. The window adapts per
 * endpoint: it doubles after a wait that was longer than it but not than the limit, and halves
 * after a longer one, finally to 0. The limit is that of the endpoint, at most that of the module
 * (spin_limit_us). With an endpoint's limit of 0 a wait costs one additional comparison.
 *
 * The limit must cover a wake-up and a reply: when both sides of a request-reply exchange sleep,
 * each waits for the wake-up of the other, and no wait would be short enough to spin again. Hence
 * 200 microseconds, which is also the kernel's default for an idle guest CPU (halt_poll_ns).
 */
#ifndef SLUICE_WAIT_H
#define SLUICE_WAIT_H

#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/types.h>
#include <linux/wait.h>

struct sluice_wait_queue {
	wait_queue_head_t head;
	unsigned int sleepers;	/* exclusive waiters; written under head.lock */
	unsigned int shared_sleepers;	/* other waiters, without pollers and added entries */
	bool woken;	/* a wake-up is in progress; written under head.lock */
	bool shared;	/* may have pollers, or waiters that are not exclusive */
};

/* The spin window of an endpoint. Threads may race; a lost update only affects the estimate. */
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
	bool spinning;			/* awake, not in the queue */
	bool slept;			/* has been in the queue */
	bool prepared;			/* may sleep after the next check of the condition */
	int interrupted;		/* -ERESTARTSYS after a signal */
};

/**
 * sluice_wait_check_signal() - tests whether a signal interrupts the caller
 *
 * Signal delivery converts -ERESTARTSYS to EINTR or restarts the system call.
 *
 * Return: 0, or -ERESTARTSYS if a signal is pending.
 */
static inline int sluice_wait_check_signal(void)
{
	return signal_pending(current) ? -ERESTARTSYS : 0;
}

/**
 * sluice_wait_for_mutex() - locks a mutex; a signal interrupts the wait for it
 * @mutex: the mutex
 *
 * Return: 0 with the mutex locked, or -ERESTARTSYS if a signal came first.
 */
static inline int sluice_wait_for_mutex(struct mutex *mutex)
{
	return mutex_lock_interruptible(mutex) ? -ERESTARTSYS : 0;
}

/**
 * sluice_spin_init() - sets limit and window of a new endpoint to the module's limit
 * @spin: the spin window of the endpoint
 */
void sluice_spin_init(struct sluice_spin *spin);
/**
 * sluice_spin_set_limit() - sets limit and window of an endpoint
 * @spin: the spin window of the endpoint
 * @limit_ns: the limit in nanoseconds; 0: no spinning
 *
 * Return: the new limit, which is at most the module's limit.
 */
u32 sluice_spin_set_limit(struct sluice_spin *spin, u64 limit_ns);

/**
 * __sluice_wait_queue_init() - initialises a queue, for sluice_wait_queue_init()
 * @queue: the queue
 * @name: the name of its lock for lockdep
 * @key: the class of its lock for lockdep
 */
void __sluice_wait_queue_init(struct sluice_wait_queue *queue, const char *name,
			      struct lock_class_key *key);

/* A macro, so that lockdep has a class per queue, named as in the source. */
#define sluice_wait_queue_init(queue)					\
do {									\
	static struct lock_class_key __key;				\
									\
	__sluice_wait_queue_init(queue, #queue, &__key);		\
} while (0)

/**
 * sluice_wait_has_sleepers() - tests whether exclusive waiters sleep
 * @queue: the queue
 *
 * Return: true if exclusive waiters sleep; the answer may be outdated.
 */
static inline bool sluice_wait_has_sleepers(const struct sluice_wait_queue *queue)
{
	return READ_ONCE(queue->sleepers);
}

/**
 * sluice_wait_count() - the calls that sleep in a queue, for an enquiry
 * @queue: the queue
 *
 * Return: the number of waiters, without pollers; may be outdated.
 */
static inline unsigned int sluice_wait_count(const struct sluice_wait_queue *queue)
{
	return READ_ONCE(queue->sleepers) + READ_ONCE(queue->shared_sleepers);
}

/**
 * sluice_wait_is_used() - tests whether calls sleep in a queue, or poll it, for an enquiry
 * @head: the queue
 *
 * Return: true if it has entries; may be outdated.
 */
static inline bool sluice_wait_is_used(wait_queue_head_t *head)
{
	/* Without a barrier, because nothing depends on the answer. */
	return waitqueue_active(head);
}

/**
 * sluice_wait_begin() - begins a wait, for the macros sluice_wait_until*()
 * @wait: the wait
 * @queue: the queue whose events end the wait
 * @spin: the spin window of the endpoint; NULL: do not spin
 * @flags: WQ_FLAG_EXCLUSIVE, or 0: every event wakes the waiter
 */
void sluice_wait_begin(struct sluice_wait *wait, struct sluice_wait_queue *queue,
		       struct sluice_spin *spin, unsigned int flags);
/**
 * sluice_wait_iterate() - spins once, queues, or sleeps, after the condition was false
 * @wait: the wait
 *
 * Return: 0: check the condition again, -ERESTARTSYS: a signal is pending.
 */
int sluice_wait_iterate(struct sluice_wait *wait);
/**
 * sluice_wait_end() - ends a wait, whatever its result
 * @wait: the wait
 */
void sluice_wait_end(struct sluice_wait *wait);
/**
 * sluice_wait_done() - ends the wake-up in progress, after an exclusive wait and its operation
 * @queue: the queue
 *
 * The caller then checks the condition, and calls sluice_wait_wake_one() if it still holds. This
 * function has a full barrier before that check if it ends a wake-up.
 */
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
 * Waits until @condition: 0, or -ERESTARTSYS if a signal came first. The condition is evaluated
 * many times and must have no side effect, nor sleep. One event wakes one such waiter, whose caller
 * must call sluice_wait_done() and wake the next one (see above).
 */
#define sluice_wait_until(queue, condition, spin)			\
	__sluice_wait_until(queue, condition, spin, WQ_FLAG_EXCLUSIVE)

/* For events that concern every waiter: each event wakes all, and none wakes the next. */
#define sluice_wait_until_shared(queue, condition, spin)		\
	__sluice_wait_until(queue, condition, spin, 0)

/**
 * sluice_wait_poll() - queues a poller
 * @file: the polled file
 * @queue: the queue
 * @table: the poll table of the caller
 *
 * Calls poll_wait(). Has a full barrier between the queueing and the caller's check of its
 * condition.
 */
void sluice_wait_poll(struct file *file, struct sluice_wait_queue *queue, poll_table *table);

/**
 * sluice_wait_add_shared() - queues an entry with a function of its own
 * @queue: the queue
 * @entry: the entry; every event calls its function, until remove_wait_queue()
 *
 * Has a full barrier after the queueing. The caller then checks its condition.
 */
void sluice_wait_add_shared(struct sluice_wait_queue *queue, struct wait_queue_entry *entry);

/**
 * sluice_wait_wakes_one() - tests, after a change, whether to call sluice_wait_wake_one()
 * @queue: the queue
 *
 * Has a full barrier before it looks at the queue.
 *
 * Return: true if sluice_wait_wake_one() would wake a waiter.
 */
bool sluice_wait_wakes_one(struct sluice_wait_queue *queue);

/**
 * sluice_wait_wake_one() - wakes, after a change, one exclusive waiter and every poller
 * @queue: the queue
 * @events: the events, by which pollers filter
 *
 * Also wakes every waiter that is not exclusive. Wakes nobody if a wake-up is in progress and the
 * queue has neither pollers nor such waiters. Has a full barrier before it looks at the queue.
 */
void sluice_wait_wake_one(struct sluice_wait_queue *queue, __poll_t events);

/**
 * sluice_wait_wake_all() - wakes all waiters, after a change that concerns all of them
 * @queue: the queue
 * @events: the events, by which pollers filter; 0 wakes all pollers
 *
 * Such a change is the end of file, or that no reader is left. Has a full barrier before it looks
 * at the queue.
 */
void sluice_wait_wake_all(struct sluice_wait_queue *queue, __poll_t events);

#endif
