// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/sched.h>

#include "map.h"
#include "short_copy.h"
#include "stream.h"

/* Entries that one call removes under a lock. */
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

static void index_time(struct sluice_map *map, struct sluice_map_shard *shard,
		       struct sluice_map_entry *new, u64 expires)
{
	struct rb_node **link = &shard->by_time.rb_root.rb_node, *parent = NULL;
	bool is_first = true;

	new->expires = expires != SLUICE_MAP_FOREVER;
	if (!new->expires)
		return;
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

static void unindex_time(struct sluice_map_shard *shard, struct sluice_map_entry *entry)
{
	if (entry->expires)
		rb_erase_cached(&entry->by_time, &shard->by_time);
	entry->expires = false;
}

/* ---- changes, under the shard's lock ---- */

/* Of a change that @record describes, if the map is durable. */
static u64 next_sequence(struct sluice_map *map, struct sluice_stream_record *record)
{
	if (map->stream)
		return sluice_stream_append(map->stream, record);
	return atomic64_inc_return(&map->sequence);	/* (map-L), (map-N) */
}

/* The record of a removal, which then has a reference to the entry; NULL: it needs none. */
static struct sluice_stream_record *take_removal(struct sluice_map_entry *entry, u32 change)
{
	struct sluice_stream_record *record = entry->removal;
	bool is_admitted = change == SLUICE_MAP_DELETED;

	if (!record)
		return NULL;
	entry->removal = NULL;
	record->entry = sluice_map_pin_removed(entry);
	record->type = is_admitted ? SLUICE_KEEP_DELETE : SLUICE_KEEP_EXPIRE;
	record->expires_ns = 0;
	record->key_length = entry->key_length;
	record->value_length = 0;
	record->charged = is_admitted ? sluice_stream_removal_size(entry->key_length) : 0;
	return record;
}

/* Removes an entry and puts the table's reference to it. Returns the number of the change. */
static u64 map_update_remove_and_put(struct sluice_map *map, struct sluice_map_shard *shard,
				     struct sluice_map_entry *entry, u32 change)
{
	struct sluice_map_value *value = value_of(shard, entry);
	u64 sequence;

	unindex_time(shard, entry);
	rb_erase(&entry->by_id, &shard->by_id);
	RCU_INIT_POINTER(entry->value, NULL);
	sluice_map_table_remove(map, entry);
	atomic64_dec(&map->entries);
	sequence = next_sequence(map, take_removal(entry, change));
	sluice_map_log(map, sequence, change, value->version, entry);
	sluice_map_value_retire(value);
	sluice_map_entry_put(entry);
	return sequence;
}

static void replace(struct sluice_map *map, struct sluice_map_shard *shard,
		    struct sluice_map_entry *entry, struct sluice_map_value *value,
		    struct sluice_stream_record *record)
{
	struct sluice_map_value *old = value_of(shard, entry);

	unindex_time(shard, entry);
	seqcount_spinlock_init(&value->changes, &shard->lock);
	value->version = next_sequence(map, record);
	rcu_assign_pointer(entry->value, value);	/* (map-V) */
	index_time(map, shard, entry, value->expires);
	sluice_map_log(map, value->version, SLUICE_MAP_UPDATED, value->version, entry);
	sluice_map_value_retire(old);
}

/* 0, or -ENODATA: the value has no room for @length bytes. */
static int map_update_overwrite(struct sluice_map *map, struct sluice_map_shard *shard,
				struct sluice_map_entry *entry, const void *bytes, u32 length,
				u64 expires)
{
	struct sluice_map_value *value = value_of(shard, entry);

	if ((int)length > value->room)
		return -ENODATA;
	unindex_time(shard, entry);
	write_seqcount_begin(&value->changes);	/* (map-O) */
	value->version = next_sequence(map, NULL);
	value->length = length;
	WRITE_ONCE(value->expires, expires);
	sluice_copy(value->bytes, bytes, length);
	write_seqcount_end(&value->changes);
	index_time(map, shard, entry, expires);
	sluice_map_log(map, value->version, SLUICE_MAP_UPDATED, value->version, entry);
	return 0;
}

/* Readers find the entry, without a value. 0, or -ENOSPC, -EAGAIN: nothing has changed. */
static int map_update_add(struct sluice_map *map, struct sluice_map_entry *entry)
{
	int err = sluice_map_count_entry(map);

	if (err)
		return err;
	err = sluice_map_table_insert(map, entry);
	if (err)
		atomic64_dec(&map->entries);
	return err;
}

/* The entry gets its id and its first value. */
static void make_visible(struct sluice_map *map, struct sluice_map_shard *shard,
			 struct sluice_map_entry *entry, struct sluice_map_value *value, u64 id)
{
	entry->id = id;
	index_id(shard, entry);
	rcu_assign_pointer(entry->value, value);	/* (map-V) */
	index_time(map, shard, entry, value->expires);
}

/* 0, or -ENOSPC, -EAGAIN: nothing has changed. */
static int map_update_insert(struct sluice_map *map, struct sluice_map_shard *shard,
			     struct sluice_map_entry *entry, struct sluice_map_value *value,
			     struct sluice_stream_record *record)
{
	int err = map_update_add(map, entry);

	if (err)
		return err;
	seqcount_spinlock_init(&value->changes, &shard->lock);
	value->version = next_sequence(map, record);
	make_visible(map, shard, entry, value, value->version);
	sluice_map_log(map, value->version, SLUICE_MAP_CREATED, value->version, entry);
	return 0;
}

static void expire(struct sluice_map *map, struct sluice_map_shard *shard,
		   struct sluice_map_entry *entry)
{
	map_update_remove_and_put(map, shard, entry, SLUICE_MAP_EXPIRED);
	atomic64_inc(&map->expired);
}

/* The entry of a key, or NULL; also one whose time has passed. */
static struct sluice_map_entry *find_any(struct sluice_map *map, const struct sluice_map_key *key)
{
	struct sluice_map_entry *entry;

	rcu_read_lock();
	entry = sluice_map_find(map, key);
	rcu_read_unlock();
	return entry;
}

/* The entry of a key, or NULL; one whose time has passed is removed. */
static struct sluice_map_entry *map_update_find(struct sluice_map *map,
						struct sluice_map_shard *shard,
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
			 const struct sluice_map_entry *entry, struct sluice_map_request *request)
{
	u64 required = request->version;

	request->version = entry ? value_of(shard, entry)->version : 0;
	if (!(request->flags & SLUICE_MAP_IF_VERSION) || request->version == required)
		return 0;
	if (!entry)
		return -ENOENT;
	return required ? -ESTALE : -EEXIST;
}

/* ---- calls ---- */

/* As sluice_map_set(); -ENODATA: @spare is needed. Takes it if the result is 1. */
static int try_set(struct sluice_map *map, struct sluice_map_request *request,
		   struct sluice_map_value *value, struct sluice_map_entry *spare)
{
	struct sluice_map_shard *shard = sluice_map_shard(map, request->key.hash);
	struct sluice_map_entry *entry;
	int ret;

	spin_lock(&shard->lock);
	entry = map_update_find(map, shard, &request->key);
	ret = check_version(shard, entry, request);
	if (ret)
		goto unlock;
	if (entry) {
		replace(map, shard, entry, value, request->record);
	} else {
		ret = spare ? map_update_insert(map, shard, spare, value, request->record) :
			      -ENODATA;
		if (ret)
			goto unlock;
		ret = 1;
	}
	request->version = value->version;
unlock:
	spin_unlock(&shard->lock);
	return ret;
}

static void wake_watchers(struct sluice_map *map)
{
	sluice_wait_wake_all(&map->changed, EPOLLIN | EPOLLRDNORM);
}

/* A call that fails has changed the map if it has removed an entry whose time has passed. */
static void end_call(struct sluice_map *map, u64 sequence_before)
{
	if (atomic64_read(&map->sequence) != sequence_before)
		wake_watchers(map);
}

/* As sluice_map_set(), for a key that had no entry. */
static int set_new(struct sluice_map *map, struct sluice_map_request *request,
		   struct sluice_map_value *value)
{
	struct sluice_map_entry *spare =
		sluice_map_entry_create(map, &request->key, request->gfp);
	int ret;

	if (IS_ERR(spare))
		return PTR_ERR(spare);
	ret = try_set(map, request, value, spare);
	if (ret != 1)
		sluice_map_entry_free(spare);
	return ret;
}

int sluice_map_set(struct sluice_map *map, struct sluice_map_request *request,
		   struct sluice_map_value *value)
{
	u64 required = request->version, before = atomic64_read(&map->sequence);
	int ret = try_set(map, request, value, NULL);

	if (ret == -ENODATA) {
		request->version = required;
		ret = set_new(map, request, value);
	}
	end_call(map, before);
	return ret;
}

int sluice_map_overwrite(struct sluice_map *map, struct sluice_map_request *request,
			 const void *bytes, u32 length, u64 ttl_ns)
{
	struct sluice_map_shard *shard = sluice_map_shard(map, request->key.hash);
	u64 required = request->version, before = atomic64_read(&map->sequence);
	u64 expires = sluice_map_time_of_expiry(ttl_ns);
	struct sluice_map_entry *entry;
	int ret;

	/* The stream needs a record. */
	if (map->stream)
		return -ENODATA;
	spin_lock(&shard->lock);
	entry = map_update_find(map, shard, &request->key);
	ret = check_version(shard, entry, request);
	if (!ret)
		ret = entry ? map_update_overwrite(map, shard, entry, bytes, length, expires) :
			      -ENODATA;
	if (!ret)
		request->version = value_of(shard, entry)->version;
	else if (ret == -ENODATA)
		request->version = required;
	spin_unlock(&shard->lock);
	end_call(map, before);
	return ret;
}

int sluice_map_delete(struct sluice_map *map, struct sluice_map_request *request)
{
	struct sluice_map_shard *shard = sluice_map_shard(map, request->key.hash);
	u64 before = atomic64_read(&map->sequence);
	struct sluice_map_entry *entry;
	int ret;

	spin_lock(&shard->lock);
	entry = map_update_find(map, shard, &request->key);
	ret = entry ? check_version(shard, entry, request) : -ENOENT;
	if (!ret)
		request->version = map_update_remove_and_put(map, shard, entry, SLUICE_MAP_DELETED);
	spin_unlock(&shard->lock);
	end_call(map, before);
	return ret;
}

/* As sluice_map_insert_restored(), under the shard's lock. */
static int insert_restored(struct sluice_map *map, struct sluice_map_shard *shard,
			   struct sluice_map_entry *entry, struct sluice_map_value *value)
{
	int err = map_update_add(map, entry);

	if (err)
		return err;
	seqcount_spinlock_init(&value->changes, &shard->lock);
	make_visible(map, shard, entry, value, ++map->restored);
	return 0;
}

int sluice_map_insert_restored(struct sluice_map *map, const struct sluice_map_key *key,
			       struct sluice_map_value *value, u64 version)
{
	struct sluice_map_shard *shard = sluice_map_shard(map, key->hash);
	struct sluice_map_entry *entry;
	int err = -EEXIST;

	/* A dump takes entries with greater ids for later ones. */
	if (map->restored >= atomic64_read(&map->sequence))
		return -EINVAL;
	entry = sluice_map_entry_create(map, key, SLUICE_QUOTA_GFP_BRIEF);
	if (IS_ERR(entry))
		return PTR_ERR(entry);
	value->version = version;
	spin_lock(&shard->lock);
	if (!find_any(map, key))
		err = insert_restored(map, shard, entry, value);
	spin_unlock(&shard->lock);
	if (err)
		sluice_map_entry_free(entry);
	return err;
}

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

u64 sluice_map_expire(struct sluice_map *map, struct sluice_map_shard *shard, u64 now)
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
		if (!begin_expiry(map)) {
			next = sluice_stream_has_ended(map->stream) ? SLUICE_MAP_FOREVER :
								      now + RETRY_NS;
			break;
		}
		expire(map, shard, entry);
		end_expiry(map);
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

void sluice_map_settle(struct sluice_map *map)
{
	unsigned int i;

	for (i = 0; i < SLUICE_MAP_SHARDS; i++) {
		spin_lock(&map->shards[i].lock);	/* (map-N) */
		spin_unlock(&map->shards[i].lock);
	}
}
