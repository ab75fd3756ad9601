// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where progress is drawn. Inside the VM stderr is a virtio port, even if a terminal is at its other end; SLUICE_TTY=1
//! states that there is one, and COLUMNS its width.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressDrawTarget, TermLike};

/// The target for drawing, or None for plain progress lines.
pub fn draw_target() -> Option<ProgressDrawTarget> {
    if env::var("SLUICE_TTY").is_ok_and(|value| value == "1") {
        return Some(ProgressDrawTarget::term_like(Box::new(RemoteTerminal {
            columns: columns(env::var("COLUMNS").ok().as_deref()),
            unsent: Mutex::default(),
        })));
    }
    io::stderr().is_terminal().then(ProgressDrawTarget::stderr)
}

fn columns(value: Option<&str>) -> u16 {
    const USUAL: u16 = 80;
    value
        .and_then(|text| text.parse().ok())
        .filter(|columns| *columns > 0)
        .unwrap_or(USUAL)
}

/// A terminal that can only be written to. Each frame is sent with one write, because a write is expensive inside a VM.
#[derive(Debug)]
struct RemoteTerminal {
    columns: u16,
    unsent: Mutex<String>,
}

impl RemoteTerminal {
    fn write(&self, text: &str) -> io::Result<()> {
        self.unsent().push_str(text);
        Ok(())
    }

    fn unsent(&self) -> MutexGuard<'_, String> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_cursor(&self, cells: usize, direction: char) -> io::Result<()> {
        match cells {
            0 => Ok(()),
            _ => self.write(&format!("\x1b[{cells}{direction}")),
        }
    }
}

impl TermLike for RemoteTerminal {
    fn width(&self) -> u16 {
        self.columns
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.write(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let frame = std::mem::take(&mut *self.unsent());
        io::stderr().write_all(frame.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_before_the_frame_is_complete() {
        let terminal = RemoteTerminal {
            columns: 80,
            unsent: Mutex::default(),
        };
        terminal.clear_line().unwrap();
        terminal.move_cursor_up(2).unwrap();
        terminal.move_cursor_down(0).unwrap();
        terminal.write_line("half").unwrap();
        assert_eq!(*terminal.unsent(), "\r\x1b[2K\x1b[2Ahalf\n");
        terminal.flush().unwrap();
        assert!(terminal.unsent().is_empty());
    }

    #[test]
    fn the_width_is_taken_from_columns_and_80_otherwise() {
        assert_eq!(columns(Some("132")), 132);
        assert_eq!(columns(Some("0")), 80);
        assert_eq!(columns(Some("wide")), 80);
        assert_eq!(columns(None), 80);
    }
}
