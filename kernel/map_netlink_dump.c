// SPDX-License-Identifier: GPL-2.0
/*
 * Dumps over generic netlink. A dump keeps the map, and what it was permitted at its beginning,
 * until its last message, although that goes out in a later system call.
 */
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "map.h"
#include "netlink.h"
#include "quota.h"

/*
 * Entries and shards that one message looks at. The first message is made under the lock of generic
 * netlink, and expired entries, of which there may be any number, do not fill it.
 */
#define PASSES 4096

struct dump {
	struct sluice_netlink_target target;
	struct sluice_map_cursor cursor;
	struct sluice_map_copy copy;
	bool keys_only;
	u8 key[SLUICE_MAP_KEY_MAX];
	u8 value[SLUICE_NL_VALUE_MAX];
};

static struct dump **dump_of(struct netlink_callback *cb)
{
	return (struct dump **)&cb->args[0];
}

static struct dump *dump_create(bool keys_only)
{
	struct dump *dump = __vmalloc(sizeof(*dump), SLUICE_QUOTA_GFP_NOWAIT | __GFP_ZERO);

	if (!dump)
		return NULL;
	dump->keys_only = keys_only;
	dump->copy.key = dump->key;
	dump->copy.value = dump->value;
	dump->copy.room = keys_only ? 0 : SLUICE_NL_VALUE_MAX;
	return dump;
}

int sluice_map_netlink_dump_start(struct netlink_callback *cb)
{
	struct nlattr **attrs = sluice_compat_dump_attrs(cb);
	struct dump *dump = dump_create(attrs[SLUICE_NL_A_KEYS]);
	int err;

	if (!dump)
		return sluice_netlink_explain(cb->extack, sluice_netlink_memory(-ENOMEM, NULL));
	err = sluice_netlink_target_get(cb->skb, attrs, SLUICE_OPEN_READ, &dump->target,
					cb->extack);
	if (err) {
		vfree(dump);
		return sluice_netlink_explain(cb->extack, err);
	}
	cb->min_dump_alloc = SLUICE_MAP_KEY_MAX + SLUICE_NL_VALUE_MAX + SZ_1K;
	*dump_of(cb) = dump;
	return 0;
}

static int put_content(struct sk_buff *skb, const struct dump *dump)
{
	const struct sluice_map_copy *copy = &dump->copy;
	int err = nla_put(skb, SLUICE_NL_A_KEY, copy->key_length, copy->key) ?:
		  sluice_map_netlink_put_version(skb, copy);

	if (err)
		return err;
	if (dump->keys_only || copy->length > copy->room)
		return sluice_netlink_put_u32(skb, SLUICE_NL_A_VALUE_LENGTH, copy->length);
	return nla_put(skb, SLUICE_NL_A_VALUE, copy->length, copy->value);
}

/* The message of an entry. 0 or -EMSGSIZE. */
static int put_entry(struct sk_buff *skb, struct netlink_callback *cb, const struct dump *dump)
{
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				   &sluice_netlink_family, NLM_F_MULTI, SLUICE_NL_CMD_MAP_DUMP);

	if (!header)
		return -EMSGSIZE;
	if (put_content(skb, dump)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

/*
 * A message that receivers ignore, because an empty one would end the dump. It has a header of
 * generic netlink, without a command, for those that look for one in every message.
 */
static int put_noop(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlmsghdr *header = nlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
					    NLMSG_NOOP, GENL_HDRLEN, NLM_F_MULTI);

	if (header)
		memset(nlmsg_data(header), 0, GENL_HDRLEN);
	return header ? 0 : -EMSGSIZE;
}

/* 0: the message is full, or there are no more entries; or an error of the dump. */
static int put_entries(struct sk_buff *skb, struct netlink_callback *cb, struct dump *dump)
{
	unsigned int passes = PASSES;
	struct sluice_map_cursor before;
	int ret;

	for (;;) {
		before = dump->cursor;
		ret = sluice_map_copy_next(dump->target.map, &dump->cursor, &dump->copy, &passes);
		if (ret == -EAGAIN)
			return skb->len ? 0 : put_noop(skb, cb);
		if (ret <= 0)
			return ret;
		ret = put_entry(skb, cb, dump);
		if (ret) {
			/* This one is the first of the next message. */
			dump->cursor = before;
			return skb->len ? 0 : ret;
		}
		cond_resched();
	}
}

int sluice_map_netlink_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct dump *dump = *dump_of(cb);

	if (READ_ONCE(dump->target.map->destroyed))
		return sluice_netlink_explain(cb->extack, -EPIPE);
	return put_entries(skb, cb, dump) ?: skb->len;
}

int sluice_map_netlink_dump_done(struct netlink_callback *cb)
{
	struct dump *dump = *dump_of(cb);

	if (!dump)
		return 0;
	sluice_netlink_target_put(&dump->target);
	vfree(dump);
	return 0;
}
