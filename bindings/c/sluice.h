/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Generated from the sources of the library by: SLUICE_HEADER=update cargo test -p sluice-c the_header */
/**
 * libsluice, the C library of Sluice: see libsluice(3), and sluice-pipe(3), sluice-ring(3), sluice-bus(3), sluice-map(3), sluice-feed(3).
 *
 * Results. A function that can fail returns 0 or a positive result, or a negative errno. sluice_error_message() and sluice_error_hint()
 * have the text of the last failure of the thread. -ENODATA is the end of a stream, which is no error, of rings and feeds. -EAGAIN: a call
 * that must not wait would have to. -ETIMEDOUT: the timeout is over. -EINVAL: an argument is NULL where that has no meaning, a length is
 * impossible, or an option unknown. After a failure an object or an address that is stored through a pointer argument is NULL. Other
 * results are unspecified, unless the function describes them, and so is errno after a call.
 *
 * Waits. A timeout is in milliseconds, as of poll(2): negative ones are no limit, 0 does not wait. A wait continues after a signal handler
 * has run; a program that ends a wait by a signal waits for the descriptor of the object with ppoll(2) or signalfd(2) instead. O_NONBLOCK
 * of a descriptor, which event loops set, changes no timeout. A call must not be cancelled by pthread_cancel(3).
 *
 * Descriptors. Each object that waits has a descriptor for poll(2), epoll(7) or io_uring, except clients. A wait for a side of a ring or for
 * a consumer of a feed needs a call that prepares it, and one that ends it.
 *
 * Options. A structure of options is initialised by its macro, such as SLUICE_RING_OPTIONS_INIT, to its size and to zeros, which are the
 * defaults. NULL instead of options are the defaults, too. Reserved fields are zero. Later versions may add fields at the end: the library
 * takes the fields that a smaller structure lacks as zeros, down to the size of the first release, and accepts a larger structure if the
 * fields that the library does not know are zero.
 *
 * Pointers. Texts end with a zero. A buffer of length 0 may be NULL. A program does not pass an object to a function after its close: a
 * second close is undefined behaviour, as of free(3). A close of NULL has no effect.
 *
 * Threads. Each object says whether several threads may use it at the same time. An object of one thread may be handed to another one.
 * Functions without an object can be called by several threads at the same time.
 *
 * Inline functions. Some functions of rings have a body at the end of this header, and the same results with it.
 *
 * Processes. A child of fork(2) has the descriptors of its parent. Each object says how the child may use it. Descriptors, also those that
 * are passed to the library, are closed by execve(2). The library installs no signal handlers and starts no threads. Its functions are not
 * async-signal-safe. An error inside of the library and an allocation that fails abort the process, as a failed assert(3) does.
 */


#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Initialisers of options. */
#define SLUICE_PIPE_OPTIONS_INIT { .size = sizeof(struct sluice_pipe_options) }
#define SLUICE_RING_OPTIONS_INIT { .size = sizeof(struct sluice_ring_options) }
#define SLUICE_SOCKET_OPTIONS_INIT { .size = sizeof(struct sluice_socket_options) }
#define SLUICE_BUS_OPTIONS_INIT { .size = sizeof(struct sluice_bus_options) }
#define SLUICE_MAP_OPTIONS_INIT { .size = sizeof(struct sluice_map_options) }
#define SLUICE_CHANGE_OPTIONS_INIT { .size = sizeof(struct sluice_change_options) }


#define SLUICE_KIND_PIPE 1

#define SLUICE_KIND_RING 2

#define SLUICE_KIND_FEED 3

#define SLUICE_KIND_BUS 4

#define SLUICE_KIND_MAP 5

/**
 * A flag in struct sluice_channel: creates the channel if it does not exist. An existing channel of another user fails with -EACCES,
 * because any user may have taken its name; except a channel of root, or of the owner of the directory of the scope.
 */
#define SLUICE_CREATE 1

/**
 * With SLUICE_CREATE: fails with -EEXIST if the channel exists.
 */
#define SLUICE_EXCLUSIVE 2

/**
 * With SLUICE_CREATE: opens the channel also if another user has created it.
 */
#define SLUICE_ANY_OWNER 4

/**
 * With SLUICE_CREATE: keeps the channel and its content without endpoints, until it is unlinked or its cgroup is removed.
 */
#define SLUICE_PERSISTENT 8

/**
 * A flag in struct sluice_pipe_options: neither the open nor the reads and writes of the descriptor wait.
 */
#define SLUICE_PIPE_NONBLOCK 1

/**
 * Locks the memory with mlock(2), so that it is not swapped out.
 */
#define SLUICE_RING_MLOCK 1

/**
 * Binds the memory to the memory node `numa_node`.
 */
#define SLUICE_RING_ON_NODE 2

/**
 * Over a socket, of the producer: takes the memory from the pool of 2 MiB huge pages.
 */
#define SLUICE_RING_HUGE_PAGES 4

/**
 * Over a socket, of the consumer: accepts a producer whose memory is not sealed against writing, see sluice-ring(7).
 */
#define SLUICE_RING_ALLOW_UNSEALED 8

/**
 * Over a socket: allows the peer to run as any user.
 */
#define SLUICE_RING_ALLOW_EVERYONE 16

/**
 * Over a socket, of the producer: leaves the data unsealed, so that the consumer can map it for writing. The process of the consumer must
 * be trusted not to write.
 */
#define SLUICE_RING_UNSEALED 32

#define SLUICE_RING_ROLE_VACANT 0

#define SLUICE_RING_ROLE_TAKEN 1

#define SLUICE_RING_ROLE_CLOSED 2

#define SLUICE_RING_ROLE_DIED 3

#define SLUICE_RING_ROLE_DESTROYED 4

/**
 * A mode in struct sluice_bus_options: every subscriber receives a message.
 */
#define SLUICE_BUS_BROADCAST 0

/**
 * One subscriber in turn receives a message.
 */
#define SLUICE_BUS_MULTICAST 1

/**
 * The first subscriber that asks receives a message.
 */
#define SLUICE_BUS_UNICAST 2

/**
 * A subscriber that does not keep up loses its oldest messages, and learns their number.
 */
#define SLUICE_POLICY_DROP 1

/**
 * Senders wait for a subscriber that does not keep up.
 */
#define SLUICE_POLICY_BLOCK 2

/**
 * A subscriber that does not keep up loses its subscription.
 */
#define SLUICE_POLICY_EVICT 4

/**
 * Lets subscribers map the memory of the bus. The open that creates the bus decides. Only of a broadcast bus that permits
 * SLUICE_POLICY_BLOCK.
 */
#define SLUICE_MAPPABLE 1

/**
 * Subscribes to all messages, including those that others receive, and delays no sender. Needs CAP_SYS_ADMIN on the host.
 */
#define SLUICE_MONITOR 2

/**
 * A durability in struct sluice_map_options: the changes of the map are not stored.
 */
#define SLUICE_VOLATILE 0

/**
 * The map survives a restart of the host: the daemon sluiced stores it. A change returns when it is stored.
 */
#define SLUICE_DURABLE 1

/**
 * The daemon stores the map. Changes do not wait; the changes of `interval_ms` are stored together.
 */
#define SLUICE_DURABLE_INTERVAL 2

/**
 * Changes of a durable map that would wait for room fail with -EAGAIN at once.
 */
#define SLUICE_DURABLE_REFUSE 1

/**
 * A flag in struct sluice_change_options: only if the entry has the version `version`; 0: only if there is no entry.
 */
#define SLUICE_IF_VERSION 1

/**
 * Of a durable map: the change does not wait until it is stored, nor for room.
 */
#define SLUICE_NOWAIT 2

/**
 * The actions of operations.
 */
#define SLUICE_GET 1

#define SLUICE_SET 2

#define SLUICE_DELETE 3

/**
 * For sluice_map_iterate(): returns keys, versions and lengths, but no values.
 */
#define SLUICE_KEYS_ONLY 1

/**
 * For sluice_map_watch(): the changes from now on.
 */
#define SLUICE_WATCH_NOW UINT64_MAX

/**
 * A change in struct sluice_event: the entry was created.
 */
#define SLUICE_MAP_CREATED 1

/**
 * The value or the time to live of the entry was set.
 */
#define SLUICE_MAP_UPDATED 2

/**
 * The entry was deleted.
 */
#define SLUICE_MAP_DELETED 3

/**
 * The time to live of the entry is over.
 */
#define SLUICE_MAP_EXPIRED 4

/**
 * A list of channels. One thread at a time may use it.
 */
struct sluice_channel_list;

/**
 * Sends requests to the servers of a bus, each to the next one. Use one client per thread and process.
 */
struct sluice_client;

/**
 * The receiving side of a ring. One thread at a time may use it.
 *
 * In a child of the process that has set it up, calls that receive or wait fail with -ENXIO, and release, close and abort have no effect
 * on the ring. While it holds records, its calls fail with -EBUSY, except release, keep, close, abort, and the queries of capacity,
 * descriptor and longest record.
 */
struct sluice_consumer;

/**
 * An iteration of a map. One thread at a time may use it.
 */
struct sluice_entries;

/**
 * Receives the packets of a feed in place. One thread at a time may use it. In a child of the process that has opened it, calls that
 * receive or wait fail with -ENXIO, and a release has no effect on the feed. While it holds a packet, its calls fail with -EBUSY, except
 * release, close and the query of the descriptor.
 */
struct sluice_feed_consumer;

/**
 * Receives copies of the packets of a feed. One thread at a time may use it.
 */
struct sluice_feed_reader;

/**
 * A Unix socket at a path, which accepts connections for rings. Several threads may use it at the same time. A child of fork(2) may use it,
 * too.
 */
struct sluice_listener;

/**
 * An open map. Several threads may use it at the same time. A child of fork(2) may use it, too.
 *
 * Keys have 1 to 4096 bytes, values up to 1 MiB. Calls that read wait for nothing. Of a durable map, calls that change entries wait for
 * its store up to the deadline of the map.
 */
struct sluice_map;

/**
 * Receives the messages of a bus in place. Senders wait for it. One thread at a time may use it; in a child of the process that has opened
 * it, a release has no effect.
 *
 * Calls with a timeout set O_NONBLOCK of the descriptor, and those without clear it. While it holds a message, calls that receive or flush
 * fail with -EBUSY.
 */
struct sluice_mapped_subscriber;

/**
 * The sending side of a ring. One thread at a time may use it.
 *
 * In a child of the process that has set it up, calls that send or wait fail with -ENXIO, and close and abort have no effect on the ring.
 * While it holds a reservation, its calls fail with -EBUSY, except commit, cancel, close, abort, and the queries of capacity, descriptor
 * and longest record.
 */
struct sluice_producer;

/**
 * A request that a server has received, which any thread may answer. If it is freed without a reply, its client keeps waiting until its
 * timeout.
 */
struct sluice_request;

/**
 * Sends messages on a bus. Several threads may use it at the same time. A child of fork(2) may use it; the endpoint is closed when both
 * processes have closed it.
 */
struct sluice_sender;

/**
 * Receives requests of clients. One thread at a time may use it; its requests may be answered by other threads at the same time, also
 * after it was closed.
 */
struct sluice_server;

/**
 * Receives the messages of a bus that are sent from its open on; of a unicast bus those in its queue. One thread at a time may use it, and
 * one process.
 */
struct sluice_subscriber;

/**
 * Receives the changes of a map, in their order. One thread at a time may use it, and one process.
 */
struct sluice_watcher;

/**
 * The state of a channel of any kind.
 */
struct sluice_channel_state {
    /**
     * SLUICE_KIND_PIPE and others, or the number of a kind that this library does not know.
     */
    uint32_t kind;
    /**
     * Permission bits.
     */
    uint32_t permissions;
    uint32_t uid;
    uint32_t gid;
    /**
     * 1 if it exists without endpoints until it is unlinked.
     */
    uint32_t persistent;
    /**
     * Endpoints open for reading; of a ring or a feed, its consumer; of a bus, its subscribers.
     */
    uint32_t readers;
    /**
     * Endpoints open for writing; of a ring, its producer; of a feed, its publisher; of a bus, its senders.
     */
    uint32_t writers;
    /**
     * Calls that sleep on it.
     */
    uint32_t waiting;
    /**
     * Bytes.
     */
    uint64_t capacity;
    /**
     * Bytes written and not yet read; of a map, of its entries.
     */
    uint64_t bytes;
    /**
     * Since creation: messages of a bus, packets of a feed, changes of a map.
     */
    uint64_t messages;
    /**
     * Bytes that have passed, of a pipe or a ring.
     */
    uint64_t total_bytes;
    /**
     * Since creation: messages, packets or changes that receivers have lost.
     */
    uint64_t lost;
    /**
     * Messages that the receiver furthest behind has not received; of a durable map, changes that are not stored.
     */
    uint64_t lag;
    /**
     * 1 to 63 bytes and a zero.
     */
    char name[64];
    uint64_t reserved[4];
};

/**
 * How a channel of any kind is opened. Capacity and permissions apply to a channel that the call creates; an existing channel keeps its
 * own.
 */
struct sluice_channel {
    /**
     * The path of the directory of the cgroup in which the name is looked up, "/" for the root of the hierarchy. NULL: the cgroup of the
     * calling thread.
     */
    const char *scope;
    /**
     * Bytes, of the call that creates the channel: an existing channel keeps its own. 0: the default of the kind.
     */
    uint64_t capacity;
    /**
     * SLUICE_CREATE and others.
     */
    uint32_t flags;
    /**
     * Permission bits, as of a file. 0: 0600.
     */
    uint32_t permissions;
    /**
     * Zero.
     */
    uint64_t reserved[2];
};

/**
 * The options of pipes.
 */
struct sluice_pipe_options {
    /**
     * sizeof(struct sluice_pipe_options), as SLUICE_PIPE_OPTIONS_INIT sets it.
     */
    size_t size;
    struct sluice_channel channel;
    /**
     * SLUICE_PIPE_NONBLOCK.
     */
    uint32_t flags;
    /**
     * Zero.
     */
    uint32_t reserved_word;
    /**
     * Zero.
     */
    uint64_t reserved[4];
};

/**
 * The state of a pipe. The counts of pages are totals since the pipe was created.
 */
struct sluice_pipe_state {
    /**
     * Endpoints open for reading, waiting opens included.
     */
    uint32_t readers;
    /**
     * Endpoints open for writing, waiting opens included.
     */
    uint32_t writers;
    /**
     * Bytes.
     */
    uint64_t capacity;
    /**
     * Bytes written and not yet read.
     */
    uint64_t bytes;
    /**
     * The spin limit of this endpoint.
     */
    uint64_t spin_limit_ns;
    uint64_t pages_allocated;
    /**
     * Pages moved in by splice(2) without a copy.
     */
    uint64_t pages_spliced_in;
    /**
     * Pages moved out by splice(2) without a copy.
     */
    uint64_t pages_spliced_out;
    uint64_t reserved[4];
};

/**
 * The options of rings with names.
 */
struct sluice_ring_options {
    /**
     * sizeof(struct sluice_ring_options), as SLUICE_RING_OPTIONS_INIT sets it.
     */
    size_t size;
    struct sluice_channel channel;
    /**
     * The largest ring in bytes that this side accepts. 0: no limit.
     */
    uint64_t max_capacity;
    /**
     * The longest time for which a call that waits spins before it blocks. 0: the default, 100 µs, or none on one processor. Negative:
     * never spins. INT64_MAX: never blocks.
     */
    int64_t spin_limit_ns;
    /**
     * SLUICE_RING_MLOCK, SLUICE_RING_ON_NODE.
     */
    uint32_t flags;
    /**
     * Only with SLUICE_RING_ON_NODE. The open that creates the ring decides.
     */
    uint32_t numa_node;
    /**
     * Zero.
     */
    uint64_t reserved[4];
};

/**
 * The state of a ring with a name.
 */
struct sluice_ring_state {
    /**
     * SLUICE_RING_ROLE_VACANT and others.
     */
    uint32_t producer;
    /**
     * SLUICE_RING_ROLE_VACANT and others.
     */
    uint32_t consumer;
    /**
     * Bytes.
     */
    uint64_t capacity;
    /**
     * The position up to which the producer says that it has published.
     */
    uint64_t published;
    /**
     * The position up to which the consumer says that it has released.
     */
    uint64_t released;
    /**
     * The memory node of the data, or -1.
     */
    int64_t numa_node;
    uint64_t reserved[4];
};

/**
 * The options of rings over a socket.
 */
struct sluice_socket_options {
    /**
     * sizeof(struct sluice_socket_options), as SLUICE_SOCKET_OPTIONS_INIT sets it.
     */
    size_t size;
    /**
     * Bytes for unreleased records, rounded up to a power of two. The producer decides. 0: 4 MiB.
     */
    uint64_t capacity;
    /**
     * The largest ring in bytes that this side accepts. 0: no limit.
     */
    uint64_t max_capacity;
    /**
     * The values of `spin_limit_ns` in struct sluice_ring_options.
     */
    int64_t spin_limit_ns;
    /**
     * SLUICE_RING_MLOCK and others.
     */
    uint32_t flags;
    /**
     * Only with SLUICE_RING_ON_NODE. The data belongs to the producer.
     */
    uint32_t numa_node;
    /**
     * The timeout of the whole handshake in milliseconds. 0: 5 s.
     */
    uint32_t handshake_timeout_ms;
    /**
     * Zero.
     */
    uint32_t reserved_word;
    /**
     * Users that the peer may run as, in addition to the user of this process and root.
     */
    const uint32_t *allowed_users;
    size_t allowed_user_count;
    /**
     * Zero.
     */
    uint64_t reserved[4];
};

/**
 * The options of buses. Mode, policies and SLUICE_MAPPABLE apply to a bus that the call creates.
 */
struct sluice_bus_options {
    /**
     * sizeof(struct sluice_bus_options), as SLUICE_BUS_OPTIONS_INIT sets it.
     */
    size_t size;
    struct sluice_channel channel;
    /**
     * SLUICE_BUS_BROADCAST and others.
     */
    uint32_t mode;
    /**
     * The policies that subscribers may have, added up. 0: drop and evict. None in the mode unicast.
     */
    uint32_t policies;
    /**
     * The policy of this subscriber. 0: drop; if the bus does not permit that, a policy that it permits.
     */
    uint32_t policy;
    /**
     * SLUICE_MAPPABLE, SLUICE_MONITOR.
     */
    uint32_t flags;
    /**
     * Unread bytes above which this subscriber of a multicast bus is full. 0: half of the capacity.
     */
    uint64_t limit;
    /**
     * Zero.
     */
    uint64_t reserved[4];
};

/**
 * A subscriber of a bus, or another endpoint.
 */
struct sluice_subscriber_state {
    uint64_t id;
    /**
     * SLUICE_POLICY_DROP and others, or 0.
     */
    uint32_t policy;
    /**
     * 1 if it maps the bus.
     */
    uint32_t mapped;
    /**
     * 1 if it is a monitor.
     */
    uint32_t monitor;
    /**
     * 1 if it is a client.
     */
    uint32_t client;
    /**
     * Messages that it has not received.
     */
    uint64_t lag;
    /**
     * Messages that it has lost.
     */
    uint64_t lost;
    /**
     * Of the queried endpoint.
     */
    uint64_t spin_limit_ns;
    /**
     * In a list: the process that opened it, or 0 if it is not visible here.
     */
    uint32_t pid;
    /**
     * In a list: the user that opened it.
     */
    uint32_t uid;
    uint64_t reserved[2];
};

/**
 * The state of a bus, and of the queried endpoint. The counts are totals since the bus was created.
 */
struct sluice_bus_state {
    /**
     * SLUICE_BUS_BROADCAST and others.
     */
    uint32_t mode;
    /**
     * The policies that subscribers may have, added up.
     */
    uint32_t policies;
    /**
     * 1 if subscribers can map it.
     */
    uint32_t mappable;
    /**
     * Without clients and monitors.
     */
    uint32_t subscribers;
    uint32_t senders;
    uint32_t reserved_word;
    /**
     * Bytes.
     */
    uint64_t capacity;
    /**
     * The largest message, in bytes.
     */
    uint64_t message_max;
    /**
     * Messages; also the sequence of the next one.
     */
    uint64_t sent;
    /**
     * Messages of a broadcast bus that were sent while it had no subscriber.
     */
    uint64_t unsubscribed;
    /**
     * Messages that subscribers have lost.
     */
    uint64_t lost;
    /**
     * Subscribers that were evicted.
     */
    uint64_t evicted;
    /**
     * Messages that the subscriber furthest behind has not received.
     */
    uint64_t lag;
    /**
     * The queried endpoint. Its id is never used for another endpoint of the bus. The id is 0 if the bus was queried by its name.
     */
    struct sluice_subscriber_state endpoint;
    uint64_t reserved[4];
};

/**
 * A message of a bus, a request or a reply.
 */
struct sluice_message {
    /**
     * In memory of the object that received it. NULL from a call that copies them to a buffer.
     */
    const void *bytes;
    size_t length;
    /**
     * The endpoint that sent it, to which a reply can be addressed if it also subscribes.
     */
    uint64_t sender;
    /**
     * The subscriber that it is addressed to, or 0.
     */
    uint64_t target;
    /**
     * The number of the message, of all that were sent on the bus.
     */
    uint64_t sequence;
    /**
     * Messages that this subscriber lost since the one that it received before.
     */
    uint64_t lost;
    /**
     * Of a reply, the tag of its request.
     */
    uint64_t tag;
    /**
     * The process that opened the endpoint of the sender. 0: it is not visible here, or the message is mapped.
     */
    uint32_t pid;
    /**
     * The user that opened the endpoint of the sender, from the kernel. UINT32_MAX if the message is mapped.
     */
    uint32_t uid;
    /**
     * The group that opened the endpoint of the sender. UINT32_MAX if the message is mapped.
     */
    uint32_t gid;
    uint32_t reserved[5];
};

/**
 * The options of maps. All options apply to a map that the call creates; an existing map keeps its own.
 */
struct sluice_map_options {
    /**
     * sizeof(struct sluice_map_options), as SLUICE_MAP_OPTIONS_INIT sets it.
     */
    size_t size;
    struct sluice_channel channel;
    /**
     * The most entries that the map may have. 0: only its bytes are limited.
     */
    uint64_t entries;
    /**
     * How many changes the map keeps for watchers. 0: 1024.
     */
    uint32_t events;
    /**
     * SLUICE_VOLATILE, SLUICE_DURABLE or SLUICE_DURABLE_INTERVAL.
     */
    uint32_t durability;
    /**
     * SLUICE_DURABLE_REFUSE.
     */
    uint32_t flags;
    /**
     * Of SLUICE_DURABLE_INTERVAL, in milliseconds up to an hour.
     */
    uint32_t interval_ms;
    /**
     * The limit of each wait for the store of a durable map. 0: 30 s.
     */
    uint32_t deadline_ms;
    /**
     * Zero.
     */
    uint32_t reserved_word;
    /**
     * Zero.
     */
    uint64_t reserved[4];
};

/**
 * An entry of a map.
 */
struct sluice_entry {
    /**
     * Of an iteration; otherwise NULL.
     */
    const void *key;
    size_t key_length;
    /**
     * Of an iteration with values, or the buffer of a get; otherwise NULL.
     */
    const void *value;
    size_t value_length;
    /**
     * The number of the last change of the entry.
     */
    uint64_t version;
    /**
     * The remaining time to live when the entry was read, in nanoseconds. 0: it never expires.
     */
    uint64_t time_to_live_ns;
    uint64_t reserved[2];
};

/**
 * The options of a set or a delete.
 */
struct sluice_change_options {
    /**
     * sizeof(struct sluice_change_options), as SLUICE_CHANGE_OPTIONS_INIT sets it.
     */
    size_t size;
    /**
     * SLUICE_IF_VERSION, SLUICE_NOWAIT.
     */
    uint32_t flags;
    /**
     * Zero.
     */
    uint32_t reserved_word;
    /**
     * With SLUICE_IF_VERSION.
     */
    uint64_t version;
    /**
     * Of a set: removes the entry after this time, in nanoseconds. 0: never.
     */
    uint64_t time_to_live_ns;
    /**
     * Zero.
     */
    uint64_t reserved[2];
};

/**
 * The state of a map. The counts are totals since the map was created.
 */
struct sluice_map_state {
    /**
     * Bytes.
     */
    uint64_t capacity;
    /**
     * Bytes in use: keys, values, and the memory that entries need beside them.
     */
    uint64_t bytes;
    /**
     * The most entries that it may have, or 0.
     */
    uint64_t entries_max;
    uint64_t entries;
    /**
     * The number of the last change.
     */
    uint64_t sequence;
    /**
     * Entries that have expired.
     */
    uint64_t expired;
    /**
     * Changes that watchers have missed.
     */
    uint64_t missed;
    /**
     * Changes that are kept for watchers.
     */
    uint32_t events;
    /**
     * Endpoints that watch.
     */
    uint32_t watchers;
    /**
     * SLUICE_VOLATILE and others. What follows is of durable maps.
     */
    uint32_t durability;
    /**
     * 1 if a change that would wait for room is refused instead.
     */
    uint32_t refuses;
    uint32_t interval_ms;
    uint32_t deadline_ms;
    /**
     * All changes up to this number are stored.
     */
    uint64_t stored;
    /**
     * Bytes of changes that are not stored yet.
     */
    uint64_t pending;
    /**
     * The errno because of which the store takes no changes. 0: it works, or there is no daemon.
     */
    int32_t store_error;
    uint32_t reserved_word;
    uint64_t reserved[4];
};

/**
 * An operation of sluice_map_batch(), and its result.
 */
struct sluice_operation {
    /**
     * SLUICE_GET, SLUICE_SET or SLUICE_DELETE.
     */
    uint32_t action;
    /**
     * Of a set or a delete: SLUICE_IF_VERSION, SLUICE_NOWAIT.
     */
    uint32_t flags;
    const void *key;
    size_t key_length;
    /**
     * Of a set.
     */
    const void *value;
    /**
     * Of a set: the length of the value. Of a get, out: the length of the value that was found, also if it is longer than the buffer.
     */
    size_t value_length;
    /**
     * Of a get: room for the value.
     */
    void *buffer;
    size_t buffer_size;
    /**
     * In: with SLUICE_IF_VERSION. Out: the version of the entry, or the number of the change, as of the single call.
     */
    uint64_t version;
    /**
     * Of a set, in: the time after which the entry is removed, 0: never. Of a get, out: the remaining time, 0: it never expires.
     */
    uint64_t time_to_live_ns;
    /**
     * Out: what the single call would return. Of a get, the length of the value.
     */
    int64_t result;
    /**
     * Zero.
     */
    uint64_t reserved[2];
};

/**
 * A change of a map.
 */
struct sluice_event {
    /**
     * SLUICE_MAP_CREATED and others, or the number of a change that this library does not know.
     */
    uint32_t change;
    uint32_t reserved_word;
    /**
     * Valid until the next call for the watcher.
     */
    const void *key;
    size_t key_length;
    /**
     * The number of the change.
     */
    uint64_t sequence;
    /**
     * The version of the entry; of one that was deleted or has expired, the version that it had.
     */
    uint64_t version;
    /**
     * Changes directly before this one that the watcher has missed.
     */
    uint64_t missed;
    uint64_t reserved[2];
};

/**
 * The state of a feed. The counts are totals since the feed was created.
 */
struct sluice_feed_state {
    /**
     * How the consumer receives: 0: there is none; 1: by copies; 2: in place.
     */
    uint32_t receiver;
    /**
     * 1 if the simulator runs.
     */
    uint32_t running;
    /**
     * Bytes.
     */
    uint64_t capacity;
    /**
     * The number of the next packet.
     */
    uint64_t sequence;
    /**
     * Packets delivered to a consumer.
     */
    uint64_t published;
    /**
     * Packets lost.
     */
    uint64_t lost;
    /**
     * Consumers that were rejected.
     */
    uint64_t violations;
    uint64_t reserved[8];
};

/**
 * A packet of a feed.
 */
struct sluice_packet {
    const void *bytes;
    size_t length;
    /**
     * The sequence of the previous packet + 1 + `lost`.
     */
    uint64_t sequence;
    /**
     * Packets lost directly before this one.
     */
    uint64_t lost;
    /**
     * CLOCK_MONOTONIC of the host, just before the packet became visible.
     */
    uint64_t time_ns;
    /**
     * The counter of the processor, read after the time. x86: the TSC.
     */
    uint64_t cycles;
    uint64_t reserved[2];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The message of the last call of this thread that has failed: what failed, and the causes. "" if none has. Valid until the next call of
 * this thread that fails.
 */
const char *sluice_error_message(void);

/**
 * What to do about the last failure of this thread, such as "start the reader first"; "" if there is no advice. Valid as
 * sluice_error_message().
 */
const char *sluice_error_hint(void);

/**
 * The general meaning of an error number in this library, which sluice_error_message() tells more precisely. Takes errno values, negative
 * as the functions return them or positive. Never NULL.
 */
const char *sluice_strerror(int error);

/**
 * The version of this library, such as "0.1.0".
 */
const char *sluice_version(void);

/**
 * The version of the interface of the loaded module. Fails with -ENOENT if it is not loaded.
 */
int sluice_module_version(void);

/**
 * Whether the loaded module has channels of a kind, SLUICE_KIND_PIPE and others: 1 or 0.
 */
int sluice_module_has_kind(uint32_t kind);

/**
 * Queries the state of a channel, which is not opened for it. The scope has the meaning of `scope` in struct sluice_channel. Feeds are in
 * the root scope, which NULL means for them.
 */
int sluice_channel_query(uint32_t kind,
                         const char *name,
                         const char *scope,
                         struct sluice_channel_state *state);

/**
 * Removes the name. Open endpoints stay connected; a channel without endpoints is freed. The removal of a durable map waits
 * until the daemon has deleted its entries from the store, up to the deadline of the map.
 */
int sluice_channel_unlink(uint32_t kind,
                          const char *name,
                          const char *scope);

/**
 * Removes the name as sluice_channel_unlink() does, and ends the channel for the processes that have it open: their calls fail with
 * -EPIPE.
 */
int sluice_channel_destroy(uint32_t kind,
                           const char *name,
                           const char *scope);

/**
 * Lists the channels of a scope, sorted by kind and name. The scope has the meaning of `scope` in struct sluice_channel; feeds are
 * in "/".
 */
int sluice_channel_list_open(const char *scope,
                             struct sluice_channel_list **list);

/**
 * The next channel: 1, or 0 after the last one. Every channel appears once; one that is created or removed meanwhile may be missing.
 */
int sluice_channel_list_next(struct sluice_channel_list *list,
                             struct sluice_channel_state *state);

/**
 * Frees the list.
 */
void sluice_channel_list_close(struct sluice_channel_list *list);

/**
 * Opens a pipe for reading, and returns a descriptor. Waits for a writer, unless SLUICE_PIPE_NONBLOCK is set. With a name of NULL, opens
 * the pipe of the cgroup of the caller, /dev/sluice/pipe. As read(2) of a FIFO, a read returns 0 when there is no writer. As write(2) to a
 * FIFO, a write without a reader raises SIGPIPE.
 */
int sluice_pipe_open_reader(const char *name,
                            const struct sluice_pipe_options *options);

/**
 * Opens a pipe for writing, and returns a descriptor. Waits for a reader; with SLUICE_PIPE_NONBLOCK it fails with -ENXIO instead. A
 * name of NULL means the pipe of the cgroup of the caller.
 */
int sluice_pipe_open_writer(const char *name,
                            const struct sluice_pipe_options *options);

/**
 * Creates a pipe that exists until it is removed. Fails with -EEXIST if it exists.
 */
int sluice_pipe_create(const char *name,
                       const struct sluice_pipe_options *options);

/**
 * Sets the capacity of a pipe, rounded up to a power of two of pages, and returns it.
 */
int64_t sluice_pipe_set_capacity(int fd,
                                 uint64_t bytes);

/**
 * Sets how long a call on this endpoint spins at most before it blocks, in nanoseconds, and returns the effective limit: at most the
 * limit of the module. 0 disables spinning.
 */
int64_t sluice_pipe_set_spin_limit(int fd,
                                   uint64_t limit_ns);

/**
 * Queries the state of the pipe of an endpoint. sluice_channel_query() queries a named pipe without opening it.
 */
int sluice_pipe_info(int fd,
                     struct sluice_pipe_state *state);

/**
 * Opens the sending side of the ring of this name. Does not wait for the other side.
 */
int sluice_ring_open_producer(const char *name,
                              const struct sluice_ring_options *options,
                              struct sluice_producer **producer);

/**
 * Opens the receiving side of the ring of this name. Does not wait for the other side.
 */
int sluice_ring_open_consumer(const char *name,
                              const struct sluice_ring_options *options,
                              struct sluice_consumer **consumer);

/**
 * Opens an endpoint of the sending side for another process, and returns its descriptor, which that process receives by SCM_RIGHTS or
 * inherits, and passes to sluice_ring_attach_producer().
 */
int sluice_ring_producer_endpoint(const char *name,
                                  const struct sluice_ring_options *options);

/**
 * Opens an endpoint of the receiving side for another process, for sluice_ring_attach_consumer(). Returns its descriptor.
 */
int sluice_ring_consumer_endpoint(const char *name,
                                  const struct sluice_ring_options *options);

/**
 * Sets up the sending side on an endpoint that another process has opened. The descriptor belongs to the library from then on, also after
 * a failure. Of the options, max_capacity, spin_limit_ns and SLUICE_RING_MLOCK have an effect.
 */
int sluice_ring_attach_producer(int fd,
                                const struct sluice_ring_options *options,
                                struct sluice_producer **producer);

/**
 * Sets up the receiving side on an endpoint that another process has opened. Descriptor and options are treated as by
 * sluice_ring_attach_producer().
 */
int sluice_ring_attach_consumer(int fd,
                                const struct sluice_ring_options *options,
                                struct sluice_consumer **consumer);

/**
 * Creates a ring that exists until it is removed. Fails with -EEXIST if it exists.
 */
int sluice_ring_create(const char *name,
                       const struct sluice_ring_options *options);

/**
 * Queries the state of the ring of this name. The scope has the meaning of `scope` in struct sluice_channel.
 */
int sluice_ring_query(const char *name,
                      const char *scope,
                      struct sluice_ring_state *state);

/**
 * Creates a Unix socket at a path. One at which no process listens any more, as after a kill, is replaced. The mode of the socket, which
 * the umask decides, and then the allowed users of struct sluice_socket_options decide which peers may connect.
 */
int sluice_listener_bind(const char *path,
                         struct sluice_listener **listener);

/**
 * Accepts a connection, and returns its descriptor, for sluice_socket_producer() or sluice_socket_consumer(). Waits for a connection.
 */
int sluice_listener_accept(const struct sluice_listener *listener,
                           int timeout_ms);

/**
 * The descriptor of the socket, which is readable when a connection can be accepted. -EINVAL if the listener is NULL.
 */
int sluice_listener_fd(const struct sluice_listener *listener);

/**
 * Closes the socket and removes its path. In a child of the process that has bound it, the path remains.
 */
void sluice_listener_close(struct sluice_listener *listener);

/**
 * Connects to a listener, and returns the descriptor of the connection. Waits while too many connections are pending.
 */
int sluice_socket_connect(const char *path,
                          int timeout_ms);

/**
 * Makes two connected sockets, for a process and its child, or for two threads. The array has room for two descriptors.
 */
int sluice_socket_pair(int *fds);

/**
 * Sets up the sending side of a ring over a connected Unix socket of type SOCK_SEQPACKET. Waits for the peer, which sets up the receiving
 * side at the same time, up to `handshake_timeout_ms`. The descriptor belongs to the library from then on, also after a failure.
 */
int sluice_socket_producer(int fd,
                           const struct sluice_socket_options *options,
                           struct sluice_producer **producer);

/**
 * Sets up the receiving side of a ring over a connected Unix socket. Waits for the peer, and treats the descriptor, as
 * sluice_socket_producer() does.
 */
int sluice_socket_consumer(int fd,
                           const struct sluice_socket_options *options,
                           struct sluice_consumer **consumer);

/**
 * Sends a record. Waits while the ring is full. Fails with -EPIPE if the consumer has closed the ring or the channel was destroyed,
 * with -ECONNRESET if the consumer died, and with -EMSGSIZE if the record is longer than sluice_producer_record_max().
 */
int sluice_producer_send(struct sluice_producer *producer,
                         const void *record,
                         size_t length,
                         int timeout_ms);

/**
 * Reserves room for a record of `length` bytes and stores its address, a multiple of 8. The content is unspecified. Waits while the ring
 * is full. sluice_producer_commit() sends the record, sluice_producer_cancel() does not. Has the errors of sluice_producer_send().
 */
int sluice_producer_reserve(struct sluice_producer *producer,
                            size_t length,
                            void **room,
                            int timeout_ms);

/**
 * Sends the first `length` bytes of the reservation as a record. Fails with -EINVAL if there is no reservation, or if it is shorter; a
 * shorter one remains.
 */
int sluice_producer_commit(struct sluice_producer *producer,
                           size_t length);

/**
 * Gives the reservation back: nothing is sent.
 */
int sluice_producer_cancel(struct sluice_producer *producer);

/**
 * Sends `count` records as a batch, which costs less than a call for each, and returns their number. Waits as sluice_producer_send() does,
 * where the timeout begins anew with each record that finds no room. A failure after the first record is reported by the next call.
 */
ssize_t sluice_producer_send_batch(struct sluice_producer *producer,
                                   const struct iovec *records,
                                   size_t count,
                                   int timeout_ms);

/**
 * Begins a batch: the consumer sees the next records together, after sluice_producer_publish(). A batch is cheaper than single records.
 * Its length is not limited: when the ring is full, its records are published. Calls that wait for the consumer, and a close, publish them,
 * too.
 */
int sluice_producer_begin(struct sluice_producer *producer);

/**
 * Publishes the records of the batch and ends it.
 */
int sluice_producer_publish(struct sluice_producer *producer);

/**
 * Waits until the consumer has released all records. Has the errors of sluice_producer_send() that tell of the consumer.
 */
int sluice_producer_flush(struct sluice_producer *producer,
                          int timeout_ms);

/**
 * Bytes, including headers, that the consumer has not released.
 */
int64_t sluice_producer_pending(struct sluice_producer *producer);

/**
 * Whether the consumer has closed the ring or died: 1 or 0.
 */
int sluice_producer_is_closed(struct sluice_producer *producer);

/**
 * Whether the consumer has come, also if it has ended since: 1 or 0. Over a socket it always has.
 */
int sluice_producer_has_consumer(struct sluice_producer *producer);

/**
 * The capacity in bytes, including headers. 0 if the producer is NULL.
 */
uint64_t sluice_producer_capacity(const struct sluice_producer *producer);

/**
 * The length limit of a record in bytes. 0 if the producer is NULL.
 */
size_t sluice_producer_record_max(const struct sluice_producer *producer);

/**
 * The descriptor to wait for with poll(2), between sluice_producer_prepare_wait() and sluice_producer_finish_wait(). It is readable, also
 * of a producer, when the consumer wakes this side or has ended. It belongs to the producer.
 */
int sluice_producer_fd(const struct sluice_producer *producer);

/**
 * Prepares to wait until the descriptor is readable, for room for a record of `length` bytes. Returns 1: wait; or 0: there is room
 * already, or the consumer has ended. Call sluice_producer_finish_wait() after the wait, or instead of it, before other calls.
 */
int sluice_producer_prepare_wait(struct sluice_producer *producer,
                                 size_t length);

/**
 * Ends the wait, and reads wake-ups from the descriptor.
 */
int sluice_producer_finish_wait(struct sluice_producer *producer);

/**
 * Closes the ring and frees the producer. The consumer receives all sent records, then the end of the stream. A reservation is cancelled.
 * Records of a ring with a name that is not persistent are lost if its consumer has not come: call sluice_producer_flush() before.
 */
void sluice_producer_close(struct sluice_producer *producer);

/**
 * Frees the producer without closing the ring: the consumer receives all published records, then -ECONNRESET.
 */
void sluice_producer_abort(struct sluice_producer *producer);

/**
 * Receives the next record in place: stores its address, a multiple of 8, and returns its length. Waits for a record. The consumer holds
 * the record until sluice_consumer_release(). Fails with -ENODATA at the end of the stream, and with -ECONNRESET if the producer has
 * died, both after the last record.
 *
 * The producer can change the bytes of a record at any time: copy an untrusted record once, as sluice_consumer_recv_into() does, and
 * validate the copy.
 */
ssize_t sluice_consumer_recv(struct sluice_consumer *consumer,
                             const void **record,
                             int timeout_ms);

/**
 * Receives up to `count` available records in place, and returns their number. Waits for the first one. The consumer holds all of them
 * until sluice_consumer_release(). Cheaper than single records. The bytes are mapped for reading only. Has the errors of
 * sluice_consumer_recv().
 */
ssize_t sluice_consumer_recv_batch(struct sluice_consumer *consumer,
                                   struct iovec *records,
                                   size_t count,
                                   int timeout_ms);

/**
 * Releases the records that the consumer holds: their room is free for the producer, and their addresses are invalid. Fails with -EINVAL
 * if the consumer holds none.
 */
int sluice_consumer_release(struct sluice_consumer *consumer);

/**
 * Leaves the records that the consumer holds in the ring: the first one is the next one again. For a receiver that could not process
 * them; if it then closes the ring, the producer learns that they were not received.
 */
int sluice_consumer_keep(struct sluice_consumer *consumer);

/**
 * Copies the next record to a buffer, releases it, and returns its length. Waits for a record. Fails with -EMSGSIZE if the record is
 * longer than the buffer; it stays the next one. Also has the errors of sluice_consumer_recv().
 */
ssize_t sluice_consumer_recv_into(struct sluice_consumer *consumer,
                                  void *buffer,
                                  size_t size,
                                  int timeout_ms);

/**
 * Bytes, including headers, that the producer has reported as sent and that were not received yet. Only a hint.
 */
int64_t sluice_consumer_pending(struct sluice_consumer *consumer);

/**
 * Whether the producer has closed the ring or died: 1 or 0. There may still be records.
 */
int sluice_consumer_is_closed(struct sluice_consumer *consumer);

/**
 * Whether the producer has come, also if it has ended since: 1 or 0. Over a socket it always has.
 */
int sluice_consumer_has_producer(struct sluice_consumer *consumer);

/**
 * The capacity in bytes, including headers. 0 if the consumer is NULL.
 */
uint64_t sluice_consumer_capacity(const struct sluice_consumer *consumer);

/**
 * The length limit of a record in bytes. 0 if the consumer is NULL.
 */
size_t sluice_consumer_record_max(const struct sluice_consumer *consumer);

/**
 * The descriptor to wait for with poll(2), between sluice_consumer_prepare_wait() and sluice_consumer_finish_wait(). It is readable when
 * the producer wakes this side or has ended. It belongs to the consumer.
 */
int sluice_consumer_fd(const struct sluice_consumer *consumer);

/**
 * Prepares to wait until the descriptor is readable. Returns 1: wait; or 0: a record or the end is available already. Call
 * sluice_consumer_finish_wait() after the wait, or instead of it, before other calls.
 */
int sluice_consumer_prepare_wait(struct sluice_consumer *consumer);

/**
 * Ends the wait, and reads wake-ups from the descriptor.
 */
int sluice_consumer_finish_wait(struct sluice_consumer *consumer);

/**
 * Closes the ring and frees the consumer: the producer learns that nothing more is received. Records that the consumer holds are not
 * released.
 */
void sluice_consumer_close(struct sluice_consumer *consumer);

/**
 * Frees the consumer without closing the ring, so that the producer gets an error.
 */
void sluice_consumer_abort(struct sluice_consumer *consumer);

/**
 * Creates a bus that exists until it is removed. Fails with -EEXIST if it exists.
 */
int sluice_bus_create(const char *name,
                      const struct sluice_bus_options *options);

/**
 * Queries the state of the bus of this name, which is not opened for it. The scope has the meaning of `scope` in struct sluice_channel.
 */
int sluice_bus_query(const char *name,
                     const char *scope,
                     struct sluice_bus_state *state);

/**
 * Opens a bus to send.
 */
int sluice_bus_open_sender(const char *name,
                           const struct sluice_bus_options *options,
                           struct sluice_sender **sender);

/**
 * Opens a bus to send and to receive, through one endpoint with one id. In the mode broadcast the subscriber also receives the
 * messages of the sender. Close both.
 */
int sluice_bus_open_endpoint(const char *name,
                             const struct sluice_bus_options *options,
                             struct sluice_sender **sender,
                             struct sluice_subscriber **subscriber);

/**
 * Uses an endpoint that was inherited or received. The descriptor belongs to the library from then on, also after a failure.
 */
int sluice_sender_attach(int fd,
                         struct sluice_sender **sender);

/**
 * Sends a message to the subscribers that the mode of the bus selects. Waits while a subscriber that blocks senders has no room.
 * Fails with -EPIPE if the bus was destroyed, with -ENOTCONN if a multicast bus has no subscriber, and with -EMSGSIZE if the message is
 * too long.
 */
int sluice_sender_send(const struct sluice_sender *sender,
                       const void *message,
                       size_t length,
                       int timeout_ms);

/**
 * Sends a message to one subscriber, whose id is in its messages and in the list of subscribers. Fails with -ENOENT if the subscriber has
 * ended; also has the errors of sluice_sender_send(). Not in the mode unicast, and not on a mappable bus.
 */
int sluice_sender_send_to(const struct sluice_sender *sender,
                          uint64_t id,
                          const void *message,
                          size_t length,
                          int timeout_ms);

/**
 * The descriptor of the endpoint, which is writable when the largest message fits into the ring; a subscriber may be full nevertheless. It
 * belongs to the sender.
 */
int sluice_sender_fd(const struct sluice_sender *sender);

/**
 * Queries the state of the bus and of this endpoint.
 */
int sluice_sender_info(const struct sluice_sender *sender,
                       struct sluice_bus_state *state);

/**
 * Stores up to `count` subscribers of the bus, by id, and returns the number of all. In the mode unicast only monitors have ids.
 */
ssize_t sluice_sender_subscribers(const struct sluice_sender *sender,
                                  struct sluice_subscriber_state *subscribers,
                                  size_t count);

/**
 * Closes and frees the sender.
 */
void sluice_sender_close(struct sluice_sender *sender);

/**
 * Opens a bus to receive.
 */
int sluice_bus_open_subscriber(const char *name,
                               const struct sluice_bus_options *options,
                               struct sluice_subscriber **subscriber);

/**
 * Uses an endpoint that was inherited or received. The descriptor belongs to the library from then on, also after a failure.
 */
int sluice_subscriber_attach(int fd,
                             struct sluice_subscriber **subscriber);

/**
 * Receives the next message in a buffer of the subscriber, whose content is valid until the next call that receives. Waits for a message.
 * Fails with -EPIPE if the bus was destroyed, and with -ESHUTDOWN if the subscriber was evicted.
 */
int sluice_subscriber_recv(struct sluice_subscriber *subscriber,
                           struct sluice_message *message,
                           int timeout_ms);

/**
 * Copies the next message to a buffer, and returns its length. Waits for a message. `header` is NULL, or receives the header of the
 * message. Fails with -EMSGSIZE if the message is longer than the buffer; it stays the next one. Also has the errors of
 * sluice_subscriber_recv().
 */
ssize_t sluice_subscriber_recv_into(struct sluice_subscriber *subscriber,
                                    void *buffer,
                                    size_t size,
                                    struct sluice_message *header,
                                    int timeout_ms);

/**
 * Receives up to `count` available messages with one system call, and returns their number. Waits for the first one. They are valid until
 * the next call that receives. The system call may return more messages, which the next calls return. The descriptor does not tell of
 * those: call with a timeout of 0 until -EAGAIN before waiting for it.
 */
ssize_t sluice_subscriber_recv_batch(struct sluice_subscriber *subscriber,
                                     struct sluice_message *messages,
                                     size_t count,
                                     int timeout_ms);

/**
 * The descriptor of the endpoint, which is readable when there is a message, or the bus has ended. It belongs to the subscriber.
 */
int sluice_subscriber_fd(const struct sluice_subscriber *subscriber);

/**
 * Queries the state of the bus and of this endpoint.
 */
int sluice_subscriber_info(const struct sluice_subscriber *subscriber,
                           struct sluice_bus_state *state);

/**
 * Closes and frees the subscriber.
 */
void sluice_subscriber_close(struct sluice_subscriber *subscriber);

/**
 * Opens a bus that was created with SLUICE_MAPPABLE to receive through mapped memory.
 */
int sluice_bus_open_mapped_subscriber(const char *name,
                                      const struct sluice_bus_options *options,
                                      struct sluice_mapped_subscriber **subscriber);

/**
 * Uses an endpoint that was inherited or received, and opened for mapping. The descriptor belongs to the library from then on, also after
 * a failure.
 */
int sluice_mapped_subscriber_attach(int fd,
                                    struct sluice_mapped_subscriber **subscriber);

/**
 * Receives the next message in place, at an address that is a multiple of 8. Waits for a message. The subscriber holds it until
 * sluice_mapped_subscriber_release(). Has the errors of sluice_subscriber_recv().
 */
int sluice_mapped_subscriber_recv(struct sluice_mapped_subscriber *subscriber,
                                  struct sluice_message *message,
                                  int timeout_ms);

/**
 * Releases the message. Senders get its room with the next call that receives, or when released messages hold an eighth of the capacity;
 * sluice_mapped_subscriber_flush() does not wait for that.
 */
int sluice_mapped_subscriber_release(struct sluice_mapped_subscriber *subscriber);

/**
 * Gives senders the room of all released messages.
 */
int sluice_mapped_subscriber_flush(struct sluice_mapped_subscriber *subscriber);

/**
 * The descriptor of the endpoint, which is readable when there is a message that was not received, or the bus has ended. A call
 * receives several messages ahead. The descriptor does not tell of them: call with a timeout of 0 until -EAGAIN before waiting for it. It
 * belongs to the subscriber.
 */
int sluice_mapped_subscriber_fd(const struct sluice_mapped_subscriber *subscriber);

/**
 * Queries the state of the bus and of this endpoint.
 */
int sluice_mapped_subscriber_info(const struct sluice_mapped_subscriber *subscriber,
                                  struct sluice_bus_state *state);

/**
 * Closes and frees the subscriber. A message that it holds is released.
 */
void sluice_mapped_subscriber_close(struct sluice_mapped_subscriber *subscriber);

/**
 * Opens a multicast bus to send requests to its servers. Fails with -ENOENT if no server has created the bus yet, unless SLUICE_CREATE is
 * set.
 */
int sluice_bus_open_client(const char *name,
                           const struct sluice_bus_options *options,
                           struct sluice_client **client);

/**
 * Sends a request to the next server, and waits for its reply, which is valid until the next call of the client. Fails with -ENOTCONN if
 * the bus has no server, with -ECONNRESET at once if the server ends without a reply, with -ENOBUFS if the reply was lost, and with
 * -ETIMEDOUT, also if the timeout is 0. A request is sent once: except after -ENOTCONN, -EMSGSIZE and -EINVAL the server may have received it.
 */
int sluice_client_call(struct sluice_client *client,
                       const void *request,
                       size_t length,
                       struct sluice_message *reply,
                       int timeout_ms);

/**
 * Queries the state of the bus and of this endpoint.
 */
int sluice_client_info(const struct sluice_client *client,
                       struct sluice_bus_state *state);

/**
 * Closes and frees the client.
 */
void sluice_client_close(struct sluice_client *client);

/**
 * Opens a multicast bus to receive requests and send replies. If it creates the bus, the subscribers may have every policy unless the
 * options say otherwise. The policy of a server cannot be SLUICE_POLICY_DROP.
 */
int sluice_bus_open_server(const char *name,
                           const struct sluice_bus_options *options,
                           struct sluice_server **server);

/**
 * Receives the next request. Waits for one. Has the errors of sluice_subscriber_recv().
 */
int sluice_server_recv(struct sluice_server *server,
                       struct sluice_request **request,
                       int timeout_ms);

/**
 * The descriptor of the endpoint, which is readable when there is a request, or the bus has ended. A reply that waits for room can receive
 * requests ahead. The descriptor does not tell of them: call sluice_server_recv() with a timeout of 0 until -EAGAIN before waiting for it.
 * It belongs to the server.
 */
int sluice_server_fd(const struct sluice_server *server);

/**
 * Queries the state of the bus and of this endpoint.
 */
int sluice_server_info(const struct sluice_server *server,
                       struct sluice_bus_state *state);

/**
 * Closes and frees the server. The endpoint is closed when its last request is freed, too.
 */
void sluice_server_close(struct sluice_server *server);

/**
 * Stores the address of the bytes of a request, and its header. The bytes are valid until the request is answered or freed.
 */
int sluice_request_message(const struct sluice_request *request,
                           struct sluice_message *message);

/**
 * Sends the reply, and frees the request, whatever is returned. Waits for room; meanwhile it receives requests ahead that hold it. Fails
 * with -ENOENT if the client has ended, and with -ETIMEDOUT, also if the timeout is 0.
 */
int sluice_request_reply(struct sluice_request *request,
                         const void *reply,
                         size_t length,
                         int timeout_ms);

/**
 * Frees a request without a reply.
 */
void sluice_request_drop(struct sluice_request *request);

/**
 * Opens a map to read and to change it. An open of a durable map with SLUICE_CREATE asks the daemon for a map that the module does not
 * have, up to the deadline; with SLUICE_EXCLUSIVE a signal ends it as it ends sluice_map_create().
 */
int sluice_map_open(const char *name,
                    const struct sluice_map_options *options,
                    struct sluice_map **map);

/**
 * Opens a map to get entries and to watch it, for which the permission to read suffices.
 */
int sluice_map_open_reader(const char *name,
                           const struct sluice_map_options *options,
                           struct sluice_map **map);

/**
 * Opens a map to set and delete entries, for which the permission to write suffices.
 */
int sluice_map_open_writer(const char *name,
                           const struct sluice_map_options *options,
                           struct sluice_map **map);

/**
 * Uses an endpoint that was inherited or received. The descriptor belongs to the library from then on, also after a failure.
 */
int sluice_map_attach(int fd,
                      struct sluice_map **map);

/**
 * Creates a map that exists until it is removed. Fails with -EEXIST if it exists. Of a durable map, -EINTR means that a signal arrived while
 * the daemon was asked, which may have created the map: open it without SLUICE_EXCLUSIVE.
 */
int sluice_map_create(const char *name,
                      const struct sluice_map_options *options);

/**
 * Copies the value of a key to a buffer, and returns its length. Fails with -ENOENT if there is no entry, and with -EMSGSIZE if the value
 * is longer than the buffer. `entry` is NULL, or receives version and time to live of the entry; after -EMSGSIZE the length of its value.
 */
ssize_t sluice_map_get(const struct sluice_map *map,
                       const void *key,
                       size_t key_length,
                       void *buffer,
                       size_t size,
                       struct sluice_entry *entry);

/**
 * Sets the value of a key: 1 if that created the entry, otherwise 0. The options may be NULL. `version` is NULL, or receives the version
 * of the entry from then on.
 *
 * With SLUICE_IF_VERSION it fails with -EEXIST if version 0 is required and there is an entry, with -ENOENT if there is none, and with
 * -ESTALE if the entry has another version, which `version` receives. Of a durable map -ETIMEDOUT means that the change is made, but not
 * known to be stored; `version` receives its number, and sluice_map_sync() waits for it. All other errors mean that nothing has changed.
 */
int sluice_map_set(const struct sluice_map *map,
                   const void *key,
                   size_t key_length,
                   const void *value,
                   size_t value_length,
                   const struct sluice_change_options *options,
                   uint64_t *version);

/**
 * Deletes the entry of a key: 1, or 0 if there is none. The options may be NULL; they have no time to live. `number` is NULL, or receives
 * the number of the change, 0 if there was no entry. Has the errors of sluice_map_set().
 */
int sluice_map_delete(const struct sluice_map *map,
                      const void *key,
                      size_t key_length,
                      const struct sluice_change_options *options,
                      uint64_t *number);

/**
 * Waits until the changes of a durable map up to `number` are stored, or all so far if it is 0, up to the deadline of the map. `stored` is
 * NULL, or receives the number up to which they are. Fails with -ETIMEDOUT if they are not known to be stored.
 */
int sluice_map_sync(const struct sluice_map *map,
                    uint64_t number,
                    uint64_t *stored);

/**
 * The descriptor of the endpoint. The descriptor of a writer of a durable map reports POLLOUT when a change would be admitted or fail at
 * once, and POLLPRI when all changes that were made through it are stored. It belongs to the map.
 */
int sluice_map_fd(const struct sluice_map *map);

/**
 * Queries the state of the map.
 */
int sluice_map_info(const struct sluice_map *map,
                    struct sluice_map_state *state);

/**
 * Queries the state of the map of this name, which is not opened for it. The scope has the meaning of `scope` in struct sluice_channel.
 */
int sluice_map_query(const char *name,
                     const char *scope,
                     struct sluice_map_state *state);

/**
 * Closes and frees the map. Its iterations and its watcher remain.
 */
void sluice_map_close(struct sluice_map *map);

/**
 * Executes operations one after the other, with one system call for up to 256 of them, and stores the result of each. Returns the number
 * of those that have failed; sluice_error_message() is of the last of them. Together they are not atomic. A negative result means that
 * none was executed, because one is invalid.
 */
int sluice_map_batch(const struct sluice_map *map,
                     struct sluice_operation *operations,
                     size_t count);

/**
 * Begins an iteration of all entries, in no order. Each that exists during the whole iteration is returned once, one that is created
 * meanwhile not at all, one that is deleted meanwhile once or not at all. The flags are 0 or SLUICE_KEYS_ONLY.
 */
int sluice_map_iterate(const struct sluice_map *map,
                       uint32_t flags,
                       struct sluice_entries **entries);

/**
 * The next entry: 1, or 0 after the last one. Key and value are valid until the next call for the iteration. An error ends it.
 */
int sluice_entries_next(struct sluice_entries *entries,
                        struct sluice_entry *entry);

/**
 * Frees the iteration.
 */
void sluice_entries_close(struct sluice_entries *entries);

/**
 * Watches a map: receives the changes after the one with the number `after`, all if it is 0, or those from now on if it is
 * SLUICE_WATCH_NOW. An open map has one watcher at a time; a second one fails with -EBUSY.
 */
int sluice_map_watch(const struct sluice_map *map,
                     uint64_t after,
                     struct sluice_watcher **watcher);

/**
 * Receives the next event, and returns 0. Waits for one. Fails with -EPIPE if the map was destroyed.
 */
int sluice_watcher_recv(struct sluice_watcher *watcher,
                        struct sluice_event *event,
                        int timeout_ms);

/**
 * The descriptor of the endpoint, which is readable when there is an event, or the map was destroyed. A call receives several events
 * ahead. The descriptor does not tell of them: call with a timeout of 0 until -EAGAIN before waiting for it. It belongs to the watcher.
 */
int sluice_watcher_fd(const struct sluice_watcher *watcher);

/**
 * The number of the last change before the first event. 0 if the watcher is NULL.
 */
uint64_t sluice_watcher_since(const struct sluice_watcher *watcher);

/**
 * Ends the watch and frees the watcher.
 */
void sluice_watcher_close(struct sluice_watcher *watcher);

/**
 * Opens the feed of this name, maps it, and becomes its consumer. With a name of NULL, opens the feed of the packet simulator,
 * /dev/sluice/feed. Fails with -EBUSY if the feed has a consumer. The first packet is the next one that is published.
 */
int sluice_feed_open_consumer(const char *name,
                              struct sluice_feed_consumer **consumer);

/**
 * Opens the feed of this name, and becomes its consumer, which receives copies. Name and errors have the meaning that they have for
 * sluice_feed_open_consumer().
 */
int sluice_feed_open_reader(const char *name,
                            struct sluice_feed_reader **reader);

/**
 * Queries the state of the feed of this name.
 */
int sluice_feed_query(const char *name, struct sluice_feed_state *state);

/**
 * Receives the next packet in place. Waits for one. The consumer holds it until sluice_feed_consumer_release(). Fails with -ENODATA at the
 * end of the feed, after the last packet.
 */
int sluice_feed_consumer_recv(struct sluice_feed_consumer *consumer,
                              struct sluice_packet *packet,
                              int timeout_ms);

/**
 * Releases the packet.
 */
int sluice_feed_consumer_release(struct sluice_feed_consumer *consumer);

/**
 * Sets the longest time for which a call that waits spins before it blocks, with the values of `spin_limit_ns` in struct
 * sluice_ring_options.
 */
int sluice_feed_consumer_set_spin_limit(struct sluice_feed_consumer *consumer,
                                        int64_t limit_ns);

/**
 * The descriptor to wait for with poll(2), between sluice_feed_consumer_prepare_wait() and sluice_feed_consumer_finish_wait(). It belongs
 * to the consumer.
 */
int sluice_feed_consumer_fd(const struct sluice_feed_consumer *consumer);

/**
 * Prepares to wait until the descriptor is readable. Returns 1: wait; or 0: a packet or the end is available already. Call
 * sluice_feed_consumer_finish_wait() after the wait, or instead of it, before other calls.
 */
int sluice_feed_consumer_prepare_wait(struct sluice_feed_consumer *consumer);

/**
 * Ends the wait.
 */
int sluice_feed_consumer_finish_wait(struct sluice_feed_consumer *consumer);

/**
 * Closes and frees the consumer. A packet that it holds is not released.
 */
void sluice_feed_consumer_close(struct sluice_feed_consumer *consumer);

/**
 * Copies the next packet to a buffer of the reader, whose content is valid until the next call. Waits for a packet. -ENODATA is
 * the end of the feed.
 */
int sluice_feed_reader_recv(struct sluice_feed_reader *reader,
                            struct sluice_packet *packet,
                            int timeout_ms);

/**
 * The descriptor of the endpoint, which is readable when there is a packet or the feed has ended. It belongs to the reader.
 */
int sluice_feed_reader_fd(const struct sluice_feed_reader *reader);

/**
 * Closes and frees the reader.
 */
void sluice_feed_reader_close(struct sluice_feed_reader *reader);

/*
 * Inline functions. GCC inlines the six functions below if it optimizes. The inlined code sends or receives while that needs no
 * wait, no wake-up of the peer and no error; otherwise it calls the function of the library, which has the same name and does the same.
 * With SLUICE_NO_INLINE defined, each is a call. The address of such a function is the address of the library's function.
 *
 * These structures are the beginnings of struct sluice_producer and struct sluice_consumer. Inlined code and library change the same
 * positions. The layout is part of the ABI; programs use the fields through the functions only.
 */
struct sluice_ring_head {
    /* The ring, mapped twice in a row, so that no record is split. */
    unsigned char *data;
    /* The capacity in bytes - 1. */
    uint64_t mask;
    /* The word *process is equal to `mark` in the process that has set up the side, and in no child of it. */
    const uint64_t *process;
    uint64_t mark;
    /* Where the peer loads the position of this side. */
    uint64_t *pos;
    /*
     * While the word *attention is not 0, the library has to be called. Of a producer it says whether the consumer has ended, of a
     * consumer how to wake the producer. It is a word of the peer; or of the library, which is never 0, if that one is not enough.
     */
    const uint32_t *attention;
    /* The number of records of inlined code that the library has not counted yet. */
    uint64_t records;
};

struct sluice_consumer_head {
    struct sluice_ring_head ring;
    /* The stride of the last record that inlined code has received, from it to the next one; and how many before it had the same stride. */
    uint64_t stride;
    uint64_t alike;
    /* The position of the next record. */
    uint64_t position;
    /* The position up to which records are released: another one while records are held. */
    uint64_t released;
    /* The length limit; negative after a protocol violation. */
    int64_t length_max;
};

struct sluice_producer_head {
    struct sluice_ring_head ring;
    /* The length limit. */
    size_t length_max;
    /* The length of the reservation, or (size_t)-1. */
    size_t reserved;
    /* While the word *waiting is not 0, the library has to be called after a publication, to wake the consumer. As `attention`. */
    const uint32_t *waiting;
    /* Whether records are published by sluice_producer_publish() only: 1 or 0. */
    uint64_t is_batching;
    /* The position up to which records are published. */
    uint64_t published;
    /* The position of the next record: another one in a batch that has records. */
    uint64_t written;
    /* The position up to which bytes may be written; 0 after a protocol violation. */
    uint64_t limit;
    /* The position after the bytes that were reserved since the last record; or 0. */
    uint64_t reserved_end;
    /* The number of bytes to zero after the publication. */
    uint64_t window;
    /* The position up to which the bytes after the records are zero. */
    uint64_t zeroed_to;
};

/* Clang takes a function that calls its own symbol for a recursion, and ignores the body. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(SLUICE_NO_INLINE)

/* The library copies longer records, and chooses how. */
#define __SLUICE_COPY_MAX 256
/* The header before each record: its length and its state, of 32 bits each. */
#define __SLUICE_HEADER 8
/* The length of a cache line, and the number of bytes that are zeroed ahead of a stream. */
#define __SLUICE_LINE 64
#define __SLUICE_WINDOW 256
/* How many records have to be alike before the next one is expected to be. */
#define __SLUICE_ALIKE 8

/* The body of a function is for inlining only: what is not inlined calls the library. A part is inlined wherever its function is. */
#define __sluice_inline extern __inline __attribute__((__gnu_inline__))
#define __sluice_part extern __inline __attribute__((__gnu_inline__, __always_inline__))
#define __sluice_likely(condition) __builtin_expect(!!(condition), 1)

/* The functions of the library, by names that have no body here. */
extern int __sluice_producer_send(struct sluice_producer *producer, const void *record, size_t length, int timeout_ms)
    __asm__("sluice_producer_send");
extern int __sluice_producer_reserve(struct sluice_producer *producer, size_t length, void **room, int timeout_ms)
    __asm__("sluice_producer_reserve");
extern int __sluice_producer_commit(struct sluice_producer *producer, size_t length) __asm__("sluice_producer_commit");
extern int __sluice_producer_publish(struct sluice_producer *producer) __asm__("sluice_producer_publish");
extern ssize_t __sluice_consumer_recv(struct sluice_consumer *consumer, const void **record, int timeout_ms)
    __asm__("sluice_consumer_recv");
extern ssize_t __sluice_consumer_recv_batch(struct sluice_consumer *consumer, struct iovec *records, size_t count, int timeout_ms)
    __asm__("sluice_consumer_recv_batch");
extern int __sluice_consumer_release(struct sluice_consumer *consumer) __asm__("sluice_consumer_release");

/* Whether this process has set up the side. */
__sluice_part int __sluice_is_owned(const struct sluice_ring_head *ring)
{
    return __atomic_load_n(ring->process, __ATOMIC_RELAXED) == ring->mark;
}

/* The header of the record at a position. Its bytes follow, also at the end of the ring, which is mapped twice. */
__sluice_part uint32_t *__sluice_header(const struct sluice_ring_head *ring, uint64_t position)
{
    return (uint32_t *)(void *)(ring->data + (position & ring->mask));
}

__sluice_part void *__sluice_bytes(const uint32_t *header)
{
    return (unsigned char *)(uintptr_t)header + __SLUICE_HEADER;
}

/* From a record to the next one: header, bytes, and padding to a multiple of 8. */
__sluice_part uint64_t __sluice_stride(uint64_t length)
{
    return (__SLUICE_HEADER + length + 7) & ~(uint64_t)7;
}

/* Whether a record of this length can be written now at this position. The header after it is zeroed when it is published. */
__sluice_part int __sluice_has_room(const struct sluice_producer_head *head, uint64_t at, size_t length)
{
    return head->reserved_end == 0 && length <= head->length_max && at + __sluice_stride(length) + __SLUICE_HEADER <= head->limit && __sluice_is_owned(&head->ring) && __atomic_load_n(head->ring.attention, __ATOMIC_RELAXED) == 0;
}

/*
 * As Producer::write(), publish() and prezero() in the crate sluice-ring: makes a record of the bytes after the header at a position. Unless it is of a batch, it becomes
 * visible, then the bytes ahead are zeroed. Each field is loaded once, because a store to the ring could change it, as far as the compiler
 * knows.
 */
__sluice_part int __sluice_write(struct sluice_producer *producer, struct sluice_producer_head *head, uint64_t at, uint32_t *header, size_t length)
{
    uint64_t stride = __sluice_stride(length), next = at + stride, zeroed_to = head->zeroed_to, goal;
    unsigned char *data = head->ring.data;
    uint64_t mask = head->ring.mask;
    int is_first = at == head->published;

    /* More bytes were filled than the record has. */
    if (head->reserved_end > next)
        zeroed_to = next;
    head->reserved_end = 0;
    head->written = next;
    head->window = is_first && stride > __SLUICE_WINDOW ? 0 : __SLUICE_WINDOW;
    __atomic_store_n(&header[0], (uint32_t)length, __ATOMIC_RELAXED);
    if (!__sluice_likely(is_first && !head->is_batching)) {
        head->zeroed_to = zeroed_to;
        /* The release that publishes the first record of a batch covers this store, too. */
        if (!is_first)
            __atomic_store_n(&header[1], 1, __ATOMIC_RELAXED);
        return 0;
    }
    if (zeroed_to < next + __SLUICE_HEADER) {
        __atomic_store_n((uint32_t *)(void *)(data + (next & mask)) + 1, 0, __ATOMIC_RELAXED);
        zeroed_to = next + __SLUICE_HEADER;
    }
    /* Pairs with the acquire of the consumer. */
    __atomic_store_n(&header[1], 1, __ATOMIC_RELEASE);
    head->published = next;
    __atomic_store_n(head->ring.pos, next, __ATOMIC_RELAXED);
    /* As in sluice_consumer_release(). */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (!__sluice_likely(__atomic_load_n(head->waiting, __ATOMIC_RELAXED) == 0)) {
        head->zeroed_to = zeroed_to;
        return __sluice_producer_publish(producer);
    }
    goal = (next + head->window) & ~(uint64_t)(__SLUICE_LINE - 1);
    if (goal > head->limit)
        goal = head->limit;
    for (; zeroed_to + __SLUICE_LINE <= goal; zeroed_to += __SLUICE_LINE)
        __builtin_memset(data + (zeroed_to & mask), 0, __SLUICE_LINE);
    for (; zeroed_to < goal; zeroed_to += sizeof(uint64_t))
        __builtin_memset(data + (zeroed_to & mask), 0, sizeof(uint64_t));
    head->zeroed_to = zeroed_to;
    return 0;
}

__sluice_inline int sluice_producer_reserve(struct sluice_producer *producer, size_t length, void **room, int timeout_ms)
{
    struct sluice_producer_head *head = (struct sluice_producer_head *)(void *)producer;

    if (__sluice_likely(head && room)) {
        uint64_t at = head->written;

        if (__sluice_likely(__sluice_has_room(head, at, length))) {
            *room = __sluice_bytes(__sluice_header(&head->ring, at));
            head->reserved = length;
            head->reserved_end = at + __SLUICE_HEADER + length;
            head->ring.records++;
            return 0;
        }
    }
    return __sluice_producer_reserve(producer, length, room, timeout_ms);
}

__sluice_inline int sluice_producer_commit(struct sluice_producer *producer, size_t length)
{
    struct sluice_producer_head *head = (struct sluice_producer_head *)(void *)producer;

    if (__sluice_likely(head && length <= head->length_max && length == head->reserved && __sluice_is_owned(&head->ring))) {
        uint64_t at = head->written;

        head->reserved = (size_t)-1;
        return __sluice_write(producer, head, at, __sluice_header(&head->ring, at), length);
    }
    return __sluice_producer_commit(producer, length);
}

/* Whether a record is a short structure, as the compiler knows. */
#define __sluice_is_structure(length) (__builtin_constant_p(length) && (length) % 8 == 0 && (length) <= 128)

/*
 * Copies a record. A short structure is copied by its words, because a program often stores these directly before: a load of several would
 * wait for the stores.
 */
__sluice_part void __sluice_copy(void *into, const void *from, size_t length)
{
    unsigned char *to = (unsigned char *)into;
    const unsigned char *record = (const unsigned char *)from;

    if (!__sluice_is_structure(length)) {
        __builtin_memcpy(into, from, length);
        return;
    }
#pragma GCC unroll 16
    for (size_t at = 0; at < length; at += 8)
        __builtin_memcpy(to + at, record + at, 8);
}

__sluice_inline int sluice_producer_send(struct sluice_producer *producer, const void *record, size_t length, int timeout_ms)
{
    struct sluice_producer_head *head = (struct sluice_producer_head *)(void *)producer;

    if (__sluice_likely(head && record && length <= __SLUICE_COPY_MAX)) {
        uint64_t at = head->written;

        if (__sluice_likely(__sluice_has_room(head, at, length))) {
            uint32_t *header = __sluice_header(&head->ring, at);

            __sluice_copy(__sluice_bytes(header), record, length);
            head->ring.records++;
            return __sluice_write(producer, head, at, header, length);
        }
    }
    /* The library gets a copy of a short structure, so that the compiler can keep the structure itself in registers. */
    if (__sluice_is_structure(length) && record) {
        uint64_t copy[16];

        __sluice_copy(copy, record, length);
        return __sluice_producer_send(producer, copy, length, timeout_ms);
    }
    return __sluice_producer_send(producer, record, length, timeout_ms);
}

/* The length of the next record; or -1 if there is none, or an invalid one. The producer may be malicious: each word is loaded once. */
__sluice_part int64_t __sluice_length(const struct sluice_consumer_head *head, const uint32_t *header)
{
    /* Pairs with the release of the producer that publishes the record. */
    if (__atomic_load_n(&header[1], __ATOMIC_ACQUIRE) == 1) {
        int64_t length = __atomic_load_n(&header[0], __ATOMIC_RELAXED);

        if (__sluice_likely(length <= head->length_max))
            return length;
    }
    return -1;
}

/*
 * Steps over a record. After some records of the same stride the processor predicts the branch: it goes on with the last stride, and does
 * not wait for the length. They are counted without a branch, so that other lengths cause no wrong predictions.
 */
__sluice_part void __sluice_advance(struct sluice_consumer_head *head, uint64_t length)
{
    uint64_t found = __sluice_stride(length), last = head->stride, alike = (head->alike + 1) & -(uint64_t)(found == last);

    head->alike = alike;
    head->stride = found;
    if (alike < __SLUICE_ALIKE) {
        head->position += found;
    } else {
        /* Equal, but not the same for the compiler. */
        __asm__("" : "+r"(last));
        head->position += last;
    }
}

__sluice_inline ssize_t sluice_consumer_recv(struct sluice_consumer *consumer, const void **record, int timeout_ms)
{
    struct sluice_consumer_head *head = (struct sluice_consumer_head *)(void *)consumer;

    if (__sluice_likely(head && record && head->position == head->released && __sluice_is_owned(&head->ring))) {
        const uint32_t *header = __sluice_header(&head->ring, head->position);
        int64_t length = __sluice_length(head, header);

        if (__sluice_likely(length >= 0)) {
            *record = __sluice_bytes(header);
            __sluice_advance(head, (uint64_t)length);
            head->ring.records++;
            return length;
        }
    }
    return __sluice_consumer_recv(consumer, record, timeout_ms);
}

__sluice_inline ssize_t sluice_consumer_recv_batch(struct sluice_consumer *consumer, struct iovec *records, size_t count, int timeout_ms)
{
    struct sluice_consumer_head *head = (struct sluice_consumer_head *)(void *)consumer;

    if (head && records && head->position == head->released && __sluice_is_owned(&head->ring)) {
        /* A copy, which the compiler keeps in registers. */
        struct sluice_consumer_head next = *head;
        /* Records and the header after them are within the ring, so that the loop ends whatever the producer writes. */
        uint64_t last = next.released + next.ring.mask + 1 - __SLUICE_HEADER;
        struct iovec *record = records, *end = records + count;
        size_t received;

        for (; record < end; record++) {
            uint64_t at = next.position;
            const uint32_t *header = __sluice_header(&next.ring, at);
            int64_t length = __sluice_length(&next, header);

            if (length < 0)
                break;
            __sluice_advance(&next, (uint64_t)length);
            if (next.position > last) {
                next.position = at;
                break;
            }
            record->iov_base = __sluice_bytes(header);
            record->iov_len = (size_t)length;
        }
        received = (size_t)(record - records);
        if (__sluice_likely(received > 0)) {
            head->position = next.position;
            head->stride = next.stride;
            head->alike = next.alike;
            head->ring.records += received;
            return (ssize_t)received;
        }
    }
    return __sluice_consumer_recv_batch(consumer, records, count, timeout_ms);
}

__sluice_inline int sluice_consumer_release(struct sluice_consumer *consumer)
{
    struct sluice_consumer_head *head = (struct sluice_consumer_head *)(void *)consumer;

    if (__sluice_likely(head && head->position != head->released && __sluice_is_owned(&head->ring))) {
        /* Pairs with the acquire of the producer: the bytes are not overwritten before they were read. */
        __atomic_store_n(head->ring.pos, head->position, __ATOMIC_RELEASE);
        /*
         * The compiler keeps the order of store and load. A producer that is about to sleep keeps that of the processor, by membarrier(2);
         * if it cannot, *attention is never 0.
         */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (__sluice_likely(__atomic_load_n(head->ring.attention, __ATOMIC_RELAXED) == 0)) {
            head->released = head->position;
            return 0;
        }
        /* The library repeats the release, and wakes the producer. */
    }
    return __sluice_consumer_release(consumer);
}

#undef __sluice_inline
#undef __sluice_part
#undef __sluice_likely
#undef __SLUICE_COPY_MAX
#undef __SLUICE_HEADER
#undef __SLUICE_LINE
#undef __SLUICE_WINDOW
#undef __SLUICE_ALIKE

#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLUICE_H */
