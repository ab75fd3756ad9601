/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A map: keys and values.
 *
 * A file calls files of its own and of lower lines. What lower lines call above are pointers: the
 * worker of the timer, and the functions of the kind.
 *
 *   map.c, map_netlink*.c       calls of programs: ioctl(2), poll(2); requests over netlink
 *   keeper.c                    calls of the keeper
 *   map_restore.c               a map that the keeper fills in
 *   map_create.c                the map itself
 *   map_change.c, map_read.c    changes, in one path; gets and dumps
 *   map_memory.c                memory within the limits of the map
 *   stream*.c, map_watch.c,     the sinks of changes: streams of durable maps; the log, read(2);
 *   map_mapped.c                the mapped table
 *   map_entry.c, map_expiry.c   keys, the table, the end of entries and values; the timer
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
 * (map-V) rcu_assign_pointer() of a value, after its bytes; rcu_dereference() by readers.
 * (map-O) write_seqcount_begin() and _end() around the change of a value in place; readers repeat
 *     what they have read between read_seqcount_begin() and _retry().
 * (map-N) a change takes its number before it stores the value, both under the lock of the shard.
 *     A watcher that begins after a number therefore takes every such lock once: what it then
 *     reads is at least as new as that number.
 * (map-L) the change counter is incremented before a slot of the log is filled, and a watcher is
 *     woken after that (wait.h): who reads the counter and then finds the slot empty waits.
 * (map-S) an endpoint gets its first number before it watches (xchg()), and is asked whether it
 *     watches (smp_load_acquire()) before that number is used.
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
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "endpoint.h"
#include "start.h"
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
	seqcount_spinlock_t changes;	/* in place, of the next three and the bytes (map-O) */
	u32 length;
	u64 version;
	u64 expires;			/* CLOCK_BOOTTIME in ns, or SLUICE_MAP_FOREVER */
	u32 charged;			/* bytes */
	int room;			/* bytes that can be overwritten in place, or -1 */
	struct sluice_map *map;
	struct rcu_head rcu;
	u8 bytes[];
};

struct mutex;
struct sluice_map_mapped;
struct sluice_stream;
struct sluice_stream_record;

struct sluice_map_entry {
	struct rhash_head node;
	struct sluice_map_value __rcu *value;	/* stored under the shard's lock */
	u32 hash;
	u16 key_length;
	bool expires;			/* in the index of times; under the shard's lock */
	refcount_t refs;		/* of the table, and of events */
	u32 charged;			/* bytes */
	struct sluice_map_cell *cell;	/* in the mapped table, or NULL; under the shard's lock */
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

/*
 * The number before that of the first change of a map that is not durable. 2^63 changes at one in
 * 100 ns take 29,000 years, so numbers are compared with <, also as s64. A durable map gets its
 * numbers from the keeper, up to a limit of at most 2^63 - 1.
 */
#define SLUICE_MAP_BEFORE_FIRST SLUICE_START_ENDLESS(300)

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
	struct sluice_map_mapped *mapped;	/* the table that readers map, or NULL */
	u64 restored;			/* entries, before it has its name */
	struct rhashtable table;
	hsiphash_key_t hash_key;
	u64 capacity;			/* bytes */
	u64 entries_max;		/* as requested; 0: none */
	struct sluice_map_slot *slots;
	u32 slot_count;			/* a power of two */
	bool destroyed;
	bool ending;			/* nothing arms the timer or queues the worker */

	spinlock_t timer_lock;		/* protects armed; taken under a shard's lock */
	u64 armed;			/* when the timer expires, or SLUICE_MAP_FOREVER */
	struct hrtimer timer;
	struct work_struct expiry;

	atomic_t readers, writers, watchers;	/* endpoints */
	atomic64_t expired, missed;	/* since creation */
	atomic64_t trimmed;		/* events up to this one are lost */
	u64 searched;			/* where the next search over netlink begins */
	u64 search_began;		/* the last change when it began at the oldest place */
	struct sluice_wait_queue changed;

	atomic64_t sequence ____cacheline_aligned_in_smp;	/* of the last change (map-L) */
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

/**
 * sluice_map_watches() - tests whether an endpoint watches
 * @end: the endpoint
 *
 * Return: true after SLUICE_MAP_WATCH.
 */
static inline bool sluice_map_watches(const struct sluice_map_endpoint *end)
{
	return smp_load_acquire(&end->watches);	/* (map-S) */
}

extern const struct sluice_kind sluice_map_kind;

/* Inserts an entry that was stored, with the version in @version, before the map has its name. */
#define SLUICE_MAP_RESTORE U32_MAX

/* A change of a key. The caller fills in the first part; the second is of map_change.c. */
struct sluice_map_change {
	struct sluice_map_key key;
	u32 command;			/* SLUICE_MAP_STEP_SET, _DELETE, SLUICE_MAP_RESTORE */
	u32 flags;			/* SLUICE_MAP_IF_VERSION, _NOWAIT */
	u64 required;			/* with _IF_VERSION: version of the entry, 0: no entry */
	const void *bytes;		/* value; NULL: it is at the user */
	const void __user *user;
	u32 length;			/* bytes of the value */
	gfp_t gfp;			/* SLUICE_QUOTA_GFP* */
	u64 ttl_ns;			/* time to live; 0: no limit */
	u64 version;			/* out: of the entry, or number of the deletion */

	bool lacks_record;		/* out: -ENOMEM concerns the caller's memory cgroup */
	bool lacks_entry;		/* the key has no entry */
	size_t admitted;		/* bytes of the stream that no record has yet */
	u64 expires;			/* CLOCK_BOOTTIME in ns, or SLUICE_MAP_FOREVER */
	struct sluice_stream_record *record;
	struct sluice_map_value *value;
	struct sluice_map_entry *entry;
};

/**
 * sluice_map_of() - returns the map of a channel
 * @channel: the channel, a map
 *
 * Return: the map.
 */
static inline struct sluice_map *sluice_map_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_map, channel);
}

/**
 * sluice_map_shard() - returns the shard of a key
 * @map: the map
 * @hash: of the key
 *
 * Return: the shard.
 */
static inline struct sluice_map_shard *sluice_map_shard(struct sluice_map *map, u32 hash)
{
	return &map->shards[hash / (U32_MAX / SLUICE_MAP_SHARDS + 1)];
}

/**
 * sluice_map_is_expired() - tests whether the time of a value has passed
 * @value: the value
 *
 * Return: true if it has.
 */
static inline bool sluice_map_is_expired(const struct sluice_map_value *value)
{
	u64 expires = READ_ONCE(value->expires);

	return expires != SLUICE_MAP_FOREVER && expires <= ktime_get_boottime_ns();
}

/**
 * sluice_map_time_to_live() - returns the time that is left until an expiry
 * @expires: CLOCK_BOOTTIME in ns, or SLUICE_MAP_FOREVER
 *
 * Return: nanoseconds; 1: the time has passed; 0: it never comes.
 */
static inline u64 sluice_map_time_to_live(u64 expires)
{
	u64 now;

	if (expires == SLUICE_MAP_FOREVER)
		return 0;
	now = ktime_get_boottime_ns();
	return expires > now ? expires - now : 1;
}

/* ---- map_expiry.c: the timer of a map ---- */

/**
 * sluice_map_expiry_start() - creates the queue of the workers, when the module is loaded
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_map_expiry_start(void);

/**
 * sluice_map_expiry_stop() - destroys the queue of the workers, when there is no map any more
 */
void sluice_map_expiry_stop(void);

/**
 * sluice_map_expiry_init() - initialises the timer and the worker of a new map
 * @map: the map
 * @worker: what the timer starts: sluice_map_expire()
 */
void sluice_map_expiry_init(struct sluice_map *map, work_func_t worker);

/**
 * sluice_map_expiry_exit() - cancels the timer and the worker for good; may be called again
 * @map: the map
 *
 * Context: may sleep.
 */
void sluice_map_expiry_exit(struct sluice_map *map);

/**
 * sluice_map_expiry_arm() - makes the worker run at a time or before
 * @map: the map
 * @expires: CLOCK_BOOTTIME in ns; the timer may be a millisecond late
 *
 * Context: under a shard's lock, or in the worker without it.
 */
void sluice_map_expiry_arm(struct sluice_map *map, u64 expires);

/**
 * sluice_map_expiry_disarm() - notes that the worker runs
 * @map: the map, whose next entry that expires arms the timer again
 */
void sluice_map_expiry_disarm(struct sluice_map *map);

/**
 * sluice_map_expiry_is_due() - tests whether entries are about to be removed
 * @map: the map
 *
 * Return: true if the worker is about to remove entries whose time has passed.
 */
bool sluice_map_expiry_is_due(struct sluice_map *map);

/**
 * sluice_map_expiry_hasten() - queues the worker, if sluice_map_expiry_is_due()
 * @map: the map
 */
void sluice_map_expiry_hasten(struct sluice_map *map);

/* ---- map_entry.c: keys, the table, and the end of entries and values ---- */

/* Entries that the table of the kernel can hold. */
#define SLUICE_MAP_ENTRIES_MAX BIT(27)
/* Above this, pages that need not be contiguous are used, as many as are needed. */
#define SLUICE_MAP_CONTIGUOUS_MAX (2 * PAGE_SIZE)

/**
 * sluice_map_table_init() - initialises the table of a new map
 * @map: the map
 *
 * Return: 0, or an error of rhashtable_init().
 */
int sluice_map_table_init(struct sluice_map *map);

/**
 * sluice_map_table_exit() - frees the table with all entries and values
 * @map: the map, which nobody uses
 *
 * Waits for the RCU callbacks of memory that is no longer used.
 */
void sluice_map_table_exit(struct sluice_map *map);

/**
 * sluice_map_key_init() - initialises a key for a map
 * @map: the map
 * @key: out: the key
 * @bytes: its bytes, which belong to the caller
 * @length: the number of bytes
 */
static inline void sluice_map_key_init(const struct sluice_map *map, struct sluice_map_key *key,
				       const u8 *bytes, u32 length)
{
	key->bytes = bytes;
	key->length = length;
	key->hash = hsiphash(bytes, length, &map->hash_key);
}

/* A kernel copy of a key. Shorter ones need no allocation. */
struct sluice_map_key_copy {
	u8 *bytes;
	u8 on_stack[128];
};

/**
 * sluice_map_copy_key() - copies a key from the user
 * @map: the map
 * @address: of the key at the user
 * @length: the number of bytes
 * @copy: out: the copy, which the caller frees unless the call fails
 * @key: out: the key, with the bytes of @copy
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Return: 0; -EINVAL: the length is not permitted; -ENOMEM; -EFAULT.
 */
int sluice_map_copy_key(const struct sluice_map *map, u64 address, u32 length,
			struct sluice_map_key_copy *copy, struct sluice_map_key *key, gfp_t gfp);

/**
 * sluice_map_free_key() - frees a copy of a key
 * @copy: the copy
 */
static inline void sluice_map_free_key(struct sluice_map_key_copy *copy)
{
	if (copy->bytes != copy->on_stack)
		kfree(copy->bytes);
}

/**
 * sluice_map_find() - looks up an entry in the table
 * @map: the map
 * @key: the key
 *
 * Context: under RCU.
 * Return: the entry, with or without a value; or NULL.
 */
struct sluice_map_entry *sluice_map_find(struct sluice_map *map, const struct sluice_map_key *key);

/**
 * sluice_map_table_insert() - inserts an entry into the table
 * @map: the map
 * @entry: the entry
 *
 * Context: under the shard's lock.
 * Return: 0; -EAGAIN: try again after a worker has enlarged the table; -ENOSPC: the table is full.
 */
int sluice_map_table_insert(struct sluice_map *map, struct sluice_map_entry *entry);

/**
 * sluice_map_table_remove() - removes an entry from the table
 * @map: the map
 * @entry: the entry
 *
 * Context: under the shard's lock.
 */
void sluice_map_table_remove(struct sluice_map *map, struct sluice_map_entry *entry);

/**
 * sluice_map_entry_put() - puts a reference to an entry
 * @entry: the entry, which the last put frees after a grace period of RCU
 *
 * Return: true if it was the last reference.
 */
bool sluice_map_entry_put(struct sluice_map_entry *entry);

/**
 * sluice_map_pin_removed() - takes a reference to a removed entry for a record of the stream
 * @entry: the entry, whose key the record needs
 *
 * Its memory counts as waiting, because it is freed by the keeper's acknowledgment, not by the
 * map.
 *
 * Return: the entry.
 */
struct sluice_map_entry *sluice_map_pin_removed(struct sluice_map_entry *entry);

/**
 * sluice_map_unpin_removed() - puts the reference of sluice_map_pin_removed()
 * @entry: the entry, whose memory does not count as waiting for the record any more
 */
void sluice_map_unpin_removed(struct sluice_map_entry *entry);

/**
 * sluice_map_entry_release() - puts a reference when nobody uses the map
 * @entry: the entry, which the last put frees at once
 */
void sluice_map_entry_release(struct sluice_map_entry *entry);

/**
 * sluice_map_value_retire() - frees a value that was replaced or removed
 * @value: the value, which is freed after a grace period of RCU
 */
void sluice_map_value_retire(struct sluice_map_value *value);

/**
 * sluice_map_entry_free() - frees an entry that nobody can see
 * @entry: the entry
 */
void sluice_map_entry_free(struct sluice_map_entry *entry);

/**
 * sluice_map_value_free() - frees a value that nobody can see
 * @value: the value
 */
void sluice_map_value_free(struct sluice_map_value *value);

/* ---- map_watch.c ---- */

/**
 * sluice_map_log() - adds the event of a change to the log
 * @map: the map
 * @sequence: the number of the change
 * @change: SLUICE_MAP_CREATED, and so on
 * @version: of the entry
 * @entry: the entry, to which the event takes a reference
 *
 * The event is lost if a later change has taken its place.
 *
 * Context: under the shard's lock, after which the caller wakes `changed`.
 */
void sluice_map_log(struct sluice_map *map, u64 sequence, u32 change, u64 version,
		    struct sluice_map_entry *entry);

/**
 * sluice_map_log_init() - allocates the log of a map
 * @map: the map
 * @events: how many the log keeps, a power of two
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * Return: 0 or -ENOMEM.
 */
int sluice_map_log_init(struct sluice_map *map, u32 events, gfp_t gfp);

/**
 * sluice_map_log_trim() - drops the oldest events of removed entries
 * @map: the map
 * @bytes: how many more will be free afterwards, if there are enough such events
 * @waits: false: search SEARCH_MAX changes only, from where the last such call has ended
 *
 * Watchers have missed these events. The last event remains.
 *
 * Context: may sleep.
 * Return: true if memory will be free, or another call may find some; false: it frees nothing.
 */
bool sluice_map_log_trim(struct sluice_map *map, size_t bytes, bool waits);

/**
 * sluice_map_log_exit() - frees the log and puts its entries
 * @map: the map, which nobody uses
 */
void sluice_map_log_exit(struct sluice_map *map);

/* An event, with a reference to its entry. */
struct sluice_map_taken {
	struct sluice_map_event event;
	struct sluice_map_entry *entry;
};

/**
 * sluice_map_event_get() - returns the next event of a watcher
 * @end: the endpoint, which watches
 * @taken: out: the event, which sluice_map_event_put() ends
 *
 * Return: 0; -EAGAIN: there is none.
 */
int sluice_map_event_get(struct sluice_map_endpoint *end, struct sluice_map_taken *taken);

/**
 * sluice_map_event_put() - puts the reference of an event, and takes the event if it was delivered
 * @end: the endpoint
 * @taken: the event
 * @take: the event was delivered
 *
 * Return: true if the event was taken; false: it was not delivered, or another thread was faster.
 */
bool sluice_map_event_put(struct sluice_map_endpoint *end, struct sluice_map_taken *taken,
			  bool take);

/**
 * sluice_map_watch_after() - makes an endpoint watch
 * @end: the endpoint
 * @sequence: the number of the change after which it watches, or SLUICE_MAP_NOW; out: the number
 *
 * Return: 0; -EINVAL: there is no such change yet.
 */
int sluice_map_watch_after(struct sluice_map_endpoint *end, u64 *sequence);

/**
 * sluice_map_watch() - executes SLUICE_MAP_WATCH
 * @end: the endpoint
 * @user: the number of a change, or SLUICE_MAP_NOW; out: the number
 *
 * Return: 0; -EINVAL: there is no such change yet, or the setting is invalid; -E2BIG: the setting
 * has unknown fields; -EFAULT.
 */
long sluice_map_watch(struct sluice_map_endpoint *end, struct sluice_setting __user *user);

/**
 * sluice_map_has_event() - tests whether a watcher has an event
 * @end: the endpoint, which watches
 *
 * Return: true if it has; may be outdated.
 */
bool sluice_map_has_event(struct sluice_map_endpoint *end);

/**
 * sluice_map_read_iter() - reads events
 * @iocb: of the read
 * @to: where the events go
 *
 * Return: the number of bytes; -EINVAL: the endpoint does not watch; -EPIPE: the map is destroyed;
 * -EAGAIN: the call is nonblocking and there is no event; -EMSGSIZE: the first event does not fit;
 * -EFAULT; -ERESTARTSYS: a signal is pending.
 */
ssize_t sluice_map_read_iter(struct kiocb *iocb, struct iov_iter *to);

/* ---- map_memory.c: memory within the limits of the map ---- */

/* The table, which a worker allocates: at most so many bytes for each entry. */
#define SLUICE_MAP_TABLE_BYTES 32

/**
 * sluice_map_entry_create() - creates an entry with one reference
 * @map: the map
 * @key: the key, which is copied
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * The memory is charged to the map, and to the memory cgroup of its creator.
 *
 * Return: the entry; -ENOSPC: the map is full; -EAGAIN: there is no memory until entries whose time
 * has passed are removed, or memory of the map that is no longer used is freed; -ENOMEM.
 */
struct sluice_map_entry *sluice_map_entry_create(struct sluice_map *map,
						 const struct sluice_map_key *key, gfp_t gfp);

/**
 * sluice_map_value_create() - creates a value whose bytes the caller fills in
 * @map: the map
 * @length: the number of bytes
 * @expires: CLOCK_BOOTTIME in ns, or SLUICE_MAP_FOREVER
 * @gfp: SLUICE_QUOTA_GFP*
 *
 * The memory is charged to the map, and to the memory cgroup of its creator.
 *
 * Return: the value; -ENOSPC: the map is full; -EAGAIN: there is no memory until entries whose time
 * has passed are removed, or memory of the map that is no longer used is freed; -ENOMEM.
 */
struct sluice_map_value *sluice_map_value_create(struct sluice_map *map, u32 length, u64 expires,
						 gfp_t gfp);

/**
 * sluice_map_count_entry() - counts one entry more
 * @map: the map
 *
 * Return: 0; -ENOSPC: the map has as many entries as permitted; -EAGAIN: it has, until entries
 * whose time has passed are removed.
 */
int sluice_map_count_entry(struct sluice_map *map);

/* How long a set that finds the map full waits for memory that is no longer used, in jiffies. */
#define SLUICE_MAP_MEMORY_WAIT (5 * HZ)

/**
 * sluice_map_wait_for_memory() - waits for memory of a map, after -EAGAIN
 * @map: the map
 * @bytes: how many the caller needs
 * @deadline: jiffies
 *
 * Waits until entries whose time has passed are removed, and for a short time until memory that is
 * no longer used is freed.
 *
 * Return: 0: try again; -ENOSPC: the deadline has passed; -ERESTARTSYS: a signal is pending.
 */
int sluice_map_wait_for_memory(struct sluice_map *map, size_t bytes, unsigned long deadline);

/* ---- map_change.c ---- */

/**
 * sluice_map_change() - makes a change
 * @map: the map
 * @change: the change; out: the version, after a result that is not negative, -ESTALE and -EEXIST
 *
 * Waits until the stream of a durable map admits the change, unless it has SLUICE_MAP_NOWAIT. Waits
 * for memory of the map, if @gfp permits that and the change of a durable map lacks
 * SLUICE_MAP_NOWAIT. Does not wait until the change is stored: see sluice_map_wait_stored().
 *
 * Return: 1: an entry was created; 0: it was updated, deleted or restored; -EEXIST: the key has an
 * entry, and must have none; -ESTALE: the entry has another version; -ENOENT: there is no entry;
 * -EINVAL: the value is too long, or more entries than changes are restored; -EFAULT; -ENOMEM; or
 * an error of sluice_stream_admit(), sluice_map_entry_create() or sluice_map_wait_for_memory().
 */
int sluice_map_change(struct sluice_map *map, struct sluice_map_change *change);

/**
 * sluice_map_note_change() - notes the number of a change, for poll(2)
 * @end: the endpoint through which the change was made
 * @sequence: the number of the change
 */
void sluice_map_note_change(struct sluice_map_endpoint *end, u64 sequence);

/**
 * sluice_map_wait_stored() - waits until a change is stored, if the map requires it
 * @end: the endpoint through which the change was made
 * @sequence: the number of the change
 *
 * Return: 0, also if the map was unlinked meanwhile; -ETIMEDOUT; -EINTR: a signal is pending.
 */
int sluice_map_wait_stored(struct sluice_map_endpoint *end, u64 sequence);

/**
 * sluice_map_sync() - executes SLUICE_MAP_SYNC
 * @map: the map
 * @user: the number of a change, or SLUICE_MAP_NOW; out: the number up to which all are stored
 *
 * Return: 0; -EOPNOTSUPP: the map is not durable; -EINVAL: there is no such change yet, or the
 * setting is invalid; -E2BIG: the setting has unknown fields; -EFAULT; -ETIMEDOUT; -EINTR: a signal
 * is pending; -EIDRM: the map was unlinked.
 */
long sluice_map_sync(struct sluice_map *map, struct sluice_setting __user *user);

/**
 * sluice_map_expire() - removes expired entries, a bounded number per shard, and arms the timer
 * @work: the worker of a map
 */
void sluice_map_expire(struct work_struct *work);

/* ---- map_read.c ---- */

/**
 * sluice_map_get() - copies the value of a key to the user
 * @map: the map
 * @key: the key
 * @op: the room and its address; out: length, version and time to live
 *
 * Return: 0; -ENOENT: there is no entry; -EMSGSIZE: the value does not fit; -EFAULT; -ENOMEM.
 */
int sluice_map_get(struct sluice_map *map, const struct sluice_map_key *key,
		   struct sluice_map_op *op);

/* A copy of an entry; the caller provides the memory. */
struct sluice_map_copy {
	u8 *key;			/* with room for any */
	u8 *value;
	u32 room;			/* bytes for the value */
	u32 key_length;
	u32 length;			/* of the value, which is copied if it is not above room */
	u64 version;
	u64 ttl_ns;
};

/**
 * sluice_map_copy_value() - copies the value of a key
 * @map: the map
 * @key: the key
 * @copy: the memory and its room; out: all but the key
 *
 * Return: true, also if the value does not fit; false: there is no entry.
 */
bool sluice_map_copy_value(struct sluice_map *map, const struct sluice_map_key *key,
			   struct sluice_map_copy *copy);

/**
 * sluice_map_copy_next() - copies the next entry of a dump
 * @map: the map
 * @cursor: the place of the dump; at first all zeros
 * @copy: the memory, with room for any key; out: the entry
 * @passes: how many entries and shards may be looked at; out: of them those that are left
 *
 * Return: 1, also if the value does not fit; 0: there are no more entries; -EAGAIN: no passes are
 * left; -EINTR: the process is killed.
 */
int sluice_map_copy_next(struct sluice_map *map, struct sluice_map_cursor *cursor,
			 struct sluice_map_copy *copy, unsigned int *passes);

/**
 * sluice_map_dump() - executes SLUICE_MAP_DUMP
 * @map: the map
 * @user: the parameters
 *
 * Return: 0; -EMSGSIZE: the first record does not fit; -EINVAL: the parameters are invalid; -E2BIG:
 * they have unknown fields; -EFAULT; -ENOMEM; -EINTR: the process is killed.
 */
long sluice_map_dump(struct sluice_map *map, struct sluice_map_dump __user *user);

/* ---- map_create.c ---- */

/**
 * sluice_map_alloc() - creates an empty map without a name
 * @request: the parameters of the open
 * @params: the parameters of the map
 *
 * Return: the map; -EINVAL: the parameters are invalid; -ENOMEM; or an error of
 * sluice_map_mapped_create().
 */
struct sluice_map *sluice_map_alloc(const struct sluice_channel_request *request,
				    const struct sluice_map_params *params);

/**
 * sluice_map_resize() - changes the capacity and the log for the keeper
 * @map: the map, before it has entries or a name
 * @capacity: the new capacity in bytes
 * @params: the parameters that were stored
 *
 * Return: 0; -EINVAL: the capacity or the parameters are invalid; -ENOMEM; -ENOSPC: a limit of a
 * scope; -EDQUOT: a limit of a user.
 */
int sluice_map_resize(struct sluice_map *map, u64 capacity, const struct sluice_map_params *params);

/**
 * sluice_map_free() - frees a map (kind.h)
 * @channel: the channel, a map that nobody uses
 *
 * Context: may sleep.
 */
void sluice_map_free(struct sluice_channel *channel);

/* ---- map_restore.c ---- */

/**
 * sluice_map_begin_restoring() - executes SLUICE_KEEP_CREATE
 * @create: the stream of an open, or 0: a new map; out: the stream of the new map
 * @keep: what was stored of the map
 * @calls: the mutex of the keeper's calls, which is taken for all but the creation of a new map
 *
 * Return: 0; -EINVAL: the parameters are invalid, or the stream does not wait for them; -ENOENT:
 * there is no such stream, or it has ended; -EEXIST: a channel has the name of the new map;
 * -ENOSPC, -EDQUOT: a limit of a scope, or of a user; -ENOMEM; -ERESTARTSYS: a signal is pending;
 * or an error of sluice_ctl_access_scope() or sluice_channel_lookup().
 */
int sluice_map_begin_restoring(struct sluice_keep_create *create,
			       const struct sluice_keep_map *keep, struct mutex *calls);

/**
 * sluice_map_restore() - restores one entry of SLUICE_KEEP_RESTORE
 * @map: the map, before it has its name
 * @entry: the entry, with its key and value at the user
 *
 * Return: 0, also if the time of the entry has passed; -EINVAL: the entry is invalid; -EFAULT;
 * -EINTR: a signal is pending; -EEXIST: the key has an entry; -ENOSPC: the map is full; -ENOMEM.
 */
int sluice_map_restore(struct sluice_map *map, const struct sluice_keep_entry *entry);

#endif
