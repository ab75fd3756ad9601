// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: who may do what, by the sender of a request and by the opener of its socket.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid, setgroups};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::check::expect;
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::{
    NOBODY, become_user, become_user_namespace_root, become_user_with_groups, drop_capabilities,
};
use crate::support::ctl::{BOTH, CREATE, Ctl, OWN, Open, PERSIST, READ, WRITE, usage_of};
use crate::support::fd_passing::{receive_fd, send_fd, socket_pair};
use crate::support::map::{KIND_MAP, Maps, NAME, get, put};
use crate::support::netlink::{Attrs, Socket, attr, command, open_socket};
use crate::support::parameter::{Parameter, scope_limit};
use crate::support::time::eventually;

topic!(
    "map_netlink_access",
    fifo: [],
    pipe_only: [
        the_mode_decides_who_may_read_and_write,
        a_batch_does_what_the_mode_permits,
        sender_and_opener_of_the_socket_both_need_permission,
        a_map_of_another_cgroup_is_not_found,
        a_socket_of_another_cgroup_finds_no_map,
        a_map_is_created_only_by_the_opener_of_the_socket,
        a_sender_with_fewer_capabilities_creates_a_map,
        a_map_belongs_to_its_creator,
        a_map_beyond_a_limit_is_refused_with_the_reason,
        handles_count_as_channels_of_their_user,
        a_handle_works_for_whoever_has_its_socket,
        a_passed_socket_keeps_its_handles,
        another_network_namespace_has_the_family,
    ],
);

const OWNER: u32 = 1001;
const GROUP: u32 = 2001;
const OTHER_USER: u32 = 3001;
const KEY: &[u8] = b"key";

fn named() -> Attrs {
    Attrs::new().name(NAME)
}

/// A persistent map in the cgroup of this process, with an entry.
fn create_map(mode: u32) -> Result<()> {
    let request = Open {
        kind: KIND_MAP,
        mode,
        ..Open::new(NAME, BOTH | CREATE | PERSIST)
    };
    let end = Ctl::new()?.open(request).context("creating a map")?;
    put(&end, KEY, b"value").map(drop)
}

fn create_map_of_owner(mode: u32) -> Result<()> {
    let creator = spawn("the owner", || {
        become_user_with_groups(OWNER, GROUP, &[])?;
        create_map(mode)
    })?;
    creator.finish()
}

fn create_map_in(cgroup: &Cgroup, mode: u32) -> Result<()> {
    cgroup.spawn("the owner", || create_map(mode))?.finish()
}

fn unlink_map() -> Result<()> {
    Maps::new()?.unlink().context("unlinking the map")
}

/// Requests that read, and requests that write. None changes more than the value of the entry.
fn requests(map: &Attrs) -> [Vec<(u8, Attrs)>; 2] {
    let key = map.clone().key(KEY);
    let open = |flags| map.clone().flags(flags);
    let set = key.clone().value(b"value");
    [
        vec![
            (command::GET, key.clone()),
            (command::DUMP, map.clone()),
            (command::OPEN, open(READ)),
        ],
        vec![
            (command::SET, set),
            (command::DELETE, key.u64(attr::IF_VERSION, u64::MAX)),
            (command::OPEN, open(WRITE)),
        ],
    ]
}

/// Checks whether requests that read, and requests that write, are permitted. Others are refused with this errno.
fn expect_access(socket: &Socket, map: &Attrs, permitted: [bool; 2], errno: Errno) -> Result<()> {
    for (requests, permitted) in requests(map).into_iter().zip(permitted) {
        for (command, attrs) in requests {
            let expected = match command {
                _ if !permitted => Err(errno),
                // The entry has another version.
                command::DELETE => Err(Errno::ESTALE),
                _ => Ok(()),
            };
            let seen = socket.outcome(command, &attrs)?;
            expect(&format!("command {command}"), seen, expected)?;
        }
    }
    // Either of both permits the state.
    let expected = match permitted.contains(&true) {
        true => Ok(()),
        false => Err(errno),
    };
    expect("the state", socket.outcome(command::INFO, map)?, expected)
}

fn expect_refused(socket: &Socket, map: &Attrs, errno: Errno) -> Result<()> {
    expect_access(socket, map, [false; 2], errno)?;
    let step = Attrs::new().u32(attr::COMMAND, 0).key(KEY);
    let both = [
        (command::BATCH, map.clone().step(&step)),
        (command::OPEN, map.clone().flags(BOTH)),
    ];
    for (command, attrs) in both {
        let what = format!("command {command}");
        expect(&what, socket.outcome(command, &attrs)?, Err(errno))?;
    }
    Ok(())
}

/// A socket that a process has opened after this.
fn socket_opened_after(change: impl FnOnce() -> Result<()>) -> Result<Socket> {
    let (here, there) = socket_pair()?;
    let opener = spawn_keeping("the opener of a socket", &[there.as_fd()], || {
        change()?;
        send_fd(&there, open_socket()?.as_fd())
    })?;
    opener.finish()?;
    Socket::from_fd(receive_fd(&here)?)
}

/// Runs `body` in a process that has the socket, after this.
fn use_after(
    socket: &Socket,
    change: impl FnOnce() -> Result<()>,
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let sender = spawn_keeping("the sender", &[socket.as_fd()], || {
        change()?;
        body()
    })?;
    sender.finish()
}

// ---- modes ----

/// User, group and supplementary groups.
type Credentials = (u32, u32, &'static [u32]);

fn the_mode_decides_who_may_read_and_write(_: &Context) -> Result<()> {
    let owner: Credentials = (OWNER, OTHER_USER, &[]);
    let member: Credentials = (OTHER_USER, GROUP, &[]);
    let supplementary: Credentials = (OTHER_USER, OTHER_USER, &[GROUP]);
    let other: Credentials = (OTHER_USER, OTHER_USER, &[]);
    for (mode, who, permitted) in [
        (0o600, owner, [true, true]),
        (0o400, owner, [true, false]),
        (0o200, owner, [false, true]),
        (0o077, owner, [false, false]),
        (0o600, member, [false, false]),
        (0o040, member, [true, false]),
        (0o020, supplementary, [false, true]),
        (0o060, supplementary, [true, true]),
        (0o707, member, [false, false]),
        (0o660, other, [false, false]),
        (0o004, other, [true, false]),
        (0o002, other, [false, true]),
        (0o000, (0, 0, &[]), [true, true]),
    ] {
        create_map_of_owner(mode)?;
        let what = format!("mode {mode:o}, {who:?}");
        let sender = spawn(&what, || {
            become_user_with_groups(who.0, who.1, who.2)?;
            expect_access(&Socket::new()?, &named(), permitted, Errno::EACCES)
        })?;
        sender.finish()?;
        unlink_map()?;
    }
    Ok(())
}

fn a_batch_does_what_the_mode_permits(_: &Context) -> Result<()> {
    // Of a step as by an endpoint.
    let refused = Err(Errno::EBADF);
    for (mode, get, set) in [(0o004, Ok(0), refused), (0o002, refused, Ok(0))] {
        create_map_of_owner(mode)?;
        let sender = spawn(&format!("another user, mode {mode:o}"), || {
            become_user(OTHER_USER)?;
            let step = |command| Attrs::new().u32(attr::COMMAND, command).key(KEY);
            let batch = named().step(&step(0)).step(&step(1).value(b""));
            let reply = Socket::new()?.must(command::BATCH, &batch)?;
            let results: Vec<_> = reply
                .steps()?
                .iter()
                .map(|step| step.result())
                .collect::<Result<_>>()?;
            expect("results", results, vec![get, set])
        })?;
        sender.finish()?;
        unlink_map()?;
    }
    Ok(())
}

// ---- sender and opener ----

fn sender_and_opener_of_the_socket_both_need_permission(_: &Context) -> Result<()> {
    const ROOT: u32 = 0;
    create_map_of_owner(0o600)?;
    for (opener, sender, permitted) in [
        (OWNER, OWNER, true),
        (ROOT, ROOT, true),
        (ROOT, OWNER, true),
        (OWNER, ROOT, true),
        (OWNER, OTHER_USER, false),
        (OTHER_USER, OWNER, false),
        (OTHER_USER, ROOT, false),
        (ROOT, OTHER_USER, false),
        (OTHER_USER, OTHER_USER, false),
    ] {
        let become_id = |id| match id {
            ROOT => Ok(()),
            id => become_user(id),
        };
        let socket = socket_opened_after(|| become_id(opener))?;
        let used = use_after(
            &socket,
            || become_id(sender),
            || match permitted {
                true => expect_access(&socket, &named(), [true; 2], Errno::EACCES),
                false => expect_refused(&socket, &named(), Errno::EACCES),
            },
        );
        used.with_context(|| format!("a socket of {opener}, used by {sender}"))?;
    }
    unlink_map()
}

fn a_map_of_another_cgroup_is_not_found(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let theirs = home.create_child("theirs")?;
    let ours = home.create_child("ours")?;
    create_map_in(&theirs, 0o666)?;
    let sender = ours.spawn("a process in another cgroup", || {
        become_user(NOBODY)?;
        let socket = Socket::new()?;
        expect_refused(&socket, &named(), Errno::ENOENT)?;
        let directory = theirs.directory()?;
        let scope = directory.as_raw_fd();
        expect_refused(&socket, &named().scope(scope), Errno::EACCES)?;
        // The errno does not tell whether there is a map with this name.
        let none = Attrs::new().name("none").scope(scope);
        expect_refused(&socket, &none, Errno::EACCES)?;
        let create = none.flags(BOTH | CREATE);
        expect(
            "a creation",
            socket.outcome(command::OPEN, &create)?,
            Err(Errno::EACCES),
        )
    })?;
    sender.finish()?;
    let below = theirs.create_child("below")?;
    let sender = below.spawn("a process in a descendant", || {
        become_user(NOBODY)?;
        let directory = theirs.directory()?;
        let map = named().scope(directory.as_raw_fd());
        expect_access(&Socket::new()?, &map, [true; 2], Errno::EACCES)
    })?;
    sender.finish()
}

fn a_socket_of_another_cgroup_finds_no_map(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let [theirs, ours] = ["theirs", "ours"].map(|name| home.create_child(name));
    let (theirs, ours) = (theirs?, ours?);
    create_map_in(&ours, 0o666)?;
    let enter = |cgroup: &Cgroup| {
        cgroup.enter()?;
        become_user(NOBODY)
    };
    let foreign = socket_opened_after(|| enter(&theirs))?;
    let refused = use_after(
        &foreign,
        || enter(&ours),
        || {
            for name in [NAME, "none"] {
                let map = Attrs::new().name(name);
                expect_refused(&foreign, &map, Errno::EACCES).context(name.to_owned())?;
                let directory = ours.directory()?;
                let map = map.scope(directory.as_raw_fd());
                expect_refused(&foreign, &map, Errno::EACCES).context(name.to_owned())?;
            }
            Ok(())
        },
    );
    refused.context("a socket of another cgroup")?;
    let own = socket_opened_after(|| enter(&ours))?;
    let access = || expect_access(&own, &named(), [true; 2], Errno::EACCES);
    use_after(&own, || enter(&ours), access).context("a socket of the own cgroup")?;
    let privileged = socket_opened_after(|| theirs.enter())?;
    let access = || expect_access(&privileged, &named(), [true; 2], Errno::EACCES);
    use_after(&privileged, || enter(&ours), access).context("a socket of an administrator")
}

// ---- creation ----

fn creation() -> Attrs {
    Attrs::new().name("new").flags(BOTH | CREATE)
}

/// A change of credentials, with its name.
type Change = (&'static str, fn() -> Result<()>);

fn a_map_is_created_only_by_the_opener_of_the_socket(_: &Context) -> Result<()> {
    let expect_eperm = |socket: &Socket| {
        let call = socket.call(command::OPEN, &creation())?;
        let refusal = call.err().context("a map was created")?;
        expect("a creation", refusal.errno, Errno::EPERM)?;
        expect("whether there is a text", refusal.text.is_some(), true)?;
        expect("names", Ctl::new()?.names(OWN), Ok(vec![]))
    };
    let senders: [Change; 4] = [
        ("another user", || {
            setfsuid(Uid::from_raw(OTHER_USER));
            Ok(())
        }),
        ("another group", || {
            setfsgid(Gid::from_raw(GROUP));
            Ok(())
        }),
        ("another supplementary group", || {
            setgroups(&[Gid::from_raw(GROUP)]).context("setgroups")
        }),
        ("another user namespace", || {
            unshare(CloneFlags::CLONE_NEWUSER).context("unshare")
        }),
    ];
    let socket = Socket::new()?;
    for (what, change) in senders {
        use_after(&socket, change, || expect_eperm(&socket)).context(what)?;
    }
    let openers: [Change; 3] = [
        ("an opener without capabilities", drop_capabilities),
        ("an opener that is another user", || become_user(OTHER_USER)),
        ("an opener that is root of a user namespace", || {
            become_user_namespace_root(OTHER_USER)
        }),
    ];
    for (what, change) in openers {
        expect_eperm(&socket_opened_after(change)?).context(what)?;
    }
    // Its own socket permits it.
    socket.must(command::OPEN, &creation()).map(drop)
}

fn a_sender_with_fewer_capabilities_creates_a_map(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    use_after(&socket, drop_capabilities, || {
        socket.must(command::OPEN, &creation()).map(drop)
    })
}

fn a_map_belongs_to_its_creator(_: &Context) -> Result<()> {
    let creator = spawn("the owner", || {
        become_user_with_groups(OWNER, GROUP, &[])?;
        for (attrs, mode) in [(named(), 0o600), (named().u32(attr::MODE, 0o640), 0o640)] {
            let socket = Socket::new()?;
            socket.must(command::OPEN, &attrs.flags(BOTH | CREATE))?;
            let (channel, _) = Maps::new()?.info().context("asking for the map")?;
            let seen = (channel.uid, channel.gid, channel.mode);
            expect("owner, group and mode", seen, (OWNER, GROUP, mode))?;
        }
        Ok(())
    })?;
    creator.finish()
}

fn a_map_beyond_a_limit_is_refused_with_the_reason(_: &Context) -> Result<()> {
    let expect_full = |errno: Errno, reason: &str| {
        let socket = Socket::new()?;
        socket.must(command::OPEN, &creation())?;
        let another = Attrs::new().name("another").flags(BOTH | CREATE);
        let call = socket.call(command::OPEN, &another)?;
        let refusal = call.err().context("a second map was created")?;
        expect("a second map", refusal.errno, errno)?;
        let text = refusal.text.unwrap_or_default();
        ensure!(text.contains(reason), "the reason is '{text}'");
        expect("names", Ctl::new()?.names(OWN)?.len(), 1)
    };
    let limit = scope_limit("scope_max_channels", 1)?;
    expect_full(Errno::ENOSPC, "a limit of the scope")?;
    drop(limit);
    // The maps and the handles.
    let _limit = Parameter::set("user_max_channels", 3)?;
    let user = spawn("a user at the limit", || {
        become_user(OTHER_USER)?;
        expect_full(Errno::EDQUOT, "a limit of the user")
    })?;
    user.finish()
}

// ---- handles ----

/// The channels and handles of the caller.
fn counted() -> Result<u64> {
    let usage = usage_of(&Ctl::new()?, OWN).context("the usage")?;
    Ok(usage.user_channels)
}

/// Opens handles of the socket, so many, and then is refused another one.
fn fill_account(socket: &Socket, handles: u64) -> Result<()> {
    for _ in 0..handles {
        socket.open(NAME, READ)?;
    }
    let one_more = socket.call(command::OPEN, &named().flags(READ))?.err();
    let refusal = one_more.context("a handle beyond the limit")?;
    expect("a handle more", refusal.errno, Errno::EDQUOT)?;
    let text = refusal.text.unwrap_or_default();
    ensure!(text.contains("a limit of the user"), "the text is '{text}'");
    let channel = Ctl::new()?.create("one-more").map(drop);
    expect("a channel more", channel, Err(Errno::EDQUOT))
}

fn handles_count_as_channels_of_their_user(_: &Context) -> Result<()> {
    const MOST: u64 = 3;
    create_map(0o666)?;
    let _limit = Parameter::set("user_max_channels", MOST)?;
    let kept = Socket::new()?;
    let fill_as = |user, handles| {
        let fill = || fill_account(&kept, handles);
        use_after(&kept, || become_user(user), fill)
    };
    let become_other = || become_user(OTHER_USER);
    use_after(&kept, become_other, || {
        eventually("nothing counts for the user", || {
            Ok((counted()? == 0).then_some(()))
        })?;
        kept.open(NAME, READ)?;
        let own = Socket::new()?;
        let handle = own.open(NAME, READ)?;
        fill_account(&Socket::new()?, MOST - 2)?;
        fill_account(&own, MOST - 2)?;
        expect("counted", counted()?, MOST)?;
        own.must(command::CLOSE, &Attrs::new().handle(handle))?;
        expect("after closing one", counted()?, MOST - 1)?;
        let _channel = Ctl::new()?.create("in its place")?;
        drop(own);
        expect("after closing the sockets", counted()?, 2)
    })?;
    fill_as(OWNER, MOST).context("another user")?;
    fill_as(OTHER_USER, MOST - 1).context("the user again")?;
    drop(kept);
    use_after(&Socket::new()?, become_other, || {
        expect("at the end", counted()?, 0)
    })?;
    unlink_map()
}

/// What a handle for reading and writing permits, to anyone.
fn expect_handle_works(socket: &Socket, handle: u32) -> Result<()> {
    let on = || Attrs::new().handle(handle);
    for (command, attrs) in [
        (command::GET, on().key(KEY)),
        (command::SET, on().key(KEY).value(b"by another")),
        (command::INFO, on()),
        (command::DUMP, on()),
        (command::WATCH, on()),
    ] {
        let what = format!("command {command}");
        expect(&what, socket.outcome(command, &attrs)?, Ok(()))?;
    }
    Ok(())
}

fn a_handle_works_for_whoever_has_its_socket(context: &Context) -> Result<()> {
    let other = context.cgroup()?.create_child("other")?;
    create_map(0o600)?;
    let socket = Socket::new()?;
    let handle = socket.open(NAME, BOTH)?;
    let leave = || {
        other.enter()?;
        become_user(NOBODY)
    };
    use_after(&socket, leave, || {
        expect_handle_works(&socket, handle)?;
        let by_name = named().key(KEY);
        expect(
            "a get by name",
            socket.outcome(command::GET, &by_name)?,
            Err(Errno::ENOENT),
        )
    })?;
    let end = Maps::new()?.attach()?;
    expect("the value", get(&end, KEY), Ok(b"by another".to_vec()))?;
    unlink_map()
}

fn a_passed_socket_keeps_its_handles(_: &Context) -> Result<()> {
    create_map(0o600)?;
    let (here, there) = socket_pair()?;
    let opener = spawn_keeping("the opener", &[there.as_fd()], || {
        let socket = Socket::new()?;
        let handle = socket.open(NAME, BOTH)?;
        send_fd(&there, socket.as_fd())?;
        Ok(handle)
    })?;
    let handle = opener.finish()?;
    let socket = Socket::from_fd(receive_fd(&here)?)?;
    expect_handle_works(&socket, handle)?;
    unlink_map()
}

// ---- namespaces ----

fn another_network_namespace_has_the_family(_: &Context) -> Result<()> {
    create_map(0o666)?;
    let other = spawn("a process in a network namespace", || {
        unshare(CloneFlags::CLONE_NEWNET).context("unshare")?;
        let socket = Socket::new()?;
        expect_access(&socket, &named(), [true; 2], Errno::EACCES)?;
        let handle = socket.open(NAME, BOTH)?;
        expect_handle_works(&socket, handle)?;
        expect("changes", socket.watch(handle, 0)?, 0)?;
        let changes = socket.changes(3)?;
        expect("numbers", changes.len(), 3)?;
        become_user(NOBODY)?;
        expect_access(&Socket::new()?, &named(), [true; 2], Errno::EACCES)
    })?;
    other.finish()?;
    unlink_map()
}
