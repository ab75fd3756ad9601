// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether rings work here, and which memory their options can use.

use std::fs;
use std::io;
use std::thread;

use nix::libc;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use sluice::ring::{Socket, SocketOptions};

use super::Finding;

const CHECK: &str = "rings";
const FREE_HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

pub fn rings() -> Finding {
    match try_ring() {
        Ok(()) => Finding::ok(CHECK, describe(huge_pages(), lockable(), has_membarrier())),
        // The known cause is a system call filter of a container.
        Err(error) => Finding::problem(
            CHECK,
            format!("cannot set up a ring: {}", sluice::explain(&error)),
            "allow memfd_create, mmap, sendmsg and futex in the seccomp filter",
        ),
    }
}

/// Sets up a ring and sends a record through it.
fn try_ring() -> io::Result<()> {
    let (here, there) = Socket::pair()?;
    let options = SocketOptions::new().capacity(4096);
    thread::scope(|scope| {
        scope.spawn(|| io::Result::Ok(options.producer(there)?.send(b"hello")?));
        // It fails, too, if the producer failed.
        options.consumer(here)?.recv_into(&mut [0; 5])?;
        Ok(())
    })
}

fn describe(huge_pages: Option<u64>, lockable: Option<u64>, membarrier: bool) -> String {
    let mut text = "work".to_owned();
    if let Some(pages) = huge_pages {
        text += &format!(", {pages} free huge pages of 2 MiB for --huge-pages");
    }
    match lockable {
        Some(RLIM_INFINITY) => text += ", unlimited memory for --lock",
        Some(bytes) => text += &format!(", {} KiB for --lock", bytes >> 10),
        None => {}
    }
    if !membarrier {
        text += ", slightly slower without membarrier(2)";
    }
    text
}

fn huge_pages() -> Option<u64> {
    fs::read_to_string(FREE_HUGE_PAGES)
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn lockable() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    Some(soft)
}

fn has_membarrier() -> bool {
    // SAFETY: takes three numbers.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    let needed = libc::c_long::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    // -1 is an error.
    commands > 0 && commands & needed != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_work_where_the_tests_run() {
        let finding = rings();
        assert!(finding.ok, "{}", finding.found);
    }

    #[test]
    fn available_memory_is_described() {
        assert_eq!(
            describe(Some(3), Some(8 << 20), true),
            "work, 3 free huge pages of 2 MiB for --huge-pages, 8192 KiB for --lock"
        );
        assert!(describe(None, Some(RLIM_INFINITY), true).ends_with("unlimited memory for --lock"));
        assert!(describe(None, None, false).contains("membarrier(2)"));
    }
}
