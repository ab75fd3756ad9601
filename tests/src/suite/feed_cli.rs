// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice feed`, run as from a shell.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice::feed::{Simulation, Simulator};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{NAME_TAKEN, NO_CHANNEL, NO_PERMISSION, shell, sluice};

topic!(
    "feed_cli",
    fifo: [],
    pipe_only: [
        a_run_reports_all_packets_in_either_way,
        an_interrupted_run_prints_its_summary,
        a_terminal_shows_the_latencies_live,
        the_state_of_the_simulator_is_shown,
        packets_are_printed_with_their_framing,
        a_signal_ends_a_receiver_after_its_summary,
        failures_have_their_status,
    ],
);

fn number(object: &Value, member: &str) -> Result<u64> {
    object[member]
        .as_u64()
        .with_context(|| format!("{member} is no number in {object}"))
}

fn a_run_reports_all_packets_in_either_way(context: &Context) -> Result<()> {
    for (mode, options) in [
        ("map", ""),
        ("map", "--map --spin 2ms"),
        ("map", "--spin 0"),
        ("read", "--read"),
        ("read", "--read --spin 0 --pin 0 --cpu 0"),
    ] {
        let line = format!("feed run --count 100 --interval 2ms --size 100 --json {options}");
        let report = sluice(context, &line)?.json()?;
        expect("the mode", &report["mode"], &json!(mode))?;
        let count = |member| number(&report, member);
        expect("the interval", count("interval_ns")?, 2_000_000)?;
        expect("the size", count("size")?, 100)?;
        let accounted = count("received")? + count("lost")?;
        expect("received and lost", accounted, 100)?;
        check_latencies(&report).with_context(|| format!("in {report}"))?;
    }
    Ok(())
}

fn check_latencies(report: &Value) -> Result<()> {
    let mut units = vec!["latency_ns"];
    if cfg!(target_arch = "x86_64") {
        units.push("latency_cycles");
    }
    for unit in units {
        let of = |rank| number(&report[unit], rank);
        let ranks = [of("p50")?, of("p99")?, of("p99_9")?, of("max")?];
        ensure!(ranks.is_sorted() && ranks[0] > 0, "{unit}: {ranks:?}");
    }
    let bars = report["histogram"].as_array().context("no histogram")?;
    let packets = bars.iter().map(|bar| number(bar, "packets"));
    let all = packets.sum::<Result<u64>>()?;
    expect("packets in the histogram", all, number(report, "received")?)
}

fn an_interrupted_run_prints_its_summary(context: &Context) -> Result<()> {
    let script = "timeout --signal INT 2 sluice feed run --json || echo $? > status";
    let report = shell(context, script)?.json()?;
    ensure!(number(&report, "received")? > 0, "{report}");
    let status = std::fs::read_to_string(context.scratch.join("status"))?;
    expect("its status (124: interrupted)", status.trim(), "124")
}

fn a_terminal_shows_the_latencies_live(context: &Context) -> Result<()> {
    let script = r#"
        script --quiet --return --command 'sluice feed run --count 600' screen < /dev/null > /dev/null
        cat screen"#;
    let screen = shell(context, script)?.stdout()?;
    let frames = screen.matches("mapped ring: ").count();
    ensure!(frames > 2, "{frames} frames: {screen}");
    ensure!(screen.contains("P99.9"), "{screen}");
    Ok(())
}

fn the_state_of_the_simulator_is_shown(context: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    let mut consumer = feed.map()?;
    feed.start(&Simulation {
        count: 3,
        ..Simulation::every(Duration::from_millis(1))
    })?;
    for _ in 0..3 {
        drop(consumer.recv()?);
    }
    let state = sluice(context, "feed info --json")?.json()?;
    let info = feed.info()?;
    expect("the consumer", &state["consumer"], &json!("maps"))?;
    expect("the sequence", number(&state, "sequence")?, info.sequence)?;
    expect("expiries", number(&state, "expired")?, 3)?;
    let table = sluice(context, "feed info")?.stdout()?;
    ensure!(table.contains("CONSUMER     maps\n"), "{table}");
    expect(
        "named feeds",
        sluice(context, "feed ls --json")?.json()?,
        json!([]),
    )
}

/// The simulator runs on the endpoint of this process, and the command consumes.
/// Prints each byte as a number, since those of a packet are no text.
const NUMBERS: &str = "od -A n -v -t u1";

/// What NUMBERS has printed, in parts of this length.
fn packets(numbers: &str, length: usize) -> Result<Vec<Vec<u32>>> {
    let numbers = numbers.split_whitespace().map(str::parse);
    let numbers = numbers.collect::<Result<Vec<u32>, _>>()?;
    expect("bytes behind the last packet", numbers.len() % length, 0)?;
    Ok(numbers.chunks(length).map(<[u32]>::to_vec).collect())
}

fn packets_are_printed_with_their_framing(context: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    feed.start(&Simulation {
        length: 3,
        ..Simulation::every(Duration::from_millis(1))
    })?;
    let run = shell(context, &format!("sluice feed recv --count 4 | {NUMBERS}"))?;
    let [first, rest @ ..] = &packets(&run.stdout()?, 4)?[..] else {
        bail!("nothing was received");
    };
    let mut number_of = first[0];
    expect("a line", first, &vec![number_of, number_of, number_of, 10])?;
    for line in rest {
        number_of = (number_of + 1) % 256;
        expect("a line", line, &vec![number_of, number_of, number_of, 10])?;
    }
    let receive = "sluice feed recv --count 2 --framing length --summary";
    let run = shell(context, &format!("{receive} | {NUMBERS}"))?;
    for frame in packets(&run.stdout()?, 7)? {
        let byte = frame[4];
        expect("a frame", frame, vec![3, 0, 0, 0, byte, byte, byte])?;
    }
    let summary: Value = serde_json::from_str(&run.stderr()).context("the summary")?;
    expect("packets", number(&summary, "packets")?, 2)?;
    expect("bytes", number(&summary, "bytes")?, 6)?;
    let object = sluice(context, "feed recv --count 1 --json")?.json()?;
    let is_packet = object["packet"].is_string() || object["packet_base64"].is_string();
    ensure!(is_packet && number(&object, "time_ns")? > 0, "{object}");
    number(&object, "sequence")?;
    number(&object, "lost").map(drop)
}

fn a_signal_ends_a_receiver_after_its_summary(context: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    feed.start(&Simulation::every(Duration::from_millis(1)))?;
    let receive = "sluice feed recv --summary > packets";
    let script = format!("timeout --preserve-status --signal INT 2 {receive} || echo $?");
    let run = shell(context, &script)?;
    expect("its status (SIGINT)", run.stdout()?, "130\n".to_owned())?;
    let summary: Value = serde_json::from_str(&run.stderr()).context("the summary")?;
    ensure!(number(&summary, "packets")? > 0, "{summary}");
    Ok(())
}

fn failures_have_their_status(context: &Context) -> Result<()> {
    for line in ["feed info nothing", "feed recv nothing"] {
        sluice(context, line)?.expect_failure(NO_CHANNEL, &["no feed named 'nothing'"])?;
    }
    let feed = Simulator::open()?;
    let reader = feed.reader()?;
    for line in ["feed recv", "feed run", "feed run --read"] {
        let run = sluice(context, line)?;
        run.expect_failure(NAME_TAKEN, &["another endpoint receives the feed"])?;
    }
    drop(reader);
    drop(feed);
    let feed = Simulator::open()?;
    feed.start(&Simulation::every(Duration::from_millis(10)))?;
    let run = sluice(context, "feed run --count 1")?;
    run.expect_failure(NAME_TAKEN, &["runs already"])?;
    let script = "setpriv --bounding-set -sys_nice sluice feed run --count 1";
    drop(feed);
    shell(context, script)?.expect_failure(NO_PERMISSION, &["CAP_SYS_NICE"])
}
