// SPDX-License-Identifier: GPL-2.0
/* Records, admission, numbers and acknowledgments of changes. */
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "map.h"
#include "stream.h"
#include "trace.h"

/* Bytes of changes that are not stored. One record always fits. */
#define STREAM_BYTES SLUICE_STREAM_BYTES
/* A record is not larger. */
#define RECORD_MAX (sizeof(struct sluice_stream_record) + SLUICE_MAP_KEY_MAX + SLUICE_MAP_VALUE_MAX)
/* Numbers that expiries leave to other changes. */
#define NUMBERS_FOR_CHANGES 16
/* Records that an acknowledgment takes under the lock at once. */
#define ACKNOWLEDGE_BATCH 1024

/* ---- records ---- */

struct sluice_stream_record *sluice_stream_record_create(const struct sluice_map_key *key,
							 u32 value_length, gfp_t gfp)
{
	struct sluice_stream_record *record;
	size_t size = struct_size(record, bytes, (size_t)key->length + value_length);

	if (size > SLUICE_MAP_CONTIGUOUS_MAX)
		record = __vmalloc(size, gfp);
	else
		record = kmalloc(size, gfp);
	if (!record)
		return NULL;
	record->type = SLUICE_KEEP_SET;
	record->expires_ns = 0;
	record->key_length = key->length;
	record->value_length = value_length;
	record->charged = size;
	record->entry = NULL;
	memcpy(record->bytes, key->bytes, key->length);
	return record;
}

void sluice_stream_record_free(struct sluice_stream_record *record)
{
	if (record->entry)
		sluice_map_unpin_removed(record->entry);
	kvfree(record);
}

/* ---- admission ---- */

/* Under the stream's lock. A change that has its number and has not ended yet counts twice. */
static s64 numbers_left(const struct sluice_stream *stream)
{
	return (s64)(stream->limit - atomic64_read(&stream->map->sequence)) -
	       (s64)stream->promised;
}

/* Under the stream's lock. As sluice_stream_admit(), at once and without effect. */
static int may_admit(const struct sluice_stream *stream, size_t bytes)
{
	if (stream->state != SLUICE_STREAM_LIVE)
		return -EIDRM;
	if (stream->error)
		return stream->error;
	if ((stream->bytes && stream->bytes + bytes > STREAM_BYTES) ||
	    numbers_left(stream) < SLUICE_STREAM_NUMBERS ||
	    sluice_streams_lack_keeper(sluice_stream_deadline(stream)))
		return -EAGAIN;
	return 0;
}

static int try_admit(struct sluice_stream *stream, size_t bytes)
{
	int err;

	spin_lock(&stream->lock);
	err = may_admit(stream, bytes);
	if (!err) {
		stream->bytes += bytes;
		stream->promised += SLUICE_STREAM_NUMBERS;
	}
	spin_unlock(&stream->lock);
	return err;
}

int sluice_stream_admit(struct sluice_stream *stream, size_t bytes, bool nowait)
{
	int err = try_admit(stream, bytes);
	long ret;

	if (err != -EAGAIN || nowait || stream->flags & SLUICE_MAP_REFUSE)
		return err;
	ret = wait_event_interruptible_timeout(stream->changed,
					       (err = try_admit(stream, bytes)) != -EAGAIN,
					       sluice_stream_deadline(stream));
	return ret < 0 ? ret : err;
}

/* Something that other changes wait for is there. */
static void wake(struct sluice_stream *stream)
{
	if (wq_has_sleeper(&stream->changed))
		wake_up_all(&stream->changed);
}

void sluice_stream_ask_for_rest(struct sluice_stream *stream)
{
	struct sluice_stream_record *last;

	lockdep_assert_held(&stream->lock);
	if (!sluice_stream_has_ended(stream) || !(stream->flags & SLUICE_MAP_INTERVAL) ||
	    list_empty(&stream->records))
		return;
	last = list_last_entry(&stream->records, struct sluice_stream_record, link);
	if (last->sequence <= stream->synced)
		return;
	stream->synced = last->sequence;
	stream->news |= SLUICE_NEWS_SYNC;
}

void sluice_stream_end_change(struct sluice_stream *stream, size_t bytes)
{
	bool over = false, scarce;

	spin_lock(&stream->lock);
	stream->promised -= SLUICE_STREAM_NUMBERS;
	stream->bytes -= bytes;
	/* Others may wait for the number that it has not used. */
	scarce = numbers_left(stream) < NUMBERS_FOR_CHANGES;
	/* The end of the stream, or its unlink, may have waited for this change. */
	if (stream->state != SLUICE_STREAM_LIVE) {
		sluice_stream_ask_for_rest(stream);
		sluice_stream_queue(stream);
		over = sluice_stream_is_over(stream);
	}
	spin_unlock(&stream->lock);
	sluice_stream_wake_keeper();
	if (bytes || scarce)
		wake(stream);
	if (over)
		sluice_stream_unregister(stream);
}

/* ---- numbers ---- */

u64 sluice_stream_append(struct sluice_stream *stream, struct sluice_stream_record *record)
{
	u64 sequence;

	spin_lock(&stream->lock);
	sequence = atomic64_inc_return(&stream->map->sequence);	/* (map-L), (map-N) in map.h */
	record->sequence = sequence;
	list_add_tail(&record->link, &stream->records);
	if (!stream->unread)
		stream->unread = record;
	sluice_stream_queue(stream);
	spin_unlock(&stream->lock);
	return sequence;
}

bool sluice_stream_begin_expiry(struct sluice_stream *stream)
{
	bool may;

	spin_lock(&stream->lock);
	may = stream->state == SLUICE_STREAM_LIVE && numbers_left(stream) > NUMBERS_FOR_CHANGES;
	if (may)
		stream->promised++;
	spin_unlock(&stream->lock);
	return may;
}

/* Does not unregister a stream that is over: who frees the map waits for the worker. */
void sluice_stream_end_expiry(struct sluice_stream *stream)
{
	spin_lock(&stream->lock);
	stream->promised--;
	sluice_stream_ask_for_rest(stream);
	sluice_stream_queue(stream);
	spin_unlock(&stream->lock);
}

/* ---- acknowledgments ---- */

static bool is_store_error(int error)
{
	return !error || error == -ENOSPC || error == -EIO || error == -EROFS;
}

/* Under the stream's lock. */
static int check_acknowledgment(const struct sluice_stream *stream, u64 sequence, u64 limit,
				int error)
{
	if (!is_store_error(error) || stream->state < SLUICE_STREAM_LIVE)
		return -EINVAL;
	if (sequence && (sequence > stream->delivered || sequence < stream->stored))
		return -EINVAL;
	return limit && (limit < stream->limit || limit > S64_MAX) ? -EINVAL : 0;
}

/* Moves some of the records up to @sequence to @stored. False: there are no more. */
static bool take_stored(struct sluice_stream *stream, u64 sequence, struct list_head *stored)
{
	struct sluice_stream_record *record, *next;
	unsigned int count = 0;

	spin_lock(&stream->lock);
	list_for_each_entry_safe(record, next, &stream->records, link) {
		if (record->sequence > sequence || count++ == ACKNOWLEDGE_BATCH)
			break;
		stream->bytes -= record->charged;
		list_move_tail(&record->link, stored);
	}
	if (count <= ACKNOWLEDGE_BATCH)
		WRITE_ONCE(stream->stored, sequence);
	if (sluice_stream_has_ended(stream))
		sluice_stream_queue(stream);
	spin_unlock(&stream->lock);
	return count > ACKNOWLEDGE_BATCH;
}

static void free_records(struct list_head *records)
{
	struct sluice_stream_record *record, *next;

	list_for_each_entry_safe(record, next, records, link) {
		list_del(&record->link);
		sluice_stream_record_free(record);
		cond_resched();
	}
}

/* Records that are stored are freed after the waiting changes are woken. */
static void free_stored(struct sluice_stream *stream, u64 sequence)
{
	LIST_HEAD(stored);
	bool more;

	do {
		more = take_stored(stream, sequence, &stored);
		wake(stream);
		free_records(&stored);
	} while (more);
}

int sluice_stream_acknowledge(struct sluice_stream *stream, u64 sequence, u64 limit, int error)
{
	int err;

	spin_lock(&stream->lock);
	err = check_acknowledgment(stream, sequence, limit, error);
	if (!err) {
		stream->error = error;
		stream->limit = limit ?: stream->limit;
	}
	spin_unlock(&stream->lock);
	if (err)
		return err;
	trace_sluice_map_stored(&stream->map->channel, sequence, limit, -error);
	if (sequence)
		free_stored(stream, sequence);
	else
		wake(stream);
	sluice_stream_wake_keeper();
	return 0;
}

/* ---- waits ---- */

/* The keeper of a map that it stores at intervals is told that somebody waits. */
static void ask_for_commit(struct sluice_stream *stream, u64 sequence)
{
	spin_lock(&stream->lock);
	if (sequence > stream->synced && stream->state < SLUICE_STREAM_DELETED) {
		stream->synced = sequence;
		stream->news |= SLUICE_NEWS_SYNC;
		sluice_stream_queue(stream);
	}
	spin_unlock(&stream->lock);
	sluice_stream_wake_keeper();
}

static bool is_stored(const struct sluice_stream *stream, u64 sequence)
{
	return READ_ONCE(stream->stored) >= sequence;
}

/* Whether a wait for it is over: what is deleted or dropped is not stored any more. */
static bool is_settled(const struct sluice_stream *stream, u64 sequence)
{
	return is_stored(stream, sequence) || sluice_stream_state(stream) >= SLUICE_STREAM_DELETED;
}

int sluice_stream_wait_stored(struct sluice_stream *stream, u64 sequence)
{
	long ret;

	if (is_stored(stream, sequence))
		return 0;
	if (stream->flags & SLUICE_MAP_INTERVAL)
		ask_for_commit(stream, sequence);
	ret = wait_event_interruptible_timeout(stream->changed,
					       is_settled(stream, sequence),
					       sluice_stream_deadline(stream));
	if (is_stored(stream, sequence))
		return 0;
	if (sluice_stream_state(stream) == SLUICE_STREAM_DELETED)
		return -EIDRM;
	return ret < 0 ? -EINTR : -ETIMEDOUT;
}

__poll_t sluice_stream_poll(struct sluice_stream *stream, u64 last)
{
	__poll_t events = 0;

	/* An error and the end are ready, too: a change fails at once. */
	spin_lock(&stream->lock);
	if (may_admit(stream, RECORD_MAX) != -EAGAIN)
		events |= EPOLLOUT | EPOLLWRNORM;
	spin_unlock(&stream->lock);
	if (last && is_settled(stream, last))
		events |= EPOLLPRI;
	return events;
}

void sluice_stream_fill_info(struct sluice_stream *stream, struct sluice_map_info *info)
{
	info->flags = stream->flags;
	info->deadline_ms = stream->deadline_ms;
	info->interval_ms = stream->interval_ms;
	spin_lock(&stream->lock);
	info->stored = stream->stored;
	info->pending = stream->bytes;
	info->error = -stream->error;
	spin_unlock(&stream->lock);
}
