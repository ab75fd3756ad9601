// SPDX-License-Identifier: GPL-2.0
/*
 * The timer of a map expires when the first of its entries does, or before. Its worker then removes
 * entries that have expired, a bounded number, and starts the timer for the next entry.
 *
 * `armed` is the time for which the timer or the worker is on its way. The worker sets it to
 * FOREVER before it looks at the shards, so that an entry that it has just passed arms the timer
 * itself.
 */
#include <linux/workqueue.h>

#include "compat.h"
#include "map.h"

/* Entries that expire within this time of each other are removed together. */
#define SLACK_NS (NSEC_PER_MSEC)
/* Maps whose workers run at a time: no cgroup is charged for the CPU time of workers. */
#define WORKERS 4

static struct workqueue_struct *workers;

void sluice_map_expiry_arm(struct sluice_map *map, u64 expires)
{
	if (READ_ONCE(map->armed) <= expires)
		return;
	spin_lock(&map->timer_lock);
	if (expires < map->armed && !map->ending) {
		WRITE_ONCE(map->armed, expires);
		hrtimer_start_range_ns(&map->timer, ns_to_ktime(expires), SLACK_NS,
				       HRTIMER_MODE_ABS);
	}
	spin_unlock(&map->timer_lock);
}

void sluice_map_expiry_disarm(struct sluice_map *map)
{
	spin_lock(&map->timer_lock);
	WRITE_ONCE(map->armed, SLUICE_MAP_FOREVER);
	spin_unlock(&map->timer_lock);
}

static enum hrtimer_restart start_worker(struct hrtimer *timer)
{
	struct sluice_map *map = container_of(timer, struct sluice_map, timer);

	queue_work(workers, &map->expiry);
	return HRTIMER_NORESTART;
}

bool sluice_map_expiry_is_due(struct sluice_map *map)
{
	return READ_ONCE(map->armed) <= ktime_get_boottime_ns() || work_busy(&map->expiry);
}

void sluice_map_expiry_hasten(struct sluice_map *map)
{
	if (!sluice_map_expiry_is_due(map))
		return;
	spin_lock(&map->timer_lock);
	if (!map->ending)
		queue_work(workers, &map->expiry);
	spin_unlock(&map->timer_lock);
}

void sluice_map_expiry_init(struct sluice_map *map, work_func_t worker)
{
	spin_lock_init(&map->timer_lock);
	map->armed = SLUICE_MAP_FOREVER;
	hrtimer_setup(&map->timer, start_worker, CLOCK_BOOTTIME, HRTIMER_MODE_ABS);
	INIT_WORK(&map->expiry, worker);
}

/* Once `ending` is set, nothing arms the timer or queues the worker any more. */
void sluice_map_expiry_exit(struct sluice_map *map)
{
	spin_lock(&map->timer_lock);
	WRITE_ONCE(map->ending, true);
	spin_unlock(&map->timer_lock);
	hrtimer_cancel(&map->timer);
	cancel_work_sync(&map->expiry);
}

int sluice_map_expiry_start(void)
{
	workers = alloc_workqueue("sluice_expiry", WQ_UNBOUND, WORKERS);
	return workers ? 0 : -ENOMEM;
}

void sluice_map_expiry_stop(void)
{
	destroy_workqueue(workers);
}
