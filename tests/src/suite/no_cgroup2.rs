// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host without a cgroup v2 hierarchy, where all processes would share one scope: opens fail, and the kernel log says
//! why. This affects the whole VM, so it comes last.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount, umount};

use crate::registry::{Context, topic};
use crate::support::cgroup;
use crate::support::check::expect;
use crate::support::container::{User, spawn_in_container};
use crate::support::event::Event;
use crate::support::feed::{self, Publisher};
use crate::support::kernel::KernelLog;

topic!(
    "no_cgroup2",
    fifo: [],
    pipe_only: [
        without_cgroup2_an_open_is_eopnotsupp_and_logged,
        a_mount_in_a_user_namespace_does_not_count_for_the_host,
        without_cgroup2_a_feed_can_be_opened,
        with_cgroup2_mounted_again_an_open_works,
    ],
);

/// Unmounts the unified hierarchy everywhere until this is dropped.
struct Unmounted {
    mount_points: Vec<PathBuf>,
}

impl Unmounted {
    fn everywhere() -> Result<Self> {
        let mut hierarchy = Unmounted {
            mount_points: Vec::new(),
        };
        for mount_point in cgroup::mounts()? {
            umount(&mount_point)
                .with_context(|| format!("unmounting {}", mount_point.display()))?;
            hierarchy.mount_points.push(mount_point);
        }
        ensure!(
            !hierarchy.mount_points.is_empty(),
            "no cgroup v2 hierarchy was mounted to begin with"
        );
        Ok(hierarchy)
    }

    fn mount_again(&mut self) -> Result<()> {
        while let Some(mount_point) = self.mount_points.pop() {
            mount_as("cgroup2", &mount_point, None)?;
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

fn mount_as(kind: &str, mount_point: &Path, options: Option<&str>) -> Result<()> {
    mount(
        Some("none"),
        mount_point,
        Some(kind),
        MsFlags::empty(),
        options,
    )
    .with_context(|| format!("mounting {kind} on {}", mount_point.display()))
}

/// A named cgroup v1 hierarchy, as on a host that mounts nothing else.
struct Legacy {
    mount_point: PathBuf,
}

impl Legacy {
    fn mounted_on(mount_point: PathBuf) -> Result<Self> {
        mount_as("cgroup", &mount_point, Some("none,name=sluice-tests"))?;
        Ok(Legacy { mount_point })
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        if let Err(error) = umount(&self.mount_point) {
            eprintln!("unmounting {}: {error}", self.mount_point.display());
        }
    }
}

fn without_cgroup2_an_open_is_eopnotsupp_and_logged(context: &Context) -> Result<()> {
    // On a host without the hierarchy all processes are in the root cgroup.
    cgroup::Cgroup::root()?.enter()?;
    let mut log = KernelLog::from_now()?;
    let mut hierarchy = Unmounted::everywhere()?;
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
    hierarchy.mount_again()
}

/// A user can mount it in its own namespaces. It stays mounted there while it is unmounted everywhere else.
fn a_mount_in_a_user_namespace_does_not_count_for_the_host(context: &Context) -> Result<()> {
    const REFUSED: nix::Result<()> = Err(Errno::EOPNOTSUPP);
    let open = || context.channel.open(OFlag::O_RDWR).map(drop);
    let root = cgroup::Cgroup::root()?;
    root.enter()?;
    let (mounted, unmounted) = (Event::new()?, Event::new()?);
    let keep = [mounted.fds(), unmounted.fds()].concat();
    let user = spawn_in_container(&root, User::NamespaceRoot, "a user", &keep, || {
        mounted.notify()?;
        unmounted.wait("it is unmounted elsewhere")?;
        ensure!(
            !cgroup::mounts()?.is_empty(),
            "the user's mount is hierarchy"
        );
        expect("an open of the user", open(), REFUSED)
    })?;
    mounted.wait("the user has mounted it")?;
    let mut hierarchy = Unmounted::everywhere()?;
    expect("an open of the host", open(), REFUSED)?;
    unmounted.notify()?;
    user.finish()?;
    hierarchy.mount_again()
}

/// A feed is in the root scope, which all processes of such a host share.
fn without_cgroup2_a_feed_can_be_opened(context: &Context) -> Result<()> {
    cgroup::Cgroup::root()?.enter()?;
    let mut hierarchy = Unmounted::everywhere()?;
    let publisher = Publisher::small(context)?;
    let end = feed::open(feed::NAME)?;
    feed::claim_by_read(&end)?;
    publisher.publish("task", 1, 16)?;
    ensure!(feed::read_packet(&end)?.is_some(), "the feed has ended");
    publisher.unload()?;
    feed::claim_by_read(&feed::open_node()?)?;
    hierarchy.mount_again()
}

fn with_cgroup2_mounted_again_an_open_works(context: &Context) -> Result<()> {
    Unmounted::everywhere()?.mount_again()?;
    context.channel.open_read_write().map(drop)
}
