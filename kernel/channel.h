/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A channel: an object of one kind in one scope, identified by its name. The default channel of a
 * scope and kind has no name. The kind embeds this structure in its own (kind.h).
 *
 * Life: the first open that requests a channel creates it. Every endpoint holds one reference, and
 * so does a look-up.
 *
 *     create()       channel_add()            PERSIST
 *    ----------> new -------------> transient --------> persistent
 *                 |                     |                   |
 *                 | the name is taken,  | last close,       | unlink, destruction,
 *                 | a limit             | unlink,           | the cgroup is removed
 *                 |                     | destruction       |
 *                 |                     v                   |
 *                 |                  unnamed <--------------+
 *                 v                     |
 *               freed <-----------------+
 *                          last put
 *
 * - The name of a transient or persistent channel is in the tree of its scope, which has no
 *   reference to the channel. An unnamed channel keeps its endpoints connected, and its name is
 *   free for another channel. The kind ends a destroyed channel under its endpoints.
 * - A persistent channel holds one reference more, and one to the module. So does the stream of a
 *   durable map (stream.h). A kind can make a channel persistent whose open does not request it.
 * - An open that fails removes the channel that it created, unless another open has it open or has
 *   made it persistent.
 * - The channel holds its scope.
 *
 * Permissions: to look up a name, a caller must be in the scope's cgroup or below it. To open a
 * channel, the mode must permit it, with the meaning that it has for a file; the creator gets the
 * requested endpoint whatever the mode is. An open with CREATE gets a channel of another user only
 * if that user is root or owns the scope's directory, or the open has ANY_OWNER, or the channel is
 * the default channel. To unlink or destroy a channel, or to make it persistent after its creation,
 * the caller must be able to create in the scope, and own the channel or have CAP_FOWNER over it.
 * Host administrators (CAP_SYS_ADMIN) need neither the mode nor ownership. Nobody can unlink,
 * destroy or make persistent a channel of a kernel module. Every call is checked against its
 * caller.
 *
 * Memory: quotas are charged to scope and users (quota.h), pages and arrays to the memory cgroup of
 * the creator, whichever task allocates them; of a restored map, to the memory
 * cgroup of its scope.
 */
#ifndef SLUICE_CHANNEL_H
#define SLUICE_CHANNEL_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>

#include <uapi/linux/sluice.h>

#include "quota.h"
#include "scope.h"

struct mem_cgroup;
struct page;
struct sluice_kind;

struct sluice_channel_key {
	u32 kind;
	u8 name[SLUICE_NAME_SIZE];	/* padded with zeros; all zeros: the default channel */
};

/*
 * The first fields are those that a look-up reads of each channel that it passes, on one cache
 * line: with thousands of names the cost of a look-up is its cache misses. The last fields seldom
 * change, because the kind's fields that are read while data moves share their line.
 */
struct sluice_channel {
	struct rb_node node;		/* in the scope's tree, while it has a name (+) */
	struct sluice_channel_key key;
	umode_t mode;			/* permission bits */
	kuid_t uid;
	kgid_t gid;
	refcount_t refs;		/* (+) */
	unsigned int opens;		/* endpoints and blocked opens (+) */
	bool adopted;			/* made persistent by another open (+) */
	bool persists;			/* is persistent when it gets its name, by its kind */
	struct list_head persistence;	/* in the scope's list, while persistent (+) */
	/* (+) under the scope's lock */
	struct work_struct freeing;	/* for sluice_channel_put_deferred() */

	const struct sluice_kind *kind;
	struct sluice_scope *scope;
	struct sluice_quota_charge *charge;
	struct mem_cgroup *memcg;	/* the creator's; NULL: a kernel module is */
};

/* The owner of a channel that its creator does not own. */
struct sluice_channel_owner {
	kuid_t uid;
	kgid_t gid;
};

/* The parameters of an open. */
struct sluice_channel_request {
	const struct sluice_kind *kind;
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	unsigned long began;		/* jiffies; of SLUICE_CTL_OPEN */
	u32 flags;			/* SLUICE_OPEN_* */
	umode_t mode;
	u64 capacity;			/* bytes, 0: default */
	gfp_t gfp;			/* SLUICE_QUOTA_GFP*: for memory of the channel */
	const void *params;		/* of the kind, params_size bytes; or NULL */
	/* Who owns and is charged for it; the memory is charged to the scope. NULL: the caller. */
	const struct sluice_channel_owner *owner;
};

/**
 * sluice_channel_init() - initialises the common part of a new channel
 * @channel: the channel
 * @request: of the open
 * @bytes: what to charge, in addition to one channel
 *
 * For a kind's create(). Takes references to the scope and to the creator's memory cgroup, and
 * prepares the charge, which is committed at the latest when the channel gets its name. The channel
 * has one reference and one open. A create() that fails later calls sluice_channel_exit().
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_channel_init(struct sluice_channel *channel,
			const struct sluice_channel_request *request, u64 bytes);

/**
 * sluice_channel_exit() - ends the charge and puts what sluice_channel_init() took
 * @channel: the channel
 */
void sluice_channel_exit(struct sluice_channel *channel);

/**
 * sluice_channel_page_alloc() - allocates a page for user space
 * @channel: its creator is charged; if it is NULL or belongs to a kernel module, the caller is
 * charged
 * @gfp: SLUICE_QUOTA_GFP*, with additional flags
 * @node: the only node to use, or NUMA_NO_NODE
 *
 * Never invokes the OOM killer.
 *
 * Return: the page or NULL.
 */
struct page *sluice_channel_page_alloc(const struct sluice_channel *channel, gfp_t gfp, int node);

/**
 * sluice_channel_pages_alloc() - allocates contiguous pages for user space, without reclaim
 * @channel: its creator is charged; if it is NULL or belongs to a kernel module, the caller is
 * charged
 * @flags: additional GFP flags
 * @node: the only node to use, or NUMA_NO_NODE
 * @order: 2^@order pages
 *
 * The pages are one compound page: put_page() of the first one frees all. Never invokes the OOM
 * killer.
 *
 * Return: the first page; NULL: no contiguous pages are free, or there is no memory.
 */
struct page *sluice_channel_pages_alloc(const struct sluice_channel *channel, gfp_t flags, int node,
					unsigned int order);

/**
 * sluice_channel_kvcalloc() - allocates a zeroed array, which kvfree() frees
 * @channel: its creator is charged; if it is NULL or belongs to a kernel module, the caller is
 * charged
 * @count: the number of elements
 * @size: of an element, in bytes
 * @gfp: one of SLUICE_QUOTA_GFP and others
 *
 * Never invokes the OOM killer.
 *
 * Return: the array or NULL.
 */
void *sluice_channel_kvcalloc(const struct sluice_channel *channel, size_t count, size_t size,
			      gfp_t gfp);

/**
 * sluice_channel_alloc() - allocates memory that is not zeroed, which kvfree() frees
 * @channel: whose creator is charged; not NULL
 * @size: bytes
 * @by_pages: whole pages, which need not be contiguous
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Never invokes the OOM killer.
 *
 * Return: the memory or NULL.
 */
void *sluice_channel_alloc(const struct sluice_channel *channel, size_t size, bool by_pages,
			   gfp_t gfp);

/**
 * sluice_channel_open() - finds the requested channel, or creates it, and counts an open
 * @request: the open
 * @created: out, with a channel: whether this open created it
 *
 * Return: the channel with a reference; -ENOENT: it does not exist and CREATE is not set, or it is
 * to persist and the cgroup is removed; -EEXIST: it exists and EXCL is set; -EACCES: the caller is
 * outside the scope or may not create there, the mode does not permit the open, or CREATE is set
 * without ANY_OWNER and the channel has an untrusted owner; -EPERM: PERSIST is set for a channel of
 * another owner or of a kernel module; -ENOSPC, -EDQUOT: the limit of a scope or of a user; or the
 * error of the kind's create() or may_attach().
 */
struct sluice_channel *sluice_channel_open(const struct sluice_channel_request *request,
					   bool *created);

/**
 * sluice_channel_register_or_put() - gives its name to a channel that the module itself created
 * @new: the channel; the caller keeps its reference, except with an error
 *
 * Return: 0. With an error the reference is put: -EEXIST: the name is taken; -ENOENT: the channel
 * is to persist and the cgroup is removed; -ENOSPC, -EDQUOT: the limit of a scope or of a user.
 */
int sluice_channel_register_or_put(struct sluice_channel *new);

/**
 * sluice_channel_unregister() - removes the name and puts the creator's reference
 * @channel: the channel
 */
void sluice_channel_unregister(struct sluice_channel *channel);

/**
 * sluice_channel_unname() - removes the name and ends the persistence, if there are any
 * @channel: the channel, of which the caller has a reference
 *
 * Calls the kind's unnamed() if the channel was persistent.
 *
 * Context: may sleep.
 */
void sluice_channel_unname(struct sluice_channel *channel);

/**
 * sluice_channel_close() - reverses sluice_channel_open()
 * @channel: the channel
 *
 * Context: may sleep: the last put frees the channel.
 */
void sluice_channel_close(struct sluice_channel *channel);

/**
 * sluice_channel_abandon() - reverses a sluice_channel_open() that created the channel
 * @channel: the channel
 *
 * For an open that fails later. The channel loses its name and its persistence, unless another open
 * uses it or has made it persistent.
 *
 * Context: may sleep.
 * Return: true if another open uses the channel or has made it persistent.
 */
bool sluice_channel_abandon(struct sluice_channel *channel);

/**
 * sluice_channel_unlink() - removes the name of a channel and ends its persistence
 * @access: of the caller to the scope
 * @key: the name and kind
 *
 * Context: may sleep, interruptibly, in the kind's begin_unlink().
 * Return: 0; -ENOENT: there is no such channel; -EACCES: the caller is outside the scope or may not
 * create there; -EPERM: the channel has another owner or is of a kernel module; or the error of the
 * kind's begin_unlink().
 */
int sluice_channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key);

/**
 * sluice_channel_destroy() - unlinks a channel and ends it under its users
 * @access: of the caller to the scope
 * @key: the name and kind
 *
 * Context: may sleep, interruptibly, in the kind's begin_unlink().
 * Return: 0, or an error of sluice_channel_unlink(): the channel is not ended.
 */
int sluice_channel_destroy(const struct sluice_scope_access *access,
			   const struct sluice_channel_key *key);

/**
 * sluice_channel_lookup() - finds the channel of a name, with a reference but no open
 * @access: of the caller to the scope
 * @key: the name and kind
 *
 * Return: the channel, -ENOENT, or -EACCES outside the scope.
 */
struct sluice_channel *sluice_channel_lookup(const struct sluice_scope_access *access,
					     const struct sluice_channel_key *key);

/**
 * sluice_channel_put() - puts a reference
 * @channel: the channel
 *
 * The last put removes the name.
 *
 * Context: may sleep: the last put frees the channel.
 */
void sluice_channel_put(struct sluice_channel *channel);

/**
 * sluice_channel_put_deferred() - puts a reference; a worker frees the channel
 * @channel: the channel
 *
 * Context: process context; takes the scope's lock, and does not sleep.
 */
void sluice_channel_put_deferred(struct sluice_channel *channel);

/**
 * sluice_channel_close_deferred() - reverses sluice_channel_open(); a worker frees the channel
 * @channel: the channel
 *
 * Context: process context; takes the scope's lock, and does not sleep.
 */
void sluice_channel_close_deferred(struct sluice_channel *channel);

/**
 * sluice_channel_queue_rcu_work() - queues what a kind frees after an RCU grace period
 * @work: the work, which runs before kinds end
 */
void sluice_channel_queue_rcu_work(struct rcu_work *work);

/**
 * sluice_channel_flush_deferred() - waits for the deferred puts and RCU work queued before
 */
void sluice_channel_flush_deferred(void);

/**
 * sluice_channel_workers_init() - creates the workqueue of deferred puts
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_channel_workers_init(void);

/**
 * sluice_channel_workers_exit() - destroys the workqueue of deferred puts
 */
void sluice_channel_workers_exit(void);

/**
 * sluice_channel_permits() - tests whether the mode permits an open to the current credentials
 * @channel: the channel
 * @flags: SLUICE_OPEN_READ, _WRITE
 *
 * Return: true if it does; always true for host administrators.
 */
bool sluice_channel_permits(const struct sluice_channel *channel, u32 flags);

/**
 * sluice_channel_is_persistent() - tests whether a channel is persistent
 * @channel: the channel
 *
 * Context: without a lock.
 * Return: true if it is; may be outdated.
 */
bool sluice_channel_is_persistent(const struct sluice_channel *channel);

/**
 * sluice_channel_fill_info() - describes a channel, for the caller's user namespace
 * @channel: the channel, of which the caller has a reference
 * @info: out: the description
 */
void sluice_channel_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info);

/**
 * sluice_channel_list() - describes the channels that have a name, in the order of their keys
 * @access: of the caller to the scope
 * @key: the list begins after this key
 * @infos: out: the descriptions
 * @most: maximum number of channels, up to SLUICE_LIST_MAX
 *
 * Return: the number of channels, or -EACCES outside the scope.
 */
int sluice_channel_list(const struct sluice_scope_access *access,
			const struct sluice_channel_key *key, struct sluice_channel_info *infos,
			unsigned int most);

/**
 * sluice_channel_usage() - what the limits count in a scope, and of the caller
 * @access: of the caller to the scope
 * @usage: out: the counts and their limits
 *
 * Return: 0, or -EACCES outside the scope.
 */
int sluice_channel_usage(const struct sluice_scope_access *access, struct sluice_usage *usage);

/**
 * sluice_channel_drop_persistent() - ends the persistence of all channels of a removed cgroup
 * @scope: of the cgroup
 *
 * The channels lose their names and the references of their persistence.
 *
 * Context: may sleep.
 */
void sluice_channel_drop_persistent(struct sluice_scope *scope);

#endif
