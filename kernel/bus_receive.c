// SPDX-License-Identifier: GPL-2.0
/*
 * Receiving from a bus: the next message at the cursor of a subscriber, or of the queue.
 *
 * The message is copied while the cursor is claimed, and so are several short ones of a batch. As
 * in bus_send.c, a long message goes through a buffer of the kernel, and so does one whose
 * destination is not present. A message in the buffer is received after it was copied to the user,
 * so that it stays on the bus if the copy fails. Until then senders may overtake the cursor, and
 * other calls receive the message: it is stale. After STALE_MAX stale messages a call receives the
 * next one before the copy.
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
#include "short_copy.h"
#include "user_struct.h"

#define PASSED_MAX 1024		/* messages for others that are passed at a time */
#define FRAME_ALIGN sizeof(u64)
/* One claim receives another message of a batch until it has passed so many slots, or bytes. */
#define CLAIM_SLOTS 32
#define CLAIM_BYTES SZ_8K
/* Messages of up to so many bytes are copied together with their frames. */
#define SHORT_MESSAGE 128
/* Messages that were lost, or received by other calls, while a call copied them from its buffer. */
#define STALE_MAX 2

/* What precedes a message, unless the format is SLUICE_BUS_RAW. */
struct framing {
	u8 gap[FRAME_ALIGN];		/* zeros, of which some align the frame */
	struct sluice_bus_frame frame;	/* its sender remains that of the message before */
	u8 message[SHORT_MESSAGE];
};

/* The three are copied to user space as one. */
static_assert(sizeof(struct framing) ==
	      FRAME_ALIGN + sizeof(struct sluice_bus_frame) + SHORT_MESSAGE);

/* One call that receives. */
struct receipt {
	struct sluice_bus_endpoint *end;
	struct iov_iter *to;
	struct framing *framing;	/* NULL: the format is SLUICE_BUS_RAW */
	bool batched;
	bool more;			/* out: of next_slot() */
	bool wakes;			/* senders may wait for what was received */
	u64 next;			/* while the cursor is claimed: the next message */
	size_t received;		/* bytes, with frames */
	size_t needed;			/* bytes of the message that was looked at last */
	void *buffer;			/* instead of the destination, if not NULL */
	size_t room;			/* bytes of the buffer */
	u64 sequence;			/* of the message in the buffer */
	unsigned int stale;		/* stale messages since one was received */
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
 * Disables preemption and claims the cursor of the endpoint. If the cursor was moved, reads it
 * again under bus.lock, when the losses before it are counted. Repeats if it moves between the
 * unlock and the claim. -ESHUTDOWN, with preemption enabled: evicted.
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
		cond_resched();
		spin_lock(&end->bus->lock);
		counted = sluice_bus_cursor(subscriber);
		spin_unlock(&end->bus->lock);
	}
}

/* ---- senders that wait for room ---- */

/*
 * Ends the claim at @from: the next message is @to, or follows it. Wakes senders if the cursor
 * passes a place that they wait for. (bus-W) `wanted` is loaded after the barrier in
 * wq_has_sleeper(): a sender that has not seen the new cursor has stored it before.
 */
static void finish(struct sluice_bus_endpoint *end, u64 from, u64 to)
{
	struct sluice_bus_passed passed = { .from = from, .to = to };
	struct sluice_bus *bus = end->bus;

	if (from != to) {
		passed.start = sluice_bus_slot_at(bus, from)->start;
		passed.end = sluice_bus_slot_at(bus, to - 1)->end;
	}
	sluice_bus_release(end->subscriber, to);
	preempt_enable();
	if (from != to && wq_has_sleeper(&bus->writable.head) &&
	    sluice_bus_frees_room(bus, passed))
		sluice_bus_wake_senders(bus);
}

/*
 * The length of the next message, without a claim. -EAGAIN: a claim is needed to know it, also
 * while another call has claimed the cursor, which may be receiving the message. (bus-P) A sender
 * uses the slot again after the release of the cursor (bus-C) and of the tail (bus-T).
 */
static int bus_receive_peek(const struct sluice_bus_endpoint *end, u64 sequence)
{
	const struct sluice_bus_slot *slot = sluice_bus_slot(end->bus, sequence);
	int length = -EAGAIN;

	if (slot) {
		/* A sender may be using the slot again; the cursor has then moved. */
		length = data_race(is_for(slot, end->subscriber) ? (int)slot->length : -EAGAIN);
	}
	smp_rmb();	/* (bus-P) */
	return sluice_bus_is_unclaimed_at(end->subscriber, sequence) ? length : -EAGAIN;
}

int sluice_bus_next_length(struct sluice_bus_endpoint *end)
{
	struct sluice_bus_subscriber *subscriber = end->subscriber;
	bool maps = subscriber->flags & SLUICE_BUS_MAPPED, more;
	const struct sluice_bus_slot *slot;
	u32 head = sluice_bus_head(end->bus);
	u64 sequence, first, from;
	int ret;

	/* Without a claim while there is nothing, or while it is the next one. */
	sequence = maps ? READ_ONCE(subscriber->handed_out) : sluice_bus_cursor(subscriber);
	if (sequence != SLUICE_BUS_EVICTED && (u32)sequence == head)
		return -EAGAIN;
	ret = maps ? -EAGAIN : bus_receive_peek(end, sequence);
	if (ret >= 0)
		return ret;
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

/* Most messages of a batch have the same sender. */
static void fill_sender(struct sluice_bus_frame *frame, const struct sluice_bus_opener *sender)
{
	struct user_namespace *ns = current_user_ns();

	frame->sender = sender->id;
	frame->pid = pid_nr_ns(sender->pid, task_active_pid_ns(current));
	frame->uid = from_kuid_munged(ns, sender->uid);
	frame->gid = from_kgid_munged(ns, sender->gid);
}

/* The bytes that align the next frame. */
static size_t gap_before(const struct receipt *receipt)
{
	return -receipt->received & (FRAME_ALIGN - 1);
}

/* Not copy_to_iter(), whose check of @from knows no objects in the memory of a ring. */
static bool copy_out(struct receipt *receipt, size_t at, const void *from, size_t length)
{
	if (receipt->buffer) {
		memcpy(receipt->buffer + at, from, length);
		return true;
	}
	return _copy_to_iter(from, length, receipt->to) == length;
}

/* The frame with the number of losses does not arrive. */
static void bus_receive_forget(struct receipt *receipt)
{
	if (receipt->framing)
		atomic64_add(receipt->framing->frame.lost, &receipt->end->subscriber->untold);
}

/* The frame after the bytes that align it, and the message. */
static bool copy_framed(struct receipt *receipt, const struct sluice_bus_slot *slot,
			const void *data)
{
	atomic64_t *untold = &receipt->end->subscriber->untold;
	struct sluice_bus_frame *frame = &receipt->framing->frame;
	size_t length = slot->length, before = receipt->needed - length;
	const void *first = (const u8 *)receipt->framing +
			    (offsetof(struct framing, message) - before);

	if (frame->sender != slot->sender->id)
		fill_sender(frame, slot->sender);
	frame->length = length;
	frame->target = slot->target;
	frame->sequence = receipt->next;
	frame->lost = atomic64_read(untold) ? atomic64_xchg(untold, 0) : 0;
	frame->tag = slot->tag;
	if (length > SHORT_MESSAGE)
		return copy_out(receipt, 0, first, before) &&
		       copy_out(receipt, before, data, length);
	sluice_copy(receipt->framing->message, data, length);
	return copy_out(receipt, 0, first, receipt->needed);
}

/* With page faults disabled. False: some page is not present; nothing was received. */
static bool bus_receive_copy_message(struct receipt *receipt, const struct sluice_bus_slot *slot)
{
	const void *data = sluice_bus_data(receipt->end->bus, slot);
	size_t before = iov_iter_count(receipt->to);
	bool copied;

	copied = receipt->framing ? copy_framed(receipt, slot, data) :
				    copy_out(receipt, 0, data, slot->length);
	if (copied)
		return true;
	bus_receive_forget(receipt);
	iov_iter_revert(receipt->to, before - iov_iter_count(receipt->to));
	return false;
}

/* ---- messages ---- */

/* Whether a message is received after the copy from the buffer. */
static bool is_received_later(const struct receipt *receipt)
{
	return receipt->buffer && receipt->stale < STALE_MAX;
}

/* With the cursor claimed: 0 and the bytes in @receipt, -EMSGSIZE, -EFAULT: not without faults. */
static int bus_receive_take(struct receipt *receipt, const struct sluice_bus_slot *slot)
{
	receipt->needed = slot->length;
	if (receipt->framing)
		receipt->needed += gap_before(receipt) + sizeof(struct sluice_bus_frame);
	if (receipt->needed > iov_iter_count(receipt->to))
		return -EMSGSIZE;
	if (receipt->buffer ? receipt->needed > receipt->room :
			      slot->length > SLUICE_BUS_DIRECT_MAX)
		return -EFAULT;
	return bus_receive_copy_message(receipt, slot) ? 0 : -EFAULT;
}

/*
 * With the cursor claimed: the next message was copied. In the mode multicast the cursor passes the
 * messages of others that follow, too, as they do not hold room for it.
 */
static void bus_receive_settle(struct receipt *receipt, const struct sluice_bus_slot *slot)
{
	struct sluice_bus_subscriber *subscriber = receipt->end->subscriber;
	struct sluice_bus *bus = receipt->end->bus;

	receipt->received += receipt->needed;
	receipt->next++;
	if (!slot->target || slot->target != subscriber->id)
		return;
	receipt->wakes |= sluice_bus_unread_sub(subscriber, slot->length);
	next_slot(bus, subscriber, sluice_bus_head(bus), &receipt->next, &receipt->more);
	receipt->wakes |= receipt->more;
}

/*
 * With the cursor claimed: receives a message, or several of a batch. 0, also if the batch may have
 * more; -EAGAIN: there is none, or no further one, which is not known yet if `more`; -EMSGSIZE,
 * -EFAULT.
 */
static int receive_claimed(struct receipt *receipt, u32 head)
{
	struct sluice_bus_endpoint *end = receipt->end;
	size_t most = receipt->received + CLAIM_BYTES;
	u64 from = receipt->next;
	const struct sluice_bus_slot *slot;
	int err;

	pagefault_disable();
	do {
		slot = next_slot(end->bus, end->subscriber, head, &receipt->next, &receipt->more);
		err = slot ? bus_receive_take(receipt, slot) : -EAGAIN;
		if (err || is_received_later(receipt))
			break;
		bus_receive_settle(receipt, slot);
	} while (receipt->batched && !receipt->buffer && receipt->received < most &&
		 receipt->next - from < CLAIM_SLOTS);
	pagefault_enable();
	return err;
}

/* Ends the claim at @from, after messages were received. */
static void finish_received(struct receipt *receipt, u64 from)
{
	finish(receipt->end, from, receipt->next);
	if (receipt->wakes)
		sluice_bus_wake_senders(receipt->end->bus);
	receipt->wakes = false;
}

/* One attempt: also -ESHUTDOWN. What is in a buffer may have to be received later. */
static int try_receive(struct receipt *receipt)
{
	struct sluice_bus_endpoint *end = receipt->end;
	u32 head = sluice_bus_head(end->bus);
	u64 from;
	int err;

	for (;;) {
		err = bus_receive_begin(end, &receipt->next);
		if (err)
			return err;
		from = receipt->next;
		err = receive_claimed(receipt, head);
		receipt->sequence = receipt->next;
		finish_received(receipt, from);
		if (err != -EAGAIN || !receipt->more || fatal_signal_pending(current))
			return err;
		cond_resched();
	}
}

/*
 * A buffer for a message of this size. If there is one already, the next message is longer: the new
 * buffer has room for any message, so that a third one is never needed.
 */
static int bus_receive_get_buffer(struct receipt *receipt)
{
	receipt->room = receipt->buffer ? SLUICE_BUS_MESSAGE_MAX + sizeof(struct framing) :
					  receipt->needed;
	kvfree(receipt->buffer);
	receipt->buffer = kvmalloc(receipt->room, SLUICE_QUOTA_GFP);
	return receipt->buffer ? 0 : -ENOMEM;
}

/* -ESTALE: the message in the buffer was lost meanwhile, or another call received it. */
static int receive_buffered(struct receipt *receipt)
{
	struct sluice_bus_endpoint *end = receipt->end;
	int err = bus_receive_begin(end, &receipt->next);
	u64 from = receipt->next;

	if (err)
		return err;
	if (from == receipt->sequence)
		bus_receive_settle(receipt, sluice_bus_slot_at(end->bus, from));
	else
		err = -ESTALE;
	finish_received(receipt, from);
	return err;
}

/* Copies the message in the buffer, and receives it then, unless it is received already. */
static int bus_receive_copy_buffer(struct receipt *receipt)
{
	size_t copied = copy_to_iter(receipt->buffer, receipt->needed, receipt->to);
	bool later = is_received_later(receipt);
	int err = copied == receipt->needed ? 0 : -EFAULT;

	if (!err && later)
		err = receive_buffered(receipt);
	if (!err) {
		receipt->stale = 0;
		return 0;
	}
	bus_receive_forget(receipt);
	iov_iter_revert(receipt->to, copied);
	if (!later)
		receipt->received -= receipt->needed;
	receipt->stale += err == -ESTALE;
	return err;
}

/*
 * Receives a message, or several of a batch. 0, also if the batch may have more. Otherwise
 * -EAGAIN, -EMSGSIZE, -EFAULT, -ENOMEM, -ESHUTDOWN, also after messages of a batch.
 */
static int bus_receive(struct receipt *receipt)
{
	size_t before = receipt->received;
	unsigned int attempts = 0;
	int err;

	for (;;) {
		err = try_receive(receipt);
		if (!err && receipt->buffer) {
			err = bus_receive_copy_buffer(receipt);
			if (err != -ESTALE)
				break;
			cond_resched();
			continue;
		}
		if (err != -EFAULT || receipt->received != before)
			break;
		attempts++;
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
	if (unlikely(receipt->buffer)) {	/* The free of NULL takes a twentieth of a read. */
		kvfree(receipt->buffer);
		receipt->buffer = NULL;
	}
	return err;
}

/* Whether the bytes that align the next frame are present: no received message waits for them. */
static bool gap_is_present(struct receipt *receipt)
{
	size_t gap = gap_before(receipt), zeroed;

	pagefault_disable();
	zeroed = iov_iter_zero(gap, receipt->to);
	pagefault_enable();
	iov_iter_revert(receipt->to, zeroed);
	return zeroed == gap;
}

/* With frames: one message, or as many as there are and fit. Their bytes, or the first error. */
static noinline_for_stack ssize_t receive_framed(struct sluice_bus_endpoint *end,
						 struct iov_iter *to, bool batched)
{
	struct framing framing = { .frame.size = sizeof(framing.frame) };
	struct receipt receipt = {
		.end = end, .to = to, .framing = &framing, .batched = batched
	};
	size_t before;
	int err;

	do {
		before = receipt.received;
		err = bus_receive(&receipt);
		cond_resched();
	} while (batched && receipt.received != before && !signal_pending(current) &&
		 (!err || err == -EFAULT) && gap_is_present(&receipt));
	return receipt.received ?: err;
}

static ssize_t try_read(struct sluice_bus_endpoint *end, struct iov_iter *to, u32 format)
{
	struct receipt receipt = { .end = end, .to = to };
	int err;

	if (format != SLUICE_BUS_RAW)
		return receive_framed(end, to, format == SLUICE_BUS_BATCHED);
	err = bus_receive(&receipt);
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

/*
 * With the cursor claimed: passes up to PASSED_MAX discarded slots from @to on, because user space
 * releases messages only. Returns the sequence after them.
 */
static u64 pass_discarded(const struct sluice_bus_endpoint *end, u64 to)
{
	u64 most = min(to + PASSED_MAX, end->subscriber->handed_out);

	while (to < most && sluice_bus_slot(end->bus, to)->discarded)
		to++;
	return to;
}

/* Ends the claim at @from, with all before @to released, and what pass_discarded() passes. */
static void release_handed_out(struct sluice_bus_endpoint *end, u64 from, u64 to)
{
	u64 next;

	for (;;) {
		next = pass_discarded(end, to);
		finish(end, from, next);
		if (next - to < PASSED_MAX)
			return;
		cond_resched();
		if (bus_receive_begin(end, &from))
			return;
		to = from;
	}
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
	release_handed_out(end, from, to);
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
