// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchers in a tokio runtime. Of the other operations only those of a durable map wait for another process, its store: call them in
//! `tokio::task::spawn_blocking`.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::Interest;
use tokio::task::coop::poll_proceed;
use tokio::time;

use super::error::WatchError;
use super::event::Event;
use super::watcher::Watcher;
use crate::system_error::SystemError;
use crate::tokio::Registered;

/// A [`Watcher`] with asynchronous waits. As a [`Stream`] it yields the events.
///
/// Calls are cancel safe: one that is dropped while it waits has received nothing.
///
/// ```no_run
/// use sluice::Map;
/// use sluice::map::{AsyncWatcher, WatchFrom};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let map = Map::named("sessions").create(true).open()?;
/// let mut watcher = AsyncWatcher::new(map.watch(WatchFrom::Now)?)?;
/// loop {
///     let event = watcher.recv().await?;
///     println!("{} {:?}: {:?}", event.change, event.key, map.get(&event.key)?);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncWatcher {
    watcher: Watcher,
    ready: Registered,
}

impl AsyncWatcher {
    /// Needs a runtime with I/O enabled.
    pub fn new(watcher: Watcher) -> Result<Self, WatchError> {
        let ready = Registered::new(
            &watcher,
            Interest::READABLE,
            "registering the map in the runtime",
        )?;
        Ok(Self { watcher, ready })
    }

    /// As [`Watcher::recv`].
    pub async fn recv(&mut self) -> Result<Event, WatchError> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`WatchError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<Event, WatchError> {
        let received = time::timeout(timeout, self.recv()).await;
        received.unwrap_or(Err(WatchError::TimedOut(timeout)))
    }

    /// As [`Watcher::try_recv`].
    pub fn try_recv(&mut self) -> Result<Event, WatchError> {
        self.watcher.try_recv()
    }

    /// The watcher, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_mut(&mut self) -> &mut Watcher {
        &mut self.watcher
    }

    pub fn into_inner(self) -> Watcher {
        self.watcher
    }

    /// Attempts to receive before it waits, and after each wake-up.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, WatchError>> {
        let budget = ready!(poll_proceed(cx));
        loop {
            match self.watcher.try_recv() {
                Err(WatchError::Empty) => {}
                other => {
                    budget.made_progress();
                    return Poll::Ready(other);
                }
            }
            let mut ready = ready!(self.ready.poll_read_ready(cx))
                .map_err(|source| SystemError::new("waiting for the map in the runtime", source))?;
            ready.clear_ready();
        }
    }
}

impl Stream for AsyncWatcher {
    type Item = Result<Event, WatchError>;

    /// An error does not end the stream: that of a destroyed map is returned again.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx).map(Some)
    }
}
