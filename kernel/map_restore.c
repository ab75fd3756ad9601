// SPDX-License-Identifier: GPL-2.0
/* The restoration of durable maps by the keeper. */
#include <linux/err.h>
#include <linux/memcontrol.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>

#include "ctl.h"
#include "kind.h"
#include "map.h"
#include "map_mapped.h"
#include "quota.h"
#include "scope.h"
#include "stream.h"

static struct sluice_map_params params_of(const struct sluice_keep_map *keep)
{
	return (struct sluice_map_params) {
		.size = sizeof(struct sluice_map_params),
		.flags = keep->flags,
		.entries = keep->entries,
		.events = keep->events,
		.deadline_ms = keep->deadline_ms,
		.interval_ms = keep->interval_ms,
		.cell = keep->cell,
		.table = keep->table,
	};
}

/* 0 or -EINVAL. */
static int check_stored(const struct sluice_keep_create *create, const struct sluice_keep_map *keep,
			const struct sluice_channel_owner *owner)
{
	if (!(keep->flags & SLUICE_MAP_DURABLE) || keep->mode & ~0777 || keep->reserved ||
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
	if (!sluice_map_mapped_is_as(map, &params)) {
		sluice_stream_set_table(map->stream, &params);
		return -ESTALE;
	}
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

/* The calls of the keeper find the map from now on, and may end it. */
static int register_restored(struct sluice_map *map, struct sluice_keep_create *create, gfp_t gfp,
			     struct mutex *calls)
{
	int err = sluice_wait_for_mutex(calls);

	if (!err) {
		err = sluice_stream_register_restored(map->stream, gfp);
		if (!err)
			create->stream = map->stream->number;
		mutex_unlock(calls);
	}
	return err;
}

/* A map that the keeper restores on its own account. */
static int create_restored(struct sluice_keep_create *create,
			   const struct sluice_channel_request *request, struct mutex *calls)
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
		err = register_restored(map, create, request->gfp, calls);
	}
	if (err)
		sluice_channel_put(&map->channel);
	return err;
}

static int begin_alone(struct sluice_keep_create *create, const struct sluice_keep_map *keep,
		       const struct sluice_channel_owner *owner, struct mutex *calls)
{
	struct sluice_map_params params = params_of(keep);
	struct sluice_channel_request request = {
		.kind = sluice_kind_find(SLUICE_KIND_MAP),
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
	err = create_restored(create, &request, calls);
	sluice_scope_put(request.access.scope);
	return err;
}

int sluice_map_begin_restoring(struct sluice_keep_create *create,
			       const struct sluice_keep_map *keep, struct mutex *calls)
{
	struct sluice_channel_owner owner = {
		.uid = make_kuid(&init_user_ns, keep->uid),
		.gid = make_kgid(&init_user_ns, keep->gid),
	};
	int err = check_stored(create, keep, &owner);

	if (err)
		return err;
	if (!create->stream)
		return begin_alone(create, keep, &owner, calls);
	err = sluice_wait_for_mutex(calls);
	if (!err) {
		err = begin_for_open(create, keep, &owner);
		mutex_unlock(calls);
	}
	return err;
}

/* The time to live that is left. False: its time has passed. */
static bool time_to_live(u64 expires_ns, u64 *ttl_ns)
{
	u64 now = ktime_get_boottime_ns();

	*ttl_ns = expires_ns ? expires_ns - now : 0;
	return !expires_ns || expires_ns > now;
}

int sluice_map_restore(struct sluice_map *map, const struct sluice_keep_entry *entry)
{
	struct sluice_map_change change = {
		.command = SLUICE_MAP_RESTORE,
		.user = u64_to_user_ptr(entry->value),
		.length = entry->value_length,
		.gfp = SLUICE_QUOTA_GFP_BRIEF,
		.version = entry->version,
	};
	struct sluice_map_key_copy copy;
	int err;

	if (entry->value_length > SLUICE_MAP_VALUE_MAX || !entry->version ||
	    entry->version > atomic64_read(&map->sequence))
		return -EINVAL;
	err = sluice_map_copy_key(map, entry->key, entry->key_length, &copy, &change.key,
				  change.gfp);
	if (err)
		return err;
	if (time_to_live(entry->expires_ns, &change.ttl_ns))
		err = sluice_map_change(map, &change);
	sluice_map_free_key(&copy);
	/* A call of the keeper is never restarted. */
	return err == -ERESTARTSYS ? -EINTR : err;
}
