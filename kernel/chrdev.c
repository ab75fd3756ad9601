// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "chrdev.h"
#include "compat.h"
#include "ctl.h"
#include "kind.h"

#define CTL_MINOR 0		/* the minor of a kind is its number */
#define MINORS 64

/*
 * A number of the range for local use, from which the kernel never allocates. A node that was made
 * while the module was loaded, such as one in a container, therefore never opens the device of
 * another driver after the module is unloaded, and is right again once it is loaded.
 */
static unsigned int major = 123;
module_param(major, uint, 0444);
MODULE_PARM_DESC(major, "Major number of the device nodes (0, or if it is taken: any; then nodes outside of /dev do not survive a reload of the module)");

static dev_t first_number;
static struct cdev chrdev;
static struct class *chrdev_class;

static char *chrdev_path(SLUICE_COMPAT_DEVNODE_CONST struct device *dev, umode_t *mode)
{
	const struct sluice_kind *kind = sluice_kind_find(MINOR(dev->devt));

	if (mode)
		*mode = kind ? kind->node_mode : 0666;
	return kasprintf(GFP_KERNEL, "sluice/%s", dev_name(dev));
}

static const struct file_operations *fops_of(unsigned int minor)
{
	const struct sluice_kind *kind = sluice_kind_find(minor);

	if (minor == CTL_MINOR)
		return &sluice_ctl_fops;
	return kind && kind->node_mode ? kind->fops : NULL;
}

/* The cdev holds the module during open, the new operations hold it for the file. */
static int chrdev_open(struct inode *inode, struct file *file)
{
	const struct file_operations *fops = fops_of(iminor(inode));

	fops = fops_get(fops);

	if (!fops)
		return -ENXIO;
	replace_fops(file, fops);
	return fops->open(inode, file);
}

static const struct file_operations chrdev_fops = {
	.owner	= THIS_MODULE,
	.open	= chrdev_open,
};

static int __init register_numbers(void)
{
	int err;

	first_number = MKDEV(major, 0);
	if (major && major < CHRDEV_MAJOR_MAX &&
	    !register_chrdev_region(first_number, MINORS, "sluice"))
		return 0;
	if (major)
		pr_warn("the major number %u is taken or invalid; nodes outside of /dev do not survive a reload\n",
			major);
	err = alloc_chrdev_region(&first_number, 0, MINORS, "sluice");
	if (!err)
		major = MAJOR(first_number);
	return err;
}

static int create_node(unsigned int minor, const char *name)
{
	return PTR_ERR_OR_ZERO(device_create(chrdev_class, NULL, first_number + minor, NULL, "%s",
					     name));
}

static int create_nodes(void)
{
	const struct sluice_kind *kind = NULL;
	int err = create_node(CTL_MINOR, "ctl");

	while (!err && (kind = sluice_kind_next(kind)))
		if (kind->node_mode)
			err = create_node(kind->number, kind->name);
	return err;
}

/* Also after a failed create_nodes(). */
static void destroy_nodes(void)
{
	const struct sluice_kind *kind = NULL;

	device_destroy(chrdev_class, first_number + CTL_MINOR);
	while ((kind = sluice_kind_next(kind)))
		device_destroy(chrdev_class, first_number + kind->number);
}

/*
 * The last step permits opens, and no step that can fail follows: no endpoint can be open when init
 * fails. Until then an open of a node fails with ENXIO.
 */
int __init sluice_chrdev_init(void)
{
	int err = register_numbers();

	if (err)
		return err;
	chrdev_class = sluice_compat_class_create("sluice");
	if (IS_ERR(chrdev_class)) {
		err = PTR_ERR(chrdev_class);
		goto unregister;
	}
	chrdev_class->devnode = chrdev_path;
	err = create_nodes();
	if (err)
		goto destroy;
	cdev_init(&chrdev, &chrdev_fops);
	chrdev.owner = THIS_MODULE;
	err = cdev_add(&chrdev, first_number, MINORS);
	if (!err)
		return 0;
destroy:
	destroy_nodes();
	class_destroy(chrdev_class);
unregister:
	unregister_chrdev_region(first_number, MINORS);
	return err;
}

void sluice_chrdev_exit(void)
{
	destroy_nodes();
	cdev_del(&chrdev);
	class_destroy(chrdev_class);
	unregister_chrdev_region(first_number, MINORS);
}
