// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel complained while the demo ran.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;

const COMPLAINTS: [&str; 7] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "general protection fault",
    "INFO: task",
    "KASAN",
    "possible circular locking",
];

pub struct KernelLog {
    file: File,
}

impl KernelLog {
    /// From here on.
    pub fn from_now() -> Result<Self> {
        let options = File::options()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open("/dev/kmsg");
        let mut file = options.context("cannot open the kernel log /dev/kmsg")?;
        file.seek(SeekFrom::End(0))
            .context("cannot go to the end of the kernel log")?;
        Ok(Self { file })
    }

    pub fn check(mut self) -> Result<()> {
        let complaints: Vec<String> = self
            .messages()?
            .into_iter()
            .filter(|message| is_complaint(message))
            .collect();
        if !complaints.is_empty() {
            bail!(
                "the kernel complained; 'dmesg' shows the whole of it: {}",
                complaints.join("; ")
            );
        }
        Ok(())
    }

    /// Each read gives one record.
    fn messages(&mut self) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        let mut record = vec![0; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(n) => messages.push(message(&String::from_utf8_lossy(&record[..n]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(messages),
                // Records that were overwritten before they could be read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error).context("cannot read the kernel log"),
            }
        }
    }
}

/// A record is "level,number,time,flags;text", and lines with details.
fn message(record: &str) -> String {
    let text = record.split_once(';').map_or(record, |(_, text)| text);
    text.lines().next().unwrap_or_default().to_string()
}

fn is_complaint(message: &str) -> bool {
    COMPLAINTS
        .iter()
        .any(|complaint| message.contains(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_record_is_found() {
        let record = "4,512,1000,-;WARNING: CPU: 0 at fs/x.c\n SUBSYSTEM=x\n";
        assert_eq!(message(record), "WARNING: CPU: 0 at fs/x.c");
        assert!(is_complaint(&message(record)));
    }

    #[test]
    fn an_out_of_tree_module_is_no_complaint() {
        assert!(!is_complaint(
            "sluice: loading out-of-tree module taints kernel."
        ));
    }
}
