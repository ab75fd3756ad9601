// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of a map. sluice_map_change() makes every set and deletion, by file descriptor or over
 * netlink, of a durable map or another one, in these steps:
 *
 *   prepare   copies a short value from the user, or makes the record of a durable set
 *   admit     reserves bytes and numbers in the stream of a durable map; only the stream refuses
 *   apply     takes the lock of the shard, finds the entry, compares the version and publishes. If
 *             the change lacks memory of the map, it is reserved without the lock; then again
 *   publish   takes the number, changes what readers see, and tells the sinks: the stream, the
 *             mapped table and the log
 *   wait      sluice_map_wait_stored(), until a change of a durable map is stored: a call of its
 *             own, because a batch waits once
 *
 * Life of a change: it is a variable of the caller. Its record, value and entry belong to it until
 * they are published and their pointers set to NULL. release() frees what is left, whatever the
 * result is. sluice_stream_end_change() gives back what the stream has reserved, the bytes in
 * `admitted`.
 *
 * An expiry is published without the other steps, by the worker or by a change of the key; of a map
 * whose stream has ended it is not published, because nobody changes the map any more. A restored
 * entry is applied and not published, because it was a change before.
 */
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "map.h"
#include "map_mapped.h"
#include "short_copy.h"
#include "stream.h"
#include "user_struct.h"

/* Entries that the worker removes under a lock at once. */
#define EXPIRE_BATCH 64
/* When the worker tries again, if the stream of the map has no number left. */
#define RETRY_NS NSEC_PER_SEC

/* Under the shard's lock. NULL: a new entry, or a removed one. */
static struct sluice_map_value *value_of(const struct sluice_map_shard *shard,
					 const struct sluice_map_entry *entry)
{
	return rcu_dereference_protected(entry->value, lockdep_is_held(&shard->lock));
}

/* ---- the indexes of a shard, under its lock ---- */

static struct sluice_map_entry *entry_by_time(struct rb_node *node)
{
	return rb_entry(node, struct sluice_map_entry, by_time);
}

/* Numbers are taken under the lock, so a new id is greater than all before. */
static void index_id(struct sluice_map_shard *shard, struct sluice_map_entry *new)
{
	struct rb_node **link = &shard->by_id.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		link = &parent->rb_right;
	}
	rb_link_node(&new->by_id, parent, link);
	rb_insert_color(&new->by_id, &shard->by_id);
}

static void insert_by_time(struct sluice_map *map, struct sluice_map_shard *shard,
			   struct sluice_map_entry *new, u64 expires)
{
	struct rb_node **link = &shard->by_time.rb_root.rb_node, *parent = NULL;
	bool is_first = true;

	while (*link) {
		parent = *link;
		if (expires < value_of(shard, entry_by_time(parent))->expires) {
			link = &parent->rb_left;
		} else {
			link = &parent->rb_right;
			is_first = false;
		}
	}
	rb_link_node(&new->by_time, parent, link);
	rb_insert_color_cached(&new->by_time, &shard->by_time, is_first);
	if (is_first)
		sluice_map_expiry_arm(map, expires);
}

/* The entry is not in the index. */
static void index_time(struct sluice_map *map, struct sluice_map_shard *shard,
		       struct sluice_map_entry *new, u64 expires)
{
	new->expires = expires != SLUICE_MAP_FOREVER;
	if (new->expires)
		insert_by_time(map, shard, new, expires);
}

static void unindex_time(struct sluice_map_shard *shard, struct sluice_map_entry *entry)
{
	if (!entry->expires)
		return;
	rb_erase_cached(&entry->by_time, &shard->by_time);
	entry->expires = false;
}

/* ---- publish: what readers see, under the shard's lock ---- */

/* The entry gets its id and its first value. */
static void make_visible(struct sluice_map *map, struct sluice_map_shard *shard,
			 struct sluice_map_entry *entry, struct sluice_map_value *value, u64 id)
{
	seqcount_spinlock_init(&value->changes, &shard->lock);
	entry->id = id;
	index_id(shard, entry);
	rcu_assign_pointer(entry->value, value);	/* (map-V) */
	index_time(map, shard, entry, value->expires);
}

static void replace(struct sluice_map *map, struct sluice_map_shard *shard,
		    struct sluice_map_entry *entry, struct sluice_map_value *value)
{
	struct sluice_map_value *old = value_of(shard, entry);

	unindex_time(shard, entry);
	seqcount_spinlock_init(&value->changes, &shard->lock);
	rcu_assign_pointer(entry->value, value);	/* (map-V) */
	index_time(map, shard, entry, value->expires);
	sluice_map_value_retire(old);
}

static void overwrite(struct sluice_map *map, struct sluice_map_shard *shard,
		      struct sluice_map_entry *entry, const struct sluice_map_change *change,
		      u64 version)
{
	struct sluice_map_value *value = value_of(shard, entry);

	unindex_time(shard, entry);
	write_seqcount_begin(&value->changes);	/* (map-O) */
	value->version = version;
	value->length = change->length;
	WRITE_ONCE(value->expires, change->expires);
	sluice_copy(value->bytes, change->bytes, change->length);
	write_seqcount_end(&value->changes);
	index_time(map, shard, entry, change->expires);
}

/* Returns the version that the entry had. The caller still has the table's reference to it. */
static u64 take_out(struct sluice_map *map, struct sluice_map_shard *shard,
		    struct sluice_map_entry *entry)
{
	struct sluice_map_value *value = value_of(shard, entry);
	u64 version = value->version;

	unindex_time(shard, entry);
	rb_erase(&entry->by_id, &shard->by_id);
	RCU_INIT_POINTER(entry->value, NULL);
	sluice_map_table_remove(map, entry);
	atomic64_dec(&map->entries);
	sluice_map_value_retire(value);
	return version;
}

/* Returns the version for the event. */
static u64 take_effect(struct sluice_map *map, struct sluice_map_shard *shard,
		       struct sluice_map_entry *entry, u32 event, struct sluice_map_change *change,
		       u64 sequence)
{
	struct sluice_map_value *value;

	if (event == SLUICE_MAP_DELETED || event == SLUICE_MAP_EXPIRED)
		return take_out(map, shard, entry);
	value = change->value;
	change->value = NULL;
	if (value)
		value->version = sequence;
	if (event == SLUICE_MAP_CREATED)
		make_visible(map, shard, entry, value, sequence);
	else if (value)
		replace(map, shard, entry, value);
	else
		overwrite(map, shard, entry, change, sequence);
	return sequence;
}

/* ---- publish: numbers and sinks, under the shard's lock ---- */

/* The record of a removal, which then has a reference to the entry. */
static struct sluice_stream_record *take_removal(struct sluice_map_entry *entry, u32 event)
{
	struct sluice_stream_record *record = entry->removal;
	bool is_admitted = event == SLUICE_MAP_DELETED;

	entry->removal = NULL;
	record->entry = sluice_map_pin_removed(entry);
	record->type = is_admitted ? SLUICE_KEEP_DELETE : SLUICE_KEEP_EXPIRE;
	record->expires_ns = 0;
	record->key_length = entry->key_length;
	record->value_length = 0;
	record->charged = is_admitted ? sluice_stream_removal_size(entry->key_length) : 0;
	return record;
}

/* The record of a change of a durable map, which takes with it what was reserved for it. */
static struct sluice_stream_record *take_record(struct sluice_map_entry *entry, u32 event,
						struct sluice_map_change *change)
{
	struct sluice_stream_record *record;

	if (event == SLUICE_MAP_EXPIRED)
		return take_removal(entry, event);
	change->admitted = 0;
	if (event == SLUICE_MAP_DELETED)
		return take_removal(entry, event);
	record = change->record;
	change->record = NULL;
	return record;
}

/* The stream gives the number and takes the record at once: its order is that of the numbers. */
static u64 take_number(struct sluice_map *map, struct sluice_map_entry *entry, u32 event,
		       struct sluice_map_change *change)
{
	if (map->stream)
		return sluice_stream_append(map->stream, take_record(entry, event, change));
	return atomic64_inc_return(&map->sequence);	/* (map-L), (map-N) */
}

/* @value: NULL: the entry was removed. */
static void end_mapped(struct sluice_map *map, const struct sluice_map_entry *entry,
		       struct sluice_map_cell *cell, const struct sluice_map_value *value)
{
	if (value)
		sluice_map_mapped_end(map, cell, value);
	else
		sluice_map_mapped_end_removal(map, cell, entry);
}

/*
 * The only place where a change gets its number, takes effect and is told to the sinks, after
 * everything that can fail. The log is told after the effect: a reader of the event finds the
 * value. All watchers, by file descriptor and over netlink, read the log, and are woken after the
 * lock is released.
 *
 * @event: SLUICE_MAP_CREATED, and so on. @change: NULL if the entry expires. Returns the number.
 *
 * Inline, because a set of a short value takes little more time than some calls.
 */
static __always_inline u64 publish(struct sluice_map *map, struct sluice_map_shard *shard,
				   struct sluice_map_entry *entry, u32 event,
				   struct sluice_map_change *change)
{
	u64 sequence = take_number(map, entry, event, change), version;
	struct sluice_map_cell *cell = NULL;

	if (map->mapped)
		cell = event == SLUICE_MAP_CREATED ? sluice_map_mapped_begin_new(map, entry) :
						     sluice_map_mapped_begin(entry);
	version = take_effect(map, shard, entry, event, change, sequence);
	if (map->mapped)
		end_mapped(map, entry, cell, value_of(shard, entry));
	sluice_map_log(map, sequence, event, version, entry);
	if (event == SLUICE_MAP_DELETED || event == SLUICE_MAP_EXPIRED)
		sluice_map_entry_put(entry);
	return sequence;
}

/* ---- apply, under the shard's lock ---- */

/* The entry of a key, or NULL; also one whose time has passed. */
static struct sluice_map_entry *find_any(struct sluice_map *map, const struct sluice_map_key *key)
{
	struct sluice_map_entry *entry;

	rcu_read_lock();
	entry = sluice_map_find(map, key);
	rcu_read_unlock();
	return entry;
}

static noinline void expire(struct sluice_map *map, struct sluice_map_shard *shard,
			    struct sluice_map_entry *entry)
{
	publish(map, shard, entry, SLUICE_MAP_EXPIRED, NULL);
	atomic64_inc(&map->expired);
}

/* The entry of a key, or NULL; one whose time has passed is removed. */
static struct sluice_map_entry *find_live(struct sluice_map *map, struct sluice_map_shard *shard,
					  const struct sluice_map_key *key)
{
	struct sluice_map_entry *entry = find_any(map, key);

	if (!entry || !sluice_map_is_expired(value_of(shard, entry)))
		return entry;
	expire(map, shard, entry);
	return NULL;
}

/* Whether the entry, or that there is none, is as required. 0, -EEXIST, -ESTALE, -ENOENT. */
static int check_version(const struct sluice_map_shard *shard,
			 const struct sluice_map_entry *entry, struct sluice_map_change *change)
{
	if (!(change->flags & SLUICE_MAP_IF_VERSION))
		return 0;
	change->version = entry ? value_of(shard, entry)->version : 0;
	if (change->version == change->required)
		return 0;
	if (!entry)
		return -ENOENT;
	return change->required ? -ESTALE : -EEXIST;
}

/*
 * Readers find the new entry of the change, without a value. 0; -ENODATA: it lacks memory; or
 * -ENOSPC, -EAGAIN: nothing has changed.
 */
static int add_entry(struct sluice_map *map, struct sluice_map_change *change)
{
	int err;

	change->lacks_entry = !change->entry;
	if (!change->entry || !change->value)
		return -ENODATA;
	err = sluice_map_count_entry(map);
	if (err)
		return err;
	err = sluice_map_table_insert(map, change->entry);
	if (err)
		atomic64_dec(&map->entries);
	return err;
}

static struct sluice_map_entry *take_entry(struct sluice_map_change *change)
{
	struct sluice_map_entry *entry = change->entry;

	change->entry = NULL;
	return entry;
}

/* The event that the change becomes; or -ENOENT, or an error of add_entry(). */
static int event_of(struct sluice_map *map, const struct sluice_map_shard *shard,
		    const struct sluice_map_entry *entry, struct sluice_map_change *change)
{
	if (change->command == SLUICE_MAP_STEP_DELETE)
		return entry ? SLUICE_MAP_DELETED : -ENOENT;
	if (!entry)
		return add_entry(map, change) ?: SLUICE_MAP_CREATED;
	if (change->value || (int)change->length <= value_of(shard, entry)->room)
		return SLUICE_MAP_UPDATED;
	return -ENODATA;
}

/* As sluice_map_change(); -ENODATA: it lacks memory. */
static int apply_locked(struct sluice_map *map, struct sluice_map_shard *shard,
			struct sluice_map_change *change)
{
	struct sluice_map_entry *entry = find_live(map, shard, &change->key);
	int event = check_version(shard, entry, change);

	event = event ?: event_of(map, shard, entry, change);
	if (event < 0)
		return event;
	if (event == SLUICE_MAP_CREATED)
		entry = take_entry(change);
	change->version = publish(map, shard, entry, event, change);
	return event == SLUICE_MAP_CREATED;
}

/* As apply_locked(), of an entry whose version was given before the map has its name. */
static int restore_locked(struct sluice_map *map, struct sluice_map_shard *shard,
			  struct sluice_map_change *change)
{
	struct sluice_map_cell *cell = NULL;
	struct sluice_map_entry *entry;
	int err;

	/* A dump takes entries with greater ids for later ones. */
	if (map->restored >= atomic64_read(&map->sequence))
		return -EINVAL;
	if (find_any(map, &change->key))
		return -EEXIST;
	err = add_entry(map, change);
	if (err)
		return err;
	change->value->version = change->version;
	entry = take_entry(change);
	if (map->mapped)
		cell = sluice_map_mapped_begin_new(map, entry);
	make_visible(map, shard, entry, change->value, ++map->restored);
	if (map->mapped)
		sluice_map_mapped_end(map, cell, change->value);
	change->value = NULL;
	return 0;
}

/* ---- apply, without the lock ---- */

static void wake_watchers(struct sluice_map *map)
{
	sluice_wait_wake_all(&map->changed, EPOLLIN | EPOLLRDNORM);
}

static int apply_once(struct sluice_map *map, struct sluice_map_change *change)
{
	struct sluice_map_shard *shard = sluice_map_shard(map, change->key.hash);
	u64 before = atomic64_read(&map->sequence);
	int ret;

	spin_lock(&shard->lock);
	if (change->command == SLUICE_MAP_RESTORE)
		ret = restore_locked(map, shard, change);
	else
		ret = apply_locked(map, shard, change);
	spin_unlock(&shard->lock);
	/* A change that fails may have removed an expired entry. */
	if (atomic64_read(&map->sequence) != before)
		wake_watchers(map);
	return ret;
}

static int reserve_value(struct sluice_map *map, struct sluice_map_change *change)
{
	struct sluice_map_value *value =
		sluice_map_value_create(map, change->length, change->expires, change->gfp);

	if (IS_ERR(value))
		return PTR_ERR(value);
	change->value = value;
	if (change->record && change->expires != SLUICE_MAP_FOREVER)
		change->record->expires_ns = change->expires;
	if (change->bytes)
		memcpy(value->bytes, change->bytes, change->length);
	else if (copy_from_user(value->bytes, change->user, change->length))
		return -EFAULT;
	return 0;
}

static int reserve_entry(struct sluice_map *map, struct sluice_map_change *change)
{
	struct sluice_map_entry *entry = sluice_map_entry_create(map, &change->key, change->gfp);

	if (IS_ERR(entry))
		return PTR_ERR(entry);
	change->entry = entry;
	return 0;
}

/* Memory that the change lacks. 0, or an error of sluice_map_entry_create(); -EFAULT. */
static int reserve(struct sluice_map *map, struct sluice_map_change *change)
{
	int err = change->value ? 0 : reserve_value(map, change);

	return err || !change->lacks_entry || change->entry ? err : reserve_entry(map, change);
}

/* Frees the memory of the map that the change has not used. */
static void unreserve(struct sluice_map_change *change)
{
	if (change->value)
		sluice_map_value_free(change->value);
	change->value = NULL;
	if (change->entry)
		sluice_map_entry_free(change->entry);
	change->entry = NULL;
}

/*
 * A deletion, which needs no memory, or a value that was copied already, which may fit into that of
 * the entry; if not, the version is compared before memory is requested for it.
 */
static bool may_need_no_memory(const struct sluice_map *map, const struct sluice_map_change *change)
{
	if (change->command == SLUICE_MAP_STEP_DELETE)
		return true;
	return !map->stream && change->bytes;
}

static u64 time_of_expiry(u64 ttl_ns)
{
	u64 now;

	if (!ttl_ns)
		return SLUICE_MAP_FOREVER;
	now = ktime_get_boottime_ns();
	return ttl_ns > KTIME_MAX - now ? SLUICE_MAP_FOREVER : now + ttl_ns;
}

/* As sluice_map_change(); -EAGAIN: it may wait for memory. */
static int reserve_and_apply(struct sluice_map *map, struct sluice_map_change *change)
{
	int ret = 0;

	change->expires = time_of_expiry(change->ttl_ns);
	change->lacks_entry = change->command == SLUICE_MAP_RESTORE;
	if (!may_need_no_memory(map, change))
		ret = reserve(map, change);
	while (!ret) {
		ret = apply_once(map, change);
		if (ret != -ENODATA)
			break;
		ret = reserve(map, change);
	}
	return ret;
}

/*
 * Waits for memory, if the change may, until a deadline that the first wait sets. 0: try again;
 * -EAGAIN; or an error of sluice_map_wait_for_memory().
 */
static int wait_for_memory(struct sluice_map *map, struct sluice_map_change *change,
			   unsigned long *deadline)
{
	if (!gfpflags_allow_blocking(change->gfp) ||
	    (map->stream && change->flags & SLUICE_MAP_NOWAIT))
		return -EAGAIN;
	/* Other changes may wait for this memory. */
	unreserve(change);
	/* The change may have expired an entry, whose memory the keeper has to free. */
	if (map->stream)
		sluice_stream_wake_keeper();
	if (!*deadline)
		*deadline = jiffies + SLUICE_MAP_MEMORY_WAIT;
	return sluice_map_wait_for_memory(map, (size_t)change->key.length + change->length,
					  *deadline);
}

static int apply(struct sluice_map *map, struct sluice_map_change *change)
{
	unsigned long deadline = 0;
	int ret;

	for (;;) {
		ret = reserve_and_apply(map, change);
		if (ret != -EAGAIN)
			return ret;
		ret = wait_for_memory(map, change, &deadline);
		if (ret)
			return ret;
	}
}

/* ---- prepare, admit ---- */

/* The record has the value, of which that of the map is a copy. */
static int prepare_record(struct sluice_map_change *change)
{
	u8 *value;

	change->record = sluice_stream_record_create(&change->key, change->length, change->gfp);
	change->lacks_record = !change->record;
	if (change->lacks_record)
		return -ENOMEM;
	value = sluice_stream_record_value(change->record);
	if (change->bytes)
		memcpy(value, change->bytes, change->length);
	else if (copy_from_user(value, change->user, change->length))
		return -EFAULT;
	change->bytes = value;
	return 0;
}

/* @buffer: for a short value. A longer one is copied to where it stays. 0, -EINVAL, … */
static int prepare_value(struct sluice_map *map, struct sluice_map_change *change, u64 *buffer)
{
	if (change->command != SLUICE_MAP_STEP_SET)
		return 0;
	if (change->length > SLUICE_MAP_VALUE_MAX)
		return -EINVAL;
	if (map->stream)
		return prepare_record(change);
	if (change->bytes || change->length > SLUICE_SHORT_COPY)
		return 0;
	if (!sluice_copy_from_user(buffer, change->user, change->length))
		return -EFAULT;
	change->bytes = buffer;
	return 0;
}

static bool needs_admission(const struct sluice_map *map, const struct sluice_map_change *change)
{
	return map->stream && change->command != SLUICE_MAP_RESTORE;
}

static int admit(struct sluice_map *map, struct sluice_map_change *change)
{
	change->admitted = change->record ? change->record->charged :
			   sluice_stream_removal_size(change->key.length);
	return sluice_stream_admit(map->stream, change->admitted,
				   change->flags & SLUICE_MAP_NOWAIT);
}

static int admit_and_apply(struct sluice_map *map, struct sluice_map_change *change)
{
	int ret;

	if (!needs_admission(map, change))
		return apply(map, change);
	ret = admit(map, change);
	if (ret)
		return ret;
	ret = apply(map, change);
	sluice_stream_end_change(map->stream, change->admitted);
	return ret;
}

/* Frees what the change still has. */
static void release(struct sluice_map_change *change)
{
	unreserve(change);
	if (change->record)
		sluice_stream_record_free(change->record);
}

int sluice_map_change(struct sluice_map *map, struct sluice_map_change *change)
{
	u64 buffer[SLUICE_SHORT_COPY / sizeof(u64)] __uninitialized;
	int ret = prepare_value(map, change, buffer) ?: admit_and_apply(map, change);

	release(change);
	return ret;
}

/* ---- wait ---- */

void sluice_map_note_change(struct sluice_map_endpoint *end, u64 sequence)
{
	s64 last = atomic64_read(&end->changed);

	while (last < (s64)sequence)
		if (atomic64_try_cmpxchg(&end->changed, &last, sequence))
			break;
}

int sluice_map_wait_stored(struct sluice_map_endpoint *end, u64 sequence)
{
	struct sluice_stream *stream = end->map->stream;
	int err;

	if (!stream || stream->flags & SLUICE_MAP_INTERVAL)
		return 0;
	err = sluice_stream_wait_stored(stream, sequence);
	/* The change was made, and is gone as if the map had been unlinked after the call. */
	return err == -EIDRM ? 0 : err;
}

long sluice_map_sync(struct sluice_map *map, struct sluice_setting __user *user)
{
	u64 last = atomic64_read(&map->sequence), sequence;
	int err = sluice_user_setting_read(&sequence, user);

	if (err)
		return err;
	if (!map->stream)
		return -EOPNOTSUPP;
	if (sequence == SLUICE_MAP_NOW)
		sequence = last;
	if (sequence > last)
		return -EINVAL;
	err = sluice_stream_wait_stored(map->stream, sequence);
	return err ?: put_user(READ_ONCE(map->stream->stored), &user->value);
}

/* ---- the worker ---- */

/* Whether the worker may remove an entry; between two locks of the shard it tries again. */
static bool begin_expiry(struct sluice_map *map)
{
	return !map->stream || sluice_stream_begin_expiry(map->stream);
}

static void end_expiry(struct sluice_map *map)
{
	if (map->stream)
		sluice_stream_end_expiry(map->stream);
}

/* Removes an entry of a map whose stream has ended: without a number, a record or an event. */
static void map_drop_expired(struct sluice_map *map, struct sluice_map_shard *shard,
			     struct sluice_map_entry *entry)
{
	struct sluice_map_cell *cell = map->mapped ? sluice_map_mapped_begin(entry) : NULL;

	kfree(entry->removal);
	entry->removal = NULL;
	take_out(map, shard, entry);
	if (map->mapped)
		end_mapped(map, entry, cell, NULL);
	sluice_map_entry_put(entry);
	atomic64_inc(&map->expired);
}

/* Removes an entry whose time has passed. False: the stream permits no expiry now. */
static bool try_expire(struct sluice_map *map, struct sluice_map_shard *shard,
		       struct sluice_map_entry *entry)
{
	if (begin_expiry(map)) {
		expire(map, shard, entry);
		end_expiry(map);
		return true;
	}
	if (!sluice_stream_has_ended(map->stream))
		return false;
	map_drop_expired(map, shard, entry);
	return true;
}

/*
 * Removes a bounded number of entries whose time has passed. Returns when the next one expires: a
 * time that has passed, if there are more; SLUICE_MAP_FOREVER, if none does; and in a while, if the
 * stream permits no expiry now.
 */
static u64 expire_some(struct sluice_map *map, struct sluice_map_shard *shard, u64 now)
{
	u64 next = SLUICE_MAP_FOREVER;
	unsigned int removed = 0;
	struct rb_node *node;

	spin_lock(&shard->lock);
	while ((node = rb_first_cached(&shard->by_time))) {
		struct sluice_map_entry *entry = entry_by_time(node);

		next = value_of(shard, entry)->expires;
		if (next > now || removed == EXPIRE_BATCH)
			break;
		if (!try_expire(map, shard, entry)) {
			next = now + RETRY_NS;
			break;
		}
		removed++;
		next = SLUICE_MAP_FOREVER;
	}
	spin_unlock(&shard->lock);
	if (removed)
		wake_watchers(map);
	if (removed && map->stream)
		sluice_stream_wake_keeper();
	return next;
}

void sluice_map_expire(struct work_struct *work)
{
	struct sluice_map *map = container_of(work, struct sluice_map, expiry);
	u64 now = ktime_get_boottime_ns(), next = SLUICE_MAP_FOREVER;
	unsigned int i;

	sluice_map_expiry_disarm(map);
	for (i = 0; i < SLUICE_MAP_SHARDS; i++) {
		next = min(next, expire_some(map, &map->shards[i], now));
		cond_resched();
	}
	/* With expired entries left, at once; the work is queued behind that of other maps. */
	if (next != SLUICE_MAP_FOREVER)
		sluice_map_expiry_arm(map, next);
}
