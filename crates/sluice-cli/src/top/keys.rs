// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the keys do. The help screen in `view.rs` and sluice-top(1) have them.

use std::time::Duration;

use clap::ValueEnum as _;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::columns::{Column, arrange};
use super::sample::{Key, Row};

pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// What is shown, and how.
pub struct State {
    pub rows: Vec<Row>,
    pub interval: Duration,
    pub sort: Column,
    pub reverse: bool,
    pub filter: String,
    /// Whether keys change the filter.
    pub is_editing: bool,
    pub is_paused: bool,
    pub shows_help: bool,
    pub selected: Option<Key>,
    /// The first row on the screen, and how many rows it has.
    pub offset: usize,
    pub page: usize,
    /// Why there is no newer sample.
    pub error: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Draw,
    Quit,
    Suspend,
}

impl State {
    pub fn arranged(&self) -> Vec<&Row> {
        arrange(&self.rows, &self.filter, self.sort, self.reverse)
    }

    /// The index of the selected row; the first one if that channel is not shown.
    pub fn position(&self, rows: &[&Row]) -> usize {
        let is_selected = |row: &&Row| Some(row.key()) == self.selected;
        rows.iter().position(is_selected).unwrap_or(0)
    }

    pub fn press(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Quit,
                KeyCode::Char('z') => Action::Suspend,
                _ => Action::Draw,
            };
        }
        match key.code {
            _ if self.is_editing => self.edit(key.code),
            KeyCode::Char('q') => return Action::Quit,
            _ if self.shows_help => self.shows_help = false,
            code => self.command(code),
        }
        Action::Draw
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_editing = false;
            }
            _ => {}
        }
    }

    fn command(&mut self, code: KeyCode) {
        let page = self.page.max(1) as isize;
        match code {
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('/') => self.is_editing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Right | KeyCode::Char('>') => self.sort_by_next(1),
            KeyCode::Left | KeyCode::Char('<') => self.sort_by_next(-1),
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(INTERVAL_MAX),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(INTERVAL_MIN),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(page),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            _ => {}
        }
    }

    fn sort_by_next(&mut self, step: isize) {
        let columns = Column::value_variants();
        let index = columns.iter().position(|column| *column == self.sort);
        let index = index.unwrap_or(0) as isize + step;
        self.sort = columns[index.rem_euclid(columns.len() as isize) as usize];
    }

    fn move_by(&mut self, step: isize) {
        let rows = self.arranged();
        let last = rows.len().saturating_sub(1);
        let position = self.position(&rows).saturating_add_signed(step).min(last);
        self.selected = rows.get(position).map(|row| row.key());
    }
}

#[cfg(test)]
pub mod tests {
    use sluice_abi as abi;

    use super::super::sample::tests::{info, row};
    use super::*;

    pub fn state(rows: Vec<Row>) -> State {
        State {
            rows,
            interval: Duration::from_secs(2),
            sort: Column::Name,
            reverse: false,
            filter: String::new(),
            is_editing: false,
            is_paused: false,
            shows_help: false,
            selected: None,
            offset: 0,
            page: 10,
            error: None,
        }
    }

    pub fn press(state: &mut State, keys: &str) {
        for letter in keys.chars() {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            assert_eq!(state.press(code.into()), Action::Draw);
        }
    }

    fn three() -> State {
        let rows = ["a", "b", "c"].map(|name| row(info(abi::KIND_BUS, name), "/"));
        state(rows.into())
    }

    #[test]
    fn the_selection_stays_with_its_channel() {
        let mut state = three();
        press(&mut state, "j");
        let selected = |state: &State| {
            let rows = state.arranged();
            let row = rows[state.position(&rows)];
            (state.position(&rows), row.info.name.to_string())
        };
        assert_eq!(selected(&state), (1, "b".to_owned()));
        press(&mut state, "rj");
        assert_eq!(selected(&state), (2, "a".to_owned()));
        press(&mut state, "jjr");
        assert_eq!(selected(&state), (0, "a".to_owned()));
        press(&mut state, "/c\n");
        assert_eq!(selected(&state), (0, "c".to_owned()));
    }

    #[test]
    fn a_filter_is_edited() {
        let mut state = three();
        press(&mut state, "/q?\u{8}");
        assert_eq!((state.filter.as_str(), state.is_editing), ("q", true));
        press(&mut state, "\n");
        assert_eq!((state.filter.as_str(), state.is_editing), ("q", false));
        press(&mut state, "/x\u{1b}");
        assert_eq!((state.filter.as_str(), state.is_editing), ("", false));
    }

    #[test]
    fn keys_change_order_and_time() {
        let mut state = three();
        press(&mut state, ">");
        assert_eq!(state.sort, Column::Scope);
        press(&mut state, "<<<");
        assert_eq!(state.sort, Column::Processes);
        press(&mut state, "++ ");
        assert_eq!(
            (state.interval, state.is_paused),
            (Duration::from_secs(8), true)
        );
        press(&mut state, "-----------p");
        assert_eq!((state.interval, state.is_paused), (INTERVAL_MIN, false));
    }

    #[test]
    fn keys_end_and_suspend() {
        let mut state = three();
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert_eq!(state.press(KeyCode::Char('q').into()), Action::Quit);
        assert_eq!(state.press(control('c')), Action::Quit);
        assert_eq!(state.press(control('z')), Action::Suspend);
        press(&mut state, "?");
        assert!(state.shows_help);
        assert_eq!(state.press(KeyCode::Char('q').into()), Action::Quit);
        press(&mut state, "x/");
        assert_eq!(state.press(control('c')), Action::Quit);
    }
}
