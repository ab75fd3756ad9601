// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use tokio::time::sleep;

/// Waits between attempts: each twice as long as the one before, up to a maximum.
pub struct Backoff {
    first: Duration,
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            next: first,
            max,
        }
    }

    pub async fn wait(&mut self) {
        let delay = self.next;
        self.next = (2 * delay).min(self.max);
        sleep(delay).await;
    }

    /// An attempt has succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}
