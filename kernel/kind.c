// SPDX-License-Identifier: GPL-2.0
#include <linux/kernel.h>
#include <linux/init.h>

#include "kind.h"

/* Kbuild defines both lists: the names of the tables, and their addresses. */
extern const struct sluice_kind SLUICE_KIND_TABLES;
static const struct sluice_kind *const kinds[] = { SLUICE_KIND_ADDRESSES };

const struct sluice_kind *sluice_kind_find(u32 number)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i]->number == number)
			return kinds[i];
	return NULL;
}

const struct sluice_kind *sluice_kind_next(const struct sluice_kind *kind)
{
	size_t i = 0;

	while (kind && kinds[i++] != kind)
		;
	return i < ARRAY_SIZE(kinds) ? kinds[i] : NULL;
}

/* -EINVAL: its structures exceed the stack buffers of the ioctls. Or an error of init(). */
static int init_one(const struct sluice_kind *kind)
{
	if (kind->params_size > SLUICE_KIND_STRUCT_MAX ||
	    kind->state_size > SLUICE_KIND_STRUCT_MAX)
		return -EINVAL;
	return kind->init ? kind->init() : 0;
}

static void exit_first(size_t count)
{
	while (count--)
		if (kinds[count]->exit)
			kinds[count]->exit();
}

int __init sluice_kind_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		int err = init_one(kinds[i]);

		if (err) {
			exit_first(i);
			return err;
		}
	}
	return 0;
}

void sluice_kind_exit(void)
{
	exit_first(ARRAY_SIZE(kinds));
}
