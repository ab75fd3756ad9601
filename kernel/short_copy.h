/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies and comparisons of keys, small values and the structures of calls: word by word if they
 * are short. The kernel's functions use string instructions, or are calls at least, which take
 * longer to begin than such a copy takes.
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
/* Copied without a jump in between, in bytes. */
#define SLUICE_COPY_BLOCK 32

static inline bool sluice_is_short_copy(size_t length)
{
	return IS_ENABLED(CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS) && length <= SLUICE_SHORT_COPY;
}

/**
 * sluice_copy_from_user() - copies from the user, word by word if @length is small
 * @to: the memory of the kernel
 * @from: the memory of the user
 * @length: the number of bytes
 *
 * Context: may sleep, unless page faults are disabled.
 * Return: true if all bytes were copied; false: a page fault, or @from is not in the user's range.
 */
static inline bool sluice_copy_from_user(void *to, const void __user *from, size_t length)
{
	if (!sluice_is_short_copy(length))
		return !copy_from_user(to, from, length);
	if (!length)
		return true;
	if (should_fail_usercopy() || !user_read_access_begin(from, length))
		return false;
	for (; length >= SLUICE_COPY_BLOCK; length -= SLUICE_COPY_BLOCK) {
		unsafe_get_user(((u64 *)to)[0], (const u64 __user *)from, fault);
		unsafe_get_user(((u64 *)to)[1], (const u64 __user *)from + 1, fault);
		unsafe_get_user(((u64 *)to)[2], (const u64 __user *)from + 2, fault);
		unsafe_get_user(((u64 *)to)[3], (const u64 __user *)from + 3, fault);
		to += SLUICE_COPY_BLOCK;
		from += SLUICE_COPY_BLOCK;
	}
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

/**
 * sluice_copy_to_user() - copies to the user, word by word if @length is small
 * @to: the memory of the user
 * @from: the memory of the kernel
 * @length: the number of bytes
 *
 * Context: may sleep, unless page faults are disabled.
 * Return: true if all bytes were copied; false: a page fault, or @to is not in the user's range.
 */
static inline bool sluice_copy_to_user(void __user *to, const void *from, size_t length)
{
	if (!sluice_is_short_copy(length))
		return !copy_to_user(to, from, length);
	if (!length)
		return true;
	if (should_fail_usercopy() || !user_write_access_begin(to, length))
		return false;
	for (; length >= SLUICE_COPY_BLOCK; length -= SLUICE_COPY_BLOCK) {
		unsafe_put_user(((const u64 *)from)[0], (u64 __user *)to, fault);
		unsafe_put_user(((const u64 *)from)[1], (u64 __user *)to + 1, fault);
		unsafe_put_user(((const u64 *)from)[2], (u64 __user *)to + 2, fault);
		unsafe_put_user(((const u64 *)from)[3], (u64 __user *)to + 3, fault);
		to += SLUICE_COPY_BLOCK;
		from += SLUICE_COPY_BLOCK;
	}
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

/**
 * sluice_copy() - memcpy(), word by word if @length is small
 * @to: the destination
 * @from: the source
 * @length: the number of bytes
 */
static inline void sluice_copy(void *to, const void *from, size_t length)
{
	if (!sluice_is_short_copy(length)) {
		memcpy(to, from, length);
		return;
	}
	for (; length >= SLUICE_COPY_BLOCK; length -= SLUICE_COPY_BLOCK) {
		((u64 *)to)[0] = ((const u64 *)from)[0];
		((u64 *)to)[1] = ((const u64 *)from)[1];
		((u64 *)to)[2] = ((const u64 *)from)[2];
		((u64 *)to)[3] = ((const u64 *)from)[3];
		to += SLUICE_COPY_BLOCK;
		from += SLUICE_COPY_BLOCK;
	}
	for (; length >= sizeof(u64); length -= sizeof(u64)) {
		*(u64 *)to = *(const u64 *)from;
		to += sizeof(u64);
		from += sizeof(u64);
	}
	for (; length; length--)
		*(u8 *)to++ = *(const u8 *)from++;
}

/**
 * sluice_is_equal() - compares bytes, word by word if @length is small: memcmp(3) without the order
 * @a: one value
 * @b: the other value
 * @length: the number of bytes of each
 *
 * Return: true if all bytes are equal.
 */
static inline bool sluice_is_equal(const void *a, const void *b, size_t length)
{
	if (!sluice_is_short_copy(length))
		return !memcmp(a, b, length);
	for (; length >= sizeof(u64); length -= sizeof(u64)) {
		if (*(const u64 *)a != *(const u64 *)b)
			return false;
		a += sizeof(u64);
		b += sizeof(u64);
	}
	for (; length; length--)
		if (*(const u8 *)a++ != *(const u8 *)b++)
			return false;
	return true;
}

#endif
