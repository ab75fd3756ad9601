// SPDX-License-Identifier: MIT OR Apache-2.0
//! The templates, by the lines of their text for rows.

use super::text;
use crate::harness::class::Class;
use crate::harness::figures::Values;
use crate::harness::rows::Row;
use crate::harness::samples::{Samples, summarize};
use crate::harness::waiting::Waiting;

/// A row from a line with cells: the label, the title, the value of each round; and what else it has by name: a figure with its
/// rounds, "samples" of one time and their number, the "size", a "load" in percent and per second, a remote "class".
fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [label, title, values, named @ ..] = &cells[..] else {
        panic!("too few cells: {line}");
    };
    let spins = label.contains("(spins");
    let mut row = Row {
        label: label.to_string(),
        mechanism: label.split([' ', ',']).next().unwrap().into(),
        title: title.to_string(),
        value: rounds(&numbers(values)),
        waiting: Some(if spins { Waiting::Spin } else { Waiting::Sleep }),
        ..Row::default()
    };
    for cell in named {
        let (name, values) = cell.split_once(' ').unwrap();
        let values = numbers(values);
        match name {
            "samples" => {
                let samples = std::iter::repeat_n(values[0] as u64, values[1] as usize);
                row.distribution = summarize(&[&samples.into_iter().collect::<Samples>()]);
            }
            "size" => row.size = Some(values[0] as usize),
            "class" => row.probe_class = Some(Class::Far),
            "load" => {
                row.axes.insert("load_percent".into(), values[0].into());
                row.axes.insert("load_rate".into(), values[1].into());
            }
            figure => {
                row.figures.insert(figure.into(), rounds(&values).unwrap());
            }
        }
    }
    row
}

fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(' ');
    words.filter_map(|word| word.parse().ok()).collect()
}

fn rounds(values: &[f64]) -> Option<Values> {
    Values::of(values.iter().copied().enumerate())
}

/// The text for rows of a suite, with single spaces.
fn words(suite: &str, rows: &str) -> String {
    let mut rows: Vec<Row> = rows.lines().map(row).collect();
    let template = if suite == "rtt" || suite == "throughput" {
        "rings"
    } else {
        suite
    };
    rows.iter_mut().for_each(|row| row.suite = suite.into());
    let text = text(template, suite, &rows).unwrap_or_default();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    text.lines().map(words).collect()
}

#[track_caller]
fn check(suite: &str, rows: &str, expected: &str) {
    let text = words(suite, rows);
    let missing = |line: &&str| !text.lines().any(|one| one == *line);
    assert_eq!(expected.lines().find(missing), None, "in\n{text}");
}

#[test]
fn without_results_there_is_no_text() {
    for (suite, _) in super::TEMPLATES {
        assert_eq!(words(suite, "pipe | a get | | size 1"), "");
        assert_eq!(text(suite, suite, &[row("pipe | a get | 1")]), None);
    }
}

#[test]
fn cells_are_aligned_as_the_head_says() {
    let text = super::aligned("before\n| a | b >|\n| long | 1 |\n|  | 200 |\nafter\n");
    let expected = "before\na       b\n─────────\nlong    1\n      200\nafter\n";
    assert_eq!(text, expected);
}

#[test]
fn figures_stand_beside_those_of_the_report() {
    let rows = "\
pipe | 1000 round trips of 1 B | 2000 | samples 2000 2
sluice-pipe | 1000 round trips of 1 B | 1000 | samples 1000 2";
    let expected = "\
1, table 9 ¹ 1000 round trips of 1 B mean pipe 578 µs 2.00 µs
1, table 9 ¹ 1000 round trips of 1 B mean sluice-pipe 432 µs 1.00 µs 0.75 0.50
1, table 8 1000 round trips of 1 B largest sluice-pipe 4.85 ms 1.00 µs
1, table 9 1000 round trips of 1024 B round trips/s pipe 1.73 k/s –
the crossover requires pipe and shm-sem
1 the standard deviation is comparable with the mean refuted here 0 times the mean
1 shared memory is an order of magnitude faster at 1 byte not measured";
    check("reports", rows, expected);
}

#[test]
fn the_model_is_fitted_and_overtakes() {
    // 1000 ns + 1 ns/B, and 1200 ns + 0.5 ns/B, with residuals of 80, -60, -60 and 40 ns.
    let rows = "\
pipe | 100000 messages of 64 B | 1 | size 64 | msgs_per_s 874126
shm-sem | 100000 messages of 64 B | 1 | size 64 | msgs_per_s 762195
pipe | 100000 messages of 256 B | 1 | size 256 | msgs_per_s 836120
shm-sem | 100000 messages of 256 B | 1 | size 256 | msgs_per_s 788644
pipe | 125000 messages of 512 B | 1 | size 512 | msgs_per_s 688705 | bytes_per_s 352617080
shm-sem | 125000 messages of 512 B | 1 | size 512 | msgs_per_s 716332 | bytes_per_s 366762178
myipc | 125000 messages of 512 B | 1 | size 512 | msgs_per_s 333333 | bytes_per_s 170666667
pipe | 100000 messages of 1024 B | 1 | size 1024 | msgs_per_s 484496
shm-sem | 100000 messages of 1024 B | 1 | size 1024 | msgs_per_s 570776";
    let expected = "\
pipe 500 ns 1.00 ns/B +7 % -5 % -4 % +2 %
shm-sem 600 ns 0.50 ns/B +6 % -5 % -4 % +2 %
shared memory with semaphores overtakes pipe(2): model from 400 B on; measured from 512 B on; report between 64 and 256 B
1 at 1 byte the bottleneck is the system call, not memory not measured
2 of 64 MB in 512-byte chunks MyIPC has the lowest rate, the pipe the highest refuted here myipc 171 MB/s, pipe 353 MB/s, shm-sem 367 MB/s";
    check("reports", rows, expected);
}

#[test]
fn a_claim_needs_rounds_that_do_not_overlap_and_one_class() {
    let rivals = "\
pipe | 10000 round trips of 1 B | 3 4
shm-sem | 10000 round trips of 1 B | 2 2
sluice-pipe | 10000 round trips of 1 B | 5 6
myipc | 10000 round trips of 1 B |";
    let shorter = "\
2 MyIPC's round trip is slightly shorter than the pipe's confirmed here myipc ÷ pipe is 0.64
2 MyIPC's round trip is close to that of shared memory with semaphores confirmed here myipc ÷ shm-sem is 1.1
2 shared memory with semaphores has the shortest round trip confirmed here shm-sem ÷ myipc is 0.89";
    let within_the_spread = "\
2 MyIPC's round trip is slightly shorter than the pipe's open: within the spread myipc ÷ pipe is 0.57
2 shared memory with semaphores has the shortest round trip open: within the spread shm-sem ÷ myipc is 1.0";
    let longer = "\
2 MyIPC's round trip is slightly shorter than the pipe's refuted here myipc ÷ pipe is 1.9
2 MyIPC's round trip is close to that of shared memory with semaphores refuted here myipc ÷ shm-sem is 3.2";
    let elsewhere = "\
2 MyIPC's round trip is slightly shorter than the pipe's not measured not at the same distance of the processors
2 shared memory with semaphores has the shortest round trip not measured shm-sem ÷ myipc is 0.89";
    for (rounds, expected) in [
        ("2.2 2.3", shorter),
        ("1 3", within_the_spread),
        ("6 7", longer),
        ("2.2 2.3 | class remote", elsewhere),
    ] {
        check("reports", &format!("{rivals} {rounds}"), expected);
    }
}

#[test]
fn costs_of_a_fan_out_have_criteria() {
    let rows = "\
pipe | 16 receivers 64 B busy, cost of sending | 5000 4000 8000
sluice-bus | 16 receivers 64 B busy, cost of sending | 500 400 800
sluice-bus | 1 receiver 64 B busy, cost of sending | 400 250 500
pipe | 1 receiver 64 B streaming | 5e6 | msgs_per_s 5e6
sluice-bus | 1 receiver 64 B streaming | 4e6 | msgs_per_s 4e6
sluice-bus-unicast | 1 receiver 64 B streaming | 1e7 | msgs_per_s 1e7";
    let expected = "\
64 B 212 200 436 – 222 – 632 100 0.34 2.0
64 B 28550 5000 / – 32504 – / – 5970 – / – 5674 500 / – 5.0 10
io_uring bcast: sluice-bus 651 5674 8.7 400 500 1.2
pipe ÷ sluice-bus, 16 receivers 64 B busy, cost of sending ≥ 6 10.0 10.0 … 10.0 met
pipe ÷ sluice-bus, 16 receivers 32 KiB busy, cost of sending ≥ 8 – not measured
sluice-bus, 16 receivers ÷ 1, 64 B ≤ 1.5 1.25 0.80 … 3.20 met
time of sluice-bus ÷ pipe, 1 receiver 64 B streaming ≤ 1 or a tie 1.25 1.25 … 1.25 not met
time of sluice-bus-unicast ÷ pipe, 1 receiver 64 B streaming ≤ 1 or a tie 0.50 0.50 … 0.50 met";
    check("fanout", rows, expected);
}

#[test]
fn rates_of_maps_become_times_of_the_report() {
    let rows = "\
shared-map | gets by 1 process | 1e6
shared-map | gets by 2 processes | 1e6
sluice-map-fd | gets by 1 process | 4e6
sluice-map-fd | gets by 2 processes | 8e6
sluice-map-fd | gets and sets by 2 processes | 8e6
sluice-map-fd | gets and sets by 10 processes | 7e6
sluice-map-fd | one of 64 gets | 30
bpf-map, one by one | one of 64 gets | 60";
    let expected = "\
2 0.897 97 % 200 200 % 25.0 100 % – 8.0 –
2 5.596 138 % – – 50.0 – – –
reported memory and files 1.9 1.0 1.1
sluice-map-fd, here memory – – 0.88
sluice-map-fd, gets and volatile sets: rate of 10 processes ÷ 2 ≥ 0.85 0.88 0.88 … 0.88 met
time of sluice-map-fd ÷ bpf-map, one of 64 gets, in a batch ÷ one by one ≤ 0.3 0.50 0.50 … 0.50 not met";
    check("map", rows, expected);
}

#[test]
fn durable_stores_are_compared_within_rounds() {
    // 1000 µs ÷ (700 µs + 100 µs), and others in the other rounds.
    let rows = "\
sluice-durable-always | durable sets by 1 process | 1000 1000 1250
sqlite | durable sets by 1 process | 1428.57 1111.11 1428.57
sqlite | durable sets by 2 processes | 500
eventfd | two wake-ups | 1e5 1e5 1e5
sluice-import | restoring 9 entries, each | 100
sluice-attach | restoring 9 entries, each | 110
sluice-durable-always | durable sets by 8 processes | 1000 | msgs_per_commit 3.5 3 5";
    let expected = "\
processes reported sluice-durable-always sqlite
2 4.223 137 % – 400000 571 %
8 sluice-durable-always 1000 1000 … 1000 3.50 3.00 … 5.00
sluice-durable-always, 8 processes: sets per commit ≥ 4 3.50 3.00 … 5.00 not met
time of a set by 1 process ÷ a transaction of SQLite and two wake-ups ≤ 1.3 1.00 1.00 … 1.25 met
time to restore a map, attach ÷ import ≤ 1.2 1.10 1.10 … 1.10 met";
    check("durable", rows, expected);
}

#[test]
fn latencies_of_packets_are_in_cycles_with_ratios_within_rounds() {
    let rows = "\
hft-read | packets | 1000 1000 | p99 2000 3000 | samples 1000 2000
hft-ring | packets | 100 200 | p99 1000 4000 | samples 1000 2000 | lost 1 2 | cycles_per_ns 2.5";
    let expected = "\
hft-ring 2000 3 2500 (1.00 µs) 2500 (1.00 µs) 8190 11634 63280
hft-read ÷ hft-ring P50 70 7.5 5.0 … 10 confirmed here
hft-read ÷ hft-ring P99 83 1.4 0.75 … 2.0 open: within the spread
hft-ring ÷ sluice-feed P50 – – not measured
P99.9 needs 10,000 samples in a round, and these rounds have 1000: measure with --full";
    check("feed", rows, expected);
}

#[test]
fn the_best_rival_that_waits_alike_is_compared_at_half_load() {
    let rows = "\
sluice-ring | 64 B 50 % | 1 | load 50 2000 | samples 850 1000 | p99 850
slow | 64 B 50 % | 1 | load 50 2000 | samples 2000 1000 | p99 2000
quick | 64 B 50 % | 1 | load 50 2000 | samples 1000 1000 | p99 1000
spinning (spins) | 64 B 50 % | 1 | load 50 2000 | samples 100 1000 | p99 100
cacheline | 64 B 50 % | 1 | load 50 2000 | samples 50 1000 | p99 50
sluice-ring | 64 B 90 % | 1 | load 90 2000 | samples 1500 1000 | p99 1500";
    let alone = "64 B 50 %: sluice-ring ÷ the best rival – not measured";
    check("load", rows.lines().next().unwrap(), alone);
    let expected = "\
64 B 90 % 2.00 k/s sluice-ring 1.50 µs 1.50 µs 1.50 µs
64 B 50 %: sluice-ring ÷ quick ≤ 1 or a tie 0.85 0.85 … 0.85 met";
    check("load", rows, expected);
}

#[test]
fn a_ring_is_compared_with_the_bound_and_the_best_library() {
    let rows = "\
sluice-ring-memfd | 64 B | 180 360
tachyon (spins) | 64 B | 200 400
aeron (spins) | 64 B | 150 300
shm-spin (spins) | 64 B | 1 1
cacheline (spins, reads only) | 64 B | 160 320";
    assert_eq!(words("rtt", rows.lines().next().unwrap()), "");
    let round_trips = "\
64 B: sluice-ring-memfd ÷ cacheline (spins, reads only) ≤ 1.2 1.12 1.12 … 1.12 met
64 B: sluice-ring-memfd ÷ aeron (spins) ≤ 1 or a tie 1.20 1.20 … 1.20 not met";
    check("rtt", rows, round_trips);
    let streams = "64 B: sluice-ring-memfd ÷ tachyon (spins) ≥ 1 or a tie 0.90 0.90 … 0.90 not met";
    check("throughput", rows, streams);
}

#[test]
fn instructions_of_programs_and_of_the_kernel_are_apart() {
    let rows = "\
control-loop | loop | 2.002001 | user_instructions 2.000001 | kernel_instructions 0.002
pipe | round trip | 5798 | user_instructions 120 | kernel_instructions 5678
fifo | round trip | 6120 | user_instructions 120 | kernel_instructions 6000";
    let uncontrolled = "The control FAILED: the counts of this run are wrong.";
    check("instructions", rows.lines().last().unwrap(), uncontrolled);
    let expected = "\
Control: a loop of two instructions was counted as 2.00000 per iteration. Meanwhile the kernel executed 1.00 per 1,000, which are subtracted.
round trip pipe 5.80 k 5.80 … 5.80 k 120 5.68 k
fifo 6.12 k 6.12 … 6.12 k 120 6.00 k";
    check("instructions", rows, expected);
}
