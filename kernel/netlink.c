// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

#include "channel.h"
#include "netlink.h"

static const struct nla_policy policy[SLUICE_NL_A_MAX + 1] = {
	[SLUICE_NL_A_NAME]	= { .type = NLA_NUL_STRING, .len = SLUICE_NAME_SIZE - 1 },
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= NLA_POLICY_MIN(NLA_U32, 1),
	[SLUICE_NL_A_FLAGS]	= { .type = NLA_U32 },
	[SLUICE_NL_A_MODE]	= NLA_POLICY_MAX(NLA_U32, 0777),
	[SLUICE_NL_A_CAPACITY]	= { .type = NLA_U64 },
	[SLUICE_NL_A_ENTRIES_MAX] = { .type = NLA_U64 },
	[SLUICE_NL_A_EVENTS]	= { .type = NLA_U32 },
	[SLUICE_NL_A_KEY]	= NLA_POLICY_RANGE(NLA_BINARY, 1, SLUICE_MAP_KEY_MAX),
	[SLUICE_NL_A_VALUE]	= { .type = NLA_BINARY, .len = SLUICE_NL_VALUE_MAX },
	[SLUICE_NL_A_IF_VERSION] = { .type = NLA_U64 },
	[SLUICE_NL_A_TTL_NS]	= { .type = NLA_U64 },
	[SLUICE_NL_A_KEYS]	= { .type = NLA_FLAG },
	[SLUICE_NL_A_STEP]	= { .type = NLA_NESTED },
	[SLUICE_NL_A_COMMAND]	= NLA_POLICY_MAX(NLA_U32, SLUICE_MAP_STEP_DELETE),
	[SLUICE_NL_A_AFTER]	= { .type = NLA_U64 },
};

static const struct genl_ops operations[] = {
	{ .cmd = SLUICE_NL_CMD_MAP_OPEN, .doit = sluice_map_netlink_open },
	{ .cmd = SLUICE_NL_CMD_MAP_CLOSE, .doit = sluice_netlink_close },
	{ .cmd = SLUICE_NL_CMD_MAP_GET, .doit = sluice_map_netlink_get },
	{ .cmd = SLUICE_NL_CMD_MAP_SET, .doit = sluice_map_netlink_set },
	{ .cmd = SLUICE_NL_CMD_MAP_DELETE, .doit = sluice_map_netlink_delete },
	{ .cmd = SLUICE_NL_CMD_MAP_BATCH, .doit = sluice_map_netlink_batch },
	{
		.cmd = SLUICE_NL_CMD_MAP_DUMP,
		.start = sluice_map_netlink_dump_start,
		.dumpit = sluice_map_netlink_dump,
		.done = sluice_map_netlink_dump_done,
	},
	{ .cmd = SLUICE_NL_CMD_MAP_WATCH, .doit = sluice_netlink_watch },
	{ .cmd = SLUICE_NL_CMD_MAP_INFO, .doit = sluice_map_netlink_info },
};

struct genl_family sluice_netlink_family __ro_after_init = {
	.name		= SLUICE_NL_FAMILY,
	.version	= SLUICE_NL_VERSION,
	.maxattr	= SLUICE_NL_A_MAX,
	.policy		= policy,
	.netnsok	= true,
	.parallel_ops	= true,
	.module		= THIS_MODULE,
	.ops		= operations,
	.n_ops		= ARRAY_SIZE(operations),
	.resv_start_op	= SLUICE_NL_CMD_MAX + 1,
};

int __init sluice_netlink_init(void)
{
	int err = sluice_netlink_handle_init();

	if (err)
		return err;
	err = genl_register_family(&sluice_netlink_family);
	if (err)
		sluice_netlink_handle_exit();
	return err;
}

void sluice_netlink_exit(void)
{
	genl_unregister_family(&sluice_netlink_family);
	sluice_netlink_handle_exit();
	sluice_channel_flush_deferred();
}
