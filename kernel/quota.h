/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How much users can make the kernel hold: channels, and bytes of their capacity.
 *
 * A charge is made with its channel and lasts until the memory of the channel is freed. It counts
 * in two ways:
 *
 * - In the channel's scope and its ancestors, up to the root of the creator's cgroup namespace. So
 *   a container does not get more by dividing itself into cgroups, and a container with all that it
 *   may have leaves those beside it theirs. A scope that is neither that root nor below it counts
 *   up to the top.
 *
 * - For users. The creator counts, separately in each cgroup namespace, so that the roots of two
 *   containers do not starve each other. Since anybody can create such a namespace in a user
 *   namespace, the owners of the creator's user namespaces count, too, from the innermost up, each
 *   as a user of the host. The host's uid 0 as an owner does not count, since all containers that
 *   it creates would share one account: root of such a container, where it can create cgroups and
 *   cgroup namespaces, has these limits in each of them, and in all its memory cgroup's.
 *
 * Each counter has a limit, a module parameter. The memory behind the bytes is charged to the
 * creator's memory cgroup besides (channel.h).
 *
 * The counters are atomic and taken one after the other: a charge that fails returns what it took,
 * and meanwhile another may fail that would have fitted.
 */
#ifndef SLUICE_QUOTA_H
#define SLUICE_QUOTA_H

#include <linux/atomic.h>
#include <linux/gfp.h>
#include <linux/types.h>

/*
 * For what users make us hold. Where their memory cgroup has no more, the call fails; otherwise one
 * of the cgroup's processes would be killed, which need not be the one that asked.
 */
#define SLUICE_QUOTA_GFP (GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

struct sluice_quota_user;
struct sluice_scope;

struct sluice_quota_usage {
	atomic64_t channels;
	atomic64_t bytes;
};

/* What a channel is charged. The scope must outlive it. */
struct sluice_quota_charge {
	struct sluice_scope *scope;
	struct sluice_scope *end;	/* the lowest ancestor that is not charged, or NULL */
	u64 bytes;
	bool unlimited;			/* for users: the creator has CAP_SYS_RESOURCE */
	bool committed;
	unsigned int user_count;
	struct sluice_quota_user *users[];
};

/* A charge of one channel to the caller, which counts nothing yet; or -ENOMEM. */
struct sluice_quota_charge *sluice_quota_prepare(struct sluice_scope *scope, u64 bytes);
/* Counts it. Does not sleep. 0, -ENOSPC when a scope is full, -EDQUOT when a user is. */
int sluice_quota_commit(struct sluice_quota_charge *charge);
/* Ends the charge, committed or not, and frees it. */
void sluice_quota_uncharge(struct sluice_quota_charge *charge);

/* Makes a committed charge @bytes. The caller serialises changes of it. 0, -ENOSPC, -EDQUOT. */
int sluice_quota_change(struct sluice_quota_charge *charge, u64 bytes);

void sluice_quota_init(void);

#endif
