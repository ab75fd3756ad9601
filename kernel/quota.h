/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits of channels, and of bytes of their capacity. A handle of a netlink socket (netlink.h)
 * counts as a channel without bytes.
 *
 * Life: a charge is created with its channel or handle. It ends when the handle, or the memory of
 * the channel, is freed. It is counted for the following, that of a kernel module's channel only
 * for cgroups, that of a handle only for users:
 *
 * - For cgroups: in the channel's scope and its ancestors, up to the root of the creator's cgroup
 *   namespace. A container at its limit therefore does not use up the quota of other containers. It
 *   gains nothing by creating child cgroups alone. But the channels of a cgroup namespace that its
 *   root creates in a child cgroup count up to that child only: the third item bounds all of them
 *   together, and without a user namespace only the memory cgroup does. A scope that is neither
 *   that root nor below it is counted up to the top.
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
struct sluice_usage;

struct sluice_quota_usage {
	atomic64_t channels;
	atomic64_t bytes;
};

/* The charge of a channel or a handle. The scope must outlive it. */
struct sluice_quota_charge {
	struct sluice_scope *scope;	/* or NULL */
	struct sluice_scope *end;	/* the lowest ancestor without a charge, or NULL */
	u64 bytes;
	bool unlimited;			/* the limits of users do not apply: CAP_SYS_RESOURCE */
	bool committed;
	unsigned int user_count;
	struct sluice_quota_user *users[];
};

/**
 * sluice_quota_prepare() - creates an uncommitted charge of one channel or handle
 * @scope: the scope of the channel, which must outlive the charge; NULL: for users only
 * @bytes: the capacity that is charged
 * @to_users: whether to charge users, beginning with the caller; false: the channel is the
 *	kernel's, and counted for cgroups only
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * The limits of users do not apply to a caller with CAP_SYS_RESOURCE.
 *
 * Return: the charge, or an error pointer: -ENOMEM.
 */
struct sluice_quota_charge *sluice_quota_prepare(struct sluice_scope *scope, u64 bytes,
						 bool to_users, gfp_t gfp);
/**
 * sluice_quota_prepare_for() - creates an uncommitted charge for a user that is not the caller
 * @scope: the scope of the channel, which must outlive the charge
 * @bytes: the capacity that is charged
 * @uid: the user, who is charged in the host's cgroup namespace
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * The limits of users do not apply to the host's uid 0.
 *
 * Return: the charge, or an error pointer: -ENOMEM.
 */
struct sluice_quota_charge *sluice_quota_prepare_for(struct sluice_scope *scope, u64 bytes,
						     kuid_t uid, gfp_t gfp);
/**
 * sluice_quota_commit() - commits a charge, unless it is committed
 * @charge: the charge
 *
 * Context: does not sleep.
 * Return: 0; -ENOSPC: the limit of a scope is reached; -EDQUOT: the limit of a user is reached.
 */
int sluice_quota_commit(struct sluice_quota_charge *charge);
/**
 * sluice_quota_uncommit() - ends a charge, committed or not, which then has only to be freed
 * @charge: the charge, which the caller owns: nobody changes or commits it any more
 *
 * Context: does not sleep.
 */
void sluice_quota_uncommit(struct sluice_quota_charge *charge);
/**
 * sluice_quota_uncharge() - ends a charge, committed or not, and frees it
 * @charge: the charge
 */
void sluice_quota_uncharge(struct sluice_quota_charge *charge);

/**
 * sluice_quota_change() - changes the bytes of a committed charge, by the caller's privilege
 * @charge: the charge, whose changes the caller serialises
 * @bytes: the new number of bytes; a decrease never fails
 *
 * The limits of users do not apply to a caller with CAP_SYS_RESOURCE.
 *
 * Context: does not sleep.
 * Return: 0; -ENOSPC: the limit of a scope is reached; -EDQUOT: the limit of a user is reached.
 */
int sluice_quota_change(struct sluice_quota_charge *charge, u64 bytes);
/**
 * sluice_quota_change_as_prepared() - changes the bytes of a charge, by its creator's privilege
 * @charge: the committed charge, whose changes the caller serialises
 * @bytes: the new number of bytes; a decrease never fails
 *
 * The limits of users apply unless they did not apply when the charge was prepared.
 *
 * Context: does not sleep.
 * Return: 0; -ENOSPC: the limit of a scope is reached; -EDQUOT: the limit of a user is reached.
 */
int sluice_quota_change_as_prepared(struct sluice_quota_charge *charge, u64 bytes);

/**
 * sluice_quota_fill_usage() - fills in what the limits count
 * @scope: the scope
 * @usage: out: the counts of the scope and of the caller, with their limits
 */
void sluice_quota_fill_usage(const struct sluice_scope *scope, struct sluice_usage *usage);

/**
 * sluice_quota_init() - sets the byte limits that are 0 at load, in proportion to the size of the
 * memory
 */
void sluice_quota_init(void);

#endif
