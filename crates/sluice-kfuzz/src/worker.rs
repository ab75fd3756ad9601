// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that run programs, each program in a child: one as root, one as a user without capabilities, both in cgroups
//! of their own. A child that does not end is killed.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::calls::CGROUPS;
use crate::execute::{self, Report, execute};
use crate::kcov::Coverage;
use crate::program::Program;

/// The user of unprivileged programs.
pub const USER: u32 = 1000;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Exited,
    /// By a signal: it has destroyed its own memory.
    Killed,
    /// Not within its time, but when it was killed.
    Late,
    /// Not even then.
    Stuck,
}

const ENDS: [End; 4] = [End::Exited, End::Killed, End::Late, End::Stuck];

/// Gets programs, and answers how each ended.
pub struct Worker(UnixStream);

impl Worker {
    pub fn start(
        unprivileged: bool,
        coverage: &Coverage,
        family: u16,
        limit: Duration,
    ) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("cannot start a worker"),
            0 => {
                drop(ours);
                if let Err(error) = work(unprivileged, coverage, family, limit, theirs) {
                    eprintln!("sluice-kfuzz: {error:#}");
                }
                std::process::exit(1);
            }
            _ => Ok(Worker(ours)),
        }
    }

    pub fn run(&mut self, text: &str, report: Report) -> Result<End> {
        let mut request = (text.len() as u32).to_ne_bytes().to_vec();
        request.push(u8::from(report == Report::Calls));
        request.extend(text.as_bytes());
        self.0.write_all(&request).context("a worker has ended")?;
        let mut end = [0];
        self.0.read_exact(&mut end).context("a worker has ended")?;
        Ok(ENDS[usize::from(end[0]) % ENDS.len()])
    }
}

fn work(
    unprivileged: bool,
    coverage: &Coverage,
    family: u16,
    limit: Duration,
    mut master: UnixStream,
) -> Result<()> {
    let name = if unprivileged { "user" } else { "root" };
    fs::write(format!("{CGROUPS}/{name}/cgroup.procs"), "0").context("cannot enter its cgroup")?;
    execute::prepare();
    if unprivileged {
        become_user()?;
    }
    loop {
        let mut head = [0; 5];
        if master.read_exact(&mut head).is_err() {
            return Ok(());
        }
        let [a, b, c, d, report] = head;
        let mut text = vec![0; u32::from_ne_bytes([a, b, c, d]) as usize];
        master.read_exact(&mut text)?;
        let program: Program = serde_json::from_slice(&text)?;
        let report = if report == 1 {
            Report::Calls
        } else {
            Report::Nothing
        };
        let end = run_child(&program, coverage, family, limit, report)?;
        master.write_all(&[ENDS.iter().position(|known| *known == end).unwrap_or(0) as u8])?;
    }
}

fn become_user() -> Result<()> {
    // SAFETY: only numbers are passed. /proc/thread-self/fail-nth belongs to root unless the process can be dumped.
    let failed = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0
            || libc::setresgid(USER, USER, USER) != 0
            || libc::setresuid(USER, USER, USER) != 0
            || libc::prctl(libc::PR_SET_DUMPABLE, 1) != 0
    };
    if failed {
        bail!(
            "cannot become user {USER}: {}",
            std::io::Error::last_os_error()
        );
    }
    Ok(())
}

fn run_child(
    program: &Program,
    coverage: &Coverage,
    family: u16,
    limit: Duration,
    report: Report,
) -> Result<End> {
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(std::io::Error::last_os_error()).context("cannot start a program"),
        0 => execute(program, coverage, family, report),
        _ => await_child(child, limit),
    }
}

fn await_child(child: libc::pid_t, limit: Duration) -> Result<End> {
    // SAFETY: only numbers are passed.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as i32;
    let mut end = End::Exited;
    if !ends_within(handle, limit) {
        eprintln!("{}", stacks(child));
        // SAFETY: the child was not waited for, so its number is still its own.
        unsafe { libc::kill(child, libc::SIGKILL) };
        end = if ends_within(handle, 4 * limit) {
            End::Late
        } else {
            End::Stuck
        };
    }
    let mut status = 0;
    // SAFETY: the status is where it says; one that is stuck is not waited for.
    unsafe {
        libc::waitpid(
            child,
            &mut status,
            if end == End::Stuck { libc::WNOHANG } else { 0 },
        );
        libc::close(handle);
    }
    match end {
        End::Exited if libc::WIFSIGNALED(status) => Ok(End::Killed),
        End::Exited if status != 0 => bail!("a bug of this program; see the panic above"),
        end => Ok(end),
    }
}

fn ends_within(handle: i32, limit: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: handle,
        events: libc::POLLIN,
        revents: 0,
    };
    // In steps, each of which counts once if the machine is suspended meanwhile.
    (0..limit.as_millis() / 100).any(|_| {
        // SAFETY: there is one structure.
        unsafe { libc::poll(&mut poll, 1, 100) == 1 }
    })
}

/// Where the threads of a process are in the kernel, as far as this user may know it.
fn stacks(process: libc::pid_t) -> String {
    let mut all = format!("the program in process {process} does not end:\n");
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        for file in ["stat", "syscall", "stack"] {
            let text = fs::read_to_string(thread.path().join(file));
            all += &format!("{file}: {}\n", text.unwrap_or_default());
        }
    }
    all
}
