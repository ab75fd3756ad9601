-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The store of sluiced(8): PRAGMA user_version is 3. schema_clock.sql has its last table, schema_mapped.sql the last columns of maps.
-- To read it, also while the daemon runs:
--     sqlite3 -readonly /var/lib/sluice/maps.db "SELECT path, name, applied FROM maps"
-- It must not be changed by others. Numbers of 64 bits without a sign that exceed 2^63 - 1 are stored as negative ones.

-- The durable maps.
CREATE TABLE maps (
    id INTEGER PRIMARY KEY,             -- not used again while there is a row of it in any table
    path TEXT NOT NULL,                 -- of the cgroup, from the root of the hierarchy; any bytes
    name TEXT NOT NULL,                 -- any bytes
    uid INTEGER NOT NULL,               -- owner
    gid INTEGER NOT NULL,
    mode INTEGER NOT NULL,              -- permission bits
    flags INTEGER NOT NULL,             -- SLUICE_MAP_DURABLE 1, _INTERVAL 2, _REFUSE 4, _MAPPED 8
    capacity INTEGER NOT NULL,          -- bytes in the kernel
    entries_max INTEGER NOT NULL,       -- 0: no limit but the bytes
    events INTEGER NOT NULL,            -- changes that the kernel keeps for watchers
    deadline_ms INTEGER NOT NULL,
    interval_ms INTEGER NOT NULL,
    applied INTEGER NOT NULL,           -- all changes up to this number are stored
    reserved INTEGER NOT NULL,          -- no change has a greater number
    detached INTEGER NOT NULL,          -- 1: not attached when the daemon starts
    created INTEGER NOT NULL,           -- seconds since 1970, by the clock of the day
    orphaned INTEGER,                   -- since when its cgroup is gone, in seconds of the time of the store; NULL: it exists
    stored_entries INTEGER NOT NULL,    -- rows of the next table
    stored_bytes INTEGER NOT NULL,      -- of their keys and values
    UNIQUE (path, name)
) STRICT;

-- The entries of all maps, also of those that are expired but whose expiry is not stored yet. Without row ids, entries of a map are
-- side by side in the order in which a restoration reads them, and short ones need less space; long ones need more time to store,
-- which is little beside that of the disk.
CREATE TABLE entries (
    map INTEGER NOT NULL,               -- maps.id or removed.map
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,           -- number of the change
    expires_ns INTEGER NOT NULL,        -- by the time of the store, see clock; 0: never
    PRIMARY KEY (map, key)
) STRICT, WITHOUT ROWID;

-- Maps that are removed, whose entries are deleted later, some in each transaction.
CREATE TABLE removed (
    map INTEGER PRIMARY KEY
) STRICT;
