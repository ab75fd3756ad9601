// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "quota.h"
#include "scope.h"

static unsigned long scope_max_channels = 65536;
module_param(scope_max_channels, ulong, 0644);
MODULE_PARM_DESC(scope_max_channels, "The most channels in a cgroup and all below it, except the root");

static unsigned long scope_max_bytes;
module_param(scope_max_bytes, ulong, 0644);
MODULE_PARM_DESC(scope_max_bytes, "The most bytes of capacity in a cgroup and all below it, except the root; by default all of the memory");

static unsigned long user_max_channels = 16384;
module_param(user_max_channels, ulong, 0644);
MODULE_PARM_DESC(user_max_channels, "The most channels of a user within a cgroup namespace without CAP_SYS_RESOURCE");

static unsigned long user_max_bytes;
module_param(user_max_bytes, ulong, 0644);
MODULE_PARM_DESC(user_max_bytes, "The most bytes of capacity of a user within a cgroup namespace without CAP_SYS_RESOURCE; by default half of the memory");

/* A user who has made something that is still there. */
struct sluice_quota_user {
	struct rb_node node;
	kuid_t uid;
	u64 root;		/* the cgroup that is the root of the user's cgroup namespace */
	refcount_t refs;	/* charges; the last put is under users_lock */
	struct sluice_quota_usage usage;
};

static DEFINE_SPINLOCK(users_lock);	/* protects the tree of users */
static struct rb_root users = RB_ROOT;

/* ---- counters ---- */

/* Who takes none is not refused for there being too many, as after a limit was lowered. */
static bool fits(s64 taken, u64 now, u64 most)
{
	return !taken || now <= most;
}

static bool try_charge(struct sluice_quota_usage *usage, s64 channels, s64 bytes, u64 most_channels,
		 u64 most_bytes)
{
	u64 channels_now = atomic64_add_return(channels, &usage->channels);
	u64 bytes_now = atomic64_add_return(bytes, &usage->bytes);

	if (fits(channels, channels_now, most_channels) && fits(bytes, bytes_now, most_bytes))
		return true;
	atomic64_sub(channels, &usage->channels);
	atomic64_sub(bytes, &usage->bytes);
	return false;
}

static void uncharge(struct sluice_quota_usage *usage, s64 channels, s64 bytes)
{
	atomic64_sub(channels, &usage->channels);
	atomic64_sub(bytes, &usage->bytes);
}

/* From @scope up to the root, or to @end, which is left out. */
static void uncharge_scopes(struct sluice_scope *scope, struct sluice_scope *end, s64 channels,
			     s64 bytes)
{
	for (; scope != end; scope = scope->parent)
		uncharge(&scope->usage, channels, bytes);
}

/*
 * The root is counted and not limited: if it were, a cgroup with all that it may have would leave
 * nothing to the others.
 */
static bool try_charge_scope(struct sluice_scope *scope, s64 channels, s64 bytes)
{
	if (!scope->parent)
		return try_charge(&scope->usage, channels, bytes, U64_MAX, U64_MAX);
	return try_charge(&scope->usage, channels, bytes, READ_ONCE(scope_max_channels),
		    READ_ONCE(scope_max_bytes));
}

static int try_charge_scopes(struct sluice_scope *scope, s64 channels, s64 bytes)
{
	struct sluice_scope *at;

	for (at = scope; at; at = at->parent) {
		if (try_charge_scope(at, channels, bytes))
			continue;
		uncharge_scopes(scope, at, channels, bytes);
		return -ENOSPC;
	}
	return 0;
}

static int try_charge_user(struct sluice_quota_user *user, s64 channels, s64 bytes)
{
	if (try_charge(&user->usage, channels, bytes, READ_ONCE(user_max_channels),
		 READ_ONCE(user_max_bytes)))
		return 0;
	if (!capable(CAP_SYS_RESOURCE))
		return -EDQUOT;
	try_charge(&user->usage, channels, bytes, U64_MAX, U64_MAX);
	return 0;
}

static int try_charge_all(struct sluice_quota_charge *charge, s64 channels, s64 bytes)
{
	int err = try_charge_scopes(charge->scope, channels, bytes);

	if (err)
		return err;
	err = try_charge_user(charge->user, channels, bytes);
	if (err)
		uncharge_scopes(charge->scope, NULL, channels, bytes);
	return err;
}

static void uncharge_all(struct sluice_quota_charge *charge, s64 channels, s64 bytes)
{
	uncharge_scopes(charge->scope, NULL, channels, bytes);
	uncharge(&charge->user->usage, channels, bytes);
}

/* ---- users ---- */

static bool goes_before(const struct sluice_quota_user *a, const struct sluice_quota_user *b)
{
	return a->root != b->root ? a->root < b->root : uid_lt(a->uid, b->uid);
}

/* The one who is like @new, with a reference; @new itself if there is none. */
static struct sluice_quota_user *find_or_insert(struct sluice_quota_user *new)
{
	struct rb_node **link = &users.rb_node, *parent = NULL;

	while (*link) {
		struct sluice_quota_user *user = rb_entry(*link, struct sluice_quota_user, node);

		parent = *link;
		if (goes_before(new, user)) {
			link = &parent->rb_left;
		} else if (goes_before(user, new)) {
			link = &parent->rb_right;
		} else {
			refcount_inc(&user->refs);
			return user;
		}
	}
	rb_link_node(&new->node, parent, link);
	rb_insert_color(&new->node, &users);
	return new;
}

static struct sluice_quota_user *user_get_self(void)
{
	struct sluice_quota_user *user, *new = kzalloc(sizeof(*new), SLUICE_QUOTA_GFP);

	if (!new)
		return NULL;
	new->uid = current_fsuid();
	new->root = cgroup_id(current->nsproxy->cgroup_ns->root_cset->dfl_cgrp);
	refcount_set(&new->refs, 1);
	spin_lock(&users_lock);
	user = find_or_insert(new);
	spin_unlock(&users_lock);
	if (user != new)
		kfree(new);
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
		kfree(user);
}

/* ---- charges ---- */

int sluice_quota_charge(struct sluice_quota_charge *charge, struct sluice_scope *scope, u64 bytes)
{
	int err;

	charge->scope = scope;
	charge->bytes = bytes;
	charge->user = user_get_self();
	if (!charge->user)
		return -ENOMEM;
	err = try_charge_all(charge, 1, bytes);
	if (err)
		user_put(charge->user);
	return err;
}

void sluice_quota_uncharge(struct sluice_quota_charge *charge)
{
	uncharge_all(charge, 1, charge->bytes);
	user_put(charge->user);
}

int sluice_quota_change(struct sluice_quota_charge *charge, u64 bytes)
{
	int err = 0;

	if (bytes > charge->bytes)
		err = try_charge_all(charge, 0, bytes - charge->bytes);
	else
		uncharge_all(charge, 0, charge->bytes - bytes);
	if (!err)
		charge->bytes = bytes;
	return err;
}

void sluice_quota_init(void)
{
	scope_max_bytes = scope_max_bytes ?: totalram_pages() << PAGE_SHIFT;
	user_max_bytes = user_max_bytes ?: totalram_pages() << PAGE_SHIFT >> 1;
}
