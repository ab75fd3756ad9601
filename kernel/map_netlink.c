// SPDX-License-Identifier: GPL-2.0
/*
 * Requests about maps over generic netlink.
 *
 * A request names a map, or a handle. A handle is a file that its socket has opened, and permits
 * what the file does. A name is judged twice, with the credentials and the cgroup of the sender and
 * with those of the socket's opener: a program with more rights that is made to write to a foreign
 * socket lends it nothing. A dump judges once, when it begins.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/minmax.h>
#include <linux/sizes.h>
#include <net/sock.h>

#include "ctl.h"
#include "kind.h"
#include "map.h"
#include "netlink.h"
#include "scope.h"

/* Bytes of a reply to a batch. */
#define BATCH_REPLY SZ_32K
/* Bytes of a step in it without its value. */
#define STEP_REPLY 64

#define SIZE_U64 nla_total_size_64bit(sizeof(u64))

/* The map of a request. One of file and channel is set. */
struct target {
	struct sluice_map *map;
	struct file *file;		/* of a handle, with a reference */
	struct sluice_channel *channel;	/* with a reference */
};

static struct netlink_ext_ack *extack_of(const struct genl_info *info)
{
	return info->extack;
}

/* ---- permissions ---- */

/* The file of the sender's socket. */
static struct file *socket_file(const struct sock *sk)
{
	return sk->sk_socket ? sk->sk_socket->file : NULL;
}

/* Whether the opener of the socket may see the scope. */
static bool socket_sees(const struct sock *sk, const struct file *file,
			const struct sluice_scope *scope)
{
	return cgroup_is_descendant(sock_cgroup_ptr(&sk->sk_cgrp_data), scope->cgroup) ||
	       file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN);
}

/* Whether the opener of the socket may open the channel so. 0 or -EACCES. */
static int judge_socket(const struct sock *sk, const struct sluice_channel *channel, u32 flags)
{
	const struct file *file = socket_file(sk);
	const struct cred *old;
	bool permitted;

	if (!file || !socket_sees(sk, file, channel->scope))
		return -EACCES;
	old = override_creds(file->f_cred);
	permitted = sluice_channel_permits(channel, flags);
	revert_creds(old);
	return permitted ? 0 : -EACCES;
}

/* ---- the map of a request ---- */

static int access_scope(struct nlattr **attrs, struct sluice_scope_access *access)
{
	s32 fd = attrs[SLUICE_NL_A_SCOPE_FD] ? nla_get_s32(attrs[SLUICE_NL_A_SCOPE_FD]) :
		SLUICE_SCOPE_SELF;

	return sluice_ctl_access_scope(access, fd);
}

/* Opens the persistent map of a name. 0, -EINVAL, -ENOENT, -EACCES, or an error of the scope. */
static int find_named(const struct sock *sk, struct nlattr **attrs, u32 flags,
		      struct target *target, struct netlink_ext_ack *extack)
{
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	struct sluice_channel *channel;
	int err = sluice_ctl_parse_name(&key, SLUICE_KIND_MAP, nla_data(attrs[SLUICE_NL_A_NAME]));

	err = err ?: access_scope(attrs, &access);
	if (err)
		return err;
	channel = sluice_channel_lookup(&access, &key);
	sluice_scope_put(access.scope);
	if (IS_ERR(channel))
		return PTR_ERR(channel);
	if (!sluice_channel_is_persistent(channel)) {
		NL_SET_ERR_MSG(extack, "only a persistent map has a name here; open a handle");
		err = -EINVAL;
	} else if (!sluice_channel_permits(channel, flags)) {
		err = -EACCES;
	} else {
		err = judge_socket(sk, channel, flags);
	}
	if (err) {
		sluice_channel_put_deferred(channel);
		return err;
	}
	target->channel = channel;
	target->map = sluice_map_of(channel);
	return 0;
}

static int find_handle(struct sock *sk, u32 number, u32 flags, struct target *target,
		       struct netlink_ext_ack *extack)
{
	struct sluice_map_endpoint *end;

	target->file = sluice_netlink_handle_file(sk, number);
	if (!target->file) {
		NL_SET_ERR_MSG(extack, "this socket has no such handle");
		return -ENOENT;
	}
	end = target->file->private_data;
	target->map = end->map;
	if (!(flags & ~end->endpoint.flags))
		return 0;
	NL_SET_ERR_MSG(extack, "the handle is not open for this");
	fput(target->file);
	return -EBADF;
}

static void target_put(struct target *target)
{
	if (target->file)
		fput(target->file);
	if (target->channel)
		sluice_channel_put_deferred(target->channel);
}

/* @flags: SLUICE_OPEN_READ or _WRITE, which the caller needs. */
static int target_get(struct sock *sk, struct nlattr **attrs, u32 flags, struct target *target,
		      struct netlink_ext_ack *extack)
{
	int err;

	*target = (struct target) {};
	if (!attrs[SLUICE_NL_A_HANDLE] == !attrs[SLUICE_NL_A_NAME]) {
		NL_SET_ERR_MSG(extack, "either a name or a handle is required");
		return -EINVAL;
	}
	if (attrs[SLUICE_NL_A_HANDLE])
		err = find_handle(sk, nla_get_u32(attrs[SLUICE_NL_A_HANDLE]), flags, target,
				  extack);
	else
		err = find_named(sk, attrs, flags, target, extack);
	if (err)
		return err;
	if (!READ_ONCE(target->map->destroyed))
		return 0;
	NL_SET_ERR_MSG(extack, "the map is destroyed");
	target_put(target);
	return -EPIPE;
}

/* ---- replies ---- */

static void *reply_begin(struct sk_buff **reply, size_t size, struct genl_info *info)
{
	void *header;

	*reply = genlmsg_new(size, GFP_KERNEL_ACCOUNT);
	if (!*reply)
		return NULL;
	header = genlmsg_put_reply(*reply, info, &sluice_netlink_family, 0, info->genlhdr->cmd);
	if (!header)
		nlmsg_free(*reply);
	return header;
}

static int reply_end(struct sk_buff *reply, void *header, struct genl_info *info)
{
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, SLUICE_NL_A_PAD);
}

/* Version and time to live, and the value or its length. */
static int put_value(struct sk_buff *skb, const struct sluice_map_value *value, bool whole)
{
	u64 ttl = sluice_map_time_to_live(value);

	return put_u64(skb, SLUICE_NL_A_VERSION, value->version) ?:
	       (ttl ? put_u64(skb, SLUICE_NL_A_TTL_NS, ttl) : 0) ?:
	       (whole ? nla_put(skb, SLUICE_NL_A_VALUE, value->length, value->bytes) :
			nla_put_u32(skb, SLUICE_NL_A_VALUE_LENGTH, value->length));
}

/* ---- open ---- */

/* A channel that this request creates belongs to the sender, who must be the opener, too. */
static bool may_create(const struct sock *sk)
{
	const struct file *file = socket_file(sk);

	return file && uid_eq(file->f_cred->fsuid, current_fsuid());
}

static int parse_open(struct nlattr **attrs, struct sluice_channel_request *request,
		      struct sluice_map_params *params)
{
	request->kind = sluice_kind_find(SLUICE_KIND_MAP);
	request->flags = attrs[SLUICE_NL_A_FLAGS] ? nla_get_u32(attrs[SLUICE_NL_A_FLAGS]) :
			 SLUICE_OPEN_READ | SLUICE_OPEN_WRITE;
	request->mode = attrs[SLUICE_NL_A_MODE] ? nla_get_u32(attrs[SLUICE_NL_A_MODE]) : 0600;
	if (attrs[SLUICE_NL_A_CAPACITY])
		request->capacity = nla_get_u64(attrs[SLUICE_NL_A_CAPACITY]);
	if (attrs[SLUICE_NL_A_ENTRIES_MAX])
		params->entries = nla_get_u64(attrs[SLUICE_NL_A_ENTRIES_MAX]);
	if (attrs[SLUICE_NL_A_EVENTS])
		params->events = nla_get_u32(attrs[SLUICE_NL_A_EVENTS]);
	request->params = params;
	if (!sluice_ctl_are_open_flags(request->kind, request->flags))
		return -EINVAL;
	return sluice_ctl_parse_name(&request->key, SLUICE_KIND_MAP,
				     nla_data(attrs[SLUICE_NL_A_NAME]));
}

/* The number of a handle of a new file. */
static int open_handle(struct sock *sk, const struct sluice_channel_request *request)
{
	struct file *file = sluice_endpoint_create_file(request);
	struct sluice_map_endpoint *end;
	int ret;

	if (IS_ERR(file))
		return PTR_ERR(file);
	end = file->private_data;
	ret = judge_socket(sk, end->endpoint.channel,
			   request->flags & (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE));
	if (!ret)
		ret = sluice_netlink_handle_add(sk, file);
	fput(file);
	return ret;
}

int sluice_map_netlink_open(struct sk_buff *skb, struct genl_info *info)
{
	struct sluice_map_params params = { .size = sizeof(params) };
	struct sluice_channel_request request = {};
	struct sock *sk = NETLINK_CB(skb).sk;
	struct sk_buff *reply;
	void *header;
	int ret;

	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_NAME))
		return -EINVAL;
	ret = parse_open(info->attrs, &request, &params);
	if (ret) {
		GENL_SET_ERR_MSG(info, "the name or the flags are invalid");
		return ret;
	}
	if (request.flags & SLUICE_OPEN_CREATE && !may_create(sk)) {
		GENL_SET_ERR_MSG(info, "the socket was opened by another user");
		return -EPERM;
	}
	ret = access_scope(info->attrs, &request.access);
	if (ret)
		return ret;
	ret = open_handle(sk, &request);
	sluice_scope_put(request.access.scope);
	if (ret < 0)
		return ret;
	header = reply_begin(&reply, nla_total_size(sizeof(u32)), info);
	if (!header)
		return -ENOMEM;
	nla_put_u32(reply, SLUICE_NL_A_HANDLE, ret);
	return reply_end(reply, header, info);
}

/* ---- operations ---- */

static void key_init(const struct sluice_map *map, struct sluice_map_key *key,
		     const struct nlattr *attribute)
{
	sluice_map_key_init(map, key, nla_data(attribute), nla_len(attribute));
}

static void explain(struct netlink_ext_ack *extack, int err)
{
	if (err == -EMSGSIZE)
		NL_SET_ERR_MSG(extack, "the value exceeds 16 KiB; get it with SLUICE_MAP_GET on an endpoint of /dev/sluice/ctl");
	else if (err == -EAGAIN)
		NL_SET_ERR_MSG(extack, "memory of earlier values is not free yet; try again");
	else if (err == -ENOSPC)
		NL_SET_ERR_MSG(extack, "the map is full");
	else if (err == -ENOENT)
		NL_SET_ERR_MSG(extack, "there is no entry with this key");
	else if (err == -ESTALE)
		NL_SET_ERR_MSG(extack, "the entry has another version");
	else if (err == -EEXIST)
		NL_SET_ERR_MSG(extack, "there is an entry with this key");
}

static int reply_value(struct genl_info *info, struct sluice_map_value *value)
{
	struct sk_buff *reply;
	void *header = reply_begin(&reply, 2 * SIZE_U64 + nla_total_size(value->length), info);
	int err;

	if (!header)
		return -ENOMEM;
	err = put_value(reply, value, true);
	if (err) {
		nlmsg_free(reply);
		return err;
	}
	return reply_end(reply, header, info);
}

static int get_value(struct sluice_map *map, struct genl_info *info)
{
	struct sluice_map_value *value;
	struct sluice_map_key key;
	int err;

	key_init(map, &key, info->attrs[SLUICE_NL_A_KEY]);
	value = sluice_map_hold(map, &key);
	if (!value)
		return -ENOENT;
	err = value->length > SLUICE_NL_VALUE_MAX ? -EMSGSIZE : reply_value(info, value);
	sluice_map_value_put(value);
	return err;
}

static void request_init(const struct sluice_map *map, struct nlattr **attrs,
			 struct sluice_map_request *request)
{
	*request = (struct sluice_map_request) {};
	key_init(map, &request->key, attrs[SLUICE_NL_A_KEY]);
	if (!attrs[SLUICE_NL_A_IF_VERSION])
		return;
	request->flags = SLUICE_MAP_IF_VERSION;
	request->version = nla_get_u64(attrs[SLUICE_NL_A_IF_VERSION]);
}

static int set_value(struct sluice_map *map, struct nlattr **attrs,
		     struct sluice_map_request *request)
{
	const struct nlattr *given = attrs[SLUICE_NL_A_VALUE];
	u64 ttl = attrs[SLUICE_NL_A_TTL_NS] ? nla_get_u64(attrs[SLUICE_NL_A_TTL_NS]) : 0;
	struct sluice_map_value *value = sluice_map_value_create(map, nla_len(given), ttl);
	int ret;

	if (IS_ERR(value))
		return PTR_ERR(value);
	memcpy(value->bytes, nla_data(given), nla_len(given));
	request_init(map, attrs, request);
	ret = sluice_map_set(map, request, value);
	if (ret < 0)
		sluice_map_value_free(value);
	return ret;
}

static int reply_version(struct genl_info *info, u64 version, bool created)
{
	struct sk_buff *reply;
	void *header = reply_begin(&reply, SIZE_U64 + nla_total_size(0), info);

	if (!header)
		return -ENOMEM;
	if (put_u64(reply, SLUICE_NL_A_VERSION, version) ||
	    (created && nla_put_flag(reply, SLUICE_NL_A_CREATED))) {
		nlmsg_free(reply);
		return -EMSGSIZE;
	}
	return reply_end(reply, header, info);
}

/* Finds the map of a request with a key, and executes it. */
static int with_map(struct sk_buff *skb, struct genl_info *info, u32 flags,
		    int (*execute)(struct sluice_map *map, struct genl_info *info))
{
	struct target target;
	int err;

	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_KEY))
		return -EINVAL;
	err = target_get(NETLINK_CB(skb).sk, info->attrs, flags, &target, extack_of(info));
	if (err)
		return err;
	err = execute(target.map, info);
	if (err)
		explain(info->extack, err);
	target_put(&target);
	return err;
}

static int execute_set(struct sluice_map *map, struct genl_info *info)
{
	struct sluice_map_request request;
	int ret = set_value(map, info->attrs, &request);

	return ret < 0 ? ret : reply_version(info, request.version, ret);
}

static int execute_delete(struct sluice_map *map, struct genl_info *info)
{
	struct sluice_map_request request;
	int err;

	request_init(map, info->attrs, &request);
	err = sluice_map_delete(map, &request);
	return err ?: reply_version(info, request.version, false);
}

int sluice_map_netlink_get(struct sk_buff *skb, struct genl_info *info)
{
	return with_map(skb, info, SLUICE_OPEN_READ, get_value);
}

int sluice_map_netlink_set(struct sk_buff *skb, struct genl_info *info)
{
	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_VALUE))
		return -EINVAL;
	return with_map(skb, info, SLUICE_OPEN_WRITE, execute_set);
}

int sluice_map_netlink_delete(struct sk_buff *skb, struct genl_info *info)
{
	return with_map(skb, info, SLUICE_OPEN_WRITE, execute_delete);
}
