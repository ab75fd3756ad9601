// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether rings work here, and what of them has to be provided for.

use std::fs;
use std::io;
use std::thread;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rustix::thread::{MembarrierQuery, membarrier_query};
use sluice::ring::{Options, Socket};

use super::Finding;

const CHECK: &str = "rings";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

pub fn rings() -> Finding {
    match try_one() {
        Ok(()) => Finding::good(CHECK, describe(huge_pages(), lockable(), has_membarrier())),
        // A container's filter of system calls is the one thing that is known to be in the way.
        Err(error) => Finding::bad(
            CHECK,
            format!("none can be set up: {error}"),
            "let this process call memfd_create(2), mmap(2), sendmsg(2) and futex(2), as in the container's seccomp profile",
        ),
    }
}

/// Sets up a ring and lets a record go through.
fn try_one() -> io::Result<()> {
    let (here, there) = Socket::pair()?;
    let options = Options::new().capacity(4096);
    thread::scope(|scope| {
        scope.spawn(|| io::Result::Ok(options.producer(there)?.send(b"well?")?));
        // It fails too if the other one did.
        options.consumer(here)?.recv(&mut [0; 5])?;
        Ok(())
    })
}

fn describe(huge_pages: Option<u64>, lockable: Option<u64>, membarrier: bool) -> String {
    let mut text = "work".to_owned();
    if let Some(pages) = huge_pages {
        text += &format!(", {pages} free huge pages of 2 MiB for --huge-pages");
    }
    match lockable {
        Some(RLIM_INFINITY) => text += ", any memory can be locked by --lock",
        Some(bytes) => text += &format!(", {} KiB can be locked by --lock", bytes >> 10),
        None => {}
    }
    if !membarrier {
        text +=
            "; a little slower than they could be, as membarrier(2) is not permitted or not there";
    }
    text
}

fn huge_pages() -> Option<u64> {
    fs::read_to_string(FREE).ok()?.trim().parse().ok()
}

fn lockable() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    Some(soft)
}

fn has_membarrier() -> bool {
    membarrier_query().contains(MembarrierQuery::GLOBAL_EXPEDITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_work_where_the_tests_run() {
        let finding = rings();
        assert!(finding.ok, "{}", finding.found);
    }

    #[test]
    fn what_can_be_provided_for_is_told() {
        assert_eq!(
            describe(Some(3), Some(8 << 20), true),
            "work, 3 free huge pages of 2 MiB for --huge-pages, 8192 KiB can be locked by --lock"
        );
        assert!(
            describe(None, Some(RLIM_INFINITY), true)
                .ends_with("any memory can be locked by --lock")
        );
        assert!(describe(None, None, false).contains("membarrier(2)"));
    }
}
