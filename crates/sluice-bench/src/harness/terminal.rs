// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where progress may be drawn. Inside the VM stderr is a virtio port and no terminal, even when there is one at its other
//! end; SLUICE_TTY=1 then says so, and COLUMNS how wide it is.

use std::env;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressDrawTarget, TermLike};

/// What to draw on, or None when progress has to be plain lines.
pub fn draw_target() -> Option<ProgressDrawTarget> {
    if env::var("SLUICE_TTY").is_ok_and(|value| value == "1") {
        return Some(ProgressDrawTarget::term_like(Box::new(FarTerminal {
            columns: columns(env::var("COLUMNS").ok().as_deref()),
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

/// A terminal that this process cannot ask anything, only write to.
#[derive(Debug)]
struct FarTerminal {
    columns: u16,
}

impl FarTerminal {
    fn write(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    fn move_cursor(&self, cells: usize, direction: char) -> io::Result<()> {
        match cells {
            0 => Ok(()),
            _ => self.write(&format!("\x1b[{cells}{direction}")),
        }
    }
}

impl TermLike for FarTerminal {
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
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_taken_from_columns_and_80_otherwise() {
        assert_eq!(columns(Some("132")), 132);
        assert_eq!(columns(Some("0")), 80);
        assert_eq!(columns(Some("wide")), 80);
        assert_eq!(columns(None), 80);
    }
}
