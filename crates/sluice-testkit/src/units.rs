// SPDX-License-Identifier: MIT OR Apache-2.0
//! Human-readable numbers: three figures and a unit.

use std::time::Duration;

/// Three significant figures, or all figures before the decimal point if there are more. Two below 1, and as many decimals
/// as these need, so that only 0 is shown as 0.
pub fn figures(value: f64) -> String {
    match value.abs() {
        tiny if tiny < 0.095 => ratio(value),
        small if small < 9.995 => format!("{value:.2}"),
        medium if medium < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub fn figures_range(min: f64, max: f64) -> String {
    format!("{} … {}", figures(min), figures(max))
}

const TIMES: [&str; 4] = ["ns", "µs", "ms", "s"];
const RATES: [&str; 4] = ["B/s", "kB/s", "MB/s", "GB/s"];
const COUNTS: [&str; 4] = ["/s", "k/s", "M/s", "G/s"];
/// Of numbers without a unit.
const MULTIPLES: [&str; 4] = ["", "k", "M", "G"];

/// The divisor, and the unit of the quotient.
fn scale<'a>(value: f64, units: &[&'a str; 4]) -> (f64, &'a str) {
    let mut divisor = 1.0;
    for unit in &units[..3] {
        if value < divisor * 999.5 {
            return (divisor, unit);
        }
        divisor *= 1000.0;
    }
    (divisor, units[3])
}

fn scaled(value: f64, units: &[&str; 4]) -> String {
    let (divisor, unit) = scale(value, units);
    format!("{} {unit}", figures(value / divisor))
}

/// Both in the unit of the larger one, unless the smaller one would round to nothing.
fn range(min: f64, max: f64, units: &[&str; 4]) -> String {
    let (divisor, unit) = scale(max, units);
    if min < divisor / 100.0 {
        return format!("{} … {}", scaled(min, units), scaled(max, units));
    }
    format!(
        "{} … {} {unit}",
        figures(min / divisor),
        figures(max / divisor)
    )
}

pub fn nanoseconds(ns: f64) -> String {
    scaled(ns, &TIMES)
}

pub fn nanosecond_range(min: f64, max: f64) -> String {
    range(min, max, &TIMES)
}

pub fn bytes_per_second(rate: f64) -> String {
    scaled(rate, &RATES)
}

pub fn rate_range(min: f64, max: f64) -> String {
    range(min, max, &RATES)
}

/// As few figures as represent this value: labels of axes are round numbers.
pub fn figures_short(value: f64) -> String {
    let text = figures(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

fn tick(value: f64, units: &[&str; 4]) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let (divisor, unit) = scale(value, units);
    format!("{} {unit}", figures_short(value / divisor))
}

pub fn time_tick(ns: f64) -> String {
    tick(ns, &TIMES)
}

pub fn rate_tick(rate: f64) -> String {
    tick(rate, &RATES)
}

/// A rate per second.
pub fn per_second(count: f64) -> String {
    scaled(count, &COUNTS)
}

pub fn per_second_range(min: f64, max: f64) -> String {
    range(min, max, &COUNTS)
}

pub fn per_second_tick(count: f64) -> String {
    tick(count, &COUNTS)
}

/// Two significant figures, however small or large.
pub fn ratio(value: f64) -> String {
    let text = format!("{value:.1e}");
    let exponent = text.split_once('e').map(|(_, exponent)| exponent);
    // Infinity has none.
    let Some(exponent) = exponent.and_then(|exponent| exponent.parse::<i32>().ok()) else {
        return text;
    };
    let rounded: f64 = text.parse().unwrap_or(value);
    let decimals = match rounded == 0.0 {
        true => 0,
        false => (1 - exponent).max(0) as usize,
    };
    format!("{rounded:.decimals$}")
}

/// A number without a unit.
pub fn count(number: f64) -> String {
    scaled(number, &MULTIPLES).trim_end().into()
}

pub fn count_range(min: f64, max: f64) -> String {
    range(min, max, &MULTIPLES).trim_end().into()
}

pub fn count_tick(number: f64) -> String {
    tick(number, &MULTIPLES).trim_end().into()
}

pub fn ratio_range(min: f64, max: f64) -> String {
    format!("{} … {}", ratio(min), ratio(max))
}

/// A share from 0 to 1. A value above zero is never shown as 0 %.
pub fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        percent if percent < 0.01 => "less than 0.01 %".into(),
        percent => format!("{} %", figures(percent)),
    }
}

pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", figures(bytes as f64 / 1e6))
}

/// A message size in its usual unit.
pub fn size(bytes: usize) -> String {
    match bytes {
        1024.. if bytes % 1024 == 0 => format!("{} KiB", bytes / 1024),
        _ => format!("{bytes} B"),
    }
}

/// A number of things, whose noun has a regular plural.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_zero_only_if_it_is() {
        assert_eq!(
            [0.0, 0.00001, 0.875, 1.0].map(share),
            ["0 %", "less than 0.01 %", "87.5 %", "100 %"]
        );
    }

    #[test]
    fn numbers_without_a_unit_have_multiples() {
        assert_eq!(
            [2.0, 12_345.0, 2e6].map(count),
            ["2.00", "12.3 k", "2.00 M"]
        );
        assert_eq!(count_range(998.0, 998.4), "998 … 998");
        assert_eq!(count_range(900.0, 1100.0), "0.90 … 1.10 k");
        assert_eq!([0.0, 500.0, 2000.0].map(count_tick), ["0", "500", "2 k"]);
    }

    #[test]
    fn values_keep_three_figures() {
        assert_eq!(figures(1.0), "1.00");
        assert_eq!(figures(9.999), "10.0");
        assert_eq!(figures(99.97), "100");
        assert_eq!(figures(1234.4), "1234");
    }

    #[test]
    fn small_values_do_not_become_zero() {
        assert_eq!(
            [0.0, 0.0042, 0.0949, 0.5].map(figures),
            ["0", "0.0042", "0.095", "0.50"]
        );
        assert_eq!(nanoseconds(0.0), "0 ns");
    }

    #[test]
    fn the_noun_agrees_with_the_count() {
        assert_eq!(counted(1, "reader"), "1 reader");
        assert_eq!(counted(8, "writer"), "8 writers");
    }

    #[test]
    fn ratios_have_two_figures() {
        let cases = [
            (0.0, "0"),
            (0.00423, "0.0042"),
            (0.0996, "0.10"),
            (0.42, "0.42"),
            (0.996, "1.0"),
            (4.249, "4.2"),
            (9.96, "10"),
            (42.4, "42"),
            (423.0, "420"),
            (-0.05, "-0.050"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            assert_eq!(ratio(value), text);
        }
        assert_eq!(ratio_range(0.004, 12.3), "0.0040 … 12");
    }

    #[test]
    fn units_change_where_four_figures_would_begin() {
        assert_eq!(nanoseconds(999.0), "999 ns");
        assert_eq!(nanoseconds(999.9), "1.00 µs");
        assert_eq!(nanoseconds(70_400.0), "70.4 µs");
        assert_eq!(bytes_per_second(1.234e9), "1.23 GB/s");
        assert_eq!(bytes_per_second(5e12), "5000 GB/s");
    }

    #[test]
    fn a_range_has_one_unit_where_possible() {
        assert_eq!(nanosecond_range(900.0, 1200.0), "0.90 … 1.20 µs");
        assert_eq!(rate_range(2e6, 30e6), "2.00 … 30.0 MB/s");
        assert_eq!(nanosecond_range(790.0, 2.82e6), "790 ns … 2.82 ms");
        assert_eq!(per_second(123_400.0), "123 k/s");
        assert_eq!(per_second(7.0), "7.00 /s");
        assert_eq!(per_second_range(1e5, 2e6), "0.10 … 2.00 M/s");
    }

    #[test]
    fn round_values_are_short() {
        assert_eq!(time_tick(1000.0), "1 µs");
        assert_eq!(rate_tick(2.5e6), "2.5 MB/s");
        assert_eq!(rate_tick(0.0), "0");
        assert_eq!(per_second_tick(500e3), "500 k/s");
        assert_eq!(
            [0.5, 1.25, 10.0, 200.0].map(figures_short),
            ["0.5", "1.25", "10", "200"]
        );
    }

    #[test]
    fn sizes_and_times_have_their_usual_units() {
        assert_eq!(size(64), "64 B");
        assert_eq!(size(65_536), "64 KiB");
        assert_eq!(size(1500), "1500 B");
        assert_eq!(megabytes(58_818_256), "58.8 MB");
        assert_eq!(minutes(Duration::from_millis(59_400)), "59 s");
        assert_eq!(minutes(Duration::from_millis(59_600)), "1 min 00 s");
        assert_eq!(minutes(Duration::from_secs(125)), "2 min 05 s");
    }
}
