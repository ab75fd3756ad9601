/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The messages of shared_map.c, for comparison only. crates/sluice-testkit/src/shared_map.rs is the
 * same in Rust.
 *
 * A program sends a request to the kernel over a netlink socket of SHARED_MAP_PROTOCOL, one in each
 * netlink message. It gets one answer with the same nlmsg_seq. The fields of struct nlmsghdr have
 * their usual meaning, except that nlmsg_type and nlmsg_flags are ignored. A message without a
 * valid struct nlmsghdr is not answered.
 */
#ifndef SHARED_MAP_H
#define SHARED_MAP_H

#include <linux/types.h>

/* Linux assigns 0 to 22; a socket can have numbers up to 31. */
#define SHARED_MAP_PROTOCOL 31

#define SHARED_MAP_MAX_KEY 256		/* bytes with the terminating zero */
#define SHARED_MAP_MAX_VALUE 16384	/* bytes */
#define SHARED_MAP_MAX_ENTRIES 8192

/* Values of type: requests. */
#define SHARED_MAP_GET 1
#define SHARED_MAP_SET 2
/* Values of type: answers. */
#define SHARED_MAP_VALUE 3	/* to a get: the value */
#define SHARED_MAP_NOT_FOUND 4
#define SHARED_MAP_CREATED 5
#define SHARED_MAP_UPDATED 6
#define SHARED_MAP_ERROR 7	/* the value is an errno, a positive __s32 */

/*
 * The report sends a structure with pointers, and sets them again after reception; here they are 0
 * in answers, and ignored in requests. The key is a string with its terminating zero, which must be
 * usable as the name of a file: not "." or "..", and without slashes. Errors: EPERM without
 * CAP_SYS_ADMIN, EINVAL for an invalid message, ENAMETOOLONG and EMSGSIZE for a key and a value
 * that exceed their limit, ENOSPC for too many entries, ENOMEM, and those of writing the file,
 * after which the value is set all the same.
 */
struct shared_map_message {
	__s32 type;
	__s32 key_length;	/* bytes with the terminating zero; an answer: 0 */
	__s32 value_length;	/* bytes; a get: 0 */
	__u32 reserved;
	__u64 key;
	__u64 value;
	char data[];		/* the key, directly followed by the value */
};

#endif
