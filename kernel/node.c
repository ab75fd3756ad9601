// SPDX-License-Identifier: GPL-2.0
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "node.h"
#include "pipe.h"

static dev_t node_number;
static struct cdev node_cdev;
static struct class *node_class;

static char *node_path(SLUICE_COMPAT_DEVNODE_CONST struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return kasprintf(GFP_KERNEL, "sluice/%s", dev_name(dev));
}

/* The device comes last: it is what makes the node appear. */
int sluice_node_init(void)
{
	struct device *device;
	int err;

	err = alloc_chrdev_region(&node_number, 0, 1, "sluice");
	if (err)
		return err;

	node_class = sluice_compat_class_create("sluice");
	if (IS_ERR(node_class)) {
		err = PTR_ERR(node_class);
		goto unregister;
	}
	node_class->devnode = node_path;

	cdev_init(&node_cdev, &sluice_pipe_fops);
	node_cdev.owner = THIS_MODULE;
	err = cdev_add(&node_cdev, node_number, 1);
	if (err)
		goto destroy_class;

	device = device_create(node_class, NULL, node_number, NULL, "pipe");
	if (IS_ERR(device)) {
		err = PTR_ERR(device);
		goto delete_cdev;
	}
	return 0;

delete_cdev:
	cdev_del(&node_cdev);
destroy_class:
	class_destroy(node_class);
unregister:
	unregister_chrdev_region(node_number, 1);
	return err;
}

void sluice_node_exit(void)
{
	device_destroy(node_class, node_number);
	cdev_del(&node_cdev);
	class_destroy(node_class);
	unregister_chrdev_region(node_number, 1);
}
