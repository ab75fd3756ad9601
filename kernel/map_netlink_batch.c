// SPDX-License-Identifier: GPL-2.0
/*
 * Batches over generic netlink: the policy has checked every attribute of every step before the
 * first one is executed. A step that cannot be executed has a result, as by file descriptor.
 */
#include <linux/minmax.h>
#include <linux/sizes.h>

#include "compat.h"
#include "map.h"
#include "netlink.h"

/* Bytes of a reply: at most, and at first, because the kernel may clear what it allocates. */
#define REPLY_MAX SZ_32K
#define REPLY_ROOM (SZ_8K - SZ_1K)
/* Bytes of a step in it without its value. */
#define STEP_REPLY 64

/* A batch in progress. */
struct batch {
	struct sluice_netlink_target target;
	struct sk_buff *reply;
	unsigned int left;		/* steps that need room for their results */
};

/* Bytes of a value for which the reply, if it has @bytes, has room besides the other results. */
static u32 room_for_value(const struct batch *batch, u32 bytes)
{
	u32 used = batch->reply->len + (batch->left + 1) * STEP_REPLY;

	return used < bytes ? min_t(u32, bytes - used, SLUICE_NL_VALUE_MAX) : 0;
}

/* Makes room for the longest value that may be in the reply. */
static int expand(struct batch *batch)
{
	u32 size = batch->reply->len + skb_tailroom(batch->reply);

	return size >= REPLY_MAX ? 0 :
	       pskb_expand_head(batch->reply, 0, REPLY_MAX - size, GFP_KERNEL);
}

static int get(struct batch *batch, struct nlattr **attrs)
{
	const struct nlattr *key = attrs[SLUICE_NL_A_KEY];
	u32 size = batch->reply->len + skb_tailroom(batch->reply);
	u32 room = room_for_value(batch, min_t(u32, size, REPLY_MAX));
	struct sluice_map_copy copy __uninitialized;
	int err = sluice_map_netlink_put_value(batch->reply, batch->target.map, key, room, &copy);

	if (err == -EMSGSIZE && copy.length <= room_for_value(batch, REPLY_MAX)) {
		if (expand(batch))
			return -ENOMEM;
		room = room_for_value(batch, REPLY_MAX);
		err = sluice_map_netlink_put_value(batch->reply, batch->target.map, key, room,
						   &copy);
	}
	if (err == -EMSGSIZE) {
		sluice_netlink_put_u32(batch->reply, SLUICE_NL_A_VALUE_LENGTH, copy.length);
		sluice_map_netlink_put_version(batch->reply, &copy);
	}
	return err;
}

static int step_get(struct batch *batch, struct nlattr **attrs)
{
	if (!(batch->target.flags & SLUICE_OPEN_READ))
		return -EBADF;
	return get(batch, attrs);
}

static int step_change(struct batch *batch, u32 command, struct nlattr **attrs)
{
	u64 version;
	int ret;

	if (!(batch->target.flags & SLUICE_OPEN_WRITE))
		return -EBADF;
	ret = sluice_map_netlink_change(batch->target.map, command, attrs, &version);
	if (ret >= 0 || ret == -ESTALE || ret == -EEXIST)
		sluice_netlink_put_u64(batch->reply, SLUICE_NL_A_VERSION, version);
	return ret;
}

/* Whether the step has what its command needs, and nothing that the command does not use. */
static bool is_complete(struct nlattr **attrs)
{
	bool has_value = attrs[SLUICE_NL_A_VALUE], has_ttl = attrs[SLUICE_NL_A_TTL_NS];
	u32 command;

	if (!attrs[SLUICE_NL_A_COMMAND] || !attrs[SLUICE_NL_A_KEY])
		return false;
	command = nla_get_u32(attrs[SLUICE_NL_A_COMMAND]);
	if (command == SLUICE_MAP_STEP_SET)
		return has_value;
	if (command == SLUICE_MAP_STEP_GET && attrs[SLUICE_NL_A_IF_VERSION])
		return false;
	return !has_value && !has_ttl;
}

static int step_execute(struct batch *batch, struct nlattr **attrs)
{
	u32 command;

	if (!is_complete(attrs))
		return -EINVAL;
	if (READ_ONCE(batch->target.map->destroyed))
		return -EPIPE;
	command = nla_get_u32(attrs[SLUICE_NL_A_COMMAND]);
	if (command == SLUICE_MAP_STEP_GET)
		return step_get(batch, attrs);
	return step_change(batch, command, attrs);
}

/* The policy permits a step only these attributes, and has checked them. */
static void parse(struct nlattr **attrs, const struct nlattr *nested)
{
	struct nlattr *attribute;
	int left;

	attrs[SLUICE_NL_A_COMMAND] = NULL;
	attrs[SLUICE_NL_A_KEY] = NULL;
	attrs[SLUICE_NL_A_VALUE] = NULL;
	attrs[SLUICE_NL_A_IF_VERSION] = NULL;
	attrs[SLUICE_NL_A_TTL_NS] = NULL;
	nla_for_each_nested(attribute, nested, left)
		attrs[nla_type(attribute)] = attribute;
}

/* The reply has room for the results of all steps. It may move. */
static void step(struct batch *batch, const struct nlattr *nested)
{
	struct nlattr *attrs[SLUICE_NL_A_MAX + 1] __uninitialized;
	struct sk_buff *reply = batch->reply;
	unsigned int begin = reply->len;

	if (!sluice_netlink_append(reply, SLUICE_NL_A_STEP | NLA_F_NESTED, 0))
		return;
	parse(attrs, nested);
	sluice_netlink_put_u32(reply, SLUICE_NL_A_RESULT, step_execute(batch, attrs));
	nla_nest_end(reply, (struct nlattr *)(reply->data + begin));
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

static void map_netlink_execute_steps(struct batch *batch, struct genl_info *info)
{
	const struct nlattr *attribute;
	int left;

	nlmsg_for_each_attr(attribute, info->nlhdr, GENL_HDRLEN, left) {
		if (nla_type(attribute) != SLUICE_NL_A_STEP)
			continue;
		/* One sendmsg(2) may carry many batches, all under the lock of generic netlink. */
		if (fatal_signal_pending(current))
			break;
		batch->left--;
		step(batch, attribute);
	}
}

int sluice_map_netlink_batch(struct sk_buff *skb, struct genl_info *info)
{
	struct batch batch = { .left = count_steps(info) };
	int err;

	if (!batch.left || batch.left > SLUICE_NL_STEPS_MAX) {
		GENL_SET_ERR_MSG(info, "a batch has 1 to 64 steps");
		return -EINVAL;
	}
	err = sluice_netlink_target_get(skb, info->attrs, 0, &batch.target, info->extack);
	if (err)
		return sluice_netlink_explain(info->extack, err);
	batch.reply = sluice_netlink_reply_begin(REPLY_ROOM, info);
	if (batch.reply) {
		map_netlink_execute_steps(&batch, info);
		sluice_netlink_reply_send(batch.reply, info);
	} else {
		err = -ENOMEM;
	}
	sluice_netlink_target_put(&batch.target);
	return sluice_netlink_explain(info->extack, err);
}
