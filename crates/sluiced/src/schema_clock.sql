-- SPDX-License-Identifier: MIT OR Apache-2.0

-- The time of the store, and the clocks at a commit; in nanoseconds. No row: there was no commit yet. Within a boot the time of the
-- store is CLOCK_BOOTTIME + offset_ns. It began as CLOCK_REALTIME, and differs from it since that was set.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,                 -- /proc/sys/kernel/random/boot_id
    boottime_ns INTEGER NOT NULL,       -- CLOCK_BOOTTIME
    realtime_ns INTEGER NOT NULL,       -- CLOCK_REALTIME
    synchronised INTEGER NOT NULL,      -- 1: that was synchronised
    offset_ns INTEGER NOT NULL,
    offset_min_ns INTEGER NOT NULL,     -- offset_ns if no time had passed between the boot before and this one
    realtime_offset_ns INTEGER NOT NULL -- CLOCK_REALTIME - CLOCK_BOOTTIME when offset_ns was chosen
) STRICT;
