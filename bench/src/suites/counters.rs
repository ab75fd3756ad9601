// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters that processes share, in a cache line each.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use sluice_testkit::shared::SharedWords;

pub struct Counters(SharedWords);

impl Counters {
    pub fn new(count: usize) -> Result<Self> {
        SharedWords::new(count * SharedWords::PER_LINE).map(Self)
    }

    pub fn at(&self, number: usize) -> &AtomicU64 {
        &self.0.words()[number * SharedWords::PER_LINE]
    }

    pub fn total(&self) -> u64 {
        self.all().sum()
    }

    pub fn get(&self, number: usize) -> u64 {
        self.at(number).load(Ordering::Acquire)
    }

    pub fn all(&self) -> impl Iterator<Item = u64> {
        let words = self.0.words().iter().step_by(SharedWords::PER_LINE);
        words.map(|word| word.load(Ordering::Acquire))
    }

    /// Pairs with the acquire loads.
    pub fn set(&self, number: usize, value: u64) {
        self.at(number).store(value, Ordering::Release);
    }
}
