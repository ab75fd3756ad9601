// SPDX-License-Identifier: GPL-2.0
#include <linux/cgroup.h>
#include <linux/llist.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "channel.h"
#include "cgroup_release.h"
#include "compat.h"
#include "scope.h"

static struct tracepoint *cgroup_rmdir;
static LLIST_HEAD(removed);		/* scopes, each with a reference */

static void drop_channels(struct work_struct *work)
{
	struct llist_node *list = llist_del_all(&removed);
	struct sluice_scope *scope, *next;

	llist_for_each_entry_safe(scope, next, list, release) {
		sluice_channel_drop_persistent(scope);
		sluice_scope_put(scope);
	}
}

static DECLARE_WORK(release_work, drop_channels);

/* The cgroup is marked offline by now: an open that adds a channel later sees that (channel.c). */
static void note_rmdir(void *unused, struct cgroup *cgroup, const char *path)
{
	struct sluice_scope *scope;

	smp_mb();	/* (scope-O): between the mark and the look-up; pairs with check_online() */
	scope = sluice_scope_find(cgroup);
	if (!scope)
		return;
	/* A cgroup is removed only once, so the scope is not in the list yet. */
	llist_add(&scope->release, &removed);
	/* Not on this CPU: freeing thousands of channels would delay its other work. */
	queue_work(system_dfl_wq, &release_work);
}

static void note_tracepoint(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "cgroup_rmdir"))
		cgroup_rmdir = tracepoint;
}

int sluice_cgroup_release_init(void)
{
	for_each_kernel_tracepoint(note_tracepoint, NULL);
	if (!cgroup_rmdir)
		return -EOPNOTSUPP;
	return tracepoint_probe_register(cgroup_rmdir, note_rmdir, NULL);
}

void sluice_cgroup_release_exit(void)
{
	tracepoint_probe_unregister(cgroup_rmdir, note_rmdir, NULL);
	tracepoint_synchronize_unregister();
	flush_work(&release_work);
}
