// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of a scope: complete, in order, page by page.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::channel::write_all;
use crate::support::check::expect;
use crate::support::child::spawn;
use crate::support::ctl::{
    BOTH, CREATE, ChannelInfo, Ctl, KIND_PIPE, LIST, LIST_MAX, List, OWN, Open, PERSISTENT, READ,
};
use crate::support::identity::{NOBODY, become_root_of_a_namespace, become_user};
use crate::support::ioctl::raw;
use crate::support::memory::PAGE;
use crate::support::proc::Call;

topic!(
    "ctl_list",
    fifo: [],
    pipe_only: [
        an_empty_scope_lists_nothing,
        names_come_in_the_order_of_their_bytes,
        pages_of_any_size_make_up_the_whole,
        no_page_has_more_than_the_maximum,
        a_page_is_short_only_at_the_end,
        a_cursor_may_be_a_name_that_is_not_there,
        channels_that_come_and_go_between_pages_disturb_no_others,
        a_list_tells_what_info_tells,
        an_unlinked_channel_is_not_listed,
        a_channel_whose_open_waits_is_listed,
        owners_are_told_as_the_caller_sees_them,
        only_the_entries_told_are_written,
        an_entry_size_that_no_caller_can_have_is_einval,
        a_cursor_must_be_a_name_or_nothing,
    ],
);

/// Names of all lengths and bytes, in an order that is none.
fn mixed_names(count: usize) -> Vec<Vec<u8>> {
    let mut random = Rng::with_seed(5);
    let mut names = Vec::new();
    while names.len() < count {
        let length = random.usize(1..=63);
        // Few first bytes, so that many names share a beginning.
        let mut name: Vec<u8> = (0..length).map(|_| random.u8(253..)).collect();
        name[0] = [b'a', b'Z', 0x01, 0xff][random.usize(..=3)];
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn create_all(ctl: &Ctl, names: &[Vec<u8>]) -> Result<Vec<OwnedFd>> {
    names
        .iter()
        .map(|name| ctl.create(name).context("making a channel"))
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

fn names_come_in_the_order_of_their_bytes(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let names = mixed_names(200);
    let _ends = create_all(&ctl, &names)?;
    expect("the list", ctl.names(OWN), Ok(sorted(names)))
}

fn pages_of_any_size_make_up_the_whole(_: &Context) -> Result<()> {
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

fn no_page_has_more_than_the_maximum(_: &Context) -> Result<()> {
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

fn a_cursor_may_be_a_name_that_is_not_there(_: &Context) -> Result<()> {
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

fn channels_that_come_and_go_between_pages_disturb_no_others(_: &Context) -> Result<()> {
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
        // Everywhere: before the cursor, at it and behind it.
        for number in (1..100).step_by(2) {
            drop(
                ctl.create(name(number))
                    .context("one that comes and goes")?,
            );
        }
        ensure!(round < 100, "the list has no end");
    }
    expect("the list", seen, lasting)
}

fn a_list_tells_what_info_tells(_: &Context) -> Result<()> {
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

fn a_channel_whose_open_waits_is_listed(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let waiting = spawn("a reader that waits", || {
        let opened = Ctl::new()?.open(Open::new("channel", READ | CREATE));
        opened.map(drop).context("open")
    })?;
    waiting.wait_asleep_in(Call::Ioctl)?;
    expect("the list", ctl.names(OWN), Ok(vec![b"channel".to_vec()]))?;
    waiting.kill()?;
    expect("the list then", ctl.names(OWN), Ok(vec![]))
}

fn owners_are_told_as_the_caller_sees_them(_: &Context) -> Result<()> {
    const USER: u32 = 1234;
    let ctl = Ctl::new()?;
    let _of_root = ctl.create("of root")?;
    let maker = spawn("a user", || {
        become_user(USER)?;
        Ctl::new()?.persist(OWN, "of user").context("making it")
    })?;
    maker.finish()?;
    let owners = |ctl: &Ctl| -> Result<Vec<(u32, u32)>> {
        let page = ctl.page(OWN, None, 9).context("the list")?;
        let info = ctl.info(OWN, "of user").context("info")?;
        let mut owners: Vec<_> = page.iter().map(|c| (c.uid, c.gid)).collect();
        owners.push((info.uid, info.gid));
        Ok(owners)
    };
    let user = (USER, USER);
    expect(
        "as the host sees them",
        owners(&ctl)?,
        vec![(0, 0), user, user],
    )?;
    let inside = spawn("root of a user namespace", || {
        become_root_of_a_namespace(USER)?;
        owners(&Ctl::new()?)
    })?;
    let unknown = (NOBODY, NOBODY);
    let expected = vec![unknown, (0, 0), (0, 0)];
    expect("as they see themselves", inside.finish()?, expected)?;
    ctl.unlink(OWN, "of user").context("unlinking")
}

fn only_the_entries_told_are_written(_: &Context) -> Result<()> {
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
        let told = asked.min(2);
        expect("count", list.count as usize, told)?;
        expect("size", list.size as usize, size_of::<List>())?;
        let rest = vec![untouched; 4 - told];
        expect("the rest", entries[told..].to_vec(), rest)?;
    }
    Ok(())
}

fn an_entry_size_that_no_caller_can_have_is_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _end = ctl.create("channel")?;
    let size = size_of::<ChannelInfo>() as u32;
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

fn a_cursor_must_be_a_name_or_nothing(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for name in [&b""[..], b".", b"..", b"a/b", &[b'n'; 64]] {
        let what = format!("after {:?}", name.escape_ascii().to_string());
        let page = ctl.page(OWN, Some(name), 1);
        expect(&what, page, Err(Errno::EINVAL))?;
    }
    let mut entry = ChannelInfo::EMPTY;
    for kind in [2, 3, u32::MAX] {
        let mut list = List::new(OWN, &mut entry, 1);
        list.kind = kind;
        list.name[0] = b'n';
        let what = format!("a cursor of kind {kind}");
        expect(&what, raw(&ctl, LIST, &mut list), Err(Errno::EINVAL))?;
    }
    Ok(())
}
