/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What has a place in a scope: an object of one kind under one name. The kind embeds this structure
 * in its own. A scope's default pipe is the channel without a name.
 *
 * Life: a channel is made by the first open that asks for it, every endpoint holds one reference,
 * and the last to go takes the name out of the scope and frees the channel. A persistent one holds
 * one reference more, and the module, until it is unlinked or its cgroup is removed. Unlinking
 * takes the name away, not the endpoints: they stay connected, and the name is free for another.
 * The channel holds its scope; the scope's tree points back without holding.
 *
 * Rights: to attach, a caller must be inside the scope, and the mode must let it, which is read as
 * a file's; whoever makes a channel gets the endpoint it asked for in any case. Host administrators
 * may do all. It is always the caller who is judged.
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

struct sluice_channel;
struct sluice_channel_request;

struct sluice_channel_kind {
	u32 number;			/* SLUICE_KIND_* */
	/* A channel as requested, with nothing in it, held by the caller alone; or an error. */
	struct sluice_channel *(*create)(const struct sluice_channel_request *request);
	void (*free)(struct sluice_channel *channel);
	/* Fills in what only the kind knows. Called under the scope's lock. */
	void (*fill_info)(const struct sluice_channel *channel, struct sluice_channel_info *info);
};

struct sluice_channel_key {
	u32 kind;
	u8 name[SLUICE_NAME_SIZE];	/* zeros up to the end; none for the default */
};

/*
 * First what a look-up reads of each channel that it passes, on one cache line: among thousands of
 * names, lines that are in no cache are what it waits for. Last what seldom changes, since what the
 * kind reads while data moves is on the same line.
 */
struct sluice_channel {
	struct rb_node node;		/* in the scope's tree, while it has its name (+) */
	struct sluice_channel_key key;
	umode_t mode;			/* permission bits */
	kuid_t uid;
	kgid_t gid;
	refcount_t refs;		/* (+) */
	struct list_head persistence;	/* in the scope's list, while it is persistent (+) */
	/* (+) under the scope's lock */

	const struct sluice_channel_kind *kind;
	struct sluice_scope *scope;
	struct sluice_quota_charge charge;
};

/* What an open asks for. */
struct sluice_channel_request {
	const struct sluice_channel_kind *kind;
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	u32 flags;			/* SLUICE_OPEN_* */
	umode_t mode;
	u64 capacity;			/* bytes, 0 for the default */
};

/*
 * For a kind's create(): takes a reference to the scope and charges one channel of @bytes. 0, or an
 * error of sluice_quota_charge().
 */
int sluice_channel_init(struct sluice_channel *channel,
			const struct sluice_channel_request *request, u64 bytes);

/*
 * The channel that is asked for, with a reference, made if need be. -ENOENT when there is none and
 * it is not to be made, or when the cgroup is gone; -EEXIST when there is one and it is to be new;
 * -EACCES; what the kind's create() says.
 */
struct sluice_channel *sluice_channel_open(const struct sluice_channel_request *request);
void sluice_channel_put(struct sluice_channel *channel);

/* 0, -ENOENT, -EACCES outside the scope, -EPERM for who does not own the channel. */
int sluice_channel_unlink(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key);

/* 0, -ENOENT, -EACCES outside the scope. */
int sluice_channel_get_info(const struct sluice_scope_access *access,
			  const struct sluice_channel_key *key, struct sluice_channel_info *info);

/* Up to @most of those after @key, in order; their number, or -EACCES outside the scope. */
int sluice_channel_list(const struct sluice_scope_access *access,
			const struct sluice_channel_key *key, struct sluice_channel_info *infos,
			unsigned int most);

/* The scope's cgroup is gone: nothing keeps its persistent channels any longer. */
void sluice_channel_drop_persistent(struct sluice_scope *scope);

#endif
