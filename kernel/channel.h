/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A channel: an object of one kind in one scope, identified by its name. The default channel of a
 * scope and kind has no name. The kind embeds this structure in its own (kind.h).
 *
 * Life: the first open that requests a channel creates it. Every endpoint holds one reference, and
 * so does a look-up; the last put removes the name from the scope and frees the channel. A
 * persistent channel holds one reference more, and one to the module, until it is unlinked or its
 * cgroup is removed; a kind can make a channel persistent whose open does not request it. Unlinking
 * removes the name: the name is free for another channel, endpoints remain connected. Destruction
 * unlinks it, too, and the kind ends it under its endpoints, which still hold it until they are
 * closed. An open that fails removes the channel that it created, unless another open has it open
 * or has made it persistent. The channel holds its scope; the scope's tree has no reference to the
 * channel.
 *
 * Permissions: to look up a name, a caller must be in the scope's cgroup or below it. To open a
 * channel, the mode must permit it, with the meaning that it has for a file; the creator gets the
 * requested endpoint whatever the mode is. An open with CREATE gets a channel of another user only
 * if that is root or owns the scope's directory, unless it says ANY_OWNER. To unlink or destroy a
 * channel, or to make it persistent after its creation, the caller must be able to create in the
 * scope, and own the channel or have CAP_FOWNER over it. Host administrators (CAP_SYS_ADMIN) need
 * none of these. Every call is checked against its caller.
 *
 * Memory: quotas are charged to scope and users (quota.h), pages and arrays to the memory cgroup of
 * the creator, whichever task allocates them.
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

/*
 * For a kind's create(): takes a reference to the scope and prepares the charge of one channel of
 * @bytes, which is committed when the channel gets its name. 0 or -ENOMEM. A create() that fails
 * later calls sluice_channel_exit().
 */
int sluice_channel_init(struct sluice_channel *channel,
			const struct sluice_channel_request *request, u64 bytes);
void sluice_channel_exit(struct sluice_channel *channel);

/*
 * Memory charged to the creator, or to the caller if @channel is NULL. NULL if there is none; it
 * never invokes the OOM killer. A page is allocated for user space with these additional flags, on
 * @node only unless that is NUMA_NO_NODE.
 */
struct page *sluice_channel_page_alloc(const struct sluice_channel *channel, gfp_t flags, int node);
/*
 * The same for 2^@order pages in a row, each with its own reference. Does not wait for one: NULL
 * also if there is no row at once.
 */
struct page *sluice_channel_pages_alloc(const struct sluice_channel *channel, gfp_t flags, int node,
					unsigned int order);
void *sluice_channel_kvcalloc(const struct sluice_channel *channel, size_t count, size_t size);
/*
 * Not zeroed; @by_pages: of whole pages that need not be contiguous. kvfree() frees both. @gfp:
 * SLUICE_QUOTA_GFP*.
 */
void *sluice_channel_alloc(const struct sluice_channel *channel, size_t size, bool by_pages,
			   gfp_t gfp);

/*
 * Returns the requested channel with a reference, and creates it if necessary (@created). -ENOENT:
 * it does not exist and CREATE is not set, or the cgroup is removed. -EEXIST: it exists and EXCL is
 * set. -EACCES. -EPERM: PERSIST is set for a channel of another owner. Or the error of create().
 */
struct sluice_channel *sluice_channel_open(const struct sluice_channel_request *request,
					   bool *created);
/*
 * Gives its name to a channel that the module itself has created. The caller keeps its reference.
 * 0; or -EEXIST, -ENOENT: the cgroup is removed, or an error of the limits: then the reference is
 * put.
 */
int sluice_channel_register(struct sluice_channel *new);
/* Removes the name and puts the reference of its creator. */
void sluice_channel_unregister(struct sluice_channel *channel);
/* Removes the name and ends the persistence, if it has them. The caller has a reference. */
void sluice_channel_unname(struct sluice_channel *channel);

/* Reverses sluice_channel_open(). */
void sluice_channel_close(struct sluice_channel *channel);

/*
 * As sluice_channel_close(), for an open that created the channel and failed later. The channel
 * loses its name and its persistence, unless another open uses it or has made it persistent: then
 * returns true.
 */
bool sluice_channel_abandon(struct sluice_channel *channel);

/* 0, -ENOENT, -EACCES: outside the scope, or the caller may not create there, -EPERM. */
int sluice_channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key);
/* As sluice_channel_unlink(), and ends the channel under its users. */
int sluice_channel_destroy(const struct sluice_scope_access *access,
			   const struct sluice_channel_key *key);

/* Returns the channel of this name with a reference, but no open. -ENOENT, -EACCES. */
struct sluice_channel *sluice_channel_lookup(const struct sluice_scope_access *access,
					     const struct sluice_channel_key *key);
void sluice_channel_put(struct sluice_channel *channel);
/* As sluice_channel_put() and sluice_channel_close(), but a worker frees the channel. */
void sluice_channel_put_deferred(struct sluice_channel *channel);
void sluice_channel_close_deferred(struct sluice_channel *channel);
/* For what a kind frees after an RCU grace period; its work runs before kinds end. */
void sluice_channel_queue_rcu_work(struct rcu_work *work);
void sluice_channel_flush_deferred(void);
int sluice_channel_workers_init(void);
void sluice_channel_workers_exit(void);

/* Whether the mode permits an open with SLUICE_OPEN_READ, _WRITE to the current credentials. */
bool sluice_channel_permits(const struct sluice_channel *channel, u32 flags);
bool sluice_channel_is_persistent(const struct sluice_channel *channel);
void sluice_channel_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info);

/*
 * Lists up to @most channels after @key, in order; at most SLUICE_LIST_MAX. Their number, or
 * -EACCES outside the scope.
 */
int sluice_channel_list(const struct sluice_scope_access *access,
			const struct sluice_channel_key *key, struct sluice_channel_info *infos,
			unsigned int most);

/* For a removed cgroup: persistent channels lose their names and references. */
void sluice_channel_drop_persistent(struct sluice_scope *scope);

#endif
