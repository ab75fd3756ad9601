// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start, main loop and end. One thread does everything: while a commit waits for the disk, the next changes collect, and the
//! next commit stores them together.

use std::fs;
use std::mem;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_yield;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::time::{ClockId, clock_gettime};
use sluice_ring::AdaptiveSpin;

use crate::cgroup::CgroupRoot;
use crate::control::Control;
use crate::engine::{Engine, Now, Wake};
use crate::kernel_device::DeviceKernel;
use crate::log;
use crate::notify;
use crate::options::Options;
use crate::store_sqlite::SqliteStore;

/// The next change of a process that has waited for its last one often comes sooner than this process could be woken. The limit is
/// that of the module for its own waits.
const SPIN_LIMIT: Duration = Duration::from_micros(200);

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How often the kernel is asked whether its clock is synchronised.
const ASK: Duration = Duration::from_secs(1);

struct Daemon {
    engine: Engine<DeviceKernel, SqliteStore, CgroupRoot>,
    control: Control,
    signals: SignalFd,
    spin: AdaptiveSpin,
    clocks: Clocks,
}

pub fn run(options: &Options) -> Result<()> {
    let mut daemon = Daemon::start(options)?;
    log::line(format_args!(
        "{} maps are stored in {}",
        daemon.engine.maps(),
        options.store.display()
    ));
    if let Err(error) = notify::ready() {
        log::line(format_args!(
            "cannot notify the service manager: {error}; check NOTIFY_SOCKET"
        ));
    }
    let mut ready = Ready::default();
    while !(ready.signals && daemon.is_terminated()) {
        daemon.turn(&ready)?;
        ready = daemon.wait()?;
    }
    daemon.end()
}

/// What there is to read beside messages of the kernel. A system call that finds nothing would delay the next commit.
#[derive(Default)]
struct Ready {
    signals: bool,
    control: bool,
}

impl Daemon {
    fn start(options: &Options) -> Result<Self> {
        umask(Mode::from_bits_truncate(0o077));
        let signals = block_signals().context("cannot block signals")?;
        let cgroups = CgroupRoot::open(&options.cgroup_root)
            .with_context(|| format!("cannot use {}", options.cgroup_root.display()))?;
        let store = SqliteStore::open(&options.store)?;
        let kernel = DeviceKernel::open()?;
        kernel.set_nonblocking()?;
        let socket = &options.socket;
        let control = Control::listen(socket).with_context(|| {
            format!(
                "cannot listen on {}; give another path with --socket",
                socket.display()
            )
        })?;
        let boot = fs::read_to_string(BOOT_ID)
            .with_context(|| format!("cannot read {BOOT_ID}; mount /proc"))?;
        let mut clocks = Clocks::default();
        let engine = Engine::new(
            kernel,
            store,
            cgroups,
            options.orphan_limits(),
            boot.trim_end().to_owned(),
            clocks.now()?,
        )?;
        Ok(Self {
            engine,
            control,
            signals,
            spin: AdaptiveSpin::new(spin_limit()),
            clocks,
        })
    }

    fn turn(&mut self, ready: &Ready) -> Result<()> {
        if ready.control || self.control.has_clients() {
            for (id, request) in self.control.requests() {
                self.engine.request(id, request);
            }
        }
        self.engine
            .turn(self.clocks.now()?)
            .map_err(|text| anyhow!("{text}; restart the daemon"))?;
        for (id, response) in self.engine.take_responses() {
            self.control.respond(id, &response);
        }
        self.control.flush();
        Ok(())
    }

    fn wait(&mut self) -> Result<Ready> {
        let timeout = match self.engine.wake() {
            Wake::AtOnce => Duration::ZERO,
            Wake::At(time) => time.saturating_sub(read(ClockId::CLOCK_MONOTONIC)?),
        };
        let timeout = timeout.min(self.control.next_close().unwrap_or(timeout));
        let (readers, writers) = self.control.interests();
        let input = [self.engine.kernel().as_fd(), self.signals.as_fd()];
        let mut fds: Vec<PollFd<'_>> = input
            .into_iter()
            .chain(readers)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        fds.extend(
            writers
                .into_iter()
                .map(|fd| PollFd::new(fd, PollFlags::POLLOUT)),
        );
        let polled = match self.engine.has_ended_waits() && !timeout.is_zero() {
            true => spin_and_poll(&mut self.spin, &mut fds, timeout),
            false => poll(&mut fds, rounded_up(timeout)),
        };
        match polled {
            Ok(_) | Err(Errno::EINTR) => {
                let mut fds = fds.iter().map(|fd| fd.any().unwrap_or(true)).skip(1);
                Ok(Ready {
                    signals: fds.next().unwrap_or(true),
                    control: fds.any(|is_ready| is_ready),
                })
            }
            Err(errno) => Err(errno).context("cannot wait for messages"),
        }
    }

    fn is_terminated(&self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }

    /// What was read is stored, also that of interval maps.
    fn end(mut self) -> Result<()> {
        self.turn(&Ready::default())?;
        self.engine.finish(self.clocks.now()?);
        match self.engine.is_stored() {
            true => log::line(format_args!(
                "terminated; all changes that were read are stored"
            )),
            false => log::line(format_args!(
                "terminated; the store does not work, and the kernel keeps what is not stored for the next start"
            )),
        }
        Ok(())
    }
}

/// None with a single processor, which the processes need that make the changes.
fn spin_limit() -> Duration {
    match thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => SPIN_LIMIT,
        _ => Duration::ZERO,
    }
}

fn spin_and_poll(
    spin: &mut AdaptiveSpin,
    fds: &mut [PollFd<'_>],
    timeout: Duration,
) -> nix::Result<i32> {
    let began = Instant::now();
    let poll_once = || match poll(fds, PollTimeout::ZERO) {
        Ok(0) => None,
        result => Some(result),
    };
    // Another process may need this processor to make the change.
    let found = spin.poll(poll_once, || sched_yield().is_err());
    let polled = found.unwrap_or_else(|| poll(fds, rounded_up(timeout)));
    spin.adapt(began.elapsed());
    polled
}

/// SIGTERM and SIGINT end the daemon after the commit that is being made. A file that may not become larger is an error of the store
/// (EFBIG); SIGXFSZ would end the daemon.
fn block_signals() -> nix::Result<SignalFd> {
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

#[derive(Default)]
struct Clocks {
    is_synchronised: bool,
    /// When that was asked.
    asked: Option<Duration>,
}

impl Clocks {
    fn now(&mut self) -> Result<Now> {
        let monotonic = read(ClockId::CLOCK_MONOTONIC)?;
        if self.asked.is_none_or(|asked| monotonic > asked + ASK) {
            self.asked = Some(monotonic);
            self.is_synchronised = is_synchronised();
        }
        Ok(Now {
            monotonic,
            boottime: read(ClockId::CLOCK_BOOTTIME)?,
            realtime: read(ClockId::CLOCK_REALTIME)?,
            synchronised: self.is_synchronised,
        })
    }
}

fn read(clock: ClockId) -> Result<Duration> {
    let time = clock_gettime(clock).context("cannot read the clock")?;
    Ok(time.into())
}

/// Whether a program such as chronyd has synchronised the system clock. Not, if the system call is not permitted.
fn is_synchronised() -> bool {
    // SAFETY: zeros are a valid value of it, and the call changes nothing else.
    let (state, time) = unsafe {
        let mut time: libc::timex = mem::zeroed();
        (libc::adjtimex(&mut time), time)
    };
    state >= 0 && time.status & libc::STA_UNSYNC == 0
}

/// In milliseconds. Rounded down, the loop would spin for the rest of one.
fn rounded_up(time: Duration) -> PollTimeout {
    let milliseconds = time.as_nanos().div_ceil(1_000_000);
    u16::try_from(milliseconds).map_or(PollTimeout::from(u16::MAX), PollTimeout::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_not_shorter_than_the_time() {
        assert_eq!(rounded_up(Duration::ZERO), PollTimeout::ZERO);
        assert_eq!(rounded_up(Duration::from_nanos(1)), PollTimeout::from(1_u8));
        assert_eq!(
            rounded_up(Duration::from_millis(5)),
            PollTimeout::from(5_u8)
        );
        assert_eq!(rounded_up(Duration::MAX), PollTimeout::from(u16::MAX));
    }
}
