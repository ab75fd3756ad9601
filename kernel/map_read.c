// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "map.h"
#include "user_struct.h"

/* Longer values are copied outside RCU, held by a reference. */
#define DIRECT_MAX SZ_4K
/* Bytes of a dump that are collected in the kernel and copied at once; a longer record is alone. */
#define DUMP_BYTES SZ_64K
/* Entries that are found under a lock at once. */
#define DUMP_BATCH 32

/* ---- get ---- */

/* Under RCU: the value of a key, or NULL. */
static struct sluice_map_value *find_value(struct sluice_map *map, const struct sluice_map_key *key)
{
	struct sluice_map_entry *entry = sluice_map_find(map, key);
	struct sluice_map_value *value = entry ? rcu_dereference(entry->value) : NULL;	/* (V) */

	return value && !sluice_map_is_expired(value) ? value : NULL;
}

/* Under RCU. Its time to live is that of now. */
static void describe(const struct sluice_map_value *value, struct sluice_map_op *op)
{
	op->version = value->version;
	op->value_length = value->length;
	op->ttl_ns = sluice_map_time_to_live(value);
}

/* Under RCU, without page faults. */
static bool copy_nofault(void __user *to, const struct sluice_map_value *value)
{
	unsigned long left;

	pagefault_disable();
	left = copy_to_user(to, value->bytes, value->length);
	pagefault_enable();
	return !left;
}

/* The value with a reference. 0, -ENOENT, -EMSGSIZE; -EAGAIN: it was just replaced. */
static int hold_value(struct sluice_map *map, const struct sluice_map_key *key,
		      struct sluice_map_op *op, u32 room, struct sluice_map_value **held)
{
	struct sluice_map_value *value;
	int err = 0;

	rcu_read_lock();
	value = find_value(map, key);
	if (!value) {
		err = -ENOENT;
	} else {
		describe(value, op);
		if (value->length > room)
			err = -EMSGSIZE;
		else if (!refcount_inc_not_zero(&value->refs))
			err = -EAGAIN;
	}
	rcu_read_unlock();
	*held = value;
	return err;
}

static int get_held(struct sluice_map *map, const struct sluice_map_key *key,
		    struct sluice_map_op *op, u32 room)
{
	struct sluice_map_value *value;
	int err;

	do {
		err = hold_value(map, key, op, room, &value);
	} while (err == -EAGAIN);
	if (err)
		return err;
	if (copy_to_user(u64_to_user_ptr(op->value), value->bytes, value->length))
		err = -EFAULT;
	sluice_map_value_put(value);
	return err;
}

int sluice_map_get(struct sluice_map *map, const struct sluice_map_key *key,
		   struct sluice_map_op *op)
{
	struct sluice_map_value *value;
	u32 room = op->value_length;
	int err = 0;

	rcu_read_lock();
	value = find_value(map, key);
	if (!value) {
		err = -ENOENT;
	} else {
		describe(value, op);
		if (value->length > room)
			err = -EMSGSIZE;
		else if (value->length > DIRECT_MAX ||
			 !copy_nofault(u64_to_user_ptr(op->value), value))
			err = -EAGAIN;
	}
	rcu_read_unlock();
	return err == -EAGAIN ? get_held(map, key, op, room) : err;
}

/* ---- dump ---- */

struct found {
	struct sluice_map_entry *entry;
	struct sluice_map_value *value;
};

/* A dump in progress: the parameters of the call, and the records for it. */
struct dump {
	struct sluice_map *map;
	struct sluice_map_dump *call;
	u32 room;			/* bytes at the user */
	u8 *buffer;
	u32 size;			/* bytes of the buffer */
	u32 filled;
	struct found large;		/* with references: a record that exceeds the buffer */
};

static bool has_values(const struct dump *dump)
{
	return !(dump->call->flags & SLUICE_MAP_KEYS);
}

static u32 record_size(const struct dump *dump, const struct found *found)
{
	u32 value_length = has_values(dump) ? found->value->length : 0;

	return ALIGN(sizeof(struct sluice_map_record) + found->entry->key_length + value_length,
		     sizeof(u64));
}

static struct sluice_map_record header_of(const struct dump *dump, const struct found *found)
{
	return (struct sluice_map_record) {
		.size = record_size(dump, found),
		.value_length = found->value->length,
		.version = found->value->version,
		.ttl_ns = sluice_map_time_to_live(found->value),
		.key_length = found->entry->key_length,
		.header = sizeof(struct sluice_map_record),
	};
}

/* Under the shard's lock: the entry with the smallest id that is greater than @id, or NULL. */
static struct rb_node *first_after(const struct sluice_map_shard *shard, u64 id)
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

/* Under RCU: the next entries of the cursor's shard. */
static unsigned int find_next(struct dump *dump, struct found *found)
{
	const struct sluice_map_cursor *cursor = &dump->call->cursor;
	struct sluice_map_shard *shard = &dump->map->shards[cursor->shard];
	struct sluice_map_entry *entry;
	struct rb_node *node;
	unsigned int count = 0;

	spin_lock(&shard->lock);
	for (node = first_after(shard, cursor->id); node && count < DUMP_BATCH;
	     node = rb_next(node)) {
		entry = rb_entry(node, struct sluice_map_entry, by_id);
		if (entry->id > cursor->since)
			break;
		found[count].entry = entry;
		found[count++].value = rcu_dereference_protected(entry->value,
								 lockdep_is_held(&shard->lock));
	}
	spin_unlock(&shard->lock);
	return count;
}

/* Under RCU. False: the buffer has no room for it. */
static bool append(struct dump *dump, const struct found *found)
{
	struct sluice_map_record header = header_of(dump, found);
	u8 *record = dump->buffer + dump->filled, *end;

	if (header.size > dump->size - dump->filled)
		return false;
	memcpy(record, &header, sizeof(header));
	end = record + sizeof(header);
	memcpy(end, found->entry->key, header.key_length);
	end += header.key_length;
	if (has_values(dump)) {
		memcpy(end, found->value->bytes, header.value_length);
		end += header.value_length;
	}
	memset(end, 0, record + header.size - end);
	dump->filled += header.size;
	dump->call->count++;
	return true;
}

/*
 * Under RCU, for a record without room: true ends the call. If it is the first one, it is longer
 * than the buffer, and copied alone; false: it was just removed or replaced.
 */
static bool hold(struct dump *dump, const struct found *found)
{
	if (dump->filled)
		return true;
	if (!refcount_inc_not_zero(&found->value->refs))
		return false;
	if (!refcount_inc_not_zero(&found->entry->refs)) {
		sluice_map_value_put(found->value);
		return false;
	}
	dump->large = *found;
	return true;
}

/* Appends the next entries of the cursor's shard. True: there is no more room. */
static bool append_next(struct dump *dump)
{
	struct sluice_map_cursor *cursor = &dump->call->cursor;
	struct found found[DUMP_BATCH];
	bool fits = true, held = false;
	unsigned int count, i;

	rcu_read_lock();
	count = find_next(dump, found);
	for (i = 0; i < count; i++) {
		fits = sluice_map_is_expired(found[i].value) || append(dump, &found[i]);
		if (!fits)
			break;
		cursor->id = found[i].entry->id;
	}
	if (!fits)
		held = hold(dump, &found[i]);
	rcu_read_unlock();
	if (fits && count < DUMP_BATCH) {
		cursor->shard++;
		cursor->id = 0;
	}
	return held;
}

static int copy_large(struct dump *dump)
{
	const struct sluice_map_record header = header_of(dump, &dump->large);
	u8 __user *to = u64_to_user_ptr(dump->call->records);
	u32 key_end = sizeof(header) + header.key_length;
	u32 value_end = key_end + header.value_length;

	dump->filled = header.size;
	if (header.size > dump->room)
		return -EMSGSIZE;
	dump->call->count = 1;
	dump->call->cursor.id = dump->large.entry->id;
	if (copy_to_user(to, &header, sizeof(header)) ||
	    copy_to_user(to + sizeof(header), dump->large.entry->key, header.key_length) ||
	    copy_to_user(to + key_end, dump->large.value->bytes, header.value_length) ||
	    clear_user(to + value_end, header.size - value_end))
		return -EFAULT;
	return 0;
}

static int copy_records(struct dump *dump)
{
	int err;

	if (!dump->large.entry)
		return copy_to_user(u64_to_user_ptr(dump->call->records), dump->buffer,
				    dump->filled) ? -EFAULT : 0;
	err = copy_large(dump);
	sluice_map_value_put(dump->large.value);
	sluice_map_entry_put(dump->large.entry);
	return err;
}

/* 0, or -EMSGSIZE, -EFAULT, -EINTR. */
static int fill(struct dump *dump)
{
	struct sluice_map_cursor *cursor = &dump->call->cursor;

	if (!cursor->since)
		cursor->since = atomic64_read(&dump->map->sequence);
	while (cursor->shard < SLUICE_MAP_SHARDS && !append_next(dump)) {
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return copy_records(dump);
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
	dump.size = min_t(u32, call.length, DUMP_BYTES);
	dump.buffer = kvmalloc(dump.size, SLUICE_QUOTA_GFP);
	if (!dump.buffer)
		return -ENOMEM;
	call.count = 0;
	err = fill(&dump);
	kvfree(dump.buffer);
	call.length = dump.filled;
	if (!err || err == -EMSGSIZE)
		err = sluice_user_struct_write(user, &call, sizeof(call), call.size) ?: err;
	return err;
}
