// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every store must do; each implementation runs it.

use crate::store::{
    MapId, PageLimit, Params, Store, StoredClock, StoredEntry, StoredMap, Usage, UsageChange, Write,
};

const PAGE: PageLimit = PageLimit {
    entries: 256,
    bytes: 1 << 20,
};

/// A map of this id, path and name.
pub fn sample(id: i64, path: &str, name: &str) -> StoredMap {
    StoredMap {
        id: MapId(id),
        path: path.into(),
        name: name.into(),
        params: Params {
            uid: 1000,
            gid: 1001,
            mode: 0o640,
            flags: 11,
            capacity: 4 << 20,
            entries_max: u64::MAX,
            events: 1024,
            deadline_ms: 30_000,
            interval_ms: 1000,
            cell: 256,
            table: 1 << 20,
        },
        applied: 0,
        reserved: 65_536,
        detached: false,
        created: 1_700_000_000,
        orphaned: None,
        usage: Usage::default(),
    }
}

/// Sets an entry of a map of this id, which is created if there is none.
pub fn set(store: &mut impl Store, id: i64, key: &[u8], value: &[u8]) {
    if store.maps().unwrap().iter().all(|map| map.id != MapId(id)) {
        let map = sample(id, "/a", &format!("map{id}"));
        store.commit(&[Write::Create(&map)]).unwrap();
    }
    store.commit(&[entry(id, key, value, 1)]).unwrap();
}

fn entry<'a>(id: i64, key: &'a [u8], value: &'a [u8], version: u64) -> Write<'a> {
    Write::Set {
        map: MapId(id),
        key,
        value,
        version,
        expires_ns: version << 40,
    }
}

pub fn fill(store: &mut impl Store) {
    for (id, key) in [(1, "a"), (1, "b"), (2, "a"), (3, "z")] {
        set(store, id, key.as_bytes(), key.repeat(9).as_bytes());
    }
}

/// Everything that can be read.
pub fn content(store: &mut impl Store) -> (Vec<StoredMap>, Vec<StoredEntry>) {
    let maps = store.maps().unwrap();
    let entries = maps.iter().flat_map(|map| all(store, map.id)).collect();
    (maps, entries)
}

fn all(store: &mut impl Store, map: MapId) -> Vec<StoredEntry> {
    store.page(map, None, PAGE).unwrap()
}

/// `new` returns an empty store.
pub fn check<S: Store>(mut new: impl FnMut() -> S) {
    a_map_is_stored_with_all_fields(&mut new());
    bytes_of_names_keys_and_values_are_kept(&mut new());
    a_second_map_of_a_name_fails_and_changes_nothing(&mut new());
    entries_are_replaced_and_deleted(&mut new());
    an_entry_expires_only_with_its_version(&mut new());
    usage_is_that_of_the_entries(&mut new());
    pages_are_in_order_and_within_their_limits(&mut new());
    a_page_has_what_was_committed_after_the_page_before(&mut new());
    marks_and_numbers_are_stored(&mut new());
    a_removed_map_is_gone_and_its_entries_go_later(&mut new());
    writes_of_an_unknown_map_change_nothing(&mut new());
    ids_are_not_used_again(&mut new());
    the_last_clock_is_stored(&mut new());
    it_is_the_same_after_reopening(&mut new());
}

fn a_map_is_stored_with_all_fields(store: &mut impl Store) {
    let map = StoredMap {
        applied: u64::MAX - 1,
        reserved: u64::MAX,
        detached: true,
        orphaned: Some(1_800_000_000),
        ..sample(5, "/a/b", "lock")
    };
    store.commit(&[Write::Create(&map)]).unwrap();
    assert_eq!(store.maps().unwrap(), [map]);
}

fn bytes_of_names_keys_and_values_are_kept(store: &mut impl Store) {
    let map = StoredMap {
        path: b"/\xff'\"\n".to_vec(),
        name: b"\xc3\x28%".to_vec(),
        ..sample(1, "", "")
    };
    let every: Vec<u8> = (0..=255).collect();
    let writes = [
        Write::Create(&map),
        entry(1, &every, &every, 7),
        entry(1, b"\0", b"", 8),
    ];
    store.commit(&writes).unwrap();
    assert_eq!(store.maps().unwrap()[0].path, map.path);
    assert_eq!(store.maps().unwrap()[0].name, map.name);
    let values: Vec<_> = all(store, map.id);
    assert_eq!(values[0].key, b"\0");
    assert_eq!(values[1].key, every);
    assert_eq!(values[1].value, every);
    assert_eq!((values[1].version, values[1].expires_ns), (7, 7 << 40));
}

fn a_second_map_of_a_name_fails_and_changes_nothing(store: &mut impl Store) {
    let (first, second) = (sample(1, "/a", "x"), sample(2, "/a", "x"));
    store.commit(&[Write::Create(&first)]).unwrap();
    let writes = [entry(1, b"k", b"v", 1), Write::Create(&second)];
    store.commit(&writes).unwrap_err();
    store.reopen().unwrap();
    assert_eq!(store.maps().unwrap(), [first]);
    assert_eq!(all(store, MapId(1)), []);
}

fn entries_are_replaced_and_deleted(store: &mut impl Store) {
    let map = sample(1, "/a", "x");
    let writes = [
        Write::Create(&map),
        entry(1, b"a", b"1", 1),
        entry(1, b"b", b"2", 2),
        entry(1, b"a", b"3", 3),
        Write::Delete {
            map: map.id,
            key: b"b",
        },
        Write::Delete {
            map: map.id,
            key: b"c",
        },
    ];
    store.commit(&writes).unwrap();
    let expected = StoredEntry {
        key: b"a".to_vec(),
        value: b"3".to_vec(),
        version: 3,
        expires_ns: 3 << 40,
    };
    assert_eq!(all(store, map.id), [expected]);
}

fn an_entry_expires_only_with_its_version(store: &mut impl Store) {
    fill(store);
    let expire = |version| Write::Expire {
        map: MapId(3),
        key: b"z",
        version,
    };
    store.commit(&[expire(2)]).unwrap();
    assert_eq!(all(store, MapId(3)).len(), 1);
    store.commit(&[expire(1)]).unwrap();
    assert_eq!(all(store, MapId(3)), []);
}

fn usage_is_that_of_the_entries(store: &mut impl Store) {
    fill(store);
    let usage = |store: &mut dyn Store, id| {
        let maps = store.maps().unwrap();
        let map = maps.iter().find(|map| map.id == MapId(id)).unwrap();
        (map.usage.entries, map.usage.bytes)
    };
    assert_eq!(usage(store, 1), (2, 20));
    let changes = store.commit(&[entry(1, b"a", b"", 2)]).unwrap();
    let (entries, bytes) = (0, -9);
    assert_eq!(changes.0[&MapId(1)], UsageChange { entries, bytes });
    assert_eq!(usage(store, 1), (2, 11));
    let delete = |key| Write::Delete { map: MapId(1), key };
    store
        .commit(&[delete(b"b"), delete(b"b"), delete(b"?")])
        .unwrap();
    assert_eq!(usage(store, 1), (1, 1));
    let expire = Write::Expire {
        map: MapId(1),
        key: b"a",
        version: 2,
    };
    store.commit(&[expire.clone(), expire]).unwrap();
    assert_eq!(usage(store, 1), (0, 0));
    assert_eq!(usage(store, 2), (1, 10));
}

fn pages_are_in_order_and_within_their_limits(store: &mut impl Store) {
    fill(store);
    let keys: Vec<Vec<u8>> = (1..=10_u8)
        .map(|number| vec![number; number.into()])
        .collect();
    for key in keys.iter().rev() {
        set(store, 4, key, &[0; 100]);
    }
    let mut page = |after: Option<&[u8]>, entries, bytes| {
        let page = store.page(MapId(4), after, PageLimit { entries, bytes });
        page.unwrap()
            .into_iter()
            .map(|entry| entry.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(page(None, 256, 1 << 20), keys);
    assert_eq!(page(None, 3, 1 << 20), keys[..3]);
    assert_eq!(page(Some(&keys[2]), 3, 1 << 20), keys[3..6]);
    assert_eq!(page(Some(&keys[9]), 3, 1 << 20), keys[10..]);
    assert_eq!(page(None, 256, 1), keys[..1]);
    assert_eq!(page(None, 256, 150), keys[..2]);
}

fn a_page_has_what_was_committed_after_the_page_before(store: &mut impl Store) {
    fill(store);
    for key in 1..=9 {
        set(store, 4, &[key], b"");
    }
    let (map, limit) = (
        MapId(4),
        PageLimit {
            entries: 2,
            bytes: 100,
        },
    );
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = store.page(map, after.as_deref(), limit).unwrap();
        let Some(last) = page.last() else { break };
        let next = last.key[0] + 1;
        after = Some(last.key.clone());
        seen.extend(page.into_iter().map(|entry| entry.key[0]));
        // Also without a commit between two pages.
        if next % 4 == 1 {
            store
                .commit(&[Write::Delete { map, key: &[next] }])
                .unwrap();
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 6, 7, 8, 9]);
}

fn marks_and_numbers_are_stored(store: &mut impl Store) {
    fill(store);
    let map = MapId(2);
    let progress = Write::Progress {
        map,
        applied: 7,
        reserved: 9,
    };
    let (detached, since) = (true, Some(5));
    let writes = [
        progress,
        Write::Detached { map, detached },
        Write::Orphaned { map, since },
    ];
    store.commit(&writes).unwrap();
    let maps = store.maps().unwrap();
    let fields = |map: &StoredMap| (map.applied, map.reserved, map.detached, map.orphaned);
    assert_eq!(fields(&maps[0]), (0, 65_536, false, None));
    assert_eq!(fields(&maps[1]), (7, 9, true, Some(5)));
    let (detached, since) = (false, None);
    let writes = [
        Write::Detached { map, detached },
        Write::Orphaned { map, since },
    ];
    store.commit(&writes).unwrap();
    let maps = store.maps().unwrap();
    assert_eq!(fields(&maps[1]), (7, 9, false, None));
}

fn a_removed_map_is_gone_and_its_entries_go_later(store: &mut impl Store) {
    for number in 0..10_u8 {
        set(store, 1, &[number], b"value");
        set(store, 2, &[number], b"value");
    }
    assert_eq!(store.removed().unwrap(), None);
    store.commit(&[Write::Remove(MapId(1))]).unwrap();
    assert_eq!(store.maps().unwrap().len(), 1);
    // A new map of the name is another one.
    let map = sample(3, "/a", "map1");
    store.commit(&[Write::Create(&map)]).unwrap();
    assert_eq!(all(store, map.id), []);
    let mut transactions = 0;
    while let Some(map) = store.removed().unwrap() {
        assert_eq!(map, MapId(1));
        store.commit(&[Write::Purge { map, entries: 4 }]).unwrap();
        transactions += 1;
    }
    assert_eq!(transactions, 3);
    assert_eq!(all(store, MapId(1)), []);
    assert_eq!(all(store, MapId(2)).len(), 10);
}

fn writes_of_an_unknown_map_change_nothing(store: &mut impl Store) {
    fill(store);
    let before = content(store);
    let map = MapId(99);
    let writes = [
        entry(99, b"k", b"v", 1),
        Write::Delete { map, key: b"k" },
        Write::Progress {
            map,
            applied: 1,
            reserved: 2,
        },
        Write::Remove(map),
        Write::Purge { map, entries: 9 },
        Write::Purge {
            map: MapId(1),
            entries: 9,
        },
    ];
    store.commit(&writes).unwrap();
    assert_eq!(content(store), before);
    assert_eq!(store.removed().unwrap(), None);
    assert_eq!(all(store, map), []);
}

fn ids_are_not_used_again(store: &mut impl Store) {
    assert_eq!(store.last_id().unwrap(), 0);
    fill(store);
    assert_eq!(store.last_id().unwrap(), 3);
    store.commit(&[Write::Remove(MapId(3))]).unwrap();
    assert_eq!(store.last_id().unwrap(), 3);
}

pub fn clock(boot: &str) -> StoredClock {
    StoredClock {
        boot: boot.to_owned(),
        boottime: 1,
        realtime: i64::MAX,
        synchronised: true,
        offset: -2,
        offset_min: i64::MIN,
        realtime_offset: 3,
    }
}

fn the_last_clock_is_stored(store: &mut impl Store) {
    assert_eq!(store.clock().unwrap(), None);
    for boot in ["first", "second"] {
        let clock = clock(boot);
        store.commit(&[Write::Clock(&clock)]).unwrap();
        store.reopen().unwrap();
        assert_eq!(store.clock().unwrap(), Some(clock));
    }
}

fn it_is_the_same_after_reopening(store: &mut impl Store) {
    fill(store);
    let before = content(store);
    store.reopen().unwrap();
    assert_eq!(content(store), before);
}
