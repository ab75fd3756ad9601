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

/**
 * sluice_scope_access_self() - finds or creates the scope of the calling thread
 * @access: out: the scope with a reference, and the caller's permissions
 *
 * Return: 0, -ENOMEM; -EOPNOTSUPP: the thread is in the root cgroup and the host has no cgroup v2
 * hierarchy, so all processes would share one scope.
 */
int sluice_scope_access_self(struct sluice_scope_access *access);

/**
 * sluice_scope_access_root() - finds or creates the scope of the root cgroup
 * @access: out: the scope with a reference, and the caller's permissions
 *
 * Also works on a host without a cgroup v2 hierarchy. The scope is not visible in a cgroup
 * namespace with another root, and no caller may create in it.
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_scope_access_root(struct sluice_scope_access *access);

/**
 * sluice_scope_access_fd() - finds or creates the scope of a cgroup that is open as a directory
 * @access: out: the scope with a reference, and the caller's permissions
 * @fd: descriptor of the directory
 *
 * Return: 0, -ENOMEM; -EBADF: @fd is not a directory of a cgroup (v2); -ENOENT: the cgroup is
 * removed.
 */
int sluice_scope_access_fd(struct sluice_scope_access *access, int fd);

/**
 * sluice_scope_get() - takes a reference to a scope
 * @scope: the scope, to which the caller has a reference
 *
 * Return: @scope.
 */
struct sluice_scope *sluice_scope_get(struct sluice_scope *scope);
/**
 * sluice_scope_put() - puts a reference to a scope
 * @scope: the scope, or NULL
 *
 * The last put removes the scope from the table and puts its parent.
 */
void sluice_scope_put(struct sluice_scope *scope);

/**
 * sluice_scope_find() - the scope of a cgroup, with a reference
 * @cgroup: the cgroup, which need not be online
 *
 * Context: any context except NMI.
 * Return: the scope, or NULL if there is none.
 */
struct sluice_scope *sluice_scope_find(struct cgroup *cgroup);

/**
 * sluice_scope_is_online() - tests whether the cgroup of a scope is online
 * @scope: the scope
 *
 * Return: false once the cgroup is being removed.
 */
bool sluice_scope_is_online(const struct sluice_scope *scope);

/**
 * sluice_scope_get_memcg() - the memory cgroup of a scope, with a reference
 * @scope: the scope
 *
 * Return: the memory cgroup of the scope's cgroup, or of the nearest cgroup above that has one.
 * Where the memory controller is not part of the cgroup v2 hierarchy it is the root, which counts
 * nothing.
 */
struct mem_cgroup *sluice_scope_get_memcg(const struct sluice_scope *scope);
/**
 * sluice_scope_path() - the path of a scope's cgroup from the root
 * @scope: the scope
 * @gfp: for the memory of the path
 *
 * Context: may sleep, whatever @gfp is.
 * Return: the path, which the caller frees with kfree(); NULL: there is no memory, or the path is
 * too long.
 */
char *sluice_scope_path(const struct sluice_scope *scope, gfp_t gfp);

/**
 * sluice_scope_init() - prepares the table of scopes, when the module is loaded
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_scope_init(void);
/**
 * sluice_scope_exit() - waits until all scopes are freed, when the module is unloaded
 */
void sluice_scope_exit(void);

#endif
