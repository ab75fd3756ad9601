// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/memcontrol.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/numa.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "channel.h"
#include "kind.h"
#include "scope.h"

static int channel_compare(const struct sluice_channel_key *a, const struct sluice_channel_key *b)
{
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return memcmp(a->name, b->name, sizeof(a->name));
}

static struct sluice_channel *channel_of(struct rb_node *node)
{
	return rb_entry(node, struct sluice_channel, node);
}

/* ---- permissions ---- */

/* Not capable(): it would audit each caller without the capability. */
static bool is_administrator(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
}

static bool may_lookup(const struct sluice_scope_access *access)
{
	return access->visible || is_administrator();
}

bool sluice_channel_permits(const struct sluice_channel *channel, u32 flags)
{
	umode_t wanted = (flags & SLUICE_OPEN_READ ? 4 : 0) | (flags & SLUICE_OPEN_WRITE ? 2 : 0);
	umode_t granted = channel->mode;

	if (uid_eq(current_fsuid(), channel->uid))
		granted >>= 6;
	else if (in_group_p(channel->gid))
		granted >>= 3;
	return !(wanted & ~granted) || is_administrator();
}

/*
 * CAP_FOWNER counts as for a file: over channels of users that the caller's namespace maps. Any
 * user can have the capability in a user namespace, which then maps only that user.
 */
static bool is_fowner(const struct sluice_channel *channel,
		      const struct sluice_scope_access *access)
{
	struct user_namespace *ns = current->nsproxy->cgroup_ns->user_ns;

	return access->at_or_below_root && kuid_has_mapping(ns, channel->uid) &&
	       kgid_has_mapping(ns, channel->gid) && ns_capable_noaudit(ns, CAP_FOWNER);
}

/* Permission to unlink it or to make it persistent. 0, -EACCES, -EPERM. */
static int may_manage(const struct sluice_channel *channel,
		      const struct sluice_scope_access *access)
{
	bool owns = uid_eq(current_fsuid(), channel->uid) || is_fowner(channel, access);

	if (channel->kind->is_kernels)
		return -EPERM;
	if ((owns && access->may_create) || is_administrator())
		return 0;
	return access->may_create ? -EPERM : -EACCES;
}

/*
 * Whether an open with CREATE may have this channel: its owner must be one who is trusted (see
 * sluice_open), so that nobody takes a name first. The default channel has no name.
 */
static bool is_expected(const struct sluice_channel *channel,
			const struct sluice_channel_request *request)
{
	kuid_t root = make_kuid(current_user_ns(), 0);

	return request->flags & SLUICE_OPEN_ANY_OWNER || !channel->key.name[0] ||
	       uid_eq(channel->uid, current_fsuid()) || uid_eq(channel->uid, GLOBAL_ROOT_UID) ||
	       uid_eq(channel->uid, root) || uid_eq(channel->uid, request->access.owner);
}

/* ---- the scope's tree ---- */

/* Under the scope's lock: returns the channel of this key; if there is none, inserts @new. */
static struct sluice_channel *channel_find_or_insert(struct sluice_scope *scope,
						     const struct sluice_channel_key *key,
						     struct sluice_channel *new)
{
	struct rb_node **link = &scope->channels.rb_node, *parent = NULL;

	while (*link) {
		struct sluice_channel *channel = channel_of(*link);
		int order = channel_compare(key, &channel->key);

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

/* Under the scope's lock, for a channel with a name. */
static void begin_persistence(struct sluice_channel *channel)
{
	if (!list_empty(&channel->persistence))
		return;
	__module_get(THIS_MODULE);
	refcount_inc(&channel->refs);
	list_add_tail(&channel->persistence, &channel->scope->persistent);
}

/* Under the scope's lock. True: the caller must put the reference of the persistence. */
static bool end_persistence(struct sluice_channel *channel)
{
	if (list_empty(&channel->persistence))
		return false;
	list_del_init(&channel->persistence);
	return true;
}

static void tell_unnamed(struct sluice_channel *channel)
{
	if (channel->kind->unnamed)
		channel->kind->unnamed(channel);
}

static void put_persistent(struct sluice_channel *channel)
{
	tell_unnamed(channel);
	/* The keeper, and an open in a removed cgroup, must not free large maps of others. */
	sluice_channel_put_deferred(channel);
	module_put(THIS_MODULE);
}

/* ---- lifetime ---- */

static struct sluice_quota_charge *prepare_charge(const struct sluice_channel_request *request,
						  u64 bytes)
{
	struct sluice_scope *scope = request->access.scope;

	if (request->owner)
		return sluice_quota_prepare_for(scope, bytes, request->owner->uid, request->gfp);
	return sluice_quota_prepare(scope, bytes, !request->kind->is_kernels, request->gfp);
}

/* A kernel module's channel outlives the session that loaded the module. */
static struct mem_cgroup *get_memcg(const struct sluice_channel_request *request)
{
	if (request->kind->is_kernels)
		return NULL;
	if (request->owner)
		return sluice_scope_get_memcg(request->access.scope);
	return get_mem_cgroup_from_mm(current->mm);
}

static void channel_free_deferred(struct work_struct *work);

int sluice_channel_init(struct sluice_channel *channel,
			const struct sluice_channel_request *request, u64 bytes)
{
	const struct sluice_channel_owner *owner = request->owner;

	channel->charge = prepare_charge(request, bytes);
	if (IS_ERR(channel->charge))
		return PTR_ERR(channel->charge);
	channel->kind = request->kind;
	channel->scope = sluice_scope_get(request->access.scope);
	channel->memcg = get_memcg(request);
	channel->key = request->key;
	channel->mode = request->mode;
	channel->uid = owner ? owner->uid : current_fsuid();
	channel->gid = owner ? owner->gid : current_fsgid();
	refcount_set(&channel->refs, 1);
	channel->opens = 1;
	channel->adopted = false;
	channel->persists = request->flags & SLUICE_OPEN_PERSIST;
	RB_CLEAR_NODE(&channel->node);
	INIT_LIST_HEAD(&channel->persistence);
	INIT_WORK(&channel->freeing, channel_free_deferred);
	return 0;
}

void sluice_channel_exit(struct sluice_channel *channel)
{
	sluice_quota_uncharge(channel->charge);
	mem_cgroup_put(channel->memcg);
	sluice_scope_put(channel->scope);
}

static struct page *alloc_on_node(const struct sluice_channel *channel, gfp_t gfp,
				  unsigned int order, int node)
{
	struct mem_cgroup *old = set_active_memcg(channel ? channel->memcg : NULL);
	struct page *page;

	if (node == NUMA_NO_NODE)
		page = alloc_pages(gfp, order);
	else
		page = alloc_pages_node(node, gfp | __GFP_THISNODE, order);
	set_active_memcg(old);
	return page;
}

struct page *sluice_channel_page_alloc(const struct sluice_channel *channel, gfp_t gfp, int node)
{
	return alloc_on_node(channel, GFP_USER | gfp, 0, node);
}

struct page *sluice_channel_pages_alloc(const struct sluice_channel *channel, gfp_t flags, int node,
					unsigned int order)
{
	gfp_t gfp = SLUICE_QUOTA_GFP_BRIEF | GFP_USER | __GFP_COMP | flags;

	return alloc_on_node(channel, gfp & ~__GFP_DIRECT_RECLAIM, order, node);
}

void *sluice_channel_kvcalloc(const struct sluice_channel *channel, size_t count, size_t size,
			      gfp_t gfp)
{
	struct mem_cgroup *old = set_active_memcg(channel ? channel->memcg : NULL);
	void *memory = kvcalloc(count, size, gfp);

	set_active_memcg(old);
	return memory;
}

void *sluice_channel_alloc(const struct sluice_channel *channel, size_t size, bool by_pages,
			   gfp_t gfp)
{
	struct mem_cgroup *old = set_active_memcg(channel->memcg);
	void *memory = by_pages ? __vmalloc(size, gfp) : kmalloc(size, gfp);

	set_active_memcg(old);
	return memory;
}

/*
 * Ends the charge after freeing the memory; otherwise a limit could be exceeded meanwhile. The
 * charge of a map that the keeper has refused may have ended before, see map_give_back().
 */
static void channel_free(struct sluice_channel *channel)
{
	struct sluice_channel freed = *channel;

	channel->kind->free(channel);
	sluice_channel_exit(&freed);
}

/* Puts a reference and subtracts @opens from the opens. True: the caller must free the channel. */
static bool channel_put(struct sluice_channel *channel, unsigned int opens)
{
	struct sluice_scope *scope = channel->scope;
	bool last;

	spin_lock(&scope->lock);
	channel->opens -= opens;
	last = refcount_dec_and_test(&channel->refs);
	if (last)
		remove_name(channel);
	spin_unlock(&scope->lock);
	return last;
}

void sluice_channel_put(struct sluice_channel *channel)
{
	if (channel_put(channel, 0))
		channel_free(channel);
}

/* ---- puts that must not wait ---- */

/* A large channel delays no small one of another container, and many do not fill all processors. */
#define WORKERS 4

static struct workqueue_struct *workers;

static void channel_free_deferred(struct work_struct *work)
{
	channel_free(container_of(work, struct sluice_channel, freeing));
}

static void put_deferred(struct sluice_channel *channel, unsigned int opens)
{
	if (channel_put(channel, opens))
		queue_work(workers, &channel->freeing);
}

void sluice_channel_put_deferred(struct sluice_channel *channel)
{
	put_deferred(channel, 0);
}

void sluice_channel_close_deferred(struct sluice_channel *channel)
{
	put_deferred(channel, 1);
}

void sluice_channel_queue_rcu_work(struct rcu_work *work)
{
	queue_rcu_work(workers, work);
}

void sluice_channel_flush_deferred(void)
{
	rcu_barrier();
	flush_workqueue(workers);
}

int __init sluice_channel_workers_init(void)
{
	workers = alloc_workqueue("sluice_channel", WQ_UNBOUND, WORKERS);
	return workers ? 0 : -ENOMEM;
}

void sluice_channel_workers_exit(void)
{
	destroy_workqueue(workers);
}

void sluice_channel_close(struct sluice_channel *channel)
{
	if (channel_put(channel, 1))
		channel_free(channel);
}

bool sluice_channel_abandon(struct sluice_channel *channel)
{
	bool was_persistent = false, shared;

	spin_lock(&channel->scope->lock);
	shared = channel->opens > 1 || channel->adopted;
	if (!shared) {
		was_persistent = end_persistence(channel);
		remove_name(channel);
	}
	spin_unlock(&channel->scope->lock);
	if (was_persistent)
		put_persistent(channel);
	sluice_channel_close(channel);
	return shared;
}

static struct sluice_channel *channel_find(struct sluice_scope *scope,
					   const struct sluice_channel_key *key)
{
	struct sluice_channel *channel;

	spin_lock(&scope->lock);
	channel = channel_find_or_insert(scope, key, NULL);
	if (channel)
		refcount_inc(&channel->refs);
	spin_unlock(&scope->lock);
	return channel;
}

/*
 * Adds @new to the tree and returns it. If another channel got the name first, returns that channel
 * with a reference; or an error of the limits. The charge is committed in the same critical
 * section, so that no other create fails because of a channel that cannot be found yet.
 */
static struct sluice_channel *channel_add(struct sluice_channel *new)
{
	struct sluice_scope *scope = new->scope;
	struct sluice_channel *channel;
	int err = 0;

	spin_lock(&scope->lock);
	channel = channel_find_or_insert(scope, &new->key, NULL);
	if (channel)
		refcount_inc(&channel->refs);
	else
		err = sluice_quota_commit(new->charge);
	if (!channel && !err) {
		channel = channel_find_or_insert(scope, &new->key, new);
		if (new->persists)
			begin_persistence(new);
	}
	spin_unlock(&scope->lock);
	return channel ?: ERR_PTR(err);
}

/*
 * The removal of a cgroup first marks it offline, then looks up its scope, and takes the scope's
 * lock to find persistent channels. This channel became persistent under that lock, in a scope that
 * was in the table, and the mark is read afterwards: at least one of the two sees the other.
 */
static struct sluice_channel *check_online(struct sluice_channel *channel)
{
	/* (scope-O): between the table of scopes and the mark; pairs with note_rmdir(). */
	smp_mb();
	if (sluice_scope_is_online(channel->scope))
		return channel;
	sluice_channel_drop_persistent(channel->scope);
	sluice_channel_close_deferred(channel);
	return ERR_PTR(-ENOENT);
}

/* Counts an open. False: the channel has lost its name since it was found. */
static bool enter(struct sluice_channel *channel, bool persist)
{
	bool named;

	spin_lock(&channel->scope->lock);
	named = !RB_EMPTY_NODE(&channel->node);
	if (named)
		channel->opens++;
	if (named && persist) {
		begin_persistence(channel);
		channel->adopted = true;
	}
	spin_unlock(&channel->scope->lock);
	return named;
}

bool sluice_channel_is_persistent(const struct sluice_channel *channel)
{
	return !list_empty_careful(&channel->persistence);
}

static int may_attach(const struct sluice_channel *channel,
		      const struct sluice_channel_request *request)
{
	const struct sluice_scope_access *access = &request->access;
	int err = 0;

	if (!may_lookup(access))
		return -EACCES;
	if (request->flags & SLUICE_OPEN_EXCL)
		return -EEXIST;
	if (request->flags & SLUICE_OPEN_CREATE && !is_expected(channel, request))
		return -EACCES;
	if (!sluice_channel_permits(channel, request->flags))
		return -EACCES;
	if (request->flags & SLUICE_OPEN_PERSIST && !sluice_channel_is_persistent(channel))
		err = may_manage(channel, access);
	if (!err && channel->kind->may_attach)
		err = channel->kind->may_attach(channel, request->params);
	return err;
}

/*
 * Opens a channel. The caller's reference becomes the endpoint's reference; with an error it is
 * put. -ESTALE: the channel has lost its name meanwhile. PERSIST has no effect on a channel that is
 * already persistent, if the caller may not manage it.
 */
static struct sluice_channel *
channel_attach_or_put(struct sluice_channel *channel, const struct sluice_channel_request *request)
{
	bool persist = request->flags & SLUICE_OPEN_PERSIST &&
		       !may_manage(channel, &request->access);
	int err = may_attach(channel, request);

	if (!err && !enter(channel, persist))
		err = -ESTALE;
	if (err) {
		sluice_channel_put_deferred(channel);
		return ERR_PTR(err);
	}
	return persist ? check_online(channel) : channel;
}

/* One that was restored has the owner and the mode that it was created with. */
static bool may_have_new(const struct sluice_channel *new,
			 const struct sluice_channel_request *request)
{
	return is_expected(new, request) && (uid_eq(current_fsuid(), new->uid) ||
					     sluice_channel_permits(new, request->flags));
}

/* A new channel does not get its name. */
static void channel_discard(struct sluice_channel *new)
{
	tell_unnamed(new);
	sluice_channel_put(new);
}

static struct sluice_channel *channel_create(const struct sluice_channel_request *request,
					     bool *created)
{
	struct sluice_channel *channel, *new;

	if (!request->access.may_create)
		return ERR_PTR(-EACCES);
	new = request->kind->create(request);
	if (IS_ERR(new))
		return new;
	if (!may_have_new(new, request)) {
		channel_discard(new);
		return ERR_PTR(-EACCES);
	}
	channel = channel_add(new);
	if (channel != new)
		channel_discard(new);
	if (IS_ERR(channel))
		return channel;
	if (channel != new)
		return channel_attach_or_put(channel, request);
	*created = true;
	return channel->persists ? check_online(channel) : channel;
}

static struct sluice_channel *channel_find_or_create(const struct sluice_channel_request *request,
						     bool *created)
{
	struct sluice_channel *channel = channel_find(request->access.scope, &request->key);

	if (channel)
		return channel_attach_or_put(channel, request);
	if (request->flags & SLUICE_OPEN_CREATE)
		return channel_create(request, created);
	return ERR_PTR(may_lookup(&request->access) ? -ENOENT : -EACCES);
}

struct sluice_channel *sluice_channel_open(const struct sluice_channel_request *request,
					   bool *created)
{
	struct sluice_channel *channel;

	*created = false;
	do {
		channel = channel_find_or_create(request, created);
	} while (channel == ERR_PTR(-ESTALE));
	return channel;
}

int sluice_channel_register_or_put(struct sluice_channel *new)
{
	struct sluice_channel *channel = channel_add(new);

	if (channel == new)
		return new->persists ? PTR_ERR_OR_ZERO(check_online(new)) : 0;
	channel_discard(new);
	if (IS_ERR(channel))
		return PTR_ERR(channel);
	sluice_channel_put_deferred(channel);
	return -EEXIST;
}

void sluice_channel_unname(struct sluice_channel *channel)
{
	bool was_persistent;

	spin_lock(&channel->scope->lock);
	remove_name(channel);
	was_persistent = end_persistence(channel);
	spin_unlock(&channel->scope->lock);
	if (was_persistent)
		put_persistent(channel);
}

void sluice_channel_unregister(struct sluice_channel *channel)
{
	spin_lock(&channel->scope->lock);
	remove_name(channel);
	spin_unlock(&channel->scope->lock);
	sluice_channel_close(channel);
}

struct sluice_channel *sluice_channel_lookup(const struct sluice_scope_access *access,
					     const struct sluice_channel_key *key)
{
	struct sluice_channel *channel;

	if (!may_lookup(access))
		return ERR_PTR(-EACCES);
	channel = channel_find(access->scope, key);
	return channel ?: ERR_PTR(-ENOENT);
}

static int channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key,
			  bool destroy)
{
	struct sluice_channel *channel = sluice_channel_lookup(access, key);
	struct sluice_scope *scope = access->scope;
	bool was_persistent = false;
	int err;

	if (IS_ERR(channel))
		return PTR_ERR(channel);
	err = may_manage(channel, access);
	if (!err && channel->kind->begin_unlink)
		err = channel->kind->begin_unlink(channel);
	if (!err) {
		spin_lock(&scope->lock);
		if (RB_EMPTY_NODE(&channel->node))
			err = -ENOENT;		/* unlinked concurrently */
		remove_name(channel);
		was_persistent = end_persistence(channel);
		spin_unlock(&scope->lock);
	}
	if (destroy && !err)
		channel->kind->destroy(channel);
	if (was_persistent)
		put_persistent(channel);
	sluice_channel_put(channel);
	return err;
}

int sluice_channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key)
{
	return channel_unlink(access, key, false);
}

int sluice_channel_destroy(const struct sluice_scope_access *access,
			   const struct sluice_channel_key *key)
{
	return channel_unlink(access, key, true);
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

/* ---- information ---- */

/* Under the scope's lock: without what the kind fills in, which may take longer. */
static void fill_common_info(const struct sluice_channel *channel, struct sluice_channel_info *info)
{
	*info = (struct sluice_channel_info) {
		.size = sizeof(*info),
		.kind = channel->key.kind,
		.flags = list_empty(&channel->persistence) ? 0 : SLUICE_CHANNEL_PERSISTENT,
		.mode = channel->mode,
		.uid = from_kuid_munged(current_user_ns(), channel->uid),
		.gid = from_kgid_munged(current_user_ns(), channel->gid),
	};
	memcpy(info->name, channel->key.name, sizeof(info->name));
}

void sluice_channel_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	spin_lock(&channel->scope->lock);
	fill_common_info(channel, info);
	spin_unlock(&channel->scope->lock);
	channel->kind->fill_info(channel, info);
}

/* Under the scope's lock: the first channel after @key. */
static struct rb_node *channel_first_after(struct sluice_scope *scope,
					   const struct sluice_channel_key *key)
{
	struct rb_node *node = scope->channels.rb_node, *found = NULL;

	while (node) {
		if (channel_compare(key, &channel_of(node)->key) < 0) {
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
	struct sluice_channel *channels[SLUICE_LIST_MAX], *channel;
	struct sluice_scope *scope = access->scope;
	unsigned int count = 0, i;
	struct rb_node *node;

	if (!may_lookup(access))
		return -EACCES;
	spin_lock(&scope->lock);
	for (node = channel_first_after(scope, key); node && count < most; node = rb_next(node)) {
		channel = channel_of(node);
		if (!channel->key.name[0])
			continue;
		refcount_inc(&channel->refs);
		fill_common_info(channel, &infos[count]);
		channels[count++] = channel;
	}
	spin_unlock(&scope->lock);
	for (i = 0; i < count; i++) {
		channels[i]->kind->fill_info(channels[i], &infos[i]);
		sluice_channel_put_deferred(channels[i]);
		cond_resched();
	}
	return count;
}

int sluice_channel_usage(const struct sluice_scope_access *access, struct sluice_usage *usage)
{
	if (!may_lookup(access))
		return -EACCES;
	sluice_quota_fill_usage(access->scope, usage);
	return 0;
}
