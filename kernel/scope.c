// SPDX-License-Identifier: GPL-2.0
/*
 * The table of scopes: a hash table by cgroup pointer. A look-up reads it under RCU, without a
 * lock that other cgroups use; it passes a scope that has no reference left. The first object of a
 * cgroup and the end of the last one change the table, under a lock.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/hashtable.h>
#include <linux/limits.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/mount.h>
#include <linux/nsproxy.h>
#include <linux/path.h>
#include <linux/pid_namespace.h>
#include <linux/rcupdate.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "compat.h"
#include "scope.h"

#define TABLE_BITS 12

/* Protects changes of the table, and the last put of a scope. */
static DEFINE_SPINLOCK(table_lock);
static DEFINE_HASHTABLE(table, TABLE_BITS);
static struct kmem_cache *scope_cache;

static bool is_cgroup2(const struct path *root, const char *name)
{
	struct file *file = file_open_root(root, name, O_PATH | O_DIRECTORY, 0);
	bool cgroup2;

	if (IS_ERR(file))
		return false;
	cgroup2 = file->f_path.mnt->mnt_sb->s_magic == CGROUP2_SUPER_MAGIC;
	fput(file);
	return cgroup2;
}

/* The root of process 1, with a reference; unless its first thread has exited. */
static void init_get_root(struct path *root)
{
	struct task_struct *init;

	/* The thread may exit, and another one of the process takes its place. */
	rcu_read_lock();
	init = READ_ONCE(init_pid_ns.child_reaper);
	task_lock(init);
	if (init->fs)
		get_fs_root(init->fs, root);
	task_unlock(init);
	rcu_read_unlock();
}

/*
 * The kernel has no interface for modules to determine whether the host uses a unified hierarchy.
 * Without one every process is in its root. A mount elsewhere proves nothing: any user can mount
 * the hierarchy in its own namespaces, and all mounts have the same superblock. The criterion is
 * what is mounted at the usual paths below the root of process 1.
 */
static bool host_uses_unified_hierarchy(void)
{
	struct path root = {};
	bool uses;

	init_get_root(&root);
	if (!root.mnt)
		return false;
	uses = is_cgroup2(&root, "sys/fs/cgroup") || is_cgroup2(&root, "sys/fs/cgroup/unified");
	path_put(&root);
	return uses;
}

/* Retries if the caller is moved meanwhile: then the cgroup may have no references left. */
static struct cgroup *own_cgroup_get(void)
{
	struct cgroup *cgroup;

	rcu_read_lock();
	do {
		cgroup = task_dfl_cgroup(current);
	} while (!cgroup_tryget(cgroup));
	rcu_read_unlock();
	return cgroup;
}

/* Under RCU or the table's lock: the scope of @cgroup with a reference, or NULL. */
static struct sluice_scope *scope_find(struct cgroup *cgroup)
{
	struct sluice_scope *scope;

	hash_for_each_possible_rcu(table, scope, node, (unsigned long)cgroup,
				   lockdep_is_held(&table_lock))
		if (scope->cgroup == cgroup && refcount_inc_not_zero(&scope->refs))
			return scope;
	return NULL;
}

/* Returns the scope of the cgroup of @new with a reference; or inserts @new. */
static struct sluice_scope *scope_find_or_insert(struct sluice_scope *new)
{
	struct sluice_scope *scope;

	spin_lock(&table_lock);
	scope = scope_find(new->cgroup);
	if (!scope) {
		scope = new;
		hash_add_rcu(table, &new->node, (unsigned long)new->cgroup);
	}
	spin_unlock(&table_lock);
	return scope;
}

/*
 * The new scope takes over the caller's reference to @parent. Its memory is not charged, because a
 * request over netlink must not wait for its memory cgroup; it is less than that of the cgroup.
 */
static struct sluice_scope *scope_create(struct cgroup *cgroup, struct sluice_scope *parent)
{
	struct sluice_scope *scope = kmem_cache_alloc(scope_cache, GFP_KERNEL | __GFP_NOWARN);

	if (!scope)
		return NULL;
	cgroup_get(cgroup);
	scope->cgroup = cgroup;
	scope->parent = parent;
	atomic64_set(&scope->usage.channels, 0);
	atomic64_set(&scope->usage.bytes, 0);
	refcount_set(&scope->refs, 1);
	scope->channels = RB_ROOT;
	INIT_LIST_HEAD(&scope->persistent);
	return scope;
}

static void scope_free(struct sluice_scope *scope)
{
	cgroup_put(scope->cgroup);
	kmem_cache_free(scope_cache, scope);
}

static void scope_free_rcu(struct rcu_head *rcu)
{
	scope_free(container_of(rcu, struct sluice_scope, rcu));
}

/* Takes over the caller's reference to @parent. */
static struct sluice_scope *scope_find_or_create(struct cgroup *cgroup, struct sluice_scope *parent)
{
	struct sluice_scope *scope = sluice_scope_find(cgroup), *new;

	if (scope)
		goto put_parent;
	new = scope_create(cgroup, parent);
	if (!new) {
		scope = ERR_PTR(-ENOMEM);
		goto put_parent;
	}
	scope = scope_find_or_insert(new);
	if (scope == new)
		return scope;
	scope_free(new);
put_parent:
	if (parent)
		sluice_scope_put(parent);
	return scope;
}

/* Creates scopes from the root down, because each holds its parent. */
static struct sluice_scope *scope_of(struct cgroup *cgroup)
{
	struct sluice_scope *scope = sluice_scope_find(cgroup);
	int level;

	for (level = 0; !IS_ERR(scope) && (!scope || scope->cgroup != cgroup); level++)
		scope = scope_find_or_create(cgroup_ancestor(cgroup, level), scope);
	return scope;
}

struct sluice_scope *sluice_scope_find(struct cgroup *cgroup)
{
	struct sluice_scope *scope;

	rcu_read_lock();
	scope = scope_find(cgroup);
	rcu_read_unlock();
	return scope;
}

/* Takes over the caller's reference to @cgroup. */
static int access_cgroup(struct sluice_scope_access *access, struct cgroup *cgroup)
{
	struct cgroup *root = current->nsproxy->cgroup_ns->root_cset->dfl_cgrp;

	access->at_or_below_root = cgroup_is_descendant(cgroup, root);
	access->scope = scope_of(cgroup);
	cgroup_put(cgroup);
	return PTR_ERR_OR_ZERO(access->scope);
}

int sluice_scope_access_self(struct sluice_scope_access *access)
{
	struct cgroup *cgroup = own_cgroup_get();

	if (cgroup == &cgrp_dfl_root.cgrp && !host_uses_unified_hierarchy()) {
		cgroup_put(cgroup);
		pr_warn_ratelimited("%s[%d]: open refused: without a cgroup v2 hierarchy at /sys/fs/cgroup all processes would share one scope; boot with systemd.unified_cgroup_hierarchy=1 or mount cgroup2 there\n",
				    current->comm, task_pid_nr(current));
		return -EOPNOTSUPP;
	}
	access->visible = true;
	access->may_create = true;
	access->owner = INVALID_UID;
	return access_cgroup(access, cgroup);
}

int sluice_scope_access_root(struct sluice_scope_access *access)
{
	struct cgroup *cgroup = &cgrp_dfl_root.cgrp;
	int err;

	cgroup_get(cgroup);
	err = access_cgroup(access, cgroup);
	access->visible = access->at_or_below_root;
	access->may_create = false;
	access->owner = INVALID_UID;
	return err;
}

static bool caller_is_descendant(struct cgroup *cgroup)
{
	bool descendant;

	rcu_read_lock();
	descendant = cgroup_is_descendant(task_dfl_cgroup(current), cgroup);
	rcu_read_unlock();
	return descendant;
}

/*
 * The kernel maps a descriptor to a cgroup, but not a file, and another thread can replace the file
 * of the descriptor between two look-ups. Hence the comparison.
 */
static bool is_directory_of(const struct file *file, const struct cgroup *cgroup)
{
	return file_inode(file)->i_private == cgroup->kn;
}

/*
 * Whether the caller could create a directory there. The permission check of a file does not
 * include its mount, which is usually read-only in a container.
 */
static bool is_writable(struct file *file)
{
	return !__mnt_is_readonly(file->f_path.mnt) &&
	       !file_permission(file, MAY_WRITE | MAY_EXEC);
}

int sluice_scope_access_fd(struct sluice_scope_access *access, int fd)
{
	struct cgroup *cgroup = cgroup_get_from_fd(fd);
	struct file *file;

	if (IS_ERR(cgroup))
		return PTR_ERR(cgroup);
	file = fget_raw(fd);
	if (!file || !is_directory_of(file, cgroup)) {
		cgroup_put(cgroup);
		if (file)
			fput(file);
		return -EBADF;
	}
	access->visible = caller_is_descendant(cgroup);
	access->may_create = is_writable(file);
	access->owner = file_inode(file)->i_uid;
	fput(file);
	return access_cgroup(access, cgroup);
}

bool sluice_scope_is_online(const struct sluice_scope *scope)
{
	return READ_ONCE(scope->cgroup->self.flags) & CSS_ONLINE;
}

struct mem_cgroup *sluice_scope_get_memcg(const struct sluice_scope *scope)
{
	return mem_cgroup_from_css(cgroup_get_e_css(scope->cgroup, &memory_cgrp_subsys));
}

char *sluice_scope_path(const struct sluice_scope *scope, gfp_t gfp)
{
	char *buffer = kmalloc(PATH_MAX, GFP_KERNEL), *path = NULL;

	int length = buffer ? cgroup_path(scope->cgroup, buffer, PATH_MAX) : -ENOMEM;

	/* Older kernels return the length of a path that they have cut off. */
	if (length > 0 && length < PATH_MAX)
		path = kstrdup(buffer, gfp);
	kfree(buffer);
	return path;
}

struct sluice_scope *sluice_scope_get(struct sluice_scope *scope)
{
	refcount_inc(&scope->refs);
	return scope;
}

static bool put_one(struct sluice_scope *scope)
{
	bool last;

	if (refcount_dec_not_one(&scope->refs))
		return false;
	spin_lock(&table_lock);
	last = refcount_dec_and_test(&scope->refs);
	if (last)
		hash_del_rcu(&scope->node);
	spin_unlock(&table_lock);
	return last;
}

/* The last put of a scope puts its parent, and so on up to the root. */
void sluice_scope_put(struct sluice_scope *scope)
{
	while (scope && put_one(scope)) {
		struct sluice_scope *parent = scope->parent;

		call_rcu_hurry(&scope->rcu, scope_free_rcu);
		scope = parent;
	}
}

/* Once per object of the cache: the lock of a freed scope remains initialised. */
static void scope_construct(void *memory)
{
	struct sluice_scope *scope = memory;

	spin_lock_init(&scope->lock);
}

int __init sluice_scope_init(void)
{
	scope_cache = kmem_cache_create("sluice_scope", sizeof(struct sluice_scope), 0, 0,
					scope_construct);
	if (!scope_cache)
		return -ENOMEM;
	if (!host_uses_unified_hierarchy())
		pr_warn("no cgroup v2 hierarchy at /sys/fs/cgroup or /sys/fs/cgroup/unified: opens from the root cgroup are refused\n");
	return 0;
}

void sluice_scope_exit(void)
{
	rcu_barrier();	/* scopes that are being freed */
	kmem_cache_destroy(scope_cache);
}
