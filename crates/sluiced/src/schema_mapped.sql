-- SPDX-License-Identifier: MIT OR Apache-2.0

-- The table in memory that readers of a map with the flag SLUICE_MAP_MAPPED map; 0 without the flag.
ALTER TABLE maps ADD COLUMN cell_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE maps ADD COLUMN table_bytes INTEGER NOT NULL DEFAULT 0;
