// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests: one file per topic, one behaviour per test.

mod atomicity;
mod bad_buffers;
mod bus_batch;
mod bus_broadcast;
mod bus_cli;
mod bus_faults;
mod bus_formats;
mod bus_info;
mod bus_library;
mod bus_limits;
mod bus_map;
mod bus_monitor;
mod bus_multicast;
mod bus_open;
mod bus_order;
mod bus_requests;
mod bus_requests_library;
mod bus_unicast;
mod bus_uring;
mod bus_wait;
mod cgroup_isolation;
mod cli;
mod cli_doctor;
mod cli_output;
mod cli_top;
mod cli_unload;
mod clock;
mod conformance;
mod ctl_blocking_open;
mod ctl_containers;
mod ctl_destroy;
mod ctl_fault;
mod ctl_fd_passing;
mod ctl_invalid;
mod ctl_list;
mod ctl_names;
mod ctl_observe;
mod ctl_open;
mod ctl_permissions;
mod ctl_persist;
mod ctl_quota;
mod ctl_quota_memory;
mod ctl_quota_scopes;
mod ctl_races;
mod ctl_scopes;
mod ctl_struct_size;
mod device;
mod endpoint_flags;
mod epollexclusive;
mod examples;
mod exhaustion;
mod fail_nth;
mod fail_nth_durable;
mod fail_nth_map;
mod feed_cli;
mod feed_library;
mod feed_map;
mod feed_open;
mod feed_publish;
mod feed_read;
mod feed_simulator;
mod hft;
mod hostile_mappings;
mod hostile_memory;
mod hotplug;
mod kill_storm;
mod kinds;
mod library;
mod locks;
mod map_batch;
mod map_cli;
mod map_durable_changes;
mod map_durable_charges;
mod map_durable_create;
mod map_durable_daemon;
mod map_durable_keeper;
mod map_durable_library;
mod map_durable_malformed;
mod map_durable_mapped;
mod map_durable_memory;
mod map_durable_open;
mod map_durable_restore;
mod map_durable_stream;
mod map_durable_wait;
mod map_library;
mod map_limits;
mod map_mapped;
mod map_netlink;
mod map_netlink_access;
mod map_netlink_lifetime;
mod map_netlink_malformed;
mod map_netlink_memory;
mod map_netlink_names;
mod map_netlink_operations;
mod map_netlink_watch;
mod map_operations;
mod map_races;
mod map_watch;
mod memory_high;
mod myipc;
mod no_cgroup2;
mod object_lifetime;
mod open;
mod page_faults;
mod page_reuse;
mod pipe_ioctls;
mod poll;
mod read_write;
mod readme;
mod ring_cli;
mod ring_destroy;
mod ring_limits;
mod ring_mmap;
mod ring_numa;
mod ring_open;
mod ring_races;
mod ring_wait;
mod seccomp;
mod shared_map;
mod shell_programs;
mod siblings;
mod sigkill;
mod signals;
mod splice;
mod stopped_peers;
mod stress;
mod suspend;
mod uring;
mod vectors;
mod wake_one;

use crate::registry::Topic;

/// Basic topics come first, so that the first failure is the one to look at.
pub const TOPICS: &[Topic] = &[
    open::TOPIC,
    read_write::TOPIC,
    endpoint_flags::TOPIC,
    poll::TOPIC,
    signals::TOPIC,
    bad_buffers::TOPIC,
    wake_one::TOPIC,
    epollexclusive::TOPIC,
    examples::TOPIC,
    atomicity::TOPIC,
    page_faults::TOPIC,
    splice::TOPIC,
    pipe_ioctls::TOPIC,
    page_reuse::TOPIC,
    uring::TOPIC,
    device::TOPIC,
    cgroup_isolation::TOPIC,
    locks::TOPIC,
    sigkill::TOPIC,
    object_lifetime::TOPIC,
    shell_programs::TOPIC,
    ctl_open::TOPIC,
    ctl_blocking_open::TOPIC,
    ctl_names::TOPIC,
    ctl_observe::TOPIC,
    ctl_scopes::TOPIC,
    ctl_containers::TOPIC,
    siblings::TOPIC,
    seccomp::TOPIC,
    ctl_fd_passing::TOPIC,
    ctl_permissions::TOPIC,
    ctl_list::TOPIC,
    ctl_persist::TOPIC,
    ctl_destroy::TOPIC,
    ctl_quota::TOPIC,
    ctl_quota_scopes::TOPIC,
    ctl_quota_memory::TOPIC,
    ctl_invalid::TOPIC,
    ctl_fault::TOPIC,
    ctl_struct_size::TOPIC,
    ctl_races::TOPIC,
    ring_open::TOPIC,
    ring_limits::TOPIC,
    ring_mmap::TOPIC,
    ring_wait::TOPIC,
    ring_destroy::TOPIC,
    ring_numa::TOPIC,
    ring_races::TOPIC,
    feed_open::TOPIC,
    feed_read::TOPIC,
    feed_map::TOPIC,
    feed_simulator::TOPIC,
    feed_publish::TOPIC,
    bus_open::TOPIC,
    bus_broadcast::TOPIC,
    bus_multicast::TOPIC,
    bus_unicast::TOPIC,
    bus_formats::TOPIC,
    bus_batch::TOPIC,
    bus_wait::TOPIC,
    bus_map::TOPIC,
    bus_faults::TOPIC,
    bus_info::TOPIC,
    bus_monitor::TOPIC,
    bus_limits::TOPIC,
    bus_order::TOPIC,
    bus_requests::TOPIC,
    bus_uring::TOPIC,
    map_operations::TOPIC,
    map_batch::TOPIC,
    map_watch::TOPIC,
    memory_high::TOPIC,
    stopped_peers::TOPIC,
    map_limits::TOPIC,
    map_mapped::TOPIC,
    map_races::TOPIC,
    map_netlink::TOPIC,
    map_netlink_malformed::TOPIC,
    map_netlink_names::TOPIC,
    map_netlink_operations::TOPIC,
    map_netlink_access::TOPIC,
    map_netlink_watch::TOPIC,
    map_netlink_lifetime::TOPIC,
    map_netlink_memory::TOPIC,
    map_durable_open::TOPIC,
    map_durable_changes::TOPIC,
    map_durable_wait::TOPIC,
    map_durable_stream::TOPIC,
    map_durable_keeper::TOPIC,
    map_durable_restore::TOPIC,
    map_durable_create::TOPIC,
    map_durable_charges::TOPIC,
    map_durable_malformed::TOPIC,
    map_durable_mapped::TOPIC,
    map_durable_memory::TOPIC,
    exhaustion::TOPIC,
    hostile_memory::TOPIC,
    hostile_mappings::TOPIC,
    hotplug::TOPIC,
    suspend::TOPIC,
    vectors::TOPIC,
    kinds::TOPIC,
    fail_nth::TOPIC,
    fail_nth_map::TOPIC,
    fail_nth_durable::TOPIC,
    library::TOPIC,
    cli::TOPIC,
    cli_output::TOPIC,
    cli_top::TOPIC,
    cli_doctor::TOPIC,
    cli_unload::TOPIC,
    conformance::TOPIC,
    ring_cli::TOPIC,
    bus_library::TOPIC,
    bus_requests_library::TOPIC,
    bus_cli::TOPIC,
    map_library::TOPIC,
    map_cli::TOPIC,
    map_durable_library::TOPIC,
    map_durable_daemon::TOPIC,
    clock::TOPIC,
    feed_library::TOPIC,
    feed_cli::TOPIC,
    readme::TOPIC,
    myipc::TOPIC,
    hft::TOPIC,
    shared_map::TOPIC,
    stress::TOPIC,
    kill_storm::TOPIC,
    no_cgroup2::TOPIC,
];
