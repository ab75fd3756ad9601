// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps and a bucket in memory. Time passes only while everything waits.

mod histories;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::config::tests::{HEAD, parse};
use crate::engine::memory::{MESSAGE_MAX, MemoryBucket, MemoryEngine};
use crate::local_map::tests::{TestMap, VALUE_MAX};
use crate::map_counters::MapCounters;
use crate::map_rule::MapRule;
use crate::map_task::{MapContext, keep_same, run_until};
use crate::pairs::Pairs;

/// Until everything waits, also for another attempt.
const SETTLED: Duration = Duration::from_secs(60);

static INCARNATION: AtomicU64 = AtomicU64::new(1);

/// A map with a bridge.
struct Host {
    context: MapContext<MemoryEngine>,
    map: TestMap,
    pairs: Pairs,
}

fn rule(direction: &str) -> MapRule {
    let lines = format!("name = \"a\"\nbucket = \"b\"\ndirection = {direction}");
    let config = parse(&format!("{HEAD}[[map]]\n{lines}\n"));
    config.maps.into_iter().next().unwrap()
}

impl Host {
    fn new(engine: &MemoryEngine, direction: &str) -> Self {
        Self {
            context: MapContext {
                rule: rule(&format!("\"{direction}\"")),
                engine: engine.clone(),
                counters: MapCounters::default(),
                changing: Mutex::default(),
            },
            map: TestMap::default(),
            pairs: Pairs::new(INCARNATION.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Bridges while the script runs.
    async fn bridge<T>(&mut self, script: impl AsyncFnOnce(&TestMap) -> T) -> T {
        let script = script(&self.map);
        tokio::select! {
            done = script => done,
            () = keep_same(&self.context, &self.map, &mut self.pairs) => panic!("the map has ended"),
        }
    }

    /// Bridges until the script has ended, and then stops it as the daemon does.
    async fn bridge_and_stop(&mut self, script: impl Future<Output = ()>) {
        let following = keep_same(&self.context, &self.map, &mut self.pairs);
        run_until(&self.context.changing, following, script).await;
    }

    async fn settle(&mut self) {
        self.bridge(async |_| sleep(SETTLED).await).await;
    }

    fn is_same_as(&self, bucket: &MemoryBucket) -> bool {
        let encoded = |(key, value): (Vec<u8>, Vec<u8>)| (crate::key::encode(&key).unwrap(), value);
        let values: BTreeMap<_, _> = self.map.values().into_iter().map(encoded).collect();
        values == bucket.values()
    }
}

fn test(body: impl AsyncFnOnce(MemoryEngine)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(body(MemoryEngine::default()));
}

#[test]
fn the_bucket_follows_a_map_that_is_the_writer() {
    test(async |engine| {
        let mut host = Host::new(&engine, "out");
        host.map.change(b"one", Some(b"1"));
        host.map.change(b"two words", Some(b"2"));
        engine.bucket.change("foreign", Some(b"x"));
        engine.bucket.change("one", Some(b"x"));
        host.bridge(async |map| {
            sleep(SETTLED).await;
            map.change(b"three", Some(b"3"));
            map.change(b"one", None);
            sleep(SETTLED).await;
        })
        .await;
        let expected = [("=two=20words", "2"), ("three", "3")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(engine.bucket.values(), expected.into());
        assert_eq!(host.context.counters.out.get(), 5);
        assert_eq!(host.map.sequence(), 4);
    });
}

#[test]
fn the_map_follows_a_bucket_that_is_the_writer() {
    test(async |engine| {
        let mut host = Host::new(&engine, "in");
        host.map.change(b"foreign", Some(b"x"));
        host.map.change(b"one", Some(b"x"));
        host.map
            .change(&[b'a'; 4096], Some(b"too long for a bucket"));
        engine.bucket.change("one", Some(b"1"));
        engine.bucket.change("=two=20words", Some(b"2"));
        host.bridge(async |_| {
            sleep(SETTLED).await;
            engine.bucket.change("three", Some(b"3"));
            engine.bucket.change("one", None);
            sleep(SETTLED).await;
        })
        .await;
        let expected = [("two words", "2"), ("three", "3")];
        let expected = expected.map(|(key, value)| (key.into(), value.as_bytes().to_vec()));
        assert_eq!(host.map.values(), expected.into());
        assert_eq!(engine.bucket.revision(), 4);
        assert_eq!(host.context.counters.incoming.get(), 6);
    });
}

#[test]
fn both_sides_follow_each_other_and_nothing_goes_back() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.map.change(b"map", Some(b"1"));
        engine.bucket.change("bucket", Some(b"2"));
        host.settle().await;
        assert!(host.is_same_as(&engine.bucket));
        host.bridge(async |map| {
            map.change(b"bucket", Some(b"3"));
            engine.bucket.change("map", Some(b"4"));
            sleep(SETTLED).await;
            map.change(b"map", None);
            engine.bucket.change("bucket", None);
            sleep(SETTLED).await;
            map.change(b"map", Some(b"5"));
            sleep(SETTLED).await;
        })
        .await;
        assert!(host.is_same_as(&engine.bucket));
        assert_eq!(host.map.values(), [(b"map".to_vec(), b"5".to_vec())].into());
        // Each change was made once on the other side.
        let counters = &host.context.counters;
        assert_eq!((counters.out.get(), counters.incoming.get()), (4, 3));
        assert_eq!((host.map.sequence(), engine.bucket.revision()), (7, 7));
        assert_eq!(counters.conflicts.get(), 0);
    });
}

#[test]
fn what_both_sides_have_is_not_written() {
    test(async |engine| {
        for direction in ["out", "in", "both"] {
            let mut host = Host::new(&engine, direction);
            host.map.change(b"one", Some(b"1"));
            if engine.bucket.revision() == 0 {
                engine.bucket.change("one", Some(b"1"));
            }
            host.settle().await;
            assert_eq!((host.map.sequence(), engine.bucket.revision()), (1, 1));
        }
    });
}

#[test]
fn changes_of_both_sides_while_the_bridge_was_away_are_followed() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        for key in ["a", "b", "c", "d", "e", "f"] {
            host.map.change(key.as_bytes(), Some(b"0"));
        }
        host.settle().await;
        host.map.change(b"a", Some(b"1"));
        host.map.change(b"b", None);
        engine.bucket.change("c", Some(b"1"));
        engine.bucket.change("d", None);
        // Conflicts: a value stays, and that of the bucket counts.
        host.map.change(b"e", Some(b"map"));
        engine.bucket.change("e", Some(b"bucket"));
        host.map.change(b"f", Some(b"map"));
        engine.bucket.change("f", None);
        engine.bucket.forget_deletions();
        host.settle().await;
        let expected = [("a", "1"), ("c", "1"), ("e", "bucket"), ("f", "map")];
        let expected = expected.map(|(key, value)| (key.into(), value.as_bytes().to_vec()));
        assert_eq!(host.map.values(), expected.into());
        assert!(host.is_same_as(&engine.bucket));
        assert_eq!(host.context.counters.conflicts.get(), 2);
    });
}

#[test]
fn a_new_map_gets_what_the_bucket_has() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.map.change(b"a", Some(b"1"));
        host.settle().await;
        host.map = TestMap::default();
        host.pairs = Pairs::new(0);
        host.settle().await;
        assert!(host.is_same_as(&engine.bucket) && host.map.values().len() == 1);
    });
}

#[test]
fn a_put_of_the_last_process_is_recognised() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.map.change(b"a", Some(b"1"));
        let origin = host.pairs.origin(1);
        engine.bucket.change_with_origin("a", b"1", &origin);
        // The last process has not learned that it is stored.
        host.map.change(b"a", Some(b"2"));
        host.settle().await;
        assert_eq!(host.map.values(), [(b"a".to_vec(), b"2".to_vec())].into());
        assert!(host.is_same_as(&engine.bucket));
    });
}

#[test]
fn lost_events_lead_to_a_comparison() {
    test(async |engine| {
        for direction in ["out", "both"] {
            let mut host = Host::new(&engine, direction);
            host.map.change(b"gone", Some(b"0"));
            host.bridge(async |map| {
                sleep(SETTLED).await;
                map.change(b"gone", None);
                for number in 0..100_u32 {
                    map.change(number.to_string().as_bytes(), Some(b"1"));
                }
                sleep(SETTLED).await;
            })
            .await;
            assert_eq!(host.map.values().len(), 100);
            assert!(host.is_same_as(&engine.bucket));
            assert!(host.context.counters.compared.get() > 1);
        }
    });
}

#[test]
fn what_the_other_side_does_not_permit_holds_nothing_up() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.bridge(async |map| {
            sleep(SETTLED).await;
            map.change(b"long", Some(&[0; MESSAGE_MAX + 1]));
            map.change(&[b'k'; 4000], Some(b"1"));
            map.change(b"map", Some(b"1"));
            engine.bucket.change("long.too", Some(&[0; VALUE_MAX + 1]));
            engine.bucket.change("=no.encoding", Some(b"1"));
            engine.bucket.change("bucket", Some(b"1"));
            sleep(SETTLED).await;
        })
        .await;
        assert!(engine.bucket.values().contains_key("map"));
        assert!(host.map.values().contains_key(&b"bucket"[..]));
        assert_eq!(
            (engine.bucket.values().len(), host.map.values().len()),
            (4, 4)
        );
        let counters = &host.context.counters;
        assert_eq!(
            (counters.too_long.get(), counters.unknown_keys.get()),
            (3, 1)
        );
        assert_eq!(counters.failed.get(), 0);
    });
}

#[test]
fn a_full_map_is_filled_later() {
    test(async |engine| {
        let mut host = Host::new(&engine, "in");
        host.map.set_full(true);
        engine.bucket.change("one", Some(b"1"));
        host.settle().await;
        assert!(host.map.values().is_empty() && host.context.counters.failed.get() > 1);
        // Each comparison transfers the bucket.
        assert!(host.context.counters.compared.get() <= 3);
        host.map.set_full(false);
        host.settle().await;
        assert!(host.is_same_as(&engine.bucket));
    });
}

#[test]
fn a_key_that_the_bucket_refuses_holds_nothing_up() {
    test(async |engine| {
        for direction in ["out", "both"] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, direction);
            for key in ["a", "b", "c"] {
                host.map.change(key.as_bytes(), Some(b"1"));
            }
            engine.bucket.refuse(Some("a"));
            host.bridge(async |map| {
                sleep(Duration::from_secs(1)).await;
                map.change(b"b", Some(b"2"));
                sleep(Duration::from_secs(1)).await;
                assert_eq!(engine.bucket.values()["b"], b"2");
                assert_eq!(engine.bucket.values().len(), 2);
                engine.bucket.refuse(None);
                sleep(SETTLED).await;
            })
            .await;
            assert!(host.is_same_as(&engine.bucket));
            assert_eq!(host.context.counters.compared.get(), 2);
        }
    });
}

#[test]
fn slow_failures_do_not_compare_all_the_time() {
    test(async |engine| {
        let mut host = Host::new(&engine, "out");
        host.map.change(b"a", Some(b"1"));
        engine.bucket.silence();
        host.bridge(async |_| sleep(10 * SETTLED).await).await;
        assert!(host.context.counters.compared.get() < 30);
    });
}

#[test]
fn a_time_to_live_goes_along() {
    test(async |engine| {
        let time = Duration::from_secs(90);
        let mut host = Host::new(&engine, "both");
        host.bridge(async |map| {
            sleep(SETTLED).await;
            map.set_with(b"lease", b"1", time);
            sleep(SETTLED).await;
            assert_eq!(
                engine.bucket.content("lease").unwrap().time_to_live,
                Some(time)
            );
            // The bucket lets it expire itself; that is no deletion by this host.
            map.expire(b"lease");
            sleep(SETTLED).await;
            assert!(engine.bucket.content("lease").is_some());
            // It is created again, and the bucket has not let it expire yet.
            map.set_with(b"lease", b"2", time);
            sleep(SETTLED).await;
            assert_eq!(engine.bucket.content("lease").unwrap().value, "2");
            map.change(b"lease", Some(b"2"));
            sleep(SETTLED).await;
            assert_eq!(engine.bucket.content("lease").unwrap().time_to_live, None);
        })
        .await;
        assert_eq!(host.context.counters.conflicts.get(), 0);
    });
}

#[test]
fn times_to_live_that_a_rule_begins_to_keep_go_out() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.context.rule = rule("\"both\"\nttl = false");
        let time = Duration::from_secs(900);
        host.map.set_with(b"lease", b"1", time);
        host.settle().await;
        assert_eq!(engine.bucket.content("lease").unwrap().time_to_live, None);
        host.context.rule = rule("\"both\"");
        host.settle().await;
        let content = engine.bucket.content("lease").unwrap();
        assert_eq!(content.time_to_live, Some(time));
        assert_eq!(host.map.sequence(), 1);
    });
}

#[test]
fn an_expiry_of_a_writer_is_a_deletion() {
    test(async |engine| {
        let mut host = Host::new(&engine, "out");
        host.bridge(async |map| {
            sleep(SETTLED).await;
            map.set_with(b"lease", b"1", Duration::from_secs(90));
            sleep(SETTLED).await;
            map.expire(b"lease");
            sleep(SETTLED).await;
        })
        .await;
        assert!(engine.bucket.values().is_empty() && engine.bucket.revision() == 2);
    });
}

#[test]
fn a_map_that_ends_is_noticed() {
    test(async |engine| {
        for direction in ["out", "in", "both"] {
            let mut host = Host::new(&engine, direction);
            host.settle().await;
            let ended = keep_same(&host.context, &host.map, &mut host.pairs);
            let end = async {
                sleep(SETTLED).await;
                host.map.end();
                sleep(SETTLED).await;
            };
            tokio::select! {
                () = ended => {}
                () = end => panic!("it has ended"),
            }
        }
    });
}

#[test]
fn a_copy_that_others_change_is_repaired() {
    test(async |engine| {
        let mut host = Host::new(&engine, "in");
        for key in ["changed", "deleted", "expired"] {
            engine.bucket.change(key, Some(b"1"));
        }
        host.bridge(async |map| {
            sleep(SETTLED).await;
            map.change(b"changed", Some(b"x"));
            map.change(b"deleted", None);
            map.change(&[b'a'; 4096], Some(b"too long for a bucket"));
            map.expire(b"expired");
            sleep(SETTLED).await;
            assert_eq!(map.values().len(), 2);
            engine.bucket.change("expired", None);
            sleep(SETTLED).await;
        })
        .await;
        assert!(host.is_same_as(&engine.bucket) && host.map.values().len() == 2);
        assert_eq!(engine.bucket.revision(), 4);
        assert_eq!(host.context.counters.compared.get(), 1);
    });
}

#[test]
fn a_bucket_that_is_created_again_gets_what_the_map_has() {
    test(async |engine| {
        for direction in ["both", "out"] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, direction);
            host.map.change(b"one", Some(b"1"));
            host.map.change(b"two", Some(b"2"));
            host.settle().await;
            engine.bucket.recreate();
            engine.bucket.change("one", Some(b"1"));
            host.settle().await;
            assert!(host.is_same_as(&engine.bucket) && host.map.values().len() == 2);
        }
    });
}

#[test]
fn a_loss_of_the_server_is_a_change_of_the_bucket() {
    test(async |engine| {
        for (direction, value) in [("both", "1"), ("out", "2")] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, direction);
            host.bridge(async |map| {
                sleep(SETTLED).await;
                map.change(b"one", Some(b"1"));
                sleep(SETTLED).await;
                map.change(b"one", Some(b"2"));
                map.change(b"two", Some(b"2"));
                sleep(SETTLED).await;
            })
            .await;
            engine.bucket.lose(2);
            host.settle().await;
            assert!(host.is_same_as(&engine.bucket));
            assert_eq!(host.map.values()[&b"one"[..]], value.as_bytes());
        }
    });
}

#[test]
fn a_change_arrives_while_a_long_comparison_goes_on() {
    test(async |engine| {
        let mut host = Host::new(&engine, "in");
        for number in 0..50_u32 {
            host.map.change(number.to_string().as_bytes(), Some(b"0"));
        }
        engine.bucket.set_latency(Duration::from_secs(1));
        host.bridge(async |_| {
            sleep(Duration::from_secs(1)).await;
            engine.bucket.change("one", Some(b"1"));
            sleep(2 * SETTLED).await;
        })
        .await;
        assert!(host.is_same_as(&engine.bucket) && host.map.values().len() == 1);
        assert_eq!(host.context.counters.failed.get(), 0);
    });
}

#[test]
fn a_broken_connection_leads_to_a_comparison() {
    test(async |engine| {
        for direction in ["out", "in", "both"] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, direction);
            engine.bucket.change("one", Some(b"1"));
            host.map.change(b"one", Some(b"1"));
            host.bridge(async |_| {
                sleep(SETTLED).await;
                engine.bucket.lose(1);
                engine.bucket.break_connection();
                sleep(SETTLED).await;
            })
            .await;
            assert!(host.is_same_as(&engine.bucket), "{direction}");
            assert_eq!(host.map.values().len(), usize::from(direction == "out"));
            assert_eq!(host.context.counters.compared.get(), 2);
        }
    });
}

#[test]
fn a_replica_that_lags_behind_undoes_nothing() {
    test(async |engine| {
        for last in [Some(&b"new"[..]), None] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, "both");
            engine.bucket.change("a", Some(b"old"));
            host.bridge(async |map| {
                sleep(SETTLED).await;
                map.change(b"a", last);
                sleep(SETTLED).await;
            })
            .await;
            let (expected, changes) = (host.map.values(), host.map.sequence());
            engine.bucket.set_lag(1);
            host.settle().await;
            engine.bucket.set_lag(0);
            assert_eq!(host.map.values(), expected);
            // Of what was deleted nothing is known, so it is back for a moment.
            assert!(last.is_none() || host.map.sequence() == changes);
            assert!(host.is_same_as(&engine.bucket));
            assert_eq!(engine.bucket.revision(), 2);
        }
    });
}

#[test]
fn another_value_with_the_revision_of_a_lost_one_is_noticed() {
    test(async |engine| {
        for (direction, value) in [("out", "1"), ("in", "2"), ("both", "2")] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, direction);
            engine.bucket.change("a", Some(b"1"));
            host.map.change(b"a", Some(b"1"));
            host.settle().await;
            engine.bucket.lose(1);
            engine.bucket.change("a", Some(b"2"));
            host.settle().await;
            assert!(host.is_same_as(&engine.bucket), "{direction}");
            assert_eq!(host.map.values()[&b"a"[..]], value.as_bytes());
        }
    });
}

#[test]
fn a_value_of_the_bucket_that_the_bridge_has_not_seen_stays() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.bridge(async |map| {
            map.change(b"a", Some(b"0"));
            sleep(SETTLED).await;
            engine.bucket.hold(true);
            engine.bucket.change("a", Some(b"bucket"));
            map.change(b"a", Some(b"map"));
            sleep(SETTLED).await;
            assert_eq!(map.values()[&b"a"[..]], b"bucket");
            // A later change is none of an old value that arrives then.
            map.change(b"a", Some(b"later"));
            sleep(SETTLED).await;
            engine.bucket.hold(false);
            sleep(SETTLED).await;
            assert_eq!(map.values()[&b"a"[..]], b"later");
        })
        .await;
        assert!(host.is_same_as(&engine.bucket));
        assert_eq!(host.context.counters.conflicts.get(), 1);
        // The value, the conflict and the later value, and none of them again.
        assert_eq!((host.map.sequence(), engine.bucket.revision()), (4, 3));
    });
}

#[test]
fn a_value_that_is_set_while_the_deletion_comes_in_stays() {
    test(async |engine| {
        let mut host = Host::new(&engine, "both");
        host.bridge(async |map| {
            map.change(b"a", Some(b"0"));
            sleep(SETTLED).await;
            map.change_before(b"a", b"1");
            engine.bucket.change("a", None);
            sleep(SETTLED).await;
            assert_eq!(map.values()[&b"a"[..]], b"1");
        })
        .await;
        assert!(host.is_same_as(&engine.bucket));
    });
}

#[test]
fn a_value_that_came_in_during_the_stop_is_deleted_later() {
    test(async |engine| {
        for steps in 0..20 {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, "both");
            engine.bucket.change("a", Some(b"1"));
            let script = async {
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
            };
            host.bridge_and_stop(script).await;
            engine.bucket.change("a", None);
            host.settle().await;
            assert!(host.map.values().is_empty(), "{steps}");
            assert!(engine.bucket.values().is_empty());
        }
    });
}

#[test]
fn a_key_that_changes_while_the_bucket_lists_its_keys_is_not_deleted() {
    test(async |engine| {
        for direction in ["in", "both"] {
            let mut host = Host::new(&engine, direction);
            for key in ["a", "b", "c"] {
                engine.bucket.change(key, Some(b"0"));
            }
            host.settle().await;
            for steps in 0..20 {
                host.bridge(async |_| {
                    for _ in 0..steps {
                        tokio::task::yield_now().await;
                    }
                    engine.bucket.change("a", Some(b"1"));
                    sleep(SETTLED).await;
                })
                .await;
            }
            assert_eq!(host.map.deletions(), 0, "{direction}");
            assert!(host.is_same_as(&engine.bucket));
        }
    });
}

#[test]
fn of_a_key_that_changes_fast_the_last_value_is_put_once() {
    test(async |engine| {
        for direction in ["out", "both"] {
            engine.bucket.recreate();
            let mut host = Host::new(&engine, direction);
            host.bridge(async |map| {
                sleep(SETTLED).await;
                for number in ["1", "2", "3", "4"] {
                    map.change(b"a", Some(number.as_bytes()));
                }
                sleep(SETTLED).await;
            })
            .await;
            assert_eq!(engine.bucket.revision(), 1);
            assert!(host.is_same_as(&engine.bucket));
        }
    });
}
