/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copying of ioctl(2) structures between user and kernel, by the rules of the ABI header. The first
 * word is the user's size of the structure.
 *
 * Life: a copy exists for one call. The size is read once, so that a concurrent store of another
 * thread has no effect.
 */
#ifndef SLUICE_USER_STRUCT_H
#define SLUICE_USER_STRUCT_H

#include <linux/minmax.h>
#include <linux/types.h>
#include <linux/uaccess.h>

#include "short_copy.h"

/**
 * sluice_user_struct_size() - reads only the size of a user's structure
 * @user: the user's structure
 * @ver0: the size of its first version
 * @user_size: out: the size
 *
 * Return: 0, -EFAULT; -EINVAL: smaller than @ver0; -E2BIG: larger than a page.
 */
static inline int sluice_user_struct_size(const void __user *user, size_t ver0, u32 *user_size)
{
	if (get_user(*user_size, (const u32 __user *)user))
		return -EFAULT;
	if (*user_size < ver0)
		return -EINVAL;
	return *user_size > PAGE_SIZE ? -E2BIG : 0;
}

/**
 * sluice_user_struct_read() - reads a user's structure
 * @value: out: the structure in the kernel; its first word becomes the user's size
 * @size: the size of the structure in the kernel
 * @ver0: the size of its first version
 * @user: the user's structure
 *
 * The fields that a smaller structure of the user lacks become 0.
 *
 * Return: 0, -EFAULT; -EINVAL: smaller than @ver0; -E2BIG: larger than a page, or the bytes
 * beyond @size are not 0.
 */
static inline int sluice_user_struct_read(void *value, size_t size, size_t ver0,
					  const void __user *user)
{
	u32 user_size;
	int err = sluice_user_struct_size(user, ver0, &user_size);

	if (err)
		return err;
	if (user_size != size)
		err = copy_struct_from_user(value, size, user, user_size);
	else if (!sluice_copy_from_user(value, user, size))
		err = -EFAULT;
	*(u32 *)value = user_size;
	return err;
}

/**
 * sluice_user_struct_write() - writes the smaller of both sizes of a structure to the user
 * @user: the user's structure
 * @value: the structure in the kernel; its first word becomes the size that is written
 * @size: the size of the structure in the kernel
 * @user_size: the size of the user's structure
 *
 * Return: 0 or -EFAULT.
 */
static inline int sluice_user_struct_write(void __user *user, void *value, size_t size,
					   u32 user_size)
{
	*(u32 *)value = min_t(size_t, size, user_size);
	return sluice_copy_to_user(user, value, *(u32 *)value) ? 0 : -EFAULT;
}

/**
 * sluice_user_setting_read() - reads the value of a setting
 * @value: out: the value
 * @user: the user's setting
 *
 * Return: 0, or an error of sluice_user_struct_read(); -EINVAL also: flags are set.
 */
static inline int sluice_user_setting_read(u64 *value, const struct sluice_setting __user *user)
{
	struct sluice_setting setting;
	int err = sluice_user_struct_read(&setting, sizeof(setting), SLUICE_SETTING_SIZE_VER0,
					  user);

	if (err)
		return err;
	*value = setting.value;
	return setting.flags ? -EINVAL : 0;
}

/**
 * sluice_user_is_entry_size() - tests the size of the entries of a user's array
 * @user_size: the size
 * @ver0: the size of the first version of an entry
 *
 * Return: true if the size is valid: at least @ver0, at most a page, and a multiple of 8.
 */
static inline bool sluice_user_is_entry_size(u32 user_size, size_t ver0)
{
	return user_size >= ver0 && user_size <= PAGE_SIZE && user_size % sizeof(u64) == 0;
}

/**
 * sluice_user_array_write() - writes the smaller of both sizes of each entry to a user's array
 * @user: the user's array
 * @user_size: the size of an entry in the user's array
 * @entries: the entries in the kernel, which have no size of their own
 * @size: the size of an entry in @entries
 * @count: the number of entries
 *
 * Return: 0 or -EFAULT.
 */
static inline int sluice_user_array_write(void __user *user, u32 user_size, const void *entries,
					  size_t size, size_t count)
{
	for (; count; count--, user += user_size, entries += size)
		if (!sluice_copy_to_user(user, entries, min_t(size_t, size, user_size)))
			return -EFAULT;
	return 0;
}

#endif
