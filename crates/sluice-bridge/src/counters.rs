// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has happened to the messages of a rule, and log lines that an endless cause repeats rarely.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use crate::log;

/// The same line is written at most this often.
const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Counter {
    count: Cell<u64>,
    written: Cell<Option<Instant>>,
    /// Of the count, what a line has told.
    told: Cell<u64>,
}

impl Counter {
    pub fn get(&self) -> u64 {
        self.count.get()
    }

    /// Of the count, what a line has told.
    #[cfg(test)]
    pub fn told(&self) -> u64 {
        self.told.get()
    }

    pub fn add(&self, count: u64) {
        self.count.set(self.count.get() + count);
    }

    /// Counts, and writes the line with the number of messages since the last such line, unless that is not long ago.
    pub fn report(&self, count: u64, line: impl FnOnce(u64) -> String) {
        self.add(count);
        let now = Instant::now();
        let is_due = |written: Instant| now.duration_since(written) >= INTERVAL;
        if self.written.get().is_none_or(is_due) {
            self.written.set(Some(now));
            let new = self.count.get() - self.told.replace(self.count.get());
            log::line(format_args!("{}", line(new)));
        }
    }
}

/// Messages of a rule since the start; [`COUNTERS`] describes them.
#[derive(Debug, Default)]
pub struct Counters {
    pub out: Counter,
    pub incoming: Counter,
    pub not_allowed: Counter,
    pub lost: Counter,
    pub too_long: Counter,
    pub looped: Counter,
    pub no_subscriber: Counter,
    pub send_failed: Counter,
    pub retried: Counter,
    pub no_reply: Counter,
}

/// A counter: its name in metrics, its name in the log, its description, and where it is.
pub type Row<C> = (&'static str, &'static str, &'static str, fn(&C) -> &Counter);

#[rustfmt::skip]
pub const COUNTERS: [Row<Counters>; 10] = [
    ("messages_out", "out", "Messages that the server has, and requests that it has answered", |all| &all.out),
    ("messages_in", "in", "Messages that the bus has, and requests that it has answered", |all| &all.incoming),
    ("messages_not_allowed", "not allowed", "Messages of senders that may not publish", |all| &all.not_allowed),
    ("messages_lost", "lost", "Messages that the bus had no room for, with full = drop, or that a kill lost with the bus", |all| &all.lost),
    ("messages_too_long", "too long", "Messages that the server or the bus does not permit", |all| &all.too_long),
    ("messages_looped", "looped", "Messages that had passed this bridge already, or more than 8 bridges", |all| &all.looped),
    ("messages_without_subscriber", "without subscriber", "Attempts to send on a multicast bus without subscriber", |all| &all.no_subscriber),
    ("send_failures", "failed to send", "Attempts to send on a bus that failed otherwise", |all| &all.send_failed),
    ("retries", "retried", "Attempts to publish or to subscribe that were repeated", |all| &all.retried),
    ("requests_without_reply", "without reply", "Requests that had no reply, or an error", |all| &all.no_reply),
];

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_counts(f, self, &COUNTERS)
    }
}

/// Those of both directions, which are the first two, and what else has happened.
pub fn write_counts<C>(f: &mut fmt::Formatter<'_>, counters: &C, rows: &[Row<C>]) -> fmt::Result {
    let mut separator = "";
    for (position, (_, name, _, counter)) in rows.iter().enumerate() {
        let count = counter(counters).get();
        if position < 2 || count > 0 {
            write!(f, "{separator}{count} {name}")?;
            separator = ", ";
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_has_happened_since_the_last_one() {
        let counter = Counter::default();
        let lines = Cell::new(0);
        let report = |count| {
            counter.report(count, |new| {
                lines.set(lines.get() + 1);
                format!("{new} messages")
            });
        };
        report(2);
        report(3);
        assert_eq!((counter.get(), counter.told.get(), lines.get()), (5, 2, 1));
        counter.written.set(Some(Instant::now() - INTERVAL));
        report(1);
        assert_eq!((counter.told.get(), lines.get()), (6, 2));
    }

    #[test]
    fn counts_of_zero_are_not_named() {
        let counters = Counters::default();
        counters.out.add(3);
        counters.lost.add(1);
        assert_eq!(counters.to_string(), "3 out, 0 in, 1 lost");
    }
}
