// SPDX-License-Identifier: GPL-2.0
/*
 * Publishing of packets, in any context.
 *
 * (feed-H) publish stores `head` and the state of the record with release, after the bytes; the
 *     consumer loads one of them with acquire.
 * (feed-T) the consumer stores its position (`tail`, or `pos` in its page) with release, after it
 *     has read the bytes; publish loads it with acquire before it overwrites them.
 * (feed-P) a claim stores `session` with release, after its fields; the deferred wake-up, which
 *     takes no lock, loads it with acquire.
 * (feed-G) `ended` is stored with release after the reason in the producer's page.
 */
#include <linux/export.h>
#include <linux/hardirq.h>
#include <linux/irq_work.h>
#include <linux/kconfig.h>
#include <linux/ktime.h>
#include <linux/math.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/timex.h>

#include "feed.h"
#include "trace.h"

#define HEADER sizeof(struct sluice_ring_header)

static u64 cycles(void)
{
#ifdef CONFIG_X86
	return rdtsc_ordered();
#else
	return get_cycles();
#endif
}

void sluice_feed_session_end(struct sluice_feed *feed, u32 reason)
{
	struct sluice_feed_session *session = feed->session;
	struct sluice_ring_ctrl *own = sluice_ring_memory_ctrl(session->memory,
							       SLUICE_RING_SIDE_PRODUCER);

	smp_store_release(&own->closed, reason);	/* pairs with the consumer's load */
	smp_store_release(&session->ended, reason);	/* (feed-G) */
	WRITE_ONCE(feed->active, false);
}

/* Updates `released`. False: the consumer has stored an invalid position. */
static bool refresh_released(struct sluice_feed_session *session)
{
	struct sluice_ring_ctrl *peer;
	u64 pos;

	if (!session->maps) {
		session->released = smp_load_acquire(&session->tail);	/* (feed-T) */
		return true;
	}
	peer = sluice_ring_memory_ctrl(session->memory, SLUICE_RING_SIDE_CONSUMER);
	pos = smp_load_acquire(&peer->pos);	/* (feed-T) */
	if (pos < session->released || pos > session->head || pos % HEADER)
		return false;
	session->released = pos;
	return true;
}

/* Whether the record from `head` to @end fits, with the state of the record after it. */
static bool feed_fits(const struct sluice_feed *feed, const struct sluice_feed_session *session,
		      u64 end)
{
	return end + HEADER <= session->released + feed->capacity;
}

static void copy_to_ring(const struct sluice_ring_memory *memory, u64 pos, const void *from,
			 size_t length)
{
	while (length) {
		size_t part = min_t(size_t, length, PAGE_SIZE - offset_in_page(pos));

		memcpy(sluice_ring_memory_data(memory, pos), from, part);
		pos += part;
		from += part;
		length -= part;
	}
}

static struct sluice_ring_header *header_at(const struct sluice_ring_memory *memory, u64 pos)
{
	return sluice_ring_memory_data(memory, pos);
}

/* The four words begin at a multiple of their size, so each is within one page. */
static void put_header(const struct sluice_ring_memory *memory, u64 pos,
		       const struct sluice_feed_packet *packet)
{
	const u64 *words = (const u64 *)packet;
	size_t i;

	static_assert(sizeof(*packet) % sizeof(*words) == 0);
	for (i = 0; i < sizeof(*packet) / sizeof(*words); i++, pos += sizeof(*words))
		*(u64 *)sluice_ring_memory_data(memory, pos) = words[i];
}

/*
 * Writes the record from `head` to @end and makes it visible. The next record's state is first: it
 * is part of making room. The times are those before the copy, so that what a consumer subtracts
 * from them includes it.
 */
static void write_record(struct sluice_feed *feed, struct sluice_feed_session *session,
			 const void *data, size_t length, u64 end)
{
	struct sluice_ring_memory *memory = session->memory;
	struct sluice_feed_packet packet = {
		.sequence = feed->sequence,
		.lost = session->lost,
	};
	u64 at = session->head;

	WRITE_ONCE(header_at(memory, end)->state, 0);
	packet.time_ns = ktime_get_mono_fast_ns();
	packet.cycles = cycles();
	header_at(memory, at)->length = sizeof(packet) + length;
	put_header(memory, at + HEADER, &packet);
	copy_to_ring(memory, at + HEADER + sizeof(packet), data, length);
	/* (feed-H) */
	smp_store_release(&header_at(memory, at)->state, SLUICE_RING_RECORD_READY);
	WRITE_ONCE(sluice_ring_memory_ctrl(memory, SLUICE_RING_SIDE_PRODUCER)->pos, end);
	smp_store_release(&session->head, end);	/* (feed-H) */
	session->lost = 0;
}

static void feed_count_lost(struct sluice_feed *feed, struct sluice_feed_session *session,
			    u64 count)
{
	WRITE_ONCE(feed->sequence, feed->sequence + count);
	WRITE_ONCE(feed->lost, feed->lost + count);
	session->lost += count;
}

/* Under the feed's lock. 0, -ENOBUFS, -EPROTO: the consumer is ended. */
static int put_packet(struct sluice_feed *feed, struct sluice_feed_session *session,
		      const void *data, size_t length)
{
	u64 end = session->head +
		  round_up(HEADER + sizeof(struct sluice_feed_packet) + length, HEADER);

	if (atomic_read(&feed->contended))
		feed_count_lost(feed, session, atomic_xchg(&feed->contended, 0));
	if (!feed_fits(feed, session, end) && !refresh_released(session)) {
		WRITE_ONCE(feed->violations, feed->violations + 1);
		sluice_feed_session_end(feed, SLUICE_RING_REJECTED);
		return -EPROTO;
	}
	if (!feed_fits(feed, session, end)) {
		feed_count_lost(feed, session, 1);
		return -ENOBUFS;
	}
	write_record(feed, session, data, length, end);
	WRITE_ONCE(feed->sequence, feed->sequence + 1);
	WRITE_ONCE(feed->published, feed->published + 1);
	return 0;
}

/*
 * Whether a reader may wait for the record at @at: only if it has read all records before. A reader
 * that is behind looks again after each read.
 */
static bool reader_sleeps(const struct sluice_feed_session *session, u64 at)
{
	return wq_has_sleeper(&session->wait->head) &&	/* (feed-W) */
	       (session->ended || READ_ONCE(session->tail) == at);
}

/*
 * Under the feed's lock, after a change: whether the consumer sleeps. @at: the position of the
 * record. (feed-W) is a full barrier between the store of the record and the look at the consumer.
 * It pairs with that of the consumer before its last look for a record: after its store of
 * wait_flags if it maps, after its store of `tail` or its queueing if it reads.
 */
static bool consumer_sleeps(struct sluice_feed_session *session, u64 at)
{
	struct sluice_ring_ctrl *own, *peer;
	u32 flags;

	if (!session->maps)
		return reader_sleeps(session, at);
	smp_mb();	/* (feed-W) */
	own = sluice_ring_memory_ctrl(session->memory, SLUICE_RING_SIDE_PRODUCER);
	peer = sluice_ring_memory_ctrl(session->memory, SLUICE_RING_SIDE_CONSUMER);
	flags = READ_ONCE(peer->wait_flags);
	if (session->ended)
		return true;
	if (!(flags & SLUICE_RING_WAKE_FD) || flags == session->answered)
		return false;
	session->answered = flags;
	smp_store_release(&own->wake_seq, own->wake_seq + 1);	/* the sleeper sees the record */
	return true;
}

/*
 * Without the lock: whoever probes an event may publish, also in this feed unless the packet would
 * be lost again without end.
 */
static void trace_result(struct sluice_feed *feed, int err)
{
	if (err == -ENOBUFS)
		trace_sluice_feed_lost(&feed->channel);
	else if (err == -EPROTO)
		trace_sluice_feed_end(&feed->channel, SLUICE_RING_REJECTED);
}

static void wake_consumer(struct irq_work *work)
{
	struct sluice_feed *feed = container_of(work, struct sluice_feed, wake);
	struct sluice_feed_session *session;

	rcu_read_lock();
	session = smp_load_acquire(&feed->session);	/* (feed-P) */
	if (session)
		sluice_wait_wake_all(session->wait, 0);
	rcu_read_unlock();
}

static int feed_publish(struct sluice_feed *feed, const void *data, size_t length, bool may_wake)
{
	struct sluice_feed_session *session;
	bool sleeps = false;
	unsigned long flags;
	u64 before;
	int err = 0;

	if (length > SLUICE_FEED_PACKET_MAX)
		return -EMSGSIZE;
	if (!READ_ONCE(feed->active))
		return 0;
	if (!raw_spin_trylock_irqsave(&feed->lock, flags)) {
		/* What an NMI has interrupted may hold the lock. */
		if (in_nmi()) {
			atomic_inc(&feed->contended);
			return -ENOBUFS;
		}
		raw_spin_lock_irqsave(&feed->lock, flags);
	}
	if (feed->active) {
		session = feed->session;
		before = session->head;
		err = put_packet(feed, session, data, length);
		sleeps = consumer_sleeps(session, before);
	}
	raw_spin_unlock_irqrestore(&feed->lock, flags);
	if (sleeps && may_wake)
		wake_consumer(&feed->wake);
	else if (sleeps)
		irq_work_queue(&feed->wake);
	trace_result(feed, err);
	return err == -EPROTO ? 0 : err;
}

int sluice_feed_publish(struct sluice_feed *feed, const void *data, size_t length)
{
	return feed_publish(feed, data, length, false);
}
EXPORT_SYMBOL_GPL(sluice_feed_publish);

/* The locks of wait queues sleep on PREEMPT_RT. */
int sluice_feed_publish_and_wake(struct sluice_feed *feed, const void *data, size_t length)
{
	return feed_publish(feed, data, length, !IS_ENABLED(CONFIG_PREEMPT_RT));
}

void sluice_feed_publish_init(struct sluice_feed *feed)
{
	init_irq_work(&feed->wake, wake_consumer);
}
