//! Durations as people write them: `30d`, `12h`, `15m`, `1h30m`, `500ms`.

use std::time::Duration;

/// Longest first, which is the order of rendering and the only order accepted.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write one like `30d`, `12h`, `15m`, `45s` or `1h30m`")]
pub struct Error(String);

/// Reads one or more numbers with units, the larger unit first. Zero is a duration; a bare number is not.
///
/// # Errors
///
/// When the text is anything else, or the sum does not fit into 64 bits of milliseconds.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let error = || Error(text.to_owned());
    let mut rest = text.trim();
    let mut units = UNITS.iter();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return Err(error());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        // Taking from the same iterator each time refuses `1m1h` and `1h1h`.
        let (_, millis) = units.find(|(name, _)| *name == unit).ok_or_else(error)?;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis)).ok_or_else(error)?;
        total = total.checked_add(part).ok_or_else(error)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// The shortest text that [`parse`] reads back, to the millisecond: `1d12h`, `0s`.
#[must_use]
pub fn render(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    // Weeks are read but not written: `30d` should come back as it was given.
    for (name, millis) in UNITS.iter().skip(1) {
        let count = rest / millis;
        if count > 0 {
            text.push_str(&format!("{count}{name}"));
            rest %= millis;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, millis: u64, rendered: &str) {
        assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        assert_eq!(render(Duration::from_millis(millis)), rendered);
        assert_eq!(parse(rendered), Ok(Duration::from_millis(millis)), "{rendered}");
    }

    #[test]
    fn units_and_sums_are_read_and_written_back() {
        check("30d", 30 * 86_400_000, "30d");
        check("12h", 12 * 3_600_000, "12h");
        check("15m", 900_000, "15m");
        check("45s", 45_000, "45s");
        check("500ms", 500, "500ms");
        check("2w", 14 * 86_400_000, "14d");
        check("1h30m", 5_400_000, "1h30m");
        check(" 36h ", 36 * 3_600_000, "1d12h");
        check("90s", 90_000, "1m30s");
        check("0s", 0, "0s");
        check("18446744073709551615ms", u64::MAX, &render(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", " ", "30", "d", "-1d", "1.5h", "1x", "1m1h", "1h1h", "1 h", "18446744073709551616ms", "٣d"] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains("is not a duration"));
        }
        assert!(parse("213503982334d").is_ok());
        assert!(parse("213503982335d").is_err());
    }
}
