// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid structures: every field, and every size.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, SpliceFFlags, splice};
use nix::unistd::{pipe2, read, write};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::ctl::{
    ABI, ALL_FLAGS, BOTH, CREATE, Ctl, FEATURES, Features, INFO, KINDS, LIST, OPEN, OWN,
};
use crate::support::ioctl::raw;
use crate::support::kernel::expect_no_objects;
use crate::support::memory::{Mapping, PAGE};
use crate::support::requests::{Entries, Request, SIZE_AT, requests};

topic!(
    "ctl_invalid",
    fifo: [],
    pipe_only: [
        features_reports_what_the_module_supports,
        an_unknown_flag_is_einval,
        an_unknown_kind_is_einval,
        a_mode_beyond_the_permission_bits_is_einval,
        a_reserved_field_is_einval,
        a_too_short_structure_is_einval,
        a_longer_structure_is_accepted_if_the_rest_is_zero,
        an_unknown_command_is_enotty,
        any_value_in_any_field_gets_a_documented_result,
        ctl_supports_no_read_write_or_splice,
    ],
);

// Offsets of fields.
const KIND_AT: usize = 4;
const FLAGS_AT: usize = 8;
const MODE_AT: usize = 80;
const RESERVED_AT: usize = 84;
/// In the structures of the list and info calls.
const ADDRESSES_AT: usize = 80;
const STATE_AT: usize = 88;

/// The requests that have a scope.
fn scoped_requests(entries: &Entries) -> Vec<Request> {
    requests(entries).split_off(1)
}

fn expect_refused(
    ctl: &Ctl,
    request: &Request,
    bytes: Vec<u8>,
    what: &str,
    error: Errno,
) -> Result<()> {
    let seen = request.send(ctl, &bytes);
    expect(&format!("{} with {what}", request.what), seen, Err(error))
}

fn features_reports_what_the_module_supports(_: &Context) -> Result<()> {
    let size = size_of::<Features>() as u32;
    let mut features = Features {
        size,
        abi: 77,
        kinds: 77,
        open_flags: 77,
    };
    raw(&Ctl::new()?, FEATURES, &mut features).context("features")?;
    let expected = Features {
        size,
        abi: ABI,
        kinds: KINDS,
        open_flags: ALL_FLAGS.into(),
    };
    expect("features", features, expected)
}

fn an_unknown_flag_is_einval(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in scoped_requests(&entries) {
        let (known, given) = match request.command {
            OPEN => (ALL_FLAGS, BOTH | CREATE),
            _ => (0, 0),
        };
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| known & bit == 0) {
            let bytes = request.with_word(FLAGS_AT, given | bit);
            expect_refused(
                &ctl,
                &request,
                bytes,
                &format!("flag {bit:#x}"),
                Errno::EINVAL,
            )?;
        }
    }
    Ok(())
}

fn an_unknown_kind_is_einval(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in scoped_requests(&entries) {
        let none = (request.command != LIST).then_some(0);
        for kind in [62, 63, 64, 65, 257, 1 << 31, u32::MAX]
            .into_iter()
            .chain(none)
        {
            let bytes = request.with_word(KIND_AT, kind);
            expect_refused(
                &ctl,
                &request,
                bytes,
                &format!("kind {kind}"),
                Errno::EINVAL,
            )?;
        }
    }
    Ok(())
}

fn a_mode_beyond_the_permission_bits_is_einval(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let open = &scoped_requests(&entries)[0];
    for mode in (9..32).map(|bit| 1 << bit).chain([0o1777, u32::MAX]) {
        let bytes = open.with_word(MODE_AT, mode);
        expect_refused(&ctl, open, bytes, &format!("mode {mode:o}"), Errno::EINVAL)?;
    }
    expect_no_objects()
}

fn a_reserved_field_is_einval(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let open = &scoped_requests(&entries)[0];
    for bit in 0..32 {
        let bytes = open.with_word(RESERVED_AT, 1 << bit);
        expect_refused(
            &ctl,
            open,
            bytes,
            &format!("reserved bit {bit}"),
            Errno::EINVAL,
        )?;
    }
    expect_no_objects()
}

fn a_too_short_structure_is_einval(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in requests(&entries) {
        for size in 0..request.bytes.len() {
            let bytes = request.with_word(SIZE_AT, size as u32);
            expect_refused(
                &ctl,
                &request,
                bytes,
                &format!("a size of {size}"),
                Errno::EINVAL,
            )?;
        }
    }
    Ok(())
}

fn a_longer_structure_is_accepted_if_the_rest_is_zero(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in requests(&entries) {
        let size = request.bytes.len();
        let mut bytes = request.with_word(SIZE_AT, PAGE as u32);
        bytes.resize(PAGE, 0);
        for at in [size, size + 1, PAGE - 1] {
            let mut longer = bytes.clone();
            longer[at] = 1;
            let expected = match request.output_only {
                true => Ok(()),
                false => Err(Errno::E2BIG),
            };
            let what = format!("{} with byte {at} set", request.what);
            expect(&what, request.send(&ctl, &longer), expected)?;
        }
        expect(request.what, request.send(&ctl, &bytes), Ok(()))?;
    }
    Ok(())
}

fn an_unknown_command_is_enotty(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let memory = Mapping::new(1)?;
    let pipes_own = OPEN & !0xff;
    // TCGETS, an unassigned number, the pipe's first ioctl, one beyond ctl's last, and one of another type.
    for command in [
        0x5401,
        0x1234_5678,
        pipes_own,
        pipes_own | 0x1f,
        OPEN ^ 0x100,
    ] {
        let what = format!("ioctl {command:#x}");
        let seen = raw(&ctl, command, memory.start());
        expect(&what, seen, Err(Errno::ENOTTY))?;
    }
    Ok(())
}

/// With any value in any field, the result is success or a documented errno.
fn any_value_in_any_field_gets_a_documented_result(_: &Context) -> Result<()> {
    let known = [
        Errno::EINVAL,
        Errno::E2BIG,
        Errno::EFAULT,
        Errno::EBADF,
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::ENXIO,
        Errno::EPERM,
    ];
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let end = ctl.create("channel")?;
    for request in requests(&entries) {
        for at in (0..request.bytes.len()).step_by(4) {
            for word in [0, 1, 2, 0xff, 0x2f, 0x8000_0000, u32::MAX] {
                // An open for one side would block, and results are written to the addresses in a structure.
                let addresses = ADDRESSES_AT..ADDRESSES_AT + 8;
                let states = STATE_AT..STATE_AT + 8;
                if match request.command {
                    OPEN => at == FLAGS_AT,
                    LIST => addresses.contains(&at),
                    INFO => addresses.contains(&at) || states.contains(&at),
                    _ => false,
                } {
                    continue;
                }
                let seen = request.send(&ctl, &request.with_word(at, word));
                let answered = seen.is_ok() || seen.is_err_and(|errno| known.contains(&errno));
                let what = format!("{} with {word:#x} at {at}: {seen:?}: known", request.what);
                expect(&what, answered, true)?;
            }
        }
    }
    drop(end);
    expect("names left", ctl.names(OWN), Ok(vec![]))?;
    expect_no_objects()
}

fn ctl_supports_no_read_write_or_splice(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    expect("a read", read(&ctl, &mut [0]), Err(Errno::EINVAL))?;
    // ctl is open for reading only.
    expect("a write", write(&ctl, b"x"), Err(Errno::EBADF))?;
    let (_reader, writer) = pipe2(OFlag::O_CLOEXEC).context("pipe")?;
    let spliced = splice(&ctl, None, &writer, None, 1, SpliceFFlags::empty());
    expect("a splice", spliced, Err(Errno::EINVAL))
}
