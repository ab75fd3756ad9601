// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of a scope is complete, sorted and paged.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::channel::write_all;
use crate::support::check::expect;
use crate::support::child::spawn;
use crate::support::credentials::{NOBODY, become_user, become_user_namespace_root};
use crate::support::ctl::{
    BOTH, CHANNEL_INFO_SIZE_VER0, CREATABLE, CREATE, ChannelInfo, Ctl, KIND_PIPE, LIST, LIST_MAX,
    List, NONBLOCK, OWN, Open, PERSISTENT, READ, access_of,
};
use crate::support::ioctl::raw;
use crate::support::memory::PAGE;
use crate::support::proc::Call;

topic!(
    "ctl_list",
    fifo: [],
    pipe_only: [
        an_empty_scope_lists_nothing,
        names_are_sorted_by_byte_value,
        pages_of_any_size_list_every_name,
        a_page_may_end_within_and_between_kinds,
        a_page_has_at_most_the_maximum_of_entries,
        a_page_is_short_only_at_the_end,
        a_cursor_may_be_a_missing_name,
        channels_created_or_removed_between_pages_hide_no_others,
        a_list_reports_the_same_as_info,
        an_unlinked_channel_is_not_listed,
        a_channel_with_a_blocked_open_is_listed,
        owners_are_mapped_to_the_callers_namespace,
        only_the_returned_entries_are_written,
        an_invalid_entry_size_is_einval,
        an_invalid_cursor_is_einval,
    ],
);

/// Names of many durations and with many byte values, unsorted.
fn mixed_names(count: usize) -> Vec<Vec<u8>> {
    let mut random = Rng::with_seed(5);
    let mut names = Vec::new();
    while names.len() < count {
        let length = random.usize(1..=63);
        // Few different first bytes, so that many names have a common prefix.
        let mut name: Vec<u8> = (0..length).map(|_| random.usize(253..=255) as u8).collect();
        name[0] = [b'a', b'Z', 0x01, 0xff][random.usize(0..=3)];
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn create_all(ctl: &Ctl, names: &[Vec<u8>]) -> Result<Vec<OwnedFd>> {
    names
        .iter()
        .map(|name| ctl.create(name).context("creating a channel"))
        .collect()
}

fn sorted(mut names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    names.sort();
    names
}

fn names_of(page: &[ChannelInfo]) -> Vec<Vec<u8>> {
    page.iter().map(|channel| channel.name().to_vec()).collect()
}

fn an_empty_scope_lists_nothing(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for count in [0, 1, LIST_MAX] {
        expect("a page", ctl.page(OWN, None, count), Ok(vec![]))?;
    }
    expect("after a name", ctl.page(OWN, Some(b"name"), 1), Ok(vec![]))
}

fn names_are_sorted_by_byte_value(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let names = mixed_names(200);
    let _ends = create_all(&ctl, &names)?;
    expect("the list", ctl.names(OWN), Ok(sorted(names)))
}

fn pages_of_any_size_list_every_name(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let names = mixed_names(130);
    let _ends = create_all(&ctl, &names)?;
    let names = sorted(names);
    for size in [1, 2, 7, 63, LIST_MAX] {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = seen.last().map(Vec::as_slice);
            let page = ctl.page(OWN, after, size).context("a page")?;
            seen.extend(names_of(&page));
            if page.len() < size {
                break;
            }
        }
        expect(&format!("in pages of {size}"), &seen, &names)?;
    }
    Ok(())
}

/// The cursor is a kind and a name, which exists in every kind.
fn a_page_may_end_within_and_between_kinds(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    // Each page ends between kinds, and then within them.
    for count in [LIST_MAX / 2, LIST_MAX / 2 + 1] {
        let names: Vec<Vec<u8>> = (0..count).map(|n| format!("{n:02}").into()).collect();
        let mut ends = Vec::new();
        for kind in CREATABLE {
            for name in &names {
                let open = Open {
                    kind,
                    ..Open::new(name, access_of(kind) | CREATE | NONBLOCK)
                };
                ends.push(ctl.open(open).context("creating a channel")?);
            }
        }
        let expected = CREATABLE.iter().flat_map(|_| names.clone()).collect();
        expect(
            &format!("{count} names of each kind"),
            ctl.names(OWN),
            Ok(expected),
        )?;
    }
    Ok(())
}

fn a_page_has_at_most_the_maximum_of_entries(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let names = mixed_names(LIST_MAX + 10);
    let _ends = create_all(&ctl, &names)?;
    let page = ctl.page(OWN, None, LIST_MAX + 10).context("a page")?;
    expect("its length", page.len(), LIST_MAX)?;
    expect(
        "its names",
        names_of(&page),
        sorted(names)[..LIST_MAX].to_vec(),
    )
}

fn a_page_is_short_only_at_the_end(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let names = mixed_names(20);
    let _ends = create_all(&ctl, &names)?;
    let names = sorted(names);
    for (at, name) in names.iter().enumerate() {
        let page = ctl.page(OWN, Some(name), 5).context("a page")?;
        let end = names.len().min(at + 6);
        expect("a page", names_of(&page), names[at + 1..end].to_vec())?;
    }
    expect("no entries asked for", ctl.page(OWN, None, 0), Ok(vec![]))
}

fn a_cursor_may_be_a_missing_name(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let names: Vec<Vec<u8>> = vec![b"b".to_vec(), b"d".to_vec()];
    let _ends = create_all(&ctl, &names)?;
    for (after, from) in [(b"a", 0), (b"b", 1), (b"c", 1), (b"d", 2), (b"e", 2)] {
        let page = ctl.page(OWN, Some(after), 5).context("a page")?;
        let what = format!("after {}", after.escape_ascii());
        expect(&what, names_of(&page), names[from..].to_vec())?;
    }
    Ok(())
}

fn channels_created_or_removed_between_pages_hide_no_others(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let name = |number: usize| format!("channel-{number:03}").into_bytes();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let lasting: Vec<Vec<u8>> = (0..100).step_by(2).map(name).collect();
    let _ends = create_all(&ctl, &lasting)?;
    for round in 0.. {
        let after = seen.last().map(Vec::as_slice);
        let page = ctl.page(OWN, after, 3).context("a page")?;
        seen.extend(names_of(&page));
        if page.len() < 3 {
            break;
        }
        // Before the cursor, at it and after it.
        for number in (1..100).step_by(2) {
            drop(ctl.create(name(number)).context("a temporary channel")?);
        }
        ensure!(round < 100, "the list does not end");
    }
    expect("the list", seen, lasting)
}

fn a_list_reports_the_same_as_info(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let named = |mode, capacity, flags, name: &str| {
        let request = Open::new(name, flags | CREATE);
        ctl.open(Open {
            mode,
            capacity,
            ..request
        })
    };
    let first = named(0o644, 4096, BOTH, "first")?;
    write_all(&first, b"some")?;
    let _reader = ctl.open(Open::new("first", READ))?;
    ctl.persist(OWN, "second")?;
    let list = ctl.page(OWN, None, 9).context("the list")?;
    let infos = vec![
        ctl.info(OWN, "first").context("info")?,
        ctl.info(OWN, "second").context("info")?,
    ];
    expect("the list", &list, &infos)?;
    let first = list[0];
    expect("kind", first.kind, KIND_PIPE)?;
    expect("mode", first.mode, 0o644)?;
    expect("endpoints", (first.readers, first.writers), (2, 1))?;
    expect("sizes", (first.capacity, first.bytes), (4096, 4))?;
    expect("flags", (first.flags, list[1].flags), (0, PERSISTENT))?;
    ctl.unlink(OWN, "second").context("unlinking")
}

fn an_unlinked_channel_is_not_listed(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _ends = create_all(&ctl, &[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()])?;
    ctl.unlink(OWN, "b")?;
    let left = vec![b"a".to_vec(), b"c".to_vec()];
    expect("the list", ctl.names(OWN), Ok(left))
}

fn a_channel_with_a_blocked_open_is_listed(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let waiting = spawn("a blocked reader", || {
        let opened = Ctl::new()?.open(Open::new("channel", READ | CREATE));
        opened.map(drop).context("open")
    })?;
    waiting.wait_asleep_in(Call::Ioctl)?;
    expect("the list", ctl.names(OWN), Ok(vec![b"channel".to_vec()]))?;
    waiting.kill()?;
    expect("the list then", ctl.names(OWN), Ok(vec![]))
}

fn owners_are_mapped_to_the_callers_namespace(_: &Context) -> Result<()> {
    const USER: u32 = 1234;
    let ctl = Ctl::new()?;
    let _of_root = ctl.create("of root")?;
    let creator = spawn("a user", || {
        become_user(USER)?;
        Ctl::new()?
            .persist(OWN, "of user")
            .context("creating the channel")
    })?;
    creator.finish()?;
    let owners = |ctl: &Ctl| -> Result<Vec<(u32, u32)>> {
        let page = ctl.page(OWN, None, 9).context("the list")?;
        let info = ctl.info(OWN, "of user").context("info")?;
        let mut owners: Vec<_> = page.iter().map(|c| (c.uid, c.gid)).collect();
        owners.push((info.uid, info.gid));
        Ok(owners)
    };
    let user = (USER, USER);
    expect(
        "as seen by the host",
        owners(&ctl)?,
        vec![(0, 0), user, user],
    )?;
    let inside = spawn("root of a user namespace", || {
        become_user_namespace_root(USER)?;
        owners(&Ctl::new()?)
    })?;
    let unknown = (NOBODY, NOBODY);
    let expected = vec![unknown, (0, 0), (0, 0)];
    expect("as seen inside", inside.finish()?, expected)?;
    ctl.unlink(OWN, "of user").context("unlinking")
}

fn only_the_returned_entries_are_written(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _ends = create_all(&ctl, &[b"a".to_vec(), b"b".to_vec()])?;
    let untouched = ChannelInfo {
        uid: 77,
        bytes: 88,
        ..ChannelInfo::EMPTY
    };
    for asked in [0, 1, 2, 4] {
        let mut entries = [untouched; 4];
        let mut list = List::new(OWN, entries.as_mut_ptr(), asked);
        raw(&ctl, LIST, &mut list).context("the list")?;
        let returned = asked.min(2);
        expect("count", list.count as usize, returned)?;
        expect("size", list.size as usize, size_of::<List>())?;
        let rest = vec![untouched; 4 - returned];
        expect("the rest", entries[returned..].to_vec(), rest)?;
    }
    Ok(())
}

fn an_invalid_entry_size_is_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _end = ctl.create("channel")?;
    let size = CHANNEL_INFO_SIZE_VER0;
    for entry_size in [
        0,
        1,
        size - 8,
        size - 1,
        size + 1,
        size + 4,
        PAGE as u32 + 8,
        u32::MAX,
    ] {
        let mut entries = [ChannelInfo::EMPTY; 4];
        let mut list = List {
            entry_size,
            ..List::new(OWN, entries.as_mut_ptr(), 1)
        };
        expect(
            &format!("entries of {entry_size}"),
            raw(&ctl, LIST, &mut list),
            Err(Errno::EINVAL),
        )?;
    }
    Ok(())
}

fn an_invalid_cursor_is_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for name in [&b""[..], b".", b"..", b"a/b", &[b'n'; 64]] {
        let what = format!("after {:?}", name.escape_ascii().to_string());
        let page = ctl.page(OWN, Some(name), 1);
        expect(&what, page, Err(Errno::EINVAL))?;
    }
    let mut entry = ChannelInfo::EMPTY;
    for kind in [63, 64, u32::MAX] {
        let mut list = List::new(OWN, &mut entry, 1);
        list.kind = kind;
        list.name[0] = b'n';
        let what = format!("a cursor of kind {kind}");
        expect(&what, raw(&ctl, LIST, &mut list), Err(Errno::EINVAL))?;
    }
    Ok(())
}
