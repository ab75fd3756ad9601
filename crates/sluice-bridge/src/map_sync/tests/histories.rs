// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random changes of maps and a bucket, while calls fail and bridges are killed.

use std::time::Duration;

use tokio::time::sleep;

use super::{Host, SETTLED, test};
use crate::engine::memory::MemoryBucket;
use crate::local_map::tests::TestMap;

const KEYS: [&str; 4] = ["a", "b", "c", "=d=20e"];

/// A change of one of a few keys, of one side.
fn change_one(random: &mut fastrand::Rng, hosts: &[&TestMap], bucket: &MemoryBucket, number: u32) {
    let encoded = KEYS[random.usize(..KEYS.len())];
    let key = crate::key::decode(encoded).unwrap();
    let value = (random.u8(..4) > 0).then(|| number.to_string());
    match hosts.get(random.usize(..=hosts.len())) {
        Some(map) => map.change(&key, value.as_deref().map(str::as_bytes)),
        None => {
            let value: Option<&'static [u8]> = value.map(|value| value.leak().as_bytes());
            bucket.change(encoded, value);
        }
    }
}

/// Two hosts change a bucket that others change, too, while calls fail, and the bridges are killed.
#[test]
fn hosts_converge() {
    for seed in 0..300 {
        test(async |engine| {
            let mut random = fastrand::Rng::with_seed(seed);
            let directions = ["both", ["both", "in"][random.usize(..2)]];
            let mut hosts = directions.map(|direction| Host::new(&engine, direction));
            let writers = directions
                .iter()
                .filter(|direction| **direction == "both")
                .count();
            let mut number = 0;
            for round in 0..6 {
                engine
                    .bucket
                    .fail(if round < 5 { 10 } else { 0 }, seed + round);
                engine.bucket.set_lag(random.usize(..4));
                let [one, two] = &mut hosts;
                let pause = Duration::from_millis(random.u64(..3000));
                one.bridge(async |first| {
                    two.bridge(async |second| {
                        for _ in 0..random.u32(..30) {
                            number += 1;
                            change_one(
                                &mut random,
                                &[first, second][..writers],
                                &engine.bucket,
                                number,
                            );
                            match random.u8(..4) {
                                0 => sleep(Duration::from_millis(random.u64(..1000))).await,
                                1 => tokio::task::yield_now().await,
                                _ => {}
                            }
                        }
                        sleep(if round < 5 { pause } else { SETTLED }).await;
                    })
                    .await;
                })
                .await;
                for _ in 0..random.u32(..6) {
                    number += 1;
                    let maps = [&hosts[0].map, &hosts[1].map];
                    change_one(&mut random, &maps[..writers], &engine.bucket, number);
                }
            }
            engine.bucket.fail(0, 0);
            let [one, two] = &mut hosts;
            one.bridge(async |_| two.settle().await).await;
            for host in &hosts {
                assert!(
                    host.is_same_as(&engine.bucket),
                    "seed {seed}: {:?}, {:?}",
                    host.map.values(),
                    engine.bucket.values()
                );
            }
        });
    }
}

/// Of a key that one host changes the last value is the last one everywhere, whatever fails.
#[test]
fn no_change_of_a_single_writer_is_undone() {
    for seed in 0..200 {
        test(async |engine| {
            let mut random = fastrand::Rng::with_seed(seed);
            let direction = ["both", "out"][random.usize(..2)];
            let mut host = Host::new(&engine, direction);
            for round in 0..5 {
                engine.bucket.fail(20, seed + round);
                engine.bucket.set_lag(random.usize(..4));
                let pause = Duration::from_millis(random.u64(..2000));
                host.bridge(async |map| {
                    for number in 0..random.u32(..20) {
                        map.change(b"a", Some(format!("{round} {number}").as_bytes()));
                        sleep(Duration::from_millis(random.u64(..200))).await;
                    }
                    sleep(pause).await;
                })
                .await;
                host.map
                    .change(b"a", Some(format!("{round} last").as_bytes()));
            }
            engine.bucket.fail(0, 0);
            host.settle().await;
            assert_eq!(host.map.values()[&b"a"[..]], b"4 last", "seed {seed}");
            assert!(host.is_same_as(&engine.bucket), "seed {seed}");
        });
    }
}
