// SPDX-License-Identifier: GPL-2.0
/*
 * Traces which places of the module sluice a task executes, for tests/kfuzz, on kernels without
 * KCOV: the compiler inserts a call of __sanitizer_cov_trace_pc() at each of them. The file
 * /sys/kernel/debug/kcov has the calls of KCOV in its mode KCOV_TRACE_PC. Only for tests in a VM.
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/vmalloc.h>

#include "tracer.h"

#define INIT_TRACE _IOR('c', 1, unsigned long)
#define ENABLE _IO('c', 100)
#define DISABLE _IO('c', 101)

#define TRACES_MAX 8
#define ENTRIES_MAX 0x100000

/**
 * struct trace - of one open file at a time
 * @task: whom it traces; only compared, since a task may end without DISABLE
 * @entries: the number of entries, which is followed by them; shared with the tracing program.
 *	Freed with the module, when nothing can call it any more
 * @size: of @entries
 * @is_open: whether a file has it
 */
struct trace {
	const struct task_struct *task;
	unsigned long *entries;
	unsigned long size;
	bool is_open;
};

static struct trace traces[TRACES_MAX];
static DEFINE_MUTEX(traces_lock);
static struct dentry *trace_file;

static void notrace trace_add(struct trace *trace, unsigned long place)
{
	unsigned long number = READ_ONCE(trace->entries[0]) + 1;

	if (number >= trace->size)
		return;
	WRITE_ONCE(trace->entries[0], number);
	WRITE_ONCE(trace->entries[number], place);
}

/* Calls nothing and disables nothing: its caller may be copying from user memory. */
void notrace __sanitizer_cov_trace_pc(void)
{
	unsigned long place = _RET_IP_;
	int i;

	if (!in_task())
		return;
	for (i = 0; i < TRACES_MAX; i++) {
		if (READ_ONCE(traces[i].task) == current) {
			trace_add(&traces[i], place);
			return;
		}
	}
}
EXPORT_SYMBOL_GPL(__sanitizer_cov_trace_pc);

static int trace_open(struct inode *inode, struct file *file)
{
	int i, ret = -EBUSY;

	mutex_lock(&traces_lock);
	for (i = 0; i < TRACES_MAX; i++) {
		if (traces[i].is_open)
			continue;
		traces[i].is_open = true;
		file->private_data = &traces[i];
		ret = 0;
		break;
	}
	mutex_unlock(&traces_lock);
	return ret;
}

static int trace_init(struct trace *trace, unsigned long size)
{
	if (trace->entries)
		return size == trace->size ? 0 : -EINVAL;
	if (size < 2 || size > ENTRIES_MAX)
		return -EINVAL;
	trace->entries = vmalloc_user(size * sizeof(*trace->entries));
	if (!trace->entries)
		return -ENOMEM;
	trace->size = size;
	return 0;
}

static int trace_enable(struct trace *trace)
{
	if (!trace->entries)
		return -EINVAL;
	WRITE_ONCE(trace->task, current);
	return 0;
}

static long trace_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct trace *trace = file->private_data;
	int ret = 0;

	mutex_lock(&traces_lock);
	if (command == INIT_TRACE)
		ret = trace_init(trace, argument);
	else if (command == ENABLE)
		ret = trace_enable(trace);
	else if (command == DISABLE)
		WRITE_ONCE(trace->task, NULL);
	else
		ret = -ENOTTY;
	mutex_unlock(&traces_lock);
	return ret;
}

static int trace_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct trace *trace = file->private_data;
	int ret = -EINVAL;

	mutex_lock(&traces_lock);
	if (trace->entries)
		ret = remap_vmalloc_range(vma, trace->entries, vma->vm_pgoff);
	mutex_unlock(&traces_lock);
	return ret;
}

static int trace_release(struct inode *inode, struct file *file)
{
	struct trace *trace = file->private_data;

	mutex_lock(&traces_lock);
	WRITE_ONCE(trace->task, NULL);
	trace->is_open = false;
	mutex_unlock(&traces_lock);
	return 0;
}

static const struct file_operations trace_operations = {
	.owner = THIS_MODULE,
	.open = trace_open,
	.unlocked_ioctl = trace_ioctl,
	.mmap = trace_mmap,
	.release = trace_release,
};

static int __init tracer_init(void)
{
	/* The safe form has no mmap. */
	trace_file = debugfs_create_file_unsafe("kcov", 0600, NULL, NULL, &trace_operations);
	return PTR_ERR_OR_ZERO(trace_file);
}

static void __exit tracer_exit(void)
{
	int i;

	debugfs_remove(trace_file);
	for (i = 0; i < TRACES_MAX; i++)
		vfree(traces[i].entries);
}

module_init(tracer_init);
module_exit(tracer_exit);
MODULE_DESCRIPTION("Traces the module sluice for its fuzzer");
MODULE_LICENSE("GPL");
