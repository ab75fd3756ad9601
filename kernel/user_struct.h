/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the structures of ioctl(2) cross between user and kernel, by the rules at the top of the ABI
 * header. The first word is the user's size of the structure. It is read once: what another thread
 * stores there meanwhile has no effect.
 */
#ifndef SLUICE_USER_STRUCT_H
#define SLUICE_USER_STRUCT_H

#include <linux/minmax.h>
#include <linux/types.h>
#include <linux/uaccess.h>

/* Reads the size alone. 0, -EFAULT, or -EINVAL when it is not one that a caller can have. */
static inline int sluice_user_struct_size(const void __user *user, size_t ver0, u32 *user_size)
{
	if (get_user(*user_size, (const u32 __user *)user))
		return -EFAULT;
	return *user_size < ver0 || *user_size > PAGE_SIZE ? -EINVAL : 0;
}

/* Reads a structure that the kernel knows @size bytes of. 0, -EFAULT, -EINVAL, -E2BIG. */
static inline int sluice_user_struct_read(void *value, size_t size, size_t ver0,
					  const void __user *user)
{
	u32 user_size;
	int err = sluice_user_struct_size(user, ver0, &user_size);

	err = err ?: copy_struct_from_user(value, size, user, user_size);
	*(u32 *)value = user_size;
	return err;
}

/* Writes as much of a structure as the user has room for. 0 or -EFAULT. */
static inline int sluice_user_struct_write(void __user *user, void *value, size_t size,
					   u32 user_size)
{
	*(u32 *)value = min_t(size_t, size, user_size);
	return copy_to_user(user, value, *(u32 *)value) ? -EFAULT : 0;
}

#endif
