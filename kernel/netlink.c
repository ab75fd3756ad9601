// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

#include "netlink.h"

/*
 * What each command accepts. The attributes that it does not name are invalid in it, and so are
 * those of a newer header. The table that generic netlink fills for a request ends with the last
 * attribute that its command accepts.
 */
#define NAME_POLICY { .type = NLA_NUL_STRING, .len = SLUICE_NAME_SIZE - 1 }
#define HANDLE_POLICY NLA_POLICY_MIN(NLA_U32, 1)
#define KEY_POLICY NLA_POLICY_RANGE(NLA_BINARY, 1, SLUICE_MAP_KEY_MAX)

static const struct nla_policy open_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_FLAGS]	= { .type = NLA_U32 },
	[SLUICE_NL_A_MODE]	= NLA_POLICY_MAX(NLA_U32, 0777),
	[SLUICE_NL_A_CAPACITY]	= { .type = NLA_U64 },
	[SLUICE_NL_A_ENTRIES_MAX] = { .type = NLA_U64 },
	[SLUICE_NL_A_EVENTS]	= { .type = NLA_U32 },
};

static const struct nla_policy close_policy[] = {
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
};

static const struct nla_policy get_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
	[SLUICE_NL_A_KEY]	= KEY_POLICY,
};

static const struct nla_policy set_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
	[SLUICE_NL_A_KEY]	= KEY_POLICY,
	[SLUICE_NL_A_VALUE]	= { .type = NLA_BINARY },
	[SLUICE_NL_A_IF_VERSION] = { .type = NLA_U64 },
	[SLUICE_NL_A_TTL_NS]	= { .type = NLA_U64 },
};

static const struct nla_policy delete_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
	[SLUICE_NL_A_KEY]	= KEY_POLICY,
	[SLUICE_NL_A_IF_VERSION] = { .type = NLA_U64 },
};

static const struct nla_policy step_policy[] = {
	[SLUICE_NL_A_COMMAND]	= NLA_POLICY_MAX(NLA_U32, SLUICE_MAP_STEP_DELETE),
	[SLUICE_NL_A_KEY]	= KEY_POLICY,
	[SLUICE_NL_A_VALUE]	= { .type = NLA_BINARY },
	[SLUICE_NL_A_IF_VERSION] = { .type = NLA_U64 },
	[SLUICE_NL_A_TTL_NS]	= { .type = NLA_U64 },
};

static const struct nla_policy batch_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
	[SLUICE_NL_A_STEP]	= NLA_POLICY_NESTED(step_policy),
};

static const struct nla_policy dump_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
	[SLUICE_NL_A_KEYS]	= { .type = NLA_FLAG },
};

static const struct nla_policy watch_policy[] = {
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
	[SLUICE_NL_A_AFTER]	= { .type = NLA_U64 },
};

static const struct nla_policy info_policy[] = {
	[SLUICE_NL_A_NAME]	= NAME_POLICY,
	[SLUICE_NL_A_SCOPE_FD]	= { .type = NLA_S32 },
	[SLUICE_NL_A_HANDLE]	= HANDLE_POLICY,
};

static const struct genl_ops operations[] = {
	{
		.cmd = SLUICE_NL_CMD_MAP_OPEN,
		.policy = open_policy,
		.maxattr = ARRAY_SIZE(open_policy) - 1,
		.doit = sluice_map_netlink_open,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_CLOSE,
		.policy = close_policy,
		.maxattr = ARRAY_SIZE(close_policy) - 1,
		.doit = sluice_map_netlink_close,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_GET,
		.policy = get_policy,
		.maxattr = ARRAY_SIZE(get_policy) - 1,
		.doit = sluice_map_netlink_get,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_SET,
		.policy = set_policy,
		.maxattr = ARRAY_SIZE(set_policy) - 1,
		.doit = sluice_map_netlink_set,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_DELETE,
		.policy = delete_policy,
		.maxattr = ARRAY_SIZE(delete_policy) - 1,
		.doit = sluice_map_netlink_delete,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_BATCH,
		.policy = batch_policy,
		.maxattr = ARRAY_SIZE(batch_policy) - 1,
		.doit = sluice_map_netlink_batch,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_DUMP,
		.policy = dump_policy,
		.maxattr = ARRAY_SIZE(dump_policy) - 1,
		.start = sluice_map_netlink_dump_start,
		.dumpit = sluice_map_netlink_dump,
		.done = sluice_map_netlink_dump_done,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_WATCH,
		.policy = watch_policy,
		.maxattr = ARRAY_SIZE(watch_policy) - 1,
		.doit = sluice_map_netlink_watch,
	},
	{
		.cmd = SLUICE_NL_CMD_MAP_INFO,
		.policy = info_policy,
		.maxattr = ARRAY_SIZE(info_policy) - 1,
		.doit = sluice_map_netlink_info,
	},
};

struct genl_family sluice_netlink_family __ro_after_init = {
	.name		= SLUICE_NL_FAMILY,
	.version	= SLUICE_NL_VERSION,
	.maxattr	= SLUICE_NL_A_MAX,
	.netnsok	= true,
	.parallel_ops	= true,
	.module		= THIS_MODULE,
	.ops		= operations,
	.n_ops		= ARRAY_SIZE(operations),
};

int sluice_netlink_explain(struct netlink_ext_ack *extack, int err)
{
	if (err >= 0 || !extack || extack->_msg)
		return err;
	switch (err) {
	case -EACCES:
		NL_SET_ERR_MSG(extack, "the sender, or the opener of the socket, may not do this");
		break;
	case -EAGAIN:
		NL_SET_ERR_MSG(extack, "no memory, or no room in the store, at once; try again");
		break;
	case -EBADF:
		NL_SET_ERR_MSG(extack, "the handle is not open for this");
		break;
	case -EDQUOT:
		NL_SET_ERR_MSG(extack, "a limit of the user or of the scope is reached");
		break;
	case -EEXIST:
		NL_SET_ERR_MSG(extack, "it exists already");
		break;
	case -EMFILE:
		NL_SET_ERR_MSG(extack, "the socket has 64 handles; close one");
		break;
	case -EMSGSIZE:
		NL_SET_ERR_MSG(extack, "value above 16 KiB; open the map by /dev/sluice/ctl");
		break;
	case -ENOENT:
		NL_SET_ERR_MSG(extack, "it does not exist");
		break;
	case -ENOMEM:
		NL_SET_ERR_MSG(extack, "there is not enough memory");
		break;
	case -ENOSPC:
		NL_SET_ERR_MSG(extack, "the map is full, or a limit of the scope is reached");
		break;
	case -EOPNOTSUPP:
		NL_SET_ERR_MSG(extack, "not ready, or no cgroup2 at /sys/fs/cgroup");
		break;
	case -EPERM:
		NL_SET_ERR_MSG(extack, "not the opener of the socket, or not the owner");
		break;
	case -EPIPE:
		NL_SET_ERR_MSG(extack, "the map is destroyed");
		break;
	case -ESTALE:
		NL_SET_ERR_MSG(extack, "the entry has another version");
		break;
	default:
		NL_SET_ERR_MSG(extack, "an attribute is invalid, or missing");
	}
	return err;
}

int __init sluice_netlink_init(void)
{
	int err = sluice_netlink_memory_init();

	if (err)
		return err;
	err = sluice_netlink_handle_init();
	if (err)
		goto exit_memory;
	err = genl_register_family(&sluice_netlink_family);
	if (!err)
		return 0;
	sluice_netlink_handle_exit();
exit_memory:
	sluice_netlink_memory_exit();
	return err;
}

void sluice_netlink_exit(void)
{
	genl_unregister_family(&sluice_netlink_family);
	sluice_netlink_handle_exit();
	sluice_netlink_memory_exit();
}
