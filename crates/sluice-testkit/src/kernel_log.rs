// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel log from a moment on, and what in it says that the kernel found a fault in itself.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use regex_lite::Regex;

pub const LOG: &str = "/dev/kmsg";

/// The one list of them; the scripts read it, too.
const COMPLAINTS: &str = include_str!("../kernel-complaints.txt");

pub struct KernelLog(File);

impl KernelLog {
    pub fn from_now() -> Result<Self> {
        let mut log = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(LOG)
            .with_context(|| format!("cannot open the kernel log {LOG}; run as root"))?;
        log.seek(SeekFrom::End(0))
            .with_context(|| format!("cannot go to the end of {LOG}"))?;
        Ok(Self(log))
    }

    /// The messages since from_now() or the last call. Each read returns one record. An error if some were overwritten.
    pub fn messages(&mut self) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        let mut record = vec![0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(count) => messages.push(message_of(&String::from_utf8_lossy(&record[..count]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(messages),
                Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => {
                    bail!(
                        "messages of the kernel were overwritten unread; boot with log_buf_len=4M and run again"
                    )
                }
                Err(error) => return Err(error).with_context(|| format!("cannot read {LOG}")),
            }
        }
    }

    /// Fails if the kernel complained since the last call.
    pub fn check(mut self) -> Result<()> {
        let complaint = complaint();
        let mut messages = self.messages()?;
        messages.retain(|message| complaint.is_match(message));
        if !messages.is_empty() {
            bail!(
                "the kernel complained; 'dmesg' shows the whole of it: {}",
                messages.join("; ")
            );
        }
        Ok(())
    }
}

/// The text of a record, "level,number,time,flags;text", without the lines that describe the device.
fn message_of(record: &str) -> String {
    let text = record.split_once(';').map_or(record, |(_, text)| text);
    text.lines().next().unwrap_or_default().to_owned()
}

pub fn complaint() -> Regex {
    let patterns: Vec<&str> = COMPLAINTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    Regex::new(&patterns.join("|"))
        .expect("the list of complaints is a list of regular expressions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_stripped_to_its_message() {
        let record = "4,512,1234567,-;sluice: refused; try again\n SUBSYSTEM=misc\n";
        assert_eq!(message_of(record), "sluice: refused; try again");
    }

    #[test]
    fn complaints_are_recognised() {
        let complaint = complaint();
        for message in [
            "WARNING: CPU: 0 PID: 12 at fs/pipe.c:1",
            "BUG: KASAN: slab-use-after-free in sluice_pipe_read",
            "kernel BUG at mm/slub.c:440!",
            "Oops: 0000 [#1] PREEMPT SMP",
            "INFO: task cat:99 blocked for more than 120 seconds.",
            "WARNING: possible circular locking dependency detected",
            "Kernel panic - not syncing: Fatal exception",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        ] {
            assert!(complaint.is_match(message), "{message}");
        }
    }

    #[test]
    fn other_messages_are_no_complaints() {
        let complaint = complaint();
        for message in [
            "",
            "sluice: loading out-of-tree module taints kernel.",
            "DEBUG: WARNINGS are off",
        ] {
            assert!(!complaint.is_match(message), "{message}");
        }
    }

    #[test]
    fn no_pattern_matches_everything() {
        assert!(COMPLAINTS.lines().all(|line| !line.trim().is_empty()));
    }
}
