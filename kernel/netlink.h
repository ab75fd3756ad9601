/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The generic netlink family "sluice": requests about maps. spec/sluice.yaml describes the
 * messages.
 *
 * Life: the family exists while the module is loaded. A socket owns handles, each an endpoint of a
 * map; they go with it. A handle holds the module, and the socket, so that its address identifies
 * the socket as long as the handle exists.
 *
 * Requests run in the system call of the sender, under a lock of generic netlink that is common to
 * the host. Therefore none waits, except for a lock that is held briefly and for memory of the
 * host: a memory cgroup without room at once is an error (netlink_memory.c).
 *
 * A reply is allocated before its request changes something. Afterwards nothing fails: a reply for
 * which the socket has no room is lost, and the socket reports that itself (ENOBUFS).
 */
#ifndef SLUICE_NETLINK_H
#define SLUICE_NETLINK_H

#include <linux/cache.h>
#include <linux/string.h>
#include <net/genetlink.h>

#include <uapi/linux/sluice.h>

struct sluice_map;
struct sluice_map_copy;
struct sluice_map_endpoint;
struct sluice_netlink_handle;
struct mem_cgroup;
struct sluice_channel_key;
struct sluice_scope_access;

extern struct genl_family sluice_netlink_family;

/**
 * sluice_netlink_init() - registers the family, when the module is loaded
 *
 * Return: 0, or a negative error; then the family is not registered.
 */
int sluice_netlink_init(void);
/**
 * sluice_netlink_exit() - unregisters the family, when the module is unloaded
 */
void sluice_netlink_exit(void);

/**
 * sluice_netlink_explain() - adds a text to an error that has none
 * @extack: of the request, or NULL
 * @err: the result of the request
 *
 * Return: @err.
 */
int sluice_netlink_explain(struct netlink_ext_ack *extack, int err);

/* ---- netlink_target.c: the map of a request, and what its sender may do ---- */

/* One of handle and channel is set, with a reference. */
struct sluice_netlink_target {
	struct sluice_map *map;
	struct sluice_netlink_handle *handle;
	struct sluice_channel *channel;	/* of a name */
	u32 flags;			/* SLUICE_OPEN_READ, _WRITE: permitted */
};

/**
 * sluice_netlink_target_get() - finds the map of a request, by name or by handle
 * @request: the message of the request, or the first message of a dump
 * @attrs: the attributes of the request
 * @flags: SLUICE_OPEN_READ, _WRITE: needed; 0: any of them
 * @target: out: the target; to be put with sluice_netlink_target_put() if there is no error
 * @extack: of the request
 *
 * Return: 0; -EINVAL: not exactly one of name and handle, a scope with a handle, an invalid name,
 * or a name of a map that is not persistent; -ENOENT: there is no such map or handle; -EACCES: the
 * sender or the opener of the socket may not do this with a named map; -EBADF: the handle is not
 * open for this; -EPIPE: the map is destroyed; an error of sluice_netlink_access_scope().
 */
int sluice_netlink_target_get(struct sk_buff *request, struct nlattr **attrs, u32 flags,
			      struct sluice_netlink_target *target,
			      struct netlink_ext_ack *extack);
/**
 * sluice_netlink_target_put() - puts the reference of a target
 * @target: the target
 *
 * A worker frees the channel, if this was its last reference.
 */
void sluice_netlink_target_put(struct sluice_netlink_target *target);

/**
 * sluice_netlink_parse_name() - makes a key of the name of a map
 * @key: out: the key
 * @attribute: the name
 *
 * Return: 0; -EINVAL: the name is invalid.
 */
int sluice_netlink_parse_name(struct sluice_channel_key *key, const struct nlattr *attribute);
/**
 * sluice_netlink_access_scope() - finds or creates the scope of a request
 * @request: the message of the request
 * @attrs: its attributes; without SLUICE_NL_A_SCOPE_FD the scope is the sender's
 * @access: out: the scope with a reference, and the sender's permissions
 * @extack: of the request
 *
 * Return: 0; -EACCES: the opener of the socket must not see the scope; an error of
 * sluice_ctl_access_scope().
 */
int sluice_netlink_access_scope(struct sk_buff *request, struct nlattr **attrs,
				struct sluice_scope_access *access, struct netlink_ext_ack *extack);
/**
 * sluice_netlink_permitted() - what the mode of a channel permits to a request
 * @request: the message of the request
 * @channel: the channel
 *
 * Return: SLUICE_OPEN_READ, _WRITE: what sender and opener of the socket may both do.
 */
u32 sluice_netlink_permitted(struct sk_buff *request, const struct sluice_channel *channel);
/**
 * sluice_netlink_is_own_socket() - tests whether the socket is the sender's
 * @request: the message of the request
 *
 * Return: true if the socket was opened with the sender's user, groups and user namespace, and at
 * least the sender's capabilities.
 */
bool sluice_netlink_is_own_socket(struct sk_buff *request);

/* ---- netlink_memory.c ---- */

/**
 * sluice_netlink_memory() - turns -ENOMEM into -EAGAIN, and starts a reclaim for the next attempt
 * @err: the result of an operation
 * @memcg: the memory cgroup without memory, whose reference the caller keeps; NULL: the sender's
 *
 * There is no reclaim if too many memory cgroups wait for theirs; a later attempt then starts it.
 *
 * Return: -EAGAIN for -ENOMEM; other results as they are.
 */
int sluice_netlink_memory(int err, struct mem_cgroup *memcg);
/**
 * sluice_netlink_memory_init() - prepares reclaims, when the module is loaded
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_netlink_memory_init(void);
/**
 * sluice_netlink_memory_exit() - waits for reclaims, when the module is unloaded
 */
void sluice_netlink_memory_exit(void);

/* ---- netlink_handle.c: the endpoints that sockets have opened, and what they watch ---- */

/**
 * sluice_netlink_handle_reserve() - adds a handle without an endpoint
 * @request: the message of the request, whose socket owns the handle
 *
 * The caller holds the module. Until the handle has its endpoint, only
 * sluice_netlink_handle_set() and sluice_netlink_handle_close() find it.
 *
 * Return: the number of the handle, greater than 0; -EDQUOT: the limit of a user is reached;
 * -EMFILE: the socket has SLUICE_NL_HANDLES_MAX handles; -ENOMEM.
 */
int sluice_netlink_handle_reserve(struct sk_buff *request);
/**
 * sluice_netlink_handle_set() - gives a reserved handle its endpoint
 * @request: the message of the request
 * @number: the number of the handle
 * @end: the endpoint, which the handle owns from now on; closed if the handle was closed meanwhile
 */
void sluice_netlink_handle_set(struct sk_buff *request, u32 number,
			       struct sluice_map_endpoint *end);
/**
 * sluice_netlink_handle_get() - a handle of the socket, with a reference
 * @request: the message of the request
 * @number: the number of the handle
 *
 * Return: the handle, or NULL if the socket has no such handle with an endpoint.
 */
struct sluice_netlink_handle *sluice_netlink_handle_get(struct sk_buff *request, u32 number);
/**
 * sluice_netlink_handle_put() - puts a reference to a handle
 * @handle: the handle
 *
 * The last put closes the endpoint and puts the module.
 */
void sluice_netlink_handle_put(struct sluice_netlink_handle *handle);
/**
 * sluice_netlink_handle_endpoint() - the endpoint of a handle
 * @handle: the handle, to which the caller has a reference
 *
 * Return: the endpoint.
 */
struct sluice_map_endpoint *sluice_netlink_handle_endpoint(struct sluice_netlink_handle *handle);
/**
 * sluice_netlink_handle_watch() - sends the events of a handle's endpoint to the socket
 * @request: the message of the request
 * @number: the number of the handle, whose endpoint watches
 *
 * Return: 0; -ENOENT: the socket has no such handle.
 */
int sluice_netlink_handle_watch(struct sk_buff *request, u32 number);
/**
 * sluice_netlink_handle_close() - closes a handle
 * @request: the message of the request
 * @number: the number of the handle
 *
 * Context: may sleep, but not for long.
 * Return: 0; -ENOENT: the socket has no such handle.
 */
int sluice_netlink_handle_close(struct sk_buff *request, u32 number);

/**
 * sluice_netlink_handle_init() - prepares the table of handles, when the module is loaded
 *
 * Return: 0, -ENOMEM, or an error of netlink_register_notifier().
 */
int sluice_netlink_handle_init(void);
/**
 * sluice_netlink_handle_exit() - destroys the workqueue of handles; all handles are closed
 */
void sluice_netlink_handle_exit(void);

/* ---- map_netlink.c, map_netlink_batch.c, map_netlink_dump.c: the commands ---- */

/**
 * sluice_map_netlink_open() - opens a map as a handle of the socket, for SLUICE_NL_CMD_MAP_OPEN
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_open(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_close() - closes a handle, for SLUICE_NL_CMD_MAP_CLOSE
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_close(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_get() - replies with the value of a key, for SLUICE_NL_CMD_MAP_GET
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_get(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_set() - sets the value of a key, for SLUICE_NL_CMD_MAP_SET
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_set(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_delete() - deletes an entry, for SLUICE_NL_CMD_MAP_DELETE
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_delete(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_watch() - begins to send events of a handle, for SLUICE_NL_CMD_MAP_WATCH
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_watch(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_info() - replies with the state of a map, for SLUICE_NL_CMD_MAP_INFO
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_info(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_batch() - executes the steps of a batch, for SLUICE_NL_CMD_MAP_BATCH
 * @skb: the message of the request
 * @info: the request
 *
 * Return: 0, or the error for the sender.
 */
int sluice_map_netlink_batch(struct sk_buff *skb, struct genl_info *info);
/**
 * sluice_map_netlink_dump_start() - begins a dump, for SLUICE_NL_CMD_MAP_DUMP
 * @cb: the dump, which keeps the map until sluice_map_netlink_dump_done()
 *
 * Return: 0, or the error for the sender; then the dump keeps nothing.
 */
int sluice_map_netlink_dump_start(struct netlink_callback *cb);
/**
 * sluice_map_netlink_dump() - fills one message of a dump with entries
 * @skb: the message
 * @cb: the dump
 *
 * Return: the bytes in the message, 0 after the last entry; -EPIPE: the map is destroyed; -EINTR:
 * a fatal signal is pending; -EMSGSIZE: an entry does not fit into an empty message.
 */
int sluice_map_netlink_dump(struct sk_buff *skb, struct netlink_callback *cb);
/**
 * sluice_map_netlink_dump_done() - ends a dump
 * @cb: the dump
 *
 * Return: 0.
 */
int sluice_map_netlink_dump_done(struct netlink_callback *cb);

/**
 * sluice_netlink_reply_begin() - begins the reply to a request
 * @size: bytes of its attributes
 * @info: the request
 *
 * Context: may sleep.
 * Return: a reply with room for the attributes, or NULL: there is no memory.
 */
struct sk_buff *sluice_netlink_reply_begin(size_t size, struct genl_info *info);
/**
 * sluice_netlink_reply_send() - sends a reply
 * @reply: the reply, which is consumed; it is lost if the socket has no room
 * @info: the request
 */
void sluice_netlink_reply_send(struct sk_buff *reply, struct genl_info *info);

#define SLUICE_NETLINK_SIZE_U64 nla_total_size_64bit(sizeof(u64))

/**
 * sluice_netlink_append() - appends an attribute, inline
 * @skb: the message
 * @type: the attribute
 * @length: bytes of its payload
 *
 * Does what nla_reserve() does, but inline: a step of a batch has five attributes, and the calls
 * would take longer than the operation. Bytes that are in the place of the payload remain.
 *
 * Return: the payload, or NULL: there is no room.
 */
static __always_inline void *sluice_netlink_append(struct sk_buff *skb, int type, u32 length)
{
	struct nlattr *attribute = (struct nlattr *)skb_tail_pointer(skb);
	u8 *payload = nla_data(attribute);
	u32 end = NLA_ALIGN(length);

	if (skb_tailroom(skb) < NLA_HDRLEN + end)
		return NULL;
	__skb_put(skb, NLA_HDRLEN + end);
	attribute->nla_type = type;
	attribute->nla_len = nla_attr_size(length);
	if (length < end)
		memset(payload + length, 0, end - length);
	return payload;
}

/**
 * sluice_netlink_put_u32() - appends an attribute of 32 bits
 * @skb: the message
 * @attribute: the attribute
 * @value: its value
 *
 * Return: 0; -EMSGSIZE: there is no room.
 */
static __always_inline int sluice_netlink_put_u32(struct sk_buff *skb, int attribute, u32 value)
{
	u32 *payload = sluice_netlink_append(skb, attribute, sizeof(value));

	if (!payload)
		return -EMSGSIZE;
	*payload = value;
	return 0;
}

/**
 * sluice_netlink_put_u64() - appends an attribute of 64 bits, aligned
 * @skb: the message
 * @attribute: the attribute
 * @value: its value
 *
 * Return: 0; -EMSGSIZE: there is no room.
 */
static __always_inline int sluice_netlink_put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	void *payload;

	if (nla_need_padding_for_64bit(skb))
		sluice_netlink_append(skb, SLUICE_NL_A_PAD, 0);
	payload = sluice_netlink_append(skb, attribute, sizeof(value));
	if (!payload)
		return -EMSGSIZE;
	memcpy(payload, &value, sizeof(value));
	return 0;
}

/**
 * sluice_map_netlink_put_value() - appends the value of a key, with version and time to live
 * @skb: the message
 * @map: the map
 * @key: the attribute with the key
 * @room: bytes for the value
 * @copy: out: length, version and time to live of the entry; 0 if the entry was not read
 *
 * Return: 0; -ENOENT: there is no entry; -EMSGSIZE: the value exceeds @room, with its length in
 * @copy, or the message lacks room.
 */
int sluice_map_netlink_put_value(struct sk_buff *skb, struct sluice_map *map,
				 const struct nlattr *key, u32 room, struct sluice_map_copy *copy);
/**
 * sluice_map_netlink_put_version() - appends the version of an entry, and its time to live if any
 * @skb: the message
 * @copy: the version and the time to live
 *
 * Return: 0; -EMSGSIZE: there is no room.
 */
int sluice_map_netlink_put_version(struct sk_buff *skb, const struct sluice_map_copy *copy);

/**
 * sluice_map_netlink_change() - changes an entry, for a request or a step
 * @map: the map
 * @command: SLUICE_MAP_STEP_SET or SLUICE_MAP_STEP_DELETE
 * @attrs: the attributes of the request or the step
 * @version: out: as of sluice_map_change()
 *
 * Return: 1: a set created the entry; 0; -EMSGSIZE: the value is longer than SLUICE_NL_VALUE_MAX;
 * -EAGAIN instead of -ENOMEM; or another error of sluice_map_change().
 */
int sluice_map_netlink_change(struct sluice_map *map, u32 command, struct nlattr **attrs,
			      u64 *version);

#endif
