// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of the other implementation, and the records that both generate.

use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use super::carrier::{End, Guard};

/// The timeout for events that must happen.
pub const LONG: Duration = Duration::from_secs(60);

const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/interop/python/exchange.py"
);

/// The process of the other side.
pub struct PythonPeer {
    process: Child,
    _guard: Guard,
}

impl PythonPeer {
    /// None, with a message, if Python is not installed.
    pub fn start(arguments: &str) -> Option<(Self, End)> {
        let (here, there, guard) = End::pair();
        let mut command = Command::new("python3");
        // -B: without bytecode files in the source tree. -S: it starts faster.
        command
            .args(["-B", "-S", PROGRAM])
            .args(arguments.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        there.give_to(&mut command);
        match command.spawn() {
            Ok(process) => {
                let peer = Self {
                    process,
                    _guard: guard,
                };
                Some((peer, here))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!(
                    "NOT TESTED: the library with another implementation, since there is no 'python3'; install Python 3.9 or later"
                );
                None
            }
            Err(error) => panic!("cannot start python3: {error}"),
        }
    }

    /// Its output; none if it was killed, as requested.
    pub fn end(self) -> Option<String> {
        let output = self.process.wait_with_output().expect("no outcome");
        let errors = String::from_utf8_lossy(&output.stderr);
        output.status.code()?;
        assert!(output.status.success(), "{errors}");
        let printed = String::from_utf8(output.stdout).expect("no text");
        Some(printed.trim_end().to_owned())
    }
}

/// The same table as in exchange.py.
static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..1_u64 << 18)
        .map(|place| ((place * 2_654_435_761) >> 16) as u8)
        .collect()
});

/// The bytes of a record, the same as in exchange.py.
pub fn content(number: usize, longest: usize) -> &'static [u8] {
    let start = number * 17 % 8191;
    &TABLE[start..start + number * 7919 % (longest + 1)]
}
