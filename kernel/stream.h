/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stream of a durable map: its changes on their way to the keeper, which stores them.
 *
 * Life of a stream: it is allocated with its map and freed with it. While it is registered the
 * keeper can find it by its number, and it holds a reference to the map and to the module. An open
 * that asks the keeper registers it, as QUEUED; so does a map that the keeper restores on its own
 * account, as RESTORING. Then:
 *
 *   QUEUED      OPEN waits until the keeper reads it
 *   TELLING     a read(2) of the keeper copies OPEN
 *   ASKED       the keeper has read OPEN and not answered it
 *   RESTORING   the keeper fills in the map, which has no name yet
 *   LIVE        changes are made
 *   UNLINKING   no more changes are admitted; the keeper is asked to delete what is stored
 *   ABANDONED   the map has lost its name while UNLINKING; the keeper has not answered UNLINK
 *   CLOSING     the open has given up, or the map has lost its name; the keeper must read CLOSED
 *   DELETED     the keeper has deleted what was stored
 *   DROPPED     the keeper need not read CLOSED
 *
 *   event           state  QUEUED   TELLING  ASKED      RESTORING  LIVE       UNLINKING  ABANDONED
 *   OPEN is taken                   ASKED
 *   OPEN is not taken               QUEUED
 *   OPEN, refused (6)      DROPPED
 *   the open gives up      DROPPED  (1)      CLOSING    CLOSING
 *   CREATE                                   RESTORING
 *   READY, 0                                            LIVE(2)
 *   READY, an error                          DROPPED    DROPPED
 *   unlink                                                         UNLINKING
 *   END, UNLINKED, 0 (3)                                                      DELETED    DELETED
 *   END, UNLINKED, error (3)                                                  LIVE       CLOSING
 *   END, 0                                                         DROPPED(4)            DROPPED
 *   the name is lost                                               CLOSING    ABANDONED
 *   the keeper dies                          DROPPED    DROPPED    (5)        (5)        (5)
 *
 *   (1) CLOSING; DROPPED if OPEN is then not taken. (2) DROPPED if the name of a map without an
 *   open is taken, or its cgroup is removed. (3) Only after UNLINK was taken. (4) Only if nothing
 *   is left, and the map has its name. (5) The next keeper is told again. (6) The open requires,
 *   or an earlier keeper has stored, a table, and the keeper does not store tables.
 *
 * When the death of a keeper drops a stream, its open looks the name up again, with a new map. END
 * also drops a CLOSING stream. A DELETED or DROPPED stream is unregistered at once; a CLOSING one
 * when the keeper has acknowledged all records and has read CLOSED, or, without a keeper, when no
 * record is left.
 *
 * Life of a record: that of a set is allocated before the set, with a copy of the key and the
 * value; that of a removal, with its entry, so that an expiry needs no memory. It becomes part of
 * the stream when its change is made, under the lock under which the change takes its number: the
 * order of the records is that of the numbers. It is freed when it is acknowledged, or with a
 * stream that is DELETED or DROPPED.
 *
 * Admission: before a change is made, sluice_stream_admit() reserves the bytes of its record, and
 * numbers: for the change, and for the expiry of an entry in its way. The stream refuses changes
 * only there. The expiry worker takes a number only if more than NUMBERS_FOR_CHANGES are left.
 *
 * Unlinking: sluice_stream_unlink() stops admissions, asks the keeper to delete what is stored, and
 * waits. If it does not wait until the answer, the answer removes the name.
 *
 * Messages of a stream, in this order: OPEN or RESUME, its records, SYNC, UNLINK when no change can
 * come any more, CLOSED after the last acknowledgment. A stream that has something to tell is in
 * the list `ready`. Only calls of the keeper take records away, under the keeper's mutex: one that
 * is being copied stays.
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

/* In the order of life: an open is answered from LIVE on, a stream has ended from ABANDONED on. */
enum sluice_stream_state {
	SLUICE_STREAM_QUEUED,
	SLUICE_STREAM_TELLING,
	SLUICE_STREAM_ASKED,
	SLUICE_STREAM_RESTORING,
	SLUICE_STREAM_LIVE,
	SLUICE_STREAM_UNLINKING,
	SLUICE_STREAM_ABANDONED,
	SLUICE_STREAM_CLOSING,
	SLUICE_STREAM_DELETED,
	SLUICE_STREAM_DROPPED,
};

/* Messages other than records: bits of `news`. OPEN is only in sluice_stream_message.news. */
#define SLUICE_NEWS_OPEN	0x01
#define SLUICE_NEWS_RESUME	0x02
#define SLUICE_NEWS_SYNC	0x04
#define SLUICE_NEWS_UNLINK	0x08
#define SLUICE_NEWS_CLOSED	0x10

struct sluice_stream {
	struct sluice_map *map;
	u64 number;			/* 0: never registered */
	char *path;			/* of the cgroup */
	u32 flags;			/* SLUICE_MAP_DURABLE, _INTERVAL, _REFUSE, _MAPPED */
	u32 deadline_ms;
	u32 interval_ms;
	/* Of the open that asks: the table that it requires, or, if has_other_table, is stored. */
	u32 table_cell;
	u64 table;			/* bytes; 0: none */
	bool has_other_table;
	u32 open_flags;			/* of the open that asks */
	bool administrator;		/* the opener is */
	bool has_opener;		/* the open owns the map; else the keeper, until LIVE */
	struct list_head ready;		/* in the list, if it has something to tell (+) */
	wait_queue_head_t changed;	/* room, stored, an answer, the end */

	spinlock_t lock;		/* protects the following fields */
	enum sluice_stream_state state;	/* read without the lock, too */
	bool registered;
	int answer;			/* to the open, from LIVE on: 0 or an error */
	int unlink_error;		/* of the last unlink that the keeper has refused */
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
	u64 synced;			/* the last change that the keeper is asked to commit */
	/* (+) under ready_lock and this lock */
};

/* Bytes of changes that are not stored. Charged to the limits of channels with the capacity. */
#define SLUICE_STREAM_BYTES SZ_4M
/* Numbers that an admitted change may take. */
#define SLUICE_STREAM_NUMBERS 2

/* ---- stream.c ---- */

/**
 * sluice_stream_create() - creates the stream of a new map, not registered
 * @map: the map, whose channel is initialised
 * @params: the parameters of the map
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Return: the stream; NULL: no memory, or the path of the cgroup is too long.
 */
struct sluice_stream *sluice_stream_create(struct sluice_map *map,
					   const struct sluice_map_params *params, gfp_t gfp);

/**
 * sluice_stream_free() - frees a stream, and the records that are left
 * @stream: the stream of a map that nobody uses
 *
 * Context: may sleep.
 */
void sluice_stream_free(struct sluice_stream *stream);

/**
 * sluice_stream_ask() - asks the keeper for the map of an open, and waits for the answer
 * @stream: the stream, not registered yet
 * @request: the open
 *
 * Commits the charge of the channel. The deadline counts from the beginning of the open, however
 * often it has asked.
 *
 * Return: 0: the map is complete; -ESTALE: the open looks the name up again; -EAGAIN: the open must
 * not wait; -ETIMEDOUT; -ERESTARTSYS, or -EINTR if the open has EXCL and the keeper may know of it:
 * a signal is pending; -ENOMEM; -ENOSPC, -EDQUOT: the limit of a scope or of a user; or the error
 * that the keeper has answered.
 */
int sluice_stream_ask(struct sluice_stream *stream, const struct sluice_channel_request *request);

/**
 * sluice_stream_register_restored() - registers a stream whose map the keeper restores unasked
 * @stream: the stream, which becomes RESTORING
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Context: a call of the keeper.
 * Return: 0 or -ENOMEM.
 */
int sluice_stream_register_restored(struct sluice_stream *stream, gfp_t gfp);

/**
 * sluice_stream_get() - finds a registered stream and takes a reference to its map
 * @number: the number of the stream
 *
 * Return: the stream or NULL.
 */
struct sluice_stream *sluice_stream_get(u64 number);

/**
 * sluice_stream_put() - puts a reference to the map of a stream; a worker frees the map
 * @stream: the stream
 */
void sluice_stream_put(struct sluice_stream *stream);

/**
 * sluice_stream_state() - reads the state of a stream, with acquire (stream-A)
 * @stream: the stream
 *
 * Context: any; without the stream's lock the result may be outdated.
 * Return: the state.
 */
enum sluice_stream_state sluice_stream_state(const struct sluice_stream *stream);

/**
 * sluice_stream_has_ended() - tests whether a stream has ended: ABANDONED or later
 * @stream: the stream
 *
 * Context: any; without the stream's lock false may be outdated.
 * Return: true if it has.
 */
bool sluice_stream_has_ended(const struct sluice_stream *stream);

/**
 * sluice_stream_set_params() - sets flags, deadline and interval of a stream that is not live yet
 * @stream: the stream
 * @params: the parameters of the open, or those that were stored
 */
void sluice_stream_set_params(struct sluice_stream *stream, const struct sluice_map_params *params);

/**
 * sluice_stream_set_table() - notes which table the map of an open must have
 * @stream: the stream, which the keeper then ends with -ESTALE
 * @params: the parameters that were stored
 *
 * Context: a call of the keeper.
 */
void sluice_stream_set_table(struct sluice_stream *stream, const struct sluice_map_params *params);

/**
 * sluice_stream_get_table() - returns which table the map of an open must have
 * @stream: the stream, which the keeper has ended
 * @params: out: flags, cell and table, unless the map has the table that it must have
 */
void sluice_stream_get_table(const struct sluice_stream *stream, struct sluice_map_params *params);

/**
 * sluice_stream_refuse_table() - ends an open whose table the keeper would not store
 * @stream: the stream
 *
 * Context: under the stream's lock; the caller wakes who waits for a change of the stream.
 * Return: true if it has ended the open.
 */
bool sluice_stream_refuse_table(struct sluice_stream *stream);

/**
 * sluice_stream_begin_restoring() - begins the restoration that an open has asked for
 * @stream: the stream, which becomes RESTORING
 *
 * Context: a call of the keeper.
 * Return: 0; -EINVAL: the stream is not ASKED; -ENOENT: the stream has ended.
 */
int sluice_stream_begin_restoring(struct sluice_stream *stream);

/**
 * sluice_stream_ready() - answers an open, or gives its name to a map that the keeper has restored
 * @stream: the stream
 * @error: 0, or a negative errno, which ends the stream
 *
 * Context: a call of the keeper; may sleep.
 * Return: 0; -EINVAL: the stream is neither ASKED nor RESTORING, or it is ASKED and @error is 0;
 * -ENOENT: the stream has ended, or the map has no opener and its cgroup is removed; -EEXIST: the
 * map has no opener and another channel has its name. A map without an opener that does not get its
 * name ends with its stream.
 */
int sluice_stream_ready(struct sluice_stream *stream, int error);

/**
 * sluice_stream_unlinked() - answers an UNLINK that the keeper has read
 * @stream: the stream
 * @error: 0: what was stored is deleted; or a negative errno: it is not
 *
 * With 0 the map loses its name, unless a sluice_stream_unlink() waits, whose caller removes it.
 *
 * Context: a call of the keeper; may sleep.
 * Return: 0; -EINVAL: no UNLINK was read, or it is answered.
 */
int sluice_stream_unlinked(struct sluice_stream *stream, int error);

/**
 * sluice_stream_detach() - ends a stream whose changes are stored, and removes the name of its map
 * @stream: the stream
 *
 * A stream that has ended is dropped, with what is left of its records.
 *
 * Context: a call of the keeper; may sleep.
 * Return: 0; -EINVAL: the stream is not live yet; -EBUSY: a change is in progress or not
 * acknowledged, an UNLINK is not answered, or the open is about to give the map its name.
 */
int sluice_stream_detach(struct sluice_stream *stream);

/**
 * sluice_streams_lack_keeper() - tests whether there has been no keeper for a time
 * @jiffies: the time
 *
 * Context: without a lock.
 * Return: true if there is no keeper, since @jiffies or longer.
 */
bool sluice_streams_lack_keeper(unsigned long jiffies);

/**
 * sluice_streams_forget_keeper() - detaches all streams from a keeper that has ended
 *
 * Queues RESUME for the next keeper, for live streams and for ended streams with records left.
 * Unregisters ended streams with nothing left. Makes opens that the keeper has read and not
 * answered ask again. Drops maps that the keeper was restoring on its own account.
 *
 * Context: under begin_mutex (keeper.c); may sleep.
 */
void sluice_streams_forget_keeper(void);

/**
 * sluice_streams_begin_keeper() - prepares all streams for a new keeper
 *
 * @flags: SLUICE_KEEP_*
 *
 * Marks CLOSED for the keeper in every stream that has ended, and wakes changes that wait for a
 * keeper.
 *
 * Context: under begin_mutex (keeper.c); may sleep.
 */
void sluice_streams_begin_keeper(u32 flags);

/**
 * sluice_stream_unlink() - asks the keeper to delete what is stored, and waits; see begin_unlink()
 * @stream: the stream, which admits no changes meanwhile
 *
 * Return: 0: what was stored is deleted; -ENOENT: the map loses its name, but stays stored;
 * -ETIMEDOUT; -EINTR; or the error that the keeper has answered.
 */
int sluice_stream_unlink(struct sluice_stream *stream);

/**
 * sluice_stream_unnamed() - ends the stream of a map that has lost its name; see unnamed()
 * @stream: the stream
 */
void sluice_stream_unnamed(struct sluice_stream *stream);

/**
 * sluice_stream_set_state() - changes the state of a stream, with release (stream-A)
 * @stream: the stream
 * @state: the new state
 *
 * Context: under the stream's lock.
 */
void sluice_stream_set_state(struct sluice_stream *stream, enum sluice_stream_state state);

/**
 * sluice_stream_is_over() - tests whether a stream has ended and has nothing left to tell
 * @stream: the stream
 *
 * Records that are not acknowledged and changes in progress are left, too.
 *
 * Context: under the stream's lock.
 * Return: true if it is over; the caller then unregisters it after it has unlocked it.
 */
bool sluice_stream_is_over(const struct sluice_stream *stream);

/**
 * sluice_stream_unregister() - unregisters a stream, if it is registered
 * @stream: the stream
 *
 * Puts the references to the map, which a worker frees, and to the module.
 *
 * Context: without the stream's lock.
 */
void sluice_stream_unregister(struct sluice_stream *stream);

/**
 * sluice_stream_deadline() - returns how long a wait for the store may last
 * @stream: the stream
 *
 * Return: the time in jiffies, at least 1.
 */
unsigned long sluice_stream_deadline(const struct sluice_stream *stream);

/* ---- stream_change.c ---- */

/**
 * sluice_stream_record_create() - allocates the record of a set
 * @key: the key, which is copied
 * @value_length: bytes of the value, which the caller fills in
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * The memory is charged to the caller's memory cgroup, because nothing else limits the records of
 * changes that wait for room.
 *
 * Return: the record or NULL.
 */
struct sluice_stream_record *sluice_stream_record_create(const struct sluice_map_key *key,
							 u32 value_length, gfp_t gfp);

/**
 * sluice_stream_record_value() - returns where the value of a record is
 * @record: the record
 *
 * Return: the bytes of the value.
 */
static inline u8 *sluice_stream_record_value(struct sluice_stream_record *record)
{
	return record->bytes + record->key_length;
}

/**
 * sluice_stream_record_free() - frees a record, and puts its entry
 * @record: the record, not or no longer part of a stream
 */
void sluice_stream_record_free(struct sluice_stream_record *record);

/**
 * sluice_stream_removal_size() - returns what the record of a deletion counts
 * @key_length: bytes of the key
 *
 * Return: the number of bytes.
 */
static inline size_t sluice_stream_removal_size(u32 key_length)
{
	return sizeof(struct sluice_stream_record) + key_length;
}

/**
 * sluice_stream_admit() - admits one change, and waits for room, a number or a keeper if it must
 * @stream: the stream
 * @bytes: of the record
 * @nowait: do not wait; nor does a change of a map with SLUICE_MAP_REFUSE
 *
 * After 0 the caller tries the change, and calls sluice_stream_end_change() whatever the result is.
 *
 * Return: 0; -EAGAIN: there is no room, no number, or no keeper for longer than the deadline, and
 * the change does not wait, or has waited until the deadline; -EIDRM: no change is made any more;
 * -ENOSPC, -EIO, -EROFS: the error of the store; -ERESTARTSYS: a signal is pending.
 */
int sluice_stream_admit(struct sluice_stream *stream, size_t bytes, bool nowait);

/**
 * sluice_stream_ask_for_rest() - asks the keeper to store the records of an ended stream at once
 * @stream: the stream
 *
 * For a map that the keeper stores at intervals; otherwise without effect. The caller queues the
 * stream.
 *
 * Context: under the stream's lock.
 */
void sluice_stream_ask_for_rest(struct sluice_stream *stream);

/**
 * sluice_stream_end_change() - ends an admitted change, and gives back what it has not used
 * @stream: the stream
 * @bytes: 0: the change was made; otherwise the bytes that were admitted
 *
 * Wakes the keeper, and changes that wait for what is given back.
 *
 * Context: without the locks of shard and stream.
 */
void sluice_stream_end_change(struct sluice_stream *stream, size_t bytes);

/**
 * sluice_stream_append() - gives a change that is being made its number
 * @stream: the stream
 * @record: of the change; belongs to the stream afterwards, which may free it at any time
 *
 * The caller calls sluice_stream_wake_keeper() or sluice_stream_end_change() afterwards.
 *
 * Context: under the shard's lock.
 * Return: the number of the change.
 */
u64 sluice_stream_append(struct sluice_stream *stream, struct sluice_stream_record *record);

/**
 * sluice_stream_begin_expiry() - tests whether the worker may remove an entry now
 * @stream: the stream
 *
 * Context: under the shard's lock.
 * Return: true: a number is promised until sluice_stream_end_expiry(); false: no change is made any
 * more, or too few numbers are left.
 */
bool sluice_stream_begin_expiry(struct sluice_stream *stream);

/**
 * sluice_stream_end_expiry() - ends the promise of a number to the worker
 * @stream: the stream
 *
 * The caller calls sluice_stream_wake_keeper() afterwards.
 *
 * Context: under the shard's lock.
 */
void sluice_stream_end_expiry(struct sluice_stream *stream);

/**
 * sluice_stream_wake_keeper() - wakes the keeper if it waits for a message
 *
 * Has a full barrier before it tests that.
 *
 * Context: without the locks of shard and stream.
 */
void sluice_stream_wake_keeper(void);

/**
 * sluice_stream_wait_stored() - waits until a change is stored
 * @stream: the stream
 * @sequence: the number of the change
 *
 * The keeper of a map that it stores at intervals is asked to store the change at once.
 *
 * Return: 0; -ETIMEDOUT, also if the change was dropped; -EINTR; -EIDRM: the map was unlinked.
 */
int sluice_stream_wait_stored(struct sluice_stream *stream, u64 sequence);

/**
 * sluice_stream_acknowledge() - notes what the keeper has stored and reserved
 * @stream: the stream
 * @sequence: changes up to this one are stored; 0: as before
 * @limit: numbers up to this one are reserved; 0: as before
 * @error: of the store, for new changes: 0, -ENOSPC, -EIO, -EROFS
 *
 * Frees the records of the stored changes.
 *
 * Context: a call of the keeper; may sleep.
 * Return: 0; -EINVAL: the stream is not live yet, @error has another value, @sequence is below the
 * previous one or above the last record that was delivered, or @limit is below the previous one or
 * above S64_MAX.
 */
int sluice_stream_acknowledge(struct sluice_stream *stream, u64 sequence, u64 limit, int error);

/**
 * sluice_stream_poll() - tests which calls of a poller would not wait
 * @stream: the stream, whose queue `changed` the poller is in
 * @last: the number of the last change of the poller, or 0
 *
 * Return: EPOLLOUT | EPOLLWRNORM: a change of any size would be admitted, or fail, at once;
 * EPOLLPRI: @last is not 0, and sluice_stream_wait_stored() of it would not wait.
 */
__poll_t sluice_stream_poll(struct sluice_stream *stream, u64 last);

/**
 * sluice_stream_fill_info() - fills in the information about durability
 * @stream: the stream
 * @info: the information
 */
void sluice_stream_fill_info(struct sluice_stream *stream, struct sluice_map_info *info);

/* ---- stream_keeper.c: what is told to the keeper ---- */

/**
 * sluice_stream_queue() - notes that a stream has something to tell, if it is registered
 * @stream: the stream
 *
 * The caller calls sluice_stream_wake_keeper() afterwards.
 *
 * Context: under the stream's lock.
 */
void sluice_stream_queue(struct sluice_stream *stream);

/**
 * sluice_stream_unqueue() - removes a stream from those that have something to tell
 * @stream: the stream
 *
 * Context: under the stream's lock.
 */
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

/**
 * sluice_stream_next_message() - finds the next message for the keeper
 * @message: out: the message, which has a reference until sluice_stream_end_message()
 *
 * Context: under the keeper's mutex.
 * Return: true, or false if there is none.
 */
bool sluice_stream_next_message(struct sluice_stream_message *message);

/**
 * sluice_stream_end_message() - ends the use of a message and puts its reference
 * @message: the message
 * @taken: the message was delivered; otherwise it stays
 *
 * Context: under the keeper's mutex.
 */
void sluice_stream_end_message(struct sluice_stream_message *message, bool taken);

/**
 * sluice_streams_have_message() - tests whether a stream may have a message for the keeper
 *
 * Context: without a lock.
 * Return: false if no stream has one.
 */
bool sluice_streams_have_message(void);

extern wait_queue_head_t sluice_stream_ready_wait;

/* ---- keeper.c ---- */

/**
 * sluice_keeper_open() - begins to be the keeper; the open_keeper() of maps
 * @flags: SLUICE_KEEP_*
 *
 * Return: a new file; -EPERM: the caller lacks CAP_SYS_ADMIN; -EBUSY: there is a keeper;
 * -ERESTARTSYS: a signal is pending; or the error of the creation of the file.
 */
struct file *sluice_keeper_open(u32 flags);

#endif
