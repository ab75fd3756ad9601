// SPDX-License-Identifier: GPL-2.0
/*
 * Sending on a bus. A message is copied into the ring once, however many receive it.
 *
 * A long message is copied to a buffer of the kernel first, and so is one whose memory is not
 * present: the copy into the ring is then short and without faults (bus.h).
 */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/pagemap.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "bus.h"

struct message {
	struct sluice_bus_opener *sender;
	u64 target;			/* id, or 0 */
	u64 tag;
	u64 chosen;			/* multicast: id of the subscriber whose turn it is, or 0 */
	int turns;			/* taken to find it */
	size_t length;
	struct iov_iter *from;		/* the bytes */
	void *buffer;			/* them, if not NULL */
};

/* ---- frames ---- */

/* The rest of a structure that is longer than ours must be zero. */
static int skip_zeros(struct iov_iter *from, size_t length)
{
	u8 bytes[64];

	while (length) {
		size_t part = min(length, sizeof(bytes));

		if (!copy_from_iter_full(bytes, part, from))
			return -EFAULT;
		if (memchr_inv(bytes, 0, part))
			return -E2BIG;
		length -= part;
	}
	return 0;
}

/* Reads what precedes the bytes of the message. 0, -EFAULT, -EINVAL, -E2BIG. */
static int read_frame(struct iov_iter *from, struct message *message)
{
	struct sluice_bus_frame frame;
	size_t count = iov_iter_count(from);
	int err;

	if (count < sizeof(frame))
		return -EINVAL;
	if (!copy_from_iter_full(&frame, sizeof(frame), from))
		return -EFAULT;
	if (frame.size < sizeof(frame) || frame.size > min_t(size_t, count, PAGE_SIZE) ||
	    frame.sender | frame.sequence | frame.lost | frame.pid | frame.uid | frame.gid |
	    frame.reserved)
		return -EINVAL;
	err = frame.size > sizeof(frame) ? skip_zeros(from, frame.size - sizeof(frame)) : 0;
	if (err)
		return err;
	message->target = frame.target;
	message->tag = frame.tag;
	return frame.length == iov_iter_count(from) ? 0 : -EINVAL;
}

/* ---- the copy ---- */

/* The bytes of the message into a buffer, which is charged to the caller. 0, -ENOMEM, -EFAULT. */
static int read_buffer(struct message *message)
{
	message->buffer = kvmalloc(message->length, SLUICE_QUOTA_GFP);
	if (!message->buffer)
		return -ENOMEM;
	return copy_from_iter_full(message->buffer, message->length, message->from) ? 0 : -EFAULT;
}

/* Without page faults. False: some page is not present. */
static bool copy_to_slot(struct sluice_bus *bus, const struct sluice_bus_slot *slot,
			 const struct message *message)
{
	void *data = sluice_bus_data(bus, slot);
	size_t copied;

	if (message->buffer) {
		memcpy(data, message->buffer, message->length);
		return true;
	}
	pagefault_disable();
	/* Not copy_from_iter(), whose check of @data knows no objects in the memory of a ring. */
	copied = _copy_from_iter(data, message->length, message->from);
	pagefault_enable();
	if (copied == message->length)
		return true;
	iov_iter_revert(message->from, copied);
	if (bus->mappable)
		memset(data, 0, copied);
	return false;
}

/* One attempt: 0, -ENOSPC: no room before the tail, -EFAULT: some page is not present. */
static int bus_put_message(struct sluice_bus *bus, const struct message *message,
			   const struct sluice_bus_subscriber *target)
{
	struct sluice_bus_slot *slot;
	bool discarded;

	preempt_disable();
	slot = sluice_bus_reserve(bus, message->length);
	if (!slot) {
		preempt_enable();
		return -ENOSPC;
	}
	slot->target = target ? target->id : 0;
	slot->tag = message->tag;
	slot->sender = message->sender;
	if (!READ_ONCE(message->sender->has_sent))
		WRITE_ONCE(message->sender->has_sent, true);
	discarded = !copy_to_slot(bus, slot, message);
	slot->discarded = discarded;
	sluice_bus_commit(bus, slot);
	if (discarded)
		atomic64_inc(&bus->discarded);	/* (bus-V) */
	preempt_enable();
	return discarded ? -EFAULT : 0;
}

static void wake_receivers(struct sluice_bus *bus, struct sluice_bus_subscriber *target)
{
	const __poll_t events = EPOLLIN | EPOLLRDNORM;

	if (bus->mode == SLUICE_BUS_UNICAST) {
		sluice_wait_wake_one(&bus->readable, events);
		return;
	}
	if (bus->mode == SLUICE_BUS_MULTICAST)
		sluice_wait_wake_all(&target->readable, events);
	/* In the mode multicast these are monitors. */
	sluice_wait_wake_all(&bus->readable, events);
}

/* ---- the target ---- */

/* Under RCU: the subscriber whose turn it is, also for further attempts to send this message. */
static int next_target(struct sluice_bus *bus, struct message *message,
		       struct sluice_bus_subscriber **target)
{
	int err = sluice_bus_subscriber_next(bus, target);

	message->turns++;
	message->chosen = *target ? (*target)->id : 0;
	return err;
}

/* The turns that were not used are those of other messages. */
static void return_turns(struct sluice_bus *bus, const struct message *message, int err)
{
	int unused = message->turns - !err;

	if (message->turns && unused)
		atomic_sub(unused, &bus->turn);
}

/*
 * Under RCU: the subscriber to which the message goes; NULL: to all, or to the queue. -EAGAIN: it
 * is full. -ENOTCONN, -ENOENT.
 */
static struct sluice_bus_subscriber *choose_target(struct sluice_bus *bus, struct message *message)
{
	u64 id = message->target ?: message->chosen;
	struct sluice_bus_subscriber *target = id ? sluice_bus_subscriber_find(bus, id) : NULL;
	int err = 0;

	if (message->target && !target)
		return ERR_PTR(-ENOENT);
	if (bus->mode != SLUICE_BUS_MULTICAST && !message->target)
		return NULL;
	if (target && sluice_bus_is_full(target)) {
		if (target->policy != SLUICE_BUS_DROP)
			err = -EAGAIN;
		else if (!message->target)
			target = NULL;	/* filled meanwhile: it is skipped */
	}
	if (!target)
		err = next_target(bus, message, &target);
	if (!err)
		return target;
	if (target && target->policy == SLUICE_BUS_EVICT)
		sluice_bus_evict(bus, target);
	return ERR_PTR(err);
}

/*
 * One attempt to send: 0, or an error. -ENOSPC: no room before the tail, -EAGAIN: no subscriber can
 * take it, -EFAULT: some page is not present.
 */
static int try_send(struct sluice_bus *bus, struct message *message)
{
	struct sluice_bus_subscriber *target;
	int err;

	rcu_read_lock();
	target = choose_target(bus, message);
	if (IS_ERR(target)) {
		rcu_read_unlock();
		return PTR_ERR(target);
	}
	if (target)
		sluice_bus_unread_add(target, message->length);
	err = bus_put_message(bus, message, target);
	/* Meanwhile it may have held room that other senders need. */
	if (err && target && sluice_bus_unread_sub(target, message->length))
		sluice_bus_wake_senders(bus);
	/* Also for a slot without a message: it holds room until a receiver has passed it. */
	if (!err || err == -EFAULT)
		wake_receivers(bus, target);
	rcu_read_unlock();
	return err;
}

/* ---- waiting for room ---- */

/* Whether no subscriber can take the message now. */
static bool targets_are_full(struct sluice_bus *bus, const struct message *message)
{
	u64 id = message->target ?: message->chosen;
	struct sluice_bus_subscriber *target;
	bool full = false;

	rcu_read_lock();
	if (id) {
		target = sluice_bus_subscriber_find(bus, id);
		full = target && target->policy == SLUICE_BUS_BLOCK && sluice_bus_is_full(target);
	} else if (bus->mode == SLUICE_BUS_MULTICAST) {
		full = sluice_bus_subscribers_are_full(bus);
	}
	rcu_read_unlock();
	return full;
}

/* Whether an attempt may succeed, with this room in the ring. */
static bool may_send(struct sluice_bus *bus, const struct message *message, size_t room)
{
	return READ_ONCE(bus->destroyed) ||
	       (sluice_bus_has_room(bus, room) && !targets_are_full(bus, message));
}

/* A server that is full itself may wait to send a reply to a client that is not. */
bool sluice_bus_is_writable(struct sluice_bus_endpoint *end)
{
	struct sluice_bus *bus = end->bus;
	size_t room = max_t(size_t, sluice_bus_message_max(bus), bus->capacity / 4);
	struct message any = {};

	if (end->subscriber && bus->mode == SLUICE_BUS_MULTICAST &&
	    !(end->subscriber->flags & (SLUICE_BUS_ADDRESSED | SLUICE_BUS_MONITOR)))
		return READ_ONCE(bus->destroyed) || sluice_bus_has_room(bus, room);
	return may_send(bus, &any, room);
}

/*
 * A sender that has slept finds room for several messages, so that it does not sleep for each. The
 * amounts are those for which sluice_bus_frees_room() wakes it.
 */
static int wait_for_room(struct sluice_bus_endpoint *end, const struct message *message)
{
	struct sluice_bus *bus = end->bus;
	size_t quarter = bus->capacity / 4;
	size_t room = message->length > quarter ? sluice_bus_message_max(bus) : quarter;

	return sluice_wait_until_shared(bus->writable, may_send(bus, message, room), &end->spin);
}

static bool has_nobody(const struct sluice_bus *bus)
{
	return bus->mode == SLUICE_BUS_BROADCAST && !READ_ONCE(bus->subscriber_count) &&
	       !READ_ONCE(bus->monitor_count);
}

/* After a failed attempt: whether another one fails, too, until something changes. */
static bool is_hopeless(struct sluice_bus *bus, const struct message *message, int err)
{
	if (err == -ENOSPC)
		return !sluice_bus_make_room(bus, message->length);
	return targets_are_full(bus, message);
}

/* Sends the message, and waits for room unless @nonblocking. */
static int bus_send_message(struct sluice_bus_endpoint *end, struct message *message,
			    bool nonblocking)
{
	struct sluice_bus *bus = end->bus;
	unsigned int attempts = 0;
	int err;

	for (;;) {
		if (READ_ONCE(bus->destroyed))
			return -EPIPE;
		if (!message->target && has_nobody(bus)) {
			atomic64_inc(&bus->unsubscribed);
			return 0;
		}
		if (!message->buffer &&
		    (message->length > SLUICE_BUS_DIRECT_MAX ||
		     attempts == SLUICE_BUS_DIRECT_ATTEMPTS)) {
			err = read_buffer(message);
			if (err)
				return err;
		}
		err = try_send(bus, message);
		if (err == -EFAULT) {
			attempts++;
			fault_in_iov_iter_readable(message->from, message->length);
			continue;
		}
		if (err != -EAGAIN && err != -ENOSPC)
			return err;
		if (!is_hopeless(bus, message, err))
			err = sluice_bus_check_killed();
		else
			err = nonblocking ? -EAGAIN : wait_for_room(end, message);
		if (err)
			return err;
		cond_resched();
	}
}

ssize_t sluice_bus_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(iocb->ki_filp);
	struct message message = { .sender = end->opener, .from = from };
	size_t count = iov_iter_count(from);
	int err = 0;

	if (READ_ONCE(end->format) != SLUICE_BUS_RAW)
		err = read_frame(from, &message);
	if (err)
		return err;
	message.length = iov_iter_count(from);
	if (message.length > sluice_bus_message_max(end->bus))
		return -EMSGSIZE;
	if (message.target && (end->bus->mode == SLUICE_BUS_UNICAST || end->bus->mappable))
		return -EOPNOTSUPP;
	err = bus_send_message(end, &message, sluice_bus_is_nonblocking(iocb));
	return_turns(end->bus, &message, err);
	if (unlikely(message.buffer))	/* The free of NULL takes a twentieth of a send. */
		kvfree(message.buffer);
	return err ?: count;
}
