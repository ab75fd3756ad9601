// SPDX-License-Identifier: GPL-2.0
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "chrdev.h"
#include "pipe.h"

static dev_t chrdev_number;
static struct cdev chrdev_cdev;
static struct class *chrdev_class;

static char *chrdev_path(SLUICE_COMPAT_DEVNODE_CONST struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return kasprintf(GFP_KERNEL, "sluice/%s", dev_name(dev));
}

/* The device comes last: it is what makes the node appear. */
int sluice_chrdev_init(void)
{
	struct device *device;
	int err;

	err = alloc_chrdev_region(&chrdev_number, 0, 1, "sluice");
	if (err)
		return err;

	chrdev_class = sluice_compat_class_create("sluice");
	if (IS_ERR(chrdev_class)) {
		err = PTR_ERR(chrdev_class);
		goto unregister;
	}
	chrdev_class->devnode = chrdev_path;

	cdev_init(&chrdev_cdev, &sluice_pipe_fops);
	chrdev_cdev.owner = THIS_MODULE;
	err = cdev_add(&chrdev_cdev, chrdev_number, 1);
	if (err)
		goto destroy_class;

	device = device_create(chrdev_class, NULL, chrdev_number, NULL, "pipe");
	if (IS_ERR(device)) {
		err = PTR_ERR(device);
		goto delete_cdev;
	}
	return 0;

delete_cdev:
	cdev_del(&chrdev_cdev);
destroy_class:
	class_destroy(chrdev_class);
unregister:
	unregister_chrdev_region(chrdev_number, 1);
	return err;
}

void sluice_chrdev_exit(void)
{
	device_destroy(chrdev_class, chrdev_number);
	cdev_del(&chrdev_cdev);
	class_destroy(chrdev_class);
	unregister_chrdev_region(chrdev_number, 1);
}
