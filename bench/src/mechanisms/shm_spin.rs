// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory whose two sides always spin: the latency of user space without regard to processor time.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use anyhow::Result;

use super::Mechanism;
use super::mechanism::never_sleeping;
use super::shared_ring::{self, Position, Ring, WaitStrategy};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        in_flight: Box::new(shared_ring::slots),
        unsupported_reason: Box::new(never_sleeping),
        ..Mechanism::new("shm-spin", Waiting::Spin, |size| {
            Ring::link(size, Spinning, Spinning)
        })
    }
}

#[derive(Clone)]
pub struct Spinning;

impl WaitStrategy for Spinning {
    fn wait(&self, _position: &Position, _seen: u32) -> Result<()> {
        spin_loop();
        Ok(())
    }

    fn publish(
        &self,
        position: &Position,
        count: u32,
        _enough: impl FnOnce() -> bool,
    ) -> Result<()> {
        // Pairs with the Acquire loads of the count in the ring.
        position.count.store(count, Ordering::Release);
        Ok(())
    }
}
