// SPDX-License-Identifier: MIT OR Apache-2.0
//! The screen as lines of text.

use std::ops::Add as _;

use clap::ValueEnum as _;
use sluice::{Account, Usage};

use super::columns::{cells, fit, heading, layout, line, processes, scaled};
use super::keys::State;
use super::sample::Row;
use crate::output;

const HELP: &str = "\
Keys of sluice top

  Up k, Down j        select a channel; also PageUp, PageDown, Home, End
  Left <, Right >     sort by the column before or after
  r                   reverse the order
  /                   filter by text in any column; Enter keeps it
  Esc                 remove the filter
  p, Space            pause, or continue
  +, -                double or halve the interval
  ?, h                this help
  q, Ctrl-C           quit
  Ctrl-Z              suspend

The header shows the selected channel, its processes, and how much of the
limits of its scope and of your user is in use. A process is shown as
NAME/PID:r if it receives, :w if it sends, :rw if both.

Any key goes back.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Reverse,
}

pub type Line = (Style, String);

/// What the header shows of the module and of the limits.
pub struct Header {
    /// Its version.
    pub module: String,
    /// Of the scope of the selected channel; none if it may not be queried.
    pub usage: Option<Usage>,
}

/// At most `height` lines of at most `width` cells. Scrolls to the selected row.
pub fn screen(state: &mut State, header: &Header, width: usize, height: usize) -> Vec<Line> {
    let lines = match state.shows_help {
        true => HELP
            .lines()
            .map(|line| (Style::Plain, line.to_owned()))
            .collect(),
        false => table(state, header, width, height),
    };
    let fitted = lines.into_iter().take(height);
    fitted
        .map(|(style, text)| (style, fit(&text, width)))
        .collect()
}

fn table(state: &mut State, header: &Header, width: usize, height: usize) -> Vec<Line> {
    let rows = state.arranged();
    let position = state.position(&rows);
    let selected = rows.get(position).copied();
    let of_selected = |text: fn(&Row) -> String| selected.map(text).unwrap_or_default();
    let mut lines = vec![
        (Style::Bold, totals(state, header, &rows)),
        (Style::Plain, of_selected(channel)),
        (Style::Plain, of_selected(holders)),
        (Style::Plain, usage(header)),
    ];
    let layout = layout(&rows, Some(width));
    lines.push((Style::Reverse, padded(heading(&layout), width)));
    // Below the rows is one line.
    let page = height.saturating_sub(lines.len() + 1);
    let least = (position + 1).saturating_sub(page);
    let offset = state.offset.max(least).min(position);
    let shown = rows.iter().enumerate().skip(offset).take(page);
    lines.extend(shown.map(|(index, row)| match index == position {
        true => (Style::Reverse, padded(line(&layout, row), width)),
        false => (Style::Plain, line(&layout, row)),
    }));
    lines.resize(
        lines.len().max(height.saturating_sub(1)),
        (Style::Plain, String::new()),
    );
    lines.push((Style::Plain, status(state)));
    (state.page, state.offset) = (page, offset);
    lines
}

fn padded(text: String, width: usize) -> String {
    let space = width.saturating_sub(cells(&text));
    text + &" ".repeat(space)
}

fn totals(state: &State, header: &Header, rows: &[&Row]) -> String {
    let sum =
        |rate: fn(&Row) -> Option<f64>| rows.iter().filter_map(|row| rate(row)).fold(0.0, f64::add);
    let paused = if state.is_paused { ", paused" } else { "" };
    format!(
        "module {}: channels {}, msg/s {}, bytes/s {}, lost/s {}; every {:?}{paused}",
        header.module,
        rows.len(),
        scaled(sum(|row| row.rates.messages), 1000.0),
        scaled(sum(|row| row.rates.bytes), 1024.0),
        scaled(sum(|row| row.rates.lost), 1000.0),
        state.interval,
    )
}

fn channel(row: &Row) -> String {
    let info = &row.info;
    let (name, place) = (&info.name, &row.place.path);
    format!("{} '{name}' of {} in {place}", info.kind, row.user)
}

fn holders(row: &Row) -> String {
    match row.processes.is_empty() {
        true => "processes: none known".to_owned(),
        false => format!("processes: {}", processes(&row.processes)),
    }
}

fn usage(header: &Header) -> String {
    let of = |used, max: Option<u64>, unit| match max {
        Some(max) => format!("{}/{}", scaled(used as f64, unit), scaled(max as f64, unit)),
        None => scaled(used as f64, unit),
    };
    let account = |account: &Account| {
        let channels = of(account.channels, account.channels_max, 1000.0);
        let bytes = of(account.bytes, account.bytes_max, 1024.0);
        format!("{channels} channels, {bytes} bytes")
    };
    header.usage.as_ref().map_or(String::new(), |usage| {
        let (scope, user) = (account(&usage.scope), account(&usage.user));
        format!("in use of its scope: {scope}; of your user: {user}")
    })
}

fn status(state: &State) -> String {
    if let Some(error) = &state.error {
        return format!("no new sample: {}", output::shown(error.as_bytes()));
    }
    if state.is_editing {
        return format!(
            "filter: {}_  (Enter keeps it, Esc removes it)",
            sluice::escape(state.filter.as_bytes())
        );
    }
    let sort = state.sort.to_possible_value();
    let sort = sort.as_ref().map_or("", |value| value.get_name());
    let reverse = if state.reverse { ", reversed" } else { "" };
    let filter = match state.filter.as_str() {
        "" => String::new(),
        filter => format!(" filter: {};", sluice::escape(filter.as_bytes())),
    };
    format!("by {sort}{reverse};{filter} ? help, / filter, < > sort, r reverse, p pause, q quit")
}

#[cfg(test)]
mod tests {
    use sluice_abi as abi;

    use super::super::columns::Column;
    use super::super::keys::tests::{press, state};
    use super::super::sample::Process;
    use super::super::sample::tests::{info, row};
    use super::*;
    use crate::channels::Counts;

    fn example() -> State {
        let mut prices = row(
            info(abi::KIND_BUS, "prices"),
            "/sys/fs/cgroup/system.slice/quotes.service",
        );
        prices.info.readers = 3;
        prices.info.writers = 1;
        prices.info.bytes = 20480;
        prices.info.lag = 12;
        prices.info.lost = 1500;
        prices.info.waiting = 2;
        prices.rates = Counts {
            messages: Some(48211.0),
            bytes: None,
            lost: Some(2.5),
        };
        let process = |pid, command: &str, access: &str| Process {
            pid,
            command: command.to_owned(),
            access: access.to_owned(),
        };
        prices.processes = vec![process(812, "feeder", "w"), process(813, "quotes", "r")];
        let mut log = row(info(abi::KIND_PIPE, "中文\u{1b}[2J"), "/sys/fs/cgroup/a");
        log.info.readers = 1;
        log.rates.bytes = Some(3.5 * 1048576.0);
        let mut state = state(vec![prices, log]);
        state.sort = Column::Messages;
        state
    }

    fn header() -> Header {
        Header {
            module: "0.1.0".to_owned(),
            usage: None,
        }
    }

    fn text(lines: &[Line]) -> String {
        lines
            .iter()
            .map(|(_, text)| text.trim_end().to_owned() + "\n")
            .collect()
    }

    /// The screen of the example has this text, then empty lines, then the status.
    fn expect_screen(width: usize, height: usize, expected: &str, empty: usize) {
        let lines = screen(&mut example(), &header(), width, height);
        assert_eq!(
            text(&lines),
            expected.to_owned() + &"\n".repeat(empty) + STATUS
        );
    }

    #[test]
    fn the_screen_of_80_columns() {
        let expected = "\
module 0.1.0: channels 2, msg/s 48K, bytes/s 3.5M, lost/s 2.5; every 2s
bus 'prices' of root in /sys/fs/cgroup/system.slice/quotes.service
processes: feeder/812:w quotes/813:r

KIND NAME         SCOPE              RD   WR MSG/S BYTES/S USE%   LAG  LOST WAIT
bus  prices       …/quotes.service    3    1   48K       -   31    12  1.5K    2
pipe 中文\\x1b[2J  /sys/fs/cgroup/a    1    0     -    3.5M    0     -     -    0
";
        expect_screen(80, 24, expected, 16);
    }

    const STATUS: &str = "by messages; ? help, / filter, < > sort, r reverse, p pause, q quit\n";

    #[test]
    fn the_screen_of_120_columns() {
        let expected = "\
module 0.1.0: channels 2, msg/s 48K, bytes/s 3.5M, lost/s 2.5; every 2s
bus 'prices' of root in /sys/fs/cgroup/system.slice/quotes.service
processes: feeder/812:w quotes/813:r

KIND NAME         SCOPE             USER       RD   WR MSG/S BYTES/S BACKLOG USE%   LAG  LOST LOST/S WAIT PROCESSES
bus  prices       …e/quotes.service root        3    1   48K       -     20K   31    12  1.5K    2.5    2 feeder/812:w …
pipe 中文\\x1b[2J  /sys/fs/cgroup/a  root        1    0     -    3.5M       0    0     -     -      -    0
";
        expect_screen(120, 40, expected, 32);
    }

    #[test]
    fn any_size_gets_lines_that_fit() {
        for (width, height) in [
            (0, 0),
            (1, 1),
            (5, 3),
            (20, 4),
            (31, 5),
            (79, 200),
            (300, 6),
        ] {
            for keys in ["", "?", "x/ab"] {
                let mut state = example();
                press(&mut state, keys);
                let lines = screen(&mut state, &header(), width, height);
                assert!(lines.len() <= height, "{width}x{height}");
                for (_, line) in &lines {
                    assert!(cells(line) <= width, "{width}x{height}: {line}");
                }
            }
        }
    }

    #[test]
    fn the_selected_row_is_on_the_screen() {
        let rows = (0..50).map(|i| row(info(abi::KIND_BUS, format!("bus-{i:02}")), "/"));
        let mut state = state(rows.collect());
        let selected = |state: &mut State| {
            let lines = screen(state, &header(), 80, 10);
            let rows = lines.iter().filter(|(style, _)| *style == Style::Reverse);
            rows.map(|(_, text)| text.clone()).nth(1).unwrap()
        };
        for expected in 1..30 {
            press(&mut state, "j");
            assert!(selected(&mut state).contains(&format!("bus-{expected:02}")));
        }
        press(&mut state, "kkkkkkkkkk");
        assert!(selected(&mut state).contains("bus-19"));
    }

    #[test]
    fn a_failure_and_a_filter_are_shown() {
        let mut state = example();
        press(&mut state, "/quotes");
        let lines = screen(&mut state, &header(), 80, 24);
        assert_eq!(
            lines[23].1,
            "filter: quotes_  (Enter keeps it, Esc removes it)"
        );
        assert!(lines[0].1.contains("channels 1,"), "{}", lines[0].1);
        for (error, shown) in [
            ("no /dev/sluice/ctl", "no /dev/sluice/ctl"),
            ("no /a\u{1b}[2J", r"no /a\x1b[2J"),
        ] {
            state.error = Some(error.to_owned());
            let lines = screen(&mut state, &header(), 80, 24);
            assert_eq!(lines[23].1, format!("no new sample: {shown}"));
        }
    }
}
