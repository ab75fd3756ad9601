/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How much users can make the kernel hold: channels, and bytes of their capacity.
 *
 * A channel is charged when it is made and uncharged when it is freed, twice over: to its scope and
 * every ancestor of that, so that a container cannot have more by dividing itself; and to its
 * maker, who is a user within the root of a cgroup namespace, so that the roots of two containers
 * do not starve each other. Each counter has a limit, a module parameter. The memory behind the
 * bytes, which is there only once they were written, is charged to the maker's memory cgroup
 * besides.
 *
 * The counters are atomic and taken one after the other: a charge that fails gives back what it
 * took, and in the meantime another may fail that would have fitted.
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

/* What a channel was charged. The scope that it is charged to must outlive it. */
struct sluice_quota_charge {
	struct sluice_scope *scope;
	struct sluice_quota_user *user;
	u64 bytes;
};

/* 0; -ENOSPC when a scope is full, -EDQUOT when the user has enough, -ENOMEM. */
int sluice_quota_charge(struct sluice_quota_charge *charge, struct sluice_scope *scope, u64 bytes);
void sluice_quota_uncharge(struct sluice_quota_charge *charge);

/* From now on it is @bytes. The caller lets nobody else change it. 0, -ENOSPC, -EDQUOT. */
int sluice_quota_change(struct sluice_quota_charge *charge, u64 bytes);

void sluice_quota_init(void);

#endif
