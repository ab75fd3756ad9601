// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a bus: the host sends a file to 8 subscribers in two more containers. One of them is stopped during most of the
//! stream. It loses messages, all of which are counted, and neither the sender nor the others wait for it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice::bus::{BusInfo, Options, Policy, Sender};
use sluice::{Bus, Scope};
use sluice_testkit::proc::stat;
use sluice_testkit::units::{bytes_per_second, megabytes, size};

use crate::at_once::at_once;
use crate::bus_counts::{self, MESSAGE, Report};
use crate::container::Container;
use crate::containers::{Containers, NAMES};
use crate::named;
use crate::process::{Process, wait_until};
use crate::rootfs::{RECEIVED, SCOPE};
use crate::rounds::Transfer;
use crate::staging::Staged;
use crate::story::detail;
use crate::verify;

const NAME: &str = "stream";
const CONTAINERS: [&str; 2] = ["c", "d"];
/// Of the subscribers in each container. The one that is stopped has the first.
const POLICIES: [&str; 4] = ["drop", "drop", "drop", "block"];
const SUBSCRIBERS: usize = CONTAINERS.len() * POLICIES.len();
/// The messages that the sender is ahead of a running subscriber at most: about half of what the ring holds.
const WINDOW: u64 = 32;
/// The subscriber is stopped after this share of the messages.
const STOPPED_AFTER: u64 = 4;

/// Ends after the last message.
fn receive_script(policy: &str, count: u64) -> String {
    format!(
        "sluice bus sub --scope {SCOPE} --policy {policy} --count {count} --raw --summary {NAME} | sha256sum"
    )
}

/// Keeps the messages with their numbers. Ends when the bus is destroyed.
fn stopped_script(policy: &str) -> String {
    format!(
        "exec sluice bus sub --scope {SCOPE} --policy {policy} --json --summary {NAME} >{RECEIVED}"
    )
}

pub fn show(containers: &Containers, file: &Staged) -> Result<String> {
    detail!(
        "Connected by a bus: the host creates the bus '{NAME}' in the cgroup above all containers, readable for every user. Two\n\
         more containers have the directory of that cgroup, and open the bus by its name:"
    );
    let bus = Bus::named(NAME).scope(Scope::at(containers.parent_cgroup())?);
    let sender = open_sender(&bus)?;
    for container in &containers.both {
        named::check_not_found(container, "bus", NAME)?;
    }
    print_set_up(file);
    let more = at_once(CONTAINERS, |name| containers.start_in_scope(name))?;
    let (reports, info) = transfer(&more, &bus, &sender, file)?;
    bus_counts::check(&reports, messages(file), &info)?;
    for line in bus_counts::table(&reports).to_string().lines() {
        detail!("  {line}");
    }
    detail!(
        "\n  {} subscribers received SHA-256 {}, as computed by sha256sum.\n  \
         Each message that the stopped one received is that of its number, and each gap is as long as the losses reported with it.\n",
        SUBSCRIBERS - 1,
        file.sha256
    );
    Ok(bus_counts::proof(&reports, CONTAINERS.len()))
}

fn print_set_up(file: &Staged) {
    let [a, b] = NAMES;
    let [c, d] = CONTAINERS;
    detail!(
        "  'sluice bus info {NAME}' finds no such channel in {a} and {b}, which do not have the directory\n  \
         {c} and {d} have 3 subscribers with --policy drop each, and 1 with block:\n    \
         '{}'\n  \
         the host sends {}, {}, in messages of {}, no faster than all running subscribers receive:",
        receive_script(POLICIES[0], messages(file)),
        file.name,
        megabytes(file.bytes),
        size(MESSAGE)
    );
}

fn open_sender(bus: &Options) -> Result<Sender> {
    let bus = bus.clone().create(true).permissions(0o644);
    Ok(bus.policies([Policy::Drop, Policy::Block]).sender()?)
}

fn messages(file: &Staged) -> u64 {
    file.bytes.div_ceil(MESSAGE as u64)
}

/// Returns what the subscribers report, and the state of the bus after the last message was received.
fn transfer(
    containers: &[Container],
    bus: &Options,
    sender: &Sender,
    file: &Staged,
) -> Result<(Vec<Report>, BusInfo)> {
    let stopped = Stopped::start(&containers[0], sender)?;
    let mut running = start_running(containers, file)?;
    let processes = running.iter_mut().map(|one| &mut one.process);
    await_subscribers(sender, SUBSCRIBERS, processes.collect())?;

    let mut stream = Stream::open(sender, file)?;
    let before = messages(file) / STOPPED_AFTER;
    let rate = stream.send(before, None)?.rate();
    print_rate(&format!("messages 1 to {before}, all run"), rate);
    stopped.stop()?;
    let rate = stream.send(u64::MAX, Some(stopped.id))?.rate();
    print_rate(
        &format!(
            "the rest, while one in {} is stopped (SIGSTOP)",
            containers[0].name
        ),
        rate,
    );

    let reports = running.into_iter().map(|one| one.finish(file));
    let mut reports: Vec<Report> = reports.collect::<Result<_>>()?;
    detail!(
        "  No send had to wait, and the other subscribers have received all messages. The stopped one continues (SIGCONT),\n  \
         and the bus is destroyed:\n"
    );
    let (report, info) = stopped.finish(bus, sender, file)?;
    reports.insert(0, report);
    Ok((reports, info))
}

fn print_rate(what: &str, rate: f64) {
    detail!("  {what:<51} {:>9}", bytes_per_second(rate));
}

/// Fails if one of the processes ends.
fn await_subscribers(
    sender: &Sender,
    count: usize,
    mut processes: Vec<&mut Process>,
) -> Result<()> {
    wait_until("subscribing to the bus", || {
        for process in &mut processes {
            process.check_running()?;
        }
        Ok(sender.subscribers()?.len() == count)
    })
}

/// All subscribers but the one that is stopped.
fn start_running<'a>(containers: &'a [Container], file: &Staged) -> Result<Vec<Running<'a>>> {
    let mut all = Vec::new();
    for container in containers {
        for policy in POLICIES {
            all.push((container, policy));
        }
    }
    let start = |(container, policy): (&'a Container, &'static str)| {
        let script = receive_script(policy, messages(file));
        let process = container.exec(&["sh", "-c", &script])?;
        Ok(Running {
            container,
            policy,
            process,
        })
    };
    all.into_iter().skip(1).map(start).collect()
}

struct Running<'a> {
    container: &'a Container,
    policy: &'static str,
    process: Process,
}

impl Running<'_> {
    fn finish(self, file: &Staged) -> Result<Report> {
        let name = self.container.name;
        let output = self.process.wait_success()?;
        let digest = verify::digest(&output.stdout)?;
        ensure!(
            digest == file.sha256,
            "a subscriber in container {name} received SHA-256 {digest} instead of {} of {}; report this as a bug",
            file.sha256,
            file.name
        );
        Report::new(name, self.policy, false, &output.stderr)
    }
}

/// The subscriber that is stopped for a time.
struct Stopped<'a> {
    container: &'a Container,
    process: Process,
    /// Of its endpoint.
    id: u64,
    /// As the host sees it.
    pid: Pid,
}

impl<'a> Stopped<'a> {
    /// The first subscriber, so that its id is known.
    fn start(container: &'a Container, sender: &Sender) -> Result<Self> {
        let mut process = container.exec(&["sh", "-c", &stopped_script(POLICIES[0])])?;
        await_subscribers(sender, 1, vec![&mut process])?;
        let subscribers = sender.subscribers()?;
        let first = subscribers.first().context("the first subscriber ended")?;
        let pid = first
            .pid
            .context("the pid of a subscriber is not visible; report this as a bug")?;
        Ok(Self {
            container,
            process,
            id: first.id,
            pid: Pid::from_raw(pid.try_into()?),
        })
    }

    fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        wait_until("stopping a subscriber", || {
            Ok(stat(self.pid).is_some_and(|stat| stat.state == 'T'))
        })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid, signal).with_context(|| {
            let name = self.container.name;
            format!(
                "cannot send {signal} to the subscriber in container {name}; run the demo again"
            )
        })
    }

    /// Lets it receive what is left, and destroys the bus, because it does not know which message is the last.
    fn finish(self, bus: &Options, sender: &Sender, file: &Staged) -> Result<(Report, BusInfo)> {
        self.signal(Signal::SIGCONT)?;
        wait_until("receiving by the subscriber that was stopped", || {
            have_received_all_but(0, sender, |id| id == self.id)
        })?;
        let info = sender.info()?;
        bus.destroy()?;
        let name = self.container.name;
        let output = self.process.wait()?;
        ensure!(
            output.stderr.contains("the bus was destroyed"),
            "the bus was destroyed, but a subscriber in container {name} ended with {} and printed '{}'; report this as a bug",
            output.status,
            output.stderr.trim()
        );
        let report = Report::new(name, POLICIES[0], true, &output.stderr)?;
        let received = BufReader::new(File::open(&self.container.received)?);
        bus_counts::check_messages(received, File::open(&file.path)?, &report)
            .with_context(|| format!("the subscriber that was stopped, in container {name}"))?;
        Ok((report, info))
    }
}

/// Whether those subscribers have received all messages but the last `lag`.
fn have_received_all_but(lag: u64, sender: &Sender, which: impl Fn(u64) -> bool) -> Result<bool> {
    let subscribers = sender.subscribers()?;
    let mut which = subscribers.iter().filter(|one| which(one.id));
    Ok(which.all(|one| one.lag <= lag))
}

/// The file as messages.
struct Stream<'a> {
    sender: &'a Sender,
    input: BufReader<File>,
}

impl<'a> Stream<'a> {
    fn open(sender: &'a Sender, file: &Staged) -> Result<Self> {
        let input = BufReader::new(File::open(&file.path)?);
        Ok(Self { sender, input })
    }

    /// Sends up to `count` messages. Fails if the bus has no room for one.
    fn send(&mut self, count: u64, stopped: Option<u64>) -> Result<Transfer> {
        let begin = Instant::now();
        let mut bytes = 0;
        let mut message = Vec::with_capacity(MESSAGE);
        for _ in 0..count {
            message.clear();
            let mut part = self.input.by_ref().take(MESSAGE as u64);
            if part.read_to_end(&mut message)? == 0 {
                break;
            }
            self.await_running(stopped)?;
            self.sender.try_send(&message)?;
            bytes += message.len() as u64;
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Transfer { bytes, seconds })
    }

    /// Otherwise subscribers would lose messages on a machine that is too slow for all of them.
    fn await_running(&self, stopped: Option<u64>) -> Result<()> {
        wait_until("receiving by the running subscribers", || {
            have_received_all_but(WINDOW, self.sender, |id| Some(id) != stopped)
        })
    }
}
