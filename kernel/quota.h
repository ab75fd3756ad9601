/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits of channels, and of bytes of their capacity.
 *
 * Life: a charge is created with its channel and ends when the memory of the channel is freed. It
 * is counted for the following, that of a kernel module's channel only for cgroups:
 *
 * - For cgroups: in the channel's scope and its ancestors, up to the root of the creator's cgroup
 *   namespace. A container therefore gains nothing by creating child cgroups, and a container at
 *   its limit does not use up the quota of other containers. A scope that is neither that root nor
 *   below it is counted up to the top.
 *
 * - For users: for the creator, separately in each cgroup namespace, so that the roots of two
 *   containers have separate limits. Any user can create such a namespace in a user namespace.
 *   Therefore the owners of the creator's user namespaces are counted, too, from the innermost up,
 *   each as a user of the host. The host's uid 0 is not counted as an owner, because all containers
 *   that it creates would share one limit.
 *
 * - For the outermost user namespace of the creator that is not the initial one, as for a user: a
 *   container, whoever owns its user namespace, gains nothing by more namespaces in it.
 *
 * Each counter has a limit, a module parameter. The memory of the bytes is charged to the creator's
 * memory cgroup in addition (channel.h).
 *
 * The counters are atomic and charged one after the other: a charge that fails uncharges them, and
 * a concurrent charge that would have fitted may fail meanwhile.
 */
#ifndef SLUICE_QUOTA_H
#define SLUICE_QUOTA_H

#include <linux/atomic.h>
#include <linux/gfp.h>
#include <linux/types.h>
#include <linux/uidgid.h>

/*
 * For memory allocated on behalf of users. If their memory cgroup is at its limit, the call fails;
 * the OOM killer would kill a process of the cgroup, not necessarily the caller.
 */
#define SLUICE_QUOTA_GFP (GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)
/* The same, with one attempt to reclaim memory, which others wait for. */
#define SLUICE_QUOTA_GFP_BRIEF (GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN)
/* Never reclaims, and is not slowed down by memory.high: under a lock of the whole host. */
#define SLUICE_QUOTA_GFP_NOWAIT (GFP_NOWAIT | __GFP_ACCOUNT | __GFP_NOWARN)

struct sluice_quota_user;
struct sluice_scope;

struct sluice_quota_usage {
	atomic64_t channels;
	atomic64_t bytes;
};

/* The charge of a channel. The scope must outlive it. */
struct sluice_quota_charge {
	struct sluice_scope *scope;
	struct sluice_scope *end;	/* the lowest ancestor without a charge, or NULL */
	u64 bytes;
	bool unlimited;			/* the limits of users do not apply: CAP_SYS_RESOURCE */
	bool committed;
	unsigned int user_count;
	struct sluice_quota_user *users[];
};

/*
 * Returns an uncommitted charge of one channel, or -ENOMEM. @to_users: of the caller; otherwise the
 * channel is the kernel's, and counted in its scope only. @gfp: SLUICE_QUOTA_GFP*.
 */
struct sluice_quota_charge *sluice_quota_prepare(struct sluice_scope *scope, u64 bytes,
						 bool to_users, gfp_t gfp);
/*
 * As sluice_quota_prepare(), of a user that is not the caller, in the host's cgroup namespace. The
 * limits of users do not apply to the host's uid 0.
 */
struct sluice_quota_charge *sluice_quota_prepare_for(struct sluice_scope *scope, u64 bytes,
						     kuid_t uid, gfp_t gfp);
/*
 * Commits it, unless it is committed. Does not sleep. 0, -ENOSPC: limit of a scope, -EDQUOT: limit
 * of a user.
 */
int sluice_quota_commit(struct sluice_quota_charge *charge);
/* Ends the charge, committed or not, and frees it. */
void sluice_quota_uncharge(struct sluice_quota_charge *charge);

/* Changes a committed charge to @bytes. The caller serialises changes. 0, -ENOSPC, -EDQUOT. */
int sluice_quota_change(struct sluice_quota_charge *charge, u64 bytes);
/* As sluice_quota_change(), with the privilege of who prepared the charge. */
int sluice_quota_change_as_prepared(struct sluice_quota_charge *charge, u64 bytes);

void sluice_quota_init(void);

#endif
