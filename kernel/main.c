// SPDX-License-Identifier: GPL-2.0
/*
 * Load and unload, in one order: what others stand on comes first and goes last; the device nodes,
 * which let users in, come last and go first. No endpoint can be open at exit and no channel
 * persistent, since each holds the module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/init.h>
#include <linux/module.h>

#include "ctl.h"
#include "chrdev.h"
#include "pipe.h"
#include "quota.h"
#include "cgroup_release.h"
#include "scope.h"

static int __init sluice_init(void)
{
	int err;

	sluice_quota_init();
	err = sluice_scope_init();
	if (err)
		return err;
	err = sluice_pipe_init();
	if (err)
		goto exit_scope;
	err = sluice_cgroup_release_init();
	if (err)
		goto exit_pipe;
	err = sluice_chrdev_init();
	if (err)
		goto exit_cgroup_release;
	err = sluice_ctl_init();
	if (err)
		goto exit_chrdev;
	return 0;

exit_chrdev:
	sluice_chrdev_exit();
exit_cgroup_release:
	sluice_cgroup_release_exit();
exit_pipe:
	sluice_pipe_exit();
exit_scope:
	sluice_scope_exit();
	return err;
}

static void __exit sluice_exit(void)
{
	sluice_ctl_exit();
	sluice_chrdev_exit();
	sluice_cgroup_release_exit();
	sluice_pipe_exit();
	sluice_scope_exit();
}

module_init(sluice_init);
module_exit(sluice_exit);

MODULE_DESCRIPTION("Channels between processes, by name and by cgroup");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
