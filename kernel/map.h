/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A map: keys and values.
 *
 * Life of the map: it is created with its channel and ends with it. Its timer and its worker are
 * cancelled before, and the RCU callbacks of its memory have run.
 *
 * Life of an entry: a set of a key that has none creates it, under the lock of its shard; a
 * deletion or its expiry removes it from the table and from the indexes of the shard. The log of
 * changes keeps it, without a value, until a later change takes the place of its event, or the map
 * needs the memory. It is freed after a grace period of RCU.
 *
 * Life of a value: it is complete before it becomes visible. A later set overwrites it in place if
 * the new content is short and the memory has room for it, else replaces it; a removal of the entry
 * drops it. It is freed after a grace period, and until then its bytes count. Readers copy it under
 * RCU, again if it was overwritten meanwhile, and hold it no longer, so that none of them, however
 * slow its memory is, keeps the map full.
 *
 * Readers find an entry in the table and its value, both under RCU, without a lock. A change takes
 * effect when it stores the pointer of the value, or ends to overwrite it, under the lock of the
 * shard, which depends on the key: a reader sees the value of before or that of after. An entry
 * without a value is not there: a new one, which has no value until it is in the table, and one
 * that is removed.
 *
 * Changes have a number each, from one counter. The number is taken under the lock of the shard,
 * after everything that can fail, so that every number becomes an event of the log.
 *
 * An entry whose time has passed is not there for any reader, whether the worker has removed it or
 * not; a change of the key removes it first.
 *
 * Barriers:
 * (V) rcu_assign_pointer() of a value, after its bytes; rcu_dereference() by readers.
 * (O) write_seqcount_begin() and _end() around the change of a value in place; readers repeat what
 *     they have read between read_seqcount_begin() and _retry().
 * (N) a change takes its number before it stores the value, both under the lock of the shard. Who
 *     begins to watch after a number therefore takes every such lock once (sluice_map_settle()):
 *     what it then reads is at least as new as that number.
 * (L) the change counter is incremented before a slot of the log is filled, and a watcher is woken
 *     after that (wait.h): who reads the counter and then finds the slot empty waits.
 * (S) an endpoint gets its first number before it watches (xchg()), and is asked whether it watches
 *     (smp_load_acquire()) before that number is used.
 */
#ifndef SLUICE_MAP_H
#define SLUICE_MAP_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/cache.h>
#include <linux/hrtimer.h>
#include <linux/rbtree.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/seqlock.h>
#include <linux/rhashtable.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "endpoint.h"
#include "wait.h"

#define SLUICE_MAP_SHARDS 64

/* Never a time of expiry. */
#define SLUICE_MAP_FOREVER U64_MAX

/* A key of the caller. */
struct sluice_map_key {
	const u8 *bytes;
	u32 length;
	u32 hash;
};

struct sluice_map_value {
	seqcount_spinlock_t changes;	/* in place, of the next three and the bytes (O) */
	u32 length;
	u64 version;
	u64 expires;			/* CLOCK_BOOTTIME in ns, or SLUICE_MAP_FOREVER */
	u32 charged;			/* bytes */
	int room;			/* bytes that can be overwritten in place, or -1 */
	struct sluice_map *map;
	struct rcu_head rcu;
	u8 bytes[];
};

struct sluice_stream;
struct sluice_stream_record;

struct sluice_map_entry {
	struct rhash_head node;
	struct sluice_map_value __rcu *value;	/* stored under the shard's lock */
	u32 hash;
	u32 key_length;
	refcount_t refs;		/* of the table, and of events */
	u32 charged;			/* bytes */
	bool expires;			/* in the index of times; under the shard's lock */
	u64 id;				/* number of the change that created it */
	struct rb_node by_id;		/* in the shard's index, under its lock */
	struct rb_node by_time;		/* in its index of times, likewise, if it expires */
	struct sluice_map *map;
	union {
		struct sluice_stream_record *removal;	/* durable: until it is removed */
		struct rcu_head rcu;
	};
	u8 key[];
};

/* The keys whose hashes begin with the same bits. */
struct sluice_map_shard {
	spinlock_t lock;		/* changes of these keys, and the indexes */
	struct rb_root_cached by_time;	/* entries with a time of expiry */
	struct rb_root by_id;
} ____cacheline_aligned_in_smp;

/* A change in the log. */
struct sluice_map_slot {
	spinlock_t lock;		/* protects the other fields */
	u32 change;			/* SLUICE_MAP_CREATED, … */
	u64 sequence;			/* 0: never used */
	u64 version;
	struct sluice_map_entry *entry;	/* with a reference */
};

struct sluice_map {
	struct sluice_channel channel;
	struct sluice_stream *stream;	/* of a durable map, else NULL */
	u64 restored;			/* entries, before it has its name */
	struct rhashtable table;
	hsiphash_key_t hash_key;
	u64 capacity;			/* bytes */
	u64 entries_max;		/* as requested; 0: none */
	struct sluice_map_slot *slots;
	u32 slot_count;			/* a power of two */
	bool destroyed;
	bool ending;			/* the worker does not arm the timer any more */

	spinlock_t timer_lock;		/* protects armed; taken under a shard's lock */
	u64 armed;			/* when the timer expires, or SLUICE_MAP_FOREVER */
	struct hrtimer timer;
	struct work_struct expiry;

	atomic_t readers, writers, watchers;	/* endpoints */
	atomic64_t expired, missed;	/* since creation */
	atomic64_t trimmed;		/* events up to this one are lost */
	struct sluice_wait_queue changed;

	atomic64_t sequence ____cacheline_aligned_in_smp;	/* of the last change (L) */
	atomic64_t bytes ____cacheline_aligned_in_smp;	/* of the log, entries and values */
	atomic64_t waiting;		/* of them those not used, waiting for RCU or the keeper */
	wait_queue_head_t freed;	/* memory */
	atomic64_t entries;
	struct sluice_map_shard shards[SLUICE_MAP_SHARDS];
};

struct sluice_map_endpoint {
	struct sluice_endpoint endpoint;
	struct sluice_map *map;
	u32 watches;			/* 1 after SLUICE_MAP_WATCH */
	atomic64_t changed;		/* durable: number of the last change through it */
	atomic64_t watched;		/* number of the last event that was read or passed over */
	struct sluice_spin spin;
};

static inline bool sluice_map_watches(const struct sluice_map_endpoint *end)
{
	return smp_load_acquire(&end->watches);	/* (S) */
}

extern const struct sluice_kind sluice_map_kind;

/* An operation that has a kernel copy of its key. */
struct sluice_map_request {
	struct sluice_map_key key;
	u32 flags;			/* SLUICE_MAP_IF_VERSION */
	u64 version;			/* in: required. Out: of the entry, 0: unknown */
	struct sluice_stream_record *record;	/* of a set, for the stream; taken with the value */
	gfp_t gfp;			/* SLUICE_QUOTA_GFP*: for memory of an entry */
};

static inline struct sluice_map *sluice_map_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_map, channel);
}

static inline struct sluice_map_shard *sluice_map_shard(struct sluice_map *map, u32 hash)
{
	return &map->shards[hash / (U32_MAX / SLUICE_MAP_SHARDS + 1)];
}

static inline bool sluice_map_is_expired(const struct sluice_map_value *value)
{
	u64 expires = READ_ONCE(value->expires);

	return expires != SLUICE_MAP_FOREVER && expires <= ktime_get_boottime_ns();
}

/* Nanoseconds until the time @expires, 0: it never comes. */
static inline u64 sluice_map_time_to_live(u64 expires)
{
	u64 now;

	if (expires == SLUICE_MAP_FOREVER)
		return 0;
	now = ktime_get_boottime_ns();
	return expires > now ? expires - now : 1;
}

/* ---- map_entry.c: memory of entries and values, and what it counts ---- */

/* The table, which a worker allocates: at most so many bytes for each entry. */
#define SLUICE_MAP_TABLE_BYTES 32
/* Entries that the table of the kernel can hold. */
#define SLUICE_MAP_ENTRIES_MAX BIT(27)

int sluice_map_table_init(struct sluice_map *map);
/* Frees all entries and values, when nobody uses the map. May sleep. */
void sluice_map_table_exit(struct sluice_map *map);

/* A key for this map; its bytes belong to the caller. */
static inline void sluice_map_key_init(const struct sluice_map *map, struct sluice_map_key *key,
				       const u8 *bytes, u32 length)
{
	key->bytes = bytes;
	key->length = length;
	key->hash = hsiphash(bytes, length, &map->hash_key);
}

/* Under RCU: the entry, with or without a value; or NULL. */
struct sluice_map_entry *sluice_map_find(struct sluice_map *map, const struct sluice_map_key *key);
/* Under the shard's lock. 0; -EAGAIN: not now; -ENOSPC. */
int sluice_map_table_insert(struct sluice_map *map, struct sluice_map_entry *entry);
void sluice_map_table_remove(struct sluice_map *map, struct sluice_map_entry *entry);

/*
 * An entry with one reference, or a value of @length bytes that the caller fills in; their memory
 * is charged to the map. -ENOSPC: the map is full. -EAGAIN: it is full until entries whose time has
 * passed are removed, or memory that is no longer used is freed. -ENOMEM. @gfp: SLUICE_QUOTA_GFP*.
 */
struct sluice_map_entry *sluice_map_entry_create(struct sluice_map *map,
						 const struct sluice_map_key *key, gfp_t gfp);
struct sluice_map_value *sluice_map_value_create(struct sluice_map *map, u32 length, u64 ttl_ns,
						 gfp_t gfp);
/* When a value expires whose time to live begins now. */
u64 sluice_map_time_of_expiry(u64 ttl_ns);

/* Counts one entry more. 0, or -ENOSPC, -EAGAIN as sluice_map_entry_create(). */
int sluice_map_count_entry(struct sluice_map *map);

/* How long a set that finds the map full waits for memory that is no longer used, in jiffies. */
#define SLUICE_MAP_MEMORY_WAIT (5 * HZ)
/* Above this, pages that need not be contiguous are used, as many as are needed. */
#define SLUICE_MAP_CONTIGUOUS_MAX (2 * PAGE_SIZE)

/*
 * After -EAGAIN: waits for what it names, in order to have @bytes, for a while. 0: try again;
 * -ENOSPC: after @deadline; -ERESTARTSYS: a signal.
 */
int sluice_map_wait_for_memory(struct sluice_map *map, size_t bytes, unsigned long deadline);

/* Whether it was the last reference. */
bool sluice_map_entry_put(struct sluice_map_entry *entry);
/*
 * A removed entry whose key a record of the stream needs: its memory counts as waiting, because it
 * becomes free without anything that the map could do. The entry with a reference.
 */
struct sluice_map_entry *sluice_map_pin_removed(struct sluice_map_entry *entry);
void sluice_map_unpin_removed(struct sluice_map_entry *entry);
/* Puts a reference when nobody uses the map: the last one frees the entry at once. */
void sluice_map_entry_release(struct sluice_map_entry *entry);
/* A value that was replaced or removed. */
void sluice_map_value_retire(struct sluice_map_value *value);
/* For those that nobody can see. */
void sluice_map_entry_free(struct sluice_map_entry *entry);
void sluice_map_value_free(struct sluice_map_value *value);

/* ---- map_update.c ---- */

/*
 * Sets @value, which then belongs to the map if the result is not negative. 1: created, 0:
 * replaced, or -EEXIST, -ESTALE, -ENOENT, or an error of sluice_map_entry_create().
 */
int sluice_map_set(struct sluice_map *map, struct sluice_map_request *request,
		   struct sluice_map_value *value);
/*
 * As sluice_map_set(), with a copy of @bytes in the memory of the value that the entry has.
 * -ENODATA: there is no entry, or it has no room for @length bytes.
 */
int sluice_map_overwrite(struct sluice_map *map, struct sluice_map_request *request,
			 const void *bytes, u32 length, u64 ttl_ns);
/* 0, -ENOENT, -ESTALE, -EEXIST. The version is the number of the change. */
int sluice_map_delete(struct sluice_map *map, struct sluice_map_request *request);
/*
 * Inserts an entry that was stored, with its version, before the map has its name; the value then
 * belongs to the map. 0, -EEXIST, -EINVAL: more entries than changes; -ENOSPC, -EAGAIN, -ENOMEM.
 */
int sluice_map_insert_restored(struct sluice_map *map, const struct sluice_map_key *key,
			       struct sluice_map_value *value, u64 version);

/*
 * Removes entries whose time has passed from a shard, a bounded number of them. Returns when the
 * next one expires; a time that has passed: there are more.
 */
u64 sluice_map_expire(struct sluice_map *map, struct sluice_map_shard *shard, u64 now);

/* Changes whose numbers were taken before are visible afterwards (N). */
void sluice_map_settle(struct sluice_map *map);

/* ---- map_durable.c: maps whose changes the keeper stores ---- */

/* Whether the parameters of a durable map, or of one that is not, are valid. */
bool sluice_map_are_durable_params(const struct sluice_map_params *params);

/*
 * A set or a delete of the user on a durable map, which is admitted and made. As the ones of a map
 * that is not; or an error of the admission.
 */
int sluice_map_durable_set(struct sluice_map *map, struct sluice_map_request *request,
			   const struct sluice_map_op *op);
/* As sluice_map_durable_set(), with a value in the kernel, never waiting. */
int sluice_map_durable_set_bytes(struct sluice_map *map, struct sluice_map_request *request,
				 const void *bytes, u32 length, u64 ttl_ns);
int sluice_map_durable_delete(struct sluice_map *map, struct sluice_map_request *request,
			      bool nowait);
/* After a change through @end: waits as the map requires. 0, -ETIMEDOUT, -EINTR. */
int sluice_map_wait_stored(struct sluice_map_endpoint *end, u64 sequence);
/* Notes the number of a change through @end, for poll(2). */
void sluice_map_note_change(struct sluice_map_endpoint *end, u64 sequence);

long sluice_map_sync(struct sluice_map *map, struct sluice_setting __user *user);
void sluice_map_fill_durable_info(struct sluice_map *map, struct sluice_map_info *info);

/* Of the channel, see kind.h. */
int sluice_map_begin_unlink(struct sluice_channel *channel);
void sluice_map_unnamed(struct sluice_channel *channel);

/* Calls of the keeper: SLUICE_KEEP_CREATE, and one entry of SLUICE_KEEP_RESTORE. */
int sluice_map_begin_restoring(struct sluice_keep_create *create,
			       const struct sluice_keep_map *keep);
int sluice_map_restore(struct sluice_map *map, const struct sluice_keep_entry *entry);

/* ---- map.c ---- */

/* A kernel copy of a key. Shorter ones need no allocation. */
struct sluice_map_key_copy {
	u8 *bytes;
	u8 on_stack[128];
};

/* 0, -EINVAL, -ENOMEM, -EFAULT. Unless it fails, the caller frees @copy. */
int sluice_map_copy_key(const struct sluice_map *map, u64 address, u32 length,
			struct sluice_map_key_copy *copy, struct sluice_map_key *key);
void sluice_map_free_key(struct sluice_map_key_copy *copy);

/* An empty map without a name, or an error. */
struct sluice_map *sluice_map_alloc(const struct sluice_channel_request *request,
				    const struct sluice_map_params *params);
/* For the keeper, before it has entries or a name: 0, -EINVAL, -ENOMEM, -ENOSPC, -EDQUOT. */
int sluice_map_resize(struct sluice_map *map, u64 capacity, const struct sluice_map_params *params);

/* ---- map_expiry.c ---- */

void sluice_map_expiry_init(struct sluice_map *map);
/* Cancels the timer and the worker. May sleep. */
void sluice_map_expiry_exit(struct sluice_map *map);
/* The worker must run at @expires or before. Under a shard's lock. */
void sluice_map_expiry_arm(struct sluice_map *map, u64 expires);
/* Whether entries whose time has passed are about to be removed; and waits until they are. */
bool sluice_map_expiry_is_due(struct sluice_map *map);
void sluice_map_expiry_flush(struct sluice_map *map);

/* ---- map_read.c ---- */

/*
 * Copies the value of a key to the user. @op: room and address in; length, version and time to live
 * out. 0, -ENOENT, -EMSGSIZE, -EFAULT, -ENOMEM.
 */
int sluice_map_get(struct sluice_map *map, const struct sluice_map_key *key,
		   struct sluice_map_op *op);

/* A copy of an entry; the caller provides the memory. */
struct sluice_map_copy {
	u8 *key;			/* with room for any; NULL: not wanted */
	u8 *value;
	u32 room;			/* bytes for the value */
	u32 key_length;
	u32 length;			/* of the value, which is copied if it is not above room */
	u64 version;
	u64 ttl_ns;
};

/* Copies the value of a key. False: there is no entry. */
bool sluice_map_copy_value(struct sluice_map *map, const struct sluice_map_key *key,
			   struct sluice_map_copy *copy);
/* Copies the next entry of a dump. False: there are no more, or the process is killed. */
bool sluice_map_copy_next(struct sluice_map *map, struct sluice_map_cursor *cursor,
			  struct sluice_map_copy *copy);

long sluice_map_dump(struct sluice_map *map, struct sluice_map_dump __user *user);

/* ---- map_watch.c ---- */

/*
 * The change with the number @sequence becomes an event. Under the shard's lock, after which the
 * caller wakes `changed`.
 */
void sluice_map_log(struct sluice_map *map, u64 sequence, u32 change, u64 version,
		    struct sluice_map_entry *entry);
/* @gfp: SLUICE_QUOTA_GFP*. */
int sluice_map_log_init(struct sluice_map *map, u32 events, gfp_t gfp);
/*
 * Drops the oldest events of removed entries, until @bytes more will be free; watchers have missed
 * them. False: it frees nothing.
 */
bool sluice_map_log_trim(struct sluice_map *map, size_t bytes);
void sluice_map_log_exit(struct sluice_map *map);

/* An event, with a reference to its entry. */
struct sluice_map_taken {
	struct sluice_map_event event;
	struct sluice_map_entry *entry;
};

/* The next event of a watcher. 0, -EAGAIN: there is none. */
int sluice_map_event_get(struct sluice_map_endpoint *end, struct sluice_map_taken *taken);
/* @take: the event was delivered. False: not taken; another thread was faster. */
bool sluice_map_event_put(struct sluice_map_endpoint *end, struct sluice_map_taken *taken,
			  bool take);

/* SLUICE_MAP_WATCH. 0, -EINVAL: there is no such change yet. */
int sluice_map_watch_after(struct sluice_map_endpoint *end, u64 *sequence);
long sluice_map_watch(struct sluice_map_endpoint *end, struct sluice_setting __user *user);
bool sluice_map_has_event(struct sluice_map_endpoint *end);
ssize_t sluice_map_read_iter(struct kiocb *iocb, struct iov_iter *to);

#endif
