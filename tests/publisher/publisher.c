// SPDX-License-Identifier: GPL-2.0
/*
 * A publisher for tests: it publishes packets in one feed from a chosen context and counts what
 * became of them.
 *
 * The parameters name, mode and capacity are those of the feed, which exists while the module is
 * loaded. Writing "CONTEXT COUNT LENGTH" to the parameter publish publishes packets of LENGTH bytes
 * and returns when all of them are published:
 *   task	COUNT packets, from the writing process
 *   irq	COUNT packets, each from an expiry of a timer in hard interrupt context
 *   cpus	COUNT packets on each processor, from interrupts on all of them at once
 *   nested	COUNT packets on each processor, from threads and from timers that interrupt them
 *   nmi	COUNT packets from NMIs on one processor, which interrupt a publishing thread
 *
 * Writing a name to the parameter create creates another feed and destroys it.
 *
 * The parameter result says "DELIVERED LOST TOO_LONG": the results of all publishes so far.
 *
 * The packets of a context are numbered for each processor, except those of "task".
 *
 * A packet begins with struct test_packet as far as LENGTH permits; the lowest byte of its number
 * is repeated up to LENGTH.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>

#include <linux/sluice_feed.h>

#include "../compat.h"
#include "nmi.h"

#define LENGTH_MAX 8192u
#define BATCH 16u			/* packets per interrupt of all processors */
/*
 * How many packets a thread publishes for each NMI that is sent to it. Without a limit it would
 * fill the feed where NMIs are slow, and the packets of all further ones would be lost.
 */
#define PACKETS_PER_NMI 1000u
#define TIMER_IDLE_NS 200000

enum context { TASK, IRQ, NMI, CONTEXTS };

/* Numbers count the calls of one context on one processor. */
struct test_packet {
	u64 number;
	u32 context;
	u32 cpu;
};

/* The packets of one context on one processor, which do not interrupt each other. */
struct stream {
	u64 calls;
	union {
		struct test_packet head;
		u8 bytes[LENGTH_MAX];
	};
};

static char *name = "published";
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "Name of the feed");

static unsigned int mode = 0600;
module_param(mode, uint, 0444);
MODULE_PARM_DESC(mode, "Permission bits of the feed");

static unsigned long capacity;
module_param(capacity, ulong, 0444);
MODULE_PARM_DESC(capacity, "Capacity of the feed in bytes, 0: default");

static DEFINE_MUTEX(mutex);		/* one run at a time, none after the exit */
static struct sluice_feed *feed;	/* NULL after the exit */
static struct stream *streams;		/* CONTEXTS for each processor */
static unsigned int packet_length;
static atomic64_t delivered, lost, too_long;

/* ---- one packet ---- */

static enum context current_context(void)
{
	if (in_nmi())
		return NMI;
	return in_hardirq() ? IRQ : TASK;
}

static void count(int result)
{
	if (result == -ENOBUFS)
		atomic64_inc(&lost);
	else if (result == -EMSGSIZE)
		atomic64_inc(&too_long);
	else
		atomic64_inc(&delivered);
}

static void publish_as(enum context context, int cpu)
{
	struct stream *stream = &streams[cpu * CONTEXTS + context];

	memset(stream->bytes, (u8)stream->calls, packet_length);
	stream->head.number = stream->calls++;
	stream->head.context = context;
	stream->head.cpu = cpu;
	count(sluice_feed_publish(feed, stream->bytes, packet_length));
}

static void publish_one(void)
{
	publish_as(current_context(), get_cpu());
	put_cpu();
}

/* ---- timers in hard interrupt context ---- */

struct ticker {
	struct hrtimer timer;
	struct completion done;
	unsigned int left;		/* packets; 0: until it is cancelled */
};

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct ticker *ticker = container_of(timer, struct ticker, timer);

	publish_one();
	if (ticker->left && !--ticker->left) {
		complete(&ticker->done);
		return HRTIMER_NORESTART;
	}
	hrtimer_set_expires(timer, ktime_add_ns(ktime_get(), TIMER_IDLE_NS));
	return HRTIMER_RESTART;
}

static void ticker_init(struct ticker *ticker, unsigned int left)
{
	init_completion(&ticker->done);
	ticker->left = left;
	hrtimer_setup(&ticker->timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
}

/* On the processor that it is to run on. */
static void ticker_start(void *ticker)
{
	hrtimer_start(&((struct ticker *)ticker)->timer, ns_to_ktime(TIMER_IDLE_NS),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

/* ---- the contexts ---- */

/* As if on the first processor, whichever it is. 0, or -EINTR after a fatal signal. */
static int publish_in_task(unsigned int packets)
{
	while (packets--) {
		publish_as(TASK, 0);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

static int publish_in_irq(unsigned int packets)
{
	static struct ticker ticker;	/* timers are not on the stack */
	int err;

	ticker_init(&ticker, packets);
	preempt_disable();
	ticker_start(&ticker);
	preempt_enable();
	err = wait_for_completion_killable(&ticker.done) ? -EINTR : 0;
	hrtimer_cancel(&ticker.timer);
	return err;
}

static void publish_batch(void *packets)
{
	unsigned int left = *(unsigned int *)packets;

	while (left--)
		publish_one();
}

static int publish_on_cpus(unsigned int packets)
{
	while (packets) {
		unsigned int batch = min(packets, BATCH);

		on_each_cpu(publish_batch, &batch, true);
		packets -= batch;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* A thread that is bound to a processor. */
struct publisher {
	struct task_struct *task;
	struct ticker ticker;
	struct completion done;
	unsigned int packets;		/* grows with each NMI that is sent to it */
	unsigned int nmi_id;		/* UINT_MAX until it runs */
	bool ticks;			/* else NMIs interrupt it, until it is stopped */
	bool stop;
};

static int publisher_run(void *argument)
{
	struct publisher *publisher = argument;
	unsigned int published = 0;

	WRITE_ONCE(publisher->nmi_id, nmi_own_id());
	if (publisher->ticks) {
		preempt_disable();
		ticker_start(&publisher->ticker);
		preempt_enable();
	}
	while (!READ_ONCE(publisher->stop)) {
		if (published < READ_ONCE(publisher->packets)) {
			publish_one();
			published++;
		} else if (publisher->ticks) {
			break;
		}
		cond_resched();
	}
	complete(&publisher->done);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static int publisher_start(struct publisher *publisher, int cpu, unsigned int packets, bool ticks)
{
	init_completion(&publisher->done);
	ticker_init(&publisher->ticker, 0);
	publisher->packets = packets;
	publisher->ticks = ticks;
	publisher->task = kthread_create(publisher_run, publisher, "sluice_publisher/%d", cpu);
	if (IS_ERR(publisher->task))
		return PTR_ERR(publisher->task);
	kthread_bind(publisher->task, cpu);
	wake_up_process(publisher->task);
	return 0;
}

/* 0, or -EINTR after a fatal signal. */
static int publisher_finish(struct publisher *publisher)
{
	int err = wait_for_completion_killable(&publisher->done) ? -EINTR : 0;

	WRITE_ONCE(publisher->stop, true);
	kthread_stop(publisher->task);
	if (publisher->ticks)
		hrtimer_cancel(&publisher->ticker.timer);
	return err;
}

static int publish_nested(unsigned int packets)
{
	struct publisher *publishers = kcalloc(nr_cpu_ids, sizeof(*publishers), GFP_KERNEL);
	int cpu, last = -1, err = 0;

	if (!publishers)
		return -ENOMEM;
	cpus_read_lock();
	for_each_online_cpu(cpu) {
		err = publisher_start(&publishers[cpu], cpu, packets, true);
		if (err)
			break;
		last = cpu;
	}
	for_each_online_cpu(cpu)
		if (cpu <= last)
			err = publisher_finish(&publishers[cpu]) ?: err;
	cpus_read_unlock();
	kfree(publishers);
	return err;
}

/* To the processor of the publisher, once that one runs. */
static int send_nmis(struct publisher *publisher, unsigned int packets)
{
	int err = 0;

	while (!err && packets) {
		unsigned int id = READ_ONCE(publisher->nmi_id);

		if (id != UINT_MAX) {
			WRITE_ONCE(publisher->packets, publisher->packets + PACKETS_PER_NMI);
			err = nmi_call(id);
			packets--;
		}
		if (fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	return err;
}

static int publish_in_nmi(unsigned int packets)
{
	unsigned int other = cpumask_any_but(cpu_online_mask, raw_smp_processor_id());
	static struct publisher publisher;	/* contains a timer */
	int err;

	if (other >= nr_cpu_ids)
		return -EOPNOTSUPP;
	publisher.nmi_id = UINT_MAX;
	publisher.stop = false;
	err = nmi_init(publish_one);
	if (err)
		return err;
	err = publisher_start(&publisher, other, 0, false);
	if (!err) {
		err = send_nmis(&publisher, packets);
		WRITE_ONCE(publisher.stop, true);
		err = publisher_finish(&publisher) ?: err;
	}
	nmi_exit();
	return err;
}

/* ---- parameters ---- */

static const struct {
	const char *name;
	int (*publish)(unsigned int packets);
} contexts[] = {
	{ "task", publish_in_task },
	{ "irq", publish_in_irq },
	{ "cpus", publish_on_cpus },
	{ "nested", publish_nested },
	{ "nmi", publish_in_nmi },
};

static int publish(const char *context, unsigned int packets)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(contexts); i++)
		if (!strcmp(contexts[i].name, context))
			return contexts[i].publish(packets);
	return -EINVAL;
}

static int set_publish(const char *text, const struct kernel_param *unused)
{
	unsigned int packets, length;
	char context[16];
	int err = -ENODEV;

	if (sscanf(text, "%15s %u %u", context, &packets, &length) != 3)
		return -EINVAL;
	if (!packets || length > LENGTH_MAX)
		return -EINVAL;
	mutex_lock(&mutex);
	if (feed) {
		packet_length = length;
		err = publish(context, packets);
	}
	mutex_unlock(&mutex);
	return err;
}

static const struct kernel_param_ops publish_ops = { .set = set_publish };
module_param_cb(publish, &publish_ops, NULL, 0200);

static int set_create(const char *text, const struct kernel_param *unused)
{
	struct sluice_feed *other = sluice_feed_create(text, mode, capacity);

	if (IS_ERR(other))
		return PTR_ERR(other);
	sluice_feed_destroy(other);
	return 0;
}

static const struct kernel_param_ops create_ops = { .set = set_create };
module_param_cb(create, &create_ops, NULL, 0200);

static int get_result(char *buffer, const struct kernel_param *unused)
{
	return sysfs_emit(buffer, "%lld %lld %lld\n", atomic64_read(&delivered),
			  atomic64_read(&lost), atomic64_read(&too_long));
}

static const struct kernel_param_ops result_ops = { .get = get_result };
module_param_cb(result, &result_ops, NULL, 0400);

static int __init publisher_init(void)
{
	struct sluice_feed *created;

	streams = kvcalloc(nr_cpu_ids, CONTEXTS * sizeof(*streams), GFP_KERNEL);
	if (!streams)
		return -ENOMEM;
	created = sluice_feed_create(name, mode, capacity);
	if (IS_ERR(created)) {
		kvfree(streams);
		return PTR_ERR(created);
	}
	feed = created;
	return 0;
}

static void __exit publisher_exit(void)
{
	struct sluice_feed *last = feed;

	mutex_lock(&mutex);
	feed = NULL;
	mutex_unlock(&mutex);
	sluice_feed_destroy(last);
	kvfree(streams);
}

module_init(publisher_init);
module_exit(publisher_exit);

MODULE_DESCRIPTION("A publisher for the tests of feeds");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
