// SPDX-License-Identifier: GPL-2.0
/*
 * Handles, and their watches: a watch is the endpoint's (map_watch.c), whose events a worker sends
 * to the socket that owns the handle. It puts them into the receive queue of the socket itself, not
 * into that of whoever has its port number, which the next socket may get at once.
 *
 * A socket without room is tried again later; what the log has overwritten until then is counted in
 * the next event, as for every watcher.
 */
#include <linux/file.h>
#include <linux/list.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "compat.h"
#include "map.h"
#include "netlink.h"

/* Until a socket without room is tried again, in jiffies. */
#define RETRY_DELAY (HZ / 50)
/* Events that one run of a worker sends. */
#define EVENTS_AT_ONCE 64

struct handle {
	struct hlist_node node;		/* in `handles`, under its lock */
	struct sock *sk;		/* with a reference */
	u32 number;
	struct file *file;
	bool watches;			/* set under the lock */
	struct wait_queue_entry entry;	/* while it watches */
	struct delayed_work sending;
};

#define BUCKETS 256

static DEFINE_SPINLOCK(handles_lock);	/* protects the following */
static struct hlist_head handles[BUCKETS];
static u32 last_number;
static unsigned int handle_count;	/* read without the lock */

static struct hlist_head *bucket(const struct sock *sk)
{
	return &handles[hash_ptr(sk, ilog2(BUCKETS))];
}

/* Under the lock. */
static struct handle *find(const struct sock *sk, u32 number)
{
	struct handle *handle;

	hlist_for_each_entry(handle, bucket(sk), node)
		if (handle->sk == sk && handle->number == number)
			return handle;
	return NULL;
}

/* Under the lock. */
static unsigned int count(const struct sock *sk)
{
	struct handle *handle;
	unsigned int number = 0;

	hlist_for_each_entry(handle, bucket(sk), node)
		number += handle->sk == sk;
	return number;
}

struct file *sluice_netlink_handle_file(struct sock *sk, u32 number)
{
	struct handle *handle;
	struct file *file = NULL;

	spin_lock(&handles_lock);
	handle = find(sk, number);
	if (handle)
		file = get_file(handle->file);
	spin_unlock(&handles_lock);
	return file;
}

/* ---- watches ---- */

static struct sluice_map_endpoint *endpoint_of(const struct handle *handle)
{
	return handle->file->private_data;
}

static struct sk_buff *event_message(const struct handle *handle,
				     const struct sluice_map_event *event, const u8 *key)
{
	struct sk_buff *skb = genlmsg_new(nla_total_size(event->key_length) +
					  3 * nla_total_size_64bit(sizeof(u64)) +
					  2 * nla_total_size(sizeof(u32)), GFP_KERNEL_ACCOUNT);
	void *header;

	if (!skb)
		return NULL;
	header = genlmsg_put(skb, 0, 0, &sluice_netlink_family, 0, SLUICE_NL_CMD_MAP_EVENT);
	if (!header || nla_put_u32(skb, SLUICE_NL_A_HANDLE, handle->number) ||
	    nla_put_u32(skb, SLUICE_NL_A_CHANGE, event->change) ||
	    nla_put_u64_64bit(skb, SLUICE_NL_A_SEQUENCE, event->sequence, SLUICE_NL_A_PAD) ||
	    nla_put_u64_64bit(skb, SLUICE_NL_A_VERSION, event->version, SLUICE_NL_A_PAD) ||
	    nla_put_u64_64bit(skb, SLUICE_NL_A_MISSED, event->missed, SLUICE_NL_A_PAD) ||
	    nla_put(skb, SLUICE_NL_A_KEY, event->key_length, key)) {
		kfree_skb(skb);
		return NULL;
	}
	genlmsg_end(skb, header);
	return skb;
}

/* 0: an event was sent, -EAGAIN: there is none, -ENOBUFS: try again later. */
static int send_event(struct handle *handle)
{
	struct sluice_map_endpoint *end = endpoint_of(handle);
	struct sluice_map_taken taken;
	struct sk_buff *skb;
	int err = sluice_map_event_get(end, &taken);

	if (err)
		return err;
	skb = event_message(handle, &taken.event, taken.entry->key);
	if (!skb || sock_queue_rcv_skb(handle->sk, skb)) {
		kfree_skb(skb);
		err = -ENOBUFS;
	}
	sluice_map_event_put(end, &taken, !err);
	return err;
}

static void send_events(struct work_struct *work)
{
	struct handle *handle = container_of(to_delayed_work(work), struct handle, sending);
	unsigned int left = EVENTS_AT_ONCE;
	int err;

	do {
		if (sock_flag(handle->sk, SOCK_DEAD))
			return;
		err = send_event(handle);
	} while (!err && --left);
	if (err == -ENOBUFS)
		queue_delayed_work(system_dfl_wq, &handle->sending, RETRY_DELAY);
	else if (!err)
		queue_delayed_work(system_dfl_wq, &handle->sending, 0);
}

static int start_sending(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct handle *handle = container_of(entry, struct handle, entry);

	queue_delayed_work(system_dfl_wq, &handle->sending, 0);
	return 0;
}

/* Sets the number from which on events are sent. 0, -EINVAL: there is no such change yet. */
static int begin_watch(struct handle *handle, u64 after)
{
	struct sluice_map_endpoint *end = endpoint_of(handle);
	int err = sluice_map_watch_after(end, &after);

	if (err)
		return err;
	if (!handle->watches) {
		handle->watches = true;
		sluice_wait_add_shared(&end->map->changed, &handle->entry);
	}
	queue_delayed_work(system_dfl_wq, &handle->sending, 0);
	return 0;
}

int sluice_netlink_watch(struct sk_buff *skb, struct genl_info *info)
{
	u64 after = info->attrs[SLUICE_NL_A_AFTER] ?
		nla_get_u64(info->attrs[SLUICE_NL_A_AFTER]) : SLUICE_MAP_NOW;
	struct handle *handle;
	int err = -ENOENT;

	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_HANDLE))
		return -EINVAL;
	spin_lock(&handles_lock);
	handle = find(NETLINK_CB(skb).sk, nla_get_u32(info->attrs[SLUICE_NL_A_HANDLE]));
	if (handle)
		err = handle->file->f_mode & FMODE_READ ? begin_watch(handle, after) : -EBADF;
	spin_unlock(&handles_lock);
	if (err == -ENOENT)
		GENL_SET_ERR_MSG(info, "this socket has no such handle");
	else if (err == -EBADF)
		GENL_SET_ERR_MSG(info, "the handle is not open for reading");
	else if (err)
		GENL_SET_ERR_MSG(info, "the sequence is greater than that of the last change");
	return err;
}

/* ---- life ---- */

int sluice_netlink_handle_add(struct sock *sk, struct file *file)
{
	struct handle *handle = kzalloc(sizeof(*handle), SLUICE_QUOTA_GFP);
	int ret = -EMFILE;

	if (!handle)
		return -ENOMEM;
	handle->sk = sk;
	handle->file = file;
	init_waitqueue_func_entry(&handle->entry, start_sending);
	INIT_DELAYED_WORK(&handle->sending, send_events);
	spin_lock(&handles_lock);
	if (count(sk) < SLUICE_NL_HANDLES_MAX) {
		do {
			last_number = last_number == INT_MAX ? 1 : last_number + 1;
		} while (find(sk, last_number));
		handle->number = last_number;
		ret = handle->number;
		sock_hold(sk);
		get_file(file);
		hlist_add_head(&handle->node, bucket(sk));
		WRITE_ONCE(handle_count, handle_count + 1);
	}
	spin_unlock(&handles_lock);
	if (ret < 0)
		kfree(handle);
	return ret;
}

/* Under the lock. */
static void take(struct handle *handle)
{
	hlist_del(&handle->node);
	WRITE_ONCE(handle_count, handle_count - 1);
}

/* A handle that is no longer in the table. May sleep. */
static void handle_free(struct handle *handle)
{
	if (handle->watches)
		remove_wait_queue(&endpoint_of(handle)->map->changed.head, &handle->entry);
	cancel_delayed_work_sync(&handle->sending);
	fput(handle->file);
	sock_put(handle->sk);
	kfree(handle);
}

int sluice_netlink_close(struct sk_buff *skb, struct genl_info *info)
{
	struct handle *handle;

	if (GENL_REQ_ATTR_CHECK(info, SLUICE_NL_A_HANDLE))
		return -EINVAL;
	spin_lock(&handles_lock);
	handle = find(NETLINK_CB(skb).sk, nla_get_u32(info->attrs[SLUICE_NL_A_HANDLE]));
	if (handle)
		take(handle);
	spin_unlock(&handles_lock);
	if (!handle) {
		GENL_SET_ERR_MSG(info, "this socket has no such handle");
		return -ENOENT;
	}
	handle_free(handle);
	return 0;
}

/* Takes one handle of a closed socket out of the table. */
static struct handle *take_dead(unsigned int i)
{
	struct handle *handle, *found = NULL;

	spin_lock(&handles_lock);
	hlist_for_each_entry(handle, &handles[i], node) {
		if (!sock_flag(handle->sk, SOCK_DEAD))
			continue;
		found = handle;
		take(handle);
		break;
	}
	spin_unlock(&handles_lock);
	return found;
}

/* A socket is closed, and marked as dead; its port number may have a new owner already. */
static int release(struct notifier_block *block, unsigned long event, void *data)
{
	const struct netlink_notify *notify = data;
	struct handle *handle;
	unsigned int i;

	if (event != NETLINK_URELEASE || notify->protocol != NETLINK_GENERIC)
		return NOTIFY_DONE;
	/* Those of this socket were added before it was closed. */
	for (i = 0; i < BUCKETS && READ_ONCE(handle_count); i++)
		while ((handle = take_dead(i)))
			handle_free(handle);
	return NOTIFY_DONE;
}

static struct notifier_block release_block = { .notifier_call = release };

int __init sluice_netlink_handle_init(void)
{
	return netlink_register_notifier(&release_block);
}

void sluice_netlink_handle_exit(void)
{
	netlink_unregister_notifier(&release_block);
}
