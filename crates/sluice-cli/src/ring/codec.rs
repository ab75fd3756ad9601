// SPDX-License-Identifier: MIT OR Apache-2.0
//! The framing of records in a byte stream, and its decoder.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use anyhow::{Result, bail};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    /// A newline after each record
    Lines,
    /// The length before each record, as 4 bytes in little-endian order
    Length,
}

/// How records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Framed(Framing),
    /// The bytes without framing.
    Raw,
    /// A JSON object in a line.
    Json,
}

/// Bytes of the length before a record.
const LENGTH: usize = size_of::<u32>();

/// The initial size of the buffer, which grows for longer records.
const CHUNK: usize = 256 << 10;

/// Splits a byte stream into records.
pub struct Decoder {
    framing: Framing,
    /// The length limit of a record.
    max_len: usize,
    buffer: Vec<u8>,
    /// The bytes that were read and not decoded yet.
    start: usize,
    end: usize,
    /// There is no newline before this index.
    searched: usize,
    records: u64,
}

impl Decoder {
    pub fn new(framing: Framing, max_len: usize) -> Self {
        Self {
            framing,
            max_len,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            searched: 0,
            records: 0,
        }
    }

    /// Reads once, so that a complete record does not wait for the next one. Returns false at the end of the input.
    pub fn fill(&mut self, input: &mut impl Read) -> io::Result<bool> {
        self.make_room();
        loop {
            match input.read(&mut self.buffer[self.end..]) {
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the next record if it is complete.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let found = match self.framing {
            Framing::Lines => self.line()?,
            Framing::Length => self.frame()?,
        };
        Ok(found.map(|record| self.consume(record)))
    }

    /// Returns the last record at the end of the input: a line without a newline is complete, a partial frame is an error.
    pub fn last(&mut self) -> Result<Option<&[u8]>> {
        let rest = self.start..self.end;
        if rest.is_empty() {
            return Ok(None);
        }
        match self.framing {
            Framing::Lines => {
                self.check_len(rest.len())?;
                Ok(Some(self.consume(rest)))
            }
            Framing::Length => bail!(
                "standard input ended within frame {} after {} of its bytes; send again from that frame",
                self.records + 1,
                rest.len()
            ),
        }
    }

    fn line(&mut self) -> Result<Option<Range<usize>>> {
        let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) else {
            self.searched = self.end;
            self.check_len(self.end - self.start)?;
            return Ok(None);
        };
        let line = self.start..self.searched + at;
        self.check_len(line.len())?;
        Ok(Some(line))
    }

    fn frame(&mut self) -> Result<Option<Range<usize>>> {
        let Some(length) = self.buffer[self.start..self.end].first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        self.check_len(length)?;
        let start = self.start + LENGTH;
        Ok((length <= self.end - start).then(|| start..start + length))
    }

    fn consume(&mut self, record: Range<usize>) -> &[u8] {
        let newline = usize::from(self.framing == Framing::Lines && record.end < self.end);
        self.start = record.end + newline;
        self.searched = self.start;
        self.records += 1;
        &self.buffer[record]
    }

    fn check_len(&self, length: usize) -> Result<()> {
        if length <= self.max_len {
            return Ok(());
        }
        let (record, bytes) = match self.framing {
            Framing::Lines => ("line", format!("at least {length}")),
            Framing::Length => ("frame", length.to_string()),
        };
        bail!(
            "{record} {} has {bytes} bytes, more than {}, the limit here; use a larger --capacity or shorter records",
            self.records + 1,
            self.max_len
        )
    }

    /// Ensures that at least one more byte can be read.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns up to the given number of bytes per read.
    struct ShortReads<'a>(&'a [u8], usize);

    impl Read for ShortReads<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.1.min(self.0.len()).min(into.len());
            into[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0 = &self.0[bytes..];
            Ok(bytes)
        }
    }

    fn decode(
        framing: Framing,
        max_len: usize,
        input: &[u8],
        read_size: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut decoder = Decoder::new(framing, max_len);
        let mut input = ShortReads(input, read_size);
        let mut records = Vec::new();
        loop {
            let more = decoder.fill(&mut input)?;
            while let Some(record) = decoder.next()? {
                records.push(record.to_vec());
            }
            if !more {
                records.extend(decoder.last()?.map(<[u8]>::to_vec));
                return Ok(records);
            }
        }
    }

    fn frames(records: &[&[u8]]) -> Vec<u8> {
        let frame = |record: &&[u8]| [&(record.len() as u32).to_le_bytes()[..], *record].concat();
        records.iter().flat_map(frame).collect()
    }

    #[test]
    fn lines_are_decoded_for_every_read_size() {
        for read_size in 1..20 {
            let records = decode(Framing::Lines, 100, b"one\n\n\0two\n\nthree", read_size).unwrap();
            let expected: [&[u8]; 5] = [b"one", b"", b"\0two", b"", b"three"];
            assert_eq!(records, expected, "{read_size} bytes per read");
        }
    }

    #[test]
    fn a_newline_at_the_end_starts_no_record() {
        assert_eq!(decode(Framing::Lines, 9, b"one\n", 9).unwrap(), [b"one"]);
        assert!(decode(Framing::Lines, 9, b"", 9).unwrap().is_empty());
        assert_eq!(decode(Framing::Lines, 9, b"\n", 9).unwrap(), [b""]);
    }

    #[test]
    fn frames_are_decoded_for_every_read_size() {
        let records: [&[u8]; 4] = [b"one", b"", b"with\nnewline\n", &[0xff; 50]];
        for read_size in 1..90 {
            let decoded = decode(Framing::Length, 100, &frames(&records), read_size).unwrap();
            assert_eq!(decoded, records, "{read_size} bytes per read");
        }
    }

    #[test]
    fn a_record_may_be_longer_than_a_chunk() {
        let long = vec![b'x'; 3 * CHUNK + 1];
        let lines = [&long[..], b"\nshort\n", &long[..]].concat();
        let expected = [long.clone(), b"short".to_vec(), long.clone()];
        assert_eq!(
            decode(Framing::Lines, long.len(), &lines, 100_000).unwrap(),
            expected
        );
        let frames = frames(&[&long, b"short", &long]);
        assert_eq!(
            decode(Framing::Length, long.len(), &frames, 100_000).unwrap(),
            expected
        );
    }

    #[test]
    fn a_too_long_record_is_rejected_before_it_is_complete() {
        let line = [b"ok\n".to_vec(), vec![b'x'; 10 * CHUNK]].concat();
        let mut input = ShortReads(&line, 1000);
        let mut decoder = Decoder::new(Framing::Lines, 5000);
        let error = loop {
            decoder.fill(&mut input).unwrap();
            match decoder.next() {
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("line 2 has at least"), "{error}");
        assert!(error.contains("--capacity"), "{error}");
        assert!(input.0.len() > 9 * CHUNK);

        let error = decode(Framing::Length, 5000, &5001_u32.to_le_bytes(), 4).unwrap_err();
        assert!(error.to_string().contains("frame 1 has 5001 bytes"));
        assert!(decode(Framing::Lines, 3, b"four", 9).is_err());
        assert!(decode(Framing::Lines, 4, b"four", 9).is_ok());
    }

    #[test]
    fn a_truncated_frame_is_an_error() {
        let frames = frames(&[b"one", b"two"]);
        for bytes in [1, 4, 6, 8, 13] {
            let error = decode(Framing::Length, 100, &frames[..bytes], 9).unwrap_err();
            let frame = 1 + bytes / 7;
            let expected = format!("within frame {frame} after {} of its bytes", bytes % 7);
            assert!(error.to_string().contains(&expected), "{error}");
        }
        assert_eq!(
            decode(Framing::Length, 100, &frames[..7], 9).unwrap(),
            [b"one"]
        );
    }
}
