// SPDX-License-Identifier: GPL-2.0
/*
 * The map of a request, and what may be done with it.
 *
 * A request names a map, or a handle. A handle is an endpoint that its socket has opened, and
 * permits what that does. A name is judged twice, with the credentials and the cgroup of the sender
 * and with those of the socket's opener: a program with more rights that is made to write to a
 * foreign socket lends it nothing. A dump judges once, when it begins.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/file.h>
#include <net/sock.h>

#include "ctl.h"
#include "map.h"
#include "netlink.h"
#include "scope.h"

/* ---- sender and opener ---- */

/* The file of the sender's socket, or NULL. */
static const struct file *socket_file(struct sk_buff *request)
{
	const struct sock *sk = NETLINK_CB(request).sk;

	return sk->sk_socket ? sk->sk_socket->file : NULL;
}

/* Whether the opener of the socket may see the scope. */
static bool socket_sees(struct sk_buff *request, const struct sluice_scope *scope)
{
	const struct file *file = socket_file(request);
	struct sock *sk = NETLINK_CB(request).sk;

	return file && (cgroup_is_descendant(sock_cgroup_ptr(&sk->sk_cgrp_data), scope->cgroup) ||
			file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN));
}

bool sluice_netlink_is_own_socket(struct sk_buff *request)
{
	const struct file *file = socket_file(request);
	const struct cred *opener = file ? file->f_cred : NULL, *sender = current_cred();

	return opener && uid_eq(opener->fsuid, sender->fsuid) &&
	       gid_eq(opener->fsgid, sender->fsgid) && opener->group_info == sender->group_info &&
	       opener->user_ns == sender->user_ns &&
	       cap_issubset(sender->cap_effective, opener->cap_effective);
}

static u32 permitted_now(const struct sluice_channel *channel)
{
	return (sluice_channel_permits(channel, SLUICE_OPEN_READ) ? SLUICE_OPEN_READ : 0) |
	       (sluice_channel_permits(channel, SLUICE_OPEN_WRITE) ? SLUICE_OPEN_WRITE : 0);
}

u32 sluice_netlink_permitted(struct sk_buff *request, const struct sluice_channel *channel)
{
	const struct file *file = socket_file(request);
	u32 flags = permitted_now(channel);
	const struct cred *old;

	if (!file)
		return 0;
	old = override_creds(file->f_cred);
	flags &= permitted_now(channel);
	revert_creds(old);
	return flags;
}

/* ---- names ---- */

int sluice_netlink_parse_name(struct sluice_channel_key *key, const struct nlattr *attribute)
{
	u8 name[SLUICE_NAME_SIZE] = {};

	/* With its NUL, as the policy has checked. */
	nla_memcpy(name, attribute, sizeof(name));
	return sluice_ctl_parse_name(key, SLUICE_KIND_MAP, name);
}

int sluice_netlink_access_scope(struct sk_buff *request, struct nlattr **attrs,
				struct sluice_scope_access *access, struct netlink_ext_ack *extack)
{
	s32 fd = attrs[SLUICE_NL_A_SCOPE_FD] ? nla_get_s32(attrs[SLUICE_NL_A_SCOPE_FD]) :
		SLUICE_SCOPE_SELF;
	int err = sluice_ctl_access_scope(access, fd);

	if (err == -EBADF)
		NL_SET_ERR_MSG(extack, "the scope is not a directory of a cgroup of version 2");
	if (err)
		return err;
	if (socket_sees(request, access->scope))
		return 0;
	sluice_scope_put(access->scope);
	return -EACCES;
}

/* The persistent map of a name with a reference, or an error. */
static struct sluice_channel *find_channel(struct sk_buff *request, struct nlattr **attrs,
					   struct netlink_ext_ack *extack)
{
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	struct sluice_channel *channel;
	int err = sluice_netlink_parse_name(&key, attrs[SLUICE_NL_A_NAME]);

	if (err) {
		NL_SET_ERR_MSG(extack, "the name is invalid");
		return ERR_PTR(err);
	}
	err = sluice_netlink_access_scope(request, attrs, &access, extack);
	if (err)
		return ERR_PTR(err);
	channel = sluice_channel_lookup(&access, &key);
	sluice_scope_put(access.scope);
	if (channel == ERR_PTR(-ENOENT))
		NL_SET_ERR_MSG(extack, "there is no map with this name");
	return channel;
}

static int find_named(struct sk_buff *request, struct nlattr **attrs,
		      struct sluice_netlink_target *target, struct netlink_ext_ack *extack)
{
	struct sluice_channel *channel = find_channel(request, attrs, extack);

	if (IS_ERR(channel))
		return PTR_ERR(channel);
	if (!sluice_channel_is_persistent(channel)) {
		NL_SET_ERR_MSG(extack, "only a persistent map has a name here; open a handle");
		sluice_channel_put_deferred(channel);
		return -EINVAL;
	}
	target->channel = channel;
	target->map = sluice_map_of(channel);
	target->flags = sluice_netlink_permitted(request, channel);
	return 0;
}

/* ---- handles ---- */

static int find_handle(struct sk_buff *request, u32 number, struct sluice_netlink_target *target,
		       struct netlink_ext_ack *extack)
{
	struct sluice_map_endpoint *end;

	target->handle = sluice_netlink_handle_get(request, number);
	if (!target->handle) {
		NL_SET_ERR_MSG(extack, "this socket has no such handle");
		return -ENOENT;
	}
	end = sluice_netlink_handle_endpoint(target->handle);
	target->map = end->map;
	target->flags = end->endpoint.flags;
	return 0;
}

/* ---- targets ---- */

void sluice_netlink_target_put(struct sluice_netlink_target *target)
{
	if (target->handle)
		sluice_netlink_handle_put(target->handle);
	if (target->channel)
		sluice_channel_put_deferred(target->channel);
}

static int netlink_target_check(const struct sluice_netlink_target *target, u32 flags)
{
	u32 permitted = target->flags & (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE);

	if (!permitted || flags & ~permitted)
		return target->handle ? -EBADF : -EACCES;
	return READ_ONCE(target->map->destroyed) ? -EPIPE : 0;
}

int sluice_netlink_target_get(struct sk_buff *request, struct nlattr **attrs, u32 flags,
			      struct sluice_netlink_target *target,
			      struct netlink_ext_ack *extack)
{
	const struct nlattr *handle = attrs[SLUICE_NL_A_HANDLE];
	int err;

	target->handle = NULL;
	target->channel = NULL;
	if (!handle == !attrs[SLUICE_NL_A_NAME] || (handle && attrs[SLUICE_NL_A_SCOPE_FD])) {
		NL_SET_ERR_MSG(extack, "either a name or a handle is required");
		return -EINVAL;
	}
	if (handle)
		err = find_handle(request, nla_get_u32(handle), target, extack);
	else
		err = find_named(request, attrs, target, extack);
	if (err)
		return err;
	err = netlink_target_check(target, flags);
	if (err)
		sluice_netlink_target_put(target);
	return err;
}
