// SPDX-License-Identifier: GPL-2.0
/* Maps whose changes the keeper stores: changes with a record, restoration, information. */
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "ctl.h"
#include "map.h"
#include "netlink.h"
#include "quota.h"
#include "scope.h"
#include "stream.h"
#include "user_struct.h"

#define DURABLE_FLAGS (SLUICE_MAP_DURABLE | SLUICE_MAP_INTERVAL | SLUICE_MAP_REFUSE)
/* Of a deadline and of an interval: an hour. */
#define TIME_MAX_MS (60 * 60 * 1000)

bool sluice_map_are_durable_params(const struct sluice_map_params *params)
{
	bool durable = params->flags & SLUICE_MAP_DURABLE;
	bool interval = params->flags & SLUICE_MAP_INTERVAL;

	if (params->flags & ~DURABLE_FLAGS || params->reserved ||
	    params->deadline_ms > TIME_MAX_MS || params->interval_ms > TIME_MAX_MS)
		return false;
	if (!durable && (params->flags || params->deadline_ms))
		return false;
	return interval || !params->interval_ms;
}

/* ---- changes ---- */

/*
 * As sluice_map_set(), with a copy of the record's value. The record then belongs to the stream,
 * which may free it at any time, if the result is not negative.
 */
static int map_durable_set_once(struct sluice_map *map, struct sluice_map_request *request,
				u64 ttl_ns)
{
	u32 length = request->record->value_length;
	struct sluice_map_value *value;
	int ret;

	value = sluice_map_value_create(map, length, ttl_ns, request->gfp);
	if (IS_ERR(value))
		return PTR_ERR(value);
	memcpy(value->bytes, sluice_stream_record_value(request->record), length);
	sluice_stream_record_set_expiry(request->record, value->expires);
	ret = sluice_map_set(map, request, value);
	if (ret < 0)
		sluice_map_value_free(value);
	return ret;
}

/* As map_durable_set_once(), and waits for memory of the map, which the keeper may have to free. */
static int set_or_wait(struct sluice_map *map, struct sluice_map_request *request, u64 ttl_ns)
{
	size_t bytes = request->record->charged;
	unsigned long deadline = jiffies + SLUICE_MAP_MEMORY_WAIT;
	u64 required = request->version;
	int ret;

	for (;;) {
		request->version = required;
		ret = map_durable_set_once(map, request, ttl_ns);
		if (ret != -EAGAIN)
			return ret;
		ret = sluice_map_wait_for_memory(map, bytes, deadline);
		if (ret)
			return ret;
	}
}

/* Frees the record, which has its value, if it does not become part of the stream. */
static int admit_and_set(struct sluice_map *map, struct sluice_map_request *request, u64 ttl_ns,
			 bool nowait)
{
	size_t size = request->record->charged;
	int ret = sluice_stream_admit(map->stream, size, nowait);

	if (!ret) {
		ret = nowait ? map_durable_set_once(map, request, ttl_ns) :
			       set_or_wait(map, request, ttl_ns);
		sluice_stream_end_change(map->stream, ret < 0 ? size : 0);
	}
	if (ret < 0)
		sluice_stream_record_free(request->record);
	return ret;
}

int sluice_map_durable_set(struct sluice_map *map, struct sluice_map_request *request,
			   const struct sluice_map_op *op)
{
	struct sluice_stream_record *record;

	if (op->value_length > SLUICE_MAP_VALUE_MAX)
		return -EINVAL;
	record = sluice_stream_record_create(&request->key, op->value_length, request->gfp);
	if (!record)
		return -ENOMEM;
	if (copy_from_user(sluice_stream_record_value(record), u64_to_user_ptr(op->value),
			   op->value_length)) {
		sluice_stream_record_free(record);
		return -EFAULT;
	}
	request->record = record;
	return admit_and_set(map, request, op->ttl_ns, op->flags & SLUICE_MAP_NOWAIT);
}

int sluice_map_durable_set_bytes(struct sluice_map *map, struct sluice_map_request *request,
				 const void *bytes, u32 length, u64 ttl_ns)
{
	struct sluice_stream_record *record =
		sluice_stream_record_create(&request->key, length, request->gfp);

	/* Charged to the sender, and not to the creator of the map. */
	if (!record)
		return sluice_netlink_memory(-ENOMEM, NULL);
	memcpy(sluice_stream_record_value(record), bytes, length);
	request->record = record;
	return admit_and_set(map, request, ttl_ns, true);
}

int sluice_map_durable_delete(struct sluice_map *map, struct sluice_map_request *request,
			      bool nowait)
{
	size_t size = sluice_stream_removal_size(request->key.length);
	int ret = sluice_stream_admit(map->stream, size, nowait);

	if (ret)
		return ret;
	ret = sluice_map_delete(map, request);
	sluice_stream_end_change(map->stream, ret < 0 ? size : 0);
	return ret;
}

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

void sluice_map_fill_durable_info(struct sluice_map *map, struct sluice_map_info *info)
{
	struct sluice_stream *stream = map->stream;

	info->flags = stream->flags;
	info->deadline_ms = stream->deadline_ms;
	info->interval_ms = stream->interval_ms;
	spin_lock(&stream->lock);
	info->stored = stream->stored;
	info->pending = stream->bytes;
	info->error = -stream->error;
	spin_unlock(&stream->lock);
}

/* ---- the channel ---- */

int sluice_map_begin_unlink(struct sluice_channel *channel)
{
	struct sluice_map *map = sluice_map_of(channel);

	return map->stream ? sluice_stream_unlink(map->stream) : 0;
}

void sluice_map_unnamed(struct sluice_channel *channel)
{
	struct sluice_map *map = sluice_map_of(channel);

	if (map->stream)
		sluice_stream_unnamed(map->stream);
}

/* ---- restoration ---- */

static struct sluice_map_params params_of(const struct sluice_keep_map *keep)
{
	return (struct sluice_map_params) {
		.size = sizeof(struct sluice_map_params),
		.flags = keep->flags,
		.entries = keep->entries,
		.events = keep->events,
		.deadline_ms = keep->deadline_ms,
		.interval_ms = keep->interval_ms,
	};
}

/* 0 or -EINVAL. */
static int check_stored(const struct sluice_keep_create *create, const struct sluice_keep_map *keep,
			const struct sluice_channel_owner *owner)
{
	if (!(keep->flags & SLUICE_MAP_DURABLE) || keep->mode & ~0777 ||
	    !uid_valid(owner->uid) || !gid_valid(owner->gid))
		return -EINVAL;
	return create->sequence > create->limit || create->limit > S64_MAX ? -EINVAL : 0;
}

/* What was stored of the map, but for entries. Nobody else uses it yet. */
static void set_stored(struct sluice_map *map, const struct sluice_keep_create *create,
		       const struct sluice_map_params *params)
{
	struct sluice_stream *stream = map->stream;

	map->entries_max = params->entries;
	atomic64_set(&map->sequence, create->sequence);
	atomic64_set(&map->trimmed, create->sequence);
	spin_lock(&stream->lock);
	stream->limit = create->limit;
	stream->stored = create->sequence;
	stream->delivered = create->sequence;
	spin_unlock(&stream->lock);
}

/* The map of an open becomes the stored one. */
static int restore_for_open(struct sluice_map *map, const struct sluice_keep_create *create,
			    const struct sluice_keep_map *keep,
			    const struct sluice_channel_owner *owner)
{
	struct sluice_map_params params = params_of(keep);
	enum sluice_stream_state state;
	int err;

	state = sluice_stream_state(map->stream);
	if (state >= SLUICE_STREAM_ABANDONED)
		return -ENOENT;
	if (state != SLUICE_STREAM_ASKED ||
	    memcmp(map->channel.key.name, keep->name, sizeof(keep->name)))
		return -EINVAL;
	err = sluice_map_resize(map, keep->capacity, &params);
	if (err)
		return err;
	map->channel.uid = owner->uid;
	map->channel.gid = owner->gid;
	map->channel.mode = keep->mode;
	sluice_stream_set_params(map->stream, &params);
	set_stored(map, create, &params);
	return sluice_stream_begin_restoring(map->stream);
}

static int begin_for_open(const struct sluice_keep_create *create,
			  const struct sluice_keep_map *keep,
			  const struct sluice_channel_owner *owner)
{
	struct sluice_stream *stream;
	int err;

	if (create->scope_fd != -1)
		return -EINVAL;
	stream = sluice_stream_get(create->stream);
	if (!stream)
		return -ENOENT;
	err = restore_for_open(stream->map, create, keep, owner);
	sluice_stream_put(stream);
	return err;
}

/* 0, or -EEXIST: a channel has this name. */
static int check_name(const struct sluice_channel_request *request)
{
	struct sluice_channel *channel = sluice_channel_lookup(&request->access, &request->key);

	if (IS_ERR(channel))
		return PTR_ERR(channel) == -ENOENT ? 0 : PTR_ERR(channel);
	/* Its last user may be gone by now, and the keeper has others to serve. */
	sluice_channel_put_deferred(channel);
	return -EEXIST;
}

/* All of its memory is charged as if a process of its cgroup had created it. */
static struct sluice_map *alloc_restored(const struct sluice_channel_request *request)
{
	struct mem_cgroup *memcg = sluice_scope_get_memcg(request->access.scope);
	struct mem_cgroup *old = set_active_memcg(memcg);
	struct sluice_map *map = sluice_map_alloc(request, request->params);

	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return map;
}

/* A map that the keeper restores on its own account. */
static int create_restored(struct sluice_keep_create *create,
			   const struct sluice_channel_request *request)
{
	struct sluice_map *map;
	int err = check_name(request);

	if (err)
		return err;
	map = alloc_restored(request);
	if (IS_ERR(map))
		return PTR_ERR(map);
	err = sluice_quota_commit(map->channel.charge);
	if (!err) {
		set_stored(map, create, request->params);
		err = sluice_stream_register_restored(map->stream, request->gfp);
	}
	if (err)
		sluice_channel_put(&map->channel);
	else
		create->stream = map->stream->number;
	return err;
}

static int begin_alone(struct sluice_keep_create *create, const struct sluice_keep_map *keep,
		       const struct sluice_channel_owner *owner)
{
	struct sluice_map_params params = params_of(keep);
	struct sluice_channel_request request = {
		.kind = &sluice_map_kind,
		.mode = keep->mode,
		.capacity = keep->capacity,
		.params = &params,
		.owner = owner,
		/* The keeper makes the maps of all cgroups: none may delay it for long. */
		.gfp = SLUICE_QUOTA_GFP_BRIEF,
	};
	int err = sluice_ctl_parse_name(&request.key, SLUICE_KIND_MAP, keep->name);

	if (err)
		return err;
	err = sluice_ctl_access_scope(&request.access, create->scope_fd);
	if (err)
		return err;
	err = create_restored(create, &request);
	sluice_scope_put(request.access.scope);
	return err;
}

int sluice_map_begin_restoring(struct sluice_keep_create *create,
			       const struct sluice_keep_map *keep)
{
	struct sluice_channel_owner owner = {
		.uid = make_kuid(&init_user_ns, keep->uid),
		.gid = make_kgid(&init_user_ns, keep->gid),
	};
	int err = check_stored(create, keep, &owner);

	if (err)
		return err;
	return create->stream ? begin_for_open(create, keep, &owner) :
				begin_alone(create, keep, &owner);
}

/* The time to live that is left. False: its time has passed. */
static bool time_to_live(u64 expires_ns, u64 *ttl_ns)
{
	u64 now = ktime_get_boottime_ns();

	*ttl_ns = expires_ns ? expires_ns - now : 0;
	return !expires_ns || expires_ns > now;
}

static int restore_once(struct sluice_map *map, const struct sluice_map_key *key,
			const struct sluice_keep_entry *entry, u64 ttl_ns)
{
	struct sluice_map_value *value =
		sluice_map_value_create(map, entry->value_length, ttl_ns, SLUICE_QUOTA_GFP_BRIEF);
	int err;

	if (IS_ERR(value))
		return PTR_ERR(value);
	if (copy_from_user(value->bytes, u64_to_user_ptr(entry->value), entry->value_length))
		err = -EFAULT;
	else
		err = sluice_map_insert_restored(map, key, value, entry->version);
	if (err)
		sluice_map_value_free(value);
	return err;
}

/* The table of a map that is restored grows meanwhile. */
static int restore_or_wait(struct sluice_map *map, const struct sluice_map_key *key,
			   const struct sluice_keep_entry *entry, u64 ttl_ns)
{
	unsigned long deadline = jiffies + SLUICE_MAP_MEMORY_WAIT;
	size_t bytes = (size_t)key->length + entry->value_length;
	int err;

	while ((err = restore_once(map, key, entry, ttl_ns)) == -EAGAIN) {
		err = sluice_map_wait_for_memory(map, bytes, deadline);
		if (err)
			break;
	}
	/* A call of the keeper is never restarted. */
	return err == -ERESTARTSYS ? -EINTR : err;
}

int sluice_map_restore(struct sluice_map *map, const struct sluice_keep_entry *entry)
{
	struct sluice_map_key_copy copy;
	struct sluice_map_key key;
	u64 ttl_ns;
	int err;

	if (entry->value_length > SLUICE_MAP_VALUE_MAX || !entry->version ||
	    entry->version > atomic64_read(&map->sequence))
		return -EINVAL;
	err = sluice_map_copy_key(map, entry->key, entry->key_length, &copy, &key,
				  SLUICE_QUOTA_GFP_BRIEF);
	if (err)
		return err;
	if (time_to_live(entry->expires_ns, &ttl_ns))
		err = restore_or_wait(map, &key, entry, ttl_ns);
	sluice_map_free_key(&copy);
	return err;
}
