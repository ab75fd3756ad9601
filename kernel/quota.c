// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include <uapi/linux/sluice.h>

#include "quota.h"
#include "scope.h"

static unsigned long scope_max_channels = 65536;
module_param(scope_max_channels, ulong, 0644);
MODULE_PARM_DESC(scope_max_channels,
		 "Maximum number of channels in a cgroup and its descendants (not applied to the root cgroup)");

static unsigned long long scope_max_bytes;
module_param(scope_max_bytes, ullong, 0644);
MODULE_PARM_DESC(scope_max_bytes,
		 "Maximum total capacity in bytes in a cgroup and its descendants (not applied to the root cgroup; 0 at load: the size of the memory)");

static unsigned long user_max_channels = 16384;
module_param(user_max_channels, ulong, 0644);
MODULE_PARM_DESC(user_max_channels,
		 "Maximum number of channels and netlink handles per user and cgroup namespace, without CAP_SYS_RESOURCE");

static unsigned long long user_max_bytes;
module_param(user_max_bytes, ullong, 0644);
MODULE_PARM_DESC(user_max_bytes,
		 "Maximum total capacity in bytes per user and cgroup namespace, without CAP_SYS_RESOURCE (0 at load: a sixteenth of the size of the memory)");

/* Whom a charge counts for: a user, or all users of a user namespace. */
struct sluice_quota_key {
	struct user_namespace *ns;	/* NULL: a user */
	kuid_t uid;			/* of a user */
	u64 root;			/* id of its cgroup namespace's root; an owner: of all */
};

/* A user, or a user namespace, with charges. */
struct sluice_quota_user {
	struct rb_node node;
	struct sluice_quota_key key;	/* with a reference to the namespace */
	refcount_t refs;		/* charges; the last put is under users_lock */
	struct sluice_quota_usage usage;
};

static DEFINE_SPINLOCK(users_lock);	/* protects the tree of users */
static struct rb_root users = RB_ROOT;

/* ---- counters ---- */

/* A charge of 0 always fits, even if a limit was lowered below the usage. */
static bool quota_fits(s64 charged, u64 now, u64 most)
{
	return !charged || now <= most;
}

static void uncharge(struct sluice_quota_usage *usage, s64 channels, s64 bytes)
{
	atomic64_sub(channels, &usage->channels);
	atomic64_sub(bytes, &usage->bytes);
}

static bool try_charge(struct sluice_quota_usage *usage, s64 channels, s64 bytes, u64 most_channels,
		       u64 most_bytes)
{
	u64 channels_now = atomic64_add_return(channels, &usage->channels);
	u64 bytes_now = atomic64_add_return(bytes, &usage->bytes);

	if (quota_fits(channels, channels_now, most_channels) &&
	    quota_fits(bytes, bytes_now, most_bytes))
		return true;
	uncharge(usage, channels, bytes);
	return false;
}

/* From @scope up to, but excluding, @end. */
static void uncharge_scopes(struct sluice_scope *scope, struct sluice_scope *end, s64 channels,
			    s64 bytes)
{
	for (; scope != end; scope = scope->parent)
		uncharge(&scope->usage, channels, bytes);
}

/*
 * The root of the hierarchy is counted and has no limit: otherwise one cgroup could use the
 * whole limit.
 */
static bool try_charge_scope(struct sluice_scope *scope, s64 channels, s64 bytes)
{
	if (!scope->parent)
		return try_charge(&scope->usage, channels, bytes, U64_MAX, U64_MAX);
	return try_charge(&scope->usage, channels, bytes, READ_ONCE(scope_max_channels),
			  READ_ONCE(scope_max_bytes));
}

static int try_charge_scopes(const struct sluice_quota_charge *charge, s64 channels, s64 bytes)
{
	struct sluice_scope *scope;

	for (scope = charge->scope; scope != charge->end; scope = scope->parent) {
		if (try_charge_scope(scope, channels, bytes))
			continue;
		uncharge_scopes(charge->scope, scope, channels, bytes);
		return -ENOSPC;
	}
	return 0;
}

static bool try_charge_user(struct sluice_quota_user *user, s64 channels, s64 bytes, bool unlimited)
{
	if (unlimited)
		return try_charge(&user->usage, channels, bytes, U64_MAX, U64_MAX);
	return try_charge(&user->usage, channels, bytes, READ_ONCE(user_max_channels),
			  READ_ONCE(user_max_bytes));
}

static void uncharge_users(const struct sluice_quota_charge *charge, unsigned int count,
			   s64 channels, s64 bytes)
{
	while (count--)
		uncharge(&charge->users[count]->usage, channels, bytes);
}

static int try_charge_users(const struct sluice_quota_charge *charge, s64 channels, s64 bytes,
			    bool unlimited)
{
	unsigned int i;

	for (i = 0; i < charge->user_count; i++) {
		if (try_charge_user(charge->users[i], channels, bytes, unlimited))
			continue;
		uncharge_users(charge, i, channels, bytes);
		return -EDQUOT;
	}
	return 0;
}

/*
 * Users first: until a refused charge is taken back, it counts in the accounts charged before the
 * refusal. A call beyond its user's limit must not use up the limits of scopes that others share.
 */
static int try_charge_all(const struct sluice_quota_charge *charge, s64 channels, s64 bytes,
			  bool unlimited)
{
	int err = try_charge_users(charge, channels, bytes, unlimited);

	if (err)
		return err;
	err = try_charge_scopes(charge, channels, bytes);
	if (err)
		uncharge_users(charge, charge->user_count, channels, bytes);
	return err;
}

static void uncharge_all(const struct sluice_quota_charge *charge, s64 channels, s64 bytes)
{
	uncharge_scopes(charge->scope, charge->end, channels, bytes);
	uncharge_users(charge, charge->user_count, channels, bytes);
}

/* ---- users ---- */

static int quota_compare(const struct sluice_quota_key *a, const struct sluice_quota_key *b)
{
	if (a->ns != b->ns)
		return a->ns < b->ns ? -1 : 1;
	if (a->root != b->root)
		return a->root < b->root ? -1 : 1;
	if (uid_eq(a->uid, b->uid))
		return 0;
	return uid_lt(a->uid, b->uid) ? -1 : 1;
}

static struct sluice_quota_user *user_of(const struct rb_node *node)
{
	return rb_entry(node, struct sluice_quota_user, node);
}

static int quota_compare_key(const void *key, const struct rb_node *node)
{
	return quota_compare(key, &user_of(node)->key);
}

static int quota_compare_new(struct rb_node *new, const struct rb_node *node)
{
	return quota_compare(&user_of(new)->key, &user_of(node)->key);
}

/* Under users_lock: returns the user equal to @new, with a reference; or inserts @new. */
static struct sluice_quota_user *quota_find_or_insert(struct sluice_quota_user *new)
{
	struct rb_node *found = rb_find_add(&new->node, &users, quota_compare_new);

	if (!found)
		return new;
	refcount_inc(&user_of(found)->refs);
	return user_of(found);
}

static void user_free(struct sluice_quota_user *user)
{
	if (user->key.ns)
		put_user_ns(user->key.ns);
	kfree(user);
}

static struct sluice_quota_user *user_get(const struct sluice_quota_key *key, gfp_t gfp)
{
	struct sluice_quota_user *user, *new = kzalloc(sizeof(*new), gfp);

	if (!new)
		return NULL;
	new->key = *key;
	if (key->ns)
		get_user_ns(key->ns);
	refcount_set(&new->refs, 1);
	spin_lock(&users_lock);
	user = quota_find_or_insert(new);
	spin_unlock(&users_lock);
	if (user != new)
		user_free(new);
	return user;
}

static void user_put(struct sluice_quota_user *user)
{
	bool last;

	spin_lock(&users_lock);
	last = refcount_dec_and_test(&user->refs);
	if (last)
		rb_erase(&user->node, &users);
	spin_unlock(&users_lock);
	if (last)
		user_free(user);
}

/* ---- charges ---- */

/* An account that the charge has already is counted once. 0 or -ENOMEM. */
static int add_key(struct sluice_quota_charge *charge, const struct sluice_quota_key *key,
		   gfp_t gfp)
{
	struct sluice_quota_user *user = user_get(key, gfp);
	unsigned int i;

	if (!user)
		return -ENOMEM;
	for (i = 0; i < charge->user_count; i++) {
		if (charge->users[i] == user) {
			user_put(user);
			return 0;
		}
	}
	charge->users[charge->user_count++] = user;
	return 0;
}

static int add_user(struct sluice_quota_charge *charge, kuid_t uid, u64 root, gfp_t gfp)
{
	struct sluice_quota_key key = { .uid = uid, .root = root };

	return add_key(charge, &key, gfp);
}

static int add_namespace(struct sluice_quota_charge *charge, struct user_namespace *ns,
			 gfp_t gfp)
{
	struct sluice_quota_key key = { .ns = ns };

	return add_key(charge, &key, gfp);
}

/* Adds the caller, the owners of its user namespaces except the initial one, and the outermost. */
static int add_users(struct sluice_quota_charge *charge, const struct cgroup *root, gfp_t gfp)
{
	u64 top = cgroup_id(&cgrp_dfl_root.cgrp);
	struct user_namespace *ns, *outermost = NULL;
	int err = add_user(charge, current_fsuid(), cgroup_id(root), gfp);

	for (ns = current_user_ns(); !err && ns != &init_user_ns; ns = ns->parent) {
		outermost = ns;
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			err = add_user(charge, ns->owner, top, gfp);
	}
	return err || !outermost ? err : add_namespace(charge, outermost, gfp);
}

static unsigned int most_users(void)
{
	return 2 + current_user_ns()->level;
}

/* The parent of @root's scope, if @scope is @root's or below it; otherwise NULL. */
static struct sluice_scope *end_of(struct sluice_scope *scope, const struct cgroup *root)
{
	while (scope && scope->cgroup != root)
		scope = scope->parent;
	return scope ? scope->parent : NULL;
}

/* Not capable(): it would audit each caller without the capability. */
static bool may_exceed(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE);
}

static void charge_free(struct sluice_quota_charge *charge)
{
	while (charge->user_count)
		user_put(charge->users[--charge->user_count]);
	kfree(charge);
}

/* A charge without users, or NULL. @root: of the cgroup namespace that it counts in. */
static struct sluice_quota_charge *charge_create(struct sluice_scope *scope, u64 bytes,
						 const struct cgroup *root, unsigned int users,
						 gfp_t gfp)
{
	struct sluice_quota_charge *charge = kzalloc(struct_size(charge, users, users), gfp);

	if (!charge)
		return NULL;
	charge->scope = scope;
	charge->end = end_of(scope, root);
	charge->bytes = bytes;
	return charge;
}

/* Returns @charge, or frees it and returns @err. */
static struct sluice_quota_charge *charge_or_error(struct sluice_quota_charge *charge, int err)
{
	if (!err)
		return charge;
	charge_free(charge);
	return ERR_PTR(err);
}

struct sluice_quota_charge *sluice_quota_prepare(struct sluice_scope *scope, u64 bytes,
						 bool to_users, gfp_t gfp)
{
	struct cgroup *root = current->nsproxy->cgroup_ns->root_cset->dfl_cgrp;
	struct sluice_quota_charge *charge = charge_create(scope, bytes, root, most_users(), gfp);

	if (!charge)
		return ERR_PTR(-ENOMEM);
	charge->unlimited = may_exceed();
	return charge_or_error(charge, to_users ? add_users(charge, root, gfp) : 0);
}

struct sluice_quota_charge *sluice_quota_prepare_for(struct sluice_scope *scope, u64 bytes,
						     kuid_t uid, gfp_t gfp)
{
	struct cgroup *root = &cgrp_dfl_root.cgrp;
	struct sluice_quota_charge *charge = charge_create(scope, bytes, root, 1, gfp);

	if (!charge)
		return ERR_PTR(-ENOMEM);
	charge->unlimited = uid_eq(uid, GLOBAL_ROOT_UID);
	return charge_or_error(charge, add_user(charge, uid, cgroup_id(root), gfp));
}

int sluice_quota_commit(struct sluice_quota_charge *charge)
{
	int err;

	if (charge->committed)
		return 0;
	err = try_charge_all(charge, 1, charge->bytes, charge->unlimited);
	charge->committed = !err;
	return err;
}

void sluice_quota_uncommit(struct sluice_quota_charge *charge)
{
	if (charge->committed)
		uncharge_all(charge, 1, charge->bytes);
	charge->committed = false;
}

void sluice_quota_uncharge(struct sluice_quota_charge *charge)
{
	sluice_quota_uncommit(charge);
	charge_free(charge);
}

static int quota_change(struct sluice_quota_charge *charge, u64 bytes, bool unlimited)
{
	int err = 0;

	if (bytes > charge->bytes)
		err = try_charge_all(charge, 0, bytes - charge->bytes, unlimited);
	else
		uncharge_all(charge, 0, charge->bytes - bytes);
	if (!err)
		charge->bytes = bytes;
	return err;
}

int sluice_quota_change(struct sluice_quota_charge *charge, u64 bytes)
{
	return quota_change(charge, bytes, may_exceed());
}

int sluice_quota_change_as_prepared(struct sluice_quota_charge *charge, u64 bytes)
{
	return quota_change(charge, bytes, charge->unlimited);
}

/* ---- enquiry ---- */

/* The counts of the caller in its cgroup namespace. */
static void fill_user_usage(struct sluice_usage *usage)
{
	const struct cgroup *root = current->nsproxy->cgroup_ns->root_cset->dfl_cgrp;
	struct sluice_quota_key key = { .uid = current_fsuid(), .root = cgroup_id(root) };
	bool unlimited = may_exceed();
	struct rb_node *node;

	spin_lock(&users_lock);
	node = rb_find(&key, &users, quota_compare_key);
	usage->user_channels = node ? atomic64_read(&user_of(node)->usage.channels) : 0;
	usage->user_bytes = node ? atomic64_read(&user_of(node)->usage.bytes) : 0;
	spin_unlock(&users_lock);
	usage->user_channels_max = unlimited ? U64_MAX : READ_ONCE(user_max_channels);
	usage->user_bytes_max = unlimited ? U64_MAX : READ_ONCE(user_max_bytes);
}

void sluice_quota_fill_usage(const struct sluice_scope *scope, struct sluice_usage *usage)
{
	usage->scope_channels = atomic64_read(&scope->usage.channels);
	usage->scope_bytes = atomic64_read(&scope->usage.bytes);
	usage->scope_channels_max = scope->parent ? READ_ONCE(scope_max_channels) : U64_MAX;
	usage->scope_bytes_max = scope->parent ? READ_ONCE(scope_max_bytes) : U64_MAX;
	fill_user_usage(usage);
}

void __init sluice_quota_init(void)
{
	u64 memory = (u64)totalram_pages() << PAGE_SHIFT;

	scope_max_bytes = scope_max_bytes ?: memory;
	user_max_bytes = user_max_bytes ?: memory / 16;
}

#ifdef CONFIG_SLUICE_KUNIT_TEST
#include "quota_test.h"
#endif
