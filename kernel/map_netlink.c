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

#include "compat.h"
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
static bool socket_sees(struct sock *sk, const struct file *file,
			const struct sluice_scope *scope)
{
	return cgroup_is_descendant(sock_cgroup_ptr(&sk->sk_cgrp_data), scope->cgroup) ||
	       file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN);
}

/* Whether the opener of the socket may open the channel so. 0 or -EACCES. */
static int judge_socket(struct sock *sk, const struct sluice_channel *channel, u32 flags)
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

static int parse_name(struct sluice_channel_key *key, const struct nlattr *attribute)
{
	u8 name[SLUICE_NAME_SIZE] = {};

	/* With its NUL, as the policy has checked. */
	nla_memcpy(name, attribute, sizeof(name));
	return sluice_ctl_parse_name(key, SLUICE_KIND_MAP, name);
}

static int access_scope(struct nlattr **attrs, struct sluice_scope_access *access)
{
	s32 fd = attrs[SLUICE_NL_A_SCOPE_FD] ? nla_get_s32(attrs[SLUICE_NL_A_SCOPE_FD]) :
		SLUICE_SCOPE_SELF;

	return sluice_ctl_access_scope(access, fd);
}

/* Opens the persistent map of a name. 0, -EINVAL, -ENOENT, -EACCES, or an error of the scope. */
static int find_named(struct sock *sk, struct nlattr **attrs, u32 flags,
		      struct target *target, struct netlink_ext_ack *extack)
{
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	struct sluice_channel *channel;
	int err = parse_name(&key, attrs[SLUICE_NL_A_NAME]);

	err = err ?: access_scope(attrs, &access);
	if (err)
		return err;
	channel = sluice_channel_lookup(&access, &key);
	sluice_scope_put(access.scope);
	if (channel == ERR_PTR(-ENOENT))
		NL_SET_ERR_MSG(extack, "there is no map with this name");
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

/* Version and time to live, and the value or, if it was not copied, its length. */
static int put_value(struct sk_buff *skb, const struct sluice_map_copy *copy)
{
	return put_u64(skb, SLUICE_NL_A_VERSION, copy->version) ?:
	       (copy->ttl_ns ? put_u64(skb, SLUICE_NL_A_TTL_NS, copy->ttl_ns) : 0) ?:
	       (copy->length <= copy->room ?
			nla_put(skb, SLUICE_NL_A_VALUE, copy->length, copy->value) :
			nla_put_u32(skb, SLUICE_NL_A_VALUE_LENGTH, copy->length));
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
	return parse_name(&request->key, attrs[SLUICE_NL_A_NAME]);
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

/* As open_handle(), unless the opener of the socket must not see the scope: nothing is created. */
static int open_judged(struct sock *sk, const struct sluice_channel_request *request)
{
	const struct file *file = socket_file(sk);

	if (!file || !socket_sees(sk, file, request->access.scope))
		return -EACCES;
	return open_handle(sk, request);
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
	ret = open_judged(sk, &request);
	sluice_scope_put(request.access.scope);
	if (ret == -EACCES)
		GENL_SET_ERR_MSG(info, "the sender, or the opener of the socket, may not do this");
	else if (ret == -EMFILE)
		GENL_SET_ERR_MSG(info, "the socket has 64 handles; close one");
	if (ret < 0)
		return ret;
	header = reply_begin(&reply, nla_total_size(sizeof(u32)), info);
	if (!header)
		return -ENOMEM;
	nla_put_u32(reply, SLUICE_NL_A_HANDLE, ret);
	return reply_end(reply, header, info);
}

/* ---- operations ---- */

static void init_key(const struct sluice_map *map, struct sluice_map_key *key,
		     const struct nlattr *attribute)
{
	sluice_map_key_init(map, key, nla_data(attribute), nla_len(attribute));
}

static void explain(struct netlink_ext_ack *extack, int err)
{
	if (err == -EMSGSIZE)
		NL_SET_ERR_MSG(extack, "the value exceeds 16 KiB; use SLUICE_MAP_GET or SLUICE_MAP_SET on an endpoint of /dev/sluice/ctl");
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

static int reply_value(struct genl_info *info, const struct sluice_map_copy *copy)
{
	struct sk_buff *reply;
	void *header = reply_begin(&reply, 2 * SIZE_U64 + nla_total_size(copy->length), info);
	int err;

	if (!header)
		return -ENOMEM;
	err = put_value(reply, copy);
	if (err) {
		nlmsg_free(reply);
		return err;
	}
	return reply_end(reply, header, info);
}

static int execute_get(struct sluice_map *map, struct genl_info *info)
{
	struct sluice_map_copy copy = { .room = SLUICE_NL_VALUE_MAX };
	struct sluice_map_key key;
	int err;

	init_key(map, &key, info->attrs[SLUICE_NL_A_KEY]);
	copy.value = kmalloc(copy.room, SLUICE_QUOTA_GFP);
	if (!copy.value)
		return -ENOMEM;
	if (!sluice_map_copy_value(map, &key, &copy))
		err = -ENOENT;
	else
		err = copy.length > copy.room ? -EMSGSIZE : reply_value(info, &copy);
	kfree(copy.value);
	return err;
}

static void request_init(const struct sluice_map *map, struct nlattr **attrs,
			 struct sluice_map_request *request)
{
	*request = (struct sluice_map_request) {};
	init_key(map, &request->key, attrs[SLUICE_NL_A_KEY]);
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
	struct sluice_map_value *value;
	int ret;

	if (nla_len(given) > SLUICE_NL_VALUE_MAX)
		return -EMSGSIZE;
	value = sluice_map_value_create(map, nla_len(given), ttl);
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
	return with_map(skb, info, SLUICE_OPEN_READ, execute_get);
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

/* ---- batches ---- */

/* The reply to a batch in progress. */
struct batch {
	struct sluice_map *map;
	u32 flags;			/* SLUICE_OPEN_*, which the target permits */
	struct sk_buff *reply;
	unsigned int left;		/* steps that need room for their results */
	u8 *value;			/* memory for one of SLUICE_NL_VALUE_MAX bytes */
	struct netlink_ext_ack *extack;
};

/* Bytes for a value besides the results of the steps that follow. */
static u32 room_for_value(const struct batch *batch)
{
	int room = skb_tailroom(batch->reply) - (int)(batch->left + 1) * STEP_REPLY;

	return clamp_t(int, room, 0, SLUICE_NL_VALUE_MAX);
}

/* Its result; fills in what belongs to it. */
static int step_get(struct batch *batch, const struct sluice_map_key *key)
{
	struct sluice_map_copy copy = { .value = batch->value, .room = room_for_value(batch) };
	int err;

	if (!(batch->flags & SLUICE_OPEN_READ))
		return -EBADF;
	if (!sluice_map_copy_value(batch->map, key, &copy))
		return -ENOENT;
	err = put_value(batch->reply, &copy);
	return err || copy.length <= copy.room ? err : -EMSGSIZE;
}

static int step_change(struct batch *batch, struct nlattr **attrs, u32 command)
{
	struct sluice_map_request request;
	int ret;

	if (!(batch->flags & SLUICE_OPEN_WRITE))
		return -EBADF;
	if (command == SLUICE_MAP_STEP_SET) {
		if (!attrs[SLUICE_NL_A_VALUE])
			return -EINVAL;
		ret = set_value(batch->map, attrs, &request);
	} else {
		request_init(batch->map, attrs, &request);
		ret = sluice_map_delete(batch->map, &request);
	}
	if (ret >= 0 && put_u64(batch->reply, SLUICE_NL_A_VERSION, request.version))
		return -EMSGSIZE;
	return ret;
}

static int step_execute(struct batch *batch, struct nlattr **attrs)
{
	u32 command = nla_get_u32(attrs[SLUICE_NL_A_COMMAND]);
	struct sluice_map_key key;

	if (command != SLUICE_MAP_STEP_GET)
		return step_change(batch, attrs, command);
	init_key(batch->map, &key, attrs[SLUICE_NL_A_KEY]);
	return step_get(batch, &key);
}

static int step(struct batch *batch, const struct nlattr *nested)
{
	struct nlattr *attrs[SLUICE_NL_A_MAX + 1], *nest;
	int err = nla_parse_nested(attrs, SLUICE_NL_A_MAX, nested, sluice_netlink_step_policy,
				   batch->extack);

	if (err)
		return err;
	if (!attrs[SLUICE_NL_A_COMMAND] || !attrs[SLUICE_NL_A_KEY])
		return -EINVAL;
	nest = nla_nest_start(batch->reply, SLUICE_NL_A_STEP);
	if (!nest)
		return -EMSGSIZE;
	err = nla_put_s32(batch->reply, SLUICE_NL_A_RESULT, step_execute(batch, attrs));
	nla_nest_end(batch->reply, nest);
	return err;
}

static unsigned int count_steps(const struct genl_info *info)
{
	const struct nlattr *attribute;
	unsigned int count = 0;
	int left;

	nlmsg_for_each_attr(attribute, info->nlhdr, GENL_HDRLEN, left)
		count += nla_type(attribute) == SLUICE_NL_A_STEP;
	return count;
}

static int execute_steps(struct batch *batch, struct genl_info *info)
{
	const struct nlattr *attribute;
	int left, err;

	nlmsg_for_each_attr(attribute, info->nlhdr, GENL_HDRLEN, left) {
		if (nla_type(attribute) != SLUICE_NL_A_STEP)
			continue;
		batch->left--;
		err = step(batch, attribute);
		if (err)
			return err;
	}
	return 0;
}

/* What a target permits: a handle what its file does; a name, which is judged here, either or both. */
static int batch_target(struct sock *sk, struct genl_info *info, struct target *target,
			struct batch *batch)
{
	static const u32 wanted[] = {
		SLUICE_OPEN_READ | SLUICE_OPEN_WRITE, SLUICE_OPEN_READ, SLUICE_OPEN_WRITE,
	};
	int err = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wanted); i++) {
		batch->flags = wanted[i];
		err = target_get(sk, info->attrs, wanted[i], target, info->extack);
		if (err != -EACCES && err != -EBADF)
			break;
	}
	batch->map = target->map;
	return err;
}

int sluice_map_netlink_batch(struct sk_buff *skb, struct genl_info *info)
{
	struct batch batch = { .left = count_steps(info), .extack = info->extack };
	struct target target;
	void *header;
	int err;

	if (!batch.left || batch.left > SLUICE_NL_STEPS_MAX) {
		GENL_SET_ERR_MSG(info, "a batch has 1 to 64 steps");
		return -EINVAL;
	}
	err = batch_target(NETLINK_CB(skb).sk, info, &target, &batch);
	if (err)
		return err;
	batch.value = kmalloc(SLUICE_NL_VALUE_MAX, SLUICE_QUOTA_GFP);
	header = batch.value ? reply_begin(&batch.reply, BATCH_REPLY, info) : NULL;
	err = header ? execute_steps(&batch, info) : -ENOMEM;
	kfree(batch.value);
	target_put(&target);
	if (!err)
		return reply_end(batch.reply, header, info);
	if (header)
		nlmsg_free(batch.reply);
	return err;
}

/* ---- state ---- */

static int put_info(struct sk_buff *skb, const struct sluice_map *map)
{
	return put_u64(skb, SLUICE_NL_A_CAPACITY, map->capacity) ?:
	       put_u64(skb, SLUICE_NL_A_BYTES, atomic64_read(&map->bytes)) ?:
	       put_u64(skb, SLUICE_NL_A_ENTRIES_MAX, map->entries_max) ?:
	       put_u64(skb, SLUICE_NL_A_ENTRIES, atomic64_read(&map->entries)) ?:
	       put_u64(skb, SLUICE_NL_A_SEQUENCE, atomic64_read(&map->sequence)) ?:
	       put_u64(skb, SLUICE_NL_A_EXPIRED, atomic64_read(&map->expired)) ?:
	       put_u64(skb, SLUICE_NL_A_MISSED, atomic64_read(&map->missed)) ?:
	       nla_put_u32(skb, SLUICE_NL_A_EVENTS, map->slot_count) ?:
	       nla_put_u32(skb, SLUICE_NL_A_WATCHERS, atomic_read(&map->watchers));
}

int sluice_map_netlink_info(struct sk_buff *skb, struct genl_info *info)
{
	struct target target;
	struct sk_buff *reply;
	void *header;
	int err = target_get(NETLINK_CB(skb).sk, info->attrs, SLUICE_OPEN_READ, &target,
			     info->extack);

	if (err)
		return err;
	header = reply_begin(&reply, 7 * SIZE_U64 + 2 * nla_total_size(sizeof(u32)), info);
	err = header ? put_info(reply, target.map) : -ENOMEM;
	target_put(&target);
	if (!err)
		return reply_end(reply, header, info);
	if (header)
		nlmsg_free(reply);
	return err;
}

/* ---- dump ---- */

/* A dump in progress. Its target is judged at its beginning. */
struct dump {
	struct target target;
	struct sluice_map_cursor cursor;
	struct sluice_map_copy copy;
	u8 key[SLUICE_MAP_KEY_MAX];
	u8 value[SLUICE_NL_VALUE_MAX];
};

static struct dump **dump_of(struct netlink_callback *cb)
{
	return (struct dump **)&cb->args[0];
}

int sluice_map_netlink_dump_start(struct netlink_callback *cb)
{
	struct nlattr **attrs = sluice_compat_dump_attrs(cb);
	struct dump *dump = kvzalloc(sizeof(*dump), SLUICE_QUOTA_GFP);
	int err;

	if (!dump)
		return -ENOMEM;
	err = target_get(NETLINK_CB(cb->skb).sk, attrs, SLUICE_OPEN_READ, &dump->target,
			 cb->extack);
	if (err) {
		kvfree(dump);
		return err;
	}
	dump->copy.key = dump->key;
	dump->copy.value = dump->value;
	dump->copy.room = attrs[SLUICE_NL_A_KEYS] ? 0 : SLUICE_NL_VALUE_MAX;
	cb->min_dump_alloc = SLUICE_MAP_KEY_MAX + SLUICE_NL_VALUE_MAX + SZ_1K;
	*dump_of(cb) = dump;
	return 0;
}

static int put_entry(struct sk_buff *skb, struct netlink_callback *cb,
		     const struct sluice_map_copy *copy)
{
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				   &sluice_netlink_family, NLM_F_MULTI, SLUICE_NL_CMD_MAP_DUMP);

	if (!header)
		return -EMSGSIZE;
	if (nla_put(skb, SLUICE_NL_A_KEY, copy->key_length, copy->key) || put_value(skb, copy)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

int sluice_map_netlink_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct dump *dump = *dump_of(cb);
	struct sluice_map_cursor before;
	int err;

	if (READ_ONCE(dump->target.map->destroyed))
		return -EPIPE;
	for (;;) {
		before = dump->cursor;
		if (!sluice_map_copy_next(dump->target.map, &dump->cursor, &dump->copy))
			return skb->len;
		err = put_entry(skb, cb, &dump->copy);
		if (err) {
			/* This one is the first of the next message. */
			dump->cursor = before;
			return skb->len ?: err;
		}
		cond_resched();
	}
}

int sluice_map_netlink_dump_done(struct netlink_callback *cb)
{
	struct dump *dump = *dump_of(cb);

	if (!dump)
		return 0;
	target_put(&dump->target);
	kvfree(dump);
	return 0;
}
