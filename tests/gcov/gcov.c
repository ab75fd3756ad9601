// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps what gcc has counted in the module sluice when that is unloaded, for tests/coverage, on
 * kernels without CONFIG_GCOV_KERNEL. /sys/kernel/debug/sluice_gcov has it then, for each object:
 * the path of its .gcda file and a zero, the length of that file (32 bits) and its content. A
 * module that is loaded again adds to it. Only for tests in a VM.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "gcov.h"

#define DATA_MAGIC 0x67636461
#define TAG_FUNCTION 0x01000000
#define TAG_ARCS 0x01a10000
#define FUNCTION_SIZE 12

static struct debugfs_blob_wrapper kept;
static struct dentry *kept_file;

/* In struct gcov_info it says which counters there are; nothing calls it. */
void __gcov_merge_add(s64 *values, unsigned int num)
{
}
EXPORT_SYMBOL_GPL(__gcov_merge_add);

/**
 * struct output - what is written
 * @at: the next byte, or NULL while the size is determined
 * @size: of what was written
 * @earlier: whether @at has the counts of an earlier load, to which others are added
 */
struct output {
	u8 *at;
	size_t size;
	bool earlier;
};

static void put(struct output *output, const void *bytes, size_t size)
{
	if (output->at)
		memcpy(output->at + output->size, bytes, size);
	output->size += size;
}

static void put_u32(struct output *output, u32 value)
{
	put(output, &value, sizeof(value));
}

static void put_count(struct output *output, s64 count)
{
	s64 earlier;

	if (output->at && output->earlier) {
		memcpy(&earlier, output->at + output->size, sizeof(earlier));
		count += earlier;
	}
	put(output, &count, sizeof(count));
}

static void put_function(struct output *output, const struct gcov_fn_info *function)
{
	unsigned int i;

	put_u32(output, TAG_FUNCTION);
	put_u32(output, FUNCTION_SIZE);
	put_u32(output, function->ident);
	put_u32(output, function->lineno_checksum);
	put_u32(output, function->cfg_checksum);
	put_u32(output, TAG_ARCS);
	put_u32(output, function->arcs.num * sizeof(s64));
	for (i = 0; i < function->arcs.num; i++)
		put_count(output, function->arcs.values[i]);
}

static void put_data(struct output *output, const struct gcov_info *info)
{
	unsigned int i;

	put_u32(output, DATA_MAGIC);
	put_u32(output, info->version);
	put_u32(output, info->stamp);
	put_u32(output, info->checksum);
	for (i = 0; i < info->n_functions; i++)
		put_function(output, info->functions[i]);
}

static void put_all(struct output *output, const struct gcov_info *const *infos)
{
	struct output data;

	for (; *infos; infos++) {
		data = (struct output){};
		put_data(&data, *infos);
		put(output, (*infos)->filename, strlen((*infos)->filename) + 1);
		put_u32(output, data.size);
		put_data(output, *infos);
	}
}

static void keep(const struct gcov_info *const *infos)
{
	struct output output = {};

	put_all(&output, infos);
	output.earlier = kept.data;
	if (!kept.data) {
		kept.size = output.size;
		kept.data = vzalloc(kept.size);
	}
	if (WARN_ON(!kept.data || kept.size != output.size))
		return;
	output.at = kept.data;
	output.size = 0;
	put_all(&output, infos);
}

static const struct gcov_info *const *find_infos(const struct module *module)
{
	unsigned int i;

	for (i = 0; i < module->num_kp; i++)
		if (!strcmp(module->kp[i].name, "gcov_infos"))
			return module->kp[i].arg;
	return NULL;
}

/* A module whose initialization failed was coming and is going, too. */
static int notified(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;
	const struct gcov_info *const *infos = find_infos(module);

	if (infos && state == MODULE_STATE_GOING)
		keep(infos);
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = notified };

static int __init gcov_init(void)
{
	kept_file = debugfs_create_blob("sluice_gcov", 0400, NULL, &kept);
	if (IS_ERR(kept_file))
		return PTR_ERR(kept_file);
	return register_module_notifier(&notifier);
}

static void __exit gcov_exit(void)
{
	unregister_module_notifier(&notifier);
	debugfs_remove(kept_file);
	vfree(kept.data);
}

module_init(gcov_init);
module_exit(gcov_exit);
MODULE_DESCRIPTION("Keeps which lines of the module sluice its tests have executed");
MODULE_LICENSE("GPL");
