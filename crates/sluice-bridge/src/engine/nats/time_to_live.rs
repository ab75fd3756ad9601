// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header `Nats-TTL`: seconds, or a duration such as `1h30m`, or `never`.

use std::time::Duration;

const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// None: the message does not expire.
pub fn parse(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return (seconds > 0).then(|| Duration::from_secs(seconds));
    }
    let seconds = parse_units(text)?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
}

fn parse_units(text: &str) -> Option<f64> {
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let (number, after) = rest.split_at(rest.find(|letter| !is_number(letter))?);
        let is_unit = |letter: char| !is_number(letter);
        let end = after.find(|letter| !is_unit(letter)).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    Some(seconds)
}

/// A time as the header, which has whole seconds: rounded up, so that the message does not expire first.
pub fn header(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    seconds.max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_seconds_or_units() {
        for (text, milliseconds) in [
            ("5", 5000),
            ("1s", 1000),
            ("1.5s", 1500),
            ("1h30m", 5_400_000),
            ("2m0.25s", 120_250),
            ("1500ms", 1500),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["never", "0", "", "s", "5x", "1h5", "-1", "1e400s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_is_rounded_up_to_seconds() {
        for (milliseconds, text) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (90_000, "90")] {
            assert_eq!(header(Duration::from_millis(milliseconds)), text);
        }
    }
}
