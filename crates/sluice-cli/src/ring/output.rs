// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer of encoded records, which are written with one call.

use std::io::{self, Write};

use serde::Serialize;
use sluice::Bytes;

use super::codec::{Format, Framing};
use crate::text::encode;

/// The JSON object that sluice(1) describes.
#[derive(Serialize)]
struct RecordObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record_base64: Option<String>,
}

#[derive(Default)]
pub struct OutputBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl OutputBuffer {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, format: Format, record: &Bytes) {
        match format {
            Format::Framed(Framing::Lines) => {
                self.copy(record);
                self.append(b"\n");
            }
            Format::Framed(Framing::Length) => {
                // The longest record has less than 128 MiB.
                self.append(&(record.len() as u32).to_le_bytes());
                self.copy(record);
            }
            Format::Raw => self.copy(record),
            Format::Json => {
                let (record, record_base64) = encode(&record.to_vec());
                self.push_object(&RecordObject {
                    record,
                    record_base64,
                });
            }
        }
    }

    /// A JSON object in a line.
    pub fn push_object(&mut self, object: &impl Serialize) {
        // It has texts and numbers only, which can be encoded.
        let line = serde_json::to_vec(object).unwrap_or_default();
        self.append(&line);
        self.append(b"\n");
    }

    /// Writes all bytes and empties the buffer.
    pub fn write_to(&mut self, output: &mut impl Write) -> io::Result<()> {
        let len = std::mem::take(&mut self.len);
        output.write_all(&self.bytes[..len])
    }

    fn copy(&mut self, record: &Bytes) {
        record.copy_to(0, self.grow(record.len()));
    }

    fn append(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// The allocation never shrinks: to zero it again for every batch would take as long as to copy the records.
    fn grow(&mut self, length: usize) -> &mut [u8] {
        let start = self.len;
        self.len += length;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len.next_power_of_two(), 0);
        }
        &mut self.bytes[start..self.len]
    }
}
