// SPDX-License-Identifier: GPL-2.0
/*
 * Handles, and their watches: a watch is the endpoint's (map_watch.c), whose events a worker sends
 * to the socket that owns the handle. It puts them into the receive queue of the socket itself, not
 * into that of whoever has its port number, which the next socket may get at once.
 *
 * Events use a quarter of the socket's receive buffer, so that the replies to its requests have
 * room. Without room the worker tries again, more and more rarely; what the log has overwritten
 * until then is counted in the next event, as for every watcher.
 *
 * A handle counts for users as a channel (quota.h): a set wakes all handles that watch its map, and
 * a socket without room occupies a worker now and then.
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/jhash.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/random.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/netns/hash.h>
#include <net/sock.h>

#include "endpoint.h"
#include "map.h"
#include "netlink.h"
#include "quota.h"
#include "start.h"

/* Until a socket without room is tried again, in jiffies: from 1, each time twice as long. */
#define RETRY_DELAY_MAX ((unsigned int)HZ)
/* Events that one run of a worker sends. */
#define EVENTS_AT_ONCE 64
/* Sockets to which events are sent at the same time. */
#define WORKERS 2

struct sluice_netlink_handle {
	struct hlist_node node;		/* in its bucket, under the bucket's lock */
	refcount_t refs;		/* one until it is closed, and those of requests */
	struct sock *sk;		/* with a reference, until it is closed */
	u32 portid;			/* of the socket */
	u32 number;
	struct sluice_quota_charge *charge;
	struct sluice_map_endpoint *end;	/* set under the lock, once */
	bool watches;			/* under the lock */
	struct wait_queue_entry entry;	/* while it watches */

	struct delayed_work sending;	/* and for it only: */
	unsigned int delay;		/* before the last attempt, in jiffies */
	bool ended;			/* the destruction of the map was sent */
};

#define BUCKETS 1024

/* A lock each: a container delays another one only by handles of the same bucket. */
struct bucket {
	spinlock_t lock;		/* protects the handles */
	struct hlist_head handles;
};

static struct bucket table[BUCKETS];
static atomic_t last_number = ATOMIC_INIT((int)SLUICE_START(5));

static struct workqueue_struct *workers;

/*
 * A process chooses the port numbers of its sockets, in any number of network namespaces, so the
 * hash has a secret.
 */
static u32 secret;

static struct bucket *bucket_of(u32 portid, const struct net *net)
{
	return &table[jhash_2words(portid, net_hash_mix(net), secret) % BUCKETS];
}

static struct bucket *bucket_for(struct sk_buff *request)
{
	return bucket_of(NETLINK_CB(request).portid, sock_net(NETLINK_CB(request).sk));
}

/* Under the bucket's lock. */
static struct sluice_netlink_handle *handle_find(const struct bucket *bucket,
						 struct sk_buff *request,
						 u32 number)
{
	struct sluice_netlink_handle *handle;

	hlist_for_each_entry(handle, &bucket->handles, node)
		if (handle->sk == NETLINK_CB(request).sk && handle->number == number)
			return handle;
	return NULL;
}

/* Under the bucket's lock. */
static unsigned int handle_count(const struct bucket *bucket, struct sk_buff *request)
{
	struct sluice_netlink_handle *handle;
	unsigned int number = 0;

	hlist_for_each_entry(handle, &bucket->handles, node)
		number += handle->sk == NETLINK_CB(request).sk;
	return number;
}

struct sluice_netlink_handle *sluice_netlink_handle_get(struct sk_buff *request, u32 number)
{
	struct bucket *bucket = bucket_for(request);
	struct sluice_netlink_handle *handle;

	spin_lock(&bucket->lock);
	handle = handle_find(bucket, request, number);
	if (handle && handle->end)
		refcount_inc(&handle->refs);
	else
		handle = NULL;
	spin_unlock(&bucket->lock);
	return handle;
}

struct sluice_map_endpoint *sluice_netlink_handle_endpoint(struct sluice_netlink_handle *handle)
{
	return handle->end;
}

/* ---- watches ---- */

static int put_event(struct sk_buff *skb, const struct sluice_map_taken *taken)
{
	const struct sluice_map_event *event = &taken->event;

	return sluice_netlink_put_u32(skb, SLUICE_NL_A_CHANGE, event->change) ?:
	       sluice_netlink_put_u64(skb, SLUICE_NL_A_SEQUENCE, event->sequence) ?:
	       sluice_netlink_put_u64(skb, SLUICE_NL_A_VERSION, event->version) ?:
	       sluice_netlink_put_u64(skb, SLUICE_NL_A_MISSED, event->missed) ?:
	       nla_put(skb, SLUICE_NL_A_KEY, event->key_length, taken->entry->key);
}

/* @taken: NULL: the map is destroyed. NULL: there is no memory. */
static struct sk_buff *event_message(const struct sluice_netlink_handle *handle,
				     const struct sluice_map_taken *taken)
{
	size_t size = taken ? nla_total_size(sizeof(u32)) + 3 * SLUICE_NETLINK_SIZE_U64 +
			      nla_total_size(taken->event.key_length) : nla_total_size(0);
	struct sk_buff *skb = genlmsg_new(nla_total_size(sizeof(u32)) + size,
					  GFP_NOWAIT | __GFP_NOWARN);
	void *header;

	if (!skb)
		return NULL;
	header = genlmsg_put(skb, 0, 0, &sluice_netlink_family, 0, SLUICE_NL_CMD_MAP_EVENT);
	if (!header || sluice_netlink_put_u32(skb, SLUICE_NL_A_HANDLE, handle->number) ||
	    (taken ? put_event(skb, taken) : nla_put_flag(skb, SLUICE_NL_A_DESTROYED))) {
		kfree_skb(skb);
		return NULL;
	}
	genlmsg_end(skb, header);
	return skb;
}

/* Events use a quarter of the buffer. */
static bool has_room(const struct sock *sk)
{
	return atomic_read(&sk->sk_rmem_alloc) < READ_ONCE(sk->sk_rcvbuf) / 4;
}

/* As event_message(). 0, -ENOBUFS: there is no room or no memory. */
static int handle_send_message(struct sluice_netlink_handle *handle,
			       const struct sluice_map_taken *taken)
{
	struct sock *sk = handle->sk;
	struct sk_buff *skb;
	int err;

	if (!has_room(sk))
		return -ENOBUFS;
	skb = event_message(handle, taken);
	if (!skb)
		return -ENOBUFS;
	err = sock_queue_rcv_skb(sk, skb);
	if (err)
		kfree_skb(skb);
	/* Another error is that of a filter of the socket, which did not want the message. */
	return err == -ENOMEM || err == -ENOBUFS ? -ENOBUFS : 0;
}

/* As send_event(), when there is no event. */
static int send_end(struct sluice_netlink_handle *handle)
{
	int err;

	if (!READ_ONCE(handle->end->map->destroyed))
		return -EAGAIN;
	err = handle_send_message(handle, NULL);
	handle->ended = !err;
	return err;
}

/* 0, -EAGAIN: there is nothing to send, -ENOBUFS. */
static int send_event(struct sluice_netlink_handle *handle)
{
	struct sluice_map_endpoint *end = handle->end;
	struct sluice_map_taken taken;
	int err;

	if (handle->ended)
		return -EAGAIN;
	err = sluice_map_event_get(end, &taken);
	if (err)
		return send_end(handle);
	err = handle_send_message(handle, &taken);
	sluice_map_event_put(end, &taken, !err);
	return err;
}

static void send_events(struct work_struct *work)
{
	struct sluice_netlink_handle *handle =
		container_of(to_delayed_work(work), struct sluice_netlink_handle, sending);
	unsigned int left = EVENTS_AT_ONCE;
	int err;

	do {
		if (sock_flag(handle->sk, SOCK_DEAD))
			return;
		err = send_event(handle);
	} while (!err && --left);
	/* A reader that takes events is not slow. */
	if (left < EVENTS_AT_ONCE)
		WRITE_ONCE(handle->delay, 0);
	if (err == -EAGAIN)
		return;
	if (err)
		WRITE_ONCE(handle->delay, clamp(2 * handle->delay, 1U, RETRY_DELAY_MAX));
	queue_delayed_work(workers, &handle->sending, handle->delay);
}

/* A socket that had no room, and whose reader has made some, does not wait for its next attempt. */
static int start_sending(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct sluice_netlink_handle *handle =
		container_of(entry, struct sluice_netlink_handle, entry);

	if (READ_ONCE(handle->delay) && has_room(handle->sk))
		mod_delayed_work(workers, &handle->sending, 0);
	else
		queue_delayed_work(workers, &handle->sending, 0);
	return 0;
}

int sluice_netlink_handle_watch(struct sk_buff *request, u32 number)
{
	struct bucket *bucket = bucket_for(request);
	struct sluice_netlink_handle *handle;

	spin_lock(&bucket->lock);
	handle = handle_find(bucket, request, number);
	if (handle && !handle->end)
		handle = NULL;
	if (handle && !handle->watches) {
		handle->watches = true;
		sluice_wait_add_shared(&handle->end->map->changed, &handle->entry);
	}
	if (handle)
		queue_delayed_work(workers, &handle->sending, 0);
	spin_unlock(&bucket->lock);
	return handle ? 0 : -ENOENT;
}

/* ---- life ---- */

/* A committed charge of the sender, or an error. */
static struct sluice_quota_charge *handle_charge(void)
{
	struct sluice_quota_charge *charge =
		sluice_quota_prepare(NULL, 0, true, SLUICE_QUOTA_GFP_NOWAIT);
	int err = IS_ERR(charge) ? 0 : sluice_quota_commit(charge);

	if (!err)
		return charge;
	sluice_quota_uncharge(charge);
	return ERR_PTR(err);
}

static struct sluice_netlink_handle *handle_create(struct sk_buff *request)
{
	struct sluice_quota_charge *charge = handle_charge();
	struct sluice_netlink_handle *handle;

	if (IS_ERR(charge))
		return ERR_CAST(charge);
	handle = kzalloc(sizeof(*handle), SLUICE_QUOTA_GFP_NOWAIT);
	if (!handle) {
		sluice_quota_uncharge(charge);
		return ERR_PTR(-ENOMEM);
	}
	handle->charge = charge;
	refcount_set(&handle->refs, 1);
	handle->sk = NETLINK_CB(request).sk;
	handle->portid = NETLINK_CB(request).portid;
	init_waitqueue_func_entry(&handle->entry, start_sending);
	INIT_DELAYED_WORK(&handle->sending, send_events);
	sock_hold(handle->sk);
	__module_get(THIS_MODULE);
	return handle;
}

/*
 * The module cannot be unloaded before this returns: its exit waits for requests and for the
 * notifier, and netlink holds the module during a dump.
 */
void sluice_netlink_handle_put(struct sluice_netlink_handle *handle)
{
	if (!refcount_dec_and_test(&handle->refs))
		return;
	if (handle->end)
		sluice_endpoint_close_deferred(&handle->end->endpoint);
	sluice_quota_uncharge(handle->charge);
	kfree(handle);
	module_put(THIS_MODULE);
}

/* A handle that is not in the table. May sleep, but does not wait for long. */
static void handle_close(struct sluice_netlink_handle *handle)
{
	if (handle->watches)
		remove_wait_queue(&handle->end->map->changed.head, &handle->entry);
	cancel_delayed_work_sync(&handle->sending);
	/* Not with the last reference: a dump may have that, and it ends with the socket. */
	sock_put(handle->sk);
	sluice_netlink_handle_put(handle);
}

/* A number that the socket does not use. Under the bucket's lock. */
static u32 next_number(const struct bucket *bucket, struct sk_buff *request)
{
	u32 number;

	do {
		number = atomic_inc_return(&last_number) & INT_MAX;
	} while (!number || handle_find(bucket, request, number));
	return number;
}

int sluice_netlink_handle_reserve(struct sk_buff *request)
{
	struct sluice_netlink_handle *handle = handle_create(request);
	struct bucket *bucket;
	int ret = -EMFILE;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	bucket = bucket_for(request);
	spin_lock(&bucket->lock);
	if (handle_count(bucket, request) < SLUICE_NL_HANDLES_MAX) {
		ret = next_number(bucket, request);
		handle->number = ret;
		hlist_add_head(&handle->node, &bucket->handles);
	}
	spin_unlock(&bucket->lock);
	if (ret < 0)
		handle_close(handle);
	return ret;
}

void sluice_netlink_handle_set(struct sk_buff *request, u32 number,
			       struct sluice_map_endpoint *end)
{
	struct bucket *bucket = bucket_for(request);
	struct sluice_netlink_handle *handle;

	spin_lock(&bucket->lock);
	handle = handle_find(bucket, request, number);
	if (handle)
		handle->end = end;
	spin_unlock(&bucket->lock);
	/* Another thread that uses this socket has guessed its number and closed it. */
	if (!handle)
		sluice_endpoint_close_deferred(&end->endpoint);
}

int sluice_netlink_handle_close(struct sk_buff *request, u32 number)
{
	struct bucket *bucket = bucket_for(request);
	struct sluice_netlink_handle *handle;

	spin_lock(&bucket->lock);
	handle = handle_find(bucket, request, number);
	if (handle)
		hlist_del(&handle->node);
	spin_unlock(&bucket->lock);
	if (!handle)
		return -ENOENT;
	handle_close(handle);
	return 0;
}

/* Takes one handle of a closed socket with this port number out of the table. */
static struct sluice_netlink_handle *take_dead(u32 portid, const struct net *net)
{
	struct bucket *bucket = bucket_of(portid, net);
	struct sluice_netlink_handle *handle;

	spin_lock(&bucket->lock);
	hlist_for_each_entry(handle, &bucket->handles, node)
		if (handle->portid == portid && sock_net(handle->sk) == net &&
		    sock_flag(handle->sk, SOCK_DEAD))
			break;
	if (handle)
		hlist_del(&handle->node);
	spin_unlock(&bucket->lock);
	return handle;
}

/* A socket is closed, and marked as dead; its port number may have a new owner already. */
static int handle_socket_released(struct notifier_block *block, unsigned long event, void *data)
{
	const struct netlink_notify *notify = data;
	struct sluice_netlink_handle *handle;

	if (event != NETLINK_URELEASE || notify->protocol != NETLINK_GENERIC)
		return NOTIFY_DONE;
	while ((handle = take_dead(notify->portid, notify->net)))
		handle_close(handle);
	return NOTIFY_DONE;
}

static struct notifier_block release_block = { .notifier_call = handle_socket_released };

int __init sluice_netlink_handle_init(void)
{
	unsigned int i;
	int err;

	secret = get_random_u32();
	for (i = 0; i < BUCKETS; i++)
		spin_lock_init(&table[i].lock);
	workers = alloc_workqueue("sluice_netlink", WQ_UNBOUND, WORKERS);
	if (!workers)
		return -ENOMEM;
	err = netlink_register_notifier(&release_block);
	if (err)
		destroy_workqueue(workers);
	return err;
}

void sluice_netlink_handle_exit(void)
{
	netlink_unregister_notifier(&release_block);
	destroy_workqueue(workers);
}
