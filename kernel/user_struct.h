/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structures that users hand to ioctl(2), by the rules at the top of the ABI header: the first
 * word says how much of one there is.
 */
#ifndef SLUICE_USER_STRUCT_H
#define SLUICE_USER_STRUCT_H

#include <linux/minmax.h>
#include <linux/types.h>
#include <linux/uaccess.h>

/* 0; -EINVAL for an impossible size, -E2BIG, -EFAULT. What the user left out is zero. */
static inline int sluice_user_struct_copy(void *argument, size_t size, const void __user *user)
{
	u32 user_size;

	if (get_user(user_size, (const u32 __user *)user))
		return -EFAULT;
	if (user_size < sizeof(u32) || user_size > PAGE_SIZE)
		return -EINVAL;
	return copy_struct_from_user(argument, size, user, user_size);
}

/* Hands back as much of it as the user has room for. */
static inline int sluice_user_struct_return(void __user *user, const void *argument, size_t size,
					 u32 user_size)
{
	return copy_to_user(user, argument, min_t(size_t, size, user_size)) ? -EFAULT : 0;
}

#endif
