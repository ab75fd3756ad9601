// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks in a log of writes: what has been acknowledged so far.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use nix::ioctl_readwrite;

use crate::log::{Kind, Log};

/// The numbers of a map's sequence that concern its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// All changes up to this one were acknowledged.
    pub stored: u64,
    /// No greater number was answered.
    pub answered: u64,
}

impl Mark {
    /// The name of the map and its mark, if it is one of this program: the kernel makes one, too, when logging ends.
    fn parse(text: &str) -> Option<(&str, Mark)> {
        let (rest, answered) = text.rsplit_once(':')?;
        let (map, stored) = rest.rsplit_once(':')?;
        let (stored, answered) = (stored.parse().ok()?, answered.parse().ok()?);
        Some((map, Mark { stored, answered }))
    }

    /// Without blanks: they separate the arguments of a message.
    fn text(self, map: &str) -> String {
        format!("{map}:{}:{}", self.stored, self.answered)
    }

    fn extend(&mut self, stored: u64, answered: u64) {
        self.stored = self.stored.max(stored);
        self.answered = self.answered.max(answered);
    }
}

/// The marks of a map in a log of writes, with their entries.
pub struct Marks(Vec<(usize, Mark)>);

impl Marks {
    pub fn new(log: &Log, map: &str) -> Marks {
        let marks = log.entries.iter().enumerate().filter_map(|(index, entry)| {
            let Kind::Mark(text) = &entry.kind else {
                return None;
            };
            Mark::parse(text)
                .filter(|(name, _)| *name == map)
                .map(|(_, mark)| (index, mark))
        });
        Marks(marks.collect())
    }

    /// The last one before an entry. `None`: not even the map existed.
    pub fn last(&self, entry: usize) -> Option<Mark> {
        let before = self.0.partition_point(|(index, _)| *index < entry);
        before.checked_sub(1).map(|index| self.0[index].1)
    }
}

/// Makes marks in a log of writes.
pub struct Marker {
    map: String,
    device: Option<Device>,
    state: Mutex<State>,
    every: u32,
}

#[derive(Default)]
struct State {
    mark: Mark,
    since: u32,
}

impl Marker {
    /// Without the name of a device it makes none. The first mark says that the map exists.
    pub fn new(map: &str, device: Option<&str>, every: u32) -> Result<Marker> {
        let device = device.map(Device::open).transpose()?;
        if let Some(device) = &device {
            device.mark(&Mark::default().text(map))?;
        }
        Ok(Marker {
            map: map.into(),
            device,
            state: Mutex::default(),
            every,
        })
    }

    /// Notes a number that was answered, and up to where changes are stored.
    pub fn note(&self, stored: u64, answered: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.mark.extend(stored, answered);
        state.since += 1;
        match &self.device {
            Some(device) if state.since >= self.every => {
                state.since = 0;
                device.mark(&state.mark.text(&self.map))
            }
            _ => Ok(()),
        }
    }
}

/// A device-mapper device with the target log-writes.
struct Device {
    control: File,
    name: String,
}

/// struct dm_ioctl, struct dm_target_msg and its text. Only the fields that a message needs have names.
#[repr(C)]
struct Message {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    unused: [u32; 5],
    device: u64,
    name: [u8; 128],
    rest: [u8; 136],
    sector: u64,
    text: [u8; 512],
}

const DM_IOCTL_SIZE: usize = 312;
const DM_TARGET_MSG: u8 = 14;
const DM_VERSION: [u32; 3] = [4, 0, 0];

mod request {
    use super::*;

    /// As in the kernel's header, where the size is that of struct dm_ioctl alone.
    #[repr(C)]
    pub struct Header([u64; DM_IOCTL_SIZE / 8]);
    ioctl_readwrite!(target_message, 0xfd, DM_TARGET_MSG, Header);
}

impl Device {
    fn open(name: &str) -> Result<Device> {
        const PATH: &str = "/dev/mapper/control";
        let control = OpenOptions::new().read(true).write(true).open(PATH);
        let control = control.with_context(|| format!("cannot open {PATH}; run as root"))?;
        ensure!(
            name.len() < 128,
            "'{name}' is too long for a device of the device mapper"
        );
        Ok(Device {
            control,
            name: name.into(),
        })
    }

    fn mark(&self, text: &str) -> Result<()> {
        let mut message = Message {
            version: DM_VERSION,
            data_size: size_of::<Message>() as u32,
            data_start: DM_IOCTL_SIZE as u32,
            unused: [0; 5],
            device: 0,
            name: [0; 128],
            rest: [0; 136],
            sector: 0,
            text: [0; 512],
        };
        message.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let text = format!("mark {text}");
        ensure!(
            text.len() < message.text.len(),
            "the mark '{text}' is too long"
        );
        message.text[..text.len()].copy_from_slice(text.as_bytes());
        let address = (&raw mut message).cast();
        // SAFETY: the kernel reads and writes data_size bytes, which is the size of the message.
        unsafe { request::target_message(self.control.as_raw_fd(), address) }
            .with_context(|| format!("the device {} does not take a mark", self.name))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark {
            stored: 7,
            answered: 9,
        };
        assert_eq!(Mark::parse(&mark.text("a:b")), Some(("a:b", mark)));
        assert_eq!(Mark::parse("dm-log-writes-end"), None);
        assert_eq!(Mark::parse("map:7:"), None);
    }

    #[test]
    fn a_mark_only_grows() {
        let mut mark = Mark::default();
        mark.extend(5, 8);
        mark.extend(3, 4);
        assert_eq!(
            mark,
            Mark {
                stored: 5,
                answered: 8
            }
        );
    }

    #[test]
    fn the_message_is_laid_out_as_in_the_kernel() {
        assert_eq!(std::mem::offset_of!(Message, name), 48);
        assert_eq!(std::mem::offset_of!(Message, sector), DM_IOCTL_SIZE);
    }
}
