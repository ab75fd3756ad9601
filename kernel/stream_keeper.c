// SPDX-License-Identifier: GPL-2.0
/* What streams tell the keeper, and in which order. */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "map.h"
#include "map_mapped.h"
#include "stream.h"
#include "trace.h"

/* Streams that have something to tell. Taken under a stream's lock. */
static DEFINE_SPINLOCK(ready_lock);
static LIST_HEAD(ready);
DECLARE_WAIT_QUEUE_HEAD(sluice_stream_ready_wait);

void sluice_stream_queue(struct sluice_stream *stream)
{
	lockdep_assert_held(&stream->lock);
	if (!stream->registered || !list_empty(&stream->ready))
		return;
	spin_lock(&ready_lock);
	list_add_tail(&stream->ready, &ready);
	spin_unlock(&ready_lock);
}

void sluice_stream_unqueue(struct sluice_stream *stream)
{
	lockdep_assert_held(&stream->lock);
	spin_lock(&ready_lock);
	list_del_init(&stream->ready);
	spin_unlock(&ready_lock);
}

void sluice_stream_wake_keeper(void)
{
	if (wq_has_sleeper(&sluice_stream_ready_wait))
		wake_up_interruptible_poll(&sluice_stream_ready_wait, EPOLLIN | EPOLLRDNORM);
}

bool sluice_streams_have_message(void)
{
	return !list_empty_careful(&ready);
}

/* The first stream of the list, with a reference, or NULL. One of the list is registered. */
static struct sluice_stream *first_ready(void)
{
	struct sluice_stream *stream;

	spin_lock(&ready_lock);
	stream = list_first_entry_or_null(&ready, struct sluice_stream, ready);
	if (stream)
		refcount_inc(&stream->map->channel.refs);
	spin_unlock(&ready_lock);
	return stream;
}

/* ---- messages ---- */

/* Under the stream's lock: what it has to tell before records, else 0. */
static u32 first_news(const struct sluice_stream *stream)
{
	if (stream->state == SLUICE_STREAM_QUEUED)
		return SLUICE_NEWS_OPEN;
	return stream->news & SLUICE_NEWS_RESUME;
}

/* Under the stream's lock, when no record is left to deliver: else 0. */
static u32 last_news(const struct sluice_stream *stream)
{
	if (stream->news & SLUICE_NEWS_SYNC)
		return SLUICE_NEWS_SYNC;
	if (stream->promised)
		return 0;
	if (stream->news & SLUICE_NEWS_UNLINK)
		return SLUICE_NEWS_UNLINK;
	if (!list_empty(&stream->records) || stream->state != SLUICE_STREAM_CLOSING)
		return 0;
	return stream->news & SLUICE_NEWS_CLOSED;
}

static u32 type_of(u32 news)
{
	switch (news) {
	case SLUICE_NEWS_OPEN:
		return SLUICE_KEEP_OPEN;
	case SLUICE_NEWS_RESUME:
		return SLUICE_KEEP_RESUME;
	case SLUICE_NEWS_SYNC:
		return SLUICE_KEEP_SYNC;
	case SLUICE_NEWS_UNLINK:
		return SLUICE_KEEP_UNLINK;
	default:
		return SLUICE_KEEP_CLOSED;
	}
}

static void fill_map(struct sluice_keep_map *keep, const struct sluice_stream *stream)
{
	const struct sluice_map *map = stream->map;
	bool asks = stream->state == SLUICE_STREAM_QUEUED;

	*keep = (struct sluice_keep_map) {
		.size = sizeof(*keep),
		.flags = stream->flags,
		.open_flags = asks ? stream->open_flags : 0,
		.administrator = asks && stream->administrator,
		.uid = from_kuid(&init_user_ns, map->channel.uid),
		.gid = from_kgid(&init_user_ns, map->channel.gid),
		.mode = map->channel.mode,
		.events = map->slot_count,
		.capacity = map->capacity,
		.entries = map->entries_max,
		.deadline_ms = stream->deadline_ms,
		.interval_ms = stream->interval_ms,
		.cell = asks ? stream->table_cell : sluice_map_mapped_cell(map),
		.table = asks ? stream->table : sluice_map_mapped_table(map),
	};
	memcpy(keep->name, map->channel.key.name, sizeof(keep->name));
}

static void fill_news(struct sluice_stream_message *message, struct sluice_stream *stream)
{
	struct sluice_keep_message *header = &message->header;

	header->type = type_of(message->news);
	if (message->news == SLUICE_NEWS_RESUME)
		header->sequence = stream->stored;
	else if (message->news == SLUICE_NEWS_SYNC)
		header->sequence = stream->synced;
	if (message->news != SLUICE_NEWS_OPEN && message->news != SLUICE_NEWS_RESUME)
		return;
	fill_map(&message->map, stream);
	message->key = &message->map;
	header->key_length = sizeof(message->map);
	message->value = stream->path;
	header->value_length = strlen(stream->path);
}

static void fill_record(struct sluice_stream_message *message)
{
	struct sluice_stream_record *record = message->record;
	struct sluice_keep_message *header = &message->header;

	header->type = record->type;
	header->sequence = record->sequence;
	header->expires_ns = record->expires_ns;
	header->key_length = record->key_length;
	header->value_length = record->value_length;
	message->key = record->entry ? record->entry->key : record->bytes;
	message->value = sluice_stream_record_value(record);
}

/* Under the stream's lock: its next message. False: it has none. */
static bool stream_keeper_fill(struct sluice_stream_message *message, struct sluice_stream *stream)
{
	struct sluice_keep_message *header = &message->header;

	*message = (struct sluice_stream_message) {
		.stream = stream,
		.news = first_news(stream),
		.header.stream = stream->number,
		.header.header = sizeof(message->header),
	};
	if (!message->news)
		message->record = stream->unread;
	if (!message->news && !message->record)
		message->news = last_news(stream);
	if (message->record)
		fill_record(message);
	else if (message->news)
		fill_news(message, stream);
	else
		return false;
	if (message->news == SLUICE_NEWS_OPEN)
		sluice_stream_set_state(stream, SLUICE_STREAM_TELLING);
	header->size = ALIGN(sizeof(*header) + header->key_length + header->value_length,
			     sizeof(u64));
	return true;
}

/* As sluice_stream_next_message(), of this stream, which leaves the list if it has none. */
static bool next_of(struct sluice_stream_message *message, struct sluice_stream *stream)
{
	bool refused, has, over;

	spin_lock(&stream->lock);
	refused = sluice_stream_refuse_table(stream);
	/* It may have ended since it was found; the keeper is not told of that. */
	has = stream->state < SLUICE_STREAM_DELETED && stream_keeper_fill(message, stream);
	if (!has)
		sluice_stream_unqueue(stream);
	over = !has && sluice_stream_is_over(stream);
	spin_unlock(&stream->lock);
	if (refused)
		wake_up_all(&stream->changed);
	if (over)
		sluice_stream_unregister(stream);
	return has;
}

bool sluice_stream_next_message(struct sluice_stream_message *message)
{
	struct sluice_stream *stream;

	while ((stream = first_ready())) {
		if (next_of(message, stream))
			return true;
		sluice_stream_put(stream);
	}
	return false;
}

/* ---- delivered ---- */

/* Under the stream's lock, after the copy of the message of the open. */
static void stream_keeper_end_telling(struct sluice_stream *stream, bool taken)
{
	if (stream->state == SLUICE_STREAM_TELLING)
		sluice_stream_set_state(stream, taken ? SLUICE_STREAM_ASKED : SLUICE_STREAM_QUEUED);
	else if (!taken)
		/* The open has given up meanwhile, and the keeper does not know of it. */
		sluice_stream_set_state(stream, SLUICE_STREAM_DROPPED);
}

/* Under the stream's lock. */
static void stream_keeper_take(struct sluice_stream *stream,
			       const struct sluice_stream_message *message)
{
	/* Somebody may wait for a later change by now. */
	if (message->news != SLUICE_NEWS_SYNC || message->header.sequence == stream->synced)
		stream->news &= ~message->news;
	if (!message->record)
		return;
	stream->delivered = message->record->sequence;
	stream->unread = list_is_last(&message->record->link, &stream->records) ?
			 NULL : list_next_entry(message->record, link);
}

void sluice_stream_end_message(struct sluice_stream_message *message, bool taken)
{
	struct sluice_stream *stream = message->stream;
	bool over;

	spin_lock(&stream->lock);
	if (message->news == SLUICE_NEWS_OPEN)
		stream_keeper_end_telling(stream, taken);
	if (taken) {
		stream_keeper_take(stream, message);
		/* Another stream is next. */
		sluice_stream_unqueue(stream);
		sluice_stream_queue(stream);
	}
	over = sluice_stream_is_over(stream);
	spin_unlock(&stream->lock);
	if (taken)
		trace_sluice_keeper_message(&stream->map->channel, message->header.type,
					    message->header.sequence);
	if (over)
		sluice_stream_unregister(stream);
	sluice_stream_put(stream);
}
