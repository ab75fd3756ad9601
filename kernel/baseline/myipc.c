// SPDX-License-Identifier: GPL-2.0
/*
 * MyIPC, the naive driver, for comparison only: the benchmark measures it together with Sluice. Do
 * not load it to move data. Its inefficiencies are kept on purpose.
 *
 * Two nodes, /dev/myipc0 and /dev/myipc1, connect two programs, one node per direction. Each node
 * has one ring of bytes, allocated when the module is loaded. Every process that opens the node
 * reads from it and writes to it; which reader gets which bytes is undefined. head is the position
 * of the next write, tail that of the next read. The ring is empty if they are equal; to
 * distinguish a full ring, one byte of it is never used.
 *
 * One mutex protects positions and content, and is held while bytes are copied, so reader and
 * writer never run concurrently. A reader of an empty ring and a writer to a full one sleep until
 * the other side wakes all sleepers, whether or not there is something for each. One call moves a
 * contiguous piece, up to the end of the ring, and returns its length. A ring does not count its
 * users: there is no end of file and no broken pipe. There is no poll, and O_NONBLOCK is ignored.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "../compat.h"

#define MYIPC_NODES 2
/* One byte, and the byte that is never used. */
#define MYIPC_MIN_SIZE 2
#define MYIPC_MAX_SIZE SZ_16M

struct myipc_ring {
	char *buffer;
	int head;		/* position of the next write */
	int tail;		/* position of the next read */
	int size;
	struct mutex lock;	/* protects buffer, head and tail */
	wait_queue_head_t read_queue;
	wait_queue_head_t write_queue;
};

static int size = SZ_4K;
module_param(size, int, 0444);
MODULE_PARM_DESC(size, "bytes of each ring, one of which is never used (4096)");

static struct myipc_ring myipc_rings[MYIPC_NODES];
static dev_t myipc_number;
static struct cdev myipc_cdev;
static struct class *myipc_class;

/* Sleepers check without the mutex, and again with it. */
static bool is_empty(struct myipc_ring *ring)
{
	return READ_ONCE(ring->head) == READ_ONCE(ring->tail);
}

static bool is_full(struct myipc_ring *ring)
{
	return (READ_ONCE(ring->head) + 1) % ring->size == READ_ONCE(ring->tail);
}

/* The contiguous bytes to read. */
static size_t readable_piece(struct myipc_ring *ring)
{
	if (ring->head >= ring->tail)
		return ring->head - ring->tail;
	return ring->size - ring->tail;
}

/* The contiguous room to write to, without the unused byte. */
static size_t writable_piece(struct myipc_ring *ring)
{
	if (ring->head < ring->tail)
		return ring->tail - ring->head - 1;
	return ring->size - ring->head - (ring->tail == 0);
}

static int myipc_open(struct inode *inode, struct file *file)
{
	file->private_data = &myipc_rings[iminor(inode) - MINOR(myipc_number)];
	return stream_open(inode, file);
}

static ssize_t myipc_read(struct file *file, char __user *to, size_t length, loff_t *position)
{
	struct myipc_ring *ring = file->private_data;
	size_t count;

	if (!length)
		return 0;
	if (mutex_lock_interruptible(&ring->lock))
		return -ERESTARTSYS;
	while (is_empty(ring)) {
		mutex_unlock(&ring->lock);
		if (wait_event_interruptible(ring->read_queue, !is_empty(ring)))
			return -ERESTARTSYS;
		if (mutex_lock_interruptible(&ring->lock))
			return -ERESTARTSYS;
	}
	count = min(length, readable_piece(ring));
	if (copy_to_user(to, ring->buffer + ring->tail, count)) {
		mutex_unlock(&ring->lock);
		return -EFAULT;
	}
	WRITE_ONCE(ring->tail, (ring->tail + (int)count) % ring->size);
	wake_up_interruptible(&ring->write_queue);
	mutex_unlock(&ring->lock);
	return count;
}

static ssize_t myipc_write(struct file *file, const char __user *from, size_t length,
			   loff_t *position)
{
	struct myipc_ring *ring = file->private_data;
	size_t count;

	if (!length)
		return 0;
	if (mutex_lock_interruptible(&ring->lock))
		return -ERESTARTSYS;
	while (is_full(ring)) {
		mutex_unlock(&ring->lock);
		if (wait_event_interruptible(ring->write_queue, !is_full(ring)))
			return -ERESTARTSYS;
		if (mutex_lock_interruptible(&ring->lock))
			return -ERESTARTSYS;
	}
	count = min(length, writable_piece(ring));
	if (copy_from_user(ring->buffer + ring->head, from, count)) {
		mutex_unlock(&ring->lock);
		return -EFAULT;
	}
	WRITE_ONCE(ring->head, (ring->head + (int)count) % ring->size);
	wake_up_interruptible(&ring->read_queue);
	mutex_unlock(&ring->lock);
	return count;
}

static const struct file_operations myipc_fops = {
	.owner = THIS_MODULE,
	.open = myipc_open,
	.read = myipc_read,
	.write = myipc_write,
};

static void free_rings(void)
{
	int i;

	for (i = 0; i < MYIPC_NODES; i++)
		kvfree(myipc_rings[i].buffer);
}

static int make_rings(void)
{
	int i;

	for (i = 0; i < MYIPC_NODES; i++) {
		struct myipc_ring *ring = &myipc_rings[i];

		ring->size = size;
		mutex_init(&ring->lock);
		init_waitqueue_head(&ring->read_queue);
		init_waitqueue_head(&ring->write_queue);
		ring->buffer = kvmalloc(size, GFP_KERNEL);
		if (!ring->buffer) {
			free_rings();
			return -ENOMEM;
		}
	}
	return 0;
}

static int make_nodes(void)
{
	struct device *device;
	int i;

	for (i = 0; i < MYIPC_NODES; i++) {
		device = device_create(myipc_class, NULL, myipc_number + i, NULL, "myipc%d", i);
		if (IS_ERR(device)) {
			while (i--)
				device_destroy(myipc_class, myipc_number + i);
			return PTR_ERR(device);
		}
	}
	return 0;
}

static int __init myipc_init(void)
{
	int err;

	if (size < MYIPC_MIN_SIZE || size > MYIPC_MAX_SIZE) {
		pr_err("a ring cannot have %d bytes; load with size=%d to %d\n", size,
		       MYIPC_MIN_SIZE, MYIPC_MAX_SIZE);
		return -EINVAL;
	}
	err = make_rings();
	if (err)
		return err;
	err = alloc_chrdev_region(&myipc_number, 0, MYIPC_NODES, "myipc");
	if (err)
		goto free;
	myipc_class = sluice_compat_class_create("myipc");
	if (IS_ERR(myipc_class)) {
		err = PTR_ERR(myipc_class);
		goto unregister;
	}
	cdev_init(&myipc_cdev, &myipc_fops);
	myipc_cdev.owner = THIS_MODULE;
	err = cdev_add(&myipc_cdev, myipc_number, MYIPC_NODES);
	if (err)
		goto destroy_class;
	err = make_nodes();
	if (err)
		goto delete_cdev;
	return 0;

delete_cdev:
	cdev_del(&myipc_cdev);
destroy_class:
	class_destroy(myipc_class);
unregister:
	unregister_chrdev_region(myipc_number, MYIPC_NODES);
free:
	free_rings();
	return err;
}

static void __exit myipc_exit(void)
{
	int i;

	for (i = 0; i < MYIPC_NODES; i++)
		device_destroy(myipc_class, myipc_number + i);
	cdev_del(&myipc_cdev);
	class_destroy(myipc_class);
	unregister_chrdev_region(myipc_number, MYIPC_NODES);
	free_rings();
}

module_init(myipc_init);
module_exit(myipc_exit);

MODULE_DESCRIPTION("A naive ring of bytes behind two nodes, for comparison only");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
