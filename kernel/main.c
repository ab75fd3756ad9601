// SPDX-License-Identifier: GPL-2.0
/*
 * Init and exit, in one order: dependencies first, the device nodes, which permit opens, last; exit
 * in reverse. At exit no endpoint is open and no channel persistent, because each holds the module.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "cgroup_release.h"
#include "channel.h"
#include "chrdev.h"
#include "kind.h"
#include "netlink.h"
#include "quota.h"
#include "scope.h"

static int __init sluice_init(void)
{
	int err;

	sluice_quota_init();
	err = sluice_scope_init();
	if (err)
		return err;
	err = sluice_channel_workers_init();
	if (err)
		goto exit_scope;
	err = sluice_kind_init();
	if (err)
		goto exit_channel_workers;
	err = sluice_cgroup_release_init();
	if (err)
		goto exit_kind;
	err = sluice_netlink_init();
	if (err)
		goto exit_cgroup_release;
	err = sluice_chrdev_init();
	if (err)
		goto exit_netlink;
	return 0;

exit_netlink:
	sluice_netlink_exit();
exit_cgroup_release:
	sluice_cgroup_release_exit();
exit_kind:
	sluice_channel_flush_deferred();
	sluice_kind_exit();
exit_channel_workers:
	sluice_channel_workers_exit();
exit_scope:
	sluice_scope_exit();
	return err;
}

static void __exit sluice_exit(void)
{
	sluice_chrdev_exit();
	sluice_netlink_exit();
	sluice_cgroup_release_exit();
	sluice_channel_flush_deferred();
	sluice_kind_exit();
	sluice_channel_workers_exit();
	sluice_scope_exit();
}

module_init(sluice_init);
module_exit(sluice_exit);

MODULE_DESCRIPTION("Channels between processes, by name and by cgroup");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
