// SPDX-License-Identifier: GPL-2.0
/*
 * Receiving from a bus: the next message at the cursor of a subscriber, or of the queue.
 *
 * The message is copied while the cursor is claimed. As in bus_send.c, a long message goes through
 * a buffer of the kernel, and so does one whose destination is not present.
 */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/pagemap.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/user_namespace.h>

#include "bus.h"
#include "user_struct.h"

#define PASSED_MAX 1024		/* messages for others that are passed at a time */
#define FRAME_ALIGN sizeof(u64)

/* One attempt to receive. */
struct receipt {
	struct sluice_bus_endpoint *end;
	struct iov_iter *to;
	bool framed;
	void *buffer;			/* instead of the destination, if not NULL */
	size_t room;			/* bytes of the buffer */
	u64 sequence;			/* out: of the message */
	u64 lost;			/* out: as its frame reports */
	size_t received;		/* out: bytes, with the frame */
	size_t needed;			/* out, after -EFAULT or -EMSGSIZE */
};

/* ---- the next message ---- */

static bool is_for(const struct sluice_bus_slot *slot,
		   const struct sluice_bus_subscriber *subscriber)
{
	if (slot->discarded)
		return false;
	return !slot->target || slot->target == subscriber->id ||
	       sluice_bus_is_monitor(subscriber);
}

/*
 * With the cursor claimed: moves @sequence to the next message of the subscriber, and returns its
 * slot. NULL: there is none before @head, which was read earlier; or it is not known yet (@more),
 * because more than PASSED_MAX others precede it, or one whose copy is in progress, after which
 * nobody may be woken. Messages from @head on wake their receivers after that. A copy whose sender
 * the kernel has killed stays in progress: the callers can be killed, too.
 */
static const struct sluice_bus_slot *next_slot(const struct sluice_bus *bus,
					       const struct sluice_bus_subscriber *subscriber,
					       u32 head, u64 *sequence, bool *more)
{
	const struct sluice_bus_slot *slot = NULL;
	unsigned int passed;

	for (passed = 0; passed < PASSED_MAX; passed++, ++*sequence) {
		slot = sluice_bus_slot(bus, *sequence);
		if (!slot || is_for(slot, subscriber))
			break;
		slot = NULL;
	}
	*more = !slot && (s32)(head - (u32)*sequence) > 0;
	return slot;
}

/*
 * Disables preemption and claims the cursor of the endpoint. After the cursor was moved, waits for
 * bus.lock first: what was lost is counted then. -ESHUTDOWN, with preemption enabled: evicted.
 */
static int bus_receive_begin(struct sluice_bus_endpoint *end, u64 *sequence)
{
	struct sluice_bus_subscriber *subscriber = end->subscriber;
	u64 counted = SLUICE_BUS_EVICTED;

	for (;;) {
		preempt_disable();
		if (!sluice_bus_claim(subscriber, sequence)) {
			preempt_enable();
			cpu_relax();
			cond_resched();
			continue;
		}
		if (*sequence != SLUICE_BUS_EVICTED &&
		    (*sequence == subscriber->expected || *sequence == counted))
			return 0;
		sluice_bus_unclaim(subscriber, *sequence);
		preempt_enable();
		if (*sequence == SLUICE_BUS_EVICTED)
			return -ESHUTDOWN;
		counted = *sequence;
		spin_lock(&end->bus->lock);
		spin_unlock(&end->bus->lock);
	}
}

/* ---- senders that wait for room ---- */

/*
 * Ends the claim at @from: the next message is @to, or follows it. Wakes senders if the cursor
 * passes a place that they wait for. The head is loaded after the barrier in wq_has_sleeper(): a
 * sender that has not seen the new cursor has reserved before.
 */
static void finish(struct sluice_bus_endpoint *end, u64 from, u64 to)
{
	struct sluice_bus_passed passed = { .from = from, .to = to };
	struct sluice_bus *bus = end->bus;

	if (from != to) {
		passed.start = sluice_bus_slot(bus, from)->start;
		passed.end = sluice_bus_slot(bus, to - 1)->end;
	}
	sluice_bus_release(end->subscriber, to);
	preempt_enable();
	if (from != to && wq_has_sleeper(&bus->writable.head) &&
	    sluice_bus_frees_room(bus, &passed))
		sluice_bus_wake_senders(bus);
}

int sluice_bus_next_length(struct sluice_bus_endpoint *end)
{
	struct sluice_bus_subscriber *subscriber = end->subscriber;
	bool maps = subscriber->flags & SLUICE_BUS_MAPPED, more;
	const struct sluice_bus_slot *slot;
	u32 head = sluice_bus_head(end->bus);
	u64 sequence, first, from;
	int ret;

	/* Without a claim while there is nothing. */
	sequence = maps ? READ_ONCE(subscriber->handed_out) : sluice_bus_cursor(subscriber);
	if (sequence != SLUICE_BUS_EVICTED && (u32)sequence == head)
		return -EAGAIN;
	do {
		cond_resched();
		ret = bus_receive_begin(end, &from);
		if (ret)
			return ret;
		first = maps ? subscriber->handed_out : from;
		sequence = first;
		slot = next_slot(end->bus, subscriber, head, &sequence, &more);
		ret = slot ? slot->length : -EAGAIN;
		if (maps)
			WRITE_ONCE(subscriber->handed_out, sequence);
		/* What was handed out is not released. */
		finish(end, from, first == from ? sequence : from);
	} while (more && !fatal_signal_pending(current));
	return ret;
}

/* ---- receivers that wait for a message ---- */

static bool bus_receive_ends_wait(struct sluice_bus_endpoint *end)
{
	return READ_ONCE(end->bus->destroyed) || atomic_read(&end->subscriber->notice) ||
	       sluice_bus_next_length(end) != -EAGAIN;
}

/* In the mode unicast: after a wake-up, if there is another message. */
static void wake_next_receiver(struct sluice_bus_endpoint *end)
{
	struct sluice_wait_queue *queue = &end->bus->readable;

	if (end->subscriber != end->bus->queue)
		return;
	sluice_wait_done(queue);
	if (bus_receive_ends_wait(end))
		sluice_wait_wake_one(queue, EPOLLIN | EPOLLRDNORM);
}

/* ---- the copy ---- */

static void fill_frame(struct sluice_bus_frame *frame, const struct sluice_bus_slot *slot,
		       u64 sequence, u64 lost)
{
	const struct sluice_bus_opener *sender = slot->sender;
	struct user_namespace *ns = current_user_ns();

	*frame = (struct sluice_bus_frame) {
		.size = sizeof(*frame),
		.length = slot->length,
		.target = slot->target,
		.sender = sender->id,
		.sequence = sequence,
		.lost = lost,
		.pid = pid_nr_ns(sender->pid, task_active_pid_ns(current)),
		.uid = from_kuid_munged(ns, sender->uid),
		.gid = from_kgid_munged(ns, sender->gid),
		.tag = slot->tag,
	};
}

static bool copy_out(struct receipt *receipt, size_t at, const void *from, size_t length)
{
	if (receipt->buffer) {
		memcpy(receipt->buffer + at, from, length);
		return true;
	}
	return copy_to_iter(from, length, receipt->to) == length;
}

/* The frame with the number of losses does not arrive. */
static void bus_receive_forget(struct receipt *receipt)
{
	atomic64_add(receipt->lost, &receipt->end->subscriber->untold);
	receipt->lost = 0;
}

/* Without page faults. False: some page is not present; nothing was received. */
static bool bus_receive_copy_message(struct receipt *receipt, const struct sluice_bus_slot *slot,
				     u64 sequence)
{
	struct sluice_bus_endpoint *end = receipt->end;
	size_t before = iov_iter_count(receipt->to), head = 0;
	struct sluice_bus_frame frame;
	bool copied;

	pagefault_disable();
	if (receipt->framed) {
		receipt->lost = atomic64_xchg(&end->subscriber->untold, 0);
		fill_frame(&frame, slot, sequence, receipt->lost);
		head = sizeof(frame);
	}
	copied = (!head || copy_out(receipt, 0, &frame, head)) &&
		 copy_out(receipt, head, sluice_bus_data(end->bus, slot), slot->length);
	pagefault_enable();
	if (copied)
		return true;
	bus_receive_forget(receipt);
	iov_iter_revert(receipt->to, before - iov_iter_count(receipt->to));
	return false;
}

/* ---- one message ---- */

/* With the cursor claimed: 0 and the bytes in @receipt, -EMSGSIZE, -EFAULT: not without faults. */
static int bus_receive_take(struct receipt *receipt, const struct sluice_bus_slot *slot,
			    u64 sequence)
{
	receipt->needed = slot->length + (receipt->framed ? sizeof(struct sluice_bus_frame) : 0);
	if (receipt->needed > iov_iter_count(receipt->to))
		return -EMSGSIZE;
	if (receipt->buffer ? receipt->needed > receipt->room :
			      slot->length > SLUICE_BUS_DIRECT_MAX)
		return -EFAULT;
	if (!bus_receive_copy_message(receipt, slot, sequence))
		return -EFAULT;
	receipt->received = receipt->needed;
	receipt->sequence = sequence;
	return 0;
}

/*
 * With the cursor claimed at @from: the message at @sequence is received. In the mode multicast the
 * cursor passes the messages of others that follow, too, as they do not hold room for it.
 */
static void finish_received(struct sluice_bus_endpoint *end, const struct sluice_bus_slot *slot,
			    u64 from, u64 sequence)
{
	bool addressed = slot->target && slot->target == end->subscriber->id;
	u32 length = slot->length;
	u64 to = sequence + 1;
	bool more = false;

	if (addressed)
		next_slot(end->bus, end->subscriber, sluice_bus_head(end->bus), &to, &more);
	finish(end, from, to);
	if (addressed && (sluice_bus_unread_sub(end->subscriber, length) || more))
		sluice_bus_wake_senders(end->bus);
}

/* One attempt: also -EAGAIN: no message, -ESHUTDOWN. In a buffer it is not received yet. */
static int try_receive(struct receipt *receipt)
{
	struct sluice_bus_endpoint *end = receipt->end;
	struct sluice_bus *bus = end->bus;
	const struct sluice_bus_slot *slot;
	u32 head = sluice_bus_head(bus);
	u64 sequence, from;
	bool more;
	int err;

	do {
		cond_resched();
		err = bus_receive_begin(end, &from);
		if (err)
			return err;
		sequence = from;
		slot = next_slot(bus, end->subscriber, head, &sequence, &more);
		err = slot ? bus_receive_take(receipt, slot, sequence) : -EAGAIN;
		if (err || receipt->buffer)
			finish(end, from, sequence);
		else
			finish_received(end, slot, from, sequence);
	} while (more && !fatal_signal_pending(current));
	return err;
}

/* A buffer for a message of this size. */
static int bus_receive_get_buffer(struct receipt *receipt)
{
	kvfree(receipt->buffer);
	receipt->buffer = kvmalloc(receipt->needed, SLUICE_QUOTA_GFP);
	receipt->room = receipt->needed;
	return receipt->buffer ? 0 : -ENOMEM;
}

/*
 * Copies the message in the buffer, and receives it then. -ESTALE: it was lost meanwhile, or
 * another call received it.
 */
static int bus_receive_copy_buffer(struct receipt *receipt)
{
	struct sluice_bus_endpoint *end = receipt->end;
	size_t copied = copy_to_iter(receipt->buffer, receipt->received, receipt->to);
	int err = copied == receipt->received ? 0 : -EFAULT;
	u64 from;

	if (!err)
		err = bus_receive_begin(end, &from);
	if (!err && from == receipt->sequence) {
		finish_received(end, sluice_bus_slot(end->bus, from), from, from);
		return 0;
	}
	if (!err) {
		finish(end, from, from);
		err = -ESTALE;
	}
	bus_receive_forget(receipt);
	iov_iter_revert(receipt->to, copied);
	return err;
}

/* Receives one message if there is one. 0, -EAGAIN, -EMSGSIZE, -EFAULT, -ENOMEM, -ESHUTDOWN. */
static int receive_one(struct receipt *receipt)
{
	unsigned int attempts = 0;
	int err;

	for (;;) {
		receipt->received = 0;
		err = try_receive(receipt);
		if (!err && receipt->buffer)
			err = bus_receive_copy_buffer(receipt);
		if (err == -ESTALE && !sluice_bus_check_killed())
			continue;
		if (err != -EFAULT || receipt->received)
			break;
		attempts++;
		err = -EFAULT;
		/* The fault may take any time. */
		wake_next_receiver(receipt->end);
		if (fault_in_iov_iter_writeable(receipt->to, receipt->needed))
			break;
		if (receipt->buffer || receipt->needed > SLUICE_BUS_DIRECT_MAX ||
		    attempts == SLUICE_BUS_DIRECT_ATTEMPTS)
			err = bus_receive_get_buffer(receipt);
		else
			err = 0;
		if (err)
			break;
	}
	kvfree(receipt->buffer);
	receipt->buffer = NULL;
	return err == -ESTALE ? -ERESTARTSYS : err;
}

/* Bytes that fill the destination up to the beginning of the next frame, if they are present. */
static bool align_frame(struct receipt *receipt, size_t *total)
{
	size_t gap = -*total & (FRAME_ALIGN - 1), zeroed;

	if (iov_iter_count(receipt->to) < gap)
		return false;
	pagefault_disable();
	zeroed = iov_iter_zero(gap, receipt->to);
	pagefault_enable();
	*total += gap;
	return zeroed == gap;
}

/* As many messages as there are and fit: their bytes, or the error of the first one. */
static ssize_t receive_batch(struct receipt *receipt)
{
	size_t total = 0, end = 0;
	int err;

	do {
		err = receive_one(receipt);
		if (err)
			break;
		total += receipt->received;
		end = total;
		cond_resched();
	} while (!signal_pending(current) && align_frame(receipt, &total));
	return end ?: err;
}

static ssize_t try_read(struct sluice_bus_endpoint *end, struct iov_iter *to, u32 format)
{
	struct receipt receipt = {
		.end = end,
		.to = to,
		.framed = format != SLUICE_BUS_RAW,
	};
	int err;

	if (format == SLUICE_BUS_BATCHED)
		return receive_batch(&receipt);
	err = receive_one(&receipt);
	return err ?: receipt.received;
}

/* ---- waiting ---- */

/* In the mode unicast one message wakes one receiver, otherwise each wakes all that get it. */
static int wait_for_message(struct sluice_bus_endpoint *end)
{
	struct sluice_wait_queue *queue = sluice_bus_readable(end->bus, end->subscriber);

	if (end->subscriber == end->bus->queue)
		return sluice_wait_until(*queue, bus_receive_ends_wait(end), &end->spin);
	return sluice_wait_until_shared(*queue, bus_receive_ends_wait(end), &end->spin);
}

ssize_t sluice_bus_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(iocb->ki_filp);
	u32 format = READ_ONCE(end->format);
	bool waited = false;
	ssize_t ret;

	if (end->subscriber->flags & SLUICE_BUS_MAPPED)
		return -EINVAL;
	for (;;) {
		if (READ_ONCE(end->bus->destroyed)) {
			ret = -EPIPE;
			break;
		}
		ret = try_read(end, to, format);
		if (ret == -EAGAIN && sluice_bus_take_notice(end->subscriber))
			ret = -ENOLINK;
		if (ret != -EAGAIN || sluice_bus_is_nonblocking(iocb))
			break;
		ret = wait_for_message(end);
		if (ret)
			break;
		waited = true;
	}
	if (waited)
		wake_next_receiver(end);
	return ret;
}

/* ---- mapped subscribers ---- */

/* With the cursor claimed: fills in the messages that follow those handed out. */
static int hand_out(struct sluice_bus_endpoint *end, u32 count,
		    struct sluice_bus_entry *entries)
{
	struct sluice_bus_subscriber *subscriber = end->subscriber;
	struct sluice_bus *bus = end->bus;
	u64 sequence = subscriber->handed_out;
	u64 most = sequence + PASSED_MAX;
	u32 filled = 0;

	while (filled < count && sequence < most) {
		const struct sluice_bus_slot *slot = sluice_bus_slot(bus, sequence);

		if (!slot)
			break;
		if (!slot->discarded)
			entries[filled++] = (struct sluice_bus_entry) {
				.offset = sluice_bus_data(bus, slot) - bus->data,
				.sequence = sequence,
				.sender = slot->sender->id,
				.length = slot->length,
			};
		sequence++;
	}
	WRITE_ONCE(subscriber->handed_out, sequence);
	return filled;
}

/* Releases and hands out: the number of entries, -EINVAL: not handed out. */
static int exchange(struct sluice_bus_endpoint *end, u64 released, u32 count,
		    struct sluice_bus_entry *entries)
{
	struct sluice_bus_subscriber *subscriber = end->subscriber;
	u64 from, to;
	int ret;

	ret = bus_receive_begin(end, &from);
	if (ret)
		return ret;
	to = max(from, released);
	if (to > subscriber->handed_out) {
		finish(end, from, from);
		return -EINVAL;
	}
	ret = hand_out(end, count, entries);
	/* Nobody releases what was not a message. */
	while (to < subscriber->handed_out && sluice_bus_slot(end->bus, to)->discarded)
		to++;
	finish(end, from, to);
	return ret;
}

/* The caller did not get them: they are handed out again. */
static void take_back(struct sluice_bus_endpoint *end)
{
	u64 sequence;

	if (bus_receive_begin(end, &sequence))
		return;
	WRITE_ONCE(end->subscriber->handed_out, sequence);
	finish(end, sequence, sequence);
}

/* Whether SLUICE_BUS_RECEIVE returns something. */
static bool has_entries(struct sluice_bus_endpoint *end)
{
	u64 next = READ_ONCE(end->subscriber->handed_out);

	return READ_ONCE(end->bus->destroyed) || sluice_bus_slot(end->bus, next);
}

/* Waits for the first entry. Discarded slots are not entries, hence the loop. */
static int receive_entries(struct file *file, const struct sluice_bus_receive *receive,
			   struct sluice_bus_entry *entries)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(file);
	u32 count = min_t(u32, receive->count, SLUICE_BUS_RECEIVE_MAX);
	int ret;

	for (;;) {
		if (READ_ONCE(end->bus->destroyed))
			return -EPIPE;
		ret = exchange(end, receive->released, count, entries);
		if (ret || !count)
			return ret;
		if (has_entries(end)) {
			cond_resched();
			if (sluice_bus_check_killed())
				return -EINTR;
			continue;
		}
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		ret = sluice_wait_until_shared(end->bus->readable, has_entries(end), &end->spin);
		if (ret)
			return ret == -ERESTARTSYS ? -EINTR : ret;
	}
}

long sluice_bus_receive_mapped(struct file *file, struct sluice_bus_receive __user *user)
{
	struct sluice_bus_endpoint *end = sluice_bus_endpoint(file);
	struct sluice_bus_entry entries[SLUICE_BUS_RECEIVE_MAX];
	struct sluice_bus_receive receive;
	int ret;

	ret = sluice_user_struct_read(&receive, sizeof(receive), SLUICE_BUS_RECEIVE_SIZE_VER0,
				      user);
	if (ret)
		return ret;
	if (!end->subscriber || !(end->subscriber->flags & SLUICE_BUS_MAPPED) || receive.reserved ||
	    !sluice_user_is_entry_size(receive.entry_size, SLUICE_BUS_ENTRY_SIZE_VER0))
		return -EINVAL;
	ret = receive_entries(file, &receive, entries);
	if (ret < 0)
		return ret;
	if (sluice_user_array_write(u64_to_user_ptr(receive.entries), receive.entry_size, entries,
				    sizeof(*entries), ret) ||
	    put_user((u32)ret, &user->count)) {
		take_back(end);
		return -EFAULT;
	}
	return 0;
}
