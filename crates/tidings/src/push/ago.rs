//! How long ago: durations as Go writes them, which is what ntfy reads, and also in days and weeks. Pure.

/// Units in nanoseconds.
#[rustfmt::skip]
const UNITS: [(&str, u128); 10] = [
    ("ns", 1), ("us", 1000), ("µs", 1000), ("μs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000),
    ("m", 60_000_000_000), ("h", 3_600_000_000_000), ("d", 86_400_000_000_000), ("w", 604_800_000_000_000),
];
/// More digits of a fraction say nothing.
const DIGITS: usize = 15;

/// Reads one or more numbers with units, in any order: `10m`, `1.5h`, `1h30m`. None is negative. What is longer than there
/// is time is as long as there is.
#[must_use]
pub fn micros(text: &str) -> Option<i64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.saturating_add(part(number, *nanos)?);
        rest = after;
    }
    Some(i64::try_from(total / 1000).unwrap_or(i64::MAX))
}

/// So many of a unit; `1.` and `.5` are numbers, too.
fn part(number: &str, nanos: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok().map(u128::from) };
    let fraction: String = fraction.chars().take(DIGITS).collect();
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(digits(whole)? * nanos + digits(&fraction)? * nanos / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_s_durations_are_read_and_ours() {
        for (text, seconds) in [
            ("10m", 600.0),
            ("1.5h", 5400.0),
            ("1h30m", 5400.0),
            ("30m1h", 5400.0),
            ("1.5h1.5h", 10_800.0),
            ("+2h", 7200.0),
            (".5s", 0.5),
            ("1.s", 1.0),
            ("0.25m100ms", 15.1),
            ("2us3µs4μs1000ns", 0.00001),
            ("0.3333333333333333333h", 1200.0),
            ("1d12h", 129_600.0),
            ("0.5w", 302_400.0),
            ("0s", 0.0),
        ] {
            let read = micros(text).unwrap_or_else(|| panic!("{text}"));
            assert!((read as f64 / 1e6 - seconds).abs() < 2e-6, "{text}: {read}");
        }
        assert_eq!(micros("18446744073709551615w"), Some(i64::MAX));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "+", "30", ".h", "h", "-1h", "-1.5h", "1h-30m", "1..5h", "1.5.h", "1.5", "1 h", "1H", "1x", "1e3s"]
        {
            assert_eq!(micros(text), None, "{text}");
        }
        assert_eq!((micros("18446744073709551616s"), micros("٣d")), (None, None));
    }
}
