/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of rings, feeds, buses and maps: the beginning and the end of roles, sessions,
 * subscriptions and watches, losses, changes of maps and how they are stored. Nothing is traced per
 * record, packet or message of data that arrives, or per read of a map.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sluice

#if !defined(SLUICE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SLUICE_TRACE_H

#include <linux/tracepoint.h>

#include <uapi/linux/sluice.h>

#include "channel.h"

#define SLUICE_TRACE_REASONS				\
	{ 0, "given back" },				\
	{ SLUICE_RING_CLOSED, "closed" },		\
	{ SLUICE_RING_DIED, "died" },			\
	{ SLUICE_RING_DESTROYED, "destroyed" },		\
	{ SLUICE_RING_REJECTED, "rejected" }

TRACE_EVENT(sluice_ring_attach,
	TP_PROTO(const struct sluice_channel *channel, u32 role),
	TP_ARGS(channel, role),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u32, role)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->role = role;
	),
	TP_printk("name=%s role=%s", __entry->name,
		  __entry->role == SLUICE_RING_PRODUCER ? "producer" : "consumer")
);

TRACE_EVENT(sluice_ring_end,
	TP_PROTO(const struct sluice_channel *channel, u32 role, u32 reason),
	TP_ARGS(channel, role, reason),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u32, role)
		__field(u32, reason)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->role = role;
		__entry->reason = reason;
	),
	TP_printk("name=%s role=%s reason=%s", __entry->name,
		  __entry->role == SLUICE_RING_PRODUCER ? "producer" : "consumer",
		  __print_symbolic(__entry->reason, SLUICE_TRACE_REASONS))
);

TRACE_EVENT(sluice_feed_claim,
	TP_PROTO(const struct sluice_channel *channel, bool maps),
	TP_ARGS(channel, maps),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(bool, maps)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->maps = maps;
	),
	TP_printk("name=%s by=%s", __entry->name, __entry->maps ? "mmap" : "read")
);

TRACE_EVENT(sluice_feed_lost,
	TP_PROTO(const struct sluice_channel *channel),
	TP_ARGS(channel),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
	),
	TP_printk("name=%s", __entry->name)
);

TRACE_EVENT(sluice_feed_end,
	TP_PROTO(const struct sluice_channel *channel, u32 reason),
	TP_ARGS(channel, reason),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u32, reason)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->reason = reason;
	),
	TP_printk("name=%s reason=%s", __entry->name,
		  __print_symbolic(__entry->reason, SLUICE_TRACE_REASONS))
);

DECLARE_EVENT_CLASS(sluice_bus_subscriber,
	TP_PROTO(const struct sluice_channel *channel, u64 id),
	TP_ARGS(channel, id),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, id)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->id = id;
	),
	TP_printk("name=%s id=%llu", __entry->name, __entry->id)
);

DEFINE_EVENT(sluice_bus_subscriber, sluice_bus_subscribe,
	TP_PROTO(const struct sluice_channel *channel, u64 id),
	TP_ARGS(channel, id)
);

DEFINE_EVENT(sluice_bus_subscriber, sluice_bus_unsubscribe,
	TP_PROTO(const struct sluice_channel *channel, u64 id),
	TP_ARGS(channel, id)
);

DEFINE_EVENT(sluice_bus_subscriber, sluice_bus_evict,
	TP_PROTO(const struct sluice_channel *channel, u64 id),
	TP_ARGS(channel, id)
);

TRACE_EVENT(sluice_bus_lost,
	TP_PROTO(const struct sluice_channel *channel, u64 id, u64 count),
	TP_ARGS(channel, id, count),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, id)
		__field(u64, count)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->id = id;
		__entry->count = count;
	),
	TP_printk("name=%s id=%llu count=%llu", __entry->name, __entry->id, __entry->count)
);

#define SLUICE_TRACE_CHANGES				\
	{ SLUICE_MAP_CREATED, "created" },		\
	{ SLUICE_MAP_UPDATED, "updated" },		\
	{ SLUICE_MAP_DELETED, "deleted" },		\
	{ SLUICE_MAP_EXPIRED, "expired" }

TRACE_EVENT(sluice_map_change,
	TP_PROTO(const struct sluice_channel *channel, u64 sequence, u32 change, u64 version),
	TP_ARGS(channel, sequence, change, version),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, sequence)
		__field(u64, version)
		__field(u32, change)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->sequence = sequence;
		__entry->version = version;
		__entry->change = change;
	),
	TP_printk("name=%s sequence=%llu change=%s version=%llu", __entry->name,
		  __entry->sequence, __print_symbolic(__entry->change, SLUICE_TRACE_CHANGES),
		  __entry->version)
);

TRACE_EVENT(sluice_map_watch,
	TP_PROTO(const struct sluice_channel *channel, u64 sequence),
	TP_ARGS(channel, sequence),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, sequence)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->sequence = sequence;
	),
	TP_printk("name=%s sequence=%llu", __entry->name, __entry->sequence)
);

TRACE_EVENT(sluice_map_missed,
	TP_PROTO(const struct sluice_channel *channel, u64 sequence, u64 count),
	TP_ARGS(channel, sequence, count),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, sequence)
		__field(u64, count)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->sequence = sequence;
		__entry->count = count;
	),
	TP_printk("name=%s sequence=%llu count=%llu", __entry->name, __entry->sequence,
		  __entry->count)
);

TRACE_EVENT(sluice_map_stored,
	TP_PROTO(const struct sluice_channel *channel, u64 sequence, u64 limit, u32 error),
	TP_ARGS(channel, sequence, limit, error),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, sequence)
		__field(u64, limit)
		__field(u32, error)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->sequence = sequence;
		__entry->limit = limit;
		__entry->error = error;
	),
	TP_printk("name=%s sequence=%llu limit=%llu error=%u", __entry->name, __entry->sequence,
		  __entry->limit, __entry->error)
);

#define SLUICE_TRACE_MESSAGES				\
	{ SLUICE_KEEP_OPEN, "open" },			\
	{ SLUICE_KEEP_RESUME, "resume" },		\
	{ SLUICE_KEEP_SET, "set" },			\
	{ SLUICE_KEEP_DELETE, "delete" },		\
	{ SLUICE_KEEP_EXPIRE, "expire" },		\
	{ SLUICE_KEEP_UNLINK, "unlink" },		\
	{ SLUICE_KEEP_CLOSED, "closed" },		\
	{ SLUICE_KEEP_SYNC, "sync" }

TRACE_EVENT(sluice_keeper_message,
	TP_PROTO(const struct sluice_channel *channel, u32 type, u64 sequence),
	TP_ARGS(channel, type, sequence),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, sequence)
		__field(u32, type)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->sequence = sequence;
		__entry->type = type;
	),
	TP_printk("name=%s type=%s sequence=%llu", __entry->name,
		  __print_symbolic(__entry->type, SLUICE_TRACE_MESSAGES), __entry->sequence)
);

TRACE_EVENT(sluice_map_full,
	TP_PROTO(const struct sluice_channel *channel, u64 bytes, u64 entries),
	TP_ARGS(channel, bytes, entries),
	TP_STRUCT__entry(
		__array(char, name, SLUICE_NAME_SIZE)
		__field(u64, bytes)
		__field(u64, entries)
	),
	TP_fast_assign(
		memcpy(__entry->name, channel->key.name, SLUICE_NAME_SIZE);
		__entry->bytes = bytes;
		__entry->entries = entries;
	),
	TP_printk("name=%s bytes=%llu entries=%llu", __entry->name, __entry->bytes,
		  __entry->entries)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
