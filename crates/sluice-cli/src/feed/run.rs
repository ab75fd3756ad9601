// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the way of packets from the interrupt of the simulator to this process.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use sluice::feed::{FeedInfo, Simulation, Simulator, SimulatorError};
use sluice_abi::feed::PACKET_MAX;

use super::receive::{Mode, Receiver};
use super::report::{Report, Setting};
use super::signals::EndSignals;
use crate::progress::Screen;
use crate::{args, output};

/// The time between two frames of the display.
const FRAME: Duration = Duration::from_millis(100);

/// After the end of the simulator: the longest wait for the packets that it has published.
const LAST_PACKETS: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Arguments {
    /// Time between two packets, such as 50us, 1ms or 1s
    ///
    /// From 10us to 10s.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, default_value = "1ms", value_parser = interval)]
    interval: Duration,

    /// Bytes of a packet after its header, up to {PACKET_MAX}
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, default_value_t = 64, value_parser = args::number(0..=PACKET_MAX))]
    size: u32,

    /// The number of packets to publish, lost ones included [default: until interrupted]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    count: u64,

    /// The processor of the simulator [default: that of this process]
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,

    /// Receive through mapped memory, as by default
    #[arg(long, conflicts_with = "read")]
    map: bool,

    /// Receive by read(2)
    #[arg(long)]
    read: bool,

    /// Spin for up to this time before blocking [default: {SPIN}, or 0 on one processor]
    ///
    /// To receive without sleep, choose more than the interval, with --map. With --read, the default and the limit is the parameter
    /// spin_limit_us of the module.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time_or_zero)]
    spin: Option<Duration>,

    /// The processor of the receiving thread [default: any]
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,

    /// Print a JSON object at the end
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let signals = EndSignals::block()?;
    let feed = Simulator::open()?;
    let setting = Setting {
        mode: if arguments.read {
            Mode::Read
        } else {
            Mode::Map
        },
        size: arguments.size,
        pin: arguments.pin,
        lost_before: feed.info()?.lost,
    };
    let mut receiver = Receiver::start(&feed, setting.mode, setting.pin, arguments.spin)?;
    let published_before = feed.info()?.published;
    feed.start(&Simulation {
        interval: arguments.interval,
        length: arguments.size,
        count: arguments.count,
        cpu: arguments.cpu,
    })?;
    let screen = Screen::new();
    loop {
        let is_interrupted = signals.wait(FRAME)?;
        receiver.check()?;
        let info = feed.info()?;
        screen.show(|| Report::new(&setting, &receiver.stats, &info).text());
        if is_interrupted || !info.running {
            break;
        }
    }
    let info = finish(&feed, &mut receiver, published_before)?;
    drop(screen);
    let report = Report::new(&setting, &receiver.stats, &info);
    match arguments.json {
        true => output::print_json(&report),
        false => output::print(&report.text()),
    }
}

/// Stops the simulator, and waits until its packets are received.
fn finish(
    feed: &Simulator,
    receiver: &mut Receiver,
    published_before: u64,
) -> Result<FeedInfo, anyhow::Error> {
    match feed.stop() {
        // Another process has started it since it has reached its count.
        Ok(()) | Err(SimulatorError::StartedByAnother) => {}
        Err(error) => return Err(error.into()),
    }
    let info = feed.info()?;
    let deadline = Instant::now() + LAST_PACKETS;
    while receiver.stats.received() < info.published - published_before && Instant::now() < deadline
    {
        receiver.check()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(info)
}

fn interval(text: &str) -> Result<Duration, String> {
    match args::time(text)? {
        time if SUPPORTED.contains(&time.as_nanos()) => Ok(time),
        _ => Err("give a time from 10us to 10s, such as 50us, 1ms or 1s".to_owned()),
    }
}

/// Intervals of the simulator, in nanoseconds.
const SUPPORTED: std::ops::RangeInclusive<u128> = 10_000..=10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_a_unit_and_are_those_of_the_simulator() {
        for (text, nanoseconds) in [
            ("10000ns", 10_000),
            ("10us", 10_000),
            ("50µs", 50_000),
            ("1ms", 1_000_000),
            ("10s", 10_000_000_000),
        ] {
            assert_eq!(interval(text), Ok(Duration::from_nanos(nanoseconds)));
        }
        for bad in [
            "",
            "1",
            "ms",
            "9us",
            "11s",
            "1.5ms",
            "-1ms",
            "1h",
            "1 ms",
            "99999999999999999999s",
        ] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
