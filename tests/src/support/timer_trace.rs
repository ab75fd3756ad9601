// SPDX-License-Identifier: MIT OR Apache-2.0
//! The expiries of a high-resolution timer, from the kernel's tracepoints.

use anyhow::{Context, Result};

use super::trace_buffer::TraceBuffer;

const EVENTS: [&str; 3] = [
    "timer/hrtimer_start",
    "timer/hrtimer_expire_entry",
    "timer/hrtimer_expire_exit",
];

/// An expiry of a timer that is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// How long its function ran.
    pub duration_ns: i64,
    /// From the end of the function to the next expiry.
    pub idle_ns: i64,
}

/// The expiries of timers with this function while `body` runs. The function takes longer than usual: at this event, which
/// occurs in it, the kernel also records the stack.
pub fn expiries_during(
    function: &str,
    event: &str,
    body: impl FnOnce() -> Result<()>,
) -> Result<Vec<Expiry>> {
    let buffer = TraceBuffer::new()?;
    // The clock of the expiries.
    buffer.set("trace_clock", "mono")?;
    buffer.set(&format!("events/{event}/trigger"), "stacktrace")?;
    parse(function, &buffer.during(&EVENTS, body)?)
}

/// An event of one timer: its name, its time, and its text.
struct Event<'a> {
    name: &'a str,
    time_ns: i64,
    text: &'a str,
}

impl<'a> Event<'a> {
    /// `   worker-57      [001] d.h1.    75.258359: hrtimer_expire_exit: hrtimer=00000000bd6414c3`
    fn parse(line: &'a str) -> Option<Self> {
        let (before, rest) = line.split_once(": ")?;
        let (name, text) = rest.split_once(": ")?;
        let (seconds, micros) = before.split_whitespace().last()?.split_once('.')?;
        let micros = seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?;
        Some(Event {
            name,
            time_ns: micros * 1000,
            text,
        })
    }

    /// The value after `key=`.
    fn field(&self, key: &str) -> Option<&'a str> {
        let mut words = self.text.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

fn parse(function: &str, trace: &str) -> Result<Vec<Expiry>> {
    let events: Vec<Event> = trace.lines().filter_map(Event::parse).collect();
    let timer = events
        .iter()
        .find(|event| event.field("function") == Some(function))
        .and_then(|event| event.field("hrtimer"))
        .with_context(|| format!("no timer with the function {function} was traced"))?;
    let mut own = events.iter().filter(|e| e.field("hrtimer") == Some(timer));
    let (mut entered, mut left, mut expiries) = (None, None, Vec::new());
    own.try_for_each(|event| {
        match event.name {
            "hrtimer_expire_entry" => (entered, left) = (Some(event.time_ns), None),
            "hrtimer_expire_exit" => left = Some(event.time_ns),
            _ => {
                if let (Some(entered), Some(left)) = (entered, left) {
                    let next: i64 = event.field("expires")?.parse().ok()?;
                    expiries.push(Expiry {
                        duration_ns: left - entered,
                        idle_ns: next - left,
                    });
                }
            }
        }
        Some(())
    })
    .context("an event has no time of expiry")?;
    Ok(expiries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# entries-in-buffer/entries-written: 7/7   #P:2
   a-57  [001] d.h1.    75.000000: hrtimer_start: hrtimer=0a function=mine [sluice] expires=75000010000 softexpires=75000010000 mode=ABS
   a-57  [001] d.h1.    75.000012: hrtimer_expire_entry: hrtimer=0a function=mine [sluice] now=75000012000
   a-57  [000] d.h1.    75.000015: hrtimer_expire_entry: hrtimer=0b function=tick now=75000015000
   a-57  [001] d.h1.    75.000020: hrtimer_expire_exit: hrtimer=0a
   a-57  [000] d.h1.    75.000021: hrtimer_expire_exit: hrtimer=0b
   a-57  [000] d.h1.    75.000022: hrtimer_start: hrtimer=0b function=tick expires=76000000000 softexpires=76000000000 mode=ABS
   a-57  [001] d.h1.    75.000023: hrtimer_start: hrtimer=0a function=mine [sluice] expires=75000030000 softexpires=75000030000 mode=ABS
";

    #[test]
    fn the_expiries_of_one_timer_are_found() {
        let expected = Expiry {
            duration_ns: 8000,
            idle_ns: 10_000,
        };
        assert_eq!(parse("mine", TRACE).expect("traced"), vec![expected]);
        parse("other", TRACE).expect_err("not traced");
    }
}
