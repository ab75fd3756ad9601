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

int sluice_netlink_init(void);
void sluice_netlink_exit(void);

/* Returns @err; if it is an error without a text, with one. */
int sluice_netlink_explain(struct netlink_ext_ack *extack, int err);

/* ---- netlink_target.c: the map of a request, and what its sender may do ---- */

/* One of handle and channel is set, with a reference. */
struct sluice_netlink_target {
	struct sluice_map *map;
	struct sluice_netlink_handle *handle;
	struct sluice_channel *channel;	/* of a name */
	u32 flags;			/* SLUICE_OPEN_READ, _WRITE: permitted */
};

/* @request: its message, or the first one of a dump. @flags: needed; 0: any. */
int sluice_netlink_target_get(struct sk_buff *request, struct nlattr **attrs, u32 flags,
			      struct sluice_netlink_target *target,
			      struct netlink_ext_ack *extack);
void sluice_netlink_target_put(struct sluice_netlink_target *target);

int sluice_netlink_parse_name(struct sluice_channel_key *key, const struct nlattr *attribute);
/* The scope of a request, unless the opener of the socket must not see it. */
int sluice_netlink_access_scope(struct sk_buff *request, struct nlattr **attrs,
				struct sluice_scope_access *access, struct netlink_ext_ack *extack);
/* SLUICE_OPEN_READ, _WRITE: what sender and opener of the socket may both do. */
u32 sluice_netlink_permitted(struct sk_buff *request, const struct sluice_channel *channel);
/* Whether the socket was opened with the credentials of the sender. */
bool sluice_netlink_is_own_socket(struct sk_buff *request);

/* ---- netlink_memory.c ---- */

/*
 * Turns -ENOMEM into -EAGAIN, and starts a reclaim in @memcg, NULL: the sender's, for the next
 * attempt. Returns other results as they are.
 */
int sluice_netlink_memory(int err, struct mem_cgroup *memcg);
int sluice_netlink_memory_init(void);
void sluice_netlink_memory_exit(void);

/* ---- netlink_handle.c: the endpoints that sockets have opened, and what they watch ---- */

/*
 * Adds a handle without an endpoint, for a caller that holds the module. Returns its number,
 * greater than 0, or -EMFILE, -ENOMEM. Nobody finds it before it has its endpoint, which it owns.
 */
int sluice_netlink_handle_reserve(struct sk_buff *request);
void sluice_netlink_handle_set(struct sk_buff *request, u32 number,
			       struct sluice_map_endpoint *end);
/* A handle of the socket with a reference, or NULL. */
struct sluice_netlink_handle *sluice_netlink_handle_get(struct sk_buff *request, u32 number);
void sluice_netlink_handle_put(struct sluice_netlink_handle *handle);
struct sluice_map_endpoint *sluice_netlink_handle_endpoint(struct sluice_netlink_handle *handle);
/* Sends the events of the handle's endpoint, which watches, to the socket. 0, -ENOENT. */
int sluice_netlink_handle_watch(struct sk_buff *request, u32 number);
/* 0, -ENOENT. */
int sluice_netlink_handle_close(struct sk_buff *request, u32 number);

int sluice_netlink_handle_init(void);
void sluice_netlink_handle_exit(void);

/* ---- map_netlink.c, map_netlink_batch.c, map_netlink_dump.c: the commands ---- */

int sluice_map_netlink_open(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_close(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_get(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_set(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_delete(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_watch(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_info(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_batch(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_dump_start(struct netlink_callback *cb);
int sluice_map_netlink_dump(struct sk_buff *skb, struct netlink_callback *cb);
int sluice_map_netlink_dump_done(struct netlink_callback *cb);

/* A reply with room for attributes of @size bytes, or NULL: there is no memory. */
struct sk_buff *sluice_netlink_reply_begin(size_t size, struct genl_info *info);
void sluice_netlink_reply_send(struct sk_buff *reply, struct genl_info *info);

#define SLUICE_NETLINK_SIZE_U64 nla_total_size_64bit(sizeof(u64))

/*
 * The payload of a new attribute, or NULL: there is no room. As nla_reserve(), but inline: a step
 * of a batch has five attributes, and the calls would take longer than the operation. Bytes that
 * are in the place of the payload remain.
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

static __always_inline int sluice_netlink_put_u32(struct sk_buff *skb, int attribute, u32 value)
{
	u32 *payload = sluice_netlink_append(skb, attribute, sizeof(value));

	if (!payload)
		return -EMSGSIZE;
	*payload = value;
	return 0;
}

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

/*
 * Copies the value of a key into the message, with version and time to live. 0, -ENOENT;
 * -EMSGSIZE: it exceeds @room. @copy: out, of the entry; its length is 0 if there is none.
 */
int sluice_map_netlink_put_value(struct sk_buff *skb, struct sluice_map *map,
				 const struct nlattr *key, u32 room, struct sluice_map_copy *copy);
/* The version of an entry, and its time to live if it has one. 0 or -EMSGSIZE. */
int sluice_map_netlink_put_version(struct sk_buff *skb, const struct sluice_map_copy *copy);

/* The operation of a request, or of a step, that changes an entry; @attrs: its attributes. */
struct sluice_map_request;
int sluice_map_netlink_change(struct sluice_map *map, u32 command, struct nlattr **attrs,
			      struct sluice_map_request *request);

#endif
