// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/user_namespace.h>

#include "channel.h"
#include "scope.h"

static int compare(const struct sluice_channel_key *a, const struct sluice_channel_key *b)
{
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return memcmp(a->name, b->name, sizeof(a->name));
}

static struct sluice_channel *channel_of(struct rb_node *node)
{
	return rb_entry(node, struct sluice_channel, node);
}

/* ---- rights ---- */

static bool is_administrator(void)
{
	return capable(CAP_SYS_ADMIN);
}

static bool may_lookup(const struct sluice_scope_access *access)
{
	return access->visible || is_administrator();
}

static bool may_open(const struct sluice_channel *channel, u32 flags)
{
	umode_t wanted = (flags & SLUICE_OPEN_READ ? 4 : 0) | (flags & SLUICE_OPEN_WRITE ? 2 : 0);
	umode_t granted = channel->mode;

	if (uid_eq(current_fsuid(), channel->uid))
		granted >>= 6;
	else if (in_group_p(channel->gid))
		granted >>= 3;
	return !(wanted & ~granted) || is_administrator();
}

static bool may_unlink(const struct sluice_channel *channel)
{
	return uid_eq(current_fsuid(), channel->uid) || is_administrator();
}

/* ---- the scope's tree ---- */

/* Under the scope's lock. With @new, it takes the place if there is none. */
static struct sluice_channel *find_or_insert(struct sluice_scope *scope,
					     const struct sluice_channel_key *key,
					     struct sluice_channel *new)
{
	struct rb_node **link = &scope->channels.rb_node, *parent = NULL;

	while (*link) {
		struct sluice_channel *channel = channel_of(*link);
		int order = compare(key, &channel->key);

		if (!order)
			return channel;
		parent = *link;
		link = order < 0 ? &parent->rb_left : &parent->rb_right;
	}
	if (new) {
		rb_link_node(&new->node, parent, link);
		rb_insert_color(&new->node, &scope->channels);
	}
	return new;
}

/* Under the scope's lock. */
static void remove_name(struct sluice_channel *channel)
{
	if (RB_EMPTY_NODE(&channel->node))
		return;
	rb_erase(&channel->node, &channel->scope->channels);
	RB_CLEAR_NODE(&channel->node);
}

/* Under the scope's lock. True when the caller has to put the reference that persistence held. */
static bool end_persistence(struct sluice_channel *channel)
{
	if (list_empty(&channel->persistence))
		return false;
	list_del_init(&channel->persistence);
	return true;
}

static void put_persistent(struct sluice_channel *channel)
{
	sluice_channel_put(channel);
	module_put(THIS_MODULE);
}

/* ---- life ---- */

int sluice_channel_init(struct sluice_channel *channel,
			const struct sluice_channel_request *request, u64 bytes)
{
	int err = sluice_quota_charge(&channel->charge, request->access.scope, bytes);

	if (err)
		return err;
	channel->kind = request->kind;
	channel->scope = sluice_scope_get(request->access.scope);
	channel->key = request->key;
	channel->mode = request->mode;
	channel->uid = current_fsuid();
	channel->gid = current_fsgid();
	refcount_set(&channel->refs, 1);
	RB_CLEAR_NODE(&channel->node);
	INIT_LIST_HEAD(&channel->persistence);
	return 0;
}

static void channel_free(struct sluice_channel *channel)
{
	struct sluice_scope *scope = channel->scope;

	sluice_quota_uncharge(&channel->charge);
	channel->kind->free(channel);
	sluice_scope_put(scope);
}

void sluice_channel_put(struct sluice_channel *channel)
{
	struct sluice_scope *scope = channel->scope;
	bool last;

	spin_lock(&scope->lock);
	last = refcount_dec_and_test(&channel->refs);
	if (last)
		remove_name(channel);
	spin_unlock(&scope->lock);
	if (last)
		channel_free(channel);
}

static struct sluice_channel *find(struct sluice_scope *scope,
				   const struct sluice_channel_key *key)
{
	struct sluice_channel *channel;

	spin_lock(&scope->lock);
	channel = find_or_insert(scope, key, NULL);
	if (channel)
		refcount_inc(&channel->refs);
	spin_unlock(&scope->lock);
	return channel;
}

/* Puts @new in its place, unless another was faster: then that one, with a reference. */
static struct sluice_channel *add(struct sluice_channel *new, bool persistent)
{
	struct sluice_scope *scope = new->scope;
	struct sluice_channel *channel;

	spin_lock(&scope->lock);
	channel = find_or_insert(scope, &new->key, new);
	if (channel != new) {
		refcount_inc(&channel->refs);
	} else if (persistent) {
		__module_get(THIS_MODULE);
		refcount_inc(&new->refs);
		list_add_tail(&new->persistence, &scope->persistent);
	}
	spin_unlock(&scope->lock);
	return channel;
}

/* What was found is held: it is let go unless the caller may have it. */
static struct sluice_channel *attach(struct sluice_channel *channel,
				     const struct sluice_channel_request *request)
{
	int err = 0;

	if (!may_lookup(&request->access))
		err = -EACCES;
	else if (request->flags & SLUICE_OPEN_EXCL)
		err = -EEXIST;
	else if (!may_open(channel, request->flags))
		err = -EACCES;
	if (!err)
		return channel;
	sluice_channel_put(channel);
	return ERR_PTR(err);
}

static struct sluice_channel *create(const struct sluice_channel_request *request)
{
	bool persistent = request->flags & SLUICE_OPEN_PERSIST;
	struct sluice_channel *channel, *new;

	if (!request->access.may_create)
		return ERR_PTR(-EACCES);
	new = request->kind->create(request);
	if (IS_ERR(new))
		return new;
	channel = add(new, persistent);
	if (channel != new) {
		channel_free(new);
		return attach(channel, request);
	}
	/*
	 * Whoever removes the cgroup marks it first and then takes our lock to look for persistent
	 * channels; we added ours under that lock and look at the mark now. One sees the other.
	 */
	if (persistent && !sluice_scope_is_online(request->access.scope)) {
		sluice_channel_drop_persistent(request->access.scope);
		sluice_channel_put(channel);
		return ERR_PTR(-ENOENT);
	}
	return channel;
}

struct sluice_channel *sluice_channel_open(const struct sluice_channel_request *request)
{
	struct sluice_channel *channel = find(request->access.scope, &request->key);

	if (channel)
		return attach(channel, request);
	if (request->flags & SLUICE_OPEN_CREATE)
		return create(request);
	return ERR_PTR(may_lookup(&request->access) ? -ENOENT : -EACCES);
}

int sluice_channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key)
{
	struct sluice_scope *scope = access->scope;
	struct sluice_channel *channel;
	bool was_persistent;

	if (!may_lookup(access))
		return -EACCES;
	channel = find(scope, key);
	if (!channel)
		return -ENOENT;
	if (!may_unlink(channel)) {
		sluice_channel_put(channel);
		return -EPERM;
	}
	spin_lock(&scope->lock);
	remove_name(channel);
	was_persistent = end_persistence(channel);
	spin_unlock(&scope->lock);
	if (was_persistent)
		put_persistent(channel);
	sluice_channel_put(channel);
	return 0;
}

void sluice_channel_drop_persistent(struct sluice_scope *scope)
{
	struct sluice_channel *channel;

	do {
		spin_lock(&scope->lock);
		channel = list_first_entry_or_null(&scope->persistent, struct sluice_channel,
						   persistence);
		if (channel) {
			end_persistence(channel);
			remove_name(channel);
		}
		spin_unlock(&scope->lock);
		if (channel)
			put_persistent(channel);
		cond_resched();
	} while (channel);
}

/* ---- telling of channels ---- */

/* Under the scope's lock. */
static void fill_info(const struct sluice_channel *channel, struct sluice_channel_info *info)
{
	*info = (struct sluice_channel_info) {
		.kind = channel->key.kind,
		.flags = list_empty(&channel->persistence) ? 0 : SLUICE_CHANNEL_PERSISTENT,
		.mode = channel->mode,
		.uid = from_kuid_munged(current_user_ns(), channel->uid),
		.gid = from_kgid_munged(current_user_ns(), channel->gid),
	};
	memcpy(info->name, channel->key.name, sizeof(info->name));
	channel->kind->fill_info(channel, info);
}

int sluice_channel_get_info(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key, struct sluice_channel_info *info)
{
	struct sluice_scope *scope = access->scope;
	struct sluice_channel *channel;

	if (!may_lookup(access))
		return -EACCES;
	spin_lock(&scope->lock);
	channel = find_or_insert(scope, key, NULL);
	if (channel)
		fill_info(channel, info);
	spin_unlock(&scope->lock);
	return channel ? 0 : -ENOENT;
}

/* Under the scope's lock: the first channel after @key. */
static struct rb_node *first_after(struct sluice_scope *scope, const struct sluice_channel_key *key)
{
	struct rb_node *node = scope->channels.rb_node, *found = NULL;

	while (node) {
		if (compare(key, &channel_of(node)->key) < 0) {
			found = node;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

int sluice_channel_list(const struct sluice_scope_access *access,
			const struct sluice_channel_key *key, struct sluice_channel_info *infos,
			unsigned int most)
{
	struct sluice_scope *scope = access->scope;
	struct rb_node *node;
	unsigned int count = 0;

	if (!may_lookup(access))
		return -EACCES;
	spin_lock(&scope->lock);
	for (node = first_after(scope, key); node && count < most; node = rb_next(node))
		if (channel_of(node)->key.name[0])
			fill_info(channel_of(node), &infos[count++]);
	spin_unlock(&scope->lock);
	return count;
}
