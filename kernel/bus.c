// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/termios.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>

#include <uapi/linux/sluice.h>

#include "bus.h"
#include "channel.h"
#include "endpoint.h"
#include "kind.h"
#include "ring_memory.h"
#include "user_struct.h"
#include "wait.h"

#define DEFAULT_CAPACITY SZ_1M
#define SUBSCRIBERS_LIMIT 1024
#define POLICIES (SLUICE_BUS_DROP | SLUICE_BUS_BLOCK | SLUICE_BUS_EVICT)
#define OWN_FLAGS (SLUICE_BUS_MAPPED | SLUICE_BUS_MONITOR | SLUICE_BUS_ADDRESSED)
#define FLAGS (SLUICE_BUS_MAPPABLE | OWN_FLAGS)

static unsigned int bus_max_subscribers = 256;
module_param(bus_max_subscribers, uint, 0644);
MODULE_PARM_DESC(bus_max_subscribers, "Maximum number of subscribers of a bus that is created from now on, and of its clients (1 to 1024)");

static struct sluice_bus *bus_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_bus, channel);
}

static struct sluice_bus_endpoint *bus_endpoint_of(struct sluice_endpoint *endpoint)
{
	return container_of(endpoint, struct sluice_bus_endpoint, endpoint);
}

/* ---- parameters ---- */

static const struct sluice_bus_params no_params;

/* Those that any bus refuses. */
static bool bus_params_are_valid(const struct sluice_bus_params *params)
{
	return !(params->flags & ~FLAGS) && params->mode <= SLUICE_BUS_UNICAST &&
	       !(params->policies & ~POLICIES) && !(params->policy & ~POLICIES) &&
	       hweight32(params->policy) <= 1 && params->format <= SLUICE_BUS_BATCHED &&
	       params->limit <= SLUICE_BUS_CAPACITY_MAX;
}

/* The policy for a subscriber that requests none. */
static u32 default_policy(const struct sluice_bus *bus, const struct sluice_bus_params *params)
{
	if (params->flags & SLUICE_BUS_MAPPED)
		return SLUICE_BUS_BLOCK;
	return bus->policies & -bus->policies;
}

/*
 * Completes the parameters of a subscriber. -EINVAL: they contradict each other or the bus. -EPERM:
 * the bus does not permit the policy, or the caller no monitor.
 */
static int bus_resolve(const struct sluice_bus *bus, struct sluice_bus_params *params)
{
	bool maps = params->flags & SLUICE_BUS_MAPPED;

	if (params->flags & SLUICE_BUS_ADDRESSED &&
	    (bus->mode != SLUICE_BUS_MULTICAST || params->flags & SLUICE_BUS_MONITOR))
		return -EINVAL;
	if (params->flags & SLUICE_BUS_MONITOR) {
		if (maps || params->policy & ~SLUICE_BUS_DROP)
			return -EINVAL;
		params->policy = SLUICE_BUS_DROP;
		return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
	}
	if (bus->mode == SLUICE_BUS_UNICAST)
		return maps || params->policy ? -EINVAL : 0;
	params->policy = params->policy ?: default_policy(bus, params);
	if (maps && (!bus->mappable || params->policy != SLUICE_BUS_BLOCK || params->format))
		return -EINVAL;
	return params->policy & bus->policies ? 0 : -EPERM;
}

/* ---- endpoints ---- */

static int subscribe(struct sluice_bus_endpoint *end, const struct sluice_bus_params *given)
{
	struct sluice_bus_params params = *given;
	struct sluice_bus *bus = end->bus;
	int err = bus_resolve(bus, &params);

	if (err)
		return err;
	if (bus->queue && !(params.flags & SLUICE_BUS_MONITOR)) {
		end->subscriber = bus->queue;
		return 0;
	}
	end->subscriber = sluice_bus_subscriber_create(bus, end->opener, &params);
	if (!end->subscriber)
		return -ENOMEM;
	err = sluice_bus_subscriber_add(bus, end->subscriber);
	if (err)
		kfree(end->subscriber);
	return err;
}

static void bus_count_endpoint(struct sluice_bus_endpoint *end, int number)
{
	struct sluice_bus *bus = end->bus;

	spin_lock(&bus->lock);
	if (end->endpoint.flags & SLUICE_OPEN_WRITE)
		bus->senders += number;
	if (bus->queue && end->subscriber == bus->queue)
		bus->receivers += number;
	spin_unlock(&bus->lock);
}

static int bus_attach(struct sluice_endpoint *endpoint, const void *given)
{
	struct sluice_bus_endpoint *end = bus_endpoint_of(endpoint);
	const struct sluice_bus_params *params = given ?: &no_params;
	int err = 0;

	end->bus = bus_of(endpoint->channel);
	if (!bus_params_are_valid(params))
		return -EINVAL;
	if (READ_ONCE(end->bus->destroyed))
		return -EPIPE;
	end->opener = sluice_bus_opener_create(end->bus);
	if (!end->opener)
		return -ENOMEM;
	end->format = params->format;
	sluice_spin_init(&end->spin);
	if (endpoint->flags & SLUICE_OPEN_READ)
		err = subscribe(end, params);
	else if (params->flags & OWN_FLAGS || params->policy)
		err = -EINVAL;
	if (err)
		sluice_bus_opener_depart(end->bus, end->opener);
	else
		bus_count_endpoint(end, 1);
	return err;
}

static void bus_detach(struct sluice_endpoint *endpoint)
{
	struct sluice_bus_endpoint *end = bus_endpoint_of(endpoint);

	bus_count_endpoint(end, -1);
	if (end->subscriber && end->subscriber != end->bus->queue)
		sluice_bus_subscriber_remove(end->bus, end->subscriber);
	sluice_bus_opener_depart(end->bus, end->opener);
}

static __poll_t bus_poll(struct file *file, poll_table *table)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(file);
	struct sluice_bus *bus = end->bus;
	__poll_t events = 0;
	int length;

	if (end->subscriber)
		sluice_wait_poll(file, sluice_bus_readable(bus, end->subscriber), table);
	if (file->f_mode & FMODE_WRITE)
		sluice_wait_poll(file, &bus->writable, table);
	if (READ_ONCE(bus->destroyed))
		return EPOLLHUP | EPOLLERR;
	if (end->subscriber && atomic_read(&end->subscriber->notice))
		events |= EPOLLIN | EPOLLRDNORM | EPOLLPRI;
	length = end->subscriber ? sluice_bus_next_length(end) : -EAGAIN;
	if (length >= 0)
		events |= EPOLLIN | EPOLLRDNORM;
	else if (length == -ESHUTDOWN)
		events |= EPOLLHUP;
	if (file->f_mode & FMODE_WRITE && sluice_bus_is_writable(end))
		events |= EPOLLOUT | EPOLLWRNORM;
	return events;
}

static int bus_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(file);

	if (!end->subscriber || !(end->subscriber->flags & SLUICE_BUS_MAPPED))
		return -EACCES;
	if (vma->vm_pgoff != SLUICE_BUS_MMAP_DATA >> PAGE_SHIFT)
		return -EINVAL;
	return sluice_ring_memory_mmap(end->bus->memory, vma, SLUICE_RING_SIDE_CONSUMER);
}

/* ---- state ---- */

/* Under the lock. Messages from its cursor on; of an evicted subscriber none. */
static u64 lag_of(const struct sluice_bus *bus, const struct sluice_bus_subscriber *subscriber)
{
	u64 head = sluice_bus_head_sequence(bus), cursor = sluice_bus_cursor(subscriber);

	if (bus->mode == SLUICE_BUS_MULTICAST && !sluice_bus_is_monitor(subscriber))
		return atomic64_read(&subscriber->unread);
	return head > cursor ? head - cursor : 0;
}

/* Under the lock. Adds the calls that sleep to @waiting, and returns the greatest lag. */
static u64 look_at_receivers(struct sluice_bus *bus, u32 *waiting)
{
	u64 lag = bus->queue ? lag_of(bus, bus->queue) : 0;
	struct sluice_bus_subscriber *subscriber;
	unsigned int i;

	*waiting += sluice_wait_count(&bus->readable) + sluice_wait_count(&bus->writable);
	sluice_bus_for_each_subscriber(bus, subscriber, i) {
		*waiting += sluice_wait_count(&subscriber->readable);
		if (!sluice_bus_is_monitor(subscriber))
			lag = max(lag, lag_of(bus, subscriber));
	}
	return lag;
}

/*
 * Under the lock: the messages since creation. A reservation counts until it is discarded, hence
 * the maximum. (bus-V) A sender increments `discarded` after the full barrier of its reservation,
 * and this loads `discarded` with acquire before `head`: the difference is not negative.
 */
static u64 sent(struct sluice_bus *bus)
{
	u64 discarded = atomic64_read_acquire(&bus->discarded);	/* (bus-V) */

	bus->reported = max(bus->reported,
			    sluice_bus_head_sequence(bus) - SLUICE_BUS_FIRST - discarded);
	return bus->reported;
}

static void bus_fill_state(struct sluice_channel *channel, void *state)
{
	struct sluice_bus *bus = bus_of(channel);
	struct sluice_bus_info *info = state;
	u32 waiting = 0;

	spin_lock(&bus->lock);
	*info = (struct sluice_bus_info) {
		.flags = bus->mappable ? SLUICE_BUS_MAPPABLE : 0,
		.mode = bus->mode,
		.policies = bus->queue ? 0 : bus->policies,
		.capacity = bus->capacity,
		.message_max = sluice_bus_message_max(bus),
		.subscribers = bus->queue ? bus->receivers : bus->subscriber_count,
		.senders = bus->senders,
		.sent = sent(bus),
		.unsubscribed = atomic64_read(&bus->unsubscribed),
		.lost = bus->lost,
		.evicted = bus->evicted,
		.lag = look_at_receivers(bus, &waiting),
	};
	spin_unlock(&bus->lock);
}

static void bus_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	struct sluice_bus *bus = bus_of(channel);

	spin_lock(&bus->lock);
	info->readers = bus->queue ? bus->receivers : bus->subscriber_count;
	info->writers = bus->senders;
	info->capacity = bus->capacity;
	info->bytes = sluice_bus_bytes(bus);
	info->messages = sent(bus);
	info->lost = bus->lost;
	info->lag = look_at_receivers(bus, &info->waiting);
	spin_unlock(&bus->lock);
}

static void fill_own_info(struct sluice_bus_endpoint *end, struct sluice_bus_info *info)
{
	struct sluice_bus_subscriber *subscriber = end->subscriber;

	bus_fill_state(&end->bus->channel, info);
	info->id = end->opener->id;
	info->format = READ_ONCE(end->format);
	info->spin_limit_ns = READ_ONCE(end->spin.limit_ns);
	if (!subscriber)
		return;
	spin_lock(&end->bus->lock);
	info->flags |= subscriber->flags;
	info->policy = subscriber->policy;
	info->own_lost = subscriber->lost;
	info->own_lag = lag_of(end->bus, subscriber);
	spin_unlock(&end->bus->lock);
}

static long bus_get_info(struct sluice_bus_endpoint *end, struct sluice_bus_info __user *user)
{
	struct sluice_bus_info info;
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_BUS_INFO_SIZE_VER0, &user_size);

	if (err)
		return err;
	fill_own_info(end, &info);
	return sluice_user_struct_write(user, &info, sizeof(info), user_size);
}

/* ---- the list of subscribers ---- */

/* Under the lock: the subscriber with the smallest id that is greater than @id, or NULL. */
static const struct sluice_bus_subscriber *subscriber_after(struct sluice_bus *bus, u64 id)
{
	/* A client asks for its server, by `after` + 1. */
	struct sluice_bus_subscriber *subscriber, *next = sluice_bus_subscriber_find(bus, id + 1);
	unsigned int i;

	if (next)
		return next;
	sluice_bus_for_each_subscriber(bus, subscriber, i)
		if (subscriber->id > id && (!next || subscriber->id < next->id))
			next = subscriber;
	return next;
}

/* Under the lock. */
static void fill_subscriber(const struct sluice_bus *bus,
			    const struct sluice_bus_subscriber *subscriber,
			    struct sluice_bus_subscriber_info *info)
{
	*info = (struct sluice_bus_subscriber_info) {
		.id = subscriber->id,
		.policy = subscriber->policy,
		.flags = subscriber->flags,
		.lag = lag_of(bus, subscriber),
		.lost = subscriber->lost,
		.pid = pid_nr_ns(subscriber->opener->pid, task_active_pid_ns(current)),
		.uid = from_kuid_munged(current_user_ns(), subscriber->opener->uid),
	};
}

static u32 list_subscribers(struct sluice_bus *bus, u64 after, u32 count,
			    struct sluice_bus_subscriber_info *infos)
{
	const struct sluice_bus_subscriber *subscriber;
	u32 filled;

	for (filled = 0; filled < count; filled++) {
		/* Once per entry: each search looks at all subscribers. */
		spin_lock(&bus->lock);
		subscriber = subscriber_after(bus, after);
		if (subscriber) {
			fill_subscriber(bus, subscriber, &infos[filled]);
			after = subscriber->id;
		}
		spin_unlock(&bus->lock);
		if (!subscriber)
			break;
		cond_resched();
	}
	return filled;
}

static long get_subscribers(struct sluice_bus *bus, struct sluice_bus_subscribers __user *user)
{
	struct sluice_bus_subscriber_info *infos;
	struct sluice_bus_subscribers list;
	long ret;

	ret = sluice_user_struct_read(&list, sizeof(list), SLUICE_BUS_SUBSCRIBERS_SIZE_VER0, user);
	if (ret)
		return ret;
	if (list.reserved || !sluice_user_is_entry_size(list.entry_size,
							SLUICE_BUS_SUBSCRIBER_INFO_SIZE_VER0))
		return -EINVAL;
	infos = kcalloc(SLUICE_BUS_SUBSCRIBERS_MAX, sizeof(*infos), SLUICE_QUOTA_GFP);
	if (!infos)
		return -ENOMEM;
	list.count = list_subscribers(bus, list.after,
				      min_t(u32, list.count, SLUICE_BUS_SUBSCRIBERS_MAX), infos);
	if (sluice_user_array_write(u64_to_user_ptr(list.entries), list.entry_size, infos,
				    sizeof(*infos), list.count) ||
	    put_user(list.count, &user->count))
		ret = -EFAULT;
	kfree(infos);
	return ret;
}

/* ---- calls on an endpoint ---- */

static long set_format(struct sluice_bus_endpoint *end, u64 format)
{
	if (format > SLUICE_BUS_BATCHED)
		return -EINVAL;
	if (end->subscriber && end->subscriber->flags & SLUICE_BUS_MAPPED)
		return -EINVAL;
	WRITE_ONCE(end->format, format);
	return format;
}

static long bus_change_setting(struct sluice_bus_endpoint *end, unsigned int number,
			       struct sluice_setting __user *user)
{
	u64 value;
	long ret = sluice_user_setting_read(&value, user);

	if (ret)
		return ret;
	if (number == _IOC_NR(SLUICE_BUS_SET_FORMAT))
		ret = set_format(end, value);
	else
		ret = sluice_spin_set_limit(&end->spin, value);
	if (ret < 0)
		return ret;
	return put_user((u64)ret, &user->value);
}

/* Also of a full server, unless its policy is DROP: the send then waits, or evicts it. */
static long take_turn(struct sluice_bus *bus, u64 *id)
{
	struct sluice_bus_subscriber *subscriber;
	int err;

	if (*id)
		return -EINVAL;
	if (bus->mode != SLUICE_BUS_MULTICAST)
		return -EOPNOTSUPP;
	if (READ_ONCE(bus->destroyed))
		return -EPIPE;
	rcu_read_lock();
	err = sluice_bus_subscriber_next(bus, &subscriber);
	if (subscriber)
		*id = subscriber->id;
	rcu_read_unlock();
	if (*id)
		return 0;
	/* A failed attempt uses no turn. */
	atomic64_dec(&bus->turn);
	return err;
}

static long bus_take_turn(struct file *file, struct sluice_setting __user *user)
{
	u64 value;
	long ret = sluice_user_setting_read(&value, user);

	if (ret)
		return ret;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	ret = take_turn(sluice_bus_endpoint(file)->bus, &value);
	return ret ?: put_user(value, &user->value);
}

static long get_next_length(struct sluice_bus_endpoint *end, int __user *user)
{
	int length = end->subscriber ? sluice_bus_next_length(end) : -EBADF;

	if (length == -EAGAIN)
		length = 0;
	return length < 0 ? length : put_user(length, user);
}

static long bus_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(file);
	void __user *user = (void __user *)argument;

	if (command == FIONREAD)
		return get_next_length(end, user);
	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* Only by number: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_BUS_SET_FORMAT):
	case _IOC_NR(SLUICE_BUS_SET_SPIN):
		return bus_change_setting(end, _IOC_NR(command), user);
	case _IOC_NR(SLUICE_BUS_INFO):
		return bus_get_info(end, user);
	case _IOC_NR(SLUICE_BUS_RECEIVE):
		return sluice_bus_receive_mapped(file, user);
	case _IOC_NR(SLUICE_BUS_SUBSCRIBERS):
		return get_subscribers(end->bus, user);
	case _IOC_NR(SLUICE_BUS_TURN):
		return bus_take_turn(file, user);
	default:
		return sluice_endpoint_ioctl(file, command, user);
	}
}

/* ---- lifetime of the channel ---- */

/* The capacity for a request, or 0. */
static u64 bus_capacity_for(u64 bytes)
{
	if (bytes > SLUICE_BUS_CAPACITY_MAX)
		return 0;
	return bytes ? roundup_pow_of_two(max_t(u64, bytes, PAGE_SIZE)) : DEFAULT_CAPACITY;
}

/* Mapped subscribers need the policy BLOCK and messages that all may see. */
static bool may_create(const struct sluice_bus_params *params)
{
	if (!bus_params_are_valid(params))
		return false;
	if (params->mode == SLUICE_BUS_UNICAST && params->policies)
		return false;
	return !(params->flags & SLUICE_BUS_MAPPABLE) ||
	       (params->mode == SLUICE_BUS_BROADCAST && params->policies & SLUICE_BUS_BLOCK);
}

static int bus_allocate(struct sluice_bus *bus)
{
	int err = sluice_bus_ring_init(bus);

	if (err)
		return err;
	bus->table = sluice_channel_kvcalloc(&bus->channel, 2 * bus->room + SLUICE_BUS_MONITORS_MAX,
					     sizeof(*bus->table), SLUICE_QUOTA_GFP);
	if (!bus->table)
		return -ENOMEM;
	if (bus->mode != SLUICE_BUS_UNICAST)
		return 0;
	bus->queue = sluice_bus_subscriber_create(bus, NULL, &no_params);
	return bus->queue ? 0 : -ENOMEM;
}

static void bus_release_parts(struct sluice_bus *bus)
{
	sluice_bus_openers_free(&bus->departed);
	kfree(bus->queue);
	xa_destroy(&bus->subscribers);
	kvfree(bus->table);
	sluice_bus_ring_exit(bus);
}

static struct sluice_channel *bus_create(const struct sluice_channel_request *request)
{
	const struct sluice_bus_params *params = request->params ?: &no_params;
	u64 capacity = bus_capacity_for(request->capacity);
	struct sluice_bus *bus;
	int err;

	if (!capacity || !may_create(params))
		return ERR_PTR(-EINVAL);
	bus = kzalloc(sizeof(*bus), request->gfp);
	if (!bus)
		return ERR_PTR(-ENOMEM);
	err = sluice_channel_init(&bus->channel, request, capacity);
	if (err)
		goto free_bus;
	bus->capacity = capacity;
	bus->mode = params->mode;
	bus->policies = params->policies ?: SLUICE_BUS_DROP | SLUICE_BUS_EVICT;
	bus->mappable = params->flags & SLUICE_BUS_MAPPABLE;
	bus->room = clamp_t(u32, READ_ONCE(bus_max_subscribers), 1, SUBSCRIBERS_LIMIT);
	xa_init_flags(&bus->subscribers, XA_FLAGS_ACCOUNT);
	spin_lock_init(&bus->lock);
	INIT_LIST_HEAD(&bus->departed);
	sluice_wait_queue_init(&bus->readable);
	sluice_wait_queue_init(&bus->writable);
	err = bus_allocate(bus);
	if (!err)
		return &bus->channel;
	bus_release_parts(bus);
	sluice_channel_exit(&bus->channel);
free_bus:
	kfree(bus);
	return ERR_PTR(err);
}

static void bus_free(struct sluice_channel *channel)
{
	struct sluice_bus *bus = bus_of(channel);

	bus_release_parts(bus);
	kfree(bus);
}

static void bus_destroy(struct sluice_channel *channel)
{
	struct sluice_bus *bus = bus_of(channel);

	WRITE_ONCE(bus->destroyed, true);
	sluice_bus_wake_all(bus);
}

static const struct file_operations bus_fops = {
	.owner		= THIS_MODULE,
	.release	= sluice_endpoint_release,
	.show_fdinfo	= sluice_endpoint_show_fdinfo,
	.read_iter	= sluice_bus_read_iter,
	.write_iter	= sluice_bus_write_iter,
	.poll		= bus_poll,
	.mmap		= bus_mmap,
	.unlocked_ioctl	= bus_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

const struct sluice_kind sluice_bus_kind = {
	.number		= SLUICE_KIND_BUS,
	.name		= "bus",
	.file_name	= "[sluice-bus]",
	.fops		= &bus_fops,
	.create		= bus_create,
	.free		= bus_free,
	.destroy	= bus_destroy,
	.endpoint_size	= sizeof(struct sluice_bus_endpoint),
	.attach		= bus_attach,
	.detach		= bus_detach,
	.fill_info	= bus_fill_info,
	.params_size	= sizeof(struct sluice_bus_params),
	.params_size_ver0 = SLUICE_BUS_PARAMS_SIZE_VER0,
	.state_size	= sizeof(struct sluice_bus_info),
	.state_size_ver0 = SLUICE_BUS_INFO_SIZE_VER0,
	.fill_state	= bus_fill_state,
};
