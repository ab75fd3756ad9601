// SPDX-License-Identifier: GPL-2.0
/*
 * Sending on a bus. A message is copied into the ring once, however many receive it.
 *
 * A long message is copied to a buffer of the kernel first, and so is one whose memory is not
 * present: the copy into the ring is then short and without faults (bus.h).
 *
 * The short messages of a batch are copied together, with their frames, to a buffer of the kernel,
 * and sent from there as long as none of them has to wait. The others, and those that are refused,
 * are sent one by one. A run of messages without targets is reserved together.
 */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/pagemap.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "bus.h"
#include "short_copy.h"

#define FRAME_ALIGN sizeof(u64)
#define CHUNK_BYTES SZ_8K	/* of a batch, with frames, are copied and sent together */
/* The longest first message of a chunk, with its frame: two copies of a longer one cost more. */
#define SHORT_BYTES (CHUNK_BYTES / 4)

struct message {
	struct sluice_bus_opener *sender;
	u64 target;			/* id, or 0 */
	u64 tag;
	u64 chosen;			/* multicast: id of the subscriber whose turn it is, or 0 */
	int turns;			/* taken to find it */
	size_t length;
	struct iov_iter *from;		/* the bytes */
	const void *bytes;		/* the bytes, if in the kernel; or NULL */
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

/*
 * The bytes from a frame to the next one, or to the end of the @count bytes that remain of the
 * write. -EINVAL, also if what follows the message is not enough for a frame: `length` is then not
 * that of the message.
 */
static ssize_t frame_span(const struct sluice_bus_frame *frame, size_t count)
{
	size_t span, gap;

	if (frame->size < sizeof(*frame) || frame->size > min_t(size_t, count, PAGE_SIZE) ||
	    frame->sender | frame->sequence | frame->lost | frame->pid | frame->uid | frame->gid |
	    frame->reserved || frame->length > count - frame->size)
		return -EINVAL;
	span = frame->size + frame->length;
	gap = -span & (FRAME_ALIGN - 1);
	if (span == count)
		return span;
	return count - span < gap + sizeof(*frame) ? -EINVAL : span + gap;
}

/* Reads what precedes the bytes of the message. As frame_span(), also -EFAULT, -E2BIG. */
static ssize_t read_frame(struct iov_iter *from, struct message *message)
{
	struct sluice_bus_frame frame;
	size_t count = iov_iter_count(from);
	ssize_t span;
	int err;

	if (count < sizeof(frame))
		return -EINVAL;
	if (!copy_from_iter_full(&frame, sizeof(frame), from))
		return -EFAULT;
	span = frame_span(&frame, count);
	if (span < 0)
		return span;
	err = frame.size > sizeof(frame) ? skip_zeros(from, frame.size - sizeof(frame)) : 0;
	message->target = frame.target;
	message->tag = frame.tag;
	message->length = frame.length;
	return err ?: span;
}

/* What no state of the bus makes possible: -EMSGSIZE, -EOPNOTSUPP. */
static int check_message(const struct sluice_bus *bus, const struct message *message)
{
	if (message->length > sluice_bus_message_max(bus))
		return -EMSGSIZE;
	if (message->target && (bus->mode == SLUICE_BUS_UNICAST || bus->mappable))
		return -EOPNOTSUPP;
	return 0;
}

/* ---- the copy ---- */

/* The bytes of the message into a buffer, which is charged to the caller. 0, -ENOMEM, -EFAULT. */
static int read_buffer(struct message *message)
{
	void *bytes = kvmalloc(message->length, SLUICE_QUOTA_GFP);

	if (!bytes)
		return -ENOMEM;
	message->bytes = bytes;
	return copy_from_iter_full(bytes, message->length, message->from) ? 0 : -EFAULT;
}

/* Without page faults. False: some page is not present. */
static bool copy_to_slot(struct sluice_bus *bus, const struct sluice_bus_slot *slot,
			 const struct message *message)
{
	void *data = sluice_bus_data(bus, slot);
	size_t copied;

	if (message->bytes) {
		sluice_copy(data, message->bytes, message->length);
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

/* A sender that has sent is kept, because slots refer to it. */
static void mark_sender(struct sluice_bus_opener *sender)
{
	if (!READ_ONCE(sender->has_sent))
		WRITE_ONCE(sender->has_sent, true);
}

/* One attempt: 0, -ENOSPC: no room before the tail, -EFAULT: some page is not present. */
static __always_inline int bus_put_message(struct sluice_bus *bus,
					   const struct message *message,
					   const struct sluice_bus_subscriber *target)
{
	struct sluice_bus_place place;
	struct sluice_bus_slot *slot;
	bool discarded;

	preempt_disable();
	if (!sluice_bus_reserve(bus, 1, sluice_bus_units(message->length), &place)) {
		preempt_enable();
		return -ENOSPC;
	}
	mark_sender(message->sender);
	slot = sluice_bus_next_slot(bus, &place, message->length);
	slot->target = target ? target->id : 0;
	slot->tag = message->tag;
	slot->sender = message->sender;
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
		atomic64_sub(unused, &bus->turn);
}

/*
 * Under RCU: the subscriber to which the message goes; NULL: to all, or to the queue. -EAGAIN: it
 * is full. -ENOTCONN, -ENOENT.
 */
static __always_inline struct sluice_bus_subscriber *
choose_target(struct sluice_bus *bus, struct message *message)
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
 * Under RCU, one attempt to send: 0, or an error. -ENOSPC: no room before the tail, -EAGAIN: no
 * subscriber can take it, -EFAULT: some page is not present. The caller wakes the receivers, also
 * after -EFAULT: a slot without a message holds room until a receiver has passed it. Inlined, with
 * what it calls: of a message that is sent on its own, calls would take a twentieth of the time.
 */
static __always_inline int send_unwoken(struct sluice_bus *bus, struct message *message,
					struct sluice_bus_subscriber **target)
{
	int err;

	*target = choose_target(bus, message);
	if (IS_ERR(*target))
		return PTR_ERR(*target);
	if (*target)
		sluice_bus_unread_add(*target, message->length);
	err = bus_put_message(bus, message, *target);
	/* Meanwhile it may have held room that other senders need. */
	if (err && *target && sluice_bus_unread_sub(*target, message->length))
		sluice_bus_wake_senders(bus);
	return err;
}

/* As send_unwoken(), and wakes the receivers. */
static int try_send(struct sluice_bus *bus, struct message *message)
{
	struct sluice_bus_subscriber *target;
	int err;

	rcu_read_lock();
	err = send_unwoken(bus, message, &target);
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
 * amounts are those for which sluice_bus_frees_room() wakes it. A non-blocking sender tests, too:
 * may_send() stores `wanted`, without which room would not wake its edge-triggered poller.
 */
static int wait_for_room(struct sluice_bus_endpoint *end, const struct message *message,
			 bool nonblocking)
{
	struct sluice_bus *bus = end->bus;
	size_t quarter = bus->capacity / 4;
	size_t room = message->length > quarter ? sluice_bus_message_max(bus) : quarter;

	if (nonblocking)
		return may_send(bus, message, room) ? 0 : -EAGAIN;
	return sluice_wait_until_shared(bus->writable, may_send(bus, message, room), &end->spin);
}

static bool has_nobody(const struct sluice_bus *bus)
{
	return bus->mode == SLUICE_BUS_BROADCAST && !READ_ONCE(bus->subscriber_count) &&
	       !READ_ONCE(bus->monitor_count);
}

/* A broadcast that nobody can receive is not copied. */
static bool is_unsubscribed(struct sluice_bus *bus, const struct message *message)
{
	if (message->target || !has_nobody(bus))
		return false;
	atomic64_inc(&bus->unsubscribed);
	return true;
}

/* After a failed attempt: whether another one fails, too, until something changes. */
static bool is_hopeless(struct sluice_bus *bus, const struct message *message, int err)
{
	if (err == -ENOSPC)
		return !sluice_bus_make_room(bus, message->length);
	return targets_are_full(bus, message);
}

/* Sends the message, and waits for room unless @nonblocking. Leaves turns and a buffer. */
static int send_waiting(struct sluice_bus_endpoint *end, struct message *message,
			bool nonblocking)
{
	struct sluice_bus *bus = end->bus;
	unsigned int attempts = 0;
	int err;

	for (;;) {
		if (READ_ONCE(bus->destroyed))
			return -EPIPE;
		if (is_unsubscribed(bus, message))
			return 0;
		if (!message->bytes &&
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
		err = is_hopeless(bus, message, err) ? wait_for_room(end, message, nonblocking) : 0;
		if (!err)
			err = sluice_bus_check_killed();
		if (err)
			return err;
		cond_resched();
	}
}

/* Sends a message on its own. */
static int bus_send_message(struct sluice_bus_endpoint *end, struct message *message,
			    bool nonblocking)
{
	int err = send_waiting(end, message, nonblocking);

	return_turns(end->bus, message, err);
	if (unlikely(message->bytes))	/* The free of NULL takes a twentieth of a send. */
		kvfree(message->bytes);
	return err;
}

/* ---- batches ---- */

/*
 * The message at the beginning of a part of the chunk: the bytes to the next frame, of at most
 * @count that remain of the write. 0: they are not all present, or the message is not valid.
 */
static size_t next_in_chunk(const struct sluice_bus *bus, const void *part, size_t present,
			    size_t count, struct message *message)
{
	const struct sluice_bus_frame *frame = part;
	ssize_t span;

	if (present < sizeof(*frame) || frame->size != sizeof(*frame) ||
	    frame->length > present - sizeof(*frame))
		return 0;
	span = frame_span(frame, count);
	message->target = frame->target;
	message->tag = frame->tag;
	message->length = frame->length;
	message->bytes = frame + 1;
	return span < 0 || span > present || check_message(bus, message) ? 0 : span;
}

/* The first messages of the chunk, as many as have no target. */
struct run {
	size_t span;			/* bytes, with frames */
	u32 slots;
	u32 units;
};

static struct run find_run(const struct sluice_bus *bus, const void *chunk, size_t present,
			   size_t count)
{
	struct message message;
	struct run run = {};
	size_t span;

	while (run.span < present) {
		span = next_in_chunk(bus, chunk + run.span, present - run.span, count - run.span,
				     &message);
		if (!span || message.target)
			break;
		run.span += span;
		run.slots++;
		run.units += sluice_bus_units(message.length);
	}
	return run;
}

/* One attempt to send a run, whose frames are valid. False: no room before the tail. */
static bool send_run(struct sluice_bus *bus, struct sluice_bus_opener *sender, const void *chunk,
		     struct run run)
{
	const struct sluice_bus_frame *frame = chunk;
	struct sluice_bus_place place;
	struct sluice_bus_slot *slot;

	preempt_disable();
	if (!sluice_bus_reserve(bus, run.slots, run.units, &place)) {
		preempt_enable();
		return false;
	}
	mark_sender(sender);
	while (run.slots--) {
		slot = sluice_bus_next_slot(bus, &place, frame->length);
		slot->target = 0;
		slot->tag = frame->tag;
		slot->sender = sender;
		slot->discarded = false;
		sluice_copy(sluice_bus_data(bus, slot), frame + 1, frame->length);
		sluice_bus_commit(bus, slot);
		frame = (const void *)(frame + 1) + ALIGN(frame->length, FRAME_ALIGN);
	}
	preempt_enable();
	return true;
}

/* One attempt to send the message at the beginning of a part: its bytes, or 0. */
static size_t send_from_chunk(struct sluice_bus *bus, struct sluice_bus_opener *sender,
			      const void *part, size_t present, size_t count,
			      struct sluice_bus_subscriber **target)
{
	struct message message = { .sender = sender };
	size_t span = next_in_chunk(bus, part, present, count, &message);
	int err;

	*target = NULL;
	if (!span || is_unsubscribed(bus, &message))
		return span;
	err = send_unwoken(bus, &message, target);
	return_turns(bus, &message, err);
	return err ? 0 : span;
}

/*
 * Sends messages of the chunk, which begins with @count bytes that remain of the write, as long as
 * each can be sent at once: the number of bytes. The receivers are woken once, unless the messages
 * have several targets. The first ones are reserved together; if there is no room for all of them,
 * there may be for some.
 */
static size_t send_chunk(struct sluice_bus *bus, struct sluice_bus_opener *sender,
			 const void *chunk, size_t present, size_t count)
{
	struct sluice_bus_subscriber *target, *reached = NULL;
	struct run run = {};
	size_t sent = 0, span;

	rcu_read_lock();
	if (bus->mode != SLUICE_BUS_MULTICAST && !has_nobody(bus) && !READ_ONCE(bus->destroyed))
		run = find_run(bus, chunk, present, count);
	if (run.slots && send_run(bus, sender, chunk, run))
		sent = run.span;
	/* Wake-ups of many waiters take long: the caller yields between two chunks. */
	while (sent < present && !READ_ONCE(bus->destroyed) && !(sent && need_resched())) {
		span = send_from_chunk(bus, sender, chunk + sent, present - sent, count - sent,
				       &target);
		if (!span)
			break;
		if (sent && target != reached && bus->mode == SLUICE_BUS_MULTICAST)
			wake_receivers(bus, reached);
		reached = target;
		sent += span;
	}
	if (sent)
		wake_receivers(bus, reached);
	rcu_read_unlock();
	return sent;
}

/*
 * Sends messages together as long as there are several short ones, and each can be sent at once.
 * @from is behind the first frame of @count bytes; on return it is at the first frame that was not
 * sent. False: nothing was sent, and @from has not moved.
 */
static noinline_for_stack bool send_together(struct sluice_bus_endpoint *end,
					     struct iov_iter *from, size_t count)
{
	void *chunk = kmalloc(CHUNK_BYTES, SLUICE_QUOTA_GFP);
	size_t first = count - iov_iter_count(from), left = count, present, sent;

	if (!chunk)
		return false;
	iov_iter_revert(from, first);
	do {
		present = copy_from_iter(chunk, min_t(size_t, left, CHUNK_BYTES), from);
		sent = send_chunk(end->bus, end->opener, chunk, present, left);
		iov_iter_revert(from, present - sent);
		left -= sent;
		cond_resched();
	} while (sent && left && !signal_pending(current));
	kfree(chunk);
	if (left < count)
		return true;
	iov_iter_advance(from, first);
	return false;
}

/* ---- writes ---- */

/*
 * Waits for the first message only. The result is the offset of the first frame that was not sent,
 * or the error of the first message.
 */
ssize_t sluice_bus_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(iocb->ki_filp);
	bool framed = READ_ONCE(end->format) != SLUICE_BUS_RAW;
	bool nonblocking = sluice_bus_is_nonblocking(iocb);
	size_t count = iov_iter_count(from), left = count;
	int err = 0;

	do {
		struct message message = { .sender = end->opener, .from = from, .length = left };
		ssize_t span = framed ? read_frame(from, &message) : left;

		if (span >= 0 && span < left && span <= SHORT_BYTES &&
		    send_together(end, from, left)) {
			left = iov_iter_count(from);
			continue;
		}
		err = span < 0 ? span : check_message(end->bus, &message);
		err = err ?: bus_send_message(end, &message, nonblocking || left < count);
		if (err)
			break;
		left -= span;
		if (left) {
			/* A message that has no subscriber was not read. */
			iov_iter_advance(from, iov_iter_count(from) - left);
			cond_resched();
		}
	} while (left && !signal_pending(current));
	return count - left ?: err;
}
