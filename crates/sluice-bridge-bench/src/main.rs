// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the bridge costs: messages from one program to another over a bus, over two buses with two bridges and a stream of NATS between, and
//! over such a stream directly, without and with ids by which it recognises duplicates. tests/bridge-bench runs this in the VM, where
//! docs/performance.md has its figures from.
//!
//! Each round measures each way once, in another order. A publisher and a receiver are processes of their own, which this program starts as
//! itself.

mod relay;
mod relay_client;

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ContextBuilder, consumer, stream};
use futures_util::StreamExt as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use sluice::Bus;
use sluice::bus::Policy;
use tokio::runtime::Runtime;

/// The length of a message, whose first bytes are the time when it was sent.
const BYTES: usize = 1024;
const STAMP: usize = 8;
/// The most messages that are published and not acknowledged: the default of the bridge.
const IN_FLIGHT: usize = 256;
/// Messages of each way and round: as fast as possible; at a rate; and the rate, per second.
const STREAMED: u64 = 5000;
const PACED: u64 = 1000;
const RATE: u64 = 200;
const CAPACITY: u64 = 1 << 20;
const URL: &str = "nats://127.0.0.1:4222";
const WAYS: [&str; 7] = [
    "bus",
    "bridge",
    "nats",
    "nats-ids",
    "relay",
    "relay-ids",
    "relay-client",
];
const RELAYS: [&str; 3] = ["relay", "relay-ids", "relay-client"];

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["publish", way, count, rate] => publish(way, count.parse()?, rate.parse()?),
        ["relay", "out"] => relay::out(),
        ["relay", "in"] => relay::into(),
        ["relay-ids", "out"] => relay::out_with_ids(),
        ["relay-ids", "in"] => relay::into_acknowledged(),
        ["relay-client", "out"] => runtime()?.block_on(relay_client::out()),
        ["relay-client", "in"] => runtime()?.block_on(relay_client::into()),
        ["receive", way, count] => receive(way, count.parse()?),
        [server, bridge, rounds] => measure(server, bridge, rounds.parse()?),
        _ => bail!("usage: bench NATS-SERVER SLUICE-BRIDGE ROUNDS; tests/bridge-bench gives them"),
    }
}

/// The time in ns, by a clock that all processes share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    now.as_nanos() as u64
}

/// The times at which messages are due; without a rate at once.
struct Pace {
    began: u64,
    interval: u64,
}

impl Pace {
    fn new(rate: u64) -> Self {
        Self {
            began: now(),
            interval: 1_000_000_000_u64.checked_div(rate).unwrap_or(0),
        }
    }

    fn wait(&self, number: u64) -> Duration {
        let due = self.began + number * self.interval;
        Duration::from_nanos(due.saturating_sub(now()))
    }
}

fn message() -> Vec<u8> {
    let mut message = vec![b'x'; BYTES];
    message[..STAMP].copy_from_slice(&now().to_le_bytes());
    message
}

fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("cannot start the runtime")
}

fn bus(name: &str) -> sluice::bus::Options {
    let bus = Bus::named(format!("bench-{name}"))
        .create(true)
        .capacity(CAPACITY);
    bus.policies([Policy::Block, Policy::Drop])
}

fn publish(way: &str, count: u64, rate: u64) -> Result<()> {
    if way.starts_with("nats") {
        return runtime()?.block_on(publish_to_nats(count, rate, way == "nats-ids"));
    }
    let name = match way {
        "bus" => "in",
        "bridge" => "out",
        relay => relay,
    };
    let sender = bus(name).sender()?;
    let pace = Pace::new(rate);
    for number in 0..count {
        sleep(pace.wait(number));
        sender.send(&message())?;
    }
    Ok(())
}

async fn publish_to_nats(count: u64, rate: u64, has_ids: bool) -> Result<()> {
    let client = async_nats::connect(URL).await?;
    let context = ContextBuilder::new()
        .max_ack_inflight(2 * IN_FLIGHT)
        .build(client);
    let mut in_flight = VecDeque::new();
    let pace = Pace::new(rate);
    for number in 0..count {
        let wait = pace.wait(number);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        if in_flight.len() == IN_FLIGHT {
            acknowledged(&mut in_flight).await?;
        }
        let mut message = PublishMessage::build().payload(message().into());
        if has_ids {
            message = message.message_id(format!("{:016x}-{number}", pace.began));
        }
        in_flight.push_back(context.send_publish("nats.new", message).await?);
    }
    while !in_flight.is_empty() {
        acknowledged(&mut in_flight).await?;
    }
    Ok(())
}

async fn acknowledged(
    in_flight: &mut VecDeque<jetstream::context::PublishAckFuture>,
) -> Result<()> {
    if let Some(oldest) = in_flight.pop_front() {
        oldest.await?;
    }
    Ok(())
}

/// Prints a line when it is subscribed, and one with the figures.
fn receive(way: &str, count: u64) -> Result<()> {
    let mut received = Received::default();
    if way.starts_with("nats") {
        runtime()?.block_on(receive_from_nats(count, &mut received))?;
    } else {
        let mut subscriber = bus("in").policy(Policy::Block).subscriber()?;
        println!("ready");
        while received.latencies.len() < count as usize {
            received.add(subscriber.recv()?.bytes())?;
        }
    }
    received.print()
}

async fn receive_from_nats(count: u64, received: &mut Received) -> Result<()> {
    let context = jetstream::new(async_nats::connect(URL).await?);
    let config = consumer::pull::Config {
        deliver_policy: consumer::DeliverPolicy::New,
        ack_policy: consumer::AckPolicy::Explicit,
        ..consumer::pull::Config::default()
    };
    let consumer = context.create_consumer_on_stream(config, "NATS").await?;
    let mut messages = consumer.messages().await?;
    println!("ready");
    while received.latencies.len() < count as usize {
        let message = messages.next().await.context("the consumer has ended")??;
        received.add(&message.payload)?;
        if let Err(error) = message.ack().await {
            bail!("{error}");
        }
    }
    Ok(())
}

#[derive(Default)]
struct Received {
    /// Nanoseconds, in the order of the messages.
    latencies: Vec<u64>,
    began: u64,
    ended: u64,
}

impl Received {
    fn add(&mut self, message: &[u8]) -> Result<()> {
        ensure!(message.len() == BYTES, "a message of another length");
        let sent = u64::from_le_bytes(message[..STAMP].try_into()?);
        self.ended = now();
        if self.latencies.is_empty() {
            self.began = sent;
        }
        self.latencies.push(self.ended.saturating_sub(sent));
        Ok(())
    }

    /// Messages per second, and percentiles of the latency in µs.
    fn print(mut self) -> Result<()> {
        let count = self.latencies.len();
        let rate = count as f64 * 1e9 / (self.ended - self.began) as f64;
        self.latencies.sort_unstable();
        let percentile = |share: usize| self.latencies[count * share / 100] as f64 / 1e3;
        println!("{rate} {} {}", percentile(50), percentile(99));
        Ok(())
    }
}

/// Ends with the value.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(
            command
                .spawn()
                .with_context(|| format!("cannot start {command:?}"))?,
        ))
    }

    /// Processor time of the process so far, in µs.
    fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
        // The first is empty; the second is field 3 of proc(5).
        let ticks: u64 = fields.skip(12).take(2).flat_map(str::parse::<u64>).sum();
        Ok(ticks as f64 * 10_000.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Hosts {
    /// The bridges, the server, and two of each kind of relay.
    processes: Vec<Process>,
    directory: PathBuf,
}

impl Hosts {
    fn start(server: &str, bridge: &str) -> Result<Self> {
        let directory = env::temp_dir().join(format!("bridge-bench-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let mut command = Command::new(server);
        command
            .args(["--addr", "127.0.0.1", "--jetstream", "--store_dir"])
            .arg(directory.join("store"));
        let server = Process::start(command.stderr(Stdio::null()))?;
        while TcpStream::connect("127.0.0.1:4222").is_err() {
            sleep(Duration::from_millis(50));
        }
        runtime()?.block_on(create_streams())?;
        let start = |name: &str| {
            let text = format!(
                "id = \"{name}\"\nserver = {{ urls = [\"{URL}\"] }}\n[[bus]]\nname = \"bench-{name}\"\ndirection = \"{name}\"\n\
                 subject = \"bridge.new\"\nstream = \"BRIDGE\"\n"
            );
            let config = directory.join(name);
            fs::write(&config, text)?;
            Process::start(Command::new(bridge).arg("run").arg("--config").arg(config))
        };
        // They exist as long as this process.
        let sources = || RELAYS.into_iter().chain(["out"]);
        for name in sources().chain(["in"]) {
            std::mem::forget(bus(name).sender()?);
        }
        let mut processes = vec![start("out")?, start("in")?, server];
        for relay in RELAYS {
            processes.extend([
                start_itself(&[relay, "out"])?,
                start_itself(&[relay, "in"])?,
            ]);
        }
        for name in sources() {
            while bus(name).sender()?.info()?.subscribers == 0 {
                sleep(Duration::from_millis(50));
            }
        }
        sleep(Duration::from_secs(2));
        Ok(Self {
            processes,
            directory,
        })
    }

    fn cpu(&self) -> Result<Vec<f64>> {
        self.processes.iter().map(Process::cpu).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

async fn create_streams() -> Result<()> {
    let context = jetstream::new(async_nats::connect(URL).await?);
    let create = async |name: &str, subject: &str| {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{subject}.>")],
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        context.create_stream(config).await
    };
    create("BRIDGE", "bridge").await?;
    create("NATS", "nats").await?;
    for name in RELAYS {
        create(name, name).await?;
        let config = consumer::pull::Config {
            durable_name: Some("relay".to_owned()),
            ack_policy: match name {
                "relay" => consumer::AckPolicy::None,
                _ => consumer::AckPolicy::All,
            },
            ..consumer::pull::Config::default()
        };
        context.create_consumer_on_stream(config, name).await?;
    }
    Ok(())
}

/// The figures of one way in one round.
struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    /// Processor time of a message, in µs: of both programs, and of the processes of [`Hosts`].
    cpu: [f64; 10],
}

fn measure(server: &str, bridge: &str, rounds: usize) -> Result<()> {
    ensure!(rounds > 1, "no round is left without the first one");
    let hosts = Hosts::start(server, bridge)?;
    let mut all: [Vec<Figures>; WAYS.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let figures = measure_way(&hosts, WAYS[way])?;
            // The first round is not among the results.
            let Figures {
                rate,
                p50,
                p99,
                cpu,
            } = figures;
            eprintln!(
                "{round} {:7} {rate:8.0}/s p50 {p50:7.0} p99 {p99:7.0} µs, cpu {cpu:.0?} µs",
                WAYS[way]
            );
            if round > 0 {
                all[way].push(figures);
            }
        }
    }
    print(&all);
    Ok(())
}

fn measure_way(hosts: &Hosts, way: &str) -> Result<Figures> {
    let before = hosts.cpu()?;
    let programs = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let [rate, ..] = exchange(way, STREAMED, 0)?;
    // The last acknowledgements.
    sleep(Duration::from_millis(200));
    let mut cpu = [0.0; 10];
    let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    cpu[0] = time(after.user_time() - programs.user_time())
        + time(after.system_time() - programs.system_time());
    for (cpu, (after, before)) in cpu[1..].iter_mut().zip(hosts.cpu()?.iter().zip(&before)) {
        *cpu = after - before;
    }
    let cpu = cpu.map(|cpu| cpu / STREAMED as f64);
    let [_, p50, p99] = exchange(way, PACED, RATE)?;
    Ok(Figures {
        rate,
        p50,
        p99,
        cpu,
    })
}

fn exchange(way: &str, count: u64, rate: u64) -> Result<[f64; 3]> {
    let (count, rate) = (count.to_string(), rate.to_string());
    let mut receiver = start_itself(&["receive", way, &count])?;
    let stdout: ChildStdout = receiver.0.stdout.take().context("no standard output")?;
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    ensure!(line == "ready\n", "the receiver has ended: {line:?}");
    let mut publisher = start_itself(&["publish", way, &count, &rate])?;
    ensure!(publisher.0.wait()?.success(), "the publisher has failed");
    let mut figures = String::new();
    stdout.read_to_string(&mut figures)?;
    receiver.0.wait()?;
    let figures: Vec<f64> = figures.split_whitespace().flat_map(str::parse).collect();
    figures.try_into().ok().context("the receiver has failed")
}

fn start_itself(arguments: &[&str]) -> Result<Process> {
    let program = env::current_exe()?;
    Process::start(
        Command::new(Path::new(&program))
            .args(arguments)
            .stdout(Stdio::piped()),
    )
}

/// Medians [smallest–largest].
fn print(all: &[Vec<Figures>; WAYS.len()]) {
    let spread = |mut values: Vec<f64>, digits: usize| {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values[0], values[values.len() - 1]);
        let median = values[values.len() / 2];
        format!("{median:.digits$} [{first:.digits$}–{last:.digits$}]")
    };
    let names = [
        "messages/s",
        "p50, µs",
        "p99, µs",
        "processor time of both programs, µs",
        "of the bridge out, µs",
        "of the bridge in, µs",
        "of the server, µs",
        "of the relay out, µs",
        "of the relay in, µs",
        "of the relay-ids out, µs",
        "of the relay-ids in, µs",
        "of the relay-client out, µs",
        "of the relay-client in, µs",
    ];
    let value = |figures: &Figures, row: usize| match row {
        0 => figures.rate,
        1 => figures.p50,
        2 => figures.p99,
        _ => figures.cpu[row - 3],
    };
    let [_, bridge, plain, with_ids, relays @ ..] = all;
    let ways = WAYS.join(" | ");
    let against = RELAYS.map(|relay| format!("{relay} ÷ nats")).join(" | ");
    println!(
        "| | {ways} | bridge ÷ nats | bridge ÷ nats-ids | {against} |\n|{}",
        "---|".repeat(WAYS.len() + RELAYS.len() + 3)
    );
    for (row, name) in names.into_iter().enumerate() {
        let figures = all.each_ref().map(|figures| {
            let values = figures.iter().map(|figures| value(figures, row));
            spread(values.collect(), 0)
        });
        let pairs = [(bridge, plain), (bridge, with_ids)].into_iter();
        let pairs = pairs.chain(relays.iter().map(|relay| (relay, plain)));
        let ratios: Vec<String> = pairs
            .map(|(one, rival)| {
                let rounds = one.iter().zip(rival);
                let ratios = rounds.map(|(one, rival)| value(one, row) / value(rival, row));
                // Processor time is of different processes.
                if row < 3 {
                    spread(ratios.collect(), 2)
                } else {
                    "–".to_owned()
                }
            })
            .collect();
        println!(
            "| {name} | {} | {} |",
            figures.join(" | "),
            ratios.join(" | ")
        );
    }
}
