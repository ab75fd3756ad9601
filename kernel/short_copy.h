/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies of keys, small values and the structures of calls: word by word if they are short. The
 * kernel's functions use string instructions, which take longer to begin than such a copy takes.
 *
 * Life: none; functions only. Like copy_to_user() they check the user's address range, and may
 * fault unless page faults are disabled.
 */
#ifndef SLUICE_SHORT_COPY_H
#define SLUICE_SHORT_COPY_H

#include <linux/fault-inject-usercopy.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/uaccess.h>

/* Longer copies, in bytes, and those of processors that need aligned words, use the others. */
#define SLUICE_SHORT_COPY 256

static inline bool sluice_is_short_copy(size_t length)
{
	return IS_ENABLED(CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS) && length <= SLUICE_SHORT_COPY;
}

/* False: a page fault. */
static inline bool sluice_copy_from_user(void *to, const void __user *from, size_t length)
{
	if (!sluice_is_short_copy(length))
		return !copy_from_user(to, from, length);
	if (!length)
		return true;
	if (should_fail_usercopy() || !user_read_access_begin(from, length))
		return false;
	for (; length >= sizeof(u64); length -= sizeof(u64)) {
		unsafe_get_user(*(u64 *)to, (const u64 __user *)from, fault);
		to += sizeof(u64);
		from += sizeof(u64);
	}
	for (; length; length--)
		unsafe_get_user(*(u8 *)to++, (const u8 __user *)from++, fault);
	user_read_access_end();
	return true;
fault:
	user_read_access_end();
	return false;
}

static inline bool sluice_copy_to_user(void __user *to, const void *from, size_t length)
{
	if (!sluice_is_short_copy(length))
		return !copy_to_user(to, from, length);
	if (!length)
		return true;
	if (should_fail_usercopy() || !user_write_access_begin(to, length))
		return false;
	for (; length >= sizeof(u64); length -= sizeof(u64)) {
		unsafe_put_user(*(const u64 *)from, (u64 __user *)to, fault);
		to += sizeof(u64);
		from += sizeof(u64);
	}
	for (; length; length--)
		unsafe_put_user(*(const u8 *)from++, (u8 __user *)to++, fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

static inline void sluice_copy(void *to, const void *from, size_t length)
{
	if (!sluice_is_short_copy(length)) {
		memcpy(to, from, length);
		return;
	}
	for (; length >= sizeof(u64); length -= sizeof(u64)) {
		*(u64 *)to = *(const u64 *)from;
		to += sizeof(u64);
		from += sizeof(u64);
	}
	for (; length; length--)
		*(u8 *)to++ = *(const u8 *)from++;
}

#endif
