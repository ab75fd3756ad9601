// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice top`: the channels and what passes through them, again and again.

mod columns;
mod keys;
mod sample;
mod terminal;
mod view;

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use crossterm::event::{self, Event, KeyEventKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;

use self::columns::{Column, arrange, heading, layout, line};
use self::keys::{Action, State};
use self::sample::{Row, Sampler, unix_time};
use self::terminal::Terminal;
use self::view::{Header, screen};
use crate::channels::{self, SelectionArgs};
use crate::{args, output};

/// The longest time until the screen is drawn again after the process was stopped.
const POLL_MAX: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Time between two samples
    ///
    /// From 100ms to 1h.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,

    /// The column to sort by: numbers from the greatest, texts from the first
    #[arg(long, value_name = "COLUMN", default_value = "messages")]
    sort: Column,

    /// Reverse the order
    #[arg(long)]
    reverse: bool,

    /// Only the channels with this text in their kind, name, scope, user or processes
    ///
    /// Upper and lower case are the same.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,

    /// Print one table after one interval
    #[arg(long)]
    once: bool,

    /// Print JSON objects instead of a table
    ///
    /// One in each line, for every channel after each interval; with --once an array.
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = args::time(text)?;
    match (keys::INTERVAL_MIN..=keys::INTERVAL_MAX).contains(&time) {
        true => Ok(time),
        false => Err("give a time from 100ms to 1h".to_owned()),
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut sampler = Sampler::new(&arguments.selection);
    if !arguments.once && !arguments.json {
        return interact(arguments, &mut sampler);
    }
    sampler.sample()?;
    loop {
        thread::sleep(arguments.interval);
        print(arguments, &sampler.sample()?)?;
        if arguments.once {
            return Ok(());
        }
    }
}

fn print(arguments: &Arguments, rows: &[Row]) -> Result<()> {
    let rows = arrange(rows, &arguments.filter, arguments.sort, arguments.reverse);
    let time = unix_time();
    if !arguments.json {
        let layout = layout(&rows, None);
        let lines = rows.iter().map(|row| line(&layout, row) + "\n");
        return output::print(&(heading(&layout) + "\n" + &lines.collect::<String>()));
    }
    let objects: Vec<_> = rows.iter().map(|row| row.object(time)).collect();
    if arguments.once {
        return output::print_json(&objects);
    }
    let lines = objects.iter().map(serde_json::to_string);
    let lines: serde_json::Result<Vec<_>> = lines.collect();
    let lines = lines.context("cannot encode the result as JSON")?;
    output::print(
        &lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    )
}

fn interact(arguments: &Arguments, sampler: &mut Sampler) -> Result<()> {
    ensure!(
        io::stdout().is_terminal(),
        "standard output is not a terminal; use --once for one table, or --json"
    );
    let mut state = State {
        rows: sampler.sample()?,
        interval: arguments.interval,
        sort: arguments.sort,
        reverse: arguments.reverse,
        filter: arguments.filter.clone(),
        is_editing: false,
        is_paused: false,
        shows_help: false,
        selected: None,
        offset: 0,
        page: 0,
        error: None,
    };
    let module = channels::module_version()?;
    let mut header = Header {
        module,
        usage: None,
    };
    let terminal = Terminal::enter()?;
    let mut sampled = Instant::now();
    loop {
        show(&terminal, &mut state, &mut header)?;
        if let Some(action) = wait(&terminal, &mut state, sampled)? {
            match action {
                Action::Draw => {}
                Action::Quit => return Ok(()),
                // The thread that waits for signals gets it.
                Action::Suspend => kill(getpid(), Signal::SIGTSTP).context("cannot stop")?,
            }
        }
        if !state.is_paused && sampled.elapsed() >= state.interval {
            sampled = Instant::now();
            match sampler.sample() {
                Ok(rows) => (state.rows, state.error) = (rows, None),
                Err(error) => state.error = Some(sluice::explain(error.as_ref())),
            }
        }
    }
}

fn show(terminal: &Terminal, state: &mut State, header: &mut Header) -> Result<()> {
    let (width, height) = crossterm::terminal::size().context("the terminal has no size")?;
    let rows = state.arranged();
    let selected = rows.get(state.position(&rows));
    header.usage = selected.and_then(|row| row.place.usage().ok());
    let lines = screen(state, header, width.into(), height.into());
    terminal.draw(&lines).context(output::UNWRITTEN)
}

/// Waits until something changes: by a key, the time of the next sample, or because the terminal is another one.
fn wait(terminal: &Terminal, state: &mut State, sampled: Instant) -> Result<Option<Action>> {
    loop {
        let rest = state.interval.saturating_sub(sampled.elapsed());
        let rest = if state.is_paused {
            POLL_MAX
        } else {
            rest.min(POLL_MAX)
        };
        if event::poll(rest).context("cannot read from the terminal")? {
            return Ok(
                match event::read().context("cannot read from the terminal")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => Some(state.press(key)),
                    _ => None,
                },
            );
        }
        let is_due = !state.is_paused && sampled.elapsed() >= state.interval;
        if is_due || terminal.was_stopped() {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_a_range() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        for bad in ["99ms", "2h", "2", "0s"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
