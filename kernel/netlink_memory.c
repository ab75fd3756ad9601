// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for requests. A request never waits for its memory cgroup: without memory at once it fails
 * with EAGAIN. Nothing might ever change that, since a cgroup at its limit is usually full of the
 * page cache; so a worker reclaims some, and the next attempt finds it.
 */
#include <linux/bitops.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "netlink.h"
#include "quota.h"

/* Memory cgroups in which memory is reclaimed at the same time; others have another attempt. */
#define RECLAIMS 4
/* More than any request needs, in bytes. */
#define RECLAIMED SZ_128K

struct reclaim {
	struct work_struct work;
	struct mem_cgroup *memcg;	/* with a reference, while it is busy */
};

static struct reclaim reclaims[RECLAIMS];
static unsigned long busy;		/* a bit for each of them */
static struct workqueue_struct *workers;

/* Room is made by using it; afterwards it is free. */
static void run(struct work_struct *work)
{
	struct reclaim *reclaim = container_of(work, struct reclaim, work);
	struct mem_cgroup *old = set_active_memcg(reclaim->memcg);

	vfree(__vmalloc(RECLAIMED, SLUICE_QUOTA_GFP_BRIEF));
	set_active_memcg(old);
	mem_cgroup_put(reclaim->memcg);
	clear_bit_unlock(reclaim - reclaims, &busy);
}

/* Takes over a reference to @memcg. */
static void begin(struct mem_cgroup *memcg)
{
	unsigned int i;

	for (i = 0; i < RECLAIMS; i++) {
		if (!test_and_set_bit_lock(i, &busy)) {
			reclaims[i].memcg = memcg;
			queue_work(workers, &reclaims[i].work);
			return;
		}
	}
	mem_cgroup_put(memcg);
}

int sluice_netlink_memory(int err, struct mem_cgroup *memcg)
{
	if (err != -ENOMEM)
		return err;
	if (memcg)
		css_get(&memcg->css);
	begin(memcg ?: get_mem_cgroup_from_mm(current->mm));
	return -EAGAIN;
}

int __init sluice_netlink_memory_init(void)
{
	unsigned int i;

	for (i = 0; i < RECLAIMS; i++)
		INIT_WORK(&reclaims[i].work, run);
	workers = alloc_workqueue("sluice_reclaim", WQ_UNBOUND, RECLAIMS);
	return workers ? 0 : -ENOMEM;
}

void sluice_netlink_memory_exit(void)
{
	destroy_workqueue(workers);
}
