// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as they are to be written, collected for one write.

use std::io::{self, Write};

use sluice::ring::Bytes;

use super::framing::Framing;

#[derive(Default)]
pub struct Sheet {
    bytes: Vec<u8>,
    used: usize,
}

impl Sheet {
    pub fn used(&self) -> usize {
        self.used
    }

    pub fn put(&mut self, framing: Framing, record: &Bytes) {
        match framing {
            Framing::Lines => {
                self.copy(record);
                self.append(b"\n");
            }
            Framing::Length => {
                // No ring has longer ones than 128 MiB.
                self.append(&(record.len() as u32).to_le_bytes());
                self.copy(record);
            }
        }
    }

    /// Empties it.
    pub fn write(&mut self, output: &mut impl Write) -> io::Result<()> {
        let used = std::mem::take(&mut self.used);
        output.write_all(&self.bytes[..used])
    }

    fn copy(&mut self, record: &Bytes) {
        record.copy_to(0, self.room(record.len()));
    }

    fn append(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// What it has grown to once stays, as filling it with zeroes again would take as long as the records.
    fn room(&mut self, length: usize) -> &mut [u8] {
        let start = self.used;
        self.used += length;
        if self.bytes.len() < self.used {
            self.bytes.resize(self.used.next_power_of_two(), 0);
        }
        &mut self.bytes[start..self.used]
    }
}
