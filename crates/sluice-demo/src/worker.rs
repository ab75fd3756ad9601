// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inside a container: process 1 takes orders and starts a sender and a receiver, two processes of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::handed;
use crate::named::{self, Named};
use crate::protocol::{Event, Order, Way, tell};
use crate::ring;
use crate::secret::Secret;

/// Where the program and the file to send are inside the container.
pub const PROGRAM: &str = "/sluice-demo";
pub const INPUT: &str = "/input";
/// Where the container finds the host, for what it hands out.
pub const SOCKET: &str = "/socket";
/// A directory that both containers have.
pub const SHARED: &str = "/shared";
pub const CTL_NODE: &str = "/dev/sluice/ctl";
/// Its own part of the hierarchy, read-only as in most containers.
pub const CGROUPS: &str = "/sys/fs/cgroup";
/// What is to be private to each container, as files of /proc/PID/ns.
pub const NAMESPACES: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

/// Takes orders until there are no more.
pub fn serve(handed: bool) -> Result<()> {
    tell(&hello()?)?;
    let mut transfer = None;
    let mut secret = Secret::default();
    let mut named = Named::default();
    let mut handed = handed.then(handed::take_preserved).transpose()?;
    for order in io::stdin().lock().lines() {
        match serde_json::from_str(&order?)? {
            Order::Prepare { way, write_size } => {
                transfer = Some(Transfer::prepare(way, write_size)?)
            }
            Order::Go => transfer
                .take()
                .context("there is nothing to start")?
                .run()?,
            Order::Hold { text } => tell(&secret.hold(&text)?)?,
            Order::Peek => tell(&secret.peek()?)?,
            Order::Take => tell(&secret.take()?)?,
            Order::Make { names, secret } => tell(&named.make(&names, &secret)?)?,
            Order::Search { shared, theirs } => tell(&named.search(&shared, &theirs)?)?,
            Order::Recall { name } => tell(&named.recall(&name)?)?,
            Order::LookUp { name } => tell(&named::look_up(&name)?)?,
            Order::SendHanded { write_size } => tell(&handed::send(write_size)?)?,
            Order::ReceiveHanded { read_size } => {
                let end = handed.take().context("no endpoint came with the start")?;
                tell(&handed::receive(&end, read_size)?)?;
            }
            Order::ReceiveByRing => tell(&ring::receive()?)?,
            Order::SendByRing { write_size } => tell(&ring::send(write_size)?)?,
        }
    }
    Ok(())
}

fn hello() -> Result<Event> {
    Ok(Event::Hello {
        cgroup: own_cgroup(&fs::read_to_string("/proc/self/cgroup")?).to_string(),
        namespaces: namespaces("self")?,
        nodes: nodes(Path::new("/dev/sluice"))?,
    })
}

/// The path in the unified hierarchy, out of /proc/PID/cgroup.
pub fn own_cgroup(text: &str) -> &str {
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("none")
}

/// The identities of a process's namespaces.
pub fn namespaces(process: &str) -> Result<BTreeMap<String, String>> {
    let one = |kind: &str| {
        let link = fs::read_link(format!("/proc/{process}/ns/{kind}"))
            .with_context(|| format!("cannot tell the {kind} namespace of process {process}"))?;
        Ok((kind.to_string(), link.to_string_lossy().into_owned()))
    };
    NAMESPACES.into_iter().map(one).collect()
}

fn nodes(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// A sender and a receiver that wait for the word.
struct Transfer {
    sender: Child,
    receiver: Child,
}

impl Transfer {
    fn prepare(way: Way, write_size: usize) -> Result<Self> {
        let (from, into) = match way {
            Way::Sluice => (Stdio::null(), Stdio::null()),
            Way::Pipe => {
                let (output, input) = pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
                (output.into(), input.into())
            }
        };
        let receiver = role("receive", way, write_size)
            .stdin(from)
            .stdout(Stdio::null())
            .spawn();
        let sender = role("send", way, write_size)
            .stdin(Stdio::piped())
            .stdout(into)
            .spawn();
        Ok(Self {
            sender: sender.context("cannot start the sender")?,
            receiver: receiver.context("cannot start the receiver")?,
        })
    }

    fn run(mut self) -> Result<()> {
        let go = self
            .sender
            .stdin
            .as_mut()
            .context("the sender has no standard input")?;
        go.write_all(b"g")
            .context("the sender ended before it was told to go")?;
        finished("sender", self.sender.wait()?)?;
        finished("receiver", self.receiver.wait()?)
    }
}

fn role(name: &str, way: Way, write_size: usize) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args([
        "worker",
        name,
        "--way",
        way.argument(),
        "--write-size",
        &write_size.to_string(),
    ]);
    command
}

fn finished(who: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("the {who} failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_cgroup_is_found_among_old_ones() {
        assert_eq!(
            own_cgroup("9:name=systemd:/\n4:memory:/a\n0::/demo/a\n"),
            "/demo/a"
        );
        assert_eq!(own_cgroup("4:memory:/a\n"), "none");
    }

    #[test]
    fn a_process_has_all_the_namespaces_that_are_compared() {
        let own = namespaces("self").unwrap();
        assert_eq!(own.len(), NAMESPACES.len());
        assert!(own["mnt"].starts_with("mnt:["), "{own:?}");
    }
}
