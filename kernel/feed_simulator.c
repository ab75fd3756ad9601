// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/time64.h>

#include "compat.h"
#include "feed.h"
#include "feed_simulator.h"
#include "user_struct.h"

#define INTERVAL_MIN_NS (10 * NSEC_PER_USEC)
#define INTERVAL_MAX_NS (10 * NSEC_PER_SEC)
#define IDLE_NS (INTERVAL_MIN_NS / 2)

/*
 * On PREEMPT_RT the timer runs in hard interrupt context only if it asks for that; there it may not
 * wake a process directly.
 */
#define TIMER_MODE (IS_ENABLED(CONFIG_PREEMPT_RT) ? HRTIMER_MODE_ABS_PINNED_HARD : \
						    HRTIMER_MODE_ABS_PINNED)

static struct sluice_feed *feed;
static struct hrtimer timer;
static u8 payload[SLUICE_FEED_PACKET_MAX];

static DEFINE_MUTEX(simulator_mutex);		/* serialises start and stop; protects the owner */
static struct sluice_feed_endpoint *owner;	/* has started it; NULL: it does not run */

/* Set at the start. */
static struct sluice_feed_start settings = { .cpu = SLUICE_FEED_CPU_ANY };
static ktime_t started;

/* Of the last start; written by the timer. */
static bool running;
static u64 expired, missed;
static ktime_t last;

static enum hrtimer_restart publish_next(struct hrtimer *timer)
{
	ktime_t began = ktime_get(), ended, idle;

	memset(payload, (u8)expired, settings.length);
	sluice_feed_publish_and_wake(feed, payload, settings.length);
	WRITE_ONCE(last, began);
	WRITE_ONCE(expired, expired + 1);
	if (settings.count && expired >= settings.count) {
		WRITE_ONCE(running, false);
		return HRTIMER_NORESTART;
	}
	ended = ktime_get();
	idle = max_t(ktime_t, ended - began, IDLE_NS);
	WRITE_ONCE(missed, missed - 1 +
		   hrtimer_forward(timer, ended + idle, ns_to_ktime(settings.interval_ns)));
	return HRTIMER_RESTART;
}

static bool simulator_are_valid(const struct sluice_feed_start *start)
{
	if (start->flags || start->length > SLUICE_FEED_PACKET_MAX)
		return false;
	if (start->interval_ns < INTERVAL_MIN_NS || start->interval_ns > INTERVAL_MAX_NS)
		return false;
	return start->cpu == SLUICE_FEED_CPU_ANY ||
	       (start->cpu >= 0 && start->cpu < nr_cpu_ids);
}

/*
 * On the CPU that the timer is to run on, with interrupts off. The state changes only here, so that
 * a start on a CPU that is offline leaves it as it was.
 */
static void start_timer(void *wanted)
{
	settings = *(const struct sluice_feed_start *)wanted;
	WRITE_ONCE(expired, 0);
	WRITE_ONCE(missed, 0);
	WRITE_ONCE(running, true);
	started = ktime_get();
	hrtimer_start(&timer, started + ns_to_ktime(settings.interval_ns),
		      TIMER_MODE);
}

/* Under the mutex. A timer that has reached its count does not run any more. */
static void stop(void)
{
	hrtimer_cancel(&timer);
	WRITE_ONCE(running, false);
	owner = NULL;
}

/* Under the mutex. 0, -EBUSY, -EINVAL: the CPU is offline. */
static int start(struct sluice_feed_endpoint *end, struct sluice_feed_start *wanted)
{
	if (READ_ONCE(running))
		return -EBUSY;
	stop();
	if (wanted->cpu == SLUICE_FEED_CPU_ANY)
		wanted->cpu = raw_smp_processor_id();
	if (smp_call_function_single(wanted->cpu, start_timer, wanted, true))
		return -EINVAL;
	owner = end;
	return 0;
}

long sluice_feed_simulator_start(struct sluice_feed_endpoint *end,
				 const struct sluice_feed_start __user *user)
{
	struct sluice_feed_start wanted;
	long ret = sluice_user_struct_read(&wanted, sizeof(wanted), SLUICE_FEED_START_SIZE_VER0,
					   user);

	if (ret)
		return ret;
	if (!simulator_are_valid(&wanted))
		return -EINVAL;
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	mutex_lock(&simulator_mutex);
	ret = start(end, &wanted);
	mutex_unlock(&simulator_mutex);
	return ret;
}

long sluice_feed_simulator_stop(struct sluice_feed_endpoint *end)
{
	long ret = 0;

	mutex_lock(&simulator_mutex);
	if (owner == end)
		stop();
	else if (READ_ONCE(running))
		ret = -EPERM;
	mutex_unlock(&simulator_mutex);
	return ret;
}

void sluice_feed_simulator_release(struct sluice_feed_endpoint *end)
{
	sluice_feed_simulator_stop(end);
}

void sluice_feed_simulator_fill_info(struct sluice_feed_info *info)
{
	mutex_lock(&simulator_mutex);
	info->running = READ_ONCE(running);
	info->cpu = settings.cpu;
	info->interval_ns = settings.interval_ns;
	info->expired = READ_ONCE(expired);
	info->missed = READ_ONCE(missed);
	info->elapsed_ns = info->expired ? ktime_to_ns(ktime_sub(READ_ONCE(last), started)) : 0;
	mutex_unlock(&simulator_mutex);
}

int sluice_feed_simulator_init(void)
{
	hrtimer_setup(&timer, publish_next, CLOCK_MONOTONIC, TIMER_MODE);
	/* It has no name, so the mode of the node is the only access control. */
	feed = sluice_feed_create_as("", 0666, 0, true);
	return PTR_ERR_OR_ZERO(feed);
}

/* No endpoint is open, so the timer does not run. */
void sluice_feed_simulator_exit(void)
{
	sluice_feed_destroy(feed);
}
