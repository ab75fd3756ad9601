/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cgroup (v2) that an object lives in.
 *
 * Life: the first object of a cgroup makes its scope, every object holds one reference, and the
 * last one to go takes the scope out of the table and frees it. Nothing is kept for a cgroup that
 * uses nothing, so there is nothing to clean up when a cgroup is removed.
 *
 * Identity: a scope holds a reference to its cgroup for as long as it lives. The pointer is
 * therefore a key that is never reused, even when the cgroup is removed and another gets its name.
 */
#ifndef SLUICE_SCOPE_H
#define SLUICE_SCOPE_H

#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>

struct cgroup;
struct sluice_pipe;

struct sluice_scope {
	struct cgroup *cgroup;
	refcount_t refs;
	struct rb_node node;		/* in the table, under its lock */

	spinlock_t lock;		/* protects what follows */
	struct sluice_pipe *pipe;	/* the default pipe; holds us, we do not hold it */
};

/*
 * The scope of the calling thread, with a reference, made if need be. Errors: -EOPNOTSUPP without a
 * cgroup v2 hierarchy, where every process would share one scope; -ENOMEM.
 */
struct sluice_scope *sluice_scope_get_self(void);
void sluice_scope_put(struct sluice_scope *scope);

int sluice_scope_init(void);
void sluice_scope_exit(void);

#endif
