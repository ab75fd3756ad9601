/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A channel: an object of one kind in one scope, under one name. A scope's default channel of a
 * kind is the one without a name. The kind embeds this structure in its own (kind.h).
 *
 * Life: the first open that asks for it creates a channel, every endpoint holds one reference, as
 * does a look at it, and the last put takes the name out of the scope and frees the channel. A
 * persistent one holds one reference more, and the module, until it is unlinked or its cgroup is
 * removed. Unlinking removes the name, not the endpoints: they stay connected, and the name is free
 * for another channel. An open that fails after it created a channel takes it away again, unless
 * another has it open or has made it persistent. The channel holds its scope; the scope's tree
 * points back without a reference.
 *
 * Rights: to look up a name, a caller must be inside the scope. To open a channel, the mode must
 * allow it, which is read as a file's; the creator gets the endpoint that it asked for in any case.
 * To unlink one, the caller must be able to create in the scope, and own the channel or have
 * CAP_FOWNER over it. To make one persistent later, the same. Host administrators may do all. Every
 * call is judged by its caller.
 *
 * Memory: quotas are charged to scope and users (quota.h), pages and arrays to the memory cgroup of
 * the creator, whoever causes them.
 */
#ifndef SLUICE_CHANNEL_H
#define SLUICE_CHANNEL_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include <uapi/linux/sluice.h>

#include "quota.h"
#include "scope.h"

struct mem_cgroup;
struct page;
struct sluice_kind;

struct sluice_channel_key {
	u32 kind;
	u8 name[SLUICE_NAME_SIZE];	/* zeros up to the end; all zeros for the default */
};

/*
 * First what a look-up reads of each channel that it passes, on one cache line: among thousands of
 * names, the cost of a look-up is its cache misses. Last what seldom changes, since what the kind
 * reads while data moves is on the same line.
 */
struct sluice_channel {
	struct rb_node node;		/* in the scope's tree, while it has its name (+) */
	struct sluice_channel_key key;
	umode_t mode;			/* permission bits */
	kuid_t uid;
	kgid_t gid;
	refcount_t refs;		/* (+) */
	unsigned int opens;		/* endpoints, and opens that wait (+) */
	bool adopted;			/* made persistent by another open than the creator's (+) */
	struct list_head persistence;	/* in the scope's list, while it is persistent (+) */
	/* (+) under the scope's lock */

	const struct sluice_kind *kind;
	struct sluice_scope *scope;
	struct sluice_quota_charge *charge;
	struct mem_cgroup *memcg;	/* the creator's */
};

/* What an open asks for. */
struct sluice_channel_request {
	const struct sluice_kind *kind;
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	u32 flags;			/* SLUICE_OPEN_* */
	umode_t mode;
	u64 capacity;			/* bytes, 0 for the default */
	const void *params;		/* of the kind, params_size bytes; NULL without */
};

/*
 * For a kind's create(): takes a reference to the scope and prepares the charge of one channel of
 * @bytes, which counts when the channel gets its name. 0 or -ENOMEM. A create() that fails later
 * undoes it with _exit().
 */
int sluice_channel_init(struct sluice_channel *channel,
			const struct sluice_channel_request *request, u64 bytes);
void sluice_channel_exit(struct sluice_channel *channel);

/* Memory of the channel, charged to the creator. NULL when there is none; never the OOM killer. */
struct page *sluice_channel_page_alloc(const struct sluice_channel *channel);
void *sluice_channel_kvcalloc(const struct sluice_channel *channel, size_t count, size_t size);

/*
 * The channel that is asked for, with a reference, created if need be (@created). -ENOENT when
 * there is none and CREATE is not asked for, or when the cgroup is removed; -EEXIST with EXCL when
 * there is one; -EACCES; -EPERM when PERSIST is asked for a channel of another owner; the error of
 * the kind's create().
 */
struct sluice_channel *sluice_channel_open(const struct sluice_channel_request *request,
					   bool *created);
/* Undoes sluice_channel_open(). */
void sluice_channel_close(struct sluice_channel *channel);

/*
 * The same for an open that created the channel and failed later. The channel loses its name and
 * its persistence unless somebody else has it open or has made it persistent. True then.
 */
bool sluice_channel_abandon(struct sluice_channel *channel);

/* 0, -ENOENT, -EACCES outside the scope and where the caller may not create, -EPERM. */
int sluice_channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key);

/* The channel of this name with a reference, for a look at it. -ENOENT, -EACCES. */
struct sluice_channel *sluice_channel_lookup(const struct sluice_scope_access *access,
					     const struct sluice_channel_key *key);
void sluice_channel_put(struct sluice_channel *channel);
void sluice_channel_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info);

/* Up to @most of those after @key, in order; their number, or -EACCES outside the scope. */
int sluice_channel_list(const struct sluice_scope_access *access,
			const struct sluice_channel_key *key, struct sluice_channel_info *infos,
			unsigned int most);

/* The scope's cgroup is removed: its persistent channels lose their names and references. */
void sluice_channel_drop_persistent(struct sluice_scope *scope);

#endif
