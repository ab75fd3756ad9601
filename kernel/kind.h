/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kinds of channel. A kind is one constant table of this type, sluice_NAME_kind, in its own
 * files. The module contains it if its NAME is in the list `kinds` of Kbuild; no other file refers
 * to it. The code common to all kinds (names, scopes, permissions, quotas, lists, files) calls a
 * kind only through this table.
 *
 * A channel of a kind is a struct sluice_channel followed by the kind's own part; so is an endpoint
 * with struct sluice_endpoint.
 *
 * Life: a table is constant. Its init() runs when the module is loaded, its exit() when the module
 * is unloaded, when no channel exists.
 */
#ifndef SLUICE_KIND_H
#define SLUICE_KIND_H

#include <linux/fs.h>
#include <linux/types.h>

struct file;
struct sluice_channel;
struct sluice_channel_info;
struct sluice_channel_request;
struct sluice_endpoint;

/* The largest size of parameters and of a state, in bytes. */
#define SLUICE_KIND_STRUCT_MAX 256

struct sluice_kind {
	u32 number;			/* SLUICE_KIND_*, 1 to 63; also the minor of the node */
	const char *name;
	const char *file_name;		/* name of an endpoint in /proc/PID/fd */
	umode_t node_mode;		/* of /dev/sluice/NAME, a default channel; 0: no node */
	bool is_mapped;			/* endpoints are O_RDWR, which a shared mapping requires */
	bool has_roles;			/* an endpoint reads or writes, not both */
	bool is_kernels;		/* only kernel modules create and remove channels */
	/* Contains sluice_endpoint_release(); with a node, an open of the default channel. */
	const struct file_operations *fops;

	int (*init)(void);		/* or NULL, as exit() */
	void (*exit)(void);

	/*
	 * Returns an empty channel as requested, initialised by sluice_channel_init(), with one
	 * reference; or an error. May sleep.
	 */
	struct sluice_channel *(*create)(const struct sluice_channel_request *request);
	/*
	 * Frees the channel and its memory, after the last reference; not what
	 * sluice_channel_init() took. May sleep.
	 */
	void (*free)(struct sluice_channel *channel);
	/* Ends the channel under its users. May sleep. */
	void (*destroy)(struct sluice_channel *channel);

	/*
	 * For a kind whose channels are kept outside of the kernel, too; else NULL. begin_unlink()
	 * removes what is kept before an unlink removes the name; 0, or the error of the unlink. It
	 * may sleep, interruptibly. unnamed(): a persistent channel has lost its name, or a new one
	 * does not get it. May sleep.
	 */
	int (*begin_unlink)(struct sluice_channel *channel);
	void (*unnamed)(struct sluice_channel *channel);
	/* Returns a new file of the keeper of the kind, with SLUICE_KEEP_* flags, or an error. */
	struct file *(*open_keeper)(u32 flags);

	/*
	 * Whether an open with these parameters, or NULL, can have an existing channel: 0 or an
	 * error. Before the open has any effect; or NULL. Does not sleep.
	 */
	int (*may_attach)(const struct sluice_channel *channel, const void *params);
	/* Size of an endpoint, including struct sluice_endpoint. */
	size_t endpoint_size;
	/*
	 * Initialises the kind's part of an endpoint, which is zeroed, and counts the endpoint.
	 * @params: those of the open, or NULL. May sleep, interruptibly, while an open of the kind
	 * blocks. 0 or an error.
	 */
	int (*attach)(struct sluice_endpoint *endpoint, const void *params);
	void (*detach)(struct sluice_endpoint *endpoint);

	/* Fills in readers, writers, and what follows them. With a reference, without a lock. */
	void (*fill_info)(struct sluice_channel *channel, struct sluice_channel_info *info);

	/* Sizes of this kind's structures in the ABI; 0: it has none. */
	size_t params_size, params_size_ver0;
	size_t state_size, state_size_ver0;
	void (*fill_state)(struct sluice_channel *channel, void *state);
};

/**
 * sluice_kind_find() - the kind of a number
 * @number: SLUICE_KIND_*, or any other number
 *
 * Return: the kind, or NULL if the module has no kind of this number.
 */
const struct sluice_kind *sluice_kind_find(u32 number);

/**
 * sluice_kind_next() - iterates over the kinds
 * @kind: the current kind, or NULL
 *
 * Return: the next kind, the first one if @kind is NULL, NULL after the last one.
 */
const struct sluice_kind *sluice_kind_next(const struct sluice_kind *kind);

/**
 * sluice_kind_init() - calls init() of every kind, when the module is loaded
 *
 * Return: 0, or the error of the kind that failed; then no kind is initialised. -EINVAL: a
 * structure of the kind is larger than SLUICE_KIND_STRUCT_MAX.
 */
int sluice_kind_init(void);
/**
 * sluice_kind_exit() - calls exit() of every kind, when no channel exists
 */
void sluice_kind_exit(void);

#endif
