/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cgroup (v2) that an object lives in.
 *
 * Life: the first object of a cgroup creates its scope and those of the cgroups above. Every object
 * and every scope right below holds one reference; the last put takes the scope out of the table
 * and frees it. A cgroup that uses nothing has no scope, so its removal leaves nothing to clean up.
 *
 * Identity: a scope holds a reference to its cgroup for as long as it lives. The pointer is
 * therefore a key that is never reused, even when the cgroup is removed and another gets its name.
 */
#ifndef SLUICE_SCOPE_H
#define SLUICE_SCOPE_H

#include <linux/list.h>
#include <linux/llist.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>

#include "quota.h"

struct cgroup;

struct sluice_scope {
	struct cgroup *cgroup;
	struct sluice_scope *parent;	/* held; that of the cgroup's parent, NULL for the root's */
	struct sluice_quota_usage usage; /* of this scope and all below it */
	refcount_t refs;		/* the last put is under the table's lock */
	struct rb_node node;		/* in the table, under its lock */
	struct llist_node release;	/* once the cgroup is removed, see cgroup_release.h */

	spinlock_t lock;		/* protects what follows */
	struct rb_root channels;	/* by kind and name; they hold us, we do not hold them */
	struct list_head persistent;	/* of them, those that need no endpoint */
};

/* A scope, held, and what the caller who asked for it may do there. */
struct sluice_scope_access {
	struct sluice_scope *scope;
	bool visible;			/* the caller is in the cgroup or below it */
	bool may_create;		/* the caller may create in it */
	bool at_or_below_root;		/* of the caller's cgroup namespace */
};

/*
 * The scope of the calling thread, created if need be. Errors: -EOPNOTSUPP on a host without a
 * cgroup v2 hierarchy, where every process would share one scope; -ENOMEM.
 */
int sluice_scope_access_self(struct sluice_scope_access *access);

/*
 * The scope of the cgroup whose directory is open as @fd, created if need be. Errors: -EBADF when
 * it is no directory of a cgroup (v2), -ENOENT when the cgroup is removed, -ENOMEM.
 */
int sluice_scope_access_fd(struct sluice_scope_access *access, int fd);

struct sluice_scope *sluice_scope_get(struct sluice_scope *scope);
void sluice_scope_put(struct sluice_scope *scope);

/* The scope of a cgroup if it has one, with a reference; otherwise NULL. In any context but NMI. */
struct sluice_scope *sluice_scope_find(struct cgroup *cgroup);

/* False once the cgroup is being removed. */
bool sluice_scope_is_online(const struct sluice_scope *scope);

int sluice_scope_init(void);
void sluice_scope_exit(void);

#endif
