// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a process or thread from /proc: whether it sleeps, and where.

use std::fs;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::time;

/// The system calls in which tests expect others to sleep, each with its possible numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Read,
    Write,
    Poll,
    Epoll,
    Select,
    Splice,
    Ioctl,
    UringEnter,
}

impl Call {
    /// x86-64 has older calls that later architectures lack.
    fn numbers(self) -> &'static [i64] {
        match self {
            // A named channel is opened by an ioctl.
            Call::Open => &[libc::SYS_openat, libc::SYS_ioctl],
            Call::Read => &[libc::SYS_read, libc::SYS_readv, libc::SYS_preadv2],
            Call::Write => &[libc::SYS_write, libc::SYS_writev, libc::SYS_pwritev2],
            Call::Poll => &[
                #[cfg(target_arch = "x86_64")]
                libc::SYS_poll,
                libc::SYS_ppoll,
            ],
            Call::Epoll => &[
                #[cfg(target_arch = "x86_64")]
                libc::SYS_epoll_wait,
                libc::SYS_epoll_pwait,
            ],
            Call::Select => &[
                #[cfg(target_arch = "x86_64")]
                libc::SYS_select,
                libc::SYS_pselect6,
            ],
            Call::Splice => &[libc::SYS_splice, libc::SYS_sendfile],
            Call::Ioctl => &[libc::SYS_ioctl],
            Call::UringEnter => &[libc::SYS_io_uring_enter],
        }
    }
}

/// The fields of /proc/PID/stat that are used here.
#[derive(Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: Pid,
    pub name: String,
    pub state: char,
    pub parent: Pid,
}

impl Stat {
    /// The name is in parentheses and may contain spaces and parentheses itself.
    fn parse(line: &str) -> Option<Stat> {
        let (pid, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        Some(Stat {
            pid: Pid::from_raw(pid.parse().ok()?),
            name: name.to_owned(),
            state: fields.next()?.chars().next()?,
            parent: Pid::from_raw(fields.next()?.parse().ok()?),
        })
    }

    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// `None` if there is no such process.
pub fn stat(pid: Pid) -> Option<Stat> {
    Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes that descend from `ancestor` through living parents.
pub fn descendants(ancestor: Pid) -> Vec<Stat> {
    let all: Vec<Stat> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| stat(Pid::from_raw(pid)))
        .collect();
    let mut family = vec![ancestor];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next];
        family.extend(all.iter().filter(|s| s.parent == parent).map(|s| s.pid));
        next += 1;
    }
    all.into_iter()
        .filter(|s| s.pid != ancestor && family.contains(&s.pid))
        .collect()
}

/// The number of the system call in which a thread sleeps; `None` while it runs or after its end.
fn call_number(pid: Pid) -> Option<i64> {
    let line = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether the thread sleeps interruptibly in this call.
pub fn is_asleep_in(pid: Pid, call: Call) -> bool {
    let in_call = call_number(pid).is_some_and(|number| call.numbers().contains(&number));
    in_call && stat(pid).is_some_and(|s| s.state == 'S')
}

/// Waits until the thread sleeps in this call.
pub fn wait_asleep_in(pid: Pid, call: Call) -> Result<()> {
    time::eventually(
        &format!("process {pid} falls asleep in {call:?}"),
        || match stat(pid) {
            None => bail!("process {pid} is gone instead of asleep in {call:?}"),
            Some(s) if s.is_dead() => bail!("process {pid} died instead of sleeping in {call:?}"),
            Some(_) => Ok(is_asleep_in(pid, call).then_some(())),
        },
    )
    .with_context(|| describe(pid))
}

/// How often a thread was switched out.
#[derive(Debug, PartialEq, Eq)]
pub struct ContextSwitches {
    /// Because it went to sleep.
    pub voluntary: u64,
    pub involuntary: u64,
}

impl ContextSwitches {
    fn parse(status: &str) -> Option<Self> {
        let count = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        Some(Self {
            voluntary: count("voluntary_ctxt_switches:")?,
            involuntary: count("nonvoluntary_ctxt_switches:")?,
        })
    }
}

pub fn context_switches(pid: Pid) -> Result<ContextSwitches> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    ContextSwitches::parse(&status)
        .with_context(|| format!("{path} has no count of context switches"))
}

/// How often the thread went to sleep so far: unchanged means that nothing woke it, not even spuriously.
pub fn sleep_count(pid: Pid) -> Result<u64> {
    Ok(context_switches(pid)?.voluntary)
}

/// One line for a report: name, state, system call and, if the kernel shows it, the place in the kernel.
pub fn describe(pid: Pid) -> String {
    let Some(stat) = stat(pid) else {
        return format!("process {pid}: gone");
    };
    let call = call_number(pid).map_or("none".to_owned(), |number| number.to_string());
    let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let stack = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    let frames: Vec<&str> = stack
        .lines()
        .map(|line| line.trim_start_matches("[<0>] "))
        .collect();
    format!(
        "process {pid} ({}): state {}, system call {call}, wchan {wchan}, stack: {}",
        stat.name,
        stat.state,
        frames.join(" < ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let stat = Stat::parse("12 (a) b (c) S 7 12 12 0 -1").expect("well formed");
        assert_eq!(
            stat,
            Stat {
                pid: Pid::from_raw(12),
                name: "a) b (c".to_owned(),
                state: 'S',
                parent: Pid::from_raw(7)
            }
        );
    }

    #[test]
    fn malformed_text_is_no_stat() {
        assert_eq!(Stat::parse("12 cat S 7"), None);
        assert_eq!(Stat::parse("nothing"), None);
    }

    #[test]
    fn this_process_runs() {
        let stat = stat(Pid::this()).expect("this process exists");
        assert!(!stat.is_dead());
        assert!(!is_asleep_in(Pid::this(), Call::Read));
    }

    #[test]
    fn context_switches_of_both_kinds_are_found() {
        let status = "Name:\tcat\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t54\n";
        let expected = ContextSwitches {
            voluntary: 150,
            involuntary: 54,
        };
        assert_eq!(ContextSwitches::parse(status), Some(expected));
    }
}
