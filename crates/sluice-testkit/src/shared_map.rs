// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of the naive store, kernel/baseline/shared_map.c; its header shared_map.h describes the messages.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

pub const PROTOCOL: libc::c_int = 31;
/// Bytes of a key, without its terminating zero.
pub const MAX_KEY: usize = 255;
pub const MAX_VALUE: usize = 16_384;
pub const MAX_ENTRIES: usize = 8192;

/// Values of `type`: requests.
pub const GET: i32 = 1;
pub const SET: i32 = 2;
/// And answers.
const VALUE: i32 = 3;
const NOT_FOUND: i32 = 4;
const CREATED: i32 = 5;
const UPDATED: i32 = 6;
const ERROR: i32 = 7;

/// Bytes of struct nlmsghdr.
const NLMSG_HEADER: usize = 16;
/// struct shared_map_message, without its data.
pub const HEADER: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    Value(&'a [u8]),
    NotFound,
    Created,
    Updated,
    Error(Errno),
}

/// The fields of a request that are followed by its key and its value.
pub fn header(kind: i32, key_length: i32, value_length: i32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    for (number, field) in [kind, key_length, value_length].into_iter().enumerate() {
        header[4 * number..][..4].copy_from_slice(&field.to_ne_bytes());
    }
    header
}

pub struct Client {
    socket: OwnedFd,
    sequence: u32,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// EPROTONOSUPPORT if the module is not loaded.
    pub fn connect() -> nix::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes three numbers.
        let fd = Errno::result(unsafe { libc::socket(libc::AF_NETLINK, kind, PROTOCOL) })?;
        Ok(Self {
            // SAFETY: the call returned a new file descriptor.
            socket: unsafe { OwnedFd::from_raw_fd(fd) },
            sequence: 0,
            request: Vec::new(),
            answer: vec![0; NLMSG_HEADER + HEADER + MAX_VALUE],
        })
    }

    pub fn get(&mut self, key: &[u8]) -> Result<Answer<'_>> {
        self.ask(GET, key, &[])
    }

    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<Answer<'_>> {
        self.ask(SET, key, value)
    }

    /// The key gets its terminating zero here.
    fn ask(&mut self, kind: i32, key: &[u8], value: &[u8]) -> Result<Answer<'_>> {
        let header = header(kind, (key.len() + 1) as i32, value.len() as i32);
        self.exchange(&[&header, key, &[0], value])
    }

    /// Sends the concatenation of these parts as one request, valid or not.
    pub fn exchange(&mut self, parts: &[&[u8]]) -> Result<Answer<'_>> {
        self.sequence += 1;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.request.clear();
        self.request.extend(nlmsg_header(length, self.sequence));
        parts
            .iter()
            .for_each(|part| self.request.extend_from_slice(part));
        let socket = self.socket.as_raw_fd();
        send(socket, &self.request, MsgFlags::empty()).context("cannot send a request")?;
        let length =
            recv(socket, &mut self.answer, MsgFlags::empty()).context("cannot get an answer")?;
        parse(&self.answer[..length], self.sequence)
    }
}

/// A struct nlmsghdr for this many bytes: the type is the lowest that is not reserved, the flag that of a request.
fn nlmsg_header(length: usize, sequence: u32) -> [u8; NLMSG_HEADER] {
    let mut header = [0; NLMSG_HEADER];
    header[..4].copy_from_slice(&((NLMSG_HEADER + length) as u32).to_ne_bytes());
    header[4..6].copy_from_slice(&(libc::NLMSG_MIN_TYPE as u16).to_ne_bytes());
    header[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    header[8..12].copy_from_slice(&sequence.to_ne_bytes());
    header
}

fn parse(message: &[u8], sequence: u32) -> Result<Answer<'_>> {
    let word = |at: usize| {
        let bytes = message.get(at..).and_then(|rest| rest.first_chunk());
        bytes
            .map(|word| i32::from_ne_bytes(*word))
            .context("an answer is too short")
    };
    ensure!(
        word(8)? as u32 == sequence,
        "an answer is to another request"
    );
    let length = usize::try_from(word(NLMSG_HEADER + 8)?)?;
    let data = NLMSG_HEADER + HEADER;
    let value = message
        .get(data..)
        .and_then(|value| value.get(..length))
        .context("an answer is shorter than its value")?;
    Ok(match word(NLMSG_HEADER)? {
        VALUE => Answer::Value(value),
        NOT_FOUND => Answer::NotFound,
        CREATED => Answer::Created,
        UPDATED => Answer::Updated,
        ERROR => Answer::Error(Errno::from_raw(word(data)?)),
        kind => bail!("an answer has the unknown type {kind}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: i32, value: &[u8]) -> Vec<u8> {
        let header = header(kind, 0, value.len() as i32);
        let length = header.len() + value.len();
        [&nlmsg_header(length, 7)[..], &header, value].concat()
    }

    #[test]
    fn answers_are_parsed() {
        assert_eq!(
            parse(&message(VALUE, b"text"), 7).unwrap(),
            Answer::Value(b"text")
        );
        assert_eq!(parse(&message(CREATED, b""), 7).unwrap(), Answer::Created);
        let error = (Errno::EPERM as i32).to_ne_bytes();
        assert_eq!(
            parse(&message(ERROR, &error), 7).unwrap(),
            Answer::Error(Errno::EPERM)
        );
    }

    #[test]
    fn invalid_answers_are_refused() {
        assert!(parse(&message(VALUE, b"text"), 8).is_err());
        assert!(parse(&message(99, b""), 7).is_err());
        let whole = message(VALUE, b"text");
        assert!(parse(&whole[..whole.len() - 1], 7).is_err());
        assert!(parse(&[], 7).is_err());
    }
}
