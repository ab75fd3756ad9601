// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine without a cgroup v2 hierarchy, where everybody would share one scope: refused, with a word that says why.
//! This changes the machine for everyone, so it comes last.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount, umount};

use crate::registry::{Context, topic};
use crate::support::cgroup;
use crate::support::check::expect;
use crate::support::container::{User, spawn_contained};
use crate::support::kernel::KernelLog;
use crate::support::notice::Notice;

topic!(
    "no_cgroup2",
    fifo: [],
    pipe_only: [
        without_a_unified_hierarchy_an_open_is_refused_and_the_log_says_why,
        a_users_mount_of_the_hierarchy_does_not_make_the_host_use_it,
        with_the_hierarchy_back_an_open_works_again,
    ],
);

/// The unified hierarchy, unmounted everywhere for as long as this lives.
struct Unmounted {
    places: Vec<PathBuf>,
}

impl Unmounted {
    fn everywhere() -> Result<Self> {
        let mut gone = Unmounted { places: Vec::new() };
        for place in cgroup::mounts()? {
            umount(&place).with_context(|| format!("unmounting {}", place.display()))?;
            gone.places.push(place);
        }
        ensure!(
            !gone.places.is_empty(),
            "no cgroup v2 hierarchy was mounted to begin with"
        );
        Ok(gone)
    }

    fn mount_again(&mut self) -> Result<()> {
        while let Some(place) = self.places.pop() {
            mount_as("cgroup2", &place, None)?;
        }
        Ok(())
    }
}

impl Drop for Unmounted {
    fn drop(&mut self) {
        if let Err(error) = self.mount_again() {
            eprintln!("the cgroup v2 hierarchy stays unmounted: {error:#}");
        }
    }
}

fn mount_as(kind: &str, place: &Path, options: Option<&str>) -> Result<()> {
    mount(Some("none"), place, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("mounting {kind} on {}", place.display()))
}

/// A named version 1 hierarchy, as on a machine that boots with nothing else.
struct Legacy {
    place: PathBuf,
}

impl Legacy {
    fn mounted_on(place: PathBuf) -> Result<Self> {
        mount_as("cgroup", &place, Some("none,name=sluice-tests"))?;
        Ok(Legacy { place })
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        if let Err(error) = umount(&self.place) {
            eprintln!("unmounting {}: {error}", self.place.display());
        }
    }
}

fn without_a_unified_hierarchy_an_open_is_refused_and_the_log_says_why(
    context: &Context,
) -> Result<()> {
    // Where everybody is on a machine without the hierarchy.
    cgroup::Cgroup::root()?.enter()?;
    let mut log = KernelLog::from_now()?;
    let mut gone = Unmounted::everywhere()?;
    let legacy = Legacy::mounted_on(context.scratch.clone())?;
    for mode in [OFlag::O_RDONLY, OFlag::O_WRONLY, OFlag::O_RDWR] {
        let result = context.channel.open(mode | OFlag::O_NONBLOCK);
        expect(
            &format!("an open with {mode:?}"),
            result.map(drop),
            Err(Errno::EOPNOTSUPP),
        )?;
    }
    let messages = log.messages()?;
    let explained = messages
        .iter()
        .any(|message| message.starts_with("sluice: ") && message.contains("cgroup"));
    ensure!(
        explained,
        "expected a line `sluice: … cgroup …` in the kernel log, saw {messages:?}"
    );
    drop(legacy);
    gone.mount_again()
}

/// A user can mount it in namespaces of its own. It stays mounted there while it is unmounted everywhere else.
fn a_users_mount_of_the_hierarchy_does_not_make_the_host_use_it(context: &Context) -> Result<()> {
    const REFUSED: nix::Result<()> = Err(Errno::EOPNOTSUPP);
    let open = || context.channel.open(OFlag::O_RDWR).map(drop);
    let root = cgroup::Cgroup::root()?;
    root.enter()?;
    let (mounted, unmounted) = (Notice::new()?, Notice::new()?);
    let keep = [mounted.fds(), unmounted.fds()].concat();
    let user = spawn_contained(&root, User::NamespaceRoot, "a user", &keep, || {
        mounted.give()?;
        unmounted.wait("it is unmounted elsewhere")?;
        ensure!(!cgroup::mounts()?.is_empty(), "the user's mount is gone");
        expect("an open of the user", open(), REFUSED)
    })?;
    mounted.wait("the user has mounted it")?;
    let mut gone = Unmounted::everywhere()?;
    expect("an open of the host", open(), REFUSED)?;
    unmounted.give()?;
    user.finish()?;
    gone.mount_again()
}

fn with_the_hierarchy_back_an_open_works_again(context: &Context) -> Result<()> {
    Unmounted::everywhere()?.mount_again()?;
    context.channel.open_both_ways().map(drop)
}
