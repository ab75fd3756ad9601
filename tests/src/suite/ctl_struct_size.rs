// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures that are shorter or longer than the kernel's: which sizes it accepts, what it reads and writes, and that
//! it reads the size once.

use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::close;

use crate::registry::{Context, topic};
use crate::support::channel::write_all;
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{
    BOTH, CHANNEL_INFO_SIZE_VER0, CREATE, ChannelInfo, Ctl, FEATURES, FEATURES_SIZE_VER0, Features,
    INFO, Info, LIST, List, OPEN, OPEN_SIZE_VER0, OWN, Open, expect_no_channel,
};
use crate::support::ioctl::{
    self, INFO as PIPE_INFO, INFO_SIZE_VER0 as PIPE_INFO_SIZE_VER0, Info as PipeInfo, raw,
    raw_with_result, size_error,
};
use crate::support::memory::{GuardedBuffer, Mapping, PAGE};
use crate::support::requests::bytes_of;

topic!(
    "ctl_struct_size",
    fifo: [],
    pipe_only: [
        an_output_structure_of_up_to_a_page_is_filled_as_far_as_known,
        an_output_structure_of_any_other_size_is_refused,
        list_entries_may_be_smaller_or_larger_than_known,
        a_pipe_has_no_parameters,
        info_fills_the_structures_that_have_an_address,
        the_state_by_name_equals_the_state_by_endpoint,
        the_size_of_an_output_structure_is_read_once,
        the_size_of_an_input_structure_is_read_once,
    ],
);

const INFO_SIZE: usize = CHANNEL_INFO_SIZE_VER0 as usize;
const ENTRY_SIZE: usize = size_of::<ChannelInfo>();
const NAME: &str = "channel";
/// The content of memory that no call writes to.
const UNTOUCHED: u8 = 0xa5;

/// An output structure: the kernel reads nothing but its size.
struct OutputStruct<'a> {
    what: &'static str,
    ver0: usize,
    /// Size of the kernel's.
    known: usize,
    fill: Box<dyn Fn(*mut u8) -> nix::Result<()> + 'a>,
}

fn info_request(info: *mut u8, state: *mut u8) -> Info {
    Info {
        state: state as u64,
        ..Info::new(OWN, NAME, info.cast())
    }
}

fn output_structs<'a>(ctl: &'a Ctl, end: &'a OwnedFd) -> Vec<OutputStruct<'a>> {
    let null = ptr::null_mut();
    vec![
        OutputStruct {
            what: "features",
            ver0: FEATURES_SIZE_VER0 as usize,
            known: size_of::<Features>(),
            fill: Box::new(|start| raw(ctl, FEATURES, start)),
        },
        OutputStruct {
            what: "the info of a channel",
            ver0: INFO_SIZE,
            known: size_of::<ChannelInfo>(),
            fill: Box::new(move |start| raw(ctl, INFO, &mut info_request(start, null))),
        },
        OutputStruct {
            what: "the state of a pipe by name",
            ver0: PIPE_INFO_SIZE_VER0 as usize,
            known: size_of::<PipeInfo>(),
            fill: Box::new(move |start| raw(ctl, INFO, &mut info_request(null, start))),
        },
        OutputStruct {
            what: "the state of a pipe by endpoint",
            ver0: PIPE_INFO_SIZE_VER0 as usize,
            known: size_of::<PipeInfo>(),
            fill: Box::new(|start| raw(end, PIPE_INFO, start)),
        },
    ]
}

impl OutputStruct<'_> {
    /// A page after a call with this size.
    fn filled(&self, size: usize) -> Result<Vec<u8>> {
        let mut page = with_size(size as u32);
        (self.fill)(page.as_mut_ptr()).with_context(|| format!("{} of {size} bytes", self.what))?;
        Ok(page)
    }

    /// The page expected after it: the beginning of the whole structure, with the smaller of both sizes.
    fn expected(&self, whole: &[u8], size: usize) -> Vec<u8> {
        let filled = size.min(self.known);
        let mut page = with_size(filled as u32);
        page[4..filled].copy_from_slice(&whole[4..filled]);
        page
    }
}

fn with_size(size: u32) -> Vec<u8> {
    let mut page = vec![UNTOUCHED; PAGE];
    page[..4].copy_from_slice(&size.to_ne_bytes());
    page
}

fn an_output_structure_of_up_to_a_page_is_filled_as_far_as_known(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = ctl.create(NAME).context("creating a channel")?;
    for filled in output_structs(&ctl, &end) {
        let OutputStruct { ver0, known, .. } = filled;
        let whole = filled.filled(known)?;
        ensure!(
            whole[4..known].iter().all(|byte| *byte != UNTOUCHED),
            "{} has unwritten bytes: {:?}",
            filled.what,
            &whole[..known]
        );
        for size in [ver0, ver0 + 8, known, known + 1, known + 4, 1000, PAGE] {
            let what = format!("{} of {size} bytes", filled.what);
            expect_bytes(&what, &filled.filled(size)?, &filled.expected(&whole, size))?;
        }
    }
    Ok(())
}

fn an_output_structure_of_any_other_size_is_refused(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = ctl.create(NAME).context("creating a channel")?;
    for filled in output_structs(&ctl, &end) {
        let below = 0..filled.ver0 as u32;
        for size in below.chain([PAGE as u32 + 1, 1 << 31, u32::MAX]) {
            let mut page = with_size(size);
            let what = format!("{} of {size} bytes", filled.what);
            let result = (filled.fill)(page.as_mut_ptr());
            expect(&what, result, Err(size_error(size)))?;
            expect_bytes(&what, &page, &with_size(size))?;
        }
    }
    Ok(())
}

fn list_entries_may_be_smaller_or_larger_than_known(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _ends = [ctl.create("a")?, ctl.create("b")?];
    let infos = [ctl.info(OWN, "a")?, ctl.info(OWN, "b")?];
    for entry_size in [INFO_SIZE, ENTRY_SIZE, ENTRY_SIZE + 8, 1000, PAGE] {
        let filled = entry_size.min(ENTRY_SIZE);
        let mut memory = vec![UNTOUCHED; 3 * PAGE];
        let mut expected = memory.clone();
        for (index, info) in infos.iter().enumerate() {
            let at = index * entry_size;
            expected[at..at + filled].copy_from_slice(&bytes_of(info)[..filled]);
            expected[at..at + 4].copy_from_slice(&(filled as u32).to_ne_bytes());
        }
        let mut list = List::new(OWN, memory.as_mut_ptr().cast(), 2);
        list.entry_size = entry_size as u32;
        let what = format!("entries of {entry_size} bytes");
        expect(&what, raw(&ctl, LIST, &mut list), Ok(()))?;
        expect(&what, list.count, 2)?;
        expect_bytes(&what, &memory, &expected)?;
    }
    Ok(())
}

fn a_pipe_has_no_parameters(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let mut valid = [0u8; PAGE];
    valid[0] = 64;
    for params in [1, valid.as_ptr() as u64, u64::MAX] {
        let request = Open {
            params,
            ..Open::new(NAME, BOTH | CREATE)
        };
        let what = format!("an open with parameters at {params:#x}");
        expect(&what, ctl.open(request).map(drop), Err(Errno::EINVAL))?;
    }
    expect_no_channel(&ctl)
}

fn info_fills_the_structures_that_have_an_address(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let null = ptr::null_mut();
    let missing = raw(&ctl, INFO, &mut info_request(null, null));
    expect("a missing channel", missing, Err(Errno::ENOENT))?;
    let _end = ctl.create(NAME).context("creating the channel")?;
    let neither = raw(&ctl, INFO, &mut info_request(null, null));
    expect("neither address", neither, Ok(()))?;
    let (mut info, mut state) = (ChannelInfo::EMPTY, PipeInfo::default());
    let mut both = info_request(
        ptr::from_mut(&mut info).cast(),
        ptr::from_mut(&mut state).cast(),
    );
    expect("both addresses", raw(&ctl, INFO, &mut both), Ok(()))?;
    expect("info", Ok(info), ctl.info(OWN, NAME))?;
    expect("readers in both", (info.readers, state.readers), (1, 1))?;
    expect("capacity in both", info.capacity, state.capacity)
}

/// Except for the fields that belong to an endpoint.
fn the_state_by_name_equals_the_state_by_endpoint(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = ctl.create(NAME).context("creating the channel")?;
    write_all(&end, &[0; PAGE + 1])?;
    let mut state = PipeInfo::default();
    let start = ptr::from_mut(&mut state).cast();
    raw(&ctl, INFO, &mut info_request(ptr::null_mut(), start)).context("the state by name")?;
    let by_endpoint = ioctl::info(&end).context("the state by endpoint")?;
    expect("bytes", state.bytes, PAGE as u64 + 1)?;
    let expected = PipeInfo {
        spin_limit_ns: 0,
        ..by_endpoint
    };
    expect("the state", state, expected)
}

const CALLS: usize = 5_000;

/// Runs `body` while another thread keeps storing these sizes at `start` in turn.
fn while_the_size_changes<T>(start: *mut u8, sizes: &[u32], body: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    // SAFETY: aligned memory of the caller's, which until the end of the thread is accessed as an atomic or by the kernel.
    let size: &AtomicU32 = unsafe { AtomicU32::from_ptr(start.cast()) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for value in sizes {
                    size.store(*value, Ordering::Relaxed);
                }
            }
        });
        let result = body();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// A call that succeeds has read a size that fits, and filled in all known fields and no more.
fn the_size_of_an_output_structure_is_read_once(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = ctl.create(NAME).context("creating a channel")?;
    for filled in output_structs(&ctl, &end) {
        let OutputStruct { ver0, known, .. } = filled;
        let whole = filled.filled(known)?;
        let first = filled.expected(&whole, ver0);
        let untouched = [UNTOUCHED; PAGE - 4];
        let page = Mapping::new(1)?;
        let sizes = [0, 5, ver0 as u32, known as u32 + 8, PAGE as u32, u32::MAX];
        while_the_size_changes(page.start(), &sizes, || {
            for _ in 0..CALLS {
                let rest = page.start().wrapping_add(4);
                // SAFETY: within our own mapping; the other thread uses the first four bytes only.
                unsafe { rest.write_bytes(UNTOUCHED, PAGE - 4) };
                let result = (filled.fill)(page.start());
                // SAFETY: as above, and the call has ended.
                let seen = unsafe { std::slice::from_raw_parts(rest, PAGE - 4) };
                let expected = match result {
                    Ok(()) if seen == &first[4..] => continue,
                    Ok(()) => &whole[4..],
                    Err(Errno::EINVAL | Errno::E2BIG) => &untouched,
                    Err(error) => return Err(error).context(filled.what),
                };
                // Comparing byte by byte is slow, so this is done only if the content differs.
                if seen != expected {
                    expect_bytes(filled.what, seen, expected)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The value of the last field is rejected unless a shorter size is used than was checked; the memory after the
/// structure is unmapped.
fn the_size_of_an_input_structure_is_read_once(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let request = Open {
        params: 8,
        ..Open::new(NAME, BOTH | CREATE)
    };
    let mut edge = GuardedBuffer::new(OPEN_SIZE_VER0 as usize)?;
    edge.fill_from(&bytes_of(&request));
    let start = edge.start();
    let open = || match raw_with_result(&ctl, OPEN, start) {
        Ok(fd) => close(fd).map(|()| None),
        Err(error) => Ok(Some(error)),
    };
    let sizes = [0, OPEN_SIZE_VER0 - 8, OPEN_SIZE_VER0];
    while_the_size_changes(start, &sizes, || -> Result<()> {
        for _ in 0..CALLS {
            let refused = open().context("closing what was opened")?;
            expect("an open with parameters", refused, Some(Errno::EINVAL))?;
        }
        Ok(())
    })?;
    let sizes = [0, OPEN_SIZE_VER0, PAGE as u32, PAGE as u32 + 1, u32::MAX];
    while_the_size_changes(start, &sizes, || -> Result<()> {
        for _ in 0..CALLS {
            let refused = open().context("closing what was opened")?;
            let known = matches!(refused, Some(Errno::EINVAL | Errno::E2BIG | Errno::EFAULT));
            expect(&format!("{refused:?} is a refusal"), known, true)?;
        }
        Ok(())
    })?;
    expect_no_channel(&ctl)
}
