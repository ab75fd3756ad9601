/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stream of a durable map: its changes on their way to the keeper, which stores them.
 *
 * Life of a stream: it is allocated with its map and freed with it. While it is registered the
 * keeper can find it by its number, and it holds a reference to the map and to the module. An open
 * that asks the keeper registers it; so does a map that the keeper restores on its own account.
 * Then:
 *
 *   ASKING      the keeper has not answered the open
 *   RESTORING   the keeper fills in the map, which has no name yet
 *   LIVE        changes are made
 *   ENDED       no more changes are made: the open has failed, or the map has lost its name
 *
 * An ended stream stays registered until the keeper has acknowledged what is left and knows that it
 * has ended; if it needs not know, because it has ended it itself, or there is no keeper and
 * nothing is left, it is unregistered at once. A stream whose keeper dies before the answer to the
 * open is ended, and the open asks the next keeper with a new map.
 *
 * Life of a record: that of a set is allocated before the set, with a copy of the key and the
 * value; that of a removal, with its entry, so that an expiry needs no memory. It becomes part of
 * the stream when its change is made, under the lock under which the change takes its number: the
 * order of the records is that of the numbers. It is freed when it is acknowledged.
 *
 * Admission: before a change is made, sluice_stream_admit() reserves the bytes of its record, and
 * numbers: for the change, and for the expiry of an entry in its way. Every refusal is there. An
 * expiry of the worker takes a number only if one is left beside those.
 *
 * Unlinking: sluice_stream_unlink() stops admissions, asks the keeper to delete what is stored, and
 * waits. If it does not wait until the answer, the answer removes the name.
 *
 * Messages of a stream, in this order: OPEN or RESUME, its records, UNLINK when no change can come
 * any more, CLOSED after the last acknowledgment. A stream that has something to tell is in the
 * list `ready`. Only calls of the keeper take records and messages away, under the keeper's mutex:
 * one that is being copied stays.
 *
 * Locks: a stream's lock is taken under that of a shard, and ready_lock under it.
 */
#ifndef SLUICE_STREAM_H
#define SLUICE_STREAM_H

#include <linux/list.h>
#include <linux/poll.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include <uapi/linux/sluice.h>

struct sluice_channel_request;
struct sluice_map;
struct sluice_map_entry;
struct sluice_map_key;

struct sluice_stream_record {
	struct list_head link;		/* in the stream, in the order of the numbers */
	u64 sequence;
	u64 expires_ns;			/* CLOCK_BOOTTIME, 0: never */
	u32 type;			/* SLUICE_KEEP_SET, _DELETE, _EXPIRE */
	u32 key_length;
	u32 value_length;
	u32 charged;			/* bytes of the stream */
	struct sluice_map_entry *entry;	/* of a removal, with a reference: has the key */
	u8 bytes[];			/* of a set: key and value */
};

enum sluice_stream_state {
	SLUICE_STREAM_ASKING,
	SLUICE_STREAM_RESTORING,
	SLUICE_STREAM_LIVE,
	SLUICE_STREAM_ENDED,
};

/* What the keeper is to be told, apart from records: bits of `news`. */
#define SLUICE_NEWS_OPEN	0x01
#define SLUICE_NEWS_RESUME	0x02
#define SLUICE_NEWS_SYNC	0x04
#define SLUICE_NEWS_UNLINK	0x08
#define SLUICE_NEWS_CLOSED	0x10

struct sluice_stream {
	struct sluice_map *map;
	u64 number;			/* 0: never registered */
	char *path;			/* of the cgroup */
	u32 flags;			/* SLUICE_MAP_DURABLE, _INTERVAL, _REFUSE */
	u32 deadline_ms;
	u32 interval_ms;
	u32 open_flags;			/* of the open that asks */
	bool administrator;		/* the opener is */
	bool has_opener;		/* the open owns the map; else the keeper, until LIVE */
	struct list_head ready;		/* in the list, if it has something to tell (+) */
	wait_queue_head_t changed;	/* room, stored, an answer, the end */

	spinlock_t lock;		/* protects the following fields */
	enum sluice_stream_state state;
	bool registered;
	bool answered;			/* the open: with `answer`, 0 or an error */
	bool unlinking;			/* admits no change */
	bool telling;			/* the message of the open is being copied */
	bool forgotten;			/* the keeper needs not be told of the end */
	bool deleted;			/* what was stored is deleted */
	int answer;
	int unlink_error;
	unsigned int unlinkers;		/* calls that wait */
	u32 news;			/* SLUICE_NEWS_* */
	int error;			/* of the store: 0, -ENOSPC, -EIO, -EROFS */
	struct list_head records;
	struct sluice_stream_record *unread;	/* the first that was not delivered, or NULL */
	u64 delivered;			/* number of the last record that was */
	u64 stored;			/* all changes up to this one are; read without the lock */
	u64 limit;			/* the greatest number that may be given */
	u64 promised;			/* numbers of admitted changes */
	u64 bytes;			/* of records, and of admitted changes */
	u64 synced;			/* number of the last change that somebody waits for */
	/* (+) under ready_lock and this lock */
};

/* Bytes of changes that are not stored. Charged to the limits of channels with the capacity. */
#define SLUICE_STREAM_BYTES SZ_4M
/* Numbers that an admitted change may take. */
#define SLUICE_STREAM_NUMBERS 2

/* ---- stream.c ---- */

/* A stream for a new map with these parameters. NULL: no memory. */
struct sluice_stream *sluice_stream_create(struct sluice_map *map,
					   const struct sluice_map_params *params, gfp_t gfp);
/* Frees it, and the records that are left, when nobody uses the map. */
void sluice_stream_free(struct sluice_stream *stream);

/*
 * Asks the keeper for the map of an open, and waits for the answer. 0: the map is complete.
 * -ESTALE: the open looks again. -EAGAIN: it must not wait. -ETIMEDOUT, -ERESTARTSYS, -ENOMEM, or
 * the error that the keeper has answered.
 */
int sluice_stream_ask(struct sluice_stream *stream, const struct sluice_channel_request *request);

/* For the keeper. Registers a stream whose map it restores on its own account. 0, -ENOMEM. */
int sluice_stream_register_restored(struct sluice_stream *stream);
/* The registered stream of this number with a reference to its map, or NULL. */
struct sluice_stream *sluice_stream_get(u64 number);
void sluice_stream_put(struct sluice_stream *stream);
bool sluice_stream_is_asking(struct sluice_stream *stream);
bool sluice_stream_has_ended(struct sluice_stream *stream);
/* Before it is live: parameters that were stored. */
void sluice_stream_set_params(struct sluice_stream *stream, const struct sluice_map_params *params);
/* 0; -EINVAL: it does not wait for a restoration; -ENOENT: it has ended. */
int sluice_stream_begin_restoring(struct sluice_stream *stream);
bool sluice_stream_is_restoring(struct sluice_stream *stream);
/* @error: 0 or a negative errno. 0, -EINVAL, -ENOENT, -EEXIST, or an error of the limits. */
int sluice_stream_ready(struct sluice_stream *stream, int error);
/* The answer to an UNLINK. @error: 0 or a negative errno. 0, -EINVAL. */
int sluice_stream_unlinked(struct sluice_stream *stream, int error);
/*
 * 0, -EINVAL: not live; -EBUSY: changes are not acknowledged. What is left of one that has ended
 * is dropped.
 */
int sluice_stream_detach(struct sluice_stream *stream);
/* Every stream is told again to the next keeper; opens that this one has not answered ask anew. */
void sluice_streams_forget_keeper(void);
/* There is a keeper: it is told of every stream, and waiting changes look again. */
void sluice_streams_begin_keeper(void);

/* Of the map's channel, see kind.h. */
int sluice_stream_unlink(struct sluice_stream *stream);
void sluice_stream_unnamed(struct sluice_stream *stream);

/* Under the stream's lock: whether the keeper has not answered an UNLINK yet. */
bool sluice_stream_is_asked_to_unlink(const struct sluice_stream *stream);
/* Under the stream's lock: whether it has ended and nothing is left to be told. */
bool sluice_stream_is_over(struct sluice_stream *stream);
void sluice_stream_unregister(struct sluice_stream *stream);

/* How long a wait for the store may last, in jiffies. */
unsigned long sluice_stream_deadline(const struct sluice_stream *stream);

/* ---- stream_change.c ---- */

/*
 * A record of a set, without the bytes of its value; or NULL. Charged to the memory cgroup of the
 * caller, because a change that waits for room has one that nothing else limits.
 */
struct sluice_stream_record *sluice_stream_record_create(const struct sluice_map_key *key,
							 u32 value_length, gfp_t gfp);
/* @expires: of the value. */
void sluice_stream_record_set_expiry(struct sluice_stream_record *record, u64 expires);
/* The bytes of the value. */
u8 *sluice_stream_record_value(struct sluice_stream_record *record);
/* One that has not become part of a stream. */
void sluice_stream_record_free(struct sluice_stream_record *record);

/* Bytes that the record of a removal counts. */
size_t sluice_stream_removal_size(u32 key_length);

/*
 * Admits one change of @bytes. 0; -EAGAIN: there is no room, no number, or no keeper for longer
 * than the deadline, and the change may not wait, or has waited until the deadline; -EIDRM: no
 * change is made any more; an error of the store; -ERESTARTSYS.
 */
int sluice_stream_admit(struct sluice_stream *stream, size_t bytes, bool nowait);
/*
 * Under the stream's lock: the keeper of a map that it stores at intervals is told, when no more
 * changes are made, that it needs not wait with what is left.
 */
void sluice_stream_ask_for_rest(struct sluice_stream *stream);
/* After the change, which was made or (@bytes) not: gives back what it has not used. */
void sluice_stream_end_change(struct sluice_stream *stream, size_t bytes);

/*
 * Under the shard's lock: the change that is being made gets its number, which is returned, and its
 * record becomes part of the stream.
 */
u64 sluice_stream_append(struct sluice_stream *stream, struct sluice_stream_record *record);
/*
 * Under the shard's lock: whether the worker may remove an entry now, for which a number is then
 * promised until sluice_stream_end_expiry().
 */
bool sluice_stream_begin_expiry(struct sluice_stream *stream);
void sluice_stream_end_expiry(struct sluice_stream *stream);
/* After the lock of the shard: tells the keeper. */
void sluice_stream_wake_keeper(void);

/*
 * Waits until change @sequence is stored. 0; -ETIMEDOUT, also if the keeper has dropped it; -EINTR;
 * -EIDRM: the map was unlinked.
 */
int sluice_stream_wait_stored(struct sluice_stream *stream, u64 sequence);

/*
 * For the keeper: changes up to @sequence (0: as before) are stored, numbers up to @limit (0: as
 * before) reserved. 0, -EINVAL.
 */
int sluice_stream_acknowledge(struct sluice_stream *stream, u64 sequence, u64 limit, int error);

/*
 * EPOLLOUT: a change of any size would be admitted; EPOLLPRI: sluice_stream_wait_stored() of @last
 * would not wait.
 */
__poll_t sluice_stream_poll(struct sluice_stream *stream, u64 last);

/* ---- stream_keeper.c: what is told to the keeper ---- */

/* Under the stream's lock: it has something to tell. */
void sluice_stream_queue(struct sluice_stream *stream);
/* Under the stream's lock. */
void sluice_stream_unqueue(struct sluice_stream *stream);

/* A message, for which its stream has a reference. */
struct sluice_stream_message {
	struct sluice_stream *stream;
	struct sluice_stream_record *record;	/* or NULL: news */
	u32 news;
	struct sluice_keep_message header;
	struct sluice_keep_map map;	/* of SLUICE_KEEP_OPEN, _RESUME */
	const void *key;
	const void *value;
};

/* Under the keeper's mutex. The next message. False: there is none. */
bool sluice_stream_next_message(struct sluice_stream_message *message);
/* Ends the use of a message. @taken: it was delivered. */
void sluice_stream_end_message(struct sluice_stream_message *message, bool taken);
bool sluice_streams_have_message(void);

extern wait_queue_head_t sluice_stream_ready_wait;

/* ---- keeper.c ---- */

/* Whether there is no keeper, since @jiffies or longer. */
bool sluice_keeper_is_absent(unsigned long jiffies);
/* As open_keeper() of a kind. */
struct file *sluice_keeper_open(void);

#endif
