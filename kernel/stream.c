// SPDX-License-Identifier: GPL-2.0
/* The life of streams. */
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "map.h"
#include "map_mapped.h"
#include "quota.h"
#include "scope.h"
#include "stream.h"

#define DEFAULT_DEADLINE_MS 30000
#define DEFAULT_INTERVAL_MS 1000

/* The registered streams, by number. Its lock protects the references that they hold. */
static DEFINE_XARRAY_FLAGS(streams, XA_FLAGS_ACCOUNT);
static atomic64_t last_number = ATOMIC64_INIT(0);

static bool attached;			/* there is a keeper; stored under begin_mutex (keeper.c) */
static unsigned long absent_since = INITIAL_JIFFIES;	/* while not attached, likewise */
static bool stores_tables;		/* the keeper does; stored under begin_mutex */

bool sluice_streams_lack_keeper(unsigned long deadline)
{
	/* Pairs with the release in sluice_streams_forget_keeper(). */
	return !smp_load_acquire(&attached) &&
	       time_after_eq(jiffies, READ_ONCE(absent_since) + deadline);
}

unsigned long sluice_stream_deadline(const struct sluice_stream *stream)
{
	return msecs_to_jiffies(stream->deadline_ms) ?: 1;
}

struct sluice_stream *sluice_stream_create(struct sluice_map *map,
					   const struct sluice_map_params *params, gfp_t gfp)
{
	struct sluice_stream *stream = kzalloc(sizeof(*stream), gfp);

	if (!stream)
		return NULL;
	stream->path = sluice_scope_path(map->channel.scope, gfp);
	if (!stream->path) {
		kfree(stream);
		return NULL;
	}
	stream->map = map;
	sluice_stream_set_params(stream, params);
	INIT_LIST_HEAD(&stream->ready);
	INIT_LIST_HEAD(&stream->records);
	init_waitqueue_head(&stream->changed);
	spin_lock_init(&stream->lock);
	return stream;
}

void sluice_stream_set_params(struct sluice_stream *stream, const struct sluice_map_params *params)
{
	stream->flags = params->flags;
	stream->deadline_ms = params->deadline_ms ?: DEFAULT_DEADLINE_MS;
	stream->interval_ms = 0;
	if (params->flags & SLUICE_MAP_INTERVAL)
		stream->interval_ms = params->interval_ms ?: DEFAULT_INTERVAL_MS;
}

void sluice_stream_free(struct sluice_stream *stream)
{
	struct sluice_stream_record *record, *next;

	list_for_each_entry_safe(record, next, &stream->records, link) {
		sluice_stream_record_free(record);
		cond_resched();
	}
	kfree(stream->path);
	kfree(stream);
}

/* ---- the table ---- */

static int register_stream(struct sluice_stream *stream, gfp_t gfp)
{
	struct sluice_channel *channel = &stream->map->channel;
	int err;

	stream->number = atomic64_inc_return(&last_number);
	stream->registered = true;
	refcount_inc(&channel->refs);
	__module_get(THIS_MODULE);
	err = xa_insert(&streams, stream->number, stream, gfp);
	if (!err)
		return 0;
	stream->registered = false;
	sluice_channel_put(channel);
	module_put(THIS_MODULE);
	return err;
}

void sluice_stream_unregister(struct sluice_stream *stream)
{
	bool registered;

	spin_lock(&stream->lock);
	registered = stream->registered;
	stream->registered = false;
	sluice_stream_unqueue(stream);
	spin_unlock(&stream->lock);
	if (!registered)
		return;
	xa_erase(&streams, stream->number);
	/* A large map takes long to free, and the keeper has others to serve. */
	sluice_channel_put_deferred(&stream->map->channel);
	module_put(THIS_MODULE);
}

struct sluice_stream *sluice_stream_get(u64 number)
{
	struct sluice_stream *stream;

	xa_lock(&streams);
	stream = xa_load(&streams, number);
	if (stream)
		refcount_inc(&stream->map->channel.refs);
	xa_unlock(&streams);
	return stream;
}

void sluice_stream_put(struct sluice_stream *stream)
{
	sluice_channel_put_deferred(&stream->map->channel);
}

/* The first stream after @number with a reference, or NULL. */
static struct sluice_stream *next_after(u64 number)
{
	unsigned long index = number;
	struct sluice_stream *stream;

	xa_lock(&streams);
	stream = xa_find_after(&streams, &index, ULONG_MAX, XA_PRESENT);
	if (stream)
		refcount_inc(&stream->map->channel.refs);
	xa_unlock(&streams);
	return stream;
}

/* Iterates over the streams: the first for NULL, and NULL after the last. Puts the one before. */
static struct sluice_stream *next_stream(struct sluice_stream *before)
{
	u64 number = before ? before->number : 0;

	if (before)
		sluice_stream_put(before);
	cond_resched();
	return next_after(number);
}

/* ---- states ---- */

void sluice_stream_set_state(struct sluice_stream *stream, enum sluice_stream_state state)
{
	lockdep_assert_held(&stream->lock);
	/* (stream-A): after `answer`, and after the map was filled in. */
	smp_store_release(&stream->state, state);
}

enum sluice_stream_state sluice_stream_state(const struct sluice_stream *stream)
{
	return smp_load_acquire(&stream->state);	/* (stream-A) */
}

bool sluice_stream_has_ended(const struct sluice_stream *stream)
{
	return sluice_stream_state(stream) >= SLUICE_STREAM_ABANDONED;
}

/* ---- the end ---- */

bool sluice_stream_is_over(const struct sluice_stream *stream)
{
	lockdep_assert_held(&stream->lock);
	if (stream->state != SLUICE_STREAM_CLOSING)
		return stream->state >= SLUICE_STREAM_DELETED;
	return list_empty(&stream->records) && !stream->promised &&
	       !(stream->news & SLUICE_NEWS_CLOSED);
}

/* Under the stream's lock: no more changes are made. Returns whether nothing is left to be told. */
static bool end(struct sluice_stream *stream)
{
	if (stream->state < SLUICE_STREAM_ABANDONED)
		sluice_stream_set_state(stream, stream->state == SLUICE_STREAM_UNLINKING ?
						SLUICE_STREAM_ABANDONED : SLUICE_STREAM_CLOSING);
	if (!sluice_streams_lack_keeper(0))
		stream->news |= SLUICE_NEWS_CLOSED;
	sluice_stream_ask_for_rest(stream);
	if (sluice_stream_is_over(stream))
		return true;
	sluice_stream_queue(stream);
	return false;
}

/*
 * After a change of the state, without the lock: wakes waiters and the keeper, and unregisters the
 * stream if it is @over.
 */
static void tell_end(struct sluice_stream *stream, bool over)
{
	wake_up_all(&stream->changed);
	sluice_stream_wake_keeper();
	if (over)
		sluice_stream_unregister(stream);
}

void sluice_stream_unnamed(struct sluice_stream *stream)
{
	bool over;

	spin_lock(&stream->lock);
	over = end(stream);
	spin_unlock(&stream->lock);
	tell_end(stream, over);
}

/* The keeper has ended it, or learns of its end by the result of a call. */
static void stream_drop(struct sluice_stream *stream)
{
	spin_lock(&stream->lock);
	sluice_stream_set_state(stream, SLUICE_STREAM_DROPPED);
	spin_unlock(&stream->lock);
	tell_end(stream, true);
}

/* ---- opens ---- */

static bool is_open_answered(const struct sluice_stream *stream)
{
	return sluice_stream_state(stream) >= SLUICE_STREAM_LIVE;
}

/* The error of an open that a signal ends. @told: the keeper knows of it. */
static int interrupted(const struct sluice_stream *stream, bool told)
{
	/* A restarted open could find what the keeper has stored for it. */
	return told && stream->open_flags & SLUICE_OPEN_EXCL ? -EINTR : -ERESTARTSYS;
}

static int answer_of(struct sluice_stream *stream)
{
	/* A keeper that says "look again" all the time must not occupy a CPU. */
	if (stream->answer == -ESTALE && schedule_timeout_interruptible(1))
		return signal_pending(current) ? interrupted(stream, true) : -ESTALE;
	return stream->answer;
}

/* An open that does not wait any longer. @ret: of the wait. */
static int give_up(struct sluice_stream *stream, long ret)
{
	bool told, over;

	spin_lock(&stream->lock);
	if (is_open_answered(stream)) {
		spin_unlock(&stream->lock);
		return answer_of(stream);
	}
	told = stream->state != SLUICE_STREAM_QUEUED;
	if (!told)
		sluice_stream_set_state(stream, SLUICE_STREAM_DROPPED);
	over = end(stream);
	spin_unlock(&stream->lock);
	tell_end(stream, over);
	return ret ? interrupted(stream, told) : -ETIMEDOUT;
}

/* The jiffies that are left of the time of the open, however often it has asked. */
static long time_left(const struct sluice_stream *stream,
		      const struct sluice_channel_request *request)
{
	return max(0L, (long)(request->began + sluice_stream_deadline(stream) - jiffies));
}

int sluice_stream_ask(struct sluice_stream *stream, const struct sluice_channel_request *request)
{
	const struct sluice_map_params *params = request->params;
	int err = sluice_quota_commit(stream->map->channel.charge);
	long ret;

	if (err)
		return err;
	if (request->flags & SLUICE_OPEN_NONBLOCK)
		return -EAGAIN;
	stream->open_flags = request->flags;
	/* The map may have the table of an earlier answer; the keeper is told what is required. */
	sluice_stream_set_params(stream, params);
	stream->table_cell = sluice_map_mapped_cell_size(params);
	stream->table = params->table;
	/* Not capable(): it would audit each caller without the capability. */
	stream->administrator = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	stream->has_opener = true;
	err = register_stream(stream, request->gfp);
	if (err)
		return err;
	spin_lock(&stream->lock);
	sluice_stream_queue(stream);
	spin_unlock(&stream->lock);
	sluice_stream_wake_keeper();
	ret = wait_event_interruptible_timeout(stream->changed, is_open_answered(stream),
					       time_left(stream, request));
	return ret > 0 ? answer_of(stream) : give_up(stream, ret);
}

/* Under the stream's lock. @error: 0, or a negative errno, which ends the stream. */
static void answer(struct sluice_stream *stream, int error)
{
	stream->answer = error;
	sluice_stream_set_state(stream, error ? SLUICE_STREAM_DROPPED : SLUICE_STREAM_LIVE);
}

bool sluice_stream_refuse_table(struct sluice_stream *stream)
{
	lockdep_assert_held(&stream->lock);
	if (stream->state != SLUICE_STREAM_QUEUED || READ_ONCE(stores_tables))
		return false;
	if (stream->flags & SLUICE_MAP_MAPPED)
		answer(stream, -EPROTONOSUPPORT);
	else if (stream->map->mapped)
		answer(stream, -ESTALE);	/* of a table that an earlier keeper has stored */
	else
		return false;
	return true;
}

void sluice_stream_get_table(const struct sluice_stream *stream, struct sluice_map_params *params)
{
	if (!stream->has_other_table)
		return;
	params->flags &= ~SLUICE_MAP_MAPPED;
	if (stream->table)
		params->flags |= SLUICE_MAP_MAPPED;
	params->cell = stream->table_cell;
	params->table = stream->table;
}

/* ---- calls of the keeper ---- */

void sluice_stream_set_table(struct sluice_stream *stream, const struct sluice_map_params *params)
{
	/* Until the keeper answers the open, which has no lock for that, only calls use them. */
	stream->table_cell = params->cell;
	stream->table = params->table;
	stream->has_other_table = true;
}

int sluice_stream_begin_restoring(struct sluice_stream *stream)
{
	int err = 0;

	spin_lock(&stream->lock);
	if (stream->state == SLUICE_STREAM_ASKED)
		sluice_stream_set_state(stream, SLUICE_STREAM_RESTORING);
	else
		err = sluice_stream_has_ended(stream) ? -ENOENT : -EINVAL;
	spin_unlock(&stream->lock);
	return err;
}

int sluice_stream_register_restored(struct sluice_stream *stream, gfp_t gfp)
{
	stream->state = SLUICE_STREAM_RESTORING;
	return register_stream(stream, gfp);
}

/* Under the stream's lock: an error of READY, or 0. */
static int check_ready(const struct sluice_stream *stream, int error)
{
	if (sluice_stream_has_ended(stream))
		return -ENOENT;
	if (stream->state == SLUICE_STREAM_RESTORING)
		return 0;
	return stream->state == SLUICE_STREAM_ASKED && error ? 0 : -EINVAL;
}

/* Ends what the keeper has failed to restore, or did not want to. */
static void stream_fail(struct sluice_stream *stream)
{
	sluice_stream_unregister(stream);
	if (!stream->has_opener)
		sluice_channel_close(&stream->map->channel);
}

/* A map without an opener gets its name. */
static int stream_publish(struct sluice_stream *stream)
{
	int err = sluice_channel_register_or_put(&stream->map->channel);

	if (err)
		stream_drop(stream);
	else
		sluice_channel_close(&stream->map->channel);
	return err;
}

int sluice_stream_ready(struct sluice_stream *stream, int error)
{
	int err;

	spin_lock(&stream->lock);
	err = check_ready(stream, error);
	if (!err)
		answer(stream, error);
	spin_unlock(&stream->lock);
	if (err)
		return err;
	wake_up_all(&stream->changed);
	if (error)
		stream_fail(stream);
	else if (!stream->has_opener)
		return stream_publish(stream);
	return 0;
}

/* Under the stream's lock. */
static bool is_asked_to_unlink(const struct sluice_stream *stream)
{
	return stream->state == SLUICE_STREAM_UNLINKING ||
	       stream->state == SLUICE_STREAM_ABANDONED;
}

/* Under the stream's lock: the state after the keeper's answer to an UNLINK, which it has read. */
static enum sluice_stream_state unlinked_state(const struct sluice_stream *stream, int error)
{
	if (!error)
		return SLUICE_STREAM_DELETED;
	return stream->state == SLUICE_STREAM_UNLINKING ? SLUICE_STREAM_LIVE :
							 SLUICE_STREAM_CLOSING;
}

int sluice_stream_unlinked(struct sluice_stream *stream, int error)
{
	bool unname, over;

	spin_lock(&stream->lock);
	if (!is_asked_to_unlink(stream) || stream->news & SLUICE_NEWS_UNLINK) {
		spin_unlock(&stream->lock);
		return -EINVAL;
	}
	sluice_stream_set_state(stream, unlinked_state(stream, error));
	stream->unlink_error = error;
	unname = !error && !stream->unlinkers;
	over = sluice_stream_is_over(stream);
	/* The end of the stream may have waited for this answer. */
	if (!over)
		sluice_stream_queue(stream);
	spin_unlock(&stream->lock);
	tell_end(stream, over);
	if (unname)
		sluice_channel_unname(&stream->map->channel);
	return 0;
}

/* Under the stream's lock: 0, or why it is not detached. */
static int check_detach(const struct sluice_stream *stream)
{
	if (sluice_stream_has_ended(stream))
		return 0;
	if (stream->state < SLUICE_STREAM_LIVE)
		return -EINVAL;
	/* Without a name: its open is about to give it. */
	if (stream->state == SLUICE_STREAM_UNLINKING || stream->promised ||
	    !list_empty(&stream->records) || !sluice_channel_is_persistent(&stream->map->channel))
		return -EBUSY;
	return 0;
}

int sluice_stream_detach(struct sluice_stream *stream)
{
	int err;

	spin_lock(&stream->lock);
	err = check_detach(stream);
	if (!err)
		sluice_stream_set_state(stream, SLUICE_STREAM_DROPPED);
	spin_unlock(&stream->lock);
	if (err)
		return err;
	sluice_channel_unname(&stream->map->channel);
	tell_end(stream, true);
	return 0;
}

/* ---- the end of a keeper, and the next one ---- */

/* Under the stream's lock: the next keeper is told everything again. */
static void tell_again(struct sluice_stream *stream)
{
	stream->unread = list_first_entry_or_null(&stream->records, struct sluice_stream_record,
						  link);
	stream->delivered = stream->stored;
	stream->news |= SLUICE_NEWS_RESUME;
	if (is_asked_to_unlink(stream))
		stream->news |= SLUICE_NEWS_UNLINK;
	if (stream->synced > stream->stored)
		stream->news |= SLUICE_NEWS_SYNC;
	sluice_stream_queue(stream);
}

static void forget_keeper(struct sluice_stream *stream)
{
	bool fails, over = false;

	spin_lock(&stream->lock);
	fails = stream->state == SLUICE_STREAM_ASKED || stream->state == SLUICE_STREAM_RESTORING;
	if (fails) {
		answer(stream, -ESTALE);
	} else if (stream->state >= SLUICE_STREAM_LIVE) {
		stream->news &= ~(SLUICE_NEWS_CLOSED | SLUICE_NEWS_SYNC);
		over = sluice_stream_is_over(stream);
		if (!over)
			tell_again(stream);
	}
	spin_unlock(&stream->lock);
	wake_up_all(&stream->changed);
	if (fails)
		stream_fail(stream);
	else if (over)
		sluice_stream_unregister(stream);
}

void sluice_streams_forget_keeper(void)
{
	struct sluice_stream *stream = NULL;

	WRITE_ONCE(absent_since, jiffies);
	smp_store_release(&attached, false);	/* after absent_since */
	while ((stream = next_stream(stream)))
		forget_keeper(stream);
}

static void begin_keeper(struct sluice_stream *stream)
{
	spin_lock(&stream->lock);
	if (sluice_stream_has_ended(stream))
		stream->news |= SLUICE_NEWS_CLOSED;
	spin_unlock(&stream->lock);
	wake_up_all(&stream->changed);
}

void sluice_streams_begin_keeper(u32 flags)
{
	struct sluice_stream *stream = NULL;

	WRITE_ONCE(stores_tables, flags & SLUICE_KEEP_TABLES);
	WRITE_ONCE(attached, true);
	while ((stream = next_stream(stream)))
		begin_keeper(stream);
}

/* ---- unlink ---- */

/*
 * Under the stream's lock, after a wait that has @left this time. False: another unlink has begun
 * meanwhile. The keeper's error may be any, so none of them means that.
 */
static bool is_unlink_over(const struct sluice_stream *stream, long left, int *err)
{
	switch (stream->state) {
	case SLUICE_STREAM_DELETED:
		*err = 0;
		return true;
	case SLUICE_STREAM_LIVE:
		*err = stream->unlink_error;
		return true;
	case SLUICE_STREAM_UNLINKING:
		*err = left ? -EINTR : -ETIMEDOUT;
		return left <= 0;
	default:
		*err = -ENOENT;	/* it is losing its name, but stays stored */
		return true;
	}
}

static int wait_unlinked(struct sluice_stream *stream)
{
	long left = sluice_stream_deadline(stream);
	bool over;
	int err;

	do {
		left = wait_event_interruptible_timeout(stream->changed,
							sluice_stream_state(stream) !=
							SLUICE_STREAM_UNLINKING, left);
		spin_lock(&stream->lock);
		over = is_unlink_over(stream, left, &err);
		if (over)
			stream->unlinkers--;
		spin_unlock(&stream->lock);
	} while (!over);
	return err;
}

int sluice_stream_unlink(struct sluice_stream *stream)
{
	spin_lock(&stream->lock);
	if (stream->state == SLUICE_STREAM_LIVE) {
		sluice_stream_set_state(stream, SLUICE_STREAM_UNLINKING);
		stream->unlink_error = 0;
		stream->news |= SLUICE_NEWS_UNLINK;
		sluice_stream_queue(stream);
	}
	stream->unlinkers++;
	spin_unlock(&stream->lock);
	wake_up_all(&stream->changed);
	sluice_stream_wake_keeper();
	return wait_unlinked(stream);
}
