/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A scope: the cgroup (v2) of an object.
 *
 * Life: the first object of a cgroup creates its scope and those of the cgroups above. Every object
 * and every child scope holds one reference; the last put removes the scope from the table and
 * frees it after a grace period of RCU. A cgroup without objects has no scope, so its removal needs
 * no cleanup.
 *
 * Identity: a scope holds a reference to its cgroup. The pointer is therefore a key that is never
 * reused while the scope exists, even if the cgroup is removed and another gets its name.
 */
#ifndef SLUICE_SCOPE_H
#define SLUICE_SCOPE_H

#include <linux/list.h>
#include <linux/llist.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "quota.h"

struct cgroup;
struct mem_cgroup;

struct sluice_scope {
	struct cgroup *cgroup;
	struct sluice_scope *parent;	/* of the cgroup's parent, with a reference; or NULL */
	struct sluice_quota_usage usage; /* of this scope and all below it */
	refcount_t refs;		/* the last put is under the table's lock */
	struct hlist_node node;		/* in the table */
	struct rcu_head rcu;		/* to be freed */
	struct llist_node release;	/* for the removed cgroup, see cgroup_release.h */

	spinlock_t lock;		/* protects the following fields */
	struct rb_root channels;	/* by kind and name, without references */
	struct list_head persistent;	/* the persistent ones of them */
};

/* A scope with a reference, and the permissions of the caller there. */
struct sluice_scope_access {
	struct sluice_scope *scope;
	bool visible;			/* the caller is in the cgroup or below it */
	bool may_create;		/* the caller may create in it */
	bool at_or_below_root;		/* of the caller's cgroup namespace */
	kuid_t owner;			/* of the directory that designates it; else invalid */
};

/*
 * Finds or creates the scope of the calling thread. -EOPNOTSUPP: the host has no cgroup v2
 * hierarchy, and all processes would share one scope. -ENOMEM.
 */
int sluice_scope_access_self(struct sluice_scope_access *access);

/*
 * Finds or creates the scope of the root cgroup, also on a host without a cgroup v2 hierarchy. It
 * is not visible in a cgroup namespace with another root. -ENOMEM.
 */
int sluice_scope_access_root(struct sluice_scope_access *access);

/*
 * Finds or creates the scope of the cgroup whose directory is open as @fd. -EBADF: it is not a
 * directory of a cgroup (v2). -ENOENT: the cgroup is removed. -ENOMEM.
 */
int sluice_scope_access_fd(struct sluice_scope_access *access, int fd);

struct sluice_scope *sluice_scope_get(struct sluice_scope *scope);
void sluice_scope_put(struct sluice_scope *scope);

/* Returns the scope of a cgroup with a reference, or NULL. In any context except NMI. */
struct sluice_scope *sluice_scope_find(struct cgroup *cgroup);

/* False once the cgroup is being removed. */
bool sluice_scope_is_online(const struct sluice_scope *scope);

/*
 * The memory cgroup of the cgroup, or of the nearest one above that has one, with a reference.
 * Where the memory controller is not part of the cgroup v2 hierarchy it is the root, which counts
 * nothing.
 */
struct mem_cgroup *sluice_scope_get_memcg(const struct sluice_scope *scope);
/* The path of the cgroup from the root, to be freed; or NULL: no memory, or too long. */
char *sluice_scope_path(const struct sluice_scope *scope, gfp_t gfp);

int sluice_scope_init(void);
void sluice_scope_exit(void);

#endif
