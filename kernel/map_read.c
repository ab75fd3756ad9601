// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "map.h"
#include "short_copy.h"
#include "user_struct.h"

/*
 * Bytes of a dump that are collected in the kernel and copied at once; a longer record is alone.
 * The kernel may clear memory that it allocates, so that more bytes take longer.
 */
#define DUMP_BYTES SZ_4K
/* Entries that are found under a lock at once. */
#define DUMP_BATCH 32

/* ---- get ---- */

/* Under RCU: the value of an entry at a time when no change is under way, or NULL. */
static struct sluice_map_value *settled_value(struct sluice_map_shard *shard,
					      const struct sluice_map_entry *entry)
{
	struct sluice_map_value *value;

	spin_lock(&shard->lock);
	value = rcu_dereference_protected(entry->value, lockdep_is_held(&shard->lock));
	if (value && sluice_map_is_expired(value))
		value = NULL;
	spin_unlock(&shard->lock);
	return value;
}

/*
 * Under RCU: the value of a key, or NULL. A change that is under way may have found a value whose
 * time has passed since, and will replace it; the lock shows whether there is one.
 */
static __always_inline struct sluice_map_value *find_value(struct sluice_map *map,
							   const struct sluice_map_key *key)
{
	struct sluice_map_entry *entry = sluice_map_find(map, key);
	/* (map-V) */
	struct sluice_map_value *value = entry ? rcu_dereference(entry->value) : NULL;

	if (!value || !sluice_map_is_expired(value))
		return value;
	return settled_value(sluice_map_shard(map, key->hash), entry);
}

/* How often a reader repeats what it has read of a value that is overwritten again and again. */
#define ATTEMPTS 16

/* Returns when the value expires. */
static u64 copy_once(const struct sluice_map_value *value, struct sluice_map_copy *copy)
{
	copy->version = value->version;
	copy->length = READ_ONCE(value->length);
	if (copy->length <= copy->room)
		sluice_copy(copy->value, value->bytes, copy->length);
	return READ_ONCE(value->expires);
}

/* Under RCU. As copy_once(), unless the value changes all the time. */
static bool try_copy(const struct sluice_map_value *value, struct sluice_map_copy *copy,
		     u64 *expires)
{
	unsigned int attempts, changes;

	for (attempts = 0; attempts < ATTEMPTS; attempts++) {
		changes = read_seqcount_begin(&value->changes);	/* (map-O) */
		*expires = copy_once(value, copy);
		if (!read_seqcount_retry(&value->changes, changes))
			return true;
	}
	return false;
}

/* Under RCU. A value that can be overwritten is short, so that the lock is held briefly. */
static void copy_from(struct sluice_map_shard *shard, const struct sluice_map_value *value,
		      struct sluice_map_copy *copy)
{
	u64 expires;

	if (!try_copy(value, copy, &expires)) {
		spin_lock(&shard->lock);
		expires = copy_once(value, copy);
		spin_unlock(&shard->lock);
	}
	copy->ttl_ns = sluice_map_time_to_live(expires);
}

__flatten
bool sluice_map_copy_value(struct sluice_map *map, const struct sluice_map_key *key,
			   struct sluice_map_copy *copy)
{
	struct sluice_map_value *value;

	rcu_read_lock();
	value = find_value(map, key);
	if (value)
		copy_from(sluice_map_shard(map, key->hash), value, copy);
	rcu_read_unlock();
	return value;
}

/* Under RCU, without page faults. */
static bool copy_nofault(void __user *to, const struct sluice_map_value *value, u32 length)
{
	bool copied;

	pagefault_disable();
	copied = sluice_copy_to_user(to, value->bytes, length);
	pagefault_enable();
	return copied;
}

/* Under RCU. As get_at_once(), but for the time to live: @expires. */
static int copy_to_op(const struct sluice_map_value *value, struct sluice_map_op *op, u32 room,
		      u64 *expires)
{
	op->version = value->version;
	op->value_length = READ_ONCE(value->length);
	*expires = READ_ONCE(value->expires);
	if (op->value_length > room)
		return -EMSGSIZE;
	return copy_nofault(u64_to_user_ptr(op->value), value, op->value_length) ? 0 : -EAGAIN;
}

/* Under RCU. As get_at_once(). */
static int try_copy_to_op(const struct sluice_map_value *value, struct sluice_map_op *op, u32 room)
{
	unsigned int attempts, changes;
	u64 expires;
	int err;

	for (attempts = 0; attempts < ATTEMPTS; attempts++) {
		changes = read_seqcount_begin(&value->changes);	/* (map-O) */
		err = copy_to_op(value, op, room, &expires);
		if (err == -EAGAIN)
			return err;
		if (!read_seqcount_retry(&value->changes, changes)) {
			op->ttl_ns = sluice_map_time_to_live(expires);
			return err;
		}
	}
	return -EAGAIN;
}

/* As sluice_map_get(); -EAGAIN: the user's memory is absent, or the value changes all the time. */
static int get_at_once(struct sluice_map *map, const struct sluice_map_key *key,
		       struct sluice_map_op *op, u32 room)
{
	struct sluice_map_value *value;
	int err;

	rcu_read_lock();
	value = find_value(map, key);
	err = value ? try_copy_to_op(value, op, room) : -ENOENT;
	rcu_read_unlock();
	return err;
}

/* As sluice_map_get(), with a copy that the caller is charged for while a fault takes its time. */
static int get_by_copy(struct sluice_map *map, const struct sluice_map_key *key,
		       struct sluice_map_op *op, u32 room)
{
	struct sluice_map_copy copy = { .room = room };
	int err = 0;

	copy.value = kvmalloc(room, SLUICE_QUOTA_GFP);
	if (!copy.value)
		return -ENOMEM;
	if (!sluice_map_copy_value(map, key, &copy)) {
		err = -ENOENT;
		goto free;
	}
	op->version = copy.version;
	op->value_length = copy.length;
	op->ttl_ns = copy.ttl_ns;
	if (copy.length > room)
		err = -EMSGSIZE;
	else if (copy_to_user(u64_to_user_ptr(op->value), copy.value, copy.length))
		err = -EFAULT;
free:
	kvfree(copy.value);
	return err;
}

int sluice_map_get(struct sluice_map *map, const struct sluice_map_key *key,
		   struct sluice_map_op *op)
{
	u32 room = min_t(u32, op->value_length, SLUICE_MAP_VALUE_MAX);
	int err = get_at_once(map, key, op, room);

	return err == -EAGAIN ? get_by_copy(map, key, op, room) : err;
}

/* ---- dump ---- */

struct found {
	struct sluice_map_entry *entry;
	struct sluice_map_value *value;	/* NULL: its time has passed */
};

/* A dump in progress: the parameters of the call, and the records for it. */
struct dump {
	struct sluice_map *map;
	struct sluice_map_dump *call;
	u32 room;			/* bytes at the user that are left */
	u8 *buffer;
	u32 size;			/* bytes of the buffer */
	u32 filled;
	u32 written;			/* bytes at the user */
	u32 needed;			/* by the last record */
};

static bool has_values(const struct dump *dump)
{
	return !(dump->call->flags & SLUICE_MAP_KEYS);
}

static struct sluice_map_record header_of(const struct dump *dump, const struct found *found)
{
	u32 length = READ_ONCE(found->value->length);
	u32 size = sizeof(struct sluice_map_record) + found->entry->key_length +
		   (has_values(dump) ? length : 0);

	return (struct sluice_map_record) {
		.size = ALIGN(size, sizeof(u64)),
		.value_length = length,
		.version = found->value->version,
		.ttl_ns = READ_ONCE(found->value->expires),
		.key_length = found->entry->key_length,
		.header = sizeof(struct sluice_map_record),
	};
}

/* Under the shard's lock: the entry with the smallest id that is greater than @id, or NULL. */
static struct rb_node *map_read_first_after(const struct sluice_map_shard *shard, u64 id)
{
	struct rb_node *node = shard->by_id.rb_node, *first = NULL;

	while (node) {
		if (rb_entry(node, struct sluice_map_entry, by_id)->id > id) {
			first = node;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return first;
}

/* Under the shard's lock. NULL: its time has passed. */
static struct sluice_map_value *live_value(const struct sluice_map_shard *shard,
					   const struct sluice_map_entry *entry)
{
	struct sluice_map_value *value =
		rcu_dereference_protected(entry->value, lockdep_is_held(&shard->lock));

	return sluice_map_is_expired(value) ? NULL : value;
}

/* Under RCU: the next entries of the cursor's shard, at most @most. */
static unsigned int find_next(struct sluice_map *map, const struct sluice_map_cursor *cursor,
			      struct found *found, unsigned int most)
{
	struct sluice_map_shard *shard = &map->shards[cursor->shard];
	struct sluice_map_entry *entry;
	struct rb_node *node;
	unsigned int count = 0;

	spin_lock(&shard->lock);
	for (node = map_read_first_after(shard, cursor->id); node && count < most;
	     node = rb_next(node)) {
		entry = rb_entry(node, struct sluice_map_entry, by_id);
		if (entry->id > cursor->since)
			break;
		found[count].entry = entry;
		found[count++].value = live_value(shard, entry);
	}
	spin_unlock(&shard->lock);
	return count;
}

static void map_read_begin(const struct sluice_map *map, struct sluice_map_cursor *cursor)
{
	if (!cursor->since)
		cursor->since = atomic64_read(&map->sequence);
}

static void pass_shard(struct sluice_map_cursor *cursor)
{
	cursor->shard++;
	cursor->id = 0;
}

/* Under RCU. */
static void copy_entry(struct sluice_map_shard *shard, const struct found *found,
		       struct sluice_map_copy *copy)
{
	copy->key_length = found->entry->key_length;
	memcpy(copy->key, found->entry->key, found->entry->key_length);
	copy_from(shard, found->value, copy);
}

/* Copies the next entry of the cursor's shard, or passes over it or to the next shard. */
static bool copy_or_pass(struct sluice_map *map, struct sluice_map_cursor *cursor,
			 struct sluice_map_copy *copy)
{
	struct found found;

	if (!find_next(map, cursor, &found, 1)) {
		pass_shard(cursor);
		return false;
	}
	cursor->id = found.entry->id;
	if (!found.value)
		return false;
	copy_entry(&map->shards[cursor->shard], &found, copy);
	return true;
}

int sluice_map_copy_next(struct sluice_map *map, struct sluice_map_cursor *cursor,
			 struct sluice_map_copy *copy, unsigned int *passes)
{
	bool copied = false;

	map_read_begin(map, cursor);
	while (!copied && cursor->shard < SLUICE_MAP_SHARDS) {
		if (!*passes || fatal_signal_pending(current))
			return *passes ? -EINTR : -EAGAIN;
		--*passes;
		rcu_read_lock();
		copied = copy_or_pass(map, cursor, copy);
		rcu_read_unlock();
		cond_resched();
	}
	return copied;
}

/* Bytes of the buffer that are left and will fit at the user. */
static u32 space(const struct dump *dump)
{
	return min(dump->size, dump->room) - dump->filled;
}

/* Writes the value of a record, if there is space for it. */
static void write_value(const struct dump *dump, const struct found *found,
			struct sluice_map_record *header)
{
	u8 *record = dump->buffer + dump->filled, *end;

	*header = header_of(dump, found);
	if (header->size > space(dump))
		return;
	end = record + sizeof(*header) + header->key_length;
	if (has_values(dump)) {
		sluice_copy(end, found->value->bytes, header->value_length);
		end += header->value_length;
	}
	while (end < record + header->size)
		*end++ = 0;
}

/* Under RCU. As write_value(), unless the value changes all the time. */
static bool try_write_value(const struct dump *dump, const struct found *found,
			    struct sluice_map_record *header)
{
	unsigned int attempts, changes;

	for (attempts = 0; attempts < ATTEMPTS; attempts++) {
		changes = read_seqcount_begin(&found->value->changes);	/* (map-O) */
		write_value(dump, found, header);
		if (!read_seqcount_retry(&found->value->changes, changes))
			return true;
	}
	return false;
}

/* Under RCU. False: the buffer has no space for it, but needs so many bytes. */
static bool append(struct dump *dump, struct sluice_map_shard *shard, const struct found *found)
{
	u8 *record = dump->buffer + dump->filled;
	struct sluice_map_record header;

	if (!try_write_value(dump, found, &header)) {
		spin_lock(&shard->lock);
		write_value(dump, found, &header);
		spin_unlock(&shard->lock);
	}
	dump->needed = header.size;
	if (header.size > space(dump))
		return false;
	header.ttl_ns = sluice_map_time_to_live(header.ttl_ns);
	memcpy(record, &header, sizeof(header));
	sluice_copy(record + sizeof(header), found->entry->key, header.key_length);
	dump->filled += header.size;
	dump->call->count++;
	return true;
}

/* Appends the next entries of the cursor's shard. True: there is no more room. */
static bool append_next(struct dump *dump)
{
	struct sluice_map_cursor *cursor = &dump->call->cursor;
	struct sluice_map_shard *shard = &dump->map->shards[cursor->shard];
	struct found found[DUMP_BATCH] __uninitialized;
	unsigned int count, i;
	bool fits = true;

	rcu_read_lock();
	count = find_next(dump->map, cursor, found, DUMP_BATCH);
	for (i = 0; i < count; i++) {
		fits = !found[i].value || append(dump, shard, &found[i]);
		if (!fits)
			break;
		cursor->id = found[i].entry->id;
	}
	rcu_read_unlock();
	if (fits && count < DUMP_BATCH)
		pass_shard(cursor);
	return !fits;
}

static int map_read_get_buffer(struct dump *dump, u32 size)
{
	kvfree(dump->buffer);
	dump->size = size;
	dump->buffer = kvmalloc(size, SLUICE_QUOTA_GFP);
	return dump->buffer ? 0 : -ENOMEM;
}

/* Copies the records of the buffer to the user. 0 or -EFAULT. */
static int flush(struct dump *dump)
{
	u8 __user *records = u64_to_user_ptr(dump->call->records);

	if (copy_to_user(records + dump->written, dump->buffer, dump->filled))
		return -EFAULT;
	dump->written += dump->filled;
	dump->room -= dump->filled;
	dump->filled = 0;
	return 0;
}

/*
 * After the record that did not fit: makes space for it. 0; -EMSGSIZE: there is no room for it at
 * the user, -EFAULT, -ENOMEM.
 */
static int make_space(struct dump *dump)
{
	int err = flush(dump);

	if (err)
		return err;
	if (dump->needed > dump->room)
		return -EMSGSIZE;
	return dump->needed > dump->size ? map_read_get_buffer(dump, dump->needed) : 0;
}

/* Copies records to the user while there is room. 0 or an error of the call. */
static int dump_fill(struct dump *dump)
{
	struct sluice_map_cursor *cursor = &dump->call->cursor;
	int err;

	map_read_begin(dump->map, cursor);
	while (cursor->shard < SLUICE_MAP_SHARDS) {
		err = append_next(dump) ? make_space(dump) : 0;
		if (err == -EMSGSIZE && dump->written)
			return 0;
		if (err)
			return err;
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return flush(dump);
}

static bool is_valid(const struct sluice_map_dump *call)
{
	return !(call->flags & ~SLUICE_MAP_KEYS) && !call->cursor.reserved;
}

long sluice_map_dump(struct sluice_map *map, struct sluice_map_dump __user *user)
{
	struct sluice_map_dump call;
	struct dump dump = { .map = map, .call = &call };
	int err;

	err = sluice_user_struct_read(&call, sizeof(call), SLUICE_MAP_DUMP_SIZE_VER0, user);
	if (err)
		return err;
	if (!is_valid(&call))
		return -EINVAL;
	dump.room = call.length;
	err = map_read_get_buffer(&dump, min_t(u32, call.length, DUMP_BYTES));
	if (err)
		return err;
	call.count = 0;
	err = dump_fill(&dump);
	kvfree(dump.buffer);
	call.length = err == -EMSGSIZE ? dump.needed : dump.written;
	if (!err || err == -EMSGSIZE)
		err = sluice_user_struct_write(user, &call, sizeof(call), call.size) ?: err;
	return err;
}
