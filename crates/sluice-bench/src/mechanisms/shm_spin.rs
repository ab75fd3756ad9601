// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory whose two sides never sleep: what user space can do when processors cost nothing.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use anyhow::Result;

use super::shared_ring::{Position, Rest, Ring};
use super::{Link, Mechanism, Task, Waiting, never_sleeping};

pub struct ShmSpin;

impl Mechanism for ShmSpin {
    fn name(&self) -> &'static str {
        "shm-spin"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        never_sleeping(task)
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Ring::new(size, Spinning, Spinning)?))
    }
}

#[derive(Clone)]
pub struct Spinning;

impl Rest for Spinning {
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
        // The pair is in the ring, where the other side looks at the count.
        position.count.store(count, Ordering::Release);
        Ok(())
    }
}
