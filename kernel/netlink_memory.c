// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for requests. A request never waits for its memory cgroup: without memory at once it fails
 * with EAGAIN. A cgroup at its limit is usually full of the page cache, which only a charge that
 * waits reclaims. A worker makes such a charge, so that the next attempt finds memory.
 */
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "map.h"
#include "netlink.h"
#include "quota.h"

/* Memory cgroups that wait for their reclaim. Without a place it starts with a later attempt. */
#define RECLAIMS 16
/* Of them, those in which memory is reclaimed at the same time. */
#define WORKERS 4
/*
 * More than any request needs, which is the log of a new map, and more than the kernel keeps back
 * for the processor of the worker, where the sender would not find it.
 */
#define RECLAIMED (2 * SLUICE_MAP_EVENTS_MAX * sizeof(struct sluice_map_slot))

struct reclaim {
	struct work_struct work;
	struct mem_cgroup *memcg;	/* with a reference, until it is done; under the lock */
};

static DEFINE_SPINLOCK(reclaims_lock);
static struct reclaim reclaims[RECLAIMS];
static struct workqueue_struct *workers;

/* The allocation reclaims the page cache; its end leaves the room. */
static void reclaim_run(struct work_struct *work)
{
	struct reclaim *reclaim = container_of(work, struct reclaim, work);
	struct mem_cgroup *memcg = READ_ONCE(reclaim->memcg);
	struct mem_cgroup *old = set_active_memcg(memcg);

	vfree(__vmalloc(RECLAIMED, SLUICE_QUOTA_GFP_BRIEF));
	set_active_memcg(old);
	spin_lock(&reclaims_lock);
	WRITE_ONCE(reclaim->memcg, NULL);
	spin_unlock(&reclaims_lock);
	mem_cgroup_put(memcg);
}

/* Under the lock: the one for a memory cgroup, or an unused one, or NULL. */
static struct reclaim *reclaim_find(const struct mem_cgroup *memcg)
{
	struct reclaim *unused = NULL;
	unsigned int i;

	for (i = 0; i < RECLAIMS; i++) {
		if (reclaims[i].memcg == memcg)
			return &reclaims[i];
		if (!reclaims[i].memcg)
			unused = &reclaims[i];
	}
	return unused;
}

static void reclaim_begin_and_put(struct mem_cgroup *memcg)
{
	struct reclaim *reclaim;
	bool begins;

	spin_lock(&reclaims_lock);
	reclaim = reclaim_find(memcg);
	begins = reclaim && !reclaim->memcg;
	if (begins)
		WRITE_ONCE(reclaim->memcg, memcg);
	spin_unlock(&reclaims_lock);
	if (begins)
		queue_work(workers, &reclaim->work);
	else
		mem_cgroup_put(memcg);
}

int sluice_netlink_memory(int err, struct mem_cgroup *memcg)
{
	if (err != -ENOMEM)
		return err;
	if (memcg)
		css_get(&memcg->css);
	else
		memcg = get_mem_cgroup_from_mm(current->mm);
	if (memcg)	/* there is none without the controller */
		reclaim_begin_and_put(memcg);
	return -EAGAIN;
}

int __init sluice_netlink_memory_init(void)
{
	unsigned int i;

	for (i = 0; i < RECLAIMS; i++)
		INIT_WORK(&reclaims[i].work, reclaim_run);
	workers = alloc_workqueue("sluice_reclaim", WQ_UNBOUND, WORKERS);
	return workers ? 0 : -ENOMEM;
}

void sluice_netlink_memory_exit(void)
{
	destroy_workqueue(workers);
}
