// SPDX-License-Identifier: GPL-2.0
/*
 * Load and unload, in one order: what others stand on comes first and goes last; the device node,
 * which lets users in, comes last and goes first. No endpoint can be open at exit, since each holds
 * the module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/init.h>
#include <linux/module.h>

#include "node.h"
#include "pipe.h"
#include "scope.h"

static int __init sluice_init(void)
{
	int err;

	err = sluice_scope_init();
	if (err)
		return err;
	err = sluice_pipe_init();
	if (err)
		goto exit_scope;
	err = sluice_node_init();
	if (err)
		goto exit_pipe;
	return 0;

exit_pipe:
	sluice_pipe_exit();
exit_scope:
	sluice_scope_exit();
	return err;
}

static void __exit sluice_exit(void)
{
	sluice_node_exit();
	sluice_pipe_exit();
	sluice_scope_exit();
}

module_init(sluice_init);
module_exit(sluice_exit);

MODULE_DESCRIPTION("Channels between processes, by name and by cgroup");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
