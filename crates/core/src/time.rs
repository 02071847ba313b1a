//! Time as an argument: the `Clock` everybody asks, and the one place that formats instants.

use std::sync::Mutex;
use std::time::Duration;

pub use jiff::Timestamp;

/// Where the system learns the time. Only the binary's `clock.rs` implements it on the real clocks.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, which may jump; for timestamps, schedules and expiry.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment, which never goes backward; for leases, backoff and measuring.
    fn monotonic(&self) -> Duration;
}

/// A clock that moves only when told to, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(Timestamp, Duration)>,
}

impl ManualClock {
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { state: Mutex::new((now, Duration::ZERO)) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.1 += by;
        state.0 = state.0.saturating_add(by).unwrap_or(Timestamp::MAX);
    }

    /// Lets the wall clock jump, in either direction, as an operator or NTP would; monotonic time stays.
    pub fn jump_to(&self, now: Timestamp) {
        self.lock().0 = now;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Timestamp, Duration)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.lock().1
    }
}

/// The instant that somebody names as ISO 8601 text. One whose offset from UTC is a day or more is none: it would mean
/// another day than the one it names.
#[must_use]
pub fn read(text: &str) -> Option<Timestamp> {
    let at = text.parse().ok()?;
    let clock = text.split_once(['T', 't', ' ']).map_or("", |(_, clock)| clock);
    let offset = clock.split_once(['+', '-']).map_or("", |(_, offset)| offset);
    offset.get(..2).and_then(|hours| hours.parse::<u8>().ok()).is_none_or(|hours| hours < 24).then_some(at)
}

/// The first whole second, since 1970, that is no sooner than so many seconds after `now`: what lives in whole seconds lives
/// no shorter than it should.
#[must_use]
pub fn second_after(now: Timestamp, seconds: u64) -> i64 {
    let begun = i64::from(now.subsec_nanosecond() > 0);
    now.as_second().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX)).saturating_add(begun)
}

/// `2026-11-15T12:34:56.789Z`: UTC with exactly three decimals, so that text order is time order.
#[must_use]
pub fn iso_millis(at: Timestamp) -> String {
    let mut text = iso_micros(at);
    // What is shorter than a millisecond is left out: `000Z`.
    text.truncate(text.len() - 4);
    text.push('Z');
    text
}

/// What [`iso_millis`] gives, where it is written and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsoMillis(pub Timestamp);

impl serde::Serialize for IsoMillis {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(at) = *self;
        let text = digits(at);
        let millis = text.as_ref().and_then(|text| text.first_chunk::<23>()).map(|millis| {
            let mut whole = [b'Z'; 24];
            whole.iter_mut().zip(millis).for_each(|(place, byte)| *place = *byte);
            whole
        });
        match millis.as_ref().map(|millis| std::str::from_utf8(millis)) {
            Some(Ok(text)) => serializer.serialize_str(text),
            _ => serializer.serialize_str(&iso_millis(at)),
        }
    }
}

/// `2026-11-15T12:34:56.789012Z`: UTC with exactly six decimals, so that text order is time order.
#[must_use]
pub fn iso_micros(at: Timestamp) -> String {
    let mut text = String::with_capacity(ISO_MICROS);
    push_iso_micros(&mut text, at);
    text
}

/// What [`iso_micros`] gives, where it is written and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsoMicros(pub Timestamp);

impl serde::Serialize for IsoMicros {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(at) = *self;
        match digits(at).as_ref().map(|text| std::str::from_utf8(text)) {
            Some(Ok(text)) => serializer.serialize_str(text),
            _ => serializer.serialize_str(&iso_micros(at)),
        }
    }
}

/// Characters of [`iso_micros`].
pub const ISO_MICROS: usize = 27;

/// Appends what [`iso_micros`] gives.
pub fn push_iso_micros(out: &mut String, at: Timestamp) {
    match digits(at) {
        Some(text) => out.push_str(std::str::from_utf8(&text).unwrap_or_default()),
        None => out.push_str(&format!("{at:.6}")),
    }
}

/// The same text of what is not before 1970.
fn digits(at: Timestamp) -> Option<[u8; ISO_MICROS]> {
    // A fraction of a microsecond before 1970 counts as 0, and is not.
    u64::try_from(at.as_microsecond()).ok().filter(|_| at >= Timestamp::UNIX_EPOCH).map(since_1970)
}

/// The same text, put together by hand: every event has its time written more than once.
fn since_1970(micros: u64) -> [u8; ISO_MICROS] {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counted from the first of March of the year 0, a leap day is the last of its year, and a year of its era.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let ([y1, y2], [y3, y4]) = (two(year / 100), two(year % 100));
    let ([m1, m2], [d1, d2]) = (two(month), two(day));
    let ([h1, h2], [n1, n2], [s1, s2]) = (two(hour), two(minute), two(second));
    let ([f1, f2], [f3, f4], [f5, f6]) = (two(micros / 10_000), two(micros / 100 % 100), two(micros % 100));
    [
        y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2, b'.', f1, f2, f3, f4, f5,
        f6, b'Z',
    ]
}

/// The digits of a number below a hundred.
const fn two(number: u64) -> [u8; 2] {
    // A byte is divided with less effort.
    let number = number as u8;
    [b'0' + number / 10, b'0' + number % 10]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_a_fixed_width() {
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(iso_millis(at), "2026-01-02T03:04:05.000Z");
        assert_eq!(iso_micros(at), "2026-01-02T03:04:05.000000Z");
        let at: Timestamp = "2026-01-02T03:04:05.1234567+02:00".parse().unwrap();
        assert_eq!(iso_millis(at), "2026-01-02T01:04:05.123Z");
        assert_eq!(iso_micros(at), "2026-01-02T01:04:05.123456Z");
        for at in
            [at, Timestamp::UNIX_EPOCH, Timestamp::MIN, Timestamp::MAX, "1969-12-31T23:59:59.9999Z".parse().unwrap()]
        {
            assert_eq!(serde_json::to_value(IsoMillis(at)).unwrap(), iso_millis(at));
            assert_eq!(serde_json::to_value(IsoMicros(at)).unwrap(), iso_micros(at));
        }
    }

    #[test]
    fn every_time_is_written_as_the_calendar_says() {
        let ends = [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH];
        let days = (-1000..2_932_890).step_by(61).map(|day: i64| {
            // Another time of each day.
            Timestamp::from_microsecond(day * 86_400_000_000 + (day * 7_919_123_457).rem_euclid(86_400_000_000))
                .unwrap()
        });
        let around = (1968..2110).flat_map(|year| {
            ["01-01", "02-28", "03-01", "12-31"].map(|day| format!("{year}-{day}T23:59:59.9999999Z").parse().unwrap())
        });
        for at in ends.into_iter().chain(days).chain(around) {
            assert_eq!((iso_micros(at), iso_millis(at)), (format!("{at:.6}"), format!("{at:.3}")));
        }
    }

    #[test]
    fn an_offset_is_less_than_a_day() {
        for (text, good) in [
            ("2027-01-16T12:00:00Z", true),
            ("2027-01-16t12:00:00+23:59", true),
            ("2027-01-16 12:00:00-23:59", true),
            ("2027-01-16T12:00:00+24:00", false),
            ("2027-01-16T12:00:00-25:00", false),
            ("2027-01-16T12:00:00+2500", false),
            ("2027-01-16T12:00:00", false),
            ("2027-01-16", false),
        ] {
            assert_eq!(read(text).is_some(), good, "{text}");
        }
    }

    // SX-26
    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = ManualClock::new(start);
        assert_eq!(clock.now(), start);
        clock.advance(Duration::from_secs(72 * 3600));
        assert_eq!(clock.now().to_string(), "2026-01-04T00:00:00Z");
        clock.jump_to(start);
        assert_eq!((clock.now(), clock.monotonic()), (start, Duration::from_secs(72 * 3600)));
    }
}
