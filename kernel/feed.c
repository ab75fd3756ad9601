// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/numa.h>
#include <linux/poll.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "endpoint.h"
#include "feed.h"
#include "feed_simulator.h"
#include "kind.h"
#include "ring_wait.h"
#include "scope.h"
#include "trace.h"
#include "user_struct.h"
#include "wait.h"

#define DEFAULT_CAPACITY SZ_1M
#define CAPACITY_MIN max_t(u64, SZ_16K, PAGE_SIZE)	/* a record is at most half of it */
#define POLL_READABLE (EPOLLIN | EPOLLRDNORM)

static unsigned int feed_max_bytes = SZ_16M;
module_param(feed_max_bytes, uint, 0644);
MODULE_PARM_DESC(feed_max_bytes, "Maximum capacity of the ring of a feed in bytes");

static struct sluice_feed *feed_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_feed, channel);
}

static struct sluice_feed_endpoint *feed_endpoint_of(struct sluice_endpoint *endpoint)
{
	return container_of(endpoint, struct sluice_feed_endpoint, endpoint);
}

static struct sluice_feed_endpoint *feed_endpoint(struct file *file)
{
	return feed_endpoint_of(file->private_data);
}

static struct sluice_feed *feed_of_endpoint(const struct sluice_feed_endpoint *end)
{
	return feed_of(end->endpoint.channel);
}

/* ---- sessions ---- */

static void session_free(struct sluice_feed_session *session)
{
	sluice_ring_memory_free(session->memory);
	kfree(session);
}

static void feed_free_deferred(struct work_struct *work)
{
	session_free(container_of(to_rcu_work(work), struct sluice_feed_session, freeing));
}

static struct sluice_feed_session *feed_session_create(struct sluice_feed_endpoint *end, bool maps)
{
	struct sluice_feed_session *session = kzalloc(sizeof(*session), SLUICE_QUOTA_GFP);
	int err;

	if (!session)
		return ERR_PTR(-ENOMEM);
	session->memory = sluice_ring_memory_create(NULL, feed_of_endpoint(end)->capacity,
						    NUMA_NO_NODE, SLUICE_QUOTA_GFP);
	if (IS_ERR(session->memory)) {
		err = PTR_ERR(session->memory);
		kfree(session);
		return ERR_PTR(err);
	}
	session->maps = maps;
	if (!maps) {
		session->head = SLUICE_FEED_FIRST;
		session->released = SLUICE_FEED_FIRST;
		session->tail = SLUICE_FEED_FIRST;
	}
	session->wait = &end->wait;
	mutex_init(&session->read_mutex);
	INIT_RCU_WORK(&session->freeing, feed_free_deferred);
	return session;
}

/* Under session_lock: publishers use @session from now on; packets lost before do not count. */
static void set_session(struct sluice_feed *feed, struct sluice_feed_session *session)
{
	raw_spin_lock_irq(&feed->lock);
	if (session)
		atomic_set(&feed->contended, 0);
	smp_store_release(&feed->session, session);	/* (feed-P) */
	WRITE_ONCE(feed->active, session);
	raw_spin_unlock_irq(&feed->lock);
}

static struct sluice_feed_session *claimed(const struct sluice_feed_endpoint *end)
{
	return smp_load_acquire(&end->session);	/* pairs with try_claim() */
}

/*
 * Makes @new the session of feed and endpoint, unless this has one already. 0, -ENODATA: @new is
 * needed, -EBUSY: another endpoint has claimed the feed, -EPIPE: it was destroyed.
 */
static int try_claim(struct sluice_feed_endpoint *end, struct sluice_feed_session *new)
{
	struct sluice_feed *feed = feed_of_endpoint(end);
	int err = 0;

	spin_lock(&feed->session_lock);
	if (end->session) {
		/* Another thread was first. */
	} else if (feed->destroyed) {
		err = -EPIPE;
	} else if (feed->session) {
		err = -EBUSY;
	} else if (!new) {
		err = -ENODATA;
	} else {
		set_session(feed, new);
		smp_store_release(&end->session, new);	/* pairs with claimed() */
		trace_sluice_feed_claim(&feed->channel, new->maps);
	}
	spin_unlock(&feed->session_lock);
	return err;
}

static int claim_new(struct sluice_feed_endpoint *end, bool maps)
{
	struct sluice_feed_session *new = feed_session_create(end, maps);
	int err;

	if (IS_ERR(new))
		return PTR_ERR(new);
	err = try_claim(end, new);
	if (claimed(end) != new)
		session_free(new);
	return err;
}

/*
 * Returns the endpoint's session, after a claim if it has none. @nowait: -EAGAIN instead of a
 * claim, which allocates the ring.
 */
static struct sluice_feed_session *feed_claim_session(struct sluice_feed_endpoint *end, bool maps,
						      bool nowait)
{
	int err = claimed(end) ? 0 : try_claim(end, NULL);

	if (err == -ENODATA)
		err = nowait ? -EAGAIN : claim_new(end, maps);
	if (err)
		return ERR_PTR(err);
	return claimed(end)->maps == maps ? claimed(end) : ERR_PTR(-EBUSY);
}

/* As feed_claim_session(), but may wait for deferred frees: not for a caller with mmap_lock. */
static struct sluice_feed_session *feed_claim_unlocked(struct sluice_feed_endpoint *end, bool maps,
						       bool nowait)
{
	struct sluice_feed_session *session = feed_claim_session(end, maps, nowait);

	if (session != ERR_PTR(-ENOMEM) || nowait)
		return session;
	/* The ring of the consumer before may wait for its grace period. */
	sluice_channel_flush_deferred();
	return feed_claim_session(end, maps, nowait);
}

/* Why it has ended, or 0. */
static u32 feed_session_ended(const struct sluice_feed_session *session)
{
	return smp_load_acquire(&session->ended);	/* (feed-G) */
}

/* ---- read ---- */

/*
 * Loads `tail` before `head`, because another reader may advance both. If they are equal, `head` is
 * then not outdated, so the next publisher sees an empty ring and wakes this reader (feed-W).
 */
static bool is_readable(const struct sluice_feed_session *session)
{
	u64 tail = smp_load_acquire(&session->tail);	/* before `head` */

	return smp_load_acquire(&session->head) != tail;	/* (feed-H) */
}

/* Copies @length bytes from a position. False after a fault. */
static bool copy_from_ring(const struct sluice_ring_memory *memory, u64 pos, size_t length,
			   struct iov_iter *to)
{
	while (length) {
		size_t part = min_t(size_t, length, PAGE_SIZE - offset_in_page(pos));

		if (copy_to_iter(sluice_ring_memory_data(memory, pos), part, to) != part)
			return false;
		pos += part;
		length -= part;
	}
	return true;
}

/*
 * Under read_mutex: the length of the packet that was read, 0: there is none, or an error. A
 * publisher may overwrite the header once the record is released.
 */
static ssize_t read_packet(struct sluice_feed_session *session, struct iov_iter *to)
{
	const struct sluice_ring_header *header;
	u64 at = session->tail;
	u32 length;

	if (!is_readable(session))
		return 0;
	header = sluice_ring_memory_data(session->memory, at);
	length = header->length;
	if (iov_iter_count(to) < length)
		return -EMSGSIZE;
	if (!copy_from_ring(session->memory, at + sizeof(*header), length, to))
		return -EFAULT;
	/* (feed-T) */
	smp_store_release(&session->tail, at + round_up(sizeof(*header) + length, sizeof(*header)));
	smp_mb();	/* (feed-W) */
	return length;
}

static ssize_t lock_and_read(struct sluice_feed_session *session, const struct kiocb *iocb,
			     struct iov_iter *to)
{
	ssize_t ret;

	if (iocb->ki_flags & IOCB_NOWAIT)
		ret = mutex_trylock(&session->read_mutex) ? 0 : -EAGAIN;
	else
		ret = sluice_wait_for_mutex(&session->read_mutex);
	if (ret)
		return ret;
	ret = read_packet(session, to);
	mutex_unlock(&session->read_mutex);
	return ret;
}

static ssize_t feed_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct sluice_feed_endpoint *end = feed_endpoint(iocb->ki_filp);
	struct sluice_feed_session *session;
	bool has_ended;
	ssize_t ret;

	if (!iov_iter_count(to))
		return 0;
	session = feed_claim_unlocked(end, false, iocb->ki_flags & IOCB_NOWAIT);
	if (session == ERR_PTR(-EPIPE))
		return 0;
	if (IS_ERR(session))
		return PTR_ERR(session);
	for (;;) {
		has_ended = feed_session_ended(session);
		ret = lock_and_read(session, iocb, to);
		if (ret || has_ended)
			return ret;
		if ((iocb->ki_flags & IOCB_NOWAIT) || (iocb->ki_filp->f_flags & O_NONBLOCK))
			return -EAGAIN;
		ret = sluice_wait_until_shared(end->wait,
					       is_readable(session) || feed_session_ended(session),
					       &end->spin);
		if (ret)
			return ret;
	}
}

/* ---- mapping and waiting ---- */

static int feed_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sluice_feed_endpoint *end = feed_endpoint(file);
	struct sluice_feed_session *session;
	int err = sluice_ring_memory_check_mmap(vma, feed_of_endpoint(end)->capacity,
						SLUICE_RING_SIDE_CONSUMER);

	if (err)
		return err;
	/* Who maps a part must be able to map its control page. */
	if (!(file->f_mode & FMODE_WRITE))
		return -EINVAL;
	session = feed_claim_session(end, true, false);
	if (IS_ERR(session))
		return PTR_ERR(session);
	return sluice_ring_memory_mmap(session->memory, vma, SLUICE_RING_SIDE_CONSUMER);
}

static u32 wake_seq(const struct sluice_feed_session *session)
{
	return READ_ONCE(sluice_ring_memory_ctrl(session->memory,
						 SLUICE_RING_SIDE_PRODUCER)->wake_seq);
}

static bool feed_ends_wait(const void *side, u32 seq)
{
	return wake_seq(side) != seq || feed_session_ended(side);
}

static long feed_wait(struct sluice_feed_endpoint *end, struct sluice_ring_wait __user *user)
{
	struct sluice_feed_session *session = claimed(end);
	long ret;

	if (!session || !session->maps)
		return -EINVAL;
	ret = sluice_ring_wait(&end->wait.head, feed_ends_wait, session, user);
	return feed_session_ended(session) == SLUICE_RING_REJECTED ? -EPROTO : ret;
}

/* Before the claim it reports a packet, so that the caller claims the feed by reading. */
static __poll_t feed_poll(struct file *file, poll_table *table)
{
	struct sluice_feed_endpoint *end = feed_endpoint(file);
	struct sluice_feed_session *session;
	const struct sluice_ring_ctrl *own;

	sluice_wait_poll(file, &end->wait, table);
	session = claimed(end);
	if (!session)
		return POLL_READABLE;
	switch (feed_session_ended(session)) {
	case SLUICE_RING_CLOSED:
		return POLL_READABLE | EPOLLRDHUP;
	case SLUICE_RING_REJECTED:
		return POLL_READABLE | EPOLLHUP | EPOLLERR;
	}
	if (!session->maps)
		return is_readable(session) ? POLL_READABLE : 0;
	own = sluice_ring_memory_ctrl(session->memory, SLUICE_RING_SIDE_CONSUMER);
	return wake_seq(session) != READ_ONCE(own->wake_ack) ? POLL_READABLE : 0;
}

/* ---- settings and state ---- */

static u32 consumer_of(struct sluice_feed *feed)
{
	u32 consumer = SLUICE_FEED_CONSUMER_NONE;

	spin_lock(&feed->session_lock);
	if (feed->session)
		consumer = feed->session->maps ? SLUICE_FEED_CONSUMER_MAPS :
						 SLUICE_FEED_CONSUMER_READS;
	spin_unlock(&feed->session_lock);
	return consumer;
}

static void fill_feed_info(struct sluice_feed *feed, struct sluice_feed_info *info)
{
	*info = (struct sluice_feed_info) {
		.consumer = consumer_of(feed),
		.capacity = feed->capacity,
		.sequence = READ_ONCE(feed->sequence),
		.published = READ_ONCE(feed->published),
		.lost = READ_ONCE(feed->lost),
		.violations = READ_ONCE(feed->violations),
		.cpu = SLUICE_FEED_CPU_ANY,
	};
	if (feed->simulated)
		sluice_feed_simulator_fill_info(info);
}

static long feed_get_info(struct sluice_feed_endpoint *end, struct sluice_feed_info __user *user)
{
	struct sluice_feed_info info;
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_FEED_INFO_SIZE_VER0, &user_size);

	if (err)
		return err;
	fill_feed_info(feed_of_endpoint(end), &info);
	info.spin_limit_ns = READ_ONCE(end->spin.limit_ns);
	return sluice_user_struct_write(user, &info, sizeof(info), user_size);
}

static long set_spin(struct sluice_feed_endpoint *end, struct sluice_setting __user *user)
{
	u64 value;
	int err = sluice_user_setting_read(&value, user);

	if (err)
		return err;
	return put_user((u64)sluice_spin_set_limit(&end->spin, value), &user->value);
}

/* Before a mapping or a read, which then allocate nothing. */
static long feed_claim(struct file *file, struct sluice_setting __user *user)
{
	u64 consumer;
	int err = sluice_user_setting_read(&consumer, user);

	if (err)
		return err;
	if (consumer != SLUICE_FEED_CONSUMER_READS && consumer != SLUICE_FEED_CONSUMER_MAPS)
		return -EINVAL;
	if (consumer == SLUICE_FEED_CONSUMER_MAPS && !(file->f_mode & FMODE_WRITE))
		return -EINVAL;
	return PTR_ERR_OR_ZERO(feed_claim_unlocked(feed_endpoint(file),
						   consumer == SLUICE_FEED_CONSUMER_MAPS,
						   false));
}

static long feed_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sluice_feed_endpoint *end = feed_endpoint(file);
	void __user *user = (void __user *)argument;
	bool simulated = feed_of_endpoint(end)->simulated;

	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* Only by number: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_RING_WAIT):
		return feed_wait(end, user);
	case _IOC_NR(SLUICE_FEED_START):
		return simulated ? sluice_feed_simulator_start(end, user) : -ENOTTY;
	case _IOC_NR(SLUICE_FEED_STOP):
		return simulated ? sluice_feed_simulator_stop(end) : -ENOTTY;
	case _IOC_NR(SLUICE_FEED_INFO):
		return feed_get_info(end, user);
	case _IOC_NR(SLUICE_FEED_SET_SPIN):
		return set_spin(end, user);
	case _IOC_NR(SLUICE_FEED_CLAIM):
		return feed_claim(file, user);
	default:
		return sluice_endpoint_ioctl(file, command, user);
	}
}

/* ---- lifetime of an endpoint ---- */

static int feed_attach(struct sluice_endpoint *endpoint, const void *params)
{
	struct sluice_feed_endpoint *end = feed_endpoint_of(endpoint);

	if (!(endpoint->flags & SLUICE_OPEN_READ))
		return -EINVAL;
	sluice_wait_queue_init(&end->wait);
	sluice_spin_init(&end->spin);
	return 0;
}

static void feed_detach(struct sluice_endpoint *endpoint)
{
	struct sluice_feed_endpoint *end = feed_endpoint_of(endpoint);
	struct sluice_feed *feed = feed_of_endpoint(end);

	if (feed->simulated)
		sluice_feed_simulator_release(end);
	if (!end->session)
		return;
	spin_lock(&feed->session_lock);
	set_session(feed, NULL);
	spin_unlock(&feed->session_lock);
	if (!end->session->ended)
		trace_sluice_feed_end(&feed->channel, 0);
	/* After publishers that are about to wake this endpoint. */
	sluice_channel_queue_rcu_work(&end->session->freeing);
}

/* The node is the default feed of the root scope, that of the simulator. */
static int feed_open(struct inode *inode, struct file *file)
{
	struct sluice_scope_access access;
	int err = sluice_scope_access_root(&access);

	if (err)
		return err;
	err = sluice_endpoint_open_default(file, &sluice_feed_kind, &access, 0);
	sluice_scope_put(access.scope);
	return err;
}

/* ---- lifetime of the channel ---- */

static struct sluice_channel *feed_refuse_create(const struct sluice_channel_request *request)
{
	return ERR_PTR(-EPERM);
}

static void feed_free(struct sluice_channel *channel)
{
	struct sluice_feed *feed = feed_of(channel);

	irq_work_sync(&feed->wake);
	kfree(feed);
}

static struct sluice_feed *feed_alloc(const struct sluice_channel_request *request)
{
	struct sluice_feed *feed = kzalloc(sizeof(*feed), GFP_KERNEL);
	int err;

	if (!feed)
		return ERR_PTR(-ENOMEM);
	err = sluice_channel_init(&feed->channel, request, request->capacity);
	if (err) {
		kfree(feed);
		return ERR_PTR(err);
	}
	feed->capacity = request->capacity;
	feed->sequence = SLUICE_START(100);
	raw_spin_lock_init(&feed->lock);
	spin_lock_init(&feed->session_lock);
	sluice_feed_publish_init(feed);
	return feed;
}

/* The capacity for a request, or 0. */
static u64 feed_capacity_for(u64 bytes)
{
	u64 most = clamp_t(u64, READ_ONCE(feed_max_bytes), CAPACITY_MIN, SLUICE_RING_CAPACITY_MAX);

	most = rounddown_pow_of_two(most);
	if (!bytes)
		return min_t(u64, DEFAULT_CAPACITY, most);
	if (bytes > most)
		return 0;
	return roundup_pow_of_two(max_t(u64, bytes, CAPACITY_MIN));
}

static int set_name(struct sluice_channel_key *key, const char *name)
{
	key->kind = SLUICE_KIND_FEED;
	if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	return strscpy_pad(key->name, name, sizeof(key->name)) < 0 ? -EINVAL : 0;
}

struct sluice_feed *sluice_feed_create_as(const char *name, umode_t mode, u64 capacity,
					  bool simulated)
{
	struct sluice_channel_request request = {
		.kind = &sluice_feed_kind,
		.mode = mode & 0777,
		.capacity = feed_capacity_for(capacity),
		.gfp = SLUICE_QUOTA_GFP,
	};
	struct sluice_feed *feed;
	int err;

	if (!request.capacity || set_name(&request.key, name))
		return ERR_PTR(-EINVAL);
	err = sluice_scope_access_root(&request.access);
	if (err)
		return ERR_PTR(err);
	feed = feed_alloc(&request);
	sluice_scope_put(request.access.scope);
	if (IS_ERR(feed))
		return feed;
	feed->simulated = simulated;
	err = sluice_channel_register_or_put(&feed->channel);
	return err ? ERR_PTR(err) : feed;
}

struct sluice_feed *sluice_feed_create(const char *name, umode_t mode, size_t capacity)
{
	return *name ? sluice_feed_create_as(name, mode, capacity, false) : ERR_PTR(-EINVAL);
}
EXPORT_SYMBOL_GPL(sluice_feed_create);

/* Under session_lock. True if the session had not ended before. */
static bool end_session(struct sluice_feed *feed)
{
	bool ends;

	raw_spin_lock_irq(&feed->lock);
	ends = !feed->session->ended;
	if (ends)
		sluice_feed_session_end(feed, SLUICE_RING_CLOSED);
	raw_spin_unlock_irq(&feed->lock);
	sluice_wait_wake_all(feed->session->wait, 0);
	return ends;
}

void sluice_feed_destroy(struct sluice_feed *feed)
{
	bool ends;

	spin_lock(&feed->session_lock);
	feed->destroyed = true;
	ends = feed->session && end_session(feed);
	spin_unlock(&feed->session_lock);
	if (ends)
		trace_sluice_feed_end(&feed->channel, SLUICE_RING_CLOSED);
	sluice_channel_unregister(&feed->channel);
}
EXPORT_SYMBOL_GPL(sluice_feed_destroy);

static void feed_fill_state(struct sluice_channel *channel, void *state)
{
	fill_feed_info(feed_of(channel), state);
}

/* Under session_lock: the unreleased bytes. The consumer may store any position. */
static u64 unreleased(const struct sluice_feed *feed)
{
	const struct sluice_feed_session *session = feed->session;
	const struct sluice_ring_ctrl *peer;
	u64 pos = READ_ONCE(session->tail);

	if (session->maps) {
		peer = sluice_ring_memory_ctrl(session->memory, SLUICE_RING_SIDE_CONSUMER);
		pos = READ_ONCE(peer->pos);
	}
	return min(READ_ONCE(session->head) - pos, feed->capacity);
}

static void feed_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	struct sluice_feed *feed = feed_of(channel);

	spin_lock(&feed->session_lock);
	info->readers = feed->session ? 1 : 0;
	info->writers = !feed->destroyed;
	info->bytes = feed->session ? unreleased(feed) : 0;
	info->waiting = feed->session && sluice_wait_is_used(&feed->session->wait->head);
	spin_unlock(&feed->session_lock);
	info->capacity = feed->capacity;
	info->messages = READ_ONCE(feed->published);
	info->lost = READ_ONCE(feed->lost);
}

static const struct file_operations feed_fops = {
	.owner		= THIS_MODULE,
	.open		= feed_open,
	.release	= sluice_endpoint_release,
	.show_fdinfo	= sluice_endpoint_show_fdinfo,
	.read_iter	= feed_read_iter,
	.mmap		= feed_mmap,
	.poll		= feed_poll,
	.unlocked_ioctl	= feed_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

const struct sluice_kind sluice_feed_kind = {
	.number		= SLUICE_KIND_FEED,
	.name		= "feed",
	.file_name	= "[sluice-feed]",
	.node_mode	= 0660,
	.is_mapped	= true,
	.is_kernels	= true,
	.fops		= &feed_fops,
	.init		= sluice_feed_simulator_init,
	.exit		= sluice_feed_simulator_exit,
	.create		= feed_refuse_create,
	.free		= feed_free,
	.endpoint_size	= sizeof(struct sluice_feed_endpoint),
	.attach		= feed_attach,
	.detach		= feed_detach,
	.fill_info	= feed_fill_info,
	.state_size	= sizeof(struct sluice_feed_info),
	.state_size_ver0 = SLUICE_FEED_INFO_SIZE_VER0,
	.fill_state	= feed_fill_state,
};
