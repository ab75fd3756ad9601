/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kinds of channel. A kind is one constant table of this type, sluice_NAME_kind, in files of
 * its own. It is part of the module when its NAME is in the list `kinds` of Kbuild; no other file
 * knows it. What is common to all kinds (names, scopes, rights, quotas, lists, files) calls the
 * kind through this table only.
 *
 * A channel of a kind is a struct sluice_channel with the kind's own part behind it, and an
 * endpoint is a struct sluice_endpoint likewise.
 */
#ifndef SLUICE_KIND_H
#define SLUICE_KIND_H

#include <linux/fs.h>
#include <linux/types.h>

struct sluice_channel;
struct sluice_channel_info;
struct sluice_channel_request;
struct sluice_endpoint;

/* Bytes of the largest structure of parameters, and of the largest state. */
#define SLUICE_KIND_STRUCT_MAX 256

struct sluice_kind {
	u32 number;			/* SLUICE_KIND_*, 1 to 63; the minor of the node, too */
	const char *name;		/* of the node in /dev/sluice */
	const char *file_name;		/* of an endpoint in /proc/PID/fd */
	bool has_node;			/* /dev/sluice/NAME opens the scope's default channel */
	/* With sluice_endpoint_open() and sluice_endpoint_release(). */
	const struct file_operations *fops;

	int (*init)(void);
	void (*exit)(void);

	/*
	 * A channel as requested, without content, initialised by sluice_channel_init(), with one
	 * reference; or an error. May sleep.
	 */
	struct sluice_channel *(*create)(const struct sluice_channel_request *request);
	/* Frees the channel and all that it holds, after the last endpoint. May sleep. */
	void (*free)(struct sluice_channel *channel);

	/* Bytes of an endpoint, struct sluice_endpoint included. */
	size_t endpoint_size;
	/*
	 * Initialises the kind's part of an endpoint, zeroed so far, and counts it in. May sleep,
	 * interruptibly, for as long as the kind's open waits. 0 or an error.
	 */
	int (*attach)(struct sluice_endpoint *endpoint);
	void (*detach)(struct sluice_endpoint *endpoint);

	/* readers, writers, capacity and bytes. Called under the scope's lock. */
	void (*fill_info)(const struct sluice_channel *channel, struct sluice_channel_info *info);

	/* The structures of this kind in the ABI; 0 where it has none. */
	size_t params_size, params_size_ver0;
	size_t state_size, state_size_ver0;
	void (*fill_state)(const struct sluice_channel *channel, void *state);
};

/* The kind of this number, or NULL. */
const struct sluice_kind *sluice_kind_find(u32 number);

/* The kinds one by one: the first after NULL, NULL after the last. */
const struct sluice_kind *sluice_kind_next(const struct sluice_kind *kind);

/* 0, or the error of the kind that failed; none is left initialised then. */
int sluice_kind_init(void);
void sluice_kind_exit(void);

#endif
