// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory node of a ring's pages. Only a machine with several memory nodes can run these tests, such as that of
//! `vm/run --nodes 2`.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, skip};
use crate::support::child::spawn;
use crate::support::controller::Controller;
use crate::support::ctl::{CREATE, EXCL, OWN, Open, PERSIST, WRITE};
use crate::support::memory::PAGE;
use crate::support::ring::{NODE_ANY, Region, RingParams, Rings, Role, Side, info, request};

topic!(
    "ring_numa",
    fifo: [],
    pipe_only: [
        pages_are_on_the_requested_node,
        pages_of_later_sessions_are_on_the_requested_node,
        pages_for_any_node_follow_the_policy_of_the_opener,
        a_node_without_memory_is_einval,
        a_node_outside_the_cpuset_is_enomem,
        a_node_without_enough_memory_is_enomem_and_uses_no_other,
        info_reports_the_node,
    ],
);

const NAME: &str = "ring";
const CAPACITY: u64 = 1 << 20;

/// The numbers in a list such as `0-2,4`.
fn parse_list(text: &str) -> Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<i32>()?..=last.parse::<i32>()?);
    }
    Ok(numbers)
}

fn nodes_in(file: &str) -> Result<Vec<i32>> {
    let path = Path::new("/sys/devices/system/node").join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    parse_list(&text).with_context(|| format!("{} has {text}", path.display()))
}

/// The nodes with memory; skips the test if there is one only.
fn nodes() -> Result<Vec<i32>> {
    // A kernel without support for memory nodes has no such directory.
    let supported = Path::new("/sys/devices/system/node").exists();
    let nodes = if supported {
        nodes_in("has_memory")?
    } else {
        Vec::new()
    };
    if nodes.len() < 2 {
        return Err(skip(
            "this machine has no second memory node; 'vm/run --nodes 2' boots one with two",
        ));
    }
    Ok(nodes)
}

/// Creates a ring whose pages are on this node.
fn create(rings: &Rings, node: i32, capacity: u64, flags: u32) -> nix::Result<OwnedFd> {
    let params = RingParams::new(node);
    rings.open(Open {
        capacity,
        params: ptr::from_ref(&params) as u64,
        ..request(NAME, WRITE | CREATE | EXCL | flags)
    })
}

/// The node of each page of a mapping that has been accessed.
fn nodes_of(region: &Region) -> Result<Vec<i32>> {
    let pages: Vec<*mut u8> = (0..region.len())
        .step_by(PAGE)
        .map(|offset| region.at(offset))
        .collect();
    let mut nodes = vec![i32::MIN; pages.len()];
    let none: *const i32 = ptr::null();
    // SAFETY: without target nodes, move_pages(2) only stores the node of each page.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            none,
            nodes.as_mut_ptr(),
            0,
        )
    };
    Errno::result(ret).context("move_pages")?;
    Ok(nodes)
}

fn expect_on_node(side: &Side, node: i32) -> Result<()> {
    for (what, region) in [
        ("the data", &side.data),
        ("the own control page", &side.own.0),
        ("the peer's control page", &side.peer.0),
    ] {
        ensure!(region.is_zero(), "{what} is not zeroed");
        let seen = nodes_of(region)?;
        let expected = vec![node; seen.len()];
        expect(&format!("nodes of {what}"), seen, expected)?;
    }
    Ok(())
}

fn pages_are_on_the_requested_node(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for node in nodes()? {
        let producer = Side::of(create(&rings, node, CAPACITY, 0)?)?;
        let consumer = rings.side(NAME, Role::Consumer)?;
        expect_on_node(&producer, node)?;
        expect_on_node(&consumer, node)?;
    }
    Ok(())
}

/// The consumer of the next session begins it, without parameters.
fn pages_of_later_sessions_are_on_the_requested_node(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for node in nodes()? {
        let first = Side::of(create(&rings, node, CAPACITY, PERSIST)?)?;
        expect_on_node(&first, node)?;
        drop(first);
        for _ in 0..2 {
            expect_on_node(&rings.side(NAME, Role::Consumer)?, node)?;
        }
        rings.unlink(NAME).context("unlinking")?;
    }
    Ok(())
}

/// Allocations of the calling process are on this node from now on.
fn bind_to(node: i32) -> Result<()> {
    const MPOL_BIND: libc::c_int = 2;
    let mask = [1_u64 << node];
    // SAFETY: one word of nodes, and its number of bits plus one.
    let ret = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, mask.as_ptr(), 65) };
    Errno::result(ret).context("set_mempolicy")?;
    Ok(())
}

fn pages_for_any_node_follow_the_policy_of_the_opener(_: &Context) -> Result<()> {
    for node in nodes()? {
        let opener = spawn("an opener with a policy", || {
            bind_to(node)?;
            let side = Side::of(create(&Rings::new()?, NODE_ANY, CAPACITY, 0)?)?;
            expect_on_node(&side, node)
        })?;
        opener.finish()?;
    }
    Ok(())
}

fn a_node_without_memory_is_einval(_: &Context) -> Result<()> {
    let nodes = nodes()?;
    let rings = Rings::new()?;
    let online = nodes_in("online")?;
    let without: Vec<i32> = online.into_iter().filter(|n| !nodes.contains(n)).collect();
    ensure!(!without.is_empty(), "every node of this machine has memory");
    for node in without {
        let made = create(&rings, node, CAPACITY, 0).map(drop);
        expect(&format!("node {node}"), made, Err(Errno::EINVAL))?;
        expect("names", rings.0.names(OWN), Ok(vec![]))?;
    }
    Ok(())
}

fn a_node_outside_the_cpuset_is_enomem(context: &Context) -> Result<()> {
    let nodes = nodes()?;
    let home = context.cgroup()?;
    let _controller = Controller::enable_for_children(home, "cpuset")?;
    let confined = home.create_child("confined")?;
    fs::write(confined.path().join("cpuset.mems"), nodes[0].to_string())
        .context("setting cpuset.mems")?;
    let opener = confined.spawn("an opener in a cpuset", || {
        let rings = Rings::new()?;
        let made = create(&rings, nodes[1], CAPACITY, 0).map(drop);
        expect("an excluded node", made, Err(Errno::ENOMEM))?;
        expect("names", rings.0.names(OWN), Ok(vec![]))?;
        let inside = Side::of(create(&rings, nodes[0], CAPACITY, 0)?)?;
        expect_on_node(&inside, nodes[0])
    })?;
    opener.finish()
}

/// The free memory of a node in bytes.
fn free_memory(node: i32) -> Result<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let kib = text
        .lines()
        .find_map(|line| line.split_once("MemFree:")?.1.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no MemFree"))? * 1024)
}

fn a_node_without_enough_memory_is_enomem_and_uses_no_other(_: &Context) -> Result<()> {
    const MOST: u64 = 256 << 20;
    let nodes = nodes()?;
    let (full, other) = (nodes[1], nodes[0]);
    let rings = Rings::new()?;
    let named = |number: usize| {
        let params = RingParams::new(full);
        rings.open(Open {
            capacity: MOST,
            params: ptr::from_ref(&params) as u64,
            ..request(format!("{number}"), WRITE | CREATE | EXCL)
        })
    };
    let before = free_memory(other)?;
    let mut ends = Vec::new();
    let refused = loop {
        match named(ends.len()) {
            Ok(end) => ends.push(end),
            Err(error) => break error,
        }
    };
    expect("errno of the last", refused, Errno::ENOMEM)?;
    let used = before.saturating_sub(free_memory(other)?);
    ensure!(used < MOST / 4, "the other node lost {used} B");
    let elsewhere = Side::of(create(&rings, other, CAPACITY, 0)?)?;
    expect_on_node(&elsewhere, other)
}

fn info_reports_the_node(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for node in nodes()? {
        let end = create(&rings, node, CAPACITY, 0)?;
        expect("by endpoint", info(&end)?.node, node)?;
        expect("by name", rings.info(NAME)?.1.node, node)?;
    }
    Ok(())
}
