// SPDX-License-Identifier: GPL-2.0
/* Requests about maps over generic netlink, but for batches and dumps. */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/module.h>

#include "compat.h"
#include "ctl.h"
#include "endpoint.h"
#include "kind.h"
#include "map.h"
#include "netlink.h"
#include "scope.h"
#include "stream.h"

/* Most values are shorter; a longer one takes a second attempt. */
#define SHORT_VALUE 256

/* ---- replies ---- */

struct sk_buff *sluice_netlink_reply_begin(size_t size, struct genl_info *info)
{
	struct sk_buff *reply = genlmsg_new(size, GFP_KERNEL);

	if (!reply || genlmsg_put_reply(reply, info, &sluice_netlink_family, 0,
					info->genlhdr->cmd))
		return reply;
	nlmsg_free(reply);
	return NULL;
}

void sluice_netlink_reply_send(struct sk_buff *reply, struct genl_info *info)
{
	nlmsg_end(reply, nlmsg_hdr(reply));
	genlmsg_reply(reply, info);
}

/* ---- handles ---- */

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
	return sluice_netlink_parse_name(&request->key, attrs[SLUICE_NL_A_NAME]);
}

/*
 * What the sender creates belongs to the sender; so the socket must be the sender's, and its opener
 * needs not be judged again. An open that creates nothing has no effect but the endpoint.
 */
static struct sluice_endpoint *open_endpoint(struct sk_buff *skb,
					     const struct sluice_channel_request *request)
{
	u32 wanted = request->flags & (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE);
	struct sluice_endpoint *endpoint;
	bool created;

	if (request->flags & SLUICE_OPEN_CREATE && !sluice_netlink_is_own_socket(skb))
		return ERR_PTR(-EPERM);
	endpoint = sluice_endpoint_create(request, &created);
	if (IS_ERR(endpoint) || request->flags & SLUICE_OPEN_CREATE)
		return endpoint;
	if (!(wanted & ~sluice_netlink_permitted(skb, endpoint->channel)))
		return endpoint;
	sluice_endpoint_close_deferred(endpoint);
	return ERR_PTR(-EACCES);
}

/* The number of a new handle, or an error. */
static int open_handle(struct sk_buff *skb, const struct sluice_channel_request *request)
{
	struct sluice_endpoint *endpoint;
	int number;

	number = sluice_netlink_handle_reserve(skb);
	if (number < 0)
		return number;
	endpoint = open_endpoint(skb, request);
	if (IS_ERR(endpoint)) {
		sluice_netlink_handle_close(skb, number);
		return PTR_ERR(endpoint);
	}
	sluice_netlink_handle_set(skb, number,
				  container_of(endpoint, struct sluice_map_endpoint, endpoint));
	return number;
}

/* As open_handle(). Nothing is created while the module may still fail to load, or ends. */
static int open_alive(struct sk_buff *skb, const struct sluice_channel_request *request)
{
	int ret;

	if (THIS_MODULE->state == MODULE_STATE_COMING || !try_module_get(THIS_MODULE))
		return -EOPNOTSUPP;
	ret = open_handle(skb, request);
	module_put(THIS_MODULE);
	return ret;
}

static int open_map(struct sk_buff *skb, struct genl_info *info)
{
	struct sluice_map_params params = { .size = sizeof(params) };
	struct sluice_channel_request request = { .gfp = SLUICE_QUOTA_GFP_NOWAIT };
	int ret = parse_open(info->attrs, &request, &params);

	if (ret) {
		GENL_SET_ERR_MSG(info, "the name or the flags are invalid");
		return ret;
	}
	ret = sluice_netlink_access_scope(skb, info->attrs, &request.access, info->extack);
	if (ret)
		return ret;
	ret = sluice_netlink_memory(open_alive(skb, &request), NULL);
	sluice_scope_put(request.access.scope);
	if (ret == -EINVAL)
		GENL_SET_ERR_MSG(info, "the capacity, or the number of events, is invalid");
	return ret;
}

int sluice_map_netlink_open(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply;
	int ret;

	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_NAME))
		return -EINVAL;
	reply = sluice_netlink_reply_begin(nla_total_size(sizeof(u32)), info);
	ret = reply ? open_map(skb, info) : -ENOMEM;
	if (ret < 0) {
		nlmsg_free(reply);
		return sluice_netlink_explain(info->extack, ret);
	}
	sluice_netlink_put_u32(reply, SLUICE_NL_A_HANDLE, ret);
	sluice_netlink_reply_send(reply, info);
	return 0;
}

/* The required handle of a request, or 0: the request is answered. */
static u32 handle_of(struct genl_info *info)
{
	return GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_HANDLE) ? 0 :
	       nla_get_u32(info->attrs[SLUICE_NL_A_HANDLE]);
}

int sluice_map_netlink_close(struct sk_buff *skb, struct genl_info *info)
{
	u32 number = handle_of(info);
	int err;

	if (!number)
		return -EINVAL;
	err = sluice_netlink_handle_close(skb, number);
	if (err)
		GENL_SET_ERR_MSG(info, "this socket has no such handle");
	return err;
}

/* ---- get ---- */

int sluice_map_netlink_put_version(struct sk_buff *skb, const struct sluice_map_copy *copy)
{
	return sluice_netlink_put_u64(skb, SLUICE_NL_A_VERSION, copy->version) ?:
	       (copy->ttl_ns ? sluice_netlink_put_u64(skb, SLUICE_NL_A_TTL_NS, copy->ttl_ns) : 0);
}

/* The value is copied to its place in the message; then the attribute is made around it. */
int sluice_map_netlink_put_value(struct sk_buff *skb, struct sluice_map *map,
				 const struct nlattr *key, u32 room, struct sluice_map_copy *copy)
{
	struct sluice_map_key sought;

	copy->length = 0;
	copy->version = 0;
	copy->ttl_ns = 0;
	if (skb_tailroom(skb) < nla_total_size(room))
		return -EMSGSIZE;
	copy->value = skb_tail_pointer(skb) + NLA_HDRLEN;
	copy->room = room;
	sluice_map_key_init(map, &sought, nla_data(key), nla_len(key));
	if (!sluice_map_copy_value(map, &sought, copy))
		return -ENOENT;
	if (copy->length > room)
		return -EMSGSIZE;
	sluice_netlink_append(skb, SLUICE_NL_A_VALUE, copy->length);
	return sluice_map_netlink_put_version(skb, copy);
}

/* As sluice_map_netlink_put_value(), with a message of its own. */
static int reply_value(struct sluice_map *map, struct genl_info *info, u32 room, u32 *length)
{
	size_t size = nla_total_size(room) + 2 * SLUICE_NETLINK_SIZE_U64;
	struct sk_buff *reply = sluice_netlink_reply_begin(size, info);
	struct sluice_map_copy copy __uninitialized;
	int err;

	if (!reply)
		return -ENOMEM;
	err = sluice_map_netlink_put_value(reply, map, info->attrs[SLUICE_NL_A_KEY], room, &copy);
	*length = copy.length;
	if (err)
		nlmsg_free(reply);
	else
		sluice_netlink_reply_send(reply, info);
	return err;
}

/*
 * The value may change between two attempts: the second has room for any that is not longer, and
 * the last one for any. Most values need one, and few allocate more than they need.
 */
static int execute_get(struct sluice_map *map, struct genl_info *info)
{
	u32 length;
	int err = reply_value(map, info, SHORT_VALUE, &length);

	if (err == -EMSGSIZE && length <= SLUICE_NL_VALUE_MAX)
		err = reply_value(map, info, length, &length);
	if (err == -EMSGSIZE && length <= SLUICE_NL_VALUE_MAX)
		err = reply_value(map, info, SLUICE_NL_VALUE_MAX, &length);
	return err;
}

/* ---- set and delete ---- */

static void parse_change(const struct sluice_map *map, u32 command, struct nlattr **attrs,
			 struct sluice_map_change *change)
{
	const struct nlattr *key = attrs[SLUICE_NL_A_KEY], *value = attrs[SLUICE_NL_A_VALUE];

	*change = (struct sluice_map_change) {
		.command = command,
		.flags = SLUICE_MAP_NOWAIT,
		.gfp = SLUICE_QUOTA_GFP_NOWAIT,
	};
	sluice_map_key_init(map, &change->key, nla_data(key), nla_len(key));
	if (attrs[SLUICE_NL_A_IF_VERSION]) {
		change->flags |= SLUICE_MAP_IF_VERSION;
		change->required = nla_get_u64(attrs[SLUICE_NL_A_IF_VERSION]);
	}
	if (command != SLUICE_MAP_STEP_SET)
		return;
	change->bytes = nla_data(value);
	change->length = nla_len(value);
	change->ttl_ns = attrs[SLUICE_NL_A_TTL_NS] ? nla_get_u64(attrs[SLUICE_NL_A_TTL_NS]) : 0;
}

int sluice_map_netlink_change(struct sluice_map *map, u32 command, struct nlattr **attrs,
			      u64 *version)
{
	struct sluice_map_change change __uninitialized;
	int ret;

	parse_change(map, command, attrs, &change);
	if (change.length > SLUICE_NL_VALUE_MAX)
		return -EMSGSIZE;
	ret = sluice_map_change(map, &change);
	*version = change.version;
	return sluice_netlink_memory(ret, change.lacks_record ? NULL : map->channel.memcg);
}

static int map_netlink_change(struct sluice_map *map, struct genl_info *info, u32 command)
{
	size_t size = SLUICE_NETLINK_SIZE_U64 + nla_total_size(0);
	struct sk_buff *reply = sluice_netlink_reply_begin(size, info);
	u64 version;
	int ret;

	if (!reply)
		return -ENOMEM;
	ret = sluice_map_netlink_change(map, command, info->attrs, &version);
	if (ret < 0) {
		nlmsg_free(reply);
		return ret;
	}
	sluice_netlink_put_u64(reply, SLUICE_NL_A_VERSION, version);
	if (ret)
		nla_put_flag(reply, SLUICE_NL_A_CREATED);
	sluice_netlink_reply_send(reply, info);
	return 0;
}

static int execute_set(struct sluice_map *map, struct genl_info *info)
{
	return map_netlink_change(map, info, SLUICE_MAP_STEP_SET);
}

static int execute_delete(struct sluice_map *map, struct genl_info *info)
{
	return map_netlink_change(map, info, SLUICE_MAP_STEP_DELETE);
}

/* ---- requests for one map ---- */

/* What a client wants to know of an error of an entry. */
static void explain(struct netlink_ext_ack *extack, int err)
{
	if (err == -ENOENT)
		NL_SET_ERR_MSG(extack, "there is no entry with this key");
	else if (err == -EEXIST)
		NL_SET_ERR_MSG(extack, "there is an entry with this key");
	else if (err == -ENOSPC)
		NL_SET_ERR_MSG(extack, "the map or its store is full");
	else if (err == -EIDRM)
		NL_SET_ERR_MSG(extack, "the durable map was unlinked or detached");
}

static int with_map(struct sk_buff *skb, struct genl_info *info, u32 flags,
		    int (*execute)(struct sluice_map *map, struct genl_info *info))
{
	struct sluice_netlink_target target;
	int err = sluice_netlink_target_get(skb, info->attrs, flags, &target, info->extack);

	if (!err) {
		err = execute(target.map, info);
		explain(info->extack, err);
		sluice_netlink_target_put(&target);
	}
	return sluice_netlink_explain(info->extack, err);
}

int sluice_map_netlink_get(struct sk_buff *skb, struct genl_info *info)
{
	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_KEY))
		return -EINVAL;
	return with_map(skb, info, SLUICE_OPEN_READ, execute_get);
}

int sluice_map_netlink_set(struct sk_buff *skb, struct genl_info *info)
{
	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_KEY) ||
	    GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_VALUE))
		return -EINVAL;
	return with_map(skb, info, SLUICE_OPEN_WRITE, execute_set);
}

int sluice_map_netlink_delete(struct sk_buff *skb, struct genl_info *info)
{
	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_KEY))
		return -EINVAL;
	return with_map(skb, info, SLUICE_OPEN_WRITE, execute_delete);
}

static void put_durable_info(struct sk_buff *skb, struct sluice_map *map)
{
	struct sluice_map_info info;

	sluice_stream_fill_info(map->stream, &info);
	sluice_netlink_put_u64(skb, SLUICE_NL_A_STORED, info.stored);
	sluice_netlink_put_u64(skb, SLUICE_NL_A_PENDING, info.pending);
}

static int execute_info(struct sluice_map *map, struct genl_info *info)
{
	size_t size = 11 * SLUICE_NETLINK_SIZE_U64 + 2 * nla_total_size(sizeof(u32));
	struct sk_buff *skb = sluice_netlink_reply_begin(size, info);

	if (!skb)
		return -ENOMEM;
	sluice_netlink_put_u64(skb, SLUICE_NL_A_CAPACITY, map->capacity);
	sluice_netlink_put_u64(skb, SLUICE_NL_A_BYTES, atomic64_read(&map->bytes));
	sluice_netlink_put_u64(skb, SLUICE_NL_A_ENTRIES_MAX, map->entries_max);
	sluice_netlink_put_u64(skb, SLUICE_NL_A_ENTRIES, atomic64_read(&map->entries));
	sluice_netlink_put_u64(skb, SLUICE_NL_A_SEQUENCE, atomic64_read(&map->sequence));
	sluice_netlink_put_u64(skb, SLUICE_NL_A_EXPIRED, atomic64_read(&map->expired));
	sluice_netlink_put_u64(skb, SLUICE_NL_A_MISSED, atomic64_read(&map->missed));
	sluice_netlink_put_u32(skb, SLUICE_NL_A_EVENTS, map->slot_count);
	sluice_netlink_put_u32(skb, SLUICE_NL_A_WATCHERS, atomic_read(&map->watchers));
	if (map->stream)
		put_durable_info(skb, map);
	sluice_netlink_reply_send(skb, info);
	return 0;
}

int sluice_map_netlink_info(struct sk_buff *skb, struct genl_info *info)
{
	return with_map(skb, info, 0, execute_info);
}

/* ---- watch ---- */

static int begin_watch(struct sk_buff *skb, struct genl_info *info, struct sluice_map_endpoint *end,
		       u64 *sequence)
{
	int err = sluice_map_watch_after(end, sequence);

	if (err) {
		GENL_SET_ERR_MSG(info, "the sequence is greater than that of the last change");
		return err;
	}
	err = sluice_netlink_handle_watch(skb, nla_get_u32(info->attrs[SLUICE_NL_A_HANDLE]));
	if (err)
		GENL_SET_ERR_MSG(info, "this socket has no such handle");
	return err;
}

/* As begin_watch(), and replies. */
static int watch(struct sk_buff *skb, struct genl_info *info, struct sluice_map_endpoint *end)
{
	const struct nlattr *after = info->attrs[SLUICE_NL_A_AFTER];
	u64 sequence = after ? nla_get_u64(after) : SLUICE_MAP_NOW;
	struct sk_buff *reply = sluice_netlink_reply_begin(SLUICE_NETLINK_SIZE_U64, info);
	int err;

	if (!reply)
		return -ENOMEM;
	err = begin_watch(skb, info, end, &sequence);
	if (err) {
		nlmsg_free(reply);
		return err;
	}
	sluice_netlink_put_u64(reply, SLUICE_NL_A_SEQUENCE, sequence);
	sluice_netlink_reply_send(reply, info);
	return 0;
}

int sluice_map_netlink_watch(struct sk_buff *skb, struct genl_info *info)
{
	struct sluice_netlink_target target;
	int err;

	if (!handle_of(info))
		return -EINVAL;
	err = sluice_netlink_target_get(skb, info->attrs, SLUICE_OPEN_READ, &target, info->extack);
	if (!err) {
		err = watch(skb, info, sluice_netlink_handle_endpoint(target.handle));
		sluice_netlink_target_put(&target);
	}
	return sluice_netlink_explain(info->extack, err);
}
