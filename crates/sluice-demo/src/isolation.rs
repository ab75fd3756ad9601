// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that the two containers are apart: what each sees of itself, and that neither finds the other's bytes.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, bail, ensure};

use crate::crew::{Crew, NAMES};
use crate::protocol::{Event, Order};
use crate::worker::{namespaces, own_cgroup};

/// What a container says about itself, beside what the host knows about it.
struct View {
    inside: String,
    outside: String,
    namespaces: BTreeMap<String, String>,
    nodes: Vec<String>,
}

/// Waits for both containers to be up and tells what they see.
pub fn show_views(crew: &mut Crew) -> Result<()> {
    let mut views = [None, None];
    while views.iter().any(Option::is_none) {
        let (index, event) = crew.next()?;
        let Event::Hello {
            cgroup,
            namespaces,
            nodes,
        } = event
        else {
            bail!("container {} began with {event:?}", NAMES[index]);
        };
        let pid = crew.container(index).pid()?;
        let outside = own_cgroup(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?).to_string();
        views[index] = Some(View {
            inside: cgroup,
            outside,
            namespaces,
            nodes,
        });
    }
    let views: Vec<View> = views.into_iter().flatten().collect();
    for (name, view) in NAMES.iter().zip(&views) {
        eprintln!(
            "  container {name}: its cgroup is {} to itself and {} to the host; of our nodes it sees /dev/sluice/{}",
            view.inside,
            view.outside,
            view.nodes.join(", /dev/sluice/")
        );
    }
    check_views(&views, &namespaces("self")?)
}

fn check_views(views: &[View], host: &BTreeMap<String, String>) -> Result<()> {
    for (name, view) in NAMES.iter().zip(views) {
        ensure!(
            view.inside == "/",
            "container {name} has no private cgroup namespace: it sees itself in {}",
            view.inside
        );
        ensure!(
            view.nodes == ["ctl", "pipe"],
            "container {name} sees something else than our two nodes under /dev/sluice: {:?}",
            view.nodes
        );
    }
    ensure!(
        views[0].outside != views[1].outside,
        "both containers are in the cgroup {}",
        views[0].outside
    );
    for (kind, of_host) in host {
        let all = [
            Some(of_host),
            views[0].namespaces.get(kind),
            views[1].namespaces.get(kind),
        ];
        let [host, a, b] = all;
        ensure!(
            a.is_some() && b.is_some(),
            "a container does not tell its {kind} namespace"
        );
        ensure!(
            host != a && host != b && a != b,
            "the {kind} namespace is shared"
        );
    }
    Ok(())
}

/// Each container holds bytes in its pipe while the other looks for them.
pub fn show_secrecy(crew: &mut Crew) -> Result<()> {
    let secrets = [secret()?, secret()?];
    for (index, secret) in secrets.iter().enumerate() {
        let other = 1 - index;
        hold(crew, index, secret)?;
        let (announced, read) = peek(crew, other)?;
        ensure!(
            announced == 0 && read == 0,
            "container {} found {announced} bytes and read {read} of container {}'s",
            NAMES[other],
            NAMES[index]
        );
        let taken = take(crew, index)?;
        ensure!(
            taken == *secret,
            "container {} put in '{secret}' and got back '{taken}'",
            NAMES[index]
        );
        eprintln!(
            "  container {} holds {} bytes in its pipe: container {} finds 0 and reads 0; {} then reads all of them back",
            NAMES[index],
            secret.len(),
            NAMES[other],
            NAMES[index]
        );
    }
    Ok(())
}

/// Random, so that it can have come from nowhere else.
pub fn secret() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?
        .trim()
        .to_string())
}

fn hold(crew: &mut Crew, index: usize, text: &str) -> Result<()> {
    crew.order(
        index,
        &Order::Hold {
            text: text.to_string(),
        },
    )?;
    match crew.next_of(index)? {
        Event::Held => Ok(()),
        event => bail!("container {} answered {event:?}", NAMES[index]),
    }
}

fn peek(crew: &mut Crew, index: usize) -> Result<(usize, usize)> {
    crew.order(index, &Order::Peek)?;
    match crew.next_of(index)? {
        Event::Peeked { announced, read } => Ok((announced, read)),
        event => bail!("container {} answered {event:?}", NAMES[index]),
    }
}

fn take(crew: &mut Crew, index: usize) -> Result<String> {
    crew.order(index, &Order::Take)?;
    match crew.next_of(index)? {
        Event::Taken { text } => Ok(text),
        event => bail!("container {} answered {event:?}", NAMES[index]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kinds: &[(&str, &str)]) -> BTreeMap<String, String> {
        kinds
            .iter()
            .map(|(kind, identity)| (kind.to_string(), identity.to_string()))
            .collect()
    }

    fn view(outside: &str, pid: &str) -> View {
        View {
            inside: "/".into(),
            outside: outside.into(),
            namespaces: of(&[("pid", pid)]),
            nodes: vec!["ctl".into(), "pipe".into()],
        }
    }

    #[test]
    fn separate_containers_pass() {
        check_views(&[view("/a", "1"), view("/b", "2")], &of(&[("pid", "0")])).unwrap();
    }

    #[test]
    fn anything_shared_is_found() {
        let host = of(&[("pid", "0")]);
        let fails = |views: [View; 2]| check_views(&views, &host).unwrap_err().to_string();
        assert!(fails([view("/a", "1"), view("/b", "1")]).contains("pid namespace"));
        assert!(fails([view("/a", "0"), view("/b", "2")]).contains("pid namespace"));
        assert!(fails([view("/a", "1"), view("/a", "2")]).contains("both containers"));
        assert!(
            fails([
                View {
                    inside: "/x".into(),
                    ..view("/a", "1")
                },
                view("/b", "2")
            ])
            .contains("cgroup namespace")
        );
        let nodes = vec!["another".into(), "ctl".into(), "pipe".into()];
        assert!(
            fails([
                View {
                    nodes,
                    ..view("/a", "1")
                },
                view("/b", "2")
            ])
            .contains("something else than our two nodes")
        );
    }
}
