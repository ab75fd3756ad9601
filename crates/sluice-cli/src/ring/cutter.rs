// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a stream of bytes into records.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use anyhow::{Result, bail};

use super::framing::{Framing, LENGTH};

/// What is read at once, as long as no record is longer.
const PIECE: usize = 256 << 10;

pub struct Cutter {
    framing: Framing,
    /// Bytes of the longest record that may come.
    longest: usize,
    buffer: Vec<u8>,
    /// What of the buffer was read and not cut yet.
    start: usize,
    end: usize,
    /// Up to where there is no end of a line.
    searched: usize,
    records: u64,
}

impl Cutter {
    pub fn new(framing: Framing, longest: usize) -> Self {
        Self {
            framing,
            longest,
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            searched: 0,
            records: 0,
        }
    }

    /// Reads once, and waits only for the first byte, so that a record never waits for the one behind it. False at the end.
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

    /// The next record, if all of it was read.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let found = match self.framing {
            Framing::Lines => self.line()?,
            Framing::Length => self.frame()?,
        };
        Ok(found.map(|record| self.cut(record)))
    }

    /// What remains at the end of the input: a line needs no newline there, but a frame needs all its bytes.
    pub fn last(&mut self) -> Result<Option<&[u8]>> {
        let rest = self.start..self.end;
        if rest.is_empty() {
            return Ok(None);
        }
        match self.framing {
            Framing::Lines => {
                self.check(rest.len())?;
                Ok(Some(self.cut(rest)))
            }
            Framing::Length => bail!(
                "standard input ended within frame {}, of which {} bytes came, its length included; see what cut it off, and send anew from that frame on",
                self.records + 1,
                rest.len()
            ),
        }
    }

    fn line(&mut self) -> Result<Option<Range<usize>>> {
        let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) else {
            self.searched = self.end;
            self.check(self.end - self.start)?;
            return Ok(None);
        };
        let line = self.start..self.searched + at;
        self.check(line.len())?;
        Ok(Some(line))
    }

    fn frame(&mut self) -> Result<Option<Range<usize>>> {
        let Some(length) = self.buffer[self.start..self.end].first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        self.check(length)?;
        let start = self.start + LENGTH;
        Ok((length <= self.end - start).then(|| start..start + length))
    }

    fn cut(&mut self, record: Range<usize>) -> &[u8] {
        let newline = usize::from(self.framing == Framing::Lines && record.end < self.end);
        self.start = record.end + newline;
        self.searched = self.start;
        self.records += 1;
        &self.buffer[record]
    }

    fn check(&self, length: usize) -> Result<()> {
        if length <= self.longest {
            return Ok(());
        }
        let (what, is) = match self.framing {
            Framing::Lines => ("line", format!("at least {length}")),
            Framing::Length => ("frame", length.to_string()),
        };
        bail!(
            "{what} {} has {is} bytes, and a record of this ring has {} at most, a little less than half of its capacity; those before it were sent. Send with a larger --capacity, of up to 256M, or in shorter records",
            self.records + 1,
            self.longest
        )
    }

    /// For at least one byte more.
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

    /// Hands out so many bytes at once.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.1.min(self.0.len()).min(into.len());
            into[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0 = &self.0[bytes..];
            Ok(bytes)
        }
    }

    fn cut(framing: Framing, longest: usize, input: &[u8], drop: usize) -> Result<Vec<Vec<u8>>> {
        let mut cutter = Cutter::new(framing, longest);
        let mut input = Drops(input, drop);
        let mut records = Vec::new();
        loop {
            let more = cutter.fill(&mut input)?;
            while let Some(record) = cutter.next()? {
                records.push(record.to_vec());
            }
            if !more {
                records.extend(cutter.last()?.map(<[u8]>::to_vec));
                return Ok(records);
            }
        }
    }

    fn frames(records: &[&[u8]]) -> Vec<u8> {
        let frame = |record: &&[u8]| [&(record.len() as u32).to_le_bytes()[..], *record].concat();
        records.iter().flat_map(frame).collect()
    }

    #[test]
    fn lines_are_cut_wherever_the_input_is() {
        for drop in 1..20 {
            let records = cut(Framing::Lines, 100, b"one\n\n\0two\n\nthree", drop).unwrap();
            let expected: [&[u8]; 5] = [b"one", b"", b"\0two", b"", b"three"];
            assert_eq!(records, expected, "{drop} at once");
        }
    }

    #[test]
    fn a_newline_at_the_end_is_no_record() {
        assert_eq!(cut(Framing::Lines, 9, b"one\n", 9).unwrap(), [b"one"]);
        assert!(cut(Framing::Lines, 9, b"", 9).unwrap().is_empty());
        assert_eq!(cut(Framing::Lines, 9, b"\n", 9).unwrap(), [b""]);
    }

    #[test]
    fn frames_are_cut_wherever_the_input_is() {
        let records: [&[u8]; 4] = [b"one", b"", b"with\nnewline\n", &[0xff; 50]];
        for drop in 1..90 {
            let cut = cut(Framing::Length, 100, &frames(&records), drop).unwrap();
            assert_eq!(cut, records, "{drop} at once");
        }
    }

    #[test]
    fn a_record_may_be_longer_than_what_is_read_at_once() {
        let long = vec![b'x'; 3 * PIECE + 1];
        let lines = [&long[..], b"\nshort\n", &long[..]].concat();
        let expected = [long.clone(), b"short".to_vec(), long.clone()];
        assert_eq!(
            cut(Framing::Lines, long.len(), &lines, 100_000).unwrap(),
            expected
        );
        let frames = frames(&[&long, b"short", &long]);
        assert_eq!(
            cut(Framing::Length, long.len(), &frames, 100_000).unwrap(),
            expected
        );
    }

    #[test]
    fn a_record_that_is_too_long_is_named_before_all_of_it_was_read() {
        let line = [b"ok\n".to_vec(), vec![b'x'; 10 * PIECE]].concat();
        let mut input = Drops(&line, 1000);
        let mut cutter = Cutter::new(Framing::Lines, 5000);
        let error = loop {
            cutter.fill(&mut input).unwrap();
            match cutter.next() {
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("line 2 has at least"), "{error}");
        assert!(error.contains("--capacity"), "{error}");
        assert!(input.0.len() > 9 * PIECE);

        let error = cut(Framing::Length, 5000, &5001_u32.to_le_bytes(), 4).unwrap_err();
        assert!(error.to_string().contains("frame 1 has 5001 bytes"));
        assert!(cut(Framing::Lines, 3, b"four", 9).is_err());
        assert!(cut(Framing::Lines, 4, b"four", 9).is_ok());
    }

    #[test]
    fn a_frame_that_is_cut_off_is_an_error() {
        let frames = frames(&[b"one", b"two"]);
        for bytes in [1, 4, 6, 8, 13] {
            let error = cut(Framing::Length, 100, &frames[..bytes], 9).unwrap_err();
            let frame = 1 + bytes / 7;
            let expected = format!("within frame {frame}, of which {} bytes", bytes % 7);
            assert!(error.to_string().contains(&expected), "{error}");
        }
        assert_eq!(
            cut(Framing::Length, 100, &frames[..7], 9).unwrap(),
            [b"one"]
        );
    }
}
