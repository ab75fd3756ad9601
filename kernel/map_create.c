// SPDX-License-Identifier: GPL-2.0
/* The parameters of a map, and the memory of the map itself. */
#include <linux/err.h>
#include <linux/log2.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "map.h"
#include "map_mapped.h"
#include "quota.h"
#include "stream.h"

#define DEFAULT_CAPACITY SZ_4M
#define DEFAULT_EVENTS 1024
#define DURABLE_FLAGS (SLUICE_MAP_DURABLE | SLUICE_MAP_INTERVAL | SLUICE_MAP_REFUSE)
/* The longest deadline and the longest interval: an hour. */
#define TIME_MAX_MS (60 * 60 * 1000)

static bool are_durable_params(const struct sluice_map_params *params)
{
	u32 flags = params->flags & ~SLUICE_MAP_MAPPED;
	bool durable = flags & SLUICE_MAP_DURABLE;
	bool interval = flags & SLUICE_MAP_INTERVAL;

	if (flags & ~DURABLE_FLAGS || params->deadline_ms > TIME_MAX_MS ||
	    params->interval_ms > TIME_MAX_MS)
		return false;
	if (!durable && (flags || params->deadline_ms))
		return false;
	return interval || !params->interval_ms;
}

/* The number of events that the parameters request, or 0: the parameters are invalid. */
static u32 events_of(const struct sluice_map_params *params)
{
	u32 events = params->events ?: DEFAULT_EVENTS;

	if (events > SLUICE_MAP_EVENTS_MAX || !is_power_of_2(events) ||
	    !are_durable_params(params) || !sluice_map_mapped_is_valid(params))
		return 0;
	return events;
}

/* The bytes of the log that the parameters request; 0: they or the capacity are invalid. */
static u64 log_size(const struct sluice_map_params *params, u64 capacity)
{
	u64 size = (u64)events_of(params) * sizeof(struct sluice_map_slot);

	return capacity <= size || capacity > SLUICE_MAP_CAPACITY_MAX ? 0 : size;
}

/* The bytes that the limits of channels count. */
static u64 counted(const struct sluice_map_params *params, u64 capacity)
{
	u64 stream = params->flags & SLUICE_MAP_DURABLE ? SLUICE_STREAM_BYTES : 0;

	return capacity + stream + sluice_map_mapped_size(params);
}

static int allocate_stream(struct sluice_map *map, const struct sluice_map_params *params,
			   gfp_t gfp)
{
	if (!(params->flags & SLUICE_MAP_DURABLE))
		return 0;
	map->channel.persists = true;
	map->stream = sluice_stream_create(map, params, gfp);
	return map->stream ? 0 : -ENOMEM;
}

static int allocate_parts(struct sluice_map *map, const struct sluice_map_params *params, gfp_t gfp)
{
	int err = sluice_map_table_init(map);

	if (err)
		return err;
	err = sluice_map_log_init(map, events_of(params), gfp);
	if (err)
		goto exit_table;
	err = sluice_map_mapped_create(map, params, gfp);
	if (err)
		goto exit_log;
	err = allocate_stream(map, params, gfp);
	if (!err)
		return 0;
	sluice_map_mapped_free(map);
exit_log:
	sluice_map_log_exit(map);
exit_table:
	sluice_map_table_exit(map);
	return err;
}

static void init_shards(struct sluice_map *map)
{
	unsigned int i;

	for (i = 0; i < SLUICE_MAP_SHARDS; i++) {
		spin_lock_init(&map->shards[i].lock);
		map->shards[i].by_id = RB_ROOT;
		map->shards[i].by_time = RB_ROOT_CACHED;
	}
}

struct sluice_map *sluice_map_alloc(const struct sluice_channel_request *request,
				    const struct sluice_map_params *params)
{
	u64 capacity = request->capacity ?: DEFAULT_CAPACITY;
	u64 log = log_size(params, capacity);
	struct sluice_map *map;
	int err;

	if (!log)
		return ERR_PTR(-EINVAL);
	map = kzalloc(sizeof(*map), request->gfp);
	if (!map)
		return ERR_PTR(-ENOMEM);
	err = sluice_channel_init(&map->channel, request, counted(params, capacity));
	if (err)
		goto free_map;
	map->capacity = capacity;
	map->entries_max = params->entries;
	init_waitqueue_head(&map->freed);
	atomic64_set(&map->bytes, log);
	init_shards(map);
	sluice_wait_queue_init(&map->changed);
	sluice_map_expiry_init(map, sluice_map_expire);
	err = allocate_parts(map, params, request->gfp);
	if (!err)
		return map;
	sluice_channel_exit(&map->channel);
free_map:
	kfree(map);
	return ERR_PTR(err);
}

int sluice_map_resize(struct sluice_map *map, u64 capacity, const struct sluice_map_params *params)
{
	u64 log = log_size(params, capacity);
	int err;

	if (!log)
		return -EINVAL;
	err = sluice_quota_change_as_prepared(map->channel.charge, counted(params, capacity));
	if (err)
		return err;
	map->capacity = capacity;
	atomic64_set(&map->bytes, log);
	if (map->slot_count == events_of(params))
		return 0;
	sluice_map_log_exit(map);
	return sluice_map_log_init(map, events_of(params), SLUICE_QUOTA_GFP_BRIEF);
}

void sluice_map_free(struct sluice_channel *channel)
{
	struct sluice_map *map = sluice_map_of(channel);

	sluice_map_expiry_exit(map);
	sluice_map_log_exit(map);
	if (map->stream)
		sluice_stream_free(map->stream);
	sluice_map_mapped_free(map);
	sluice_map_table_exit(map);
	kfree(map);
}
