// SPDX-License-Identifier: GPL-2.0
/*
 * Batches over generic netlink: the policy has checked every attribute of every step before the
 * first one is executed. A step that cannot be executed has a result, as by file descriptor.
 */
#include <linux/minmax.h>
#include <linux/sizes.h>

#include "map.h"
#include "netlink.h"

/* Bytes of a reply. */
#define BATCH_REPLY SZ_32K
/* Bytes of a step in it without its value. */
#define STEP_REPLY 64

/* A batch in progress. */
struct batch {
	struct sluice_netlink_target target;
	struct sluice_netlink_reply reply;
	unsigned int left;		/* steps that need room for their results */
};

/* Bytes for a value besides the results of the steps that follow. */
static u32 room_for_value(const struct batch *batch)
{
	int used = batch->reply.skb->len + (batch->left + 1) * STEP_REPLY;

	return clamp(BATCH_REPLY - used, 0, SLUICE_NL_VALUE_MAX);
}

static int step_get(struct batch *batch, struct nlattr **attrs)
{
	if (!(batch->target.flags & SLUICE_OPEN_READ))
		return -EBADF;
	return sluice_map_netlink_put_value(batch->reply.skb, batch->target.map,
					    attrs[SLUICE_NL_A_KEY], room_for_value(batch));
}

static int step_change(struct batch *batch, u32 command, struct nlattr **attrs)
{
	struct sluice_map_request request;
	int ret;

	if (!(batch->target.flags & SLUICE_OPEN_WRITE))
		return -EBADF;
	ret = sluice_map_netlink_change(batch->target.map, command, attrs, &request);
	if (ret >= 0 || ret == -ESTALE || ret == -EEXIST)
		sluice_netlink_put_u64(batch->reply.skb, SLUICE_NL_A_VERSION, request.version);
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

/* The reply has room for the results of all steps. */
static void step(struct batch *batch, const struct nlattr *nested)
{
	struct nlattr *nest = nla_nest_start(batch->reply.skb, SLUICE_NL_A_STEP);
	struct nlattr *attrs[SLUICE_NL_A_MAX + 1];

	if (!nest)
		return;
	parse(attrs, nested);
	nla_put_s32(batch->reply.skb, SLUICE_NL_A_RESULT, step_execute(batch, attrs));
	nla_nest_end(batch->reply.skb, nest);
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

static void execute_steps(struct batch *batch, struct genl_info *info)
{
	const struct nlattr *attribute;
	int left;

	nlmsg_for_each_attr(attribute, info->nlhdr, GENL_HDRLEN, left) {
		if (nla_type(attribute) != SLUICE_NL_A_STEP)
			continue;
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
	err = sluice_netlink_reply_begin(&batch.reply, BATCH_REPLY, info);
	if (!err) {
		execute_steps(&batch, info);
		sluice_netlink_reply_send(&batch.reply, info);
	}
	sluice_netlink_target_put(&batch.target);
	return sluice_netlink_explain(info->extack, err);
}
